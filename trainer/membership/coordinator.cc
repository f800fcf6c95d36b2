// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace starling::membership {
namespace {

// A process of this pod is in the view, or in one that the view tells of.
bool HasPod(const std::optional<View>& view, const std::string& pod_uid) {
  if (!view) return false;
  const auto of_pod = [&](const MemberId& id) { return id.pod_uid == pod_uid; };
  const auto was = [&](const PastView& past) {
    return std::any_of(past.members.begin(), past.members.end(), of_pod);
  };
  return std::any_of(view->members.begin(), view->members.end(),
                     [&](const ViewMember& member) { return of_pod(member.id); }) ||
         std::any_of(view->groups.begin(), view->groups.end(), [&](const ReplicaGroup& group) {
           return std::any_of(group.since.begin(), group.since.end(), was);
         });
}

const char* NameOf(Role role) { return role == Role::kServer ? "ParameterServer" : "Worker"; }

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options, std::set<std::string> roles,
                         std::int64_t settled)
    : options_(std::move(options)), detector_(options_, std::move(roles)), rounds_(settled) {
  told_.boot_id = options_.boot_id;
}

void Coordinator::NoticeGap(absl::Time now) {
  const absl::Duration gap = detector_.OnTime(now);
  enough_since_ += gap;
  unwitnessed_since_ += gap;
}

void Coordinator::OnGrant(const Grant& grant, absl::Time now) {
  NoticeGap(now);
  if (!detector_.OnGrant(grant, now)) return;
  rounds_.Start(grant.incarnation);
  Changed();
  Refresh(now);
}

void Coordinator::OnDesired(const Desired& desired, absl::Time now) {
  NoticeGap(now);
  if (!detector_.OnDesired(desired)) return;
  std::erase_if(returning_, [this](const std::string& uid) { return !detector_.FindPod(uid); });
  OnPodsChanged();
  Changed();
  Refresh(now);
}

void Coordinator::OnConnected(const std::string& pod_uid, absl::Time now) {
  NoticeGap(now);
  detector_.OnConnected(pod_uid);
  Refresh(now);
}

void Coordinator::OnDisconnected(const std::string& pod_uid, absl::Time now) {
  NoticeGap(now);
  returning_.erase(pod_uid);
  if (detector_.OnDisconnected(pod_uid, now)) Refresh(now);
}

void Coordinator::OnRefused(const std::string& pod_uid, absl::Time now) {
  NoticeGap(now);
  if (detector_.OnRefused(pod_uid)) Refresh(now);
}

void Coordinator::OnTick(absl::Time now) {
  NoticeGap(now);
  Refresh(now);
}

void Coordinator::OnReport(const std::string& pod_uid, const Report& report, absl::Time now) {
  NoticeGap(now);
  const FailureDetector::Heard heard = detector_.OnReport(pod_uid, report, now);
  if (heard == FailureDetector::Heard::kNothing) return;
  if (heard == FailureDetector::Heard::kNewProcess) released_.erase(pod_uid);
  if (heard != FailureDetector::Heard::kSignOfLife) {
    if (MayReturn(report)) {
      returning_.erase(pod_uid);
      detector_.TakeBack(pod_uid);
      detector_.SettleDoubt(pod_uid, Learn(report, now));
    } else {
      returning_.insert(pod_uid);
    }
  }
  Refresh(now);
}

// G8: what a process knows that was given up, views and a state, counts only when it can do no harm
// any more: others have gone on without it, and were told that its steps are lost. Whoever knows of
// no view, as a process that has just started, brings nothing that could.
bool Coordinator::MayReturn(const Report& report) const {
  const bool given_up = detector_.assumed_terminated().contains(report.id.pod_uid);
  if (!options_.rules.return_when_synced || !given_up || Newest() == nullptr) return true;
  if (!report.installed && !report.candidate && !report.state) return true;
  ViewNumber known = report.state ? report.state->view : 0;
  for (const std::optional<View>* view : {&report.installed, &report.candidate}) {
    if (*view) known = std::max(known, (*view)->number);
  }
  const auto ended = [this](const MemberId& id) { return detector_.Terminated(id); };
  return EveryGroup([&](const GroupHistory& group) { return group.MayReturn(known, ended); });
}

