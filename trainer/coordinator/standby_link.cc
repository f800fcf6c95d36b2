// SPDX-License-Identifier: Apache-2.0
#include "trainer/coordinator/standby_link.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>

#include "common/rpc/credentials.h"
#include "starling/v1alpha1/membership.grpc.pb.h"
#include "trainer/coordinator/event_loop.h"
#include "trainer/membership/convert.h"

namespace starling::coordinator {
namespace {

std::shared_ptr<grpc::Channel> NewChannel(const StandbyLinkOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);  // also the limit of one connect
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  rpc::ExpectPeer(arguments, options.peer);
  return grpc::CreateCustomChannel(options.address, options.credentials, arguments);
}

}  // namespace

// Lives until gRPC is done with it, and is destroyed on the loop, never in a callback: the last
// channel of a process joins the threads that callbacks run on.
class StandbyLink::Call final : public std::enable_shared_from_this<Call> {
 public:
  Call(StandbyLink& link, v1alpha1::Shadow shadow)
      : queue_(link.queue_),
        link_(link),
        link_alive_(link.alive_),
        shadow_(std::move(shadow)),
        channel_(link.channel_),
        stub_(v1alpha1::CoordinatorControl::NewStub(channel_)) {}

  void Start(absl::Duration patience) {
    self_ = shared_from_this();
    queue_->Hold();
    context_.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(patience));
    stub_->async()->Follow(&context_, &shadow_, &reply_,
                           [this](const grpc::Status& status) { OnDone(status.ok()); });
  }
  void Cancel() { context_.TryCancel(); }
  const v1alpha1::ShadowReply& reply() const { return reply_; }

 private:
  void OnDone(bool answered) {
    const std::shared_ptr<EventQueue> queue = queue_;  // the loop may destroy this immediately
    queue->PostLast([self = std::move(self_), answered] {
      if (*self->link_alive_) self->link_.OnEnd(self, answered);
    });
  }

  const std::shared_ptr<EventQueue> queue_;
  StandbyLink& link_;
  const std::shared_ptr<bool> link_alive_;
  const v1alpha1::Shadow shadow_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1alpha1::CoordinatorControl::Stub> stub_;
  grpc::ClientContext context_;
  v1alpha1::ShadowReply reply_;
  std::shared_ptr<Call> self_;
};

StandbyLink::StandbyLink(std::shared_ptr<EventQueue> queue, const clock::Clock& clock,
                         StandbyLinkOptions options, Handlers handlers)
    : queue_(std::move(queue)),
      clock_(clock),
      options_(std::move(options)),
      handlers_(std::move(handlers)) {}

StandbyLink::~StandbyLink() {
  *alive_ = false;
  if (call_ != nullptr) call_->Cancel();
}

void StandbyLink::Hurry() {
  due_ = absl::InfinitePast();
  Tick();
}

void StandbyLink::Tick() {
  const absl::Time now = clock_.Now();
  if (call_ != nullptr || now < due_) return;
  std::optional<v1alpha1::Shadow> shadow = handlers_.make_shadow();
  if (!shadow) return;
  due_ = now + options_.every;
  if (channel_ == nullptr) channel_ = NewChannel(options_);
  call_ = std::make_shared<Call>(*this, *std::move(shadow));
  call_->Start(options_.patience);
}

void StandbyLink::OnEnd(const std::shared_ptr<Call>& call, bool answered) {
  call_ = nullptr;
  if (answered) {
    const auto on_reply = handlers_.on_reply;  // it may end this link
    on_reply(membership::FromProto(call->reply()));
  } else {
    channel_ = nullptr;
  }
}

}  // namespace starling::coordinator
