// SPDX-License-Identifier: Apache-2.0
// starling-worker: the composition root.
//
// The coordinator can dial immediately; what the workload needs long for (libtorch) loads
// meanwhile. Exit codes: 0 released or finished, 1 failed, 2 bad configuration or data,
// 200 hung.

#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "api/telemetry/process_metrics.h"
#include "common/clock/clock.h"
#include "common/log/log.h"
#include "common/metrics/metrics_endpoint.h"
#include "common/net/address.h"
#include "common/net/ports.h"
#include "common/status/macros.h"
#include "common/storage/blob_store.h"
#include "common/tls/tls.h"
#include "trainer/checkpoint/checkpoint_store.h"
#include "trainer/control/control_service.h"
#include "trainer/control/data_plane.h"
#include "trainer/control/failpoints.h"
#include "trainer/control/options.h"
#include "trainer/control/process.h"
#include "trainer/membership/convert.h"
#include "trainer/timeline/recorder.h"
#include "trainer/transport/mixed_transport.h"
#include "trainer/worker/failing_workload.h"
#include "trainer/worker/intake.h"
#include "trainer/worker/make_exchange.h"
#include "trainer/worker/numeric_environment.h"
#include "trainer/worker/view_links.h"
#include "trainer/worker/worker.h"
#include "trainer/workload/workloads.h"

namespace starling::worker {

using control::ControlService;
using control::Fail;
using control::kBadInput;
using control::kFailed;
using control::Leave;
using control::Options;
using control::ReadLastExit;

namespace {

// Ends the process: callbacks and the signals' thread hold on to what lives here.
[[noreturn]] void Train(const Options& options, const v1alpha1::TrainingJobSpec& spec,
                        workload::Workload& workload, ControlService& service, Intake& intake,
                        metrics::Registry& registry, transport::Transport& transport,
                        const clock::Clock& clock, absl::Time began, absl::Duration grace,
                        timeline::Recorder& recorder) {
  const auto storage =
      checkpoint::OpenJobPlace(spec.checkpoint().uri(), options.job_uid, options.job_dir);
  if (!storage.ok()) Fail(kBadInput, storage.status());
  absl::StatusOr<std::unique_ptr<Worker>> worker =
      Worker::Create({.spec = spec,
                      .job_uid = options.job_uid,
                      .job_dir = options.job_dir,
                      .self = options.self(),
                      .last_exit = ReadLastExit(options.last_exit),
                      .progress_file = options.progress_file,
                      .step_log = options.step_log,
                      .began = began},
                     {.workload = workload,
                      .transport = transport,
                      .storage = **storage,
                      .clock = clock,
                      .registry = registry,
                      .notify = [&service] { service.Notify(); },
                      .on_view = nullptr,
                      .on_hung = control::LeaveHung,
                      .recorder = &recorder});
  if (!worker.ok()) Fail(kBadInput, worker.status());
  intake.Open(**worker);
  service.Ready();
  control::WatchSignals([&worker] { (*worker)->Terminate(); }, grace,
                        [&worker] { (*worker)->GraceOver(); });
  log::Info("ready", {{"numericIdentity", workload.declaration().numeric_identity}});

  const absl::Status ended = (*worker)->Run();
  service.Flush(absl::Seconds(2));
  if (ended.ok()) Leave(0);
  log::Error("training cannot go on", {{"why", std::string(ended.message())}});
  (*worker)->WaitForExit(absl::Seconds(30));
  Fail(kFailed, ended);
}

[[noreturn]] void Main(const Options& options) {
  const clock::SystemClock clock;
  const absl::Time began = clock.Now() - telemetry::ProcessAge();
  absl::Duration grace;
  if (!absl::ParseDuration(options.grace, &grace)) {
    Fail(kBadInput, absl::InvalidArgumentError("--grace must be a duration such as 15s"));
  }
  const absl::StatusOr<transport::Spin> spin = transport::SpinOfJob();
  if (!spin.ok()) Fail(kBadInput, spin.status());
  const absl::StatusOr<bool> share_memory = transport::ShareMemoryOfJob();
  if (!share_memory.ok()) Fail(kBadInput, share_memory.status());
  absl::StatusOr<v1alpha1::TrainingJobSpec> spec = control::ReadSpec(options.spec_path);
  if (!spec.ok()) Fail(kBadInput, spec.status());
  // What takes long begins on other threads, beside all that follows.
  const absl::StatusOr<workload::Opener> open = workload::Begin(*spec);
  if (!open.ok()) Fail(kBadInput, open.status());

  absl::StatusOr<std::string> secret = control::ReadFile(options.secret_path);
  if (!secret.ok()) Fail(kBadInput, secret.status());
  absl::StripAsciiWhitespace(&*secret);
  absl::StatusOr<tls::Identity> identity = tls::ReadIdentity(options.tls_path);
  if (!identity.ok()) Fail(kBadInput, identity.status());
  Intake intake;
  timeline::Recorder recorder(clock, membership::ToProto(options.self()));
  absl::StatusOr<std::unique_ptr<ControlService>> control = ControlService::Start(
      {.address = net::ToString({options.address, net::kMemberPort}),
       .identity = *std::move(identity),
       .job_uid = options.job_uid},
      {.on_directive = [&](const membership::Directive& d) { intake.OnDirective(d); },
       .make_report = [&] { return intake.MakeReport(); },
       .on_trace = [&](const v1alpha1::TraceQuery& query) { return recorder.Answer(query); }});
  if (!control.ok()) Fail(kFailed, control.status());
  metrics::Registry registry;
  telemetry::ProcessMetrics process(registry);
  auto endpoint =
      metrics::MetricsEndpoint::Start(options.address, net::kMetricsPort, registry, nullptr, [&] {
        process.Update();
        intake.UpdateMetrics();
      });
  if (!endpoint.ok()) Fail(kFailed, endpoint.status());
  const absl::StatusOr<std::unique_ptr<workload::Workload>> workload = (*open)();
  // Data that lie elsewhere may be read by the next try.
  if (!workload.ok())
    Fail(absl::IsUnavailable(workload.status()) ? kFailed : kBadInput, workload.status());
  const auto window = *share_memory ? PlaceGradients(*spec, **workload) : nullptr;
  auto transport = control::OpenTransport(options, *spec, *secret, *spin, *share_memory, window);
  if (!transport.ok()) Fail(kFailed, transport.status());
  const auto failpoint = control::FailpointOf(options);
  if (!failpoint.ok()) Fail(kBadInput, failpoint.status());
  control::Failpoints failpoints(*failpoint, control::DeedOf(*failpoint));
  FailingWorkload failing(**workload, failpoints);
  workload::Workload& used = *failpoint ? failing : **workload;
  Train(options, *spec, used, **control, intake, registry, **transport, clock, began, grace,
        recorder);
}

}  // namespace
}  // namespace starling::worker

int main(int argc, char** argv) {
  using namespace starling;  // NOLINT(google-build-using-namespace): the program's root
  const control::Options options = control::Begin("worker", argc, argv);
  worker::PrepareNumericEnvironment();
  worker::Main(options);
}
