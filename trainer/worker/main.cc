// SPDX-License-Identifier: Apache-2.0
// starling-worker: the composition root.
//
// The coordinator can dial at once; while libtorch loads on a thread of its own, the data are read.
// Exit codes: 0 released or finished, 1 failed, 2 bad configuration or data.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <sstream>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "api/spec/job_file.h"
#include "api/spec/uris.h"
#include "common/clock/clock.h"
#include "common/log/log.h"
#include "common/metrics/metrics_endpoint.h"
#include "common/net/address.h"
#include "common/rpc/grpc_log.h"
#include "common/status/macros.h"
#include "common/tls/tls.h"
#include "trainer/control/control_service.h"
#include "trainer/control/options.h"
#include "trainer/transport/tcp_transport.h"
#include "trainer/worker/engine_loader.h"
#include "trainer/worker/numeric_environment.h"
#include "trainer/worker/view_links.h"
#include "trainer/worker/worker.h"

namespace starling::worker {

using control::ControlService;
using control::kDataPort;
using control::kMemberPort;
using control::kMetricsPort;
using control::Options;
using control::ReadLastExit;

namespace {

constexpr int kFailed = 1;
constexpr int kBadInput = 2;

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  return text.str();
}

// Directives that come before the worker is ready: only the newest counts. The worker is called
// without the lock, since it may ask for a report at once. Thread-safe.
class Intake {
 public:
  void OnDirective(const membership::Directive& directive) {
    if (Worker* worker = Take(directive)) worker->OnDirective(directive);
  }
  membership::Report MakeReport() {
    Worker* worker = Get();
    return worker == nullptr ? membership::Report{} : worker->MakeReport();
  }
  void Open(Worker& worker) {
    std::optional<membership::Directive> early;
    {
      sync::MutexLock lock(mutex_);
      worker_ = &worker;
      early = early_;
    }
    if (early) worker.OnDirective(*early);
  }

 private:
  Worker* Take(const membership::Directive& directive) {
    sync::MutexLock lock(mutex_);
    if (worker_ == nullptr) early_ = directive;
    return worker_;
  }
  Worker* Get() {
    sync::MutexLock lock(mutex_);
    return worker_;
  }

