// SPDX-License-Identifier: Apache-2.0
// Rules C0 to C3 and C6, in the order in which Decide() calls them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/membership/peer_coordinator.h"

namespace starling::membership {
namespace {

// How long one aborted member waits for the others to say so too: they will name who is gone.
constexpr absl::Duration kAbortWait = absl::Milliseconds(250);

}  // namespace

void PeerCoordinator::Decide(absl::Time now) {
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
      AskForCheckpoint(*current, now);
    }
  }
  current = Current();
  ReleaseDrained(current, Pending(current));
}

std::int64_t PeerCoordinator::Least() const {
  return std::max<std::int64_t>(1, detector_.desired()->min_workers);
}

bool PeerCoordinator::EnoughFor(const Members& members, absl::Time now) {
  const std::int64_t hoped = std::min(LivePods("worker"), detector_.desired()->workers);
  return EnoughToBegin({{"workers", static_cast<std::int64_t>(members.size()), Least(), hoped}},
                       now);
}

// C0, the very first view.
void PeerCoordinator::FirstView(absl::Time now) {
  if (Halted() || detector_.desired()->workers <= 0) return;
  Members members;
  for (const std::string& uid : Eligible(now)) {
    const bool room = static_cast<std::int64_t>(members.size()) < detector_.desired()->workers;
    if (room && IsJoinable(uid)) members.push_back(detector_.processes().at(uid).report->id);
  }
  if (!EnoughFor(members, now)) return;
  enough_since_ = absl::InfiniteFuture();
  Publish(Compose(Form(members).group), "");
}

// C1's guard. `blamed`: nobody is known to be gone, the members only cannot reach each other.
bool PeerCoordinator::Broken(const View& view, absl::Time now, bool& blamed) const {
  bool gone = RenewForReturn();
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
  const auto there = static_cast<std::int64_t>(members.size());
  if (!survives) {
    const bool halted = Halted() || detector_.desired()->workers <= 0;
    if (halted) return;
    if (!EnoughFor(members, now)) {
      // Whoever returns may do so once those that it could harm do not answer for too long.
      if (!returning_.empty()) NoteHoldersMissing(now);
      return;
    }
    // Whoever returns is there, and joins as soon as these have synced.
  } else if (there + static_cast<std::int64_t>(returning_.size()) < Least()) {
    waiting_ = absl::StrCat("waits for workers: ", there, " of at least ", Least(), " are there");
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
  const auto limit = survives ? Least() : std::max<std::int64_t>(1, detector_.desired()->workers);
  add([&](const std::string& uid, const Report&) {
    return static_cast<std::int64_t>(members.size()) < limit && IsJoinable(uid);
  });
  return members;
}

// C6: the second view in a row that failed though all report.
void PeerCoordinator::Evict(const View& view, Members& members, absl::Time now) {
  Members rest;
  const auto can = [&](const MemberId& id) {
    rest = members;
    std::erase(rest, id);
    return static_cast<std::int64_t>(rest.size()) >= Least() && Form(rest).missing_witness == 0;
  };
  const auto aborted = [](const Report& report) { return report.phase == Phase::kAborted; };
  if (EvictMostBlamed(view, aborted, can, now)) members = std::move(rest);
}

// The job was halted and is wanted again before its processes were taken away.
bool PeerCoordinator::Resume(const View& current, absl::Time now) {
  if (Halted()) return false;
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
  if (Halted() || detector_.desired()->workers <= 0) return;
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
  const bool drain = !join && remaining.size() < members.size() &&
                     static_cast<std::int64_t>(remaining.size()) >= Least();
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

// What was asked for in a view that is over is not waited for: members have dropped it.
void PeerCoordinator::AskForCheckpoint(const View& current, absl::Time now) {
  const bool outstanding =
      round_view_ == current.number &&
      std::any_of(current.members.begin(), current.members.end(), [&](const ViewMember& member) {
        return detector_.ReportOf(member.id)->checkpoint_turn < rounds_.number();
      });
  if (!rounds_.Due(CheckpointInterval(), settled_step_, outstanding, now)) return;
  rounds_.Ask(settled_step_, now + CheckpointInterval());
  round_view_ = current.number;
  Changed();
}

// C3: whoever was drained, once all of the view that goes on without it are synced.
void PeerCoordinator::ReleaseDrained(const View* current, const View* pending) {
  if (current != nullptr && !SyncedByAll(*current)) return;
  Release([&](const Report& report) {
    const bool needed = (current != nullptr && current->Has(report.id)) ||
                        (pending != nullptr && pending->Has(report.id)) ||
                        (current == nullptr && report.state);
    return !needed && (report.phase == Phase::kLinger || detector_.IsLeaving(report.id));
  });
}

}  // namespace starling::membership
