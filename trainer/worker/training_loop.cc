// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/training_loop.h"

#include <string>
#include <variant>

#include "common/log/log.h"
#include "common/status/macros.h"
#include "trainer/exchange/exchange.h"

namespace starling::worker {
namespace {

// How long this worker waits for peers before it calls the view broken by itself. Normally the
// coordinator ends a view long before, when it finds a member silent.
constexpr absl::Duration kOpenTimeout = absl::Seconds(30);

}  // namespace

absl::Status TrainingLoop::Run() {
  context_.stopwatch.Enter(Activity::kJoining);
  absl::Status status;
  while (status.ok() && !exiting_) status = Turn();
  CloseView();
  if (!status.ok()) {
    context_.board.SetFailure(std::string(status.message()));
    context_.parts.notify();
  }
  return status;
}

absl::Status TrainingLoop::Turn() {
  const bool running = Running();
  absl::Status status;
  if (const std::optional<membership::Action> action = context_.shell.Next()) {
    status = std::visit([this](const auto& what) { return Do(what); }, *action);
  } else if (running) {
    status = source_.Work();
  } else {
    const absl::StatusOr<absl::Duration> idle = source_.Idle();
    if (idle.ok()) (void)context_.shell.WaitForNews(*idle);
    status = idle.status();
  }
  if (!absl::IsUnavailable(status)) return status;
  Broken(status);
  return absl::OkStatus();
}

bool TrainingLoop::Running() const {
  if (!running_) return false;
  return context_.shell.Ask([this](const membership::Member& machine) {
    return machine.phase() == membership::Phase::kRun && machine.view() != nullptr &&
           machine.view()->number == running_->id.view;
  });
}

void TrainingLoop::CloseView() {
  running_.reset();
  source_.Leave();
  context_.links.Close();
}

void TrainingLoop::Broken(const absl::Status& status) {
  const std::vector<membership::MemberId> unreachable = context_.links.Unreachable(status);
  log::Info("the view is broken here", {{"view", membership::EpochOf(view_.number)},
                                        {"why", std::string(status.message())},
                                        {"unreachable", unreachable.size()}});
  NoteBreak();
  CloseView();
  context_.shell.Deliver(
      [&](membership::Member& machine) { return machine.OnBroken(view_.number, unreachable); });
}

void TrainingLoop::NoteBreak() {
  context_.progress.ViewEnded();
  context_.stopwatch.Enter(Activity::kRecovery);
  Record("the view breaks");
}

void TrainingLoop::Record(std::string_view what) {
  timeline::Recorder* recorder = context_.parts.recorder;
  if (!timeline::IsOn(recorder)) return;
  const absl::Time now = recorder->Now();
  recorder->Add({.track = v1alpha1::TraceEvent::MEMBERSHIP,
                 .name = what,
                 .begin = now,
                 .end = now,
                 .view = membership::EpochOf(view_.number)});
}

absl::Status TrainingLoop::Do(const membership::Fence& action) {
  // Planned: slower peers may still be receiving our last bytes.
  CloseView();
  context_.links.Fence(action.view);
  return absl::OkStatus();
}

absl::Status TrainingLoop::Do(const membership::AbortView& action) {
  if (view_.number != action.view) return absl::OkStatus();
  NoteBreak();
  CloseView();
  return absl::OkStatus();
}

absl::Status TrainingLoop::Do(const membership::OpenMesh& action) {
  // Whoever has lost nobody waits for others to come and go.
  if (context_.stopwatch.activity() != Activity::kRecovery) {
    const bool planned = view_.number == 0 || action.view.at_boundary;
    if (planned) {
      context_.stopwatch.Enter(Activity::kJoining);
    } else {
      NoteBreak();  // this member hears of it from the coordinator
    }
  }
  CloseView();
  if (view_.number != 0) {
    context_.progress.ViewEnded();
    if (!action.view.at_boundary) context_.metrics.recoveries.Increment();
  }
  view_ = action.view;
  const auto mesh =
      context_.links.Open(view_, context_.config.self, net::Deadline::After(kOpenTimeout));
  // What cannot work with these members will not with others of them.
  if (absl::IsUnimplemented(mesh.status())) return mesh.status();
  if (!mesh.ok()) return exchange::ViewEnded(mesh.status());
  RETURN_IF_ERROR(source_.Enter(view_));
  context_.shell.Deliver(
      [this](membership::Member& machine) { return machine.OnEntered(view_.number); });
  return absl::OkStatus();
}

absl::Status TrainingLoop::Do(const membership::Run& action) {
  running_ = action;
  context_.progress.TakeSettings(action.settings);
  source_.OnSettings();
  context_.stopwatch.Enter(Activity::kIdle);
  context_.stopwatch.BeginView();
  RETURN_IF_ERROR(source_.Begin(action));
  Record("steps begin");
  log::Info("steps begin", {{"view", membership::EpochOf(action.id.view)},
                            {"incarnation", membership::IncarnationOf(action.id.view)},
                            {"workers", view_.workers().size()},
                            {"servers", view_.servers().size()},
                            {"rank", view_.RankOf(context_.config.self)},
                            {"sharesMemoryWith", context_.links.MembersNear()},
                            {"encryptsTo", context_.links.MembersEncrypted()},
                            {"step", action.id.step},
                            {"settleOnly", action.settle_only}});
  if (context_.parts.on_view) context_.parts.on_view(action.id.view);
  return absl::OkStatus();
}

absl::Status TrainingLoop::Do(const membership::ApplySettings& action) {
  context_.progress.TakeSettings(action.settings);
  source_.OnSettings();
  return absl::OkStatus();
}

absl::Status TrainingLoop::Do(const membership::Pause& action) {
  context_.stopwatch.Enter(Activity::kIdle);
  running_.reset();
  return source_.Do(action);
}

absl::Status TrainingLoop::Do(const membership::Exit& action) {
  log::Info("the worker ends", {{"why", action.reason}});
  exiting_ = true;
  return absl::OkStatus();
}

}  // namespace starling::worker
