// SPDX-License-Identifier: Apache-2.0
#include "trainer/coordinator/member_link.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/net/address.h"
#include "common/net/socket.h"
#include "common/rpc/credentials.h"
#include "starling/v1alpha1/membership.grpc.pb.h"
#include "trainer/coordinator/event_loop.h"
#include "trainer/membership/convert.h"

namespace starling::coordinator {
namespace {

// A refused connection is reported within this time; a pod that takes longer to answer may be
// alive.
constexpr absl::Duration kProbe = absl::Milliseconds(5);
constexpr absl::Duration kTraceAnswer = absl::Seconds(2);

std::shared_ptr<grpc::Channel> FreshChannel(const MemberLinkOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);  // also the limit of one connect
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(16 << 20);
  rpc::ExpectPeer(arguments, options.peer);
  return grpc::CreateCustomChannel(options.address, options.credentials, arguments);
}

}  // namespace

// One call; lives until gRPC is done with it. Its events go to the loop; what it sends is the
// loop's business, one write at a time. It is destroyed on the loop, never in a callback: the last
// channel of a process joins the threads that callbacks run on.
class MemberLink::Stream final
    : public grpc::ClientBidiReactor<v1alpha1::Directive, v1alpha1::Report>,
      public std::enable_shared_from_this<Stream> {
 public:
  explicit Stream(MemberLink& link)
      : queue_(link.queue_),
        link_(link),
        link_alive_(link.alive_),
        stub_(v1alpha1::MemberControl::NewStub(FreshChannel(link.options_))) {}

  void Start() {
    self_ = shared_from_this();
    queue_->Hold();
    stub_->async()->Attend(&context_, this);
    AddHold();  // for the loop's writes, until the stream ends
    StartRead(&in_);
    StartCall();
  }
  void Write(const membership::Directive& directive) {
    out_ = membership::ToProto(directive);
    StartWrite(&out_);
  }
  void Cancel() { context_.TryCancel(); }
  v1alpha1::MemberControl::Stub& stub() { return *stub_; }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Post([](MemberLink& link, const std::shared_ptr<Stream>& self) { link.OnEnd(self); });
      return;
    }
    const membership::Report report = membership::FromProto(in_);
    Post([report](MemberLink& link, const std::shared_ptr<Stream>& self) {
      link.OnReport(self, report);
    });
    StartRead(&in_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return;
    Post([](MemberLink& link, const std::shared_ptr<Stream>& self) { link.OnWritten(self); });
  }
  void OnDone(const grpc::Status&) override {
    const std::shared_ptr<EventQueue> queue = queue_;  // the loop may destroy this immediately
    queue->PostLast([self = std::move(self_)] {});
  }
  // On the loop, once: no writes from now on.
  void Release() {
    if (!std::exchange(released_, true)) RemoveHold();
  }

 private:
  template <typename Event>
  void Post(Event event) {
    queue_->Post([self = shared_from_this(), event] {
      if (*self->link_alive_) event(self->link_, self);
    });
  }

  const std::shared_ptr<EventQueue> queue_;
  MemberLink& link_;
  const std::shared_ptr<bool> link_alive_;
  const std::unique_ptr<v1alpha1::MemberControl::Stub> stub_;
  grpc::ClientContext context_;
  v1alpha1::Directive out_;
  v1alpha1::Report in_;
  bool released_ = false;
  std::shared_ptr<Stream> self_;
};

MemberLink::MemberLink(std::shared_ptr<EventQueue> queue, const clock::Clock& clock,
                       MemberLinkOptions options, Handlers handlers)
    : queue_(std::move(queue)),
      clock_(clock),
      options_(std::move(options)),
      handlers_(std::move(handlers)),
      wait_(options_.shortest_wait) {}

MemberLink::~MemberLink() {
  *alive_ = false;
  if (stream_ == nullptr) return;
  stream_->Cancel();
  stream_->Release();
}

void MemberLink::Tell(const membership::Directive& directive) {
  if (delivered_ && directive == directive_) return;
  directive_ = directive;
  delivered_ = false;
  Send();
}

