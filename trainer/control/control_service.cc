// SPDX-License-Identifier: Apache-2.0
#include "trainer/control/control_service.h"

#include <grpcpp/grpcpp.h>

#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/net/deadline.h"
#include "common/rpc/credentials.h"
#include "common/sync/mutex.h"
#include "starling/v1alpha1/membership.grpc.pb.h"
#include "trainer/membership/convert.h"

namespace starling::control {
namespace {

constexpr absl::Duration kReportEvery = absl::Milliseconds(100);

}  // namespace

class ControlService::Core final : public v1alpha1::MemberControl::CallbackService {
 public:
  Core(const ControlServiceOptions& options, Handlers handlers)
      : caller_(tls::PeerName("coordinator", options.job_uid)), handlers_(std::move(handlers)) {}

  absl::Status Start(const ControlServiceOptions& options);
  void Stop();
  int port() const { return port_; }
  void Ready();
  void Notify();
  bool Flush(absl::Duration timeout);

  grpc::ServerBidiReactor<v1alpha1::Directive, v1alpha1::Report>* Attend(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Trace(grpc::CallbackServerContext* context,
                                  const v1alpha1::TraceQuery* query,
                                  v1alpha1::TraceAnswer* answer) override;

 private:
  class Call;

  grpc::Status Admit(const grpc::CallbackServerContext& context) const;

  void ReportRegularly();
  void ReportToAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string caller_;  // who may call
  const Handlers handlers_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  std::thread reporter_;

  sync::Mutex mutex_;
  sync::Condition stop_;
  sync::Condition changed_;  // calls_, written_
  std::set<Call*> calls_ ABSL_GUARDED_BY(mutex_);
  bool ready_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t made_ ABSL_GUARDED_BY(mutex_) = 0;     // reports, numbered from 1
  int64_t written_ ABSL_GUARDED_BY(mutex_) = 0;  // the newest that a network has
};

// One coordinator's stream. Its members but the messages in flight are guarded by the core's mutex.
class ControlService::Core::Call final
    : public grpc::ServerBidiReactor<v1alpha1::Directive, v1alpha1::Report> {
 public:
  explicit Call(Core& core) : core_(core) {
    {
      sync::MutexLock lock(core_.mutex_);
      core_.calls_.insert(this);
      if (core_.ready_) Report();
    }
    StartRead(&directive_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End();
    core_.handlers_.on_directive(membership::FromProto(directive_));
    if (core_.handlers_.make_report().highest_incarnation > directive_.incarnation()) {
      return HangUp();
    }
    StartRead(&directive_);
  }

  void OnWriteDone(bool ok) override {
    sync::MutexLock lock(core_.mutex_);
    writing_ = false;
    if (ok) {
      core_.written_ = std::max(core_.written_, in_flight_);
      core_.changed_.NotifyAll();
      if (again_) Report();
    }
    if (ending_) FinishOnce();
  }

  void OnCancel() override { End(); }

  void OnDone() override {
    {
      sync::MutexLock lock(core_.mutex_);
      core_.calls_.erase(this);
      core_.changed_.NotifyAll();
    }
    delete this;
  }

  // Needs the core's mutex, which the analysis does not recognise through a reference. The report
  // is made here, so that it is never older than the change.
  void Report() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    again_ = writing_;
    if (writing_ || ending_) return;
    writing_ = true;
    in_flight_ = ++core_.made_;
    report_ = membership::ToProto(core_.handlers_.make_report());
    StartWrite(&report_);
  }

 private:
  // The other side was superseded: it learns so from the report, then the call ends.
  void HangUp() {
    sync::MutexLock lock(core_.mutex_);
    Report();
    ending_ = true;
    if (!writing_) FinishOnce();
  }
  void End() {
    sync::MutexLock lock(core_.mutex_);
    ending_ = true;
    if (!writing_) FinishOnce();
  }
  void FinishOnce() {
    if (finished_) return;
    finished_ = true;
    Finish(grpc::Status::OK);
  }

  Core& core_;
  v1alpha1::Directive directive_;
  v1alpha1::Report report_;
  bool writing_ = false;
  bool again_ = false;
  bool ending_ = false;
  bool finished_ = false;
  int64_t in_flight_ = 0;
};

namespace {

// Refuses a call immediately.
class Refusal final : public grpc::ServerBidiReactor<v1alpha1::Directive, v1alpha1::Report> {
 public:
  explicit Refusal(const grpc::Status& why) { Finish(why); }
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerBidiReactor<v1alpha1::Directive, v1alpha1::Report>* ControlService::Core::Attend(
    grpc::CallbackServerContext* context) {
  const grpc::Status allowed = Admit(*context);
  if (!allowed.ok()) return new Refusal(allowed);
  return new Call(*this);
}

grpc::Status ControlService::Core::Admit(const grpc::CallbackServerContext& context) const {
  grpc::Status allowed = rpc::RequirePeer(*context.auth_context(), caller_);
  if (!allowed.ok()) {
    log::Warning("refused a caller", {{"peer", context.peer()}, {"why", allowed.error_message()}});
  }
  return allowed;
}

grpc::ServerUnaryReactor* ControlService::Core::Trace(grpc::CallbackServerContext* context,
                                                      const v1alpha1::TraceQuery* query,
                                                      v1alpha1::TraceAnswer* answer) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  grpc::Status status = Admit(*context);
  if (status.ok() && !handlers_.on_trace) {
    status = grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "this member records no timeline");
  }
  if (status.ok()) *answer = handlers_.on_trace(*query);
  reactor->Finish(status);
  return reactor;
}

absl::Status ControlService::Core::Start(const ControlServiceOptions& options) {
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort(options.address, rpc::ServerCredentials(options.identity), &port_);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port_ == 0) {
    return absl::UnavailableError(
        absl::StrCat("member control: cannot listen on ", options.address, ": is the port taken?"));
  }
  reporter_ = std::thread([this] { ReportRegularly(); });
  return absl::OkStatus();
}

void ControlService::Core::Stop() {
  {
    sync::MutexLock lock(mutex_);
    if (std::exchange(stopping_, true)) return;
    stop_.NotifyAll();
  }
  if (reporter_.joinable()) reporter_.join();
  if (server_ != nullptr) {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }
  sync::MutexLock lock(mutex_);
  while (!calls_.empty()) changed_.Wait(mutex_);
}

void ControlService::Core::Ready() {
  sync::MutexLock lock(mutex_);
  ready_ = true;
  ReportToAll();
}

void ControlService::Core::Notify() {
  sync::MutexLock lock(mutex_);
  if (ready_) ReportToAll();
}

bool ControlService::Core::Flush(absl::Duration timeout) {
  sync::MutexLock lock(mutex_);
  const int64_t awaited = made_ + 1;
  ReportToAll();
  const net::Deadline deadline = net::Deadline::After(timeout);
  while (written_ < awaited && !deadline.Expired()) changed_.WaitFor(mutex_, deadline.Remaining());
  return written_ >= awaited;
}

void ControlService::Core::ReportToAll() {
  for (Call* call : calls_) call->Report();
}

void ControlService::Core::ReportRegularly() {
  sync::MutexLock lock(mutex_);
  while (!stopping_) {
    stop_.WaitFor(mutex_, kReportEvery);
    if (ready_) ReportToAll();
  }
}

ControlService::ControlService(std::shared_ptr<Core> core) : core_(std::move(core)) {}

absl::StatusOr<std::unique_ptr<ControlService>> ControlService::Start(
    const ControlServiceOptions& options, Handlers handlers) {
  auto core = std::make_shared<Core>(options, std::move(handlers));
  if (absl::Status started = core->Start(options); !started.ok()) return started;
  return std::unique_ptr<ControlService>(new ControlService(std::move(core)));
}

ControlService::~ControlService() { core_->Stop(); }
int ControlService::port() const { return core_->port(); }
void ControlService::Ready() { core_->Ready(); }
void ControlService::Notify() { core_->Notify(); }
void ControlService::Stop() { core_->Stop(); }
bool ControlService::Flush(absl::Duration timeout) { return core_->Flush(timeout); }

}  // namespace starling::control