  sync::Mutex mutex_;
  Worker* worker_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::optional<membership::Directive> early_ ABSL_GUARDED_BY(mutex_);
};

struct Inputs {
  v1alpha1::TrainingJobSpec spec;
  std::string secret;
  data::Datasets datasets;
};

absl::StatusOr<v1alpha1::TrainingJobSpec> ReadSpec(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  ASSIGN_OR_RETURN(v1alpha1::TrainingJobSpec spec, spec::ReadResolvedSpec(text));
  // In the image, relative ones start at the image's folder.
  std::error_code error;
  const std::filesystem::path here = std::filesystem::current_path(error);
  if (!error) spec::MakeUrisAbsolute(spec, {.job_folder = "", .working_directory = here});
  return spec;
}

struct Opened {
  std::unique_ptr<engine::Engine> engine;
  std::string identity;
};

absl::StatusOr<Opened> OpenEngine(std::future<absl::StatusOr<engine::OpenEngineFunction>>& library,
                                  const Inputs& inputs) {
  ASSIGN_OR_RETURN(const engine::OpenEngineFunction open, library.get());
  engine::OpenedEngine opened;
  open(EngineConfigOf(inputs.spec, inputs.datasets.train), &opened);
  ASSIGN_OR_RETURN(std::unique_ptr<engine::Engine> engine, std::move(opened.engine));
  return Opened{std::move(engine), opened.numeric_identity};
}

// Without static destructors: libtorch's take time, and threads of ours may still run.
[[noreturn]] void Leave(int code) {
  std::fflush(nullptr);
  _exit(code);
}

// The message is the log's last line: the job's incident shows it.
void Tell(const absl::Status& status) {
  log::Error("the worker cannot go on", {{"why", std::string(status.message())}});
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
}

[[noreturn]] void Fail(int code, const absl::Status& status) {
  Tell(status);
  Leave(code);
}

sigset_t LeaveSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// Turns signals into events, on a thread of its own that ends with the process.
void WatchSignals(Worker& worker, absl::Duration grace) {
  std::thread([&worker, grace] {
    const sigset_t signals = LeaveSignals();
    int signal = 0;
    if (sigwait(&signals, &signal) != 0) return;
    log::Info("asked to leave", {{"signal", signal}});
    worker.Terminate();
    std::this_thread::sleep_for(absl::ToChronoNanoseconds(grace));
    worker.GraceOver();
  }).detach();
}

// Ends the process: callbacks and the signals' thread hold on to what lives here.
[[noreturn]] void Train(const Options& options, const Inputs& inputs, Opened opened,
                        ControlService& control, Intake& intake, metrics::Registry& registry,
                        transport::Transport& transport, absl::Duration grace) {
  const clock::SystemClock clock;
  const std::unique_ptr<checkpoint::FileSystem> files = checkpoint::MakePosixFileSystem();
  absl::StatusOr<std::unique_ptr<Worker>> worker =
      Worker::Create({.spec = inputs.spec,
                      .job_uid = options.job_uid,
                      .job_dir = options.job_dir,
                      .self = options.self(),
                      .last_exit = ReadLastExit(options.last_exit),
                      .numeric_identity = opened.identity,
                      .progress_file = options.progress_file,
                      .step_log = options.step_log},
                     {.engine = *opened.engine,
                      .datasets = inputs.datasets,
                      .transport = transport,
                      .files = *files,
                      .clock = clock,
                      .registry = registry,
                      .poke = [&control] { control.Poke(); },
                      .on_view = nullptr});
  if (!worker.ok()) Fail(kBadInput, worker.status());
  intake.Open(**worker);
  control.Ready();
  WatchSignals(**worker, grace);
  log::Info("ready", {{"numericIdentity", opened.identity}});

  const absl::Status ended = (*worker)->Run();
  control.Flush(absl::Seconds(2));
  if (ended.ok()) Leave(0);
  Tell(ended);
  (*worker)->WaitForExit(absl::Seconds(30));
  Leave(kFailed);
}

[[noreturn]] void Main(const Options& options) {
  absl::Duration grace;
  if (!absl::ParseDuration(options.grace, &grace)) {
    Fail(kBadInput, absl::InvalidArgumentError("--grace must be a duration such as 15s"));
  }
  // Off the main thread: loading takes as long as all the rest together.
  std::future<absl::StatusOr<engine::OpenEngineFunction>> library =
      std::async(std::launch::async, LoadEngineLibrary);

  absl::StatusOr<std::string> secret = ReadFile(options.secret_path);
  if (!secret.ok()) Fail(kBadInput, secret.status());
  absl::StripAsciiWhitespace(&*secret);
  absl::StatusOr<tls::Identity> identity = tls::ReadIdentity(options.tls_path);
  if (!identity.ok()) Fail(kBadInput, identity.status());
  Intake intake;
  absl::StatusOr<std::unique_ptr<ControlService>> control = ControlService::Start(
      {.address = absl::StrCat(options.address, ":", kMemberPort),
       .identity = *std::move(identity),
       .job_uid = options.job_uid},
      {.on_directive = [&](const membership::Directive& d) { intake.OnDirective(d); },
       .make_report = [&] { return intake.MakeReport(); }});
  if (!control.ok()) Fail(kFailed, control.status());
  metrics::Registry registry;
  auto endpoint = metrics::MetricsEndpoint::Start(options.address, kMetricsPort, registry);
  if (!endpoint.ok()) Fail(kFailed, endpoint.status());
  transport::Options mine;
  mine.member = NameOf(options.self());
  mine.job = options.job_uid;
  mine.secret = *secret;
  auto transport = transport::OpenTcpTransport({.host = options.address, .port = kDataPort}, mine);
  if (!transport.ok()) Fail(kFailed, transport.status());

  absl::StatusOr<v1alpha1::TrainingJobSpec> spec = ReadSpec(options.spec_path);
  if (!spec.ok()) Fail(kBadInput, spec.status());
  absl::StatusOr<data::Datasets> datasets = data::LoadDatasets(*spec);
  if (!datasets.ok()) Fail(kBadInput, datasets.status());
  const Inputs inputs{*std::move(spec), *std::move(secret), *std::move(datasets)};
  absl::StatusOr<Opened> opened = OpenEngine(library, inputs);
  if (!opened.ok()) Fail(kBadInput, opened.status());
  Train(options, inputs, *std::move(opened), **control, intake, registry, **transport, grace);
}

}  // namespace
}  // namespace starling::worker

int main(int argc, char** argv) {
  using namespace starling;  // NOLINT(google-build-using-namespace): the program's root
  const sigset_t signals = worker::LeaveSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // every thread inherits it
  log::Start("worker");
  rpc::RouteGrpcLog();
  absl::StatusOr<control::Options> options =
      control::ParseOptions(std::vector<std::string>(argv + 1, argv + argc));
  if (options.ok()) {
    if (absl::Status read = control::ReadEnvironment(*options); !read.ok()) options = read;
  }
  if (!options.ok()) {
    std::fprintf(stderr, "starling-worker: %s\n", std::string(options.status().message()).c_str());
    return worker::kBadInput;
  }
  worker::PrepareNumericEnvironment();
  worker::Main(*options);
}
