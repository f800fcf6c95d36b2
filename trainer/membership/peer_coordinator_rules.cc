// SPDX-License-Identifier: Apache-2.0
// Rules C0 to C6, in the order in which Decide() calls them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/membership/peer_coordinator.h"

namespace starling::membership {
namespace {

// How long one aborted member waits for the others to say so too: they will name who is gone.
constexpr absl::Duration kAbortWait = absl::Milliseconds(250);
// A checkpoint turn that nobody commits for so long is given up.
constexpr absl::Duration kTurnPatience = absl::Seconds(60);

}  // namespace

void PeerCoordinator::Decide(absl::Time now) {
  waiting_.clear();
  if (!detector_.grant() || superseded()) return;
  if (!TakeOver(now)) return;
  if (!detector_.desired()) {
    waiting_ = "the controller has not yet said how many workers are wanted";
    return;
  }
  if (detector_.desired()->finished) return;
  const View* current = Current();
  const View* pending = Pending(current);
  if (current == nullptr) {
    FirstView(now);
  } else {
    NoteLosses(*current, now);
    bool blamed = false;
    if (Broken(*current, now, blamed)) {
      Repair(*current, blamed, now);
    } else if (!Resume(*current, now) && IsRunning(*current, now)) {
      newest_unknown_ = false;
      Plan(*current, pending, now);
      TakeTurn(*current, now);
    }
  }
  current = Current();
  Release(current, Pending(current));
}

// C4: publish nothing until everyone who may have been in a view has reported or has ended.
bool PeerCoordinator::TakeOver(absl::Time now) {
  if (taken_over_) return true;
  const auto newest = published_.find(detector_.grant()->newest_view);
  const bool witness =
      newest != published_.end() &&
      std::any_of(newest->second.members.begin(), newest->second.members.end(),
                  [this](const ViewMember& m) { return detector_.ReportOf(m.id) != nullptr; });
  const auto in_a_view = [this](const std::string& pod_uid) {
    return std::any_of(published_.begin(), published_.end(), [&](const auto& entry) {
      const std::vector<ViewMember>& members = entry.second.members;
      return std::any_of(members.begin(), members.end(),
                         [&](const ViewMember& m) { return m.id.pod_uid == pod_uid; });
    });
  };
  if (!detector_.HeardRoster(witness, in_a_view, Risked(), now, waiting_)) return false;
  taken_over_ = true;
  newest_unknown_ = detector_.grant()->newest_view > Newest();
  ++directives_version_;
  return true;
}

// Whether `members` are enough to begin with, and the rest had time to come too.
bool PeerCoordinator::EnoughFor(std::size_t members, absl::Time now) {
  const auto needed =
      static_cast<std::size_t>(std::max<std::int64_t>(1, detector_.desired()->min_workers));
  if (members < needed) {
    enough_since_ = absl::InfiniteFuture();
    waiting_ = absl::StrCat("waits for workers: ", members, " of at least ", needed, " are there");
    return false;
  }
  if (enough_since_ == absl::InfiniteFuture()) enough_since_ = now;
  std::int64_t live = 0;
  for (const auto& [uid, pod] : detector_.pods()) live += pod.state == PodState::kLive ? 1 : 0;
  const std::int64_t hoped = std::min(live, detector_.desired()->workers);
  if (static_cast<std::int64_t>(members) >= hoped) return true;
  if (now - enough_since_ >= options_.first_view_grace) return true;
  waiting_ =
      absl::StrCat("waits a moment for more workers: ", members, " of ", hoped, " are there");
  return false;
}

// C0, the very first view.
void PeerCoordinator::FirstView(absl::Time now) {
  if (detector_.desired()->settings.halt || detector_.desired()->workers <= 0) return;
  Members members;
  for (const std::string& uid : Eligible(now)) {
    const bool room = static_cast<std::int64_t>(members.size()) < detector_.desired()->workers;
    if (room && IsJoinable(uid)) members.push_back(detector_.processes().at(uid).report->id);
  }
  if (!EnoughFor(members.size(), now)) return;
  enough_since_ = absl::InfiniteFuture();
  Publish(Compose(Form(members).group), "");
}

// C1's guard. `blamed`: nobody is known to be gone, the members only cannot reach each other.
bool PeerCoordinator::Broken(const View& view, absl::Time now, bool& blamed) const {
  bool gone = false;
  bool others_hold = false;
  absl::Time aborted_since = absl::InfiniteFuture();
  for (const ViewMember& member : view.members) {
    const Liveness liveness = LivenessOf(member.id, now);
    const Report* report = detector_.ReportOf(member.id);
    if (liveness == Liveness::kGone || liveness == Liveness::kSilent) gone = true;
    if (liveness != Liveness::kReporting || report == nullptr) {
      others_hold = others_hold || liveness == Liveness::kUnclear;
      continue;
    }
    const ViewNumber in = report->installed ? report->installed->number : 0;
    const bool prepared = report->candidate && report->candidate->number == view.number &&
                          report->phase == Phase::kRun;
    const bool never = report->fence < view.number && !prepared &&
                       IncarnationOf(view.number) < detector_.incarnation() &&
                       options_.rules.incarnation_in_view_number;
    if (report->fence > view.number || never) gone = true;
    const bool here = in == view.number || (view.at_boundary && in == view.from);
    if (here && report->phase == Phase::kLost) gone = true;
    if (here && report->phase == Phase::kAborted) {
      aborted_since =
          std::min(aborted_since, detector_.processes().at(member.id.pod_uid).aborted_since);
    } else if (report->phase != Phase::kDone) {
      others_hold = true;
    }
  }
  if (gone) return true;
  if (aborted_since == absl::InfiniteFuture()) return false;
  blamed = true;
  return !others_hold || now - aborted_since >= kAbortWait;
}

// C1: those who report go on without the rest. C0, if nobody of the view is left.
void PeerCoordinator::Repair(const View& current, bool blamed, absl::Time now) {
  Members members = Survivors(current, now);
  const bool survives = std::any_of(members.begin(), members.end(),
                                    [&](const MemberId& id) { return current.Has(id); });
  const auto needed =
      static_cast<std::size_t>(std::max<std::int64_t>(1, detector_.desired()->min_workers));
  if (!survives) {
    const bool halted = detector_.desired()->settings.halt || detector_.desired()->workers <= 0;
    if (halted || !EnoughFor(members.size(), now)) return;
  } else if (members.size() < needed) {
    waiting_ =
        absl::StrCat("waits for workers: ", members.size(), " of at least ", needed, " are there");
    return;
  }
  if (blamed && failed_views_ >= 1) Evict(current, members, now);
  const FormedGroup formed = Form(members);
  if (!Witnessed(formed, now)) return;
  const auto ids = [](const ReplicaGroup& of) {
    return std::set<MemberId>(of.members.begin(), of.members.end());
  };
  const bool lost = std::any_of(members.begin(), members.end(), [&](const MemberId& id) {
    return detector_.ReportOf(id)->phase == Phase::kLost;
  });
  const ReplicaGroup& newest = published_.rbegin()->second.groups.front();
  if (lost && ids(formed.group) == ids(newest) && formed.group.waived == newest.waived &&
      formed.group.restore == newest.restore) {
    waiting_ = "waits for a worker that knows the last steps, or for proof that all have ended";
    return;
  }
  enough_since_ = absl::InfiniteFuture();
  if (blamed) ++failed_views_;
  const std::size_t count = members.size();
  Publish(Compose(formed.group),
          count == 1 ? "1 worker goes on" : absl::StrCat(count, " workers go on"));
}

// The reporting members of the view in its order, then all strays: processes that were in an
// earlier view, as holders of a state or as witnesses. First-time joiners only if there are too few
// otherwise.
Members PeerCoordinator::Survivors(const View& current, absl::Time now) {
  const std::vector<std::string> eligible = Eligible(now);
  Members members;
  const auto add = [&](auto&& wanted) {
    for (const std::string& uid : eligible) {
      const Report& report = *detector_.processes().at(uid).report;
      const bool there = std::find(members.begin(), members.end(), report.id) != members.end();
      if (!there && wanted(uid, report)) members.push_back(report.id);
    }
  };
  add([&](const std::string&, const Report& report) { return current.Has(report.id); });
  const bool survives = !members.empty();
  add([&](const std::string&, const Report& report) {
    const bool was_in_a_view =
        report.state || std::any_of(published_.begin(), published_.end(),
                                    [&](const auto& entry) { return entry.second.Has(report.id); });
    return was_in_a_view && (!survives || report.phase != Phase::kLinger);
  });
  const auto limit = survives ? std::max<std::int64_t>(1, detector_.desired()->min_workers)
                              : std::max<std::int64_t>(1, detector_.desired()->workers);
  add([&](const std::string& uid, const Report&) {
    return static_cast<std::int64_t>(members.size()) < limit && IsJoinable(uid);
  });
  return members;
}

// C6: the second view in a row that failed though all report. The most blamed goes, of equals the
// one with the higher index, if the others can go on without it; after a while it may come back.
void PeerCoordinator::Evict(const View& view, Members& members, absl::Time now) {
  std::map<MemberId, int> blame;
  for (const ViewMember& member : view.members) {
    const Report* report = detector_.ReportOf(member.id);
    if (report == nullptr || report->phase != Phase::kAborted) continue;
    for (const MemberId& id : report->unreachable) {
      if (view.Has(id) && LivenessOf(id, now) == Liveness::kReporting) ++blame[id];
    }
  }
  const auto index = [this](const MemberId& id) {
    const Pod* pod = detector_.FindPod(id.pod_uid);
    return pod == nullptr ? 0 : pod->index;
  };
  const auto worst =
      std::max_element(blame.begin(), blame.end(), [&](const auto& a, const auto& b) {
        return std::pair(a.second, index(a.first)) < std::pair(b.second, index(b.first));
      });
  if (worst == blame.end()) return;
  Members rest = members;
  std::erase(rest, worst->first);
  const auto needed =
      static_cast<std::size_t>(std::max<std::int64_t>(1, detector_.desired()->min_workers));
  if (rest.size() < needed || Form(rest).missing_witness != 0) return;
  members = std::move(rest);
  detector_.processes().at(worst->first.pod_uid).held_until = now + options_.blame_hold;
  Incident incident;
  incident.id = worst->first;
  incident.record.time = now;
  incident.record.reason = "WorkerUnreachable";
  incident.record.pod = detector_.FindPod(worst->first.pod_uid)->name;
  incident.record.message = absl::StrCat("it answers the coordinator, but ", worst->second,
                                         " other workers cannot reach it; it stays out for ",
                                         absl::FormatDuration(options_.blame_hold));
  detector_.AddIncident(std::move(incident));
}

// The job was halted and is wanted again before its processes were taken away.
bool PeerCoordinator::Resume(const View& current, absl::Time now) {
  if (detector_.desired()->settings.halt) return false;
  Members members;
  for (const ViewMember& member : current.members) {
    const Report* report = detector_.ReportOf(member.id);
    if (report == nullptr || !report->stopped ||
        report->settings_generation >= detector_.desired()->settings.generation ||
        report->installed->number != current.number ||
        LivenessOf(member.id, now) != Liveness::kReporting) {
      return false;
    }
    members.push_back(member.id);
  }
  Publish(Compose(Form(members).group), "");
  return true;
}

bool PeerCoordinator::IsRunning(const View& view, absl::Time now) const {
  return std::all_of(view.members.begin(), view.members.end(), [&](const ViewMember& member) {
    const Report* report = detector_.ReportOf(member.id);
    return LivenessOf(member.id, now) == Liveness::kReporting && report != nullptr &&
           report->installed && report->installed->number == view.number && report->state &&
           report->state->view == view.number && report->phase == Phase::kRun;
  });
}

// C2: planned changes of a running view. Join first, drain after.
void PeerCoordinator::Plan(const View& current, const View* pending, absl::Time now) {
  if (detector_.desired()->settings.halt || detector_.desired()->workers <= 0) return;
  const std::vector<std::string> eligible = Eligible(now);
  const auto present = [&](const ViewMember& member) {
    return current.Has(member.id) ||
           (std::find(eligible.begin(), eligible.end(), member.id.pod_uid) != eligible.end() &&
            detector_.ReportOf(member.id) != nullptr);
  };
  if (pending != nullptr &&
      std::all_of(pending->members.begin(), pending->members.end(), present)) {
    return;
  }
  Members members;
  for (const ViewMember& member : current.members) members.push_back(member.id);
  const Members remaining = Remaining(current);
  auto room = detector_.desired()->workers - static_cast<std::int64_t>(remaining.size());
  bool join = false;
  for (const std::string& uid : eligible) {
    const MemberId& id = detector_.processes().at(uid).report->id;
    if (current.Has(id) || !IsJoinable(uid) || room <= 0) continue;
    members.push_back(id);
    --room;
    join = true;
  }
  const auto least =
      static_cast<std::size_t>(std::max<std::int64_t>(1, detector_.desired()->min_workers));
  const bool drain = !join && remaining.size() < members.size() && remaining.size() >= least;
  if (drain) members = remaining;
  // Without a change, only a prepared view that lost its joiner is worth replacing.
  if (!join && !drain && pending == nullptr) return;
  View view = Compose(Form(members).group);
  view.at_boundary = true;
  view.from = current.number;
  Publish(std::move(view), "");
}

// Whoever of the view is to stay: not leaving, and of too many those with the lowest indices.
Members PeerCoordinator::Remaining(const View& current) const {
  std::vector<std::pair<std::int64_t, MemberId>> staying;
  for (const ViewMember& member : current.members) {
    const Pod* pod = detector_.FindPod(member.id.pod_uid);
    if (pod != nullptr && !detector_.IsLeaving(member.id))
      staying.emplace_back(pod->index, member.id);
  }
  std::sort(staying.begin(), staying.end());
  if (static_cast<std::int64_t>(staying.size()) > detector_.desired()->workers) {
    staying.resize(static_cast<std::size_t>(detector_.desired()->workers));
  }
  Members members;
  members.reserve(staying.size());
  for (const auto& [index, id] : staying) members.push_back(id);
  return members;
}

void PeerCoordinator::TakeTurn(const View& current, absl::Time now) {
  const absl::Duration interval = absl::Milliseconds(detector_.desired()->checkpoint_interval_ms);
  if (interval <= absl::ZeroDuration()) return;
  if (turn_due_ == absl::InfinitePast()) turn_due_ = now + interval;
  if (now < turn_due_ || settled_step_ <= turn_step_) return;
  const bool outstanding =
      turn_view_ == current.number &&
      std::any_of(current.members.begin(), current.members.end(), [&](const ViewMember& member) {
        return detector_.ReportOf(member.id)->checkpoint_turn < turn_;
      });
  if (outstanding && now < turn_due_ + kTurnPatience) return;
  ++turn_;
  turn_step_ = settled_step_;
  turn_view_ = current.number;
  turn_due_ = now + interval;
  ++directives_version_;
}

// C3: whoever was drained, once all of the view that goes on without it are synced.
void PeerCoordinator::Release(const View* current, const View* pending) {
  if (current != nullptr && !SyncedByAll(*current)) return;
  for (const auto& [uid, process] : detector_.processes()) {
    if (!process.report || released_.contains(uid)) continue;
    const Report& report = *process.report;
    const bool needed = (current != nullptr && current->Has(report.id)) ||
                        (pending != nullptr && pending->Has(report.id)) ||
                        (current == nullptr && report.state);
    if (needed) continue;
    if (report.phase == Phase::kLinger || detector_.IsLeaving(report.id)) {
      released_.insert(uid);
      ++directives_version_;
    }
  }
}

}  // namespace starling::membership
