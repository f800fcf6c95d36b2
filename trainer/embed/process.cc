// SPDX-License-Identifier: Apache-2.0
#include "trainer/embed/process.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "api/telemetry/process_metrics.h"
#include "common/clock/clock.h"
#include "common/log/log.h"
#include "common/metrics/metrics_endpoint.h"
#include "common/net/address.h"
#include "common/net/ports.h"
#include "common/process/memory_keeper.h"
#include "common/rpc/grpc_log.h"
#include "common/status/macros.h"
#include "common/storage/blob_store.h"
#include "common/tls/tls.h"
#include "trainer/checkpoint/checkpoint_store.h"
#include "trainer/control/control_service.h"
#include "trainer/control/data_plane.h"
#include "trainer/control/options.h"
#include "trainer/control/process.h"
#include "trainer/embed/forks.h"
#include "trainer/embed/leave_signal.h"
#include "trainer/membership/convert.h"
#include "trainer/timeline/recorder.h"
#include "trainer/transport/mixed_transport.h"
#include "trainer/worker/intake.h"
#include "trainer/worker/make_exchange.h"
#include "trainer/worker/numeric_environment.h"
#include "trainer/worker/view_links.h"

namespace starling::embed {
namespace {

// So long the coordinator may take to end a job that has failed here.
constexpr absl::Duration kWaitAfterFailure = absl::Seconds(30);

}  // namespace

// In the order in which they are made; they end in the other.
struct Process::Parts {
  control::Options options;
  std::string spec_text;
  v1alpha1::TrainingJobSpec spec;
  absl::Duration grace;
  clock::SystemClock clock;
  absl::Time began;
  metrics::Registry registry;
  std::optional<telemetry::ProcessMetrics> process_metrics;
  std::optional<timeline::Recorder> recorder;
  worker::Intake intake;
  std::unique_ptr<storage::BlobStore> storage;
  std::unique_ptr<transport::Transport> transport;
  std::unique_ptr<worker::Worker> worker;
  std::unique_ptr<metrics::MetricsEndpoint> endpoint;
  std::unique_ptr<control::ControlService> service;
  std::unique_ptr<LeaveSignal> signal;
};

Process::Process(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Process::~Process() { Abandon(); }

const std::string& Process::spec_text() const { return parts_->spec_text; }

absl::StatusOr<std::unique_ptr<Process>> Process::Open(const std::vector<std::string>& arguments) {
  log::Start("worker");
  rpc::RouteGrpcLog();
  process::StartMemoryKeeper();
  auto parts = std::make_unique<Parts>();
  parts->began = parts->clock.Now() - telemetry::ProcessAge();
  ASSIGN_OR_RETURN(parts->options, control::ParseOptions(arguments));
  control::Options& options = parts->options;
  RETURN_IF_ERROR(control::ReadEnvironment(options));
  if (!absl::ParseDuration(options.grace, &parts->grace)) {
    return absl::InvalidArgumentError("--grace must be a duration such as 15s");
  }
  ASSIGN_OR_RETURN(parts->spec_text, control::ReadFile(options.spec_path));
  ASSIGN_OR_RETURN(parts->spec, control::ReadSpec(options.spec_path));
  // Before the program loads what it computes with.
  if (parts->spec.reproducible()) worker::PrepareNumericEnvironment();
  ASSIGN_OR_RETURN(tls::Identity identity, tls::ReadIdentity(options.tls_path));
  parts->process_metrics.emplace(parts->registry);
  parts->recorder.emplace(parts->clock, membership::ToProto(options.self()));
  Parts* const raw = parts.get();
  CloseInForks(options.address);
  ASSIGN_OR_RETURN(
      parts->service,
      control::ControlService::Start(
          {.address = net::ToString({options.address, net::kMemberPort}),
           .identity = std::move(identity),
           .job_uid = options.job_uid},
          {.on_directive = [raw](const membership::Directive& d) { raw->intake.OnDirective(d); },
           .make_report = [raw] { return raw->intake.MakeReport(); },
           .on_trace =
               [raw](const v1alpha1::TraceQuery& query) { return raw->recorder->Answer(query); }}));
  ASSIGN_OR_RETURN(parts->endpoint,
                   metrics::MetricsEndpoint::Start(options.address, net::kMetricsPort,
                                                   parts->registry, nullptr, [raw] {
                                                     raw->process_metrics->Update();
                                                     raw->intake.UpdateMetrics();
                                                   }));
  return std::unique_ptr<Process>(new Process(std::move(parts)));
}

// What the job leaves open and the program says.
absl::Status Process::Complete(v1alpha1::TrainingJobSpec& spec) const {
  if (description.samples < 1) {
    return absl::InvalidArgumentError("the program must say how many samples there are, 1 or more");
  }
  if (batch > 0) spec.mutable_dataset()->set_global_batch_size(batch);
  if (spec.dataset().global_batch_size() < 1) {
    return absl::InvalidArgumentError(
        "neither the program nor spec.dataset.globalBatchSize says how many samples a step has");
  }
  if (!spec.stop().has_epochs() && !spec.stop().has_steps()) {
    if (end.epochs > 0) spec.mutable_stop()->set_epochs(end.epochs);
    if (end.steps > 0) spec.mutable_stop()->set_steps(end.steps);
  }
  if (spec.stop().has_target()) {
    return absl::InvalidArgumentError(
        "spec.stop.target: a program with a loop of its own validates by itself; leave it out");
  }
  if (spec.has_update() && !spec.update().has_gradient()) {
    return absl::InvalidArgumentError(
        "spec.update: a program with a loop of its own exchanges gradients; leave it out");
  }
  spec.clear_validation();
  spec.clear_update();
  // It is the program's own; what stands here is never applied to anything.
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(1);
  return absl::OkStatus();
}

absl::Status Process::Start() {
  if (started()) return absl::FailedPreconditionError("the process has started already");
  Parts& parts = *parts_;
  const control::Options& options = parts.options;
  RETURN_IF_ERROR(Complete(parts.spec));
  ASSIGN_OR_RETURN(const transport::Spin spin, transport::SpinOfJob());
  ASSIGN_OR_RETURN(const bool share_memory, transport::ShareMemoryOfJob());
  ASSIGN_OR_RETURN(std::string secret, control::ReadFile(options.secret_path));
  absl::StripAsciiWhitespace(&secret);
  ASSIGN_OR_RETURN(parts.storage, checkpoint::OpenJobPlace(parts.spec.checkpoint().uri(),
                                                           options.job_uid, options.job_dir));
  batches_.emplace(description.samples, parts.spec.dataset().global_batch_size(),
                   static_cast<std::uint64_t>(parts.spec.seed()));
  auto handover = std::make_unique<Handover>(description, *batches_, parts.spec.reproducible());
  if (share_memory) window_ = worker::PlaceGradients(parts.spec, *handover);
  ASSIGN_OR_RETURN(parts.transport, control::OpenTransport(options, parts.spec, secret, spin,
                                                           share_memory, window_));
  ASSIGN_OR_RETURN(parts.worker, worker::Worker::Create(
                                     {.spec = parts.spec,
                                      .job_uid = options.job_uid,
                                      .job_dir = options.job_dir,
                                      .self = options.self(),
                                      .last_exit = control::ReadLastExit(options.last_exit),
                                      .progress_file = options.progress_file,
                                      .step_log = options.step_log,
                                      .began = parts.began},
                                     {.workload = *handover,
                                      .transport = *parts.transport,
                                      .storage = *parts.storage,
                                      .clock = parts.clock,
                                      .registry = parts.registry,
                                      .notify = [&service = *parts.service] { service.Notify(); },
                                      .on_view = nullptr,
                                      .on_hung = control::LeaveHung,
                                      .own_loop = handover.get(),
                                      .recorder = &*parts.recorder}));
  handover_ = std::move(handover);
  Run();
  return absl::OkStatus();
}

void Process::Run() {
  Parts& parts = *parts_;
  parts.intake.Open(*parts.worker);
  parts.service->Ready();
  thread_ = std::thread([this, &parts] {
    const absl::Status status = parts.worker->Run();
    parts.service->Flush(absl::Seconds(2));
    if (!status.ok()) {
      log::Error("training cannot go on", {{"why", std::string(status.message())}});
    }
    {
      const sync::MutexLock lock(mutex_);
      ended_ = status;
    }
    handover_->Ended();
  });
  auto signal = LeaveSignal::Watch([&parts] { parts.worker->Terminate(); }, parts.grace,
                                   [&parts] {
                                     parts.worker->GraceOver();
                                     parts.service->Flush(absl::Seconds(2));
                                     control::Leave(0);  // whatever the program does meanwhile
                                   });
  if (signal.ok()) {
    parts.signal = *std::move(signal);
  } else {
    log::Warning("SIGTERM ends this process at once",
                 {{"why", std::string(signal.status().message())}});
  }
  log::Info("ready", {{"samples", description.samples}, {"parts", description.state.size()}});
}

std::optional<absl::Status> Process::ended() const {
  const sync::MutexLock lock(mutex_);
  return ended_;
}

void Process::Leave() {
  if (started() && parts_ != nullptr) parts_->worker->Terminate();
}

bool Process::WantsState() {
  const bool closes = parts_ != nullptr && started() && over && !ended();
  return closes && !handover_->MayFinish();
}

absl::Status Process::Close() {
  if (parts_ == nullptr || !started()) {
    Stop();
    return absl::OkStatus();
  }
  if (!over && !ended()) {
    const std::int64_t step = handover_->view().step;
    Abandon();
    return absl::FailedPreconditionError(
        absl::StrCat("the program has left its loop at step ", step,
                     ", before training was over: let the loop end, or give the job a spec.stop"));
  }
  handover_->Finish();
  parts_->worker->Nudge();
  thread_.join();
  const absl::Status status = *ended();
  if (!status.ok()) parts_->worker->WaitForExit(kWaitAfterFailure);
  Stop();
  return status;
}

void Process::Abandon() {
  if (parts_ != nullptr && thread_.joinable()) {
    parts_->worker->GraceOver();
    thread_.join();
  }
  Stop();
}

// The coordinator's calls and the signal use the worker: they end first. The worker notifies the
// service until its last thread, which writes checkpoints, has ended: that goes last.
void Process::Stop() {
  if (parts_ == nullptr) return;
  CloseInForks("");
  parts_->signal.reset();
  parts_->service->Stop();
  parts_->endpoint.reset();
  parts_->worker.reset();
  parts_.reset();
}

}  // namespace starling::embed