void MemberLink::Send() {
  if (stream_ == nullptr || writing_ || delivered_) return;
  writing_ = true;
  delivered_ = true;
  stream_->Write(directive_);
}

void MemberLink::Tick() {
  const absl::Time now = clock_.Now();
  if (stream_ == nullptr) {
    if (now >= next_dial_) Dial();
  } else if (now - heard_ > options_.silence_timeout) {
    heard_ = now;
    stream_->Cancel();  // it ends like a broken one
  }
}

// One question; it holds the stream until gRPC is done with it, and ends on the loop, as a stream
// does.
class MemberLink::Question final : public grpc::ClientUnaryReactor {
 public:
  Question(MemberLink& link, const v1alpha1::TraceQuery& query,
           std::function<void(const TraceHeard&)> answered)
      : queue_(link.queue_),
        clock_(link.clock_),
        stream_(link.stream_),
        query_(query),
        answered_(std::move(answered)) {}

  void Start() {
    queue_->Hold();
    heard_.sent = clock_.Now();
    context_.set_deadline(std::chrono::system_clock::now() +
                          absl::ToChronoMilliseconds(kTraceAnswer));
    stream_->stub().async()->Trace(&context_, &query_, &heard_.answer, this);
    StartCall();
  }

  void OnDone(const grpc::Status& status) override {
    heard_.received = clock_.Now();
    if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
      heard_.why_not = "it is of a version that records no timeline";
    } else if (!status.ok()) {
      heard_.why_not = "it did not answer: " + status.error_message();
    }
    const std::shared_ptr<EventQueue> queue = queue_;  // the loop may destroy this immediately
    queue->PostLast([self = std::shared_ptr<Question>(this)] { self->answered_(self->heard_); });
  }

 private:
  const std::shared_ptr<EventQueue> queue_;
  const clock::Clock& clock_;
  const std::shared_ptr<Stream> stream_;
  const v1alpha1::TraceQuery query_;
  const std::function<void(const TraceHeard&)> answered_;
  grpc::ClientContext context_;
  TraceHeard heard_;
};

void MemberLink::Ask(const v1alpha1::TraceQuery& query,
                     std::function<void(const TraceHeard&)> heard) {
  if (stream_ != nullptr) return (new Question(*this, query, std::move(heard)))->Start();
  TraceHeard nothing;
  nothing.why_not = "no stream to it stands";
  heard(nothing);
}

void MemberLink::Dial() {
  reported_ = false;
  delivered_ = false;
  writing_ = false;
  heard_ = clock_.Now();
  stream_ = std::make_shared<Stream>(*this);
  stream_->Start();
  Send();
}

void MemberLink::OnReport(const std::shared_ptr<Stream>& stream, const membership::Report& report) {
  if (stream != stream_) return;
  heard_ = clock_.Now();
  wait_ = options_.shortest_wait;
  if (!std::exchange(reported_, true)) handlers_.on_connected();
  handlers_.on_report(report);
}

void MemberLink::OnWritten(const std::shared_ptr<Stream>& stream) {
  if (stream != stream_) return;
  writing_ = false;
  Send();
}

void MemberLink::OnEnd(const std::shared_ptr<Stream>& stream) {
  stream->Release();
  if (stream != stream_) return;
  stream_ = nullptr;
  if (reported_) handlers_.on_disconnected();
  Probe();
  next_dial_ = clock_.Now() + wait_;
  wait_ = std::min(2 * wait_, options_.longest_wait);
}

// Asks the kernel whether nobody listens there any more, which is faster and clearer than gRPC's
// state.
void MemberLink::Probe() {
  const absl::StatusOr<net::Address> address = net::ParseAddress(options_.address);
  if (!address.ok()) return;
  const absl::StatusOr<net::FileDescriptor> socket =
      net::Connect(*address, net::Deadline::After(kProbe));
  if (!socket.ok() && absl::IsUnavailable(socket.status())) handlers_.on_refused();
}

}  // namespace starling::coordinator
