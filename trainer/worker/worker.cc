// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/worker.h"

#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "trainer/parameter_server/job_tables.h"
#include "trainer/worker/hybrid.h"
#include "trainer/worker/leases.h"
#include "trainer/worker/lockstep.h"
#include "trainer/worker/training_loop.h"
#include "trainer/workload/hogwild.h"

namespace starling::worker {
namespace {

// What must be equal at all workers: the data always, the arithmetic where bits must agree.
std::string IdentityOf(const WorkerConfig& config, const workload::Declaration& declared) {
  const std::string data = absl::StrCat("data=", declared.data_digest.substr(0, 16));
  return config.spec.reproducible() ? absl::StrCat(declared.numeric_identity, " ", data) : data;
}

// With update.hogwild the workload with its threads, else null.
std::unique_ptr<workload::Workload> HogwildOf(const v1alpha1::TrainingJobSpec& spec,
                                              workload::Workload& workload) {
  constexpr int kThreads = 2;  // the schema's default, for specs that were not resolved
  if (workload.sparse() == nullptr || !spec.update().has_hogwild()) return nullptr;
  const v1alpha1::Hogwild& hogwild = spec.update().hogwild();
  return std::make_unique<workload::Hogwild>(workload,
                                             hogwild.has_threads() ? hogwild.threads() : kThreads);
}

WorkerParts WithWorkload(const WorkerParts& parts, workload::Workload* workload) {
  return {workload == nullptr ? parts.workload : *workload,
          parts.transport,
          parts.storage,
          parts.clock,
          parts.registry,
          parts.notify,
          parts.on_view,
          parts.on_hung,
          parts.own_loop,
          parts.recorder};
}

absl::StatusOr<std::unique_ptr<WorkSource>> MakeWorkSource(const Context& context) {
  const v1alpha1::Exchange& exchange = context.spec().exchange();
  if (context.parts.own_loop != nullptr && exchange.has_parameter_server()) {
    return absl::InvalidArgumentError(
        "spec.exchange.parameterServer: a program with a loop of its own reduces its gradients "
        "among the workers; leave spec.exchange out, or write allReduce");
  }
  if (exchange.parameter_server().tensors_size() > 0) return Hybrid::Create(context);
  if (exchange.has_parameter_server()) return Leases::Create(context);
  return Lockstep::Create(context);
}

}  // namespace

struct Worker::State {
  State(WorkerConfig config_in, const WorkerParts& parts_in);

  void Interrupt(membership::ViewNumber below) const {
    if (parts.own_loop != nullptr) parts.own_loop->Interrupt(below);
  }

  const WorkerConfig config;
  const std::unique_ptr<workload::Workload> hogwild;
  const WorkerParts parts;
  const data::Batches batches;
  observe::Stopwatch stopwatch;
  TrainingBoard board;
  WorkerMetrics metrics;
  StepFiles step_files;
  ViewLinks links;
  MemberShell shell;
  Progress progress;
  const Context context;
  std::unique_ptr<WorkSource> source;
};

Worker::State::State(WorkerConfig config_in, const WorkerParts& parts_in)
    : config(std::move(config_in)),
      hogwild(HogwildOf(config.spec, parts_in.workload)),
      parts(WithWorkload(parts_in, hogwild.get())),
      batches(parts.workload.declaration().samples, parameter_server::SamplesPerStep(config.spec),
              static_cast<std::uint64_t>(config.spec.seed())),
      stopwatch(parts.clock, config.began, parts.recorder),
      board(parts.clock, stopwatch),
      metrics(parts.registry),
      step_files(config.progress_file, config.step_log),
      links(parts.transport),
      shell({.id = config.self,
             .numeric_identity = IdentityOf(config, parts.workload.declaration()),
             .last_exit = config.last_exit},
            {.fence =
                 [this](membership::ViewNumber view) {
                   links.Fence(view);
                   Interrupt(view);
                 },
             .abort_view =
                 [this](membership::ViewNumber view) {
                   links.Abort(view);
                   Interrupt(view + 1);
                 },
             .report = parts.notify,
             .stop =
                 [this] {
                   links.Stop();
                   Interrupt(std::numeric_limits<membership::ViewNumber>::max());
                 }}),
      progress({.spec = config.spec,
                .job_dir = config.job_dir,
                .batches = batches,
                .names = parts.workload.declaration().metrics,
                .board = board,
                .step_files = step_files,
                .metrics = metrics,
                .clock = parts.clock,
                .report = parts.notify}),
      context{.config = config,
              .parts = parts,
              .batches = batches,
              .shell = shell,
              .links = links,
              .board = board,
              .stopwatch = stopwatch,
              .metrics = metrics,
              .progress = progress} {}

absl::StatusOr<std::unique_ptr<Worker>> Worker::Create(WorkerConfig config, WorkerParts parts) {
  RETURN_IF_ERROR(CheckTarget(config.spec.stop(), parts.workload.declaration().metrics));
  auto state = std::make_unique<State>(std::move(config), parts);
  ASSIGN_OR_RETURN(state->source, MakeWorkSource(state->context));
  return std::unique_ptr<Worker>(new Worker(std::move(state)));
}

Worker::Worker(std::unique_ptr<State> state) : state_(std::move(state)) {}
Worker::~Worker() = default;

absl::Status Worker::Run() {
  TrainingLoop loop(state_->context, *state_->source);
  if (state_->parts.own_loop == nullptr) return loop.Run();
  // How long a step of theirs takes, nobody can know.
  const auto announced = state_->stopwatch.Announce("the program's own code");
  return loop.Run();
}

void Worker::Nudge() { state_->shell.Nudge(); }

void Worker::OnDirective(const membership::Directive& directive) {
  // First of all: what follows may need what the thread that hangs holds.
  const bool obeyed = state_->shell.Ask([&](const membership::Member& machine) {
    return directive.incarnation >= machine.highest_incarnation();
  });
  if (obeyed && directive.hung == state_->config.self && state_->parts.on_hung) {
    state_->parts.on_hung(state_->stopwatch.Look().thread);
  }
  state_->shell.Deliver(
      [&](membership::Member& machine) { return machine.OnDirective(directive); });
  const auto [taken, installed] = state_->shell.Ask([&](const membership::Member& machine) {
    const membership::View* view = machine.view();
    return std::pair(directive.incarnation == machine.highest_incarnation(),
                     view == nullptr ? membership::ViewNumber{0} : view->number);
  });
  if (taken) state_->source->Hear(directive, installed);
}

membership::Report Worker::MakeReport() const {
  membership::Report report =
      state_->shell.Ask([](const membership::Member& machine) { return machine.MakeReport(); });
  state_->source->Fill(report);
  report.standing = state_->stopwatch.Look();
  // What the machine has heard of stands on the board already, so that is read last: whoever says
  // that it has stopped names the checkpoint of it.
  report.training = state_->board.Read(report.highest_incarnation);
  return report;
}

void Worker::UpdateMetrics() {
  state_->metrics.Show(state_->stopwatch.Read(), state_->parts.transport.ledger().Total());
}

void Worker::Terminate() {
  state_->shell.Deliver([](membership::Member& machine) { return machine.OnTerminate(); });
}

void Worker::GraceOver() {
  state_->shell.Deliver([](membership::Member& machine) { return machine.OnGraceOver(); });
}

void Worker::WaitForExit(absl::Duration timeout) {
  const net::Deadline deadline = net::Deadline::After(timeout);
  while (state_->shell.WaitForAction(deadline.Remaining())) {
    if (std::holds_alternative<membership::Exit>(*state_->shell.Next())) return;
  }
}

}  // namespace starling::worker
