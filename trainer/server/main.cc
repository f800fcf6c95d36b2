// SPDX-License-Identifier: Apache-2.0
// starling-server: the composition root.
//
// Exit codes: 0 released or finished, 1 failed, 2 bad configuration, 200 hung.
#include <cstdio>
#include <cstdlib>

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
#include "trainer/server/executor_count.h"
#include "trainer/server/server_member.h"
#include "trainer/timeline/recorder.h"
#include "trainer/transport/cores.h"
#include "trainer/transport/mixed_transport.h"

namespace starling::server {
namespace {

using control::Fail;
using control::kBadInput;
using control::kFailed;

[[noreturn]] void Main(const control::Options& options) {
  const clock::SystemClock clock;
  const absl::Time began = clock.Now() - telemetry::ProcessAge();
  absl::Duration grace;
  if (!absl::ParseDuration(options.grace, &grace)) {
    Fail(kBadInput, absl::InvalidArgumentError("--grace must be a duration such as 15s"));
  }
  const char* const executors_text = std::getenv("STARLING_SERVER_EXECUTORS");
  const absl::StatusOr<int> executors =
      ParseExecutors(executors_text == nullptr ? "" : executors_text, transport::CoresHere());
  if (!executors.ok()) Fail(kBadInput, executors.status());
  const absl::StatusOr<transport::Spin> spin = transport::SpinOfJob();
  if (!spin.ok()) Fail(kBadInput, spin.status());
  const absl::StatusOr<bool> share_memory = transport::ShareMemoryOfJob();
  if (!share_memory.ok()) Fail(kBadInput, share_memory.status());
  const auto failpoint = control::FailpointOf(options);
  if (!failpoint.ok()) Fail(kBadInput, failpoint.status());
  control::Failpoints failpoints(*failpoint, control::DeedOf(*failpoint));
  absl::StatusOr<v1alpha1::TrainingJobSpec> spec = control::ReadSpec(options.spec_path);
  if (!spec.ok()) Fail(kBadInput, spec.status());
  absl::StatusOr<tls::Identity> identity = tls::ReadIdentity(options.tls_path);
  if (!identity.ok()) Fail(kBadInput, identity.status());
  metrics::Registry registry;
  telemetry::ProcessMetrics process(registry);
  absl::StatusOr<std::string> secret = control::ReadFile(options.secret_path);
  if (!secret.ok()) Fail(kFailed, secret.status());
  absl::StripAsciiWhitespace(&*secret);
  auto transport = control::OpenTransport(options, *spec, *secret, *spin, *share_memory);
  if (!transport.ok()) Fail(kFailed, transport.status());

  const auto storage =
      checkpoint::OpenJobPlace(spec->checkpoint().uri(), options.job_uid, options.job_dir);
  if (!storage.ok()) Fail(kBadInput, storage.status());
  std::unique_ptr<control::ControlService> service;
  timeline::Recorder recorder(clock, membership::ToProto(options.self()));
  ServerMember member({.spec = *std::move(spec),
                       .job_uid = options.job_uid,
                       .job_dir = options.job_dir,
                       .self = options.self(),
                       .last_exit = control::ReadLastExit(options.last_exit),
                       .progress_file = options.progress_file,
                       .executors = *executors,
                       .began = began},
                      {.transport = **transport,
                       .storage = **storage,
                       .clock = clock,
                       .registry = registry,
                       .failpoints = failpoints,
                       .notify = [&service] { service->Notify(); },
                       .on_hung = control::LeaveHung,
                       .recorder = &recorder});
  auto endpoint =
      metrics::MetricsEndpoint::Start(options.address, net::kMetricsPort, registry, nullptr, [&] {
        process.Update();
        member.UpdateMetrics();
      });
  if (!endpoint.ok()) Fail(kFailed, endpoint.status());
  // The coordinator may call before `service` is assigned; it is notified by Run's thread only.
  auto started = control::ControlService::Start(
      {.address = net::ToString({options.address, net::kMemberPort}),
       .identity = *std::move(identity),
       .job_uid = options.job_uid},
      {.on_directive = [&](const membership::Directive& d) { member.OnDirective(d); },
       .make_report = [&] { return member.MakeReport(); },
       .on_trace = [&](const v1alpha1::TraceQuery& query) { return recorder.Answer(query); }});
  if (!started.ok()) Fail(kFailed, started.status());
  service = *std::move(started);
  control::WatchSignals([&] { member.Terminate(); }, grace, [&] { member.GraceOver(); });
  service->Ready();
  log::Info("ready", {{"address", (*transport)->address()}});

  const absl::Status ended = member.Run();
  service->Flush(absl::Seconds(2));
  if (ended.ok()) control::Leave(0);
  Fail(kFailed, ended);
}

}  // namespace
}  // namespace starling::server

int main(int argc, char** argv) {
  using namespace starling;  // NOLINT(google-build-using-namespace): the program's root
  const control::Options options = control::Begin("server", argc, argv);
  server::Main(options);
}