bool Coordinator::RenewForReturn() const {
  const View* newest = Newest();
  return !returning_.empty() && newest != nullptr && options_.rules.incarnation_in_view_number &&
         IncarnationOf(newest->number) < detector_.incarnation();
}

// Every event ends here: decide, then see whether the controller should hear of it immediately.
void Coordinator::Refresh(absl::Time now) {
  waiting_.clear();
  const bool leads = detector_.grant() && !superseded() && TakeOver(now);
  if (leads && !detector_.desired()) {
    waiting_ = "the controller has not yet said how many members are wanted";
  } else if (leads && !finished()) {
    Decide(now);
  }
  Summary summary = MakeSummary(now);
  training_ = summary.training;
  settled_step_ = summary.settled_step;
  summary = NewsOf(std::move(summary));
  if (summary == told_) return;
  told_ = std::move(summary);
  ++report_version_;
}

// C4: publish nothing until everyone who may have been in a view has reported or has ended. A
// witness has told of the newest view that the controller has seen, or of a later one.
bool Coordinator::TakeOver(absl::Time now) {
  if (taken_over_) return true;
  const auto told = [this](const std::function<bool(const std::optional<View>&)>& of) {
    return std::any_of(detector_.processes().begin(), detector_.processes().end(),
                       [&](const auto& entry) {
                         const std::optional<Report>& report = entry.second.report;
                         return report && (of(report->installed) || of(report->candidate));
                       });
  };
  const ViewNumber newest = detector_.grant()->newest_view;
  const bool witness = newest != 0 && told([&](const std::optional<View>& view) {
                         return view && view->number >= newest;
                       });
  const auto in_a_view = [&](const std::string& pod_uid) {
    return told([&](const std::optional<View>& view) { return HasPod(view, pod_uid); });
  };
  if (!detector_.HeardRoster(witness, in_a_view, Risked(), now, waiting_)) return false;
  taken_over_ = true;
  OnTakenOver();
  Changed();
  return true;
}

std::string Coordinator::Risked() const {
  // A successor to whom nobody has spoken yet knows of no step.
  return absl::StrCat("steps ",
                      settled_step_ < 0 ? "" : absl::StrCat("after step ", settled_step_, " "),
                      "that only it knows are lost if it comes back");
}

Directive Coordinator::DirectiveFor(const std::string& pod_uid) const {
  Directive directive;
  if (!detector_.grant()) return directive;
  directive.incarnation = detector_.incarnation();
  if (detector_.desired()) {
    directive.settings = detector_.desired()->settings;
    directive.finished = detector_.desired()->finished;
  }
  directive.checkpoint_turn = rounds_.asked() ? rounds_.number() : 0;
  const FailureDetector::Process* process = detector_.FindProcess(pod_uid);
  directive.superseded = process != nullptr && process->outdated;
  directive.released = released_.contains(pod_uid);
  if (!taken_over_ || superseded()) return directive;
  if (const View* newest = Newest()) directive.view = *newest;
  const bool heard = process != nullptr && process->report;
  directive.parameter_server = PartFor(heard ? &process->report->id : nullptr);
  return directive;
}

Summary Coordinator::MakeSummary(absl::Time now) const {
  Summary summary;
  summary.boot_id = options_.boot_id;
  if (!detector_.grant()) return summary;
  summary.incarnation = detector_.incarnation();
  const View* newest = Newest();
  summary.newest_view =
      std::max(newest == nullptr ? 0 : newest->number, detector_.grant()->newest_view);
  summary.waiting = waiting_;
  summary.stopped = taken_over_ && Halted() && Stopped();
  const View* current = Current();
  summary.view_synced = current != nullptr && Synced();
  detector_.FillSummary(
      summary, released_,
      [current](const MemberId& id) { return current != nullptr && current->Has(id); }, now);
  FillTraining(summary);
  return summary;
}

