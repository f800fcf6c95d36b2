// SPDX-License-Identifier: Apache-2.0
#include "trainer/coordinator/controller_service.h"

#include <grpcpp/grpcpp.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/rpc/credentials.h"
#include "starling/v1alpha1/membership.grpc.pb.h"
#include "trainer/coordinator/event_loop.h"
#include "trainer/membership/convert.h"

namespace starling::coordinator {
namespace {

using Reactor = grpc::ServerBidiReactor<v1alpha1::ControllerMessage, v1alpha1::CoordinatorReport>;

// Refuses a call immediately.
class Refusal final : public Reactor {
 public:
  explicit Refusal(const grpc::Status& why) { Finish(why); }
  void OnDone() override { delete this; }
};

grpc::Status Admit(const grpc::CallbackServerContext& context, const std::string& caller) {
  grpc::Status allowed = rpc::RequirePeer(*context.auth_context(), caller);
  if (!allowed.ok()) {
    log::Warning("refused a caller", {{"peer", context.peer()}, {"why", allowed.error_message()}});
  }
  return allowed;
}

}  // namespace

class ControllerService::Core final : public v1alpha1::CoordinatorControl::CallbackService {
 public:
  Core(const std::string& job_uid, std::shared_ptr<EventQueue> queue, Handlers handlers)
      : controller_(tls::PeerName("controller", job_uid)),
        coordinator_(tls::PeerName("coordinator", job_uid)),
        queue_(std::move(queue)),
        handlers_(std::move(handlers)) {}

  absl::Status Start(const ControllerServiceOptions& options);
  void Stop();
  int port() const { return port_; }
  void Report(const v1alpha1::CoordinatorReport& report);

  Reactor* Supervise(grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Follow(grpc::CallbackServerContext* context,
                                   const v1alpha1::Shadow* shadow,
                                   v1alpha1::ShadowReply* reply) override;

 private:
  class Call;

  // Who may call.
  const std::string controller_;
  const std::string coordinator_;
  const std::shared_ptr<EventQueue> queue_;
  const Handlers handlers_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  std::shared_ptr<Call> newest_;  // the loop's
};

// One stream; lives until gRPC is done with it. Reads are gRPC's, all else is the loop's.
class ControllerService::Core::Call final : public Reactor,
                                            public std::enable_shared_from_this<Call> {
 public:
  explicit Call(Core& core) : core_(core), queue_(core.queue_) {}

  void Begin() {
    self_ = shared_from_this();
    queue_->Post([self = self_] { self->BecomeNewest(); });
    StartRead(&in_);
  }
  void OnReadDone(bool ok) override {
    if (!ok) {
      queue_->Post([self = shared_from_this()] { self->End(grpc::Status::OK); });
      return;
    }
    if (in_.has_grant()) {
      const membership::Grant grant = membership::FromProto(in_.grant());
      const std::map<std::string, double> goodput(in_.grant().goodput().begin(),
                                                  in_.grant().goodput().end());
      queue_->Post([self = shared_from_this(), grant, goodput] {
        self->core_.handlers_.on_grant(grant, goodput);
      });
    } else if (in_.has_desired()) {
      const membership::Desired desired = membership::FromProto(in_.desired());
      queue_->Post(
          [self = shared_from_this(), desired] { self->core_.handlers_.on_desired(desired); });
    }
    StartRead(&in_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return;
    queue_->Post([self = shared_from_this()] {
      self->writing_ = false;
      self->Send();
    });
  }
  void OnDone() override {
    const std::shared_ptr<Call> last = std::move(self_);  // destroys this on return
  }

  // On the loop.
  void Report(const v1alpha1::CoordinatorReport& report) {
    next_ = report;
    Send();
  }
  void End(const grpc::Status& status) {
    if (std::exchange(ended_, true)) return;
    if (core_.newest_.get() == this) core_.newest_ = nullptr;
    Finish(status);
  }

 private:
  void BecomeNewest() {
    const std::shared_ptr<Call> older = std::exchange(core_.newest_, self_);
    if (older != nullptr) {
      older->End(grpc::Status(grpc::StatusCode::ABORTED, "a newer stream has taken over"));
    }
    core_.handlers_.on_stream();
  }
  void Send() {
    if (ended_ || writing_ || !next_) return;
    writing_ = true;
    out_ = *std::move(next_);
    next_.reset();
    StartWrite(&out_);
  }

  Core& core_;
  const std::shared_ptr<EventQueue> queue_;
  v1alpha1::ControllerMessage in_;
  v1alpha1::CoordinatorReport out_;
  std::optional<v1alpha1::CoordinatorReport> next_;
  bool writing_ = false;
  bool ended_ = false;
  std::shared_ptr<Call> self_;
};

Reactor* ControllerService::Core::Supervise(grpc::CallbackServerContext* context) {
  const grpc::Status allowed = Admit(*context, controller_);
  if (!allowed.ok()) return new Refusal(allowed);
  const auto call = std::make_shared<Call>(*this);
  call->Begin();
  return call.get();
}

grpc::ServerUnaryReactor* ControllerService::Core::Follow(grpc::CallbackServerContext* context,
                                                          const v1alpha1::Shadow* shadow,
                                                          v1alpha1::ShadowReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const grpc::Status allowed = Admit(*context, coordinator_);
  if (!allowed.ok()) {
    reactor->Finish(allowed);
    return reactor;
  }
  queue_->Post([this, reactor, shadow, reply] {
    *reply = handlers_.on_shadow(*shadow);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

absl::Status ControllerService::Core::Start(const ControllerServiceOptions& options) {
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(16 << 20);
  builder.AddListeningPort(options.address, rpc::ServerCredentials(options.identity), &port_);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port_ == 0) {
    return absl::UnavailableError(absl::StrCat("coordinator control: cannot listen on ",
                                               options.address, ": is the port taken?"));
  }
  return absl::OkStatus();
}

void ControllerService::Core::Stop() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

void ControllerService::Core::Report(const v1alpha1::CoordinatorReport& report) {
  if (newest_ != nullptr) newest_->Report(report);
}

ControllerService::ControllerService(std::unique_ptr<Core> core) : core_(std::move(core)) {}
ControllerService::~ControllerService() = default;
void ControllerService::Stop() { core_->Stop(); }
int ControllerService::port() const { return core_->port(); }
void ControllerService::Report(const v1alpha1::CoordinatorReport& report) { core_->Report(report); }

absl::StatusOr<std::unique_ptr<ControllerService>> ControllerService::Start(
    const ControllerServiceOptions& options, std::shared_ptr<EventQueue> queue, Handlers handlers) {
  auto core = std::make_unique<Core>(options.job_uid, std::move(queue), std::move(handlers));
  if (absl::Status started = core->Start(options); !started.ok()) return started;
  return std::unique_ptr<ControllerService>(new ControllerService(std::move(core)));
}

}  // namespace starling::coordinator