bool Coordinator::EnoughToBegin(std::initializer_list<Headcount> counts, absl::Time now) {
  for (const Headcount& one : counts) {
    if (one.there >= one.least) continue;
    enough_since_ = absl::InfiniteFuture();
    waiting_ = absl::StrCat("waits for ", one.who, ": ", one.there, " of at least ", one.least,
                            " are there");
    return false;
  }
  if (enough_since_ == absl::InfiniteFuture()) enough_since_ = now;
  if (now - enough_since_ >= options_.first_view_grace) return true;
  for (const Headcount& one : counts) {
    if (one.there >= one.hoped) continue;
    waiting_ = absl::StrCat("waits a moment for more ", one.who, ": ", one.there, " of ", one.hoped,
                            " are there");
    return false;
  }
  return true;
}

std::int64_t Coordinator::LivePods(const std::string& role) const {
  return std::count_if(detector_.pods().begin(), detector_.pods().end(), [&](const auto& entry) {
    return entry.second.state == PodState::kLive && entry.second.role == role;
  });
}

void Coordinator::NoteWitnessMissing(const Members& holders, absl::Time now) {
  if (unwitnessed_since_ == absl::InfiniteFuture()) unwitnessed_since_ = now;
  if (now - unwitnessed_since_ < options_.takeover_timeout) return;
  std::set<std::string> silent;
  for (const MemberId& id : holders) {
    if (LivenessOf(id, now) == Liveness::kSilent) silent.insert(id.pod_uid);
  }
  unwitnessed_since_ = absl::InfiniteFuture();
  if (!silent.empty()) detector_.AssumeTerminated(silent, Risked(), now);
}

std::optional<MemberId> Coordinator::EvictMostBlamed(
    const View& view, const std::function<bool(const Report&)>& broken,
    const std::function<bool(const MemberId&)>& can, absl::Time now) {
  std::map<MemberId, int> blame;
  for (const ViewMember& member : view.members) {
    const Report* report = detector_.ReportOf(member.id);
    if (report == nullptr || !broken(*report)) continue;
    for (const MemberId& id : report->unreachable) {
      if (view.Has(id) && LivenessOf(id, now) == Liveness::kReporting) ++blame[id];
    }
  }
  const auto rank = [&](const MemberId& id) {
    const Pod* pod = detector_.FindPod(id.pod_uid);
    return std::tuple(blame.at(id), view.Find(id)->role == Role::kWorker,
                      pod == nullptr ? 0 : pod->index);
  };
  const auto worst =
      std::max_element(blame.begin(), blame.end(),
                       [&](const auto& a, const auto& b) { return rank(a.first) < rank(b.first); });
  if (worst == blame.end() || !can(worst->first)) return std::nullopt;
  const ViewMember& evicted = *view.Find(worst->first);
  detector_.processes().at(evicted.id.pod_uid).held_until = now + options_.blame_hold;
  Incident incident;
  incident.id = evicted.id;
  incident.record.time = now;
  incident.record.reason = absl::StrCat(NameOf(evicted.role), "Unreachable");
  incident.record.pod = evicted.pod;
  incident.record.message = absl::StrCat("it answers the coordinator, but ", worst->second,
                                         " other members cannot reach it; it stays out for ",
                                         absl::FormatDuration(options_.blame_hold));
  detector_.AddIncident(std::move(incident));
  return evicted.id;
}

void Coordinator::NoteLosses(const View& view, absl::Time now) {
  for (const ViewMember& member : view.members) {
    Incident* incident = detector_.NoteLoss(member.id, member.pod, NameOf(member.role),
                                            LivenessOf(member.id, now), now);
    if (incident == nullptr) continue;
    incident->in_flight = Synced();
    for (const ViewMember& other : view.members) {
      const Report* report = detector_.ReportOf(other.id);
      if (report == nullptr || !report->state) continue;
      incident->reached = std::max(incident->reached, report->state->step);
    }
  }
}

void Coordinator::Release(const std::function<bool(const Report&)>& free) {
  for (const auto& [uid, process] : detector_.processes()) {
    if (!process.report || released_.contains(uid) || !free(*process.report)) continue;
    released_.insert(uid);
    Changed();
  }
}

}  // namespace starling::membership
