// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/view_plan.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace starling::membership {
namespace {

const char* NameOf(Role role) { return role == Role::kServer ? "server" : "worker"; }

std::set<MemberId> IdsOf(const std::vector<ViewMember>& members) {
  std::set<MemberId> ids;
  for (const ViewMember& member : members) ids.insert(member.id);
  return ids;
}

// The same members, in whatever order, with nothing known more.
bool TellsNoMore(const ReplicaGroup& a, const ReplicaGroup& b) {
  return std::set<MemberId>(a.members.begin(), a.members.end()) ==
             std::set<MemberId>(b.members.begin(), b.members.end()) &&
         a.waived == b.waived && a.restore == b.restore;
}

}  // namespace

ViewPlan::ViewPlan(Options options, std::vector<std::shared_ptr<Placement>> placements)
    : options_(options), placements_(std::move(placements)) {
  for (const auto& placement : placements_) {
    groups_.resize(groups_.size() + placement->groups(), GroupHistory(options_.rules));
  }
}

void ViewPlan::Learn(const View& view) {
  if (view.groups.size() != groups_.size()) return;  // not of this kind of job
  views_[view.number] = view;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    groups_[i].Learn(view.groups[i]);
    // Of views before only the members are known.
    for (const PastView& past : view.groups[i].since) {
      View& before = views_[past.number];
      before.number = past.number;
      before.groups.resize(groups_.size());
      if (before.groups[i].epoch != 0) continue;
      before.groups[i].epoch = past.number;
      before.groups[i].members = past.members;
      for (const MemberId& id : past.members) {
        if (!before.Has(id)) before.members.push_back({id, "", 0, ""});
      }
    }
  }
}

void ViewPlan::OnTakenOver(ViewNumber seen) {
  seen_ = seen;
  newest_unknown_ = seen > (Newest() == nullptr ? 0 : Newest()->number);
}

void ViewPlan::OnGap(absl::Duration gap) {
  enough_since_ += gap;
  broken_since_ += gap;
}

const View* ViewPlan::Current() const {
  for (auto view = views_.rbegin(); view != views_.rend(); ++view) {
    const auto& [number, prepared] = *view;
    if (!prepared.at_boundary) return &prepared;
    // Where another was acted on that was prepared in the same view, nobody is left to act on this.
    const auto other = acted_.upper_bound(prepared.from);
    const bool overtaken = other != acted_.end() && *other < number;
    const bool forgotten = !views_.contains(prepared.from) && !overtaken;
    if (acted_.contains(number) || forgotten || SyncedByAll(prepared)) return &prepared;
  }
  return nullptr;
}

const View* ViewPlan::Pending(const Roster& roster) const {
  const View* current = Current();
  if (current == nullptr) return nullptr;
  const View& newest = *Newest();
  if (newest.number == current->number || newest.from != current->number) return nullptr;
  if (IncarnationOf(newest.number) == options_.incarnation ||
      !options_.rules.incarnation_in_view_number) {
    return &newest;
  }
  // Another coordinator's: whoever has not got it will refuse it, and one is enough.
  const bool all_have_it =
      std::all_of(current->members.begin(), current->members.end(), [&](const ViewMember& member) {
        const Participant* one = roster.Find(member.id);
        return one != nullptr && one->prepared == newest.number;
      });
  return all_have_it ? &newest : nullptr;
}

bool ViewPlan::SyncedByAll(const View& view) const {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (!groups_[i].SyncedByAll(view.groups[i])) return false;
  }
  return true;
}

void ViewPlan::Fold(const Roster& roster) {
  for (const auto& [id, one] : roster.participants) {
    const std::size_t count = std::min(one.groups.size(), groups_.size());
    for (std::size_t i = 0; i < count; ++i) {
      if (one.groups[i].state) groups_[i].LearnState(id, *one.groups[i].state);
    }
    const auto view = views_.find(one.installed);
    if (view == views_.end() || !view->second.at_boundary) continue;
    const auto from = views_.find(view->second.from);
    if (from != views_.end() && from->second.Has(id)) acted_.insert(view->first);
  }
  for (GroupHistory& group : groups_) {
    group.Prune([&](const MemberId& id) { return roster.Ended(id); });
  }
  std::erase_if(views_, [this](const auto& view) {
    return std::none_of(groups_.begin(), groups_.end(), [&](const GroupHistory& group) {
      return group.past().contains(view.first);
    });
  });
  std::erase_if(acted_, [this](ViewNumber number) { return !views_.contains(number); });
}

// C1's guard.
ViewPlan::Trouble ViewPlan::TroubleIn(const View& view, const Roster& roster, absl::Time now) {
  bool gone = roster.renew, broken = false, others_hold = false;
  lost_.reset();
  for (const ViewMember& member : view.members) {
    const Participant* one = roster.Find(member.id);
    if (one == nullptr || one->liveness == Liveness::kSilent) gone = true;
    if (one == nullptr || one->liveness != Liveness::kReporting) {
      others_hold = others_hold || (one != nullptr && one->liveness == Liveness::kUnclear);
      continue;
    }
    const bool prepared = one->prepared == view.number && one->phase == Phase::kRun;
    const bool never = one->fence < view.number && !prepared &&
                       IncarnationOf(view.number) < options_.incarnation &&
                       options_.rules.incarnation_in_view_number;
    if (one->fence > view.number || never) gone = true;
    const bool here =
        one->installed == view.number || (view.at_boundary && one->installed == view.from);
    if (here && one->phase == Phase::kAborted) {
      broken = true;
    } else if (one->phase != Phase::kDone) {
      others_hold = true;
    }
    for (std::size_t i = 0; here && i < one->groups.size() && i < groups_.size(); ++i) {
      if (one->groups[i].lost && view.groups[i].Has(member.id)) lost_ = i;
    }
  }
  broken_since_ = broken ? std::min(broken_since_, now) : absl::InfiniteFuture();
  if (gone) return Trouble::kGone;
  if (broken && (!others_hold || now - broken_since_ >= options_.abort_wait)) {
    return Trouble::kBroken;
  }
  return lost_ ? Trouble::kLost : Trouble::kNone;
}

bool ViewPlan::IsBlamed(const Roster& roster, absl::Time now) const {
  ViewPlan trial = *this;
  const View* current = trial.Current();
  return current != nullptr && trial.TroubleIn(*current, roster, now) == Trouble::kBroken;
}

bool ViewPlan::AllRun(const View& view, const Roster& roster) const {
  const auto runs = [&](const ViewMember& member) {
    const Participant* one = roster.Reporting(member.id);
    return one != nullptr && one->installed == view.number && one->phase == Phase::kRun;
  };
  if (!std::all_of(view.members.begin(), view.members.end(), runs)) return false;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    for (const MemberId& id : view.groups[i].members) {
      const GroupReport* report = roster.ReportOf(id, i);
      if (report == nullptr || !report->state || report->state->view < view.number) return false;
    }
  }
  return true;
}

const Placement& ViewPlan::PlacementOf(std::size_t group) const {
  for (const auto& placement : placements_) {
    if (group < placement->groups()) return *placement;
    group -= placement->groups();
  }
  return *placements_.back();
}

std::optional<View> ViewPlan::Next(const Roster& roster, absl::Time now) {
  waiting_.clear();
  unwitnessed_ = false;
  unwitnessed_group_.reset();
  Fold(roster);
  const View* current = Current();
  const Trouble trouble = current == nullptr ? Trouble::kGone : TroubleIn(*current, roster, now);
  synced_ = current != nullptr && SyncedByAll(*current);
  running_ = trouble == Trouble::kNone && AllRun(*current, roster);
  blamed_ = trouble == Trouble::kBroken;
  if (trouble == Trouble::kNone && !running_) return std::nullopt;
  if (running_) newest_unknown_ = false;
  std::vector<ReplicaGroup> placed = Place(roster, now);
  if (!waiting_.empty() || (!running_ && !MayBegin(placed, roster, now))) return std::nullopt;
  std::optional<View> view = Compose(std::move(placed), roster);
  if (!view) return std::nullopt;
  if (running_ && !Changes(*view, roster)) return std::nullopt;
  if (trouble == Trouble::kLost && !MayHelp(*view)) return std::nullopt;
  const bool planned = running_ && placements_.size() == 1 && placements_.front()->at_boundary();
  if (planned) {
    view->at_boundary = true;
    view->from = current->number;
  } else {
    synced_ = running_ = false;
  }
  Publish(*view);
  return view;
}

std::vector<ReplicaGroup> ViewPlan::Place(const Roster& roster, absl::Time now) {
  std::vector<ReplicaGroup> placed;
  for (const auto& placement : placements_) {
    const Placement::Scene scene{roster,  Newest(),      Current(), Pending(roster),
                                 groups_, placed.size(), now};
    std::vector<ReplicaGroup> groups =
        running_ ? placement->Plan(scene) : placement->Repair(scene, waiting_);
    std::move(groups.begin(), groups.end(), std::back_inserter(placed));
  }
  return placed;
}

// C0: where there is no view, or nobody is left of a group of workers, it is waited for enough, and
// then a moment for the rest.
bool ViewPlan::MayBegin(const std::vector<ReplicaGroup>& placed, const Roster& roster,
                        absl::Time now) {
  const View* current = Current();
  bool begins = current == nullptr;
  std::size_t workers = roster.Staying(Role::kWorker).size();
  std::vector<Headcount> counts;
  for (std::size_t i = 0; i < placed.size(); ++i) {
    const Members& members = placed[i].members;
    if (PlacementOf(i).role() == Role::kWorker) {
      workers = members.size();
      begins = begins || std::none_of(members.begin(), members.end(),
                                      [&](const MemberId& id) { return current->Has(id); });
    } else if (counts.empty()) {
      counts.push_back({"parameter servers", roster.Staying(Role::kServer).size(), roster.servers});
    }
  }
  if (!begins) return true;
  if (roster.idle) return false;
  counts.push_back({"workers", workers, roster.workers});
  const auto lacks = [this](const Headcount& one, std::int64_t of, const char* what,
                            const char* least) {
    of = std::min(of, one.wanted.most);
    if (static_cast<std::int64_t>(one.there) >= of) return false;
    waiting_ =
        absl::StrCat("waits ", what, one.who, ": ", one.there, " of ", least, of, " are there");
    return true;
  };
  for (const Headcount& one : counts) {
    if (!lacks(one, one.wanted.least, "for ", "at least ")) continue;
    enough_since_ = absl::InfiniteFuture();
    // Whoever returns may do so once those that it could harm do not answer for too long.
    unwitnessed_ = current != nullptr && roster.returning > 0;
    return false;
  }
  enough_since_ = std::min(enough_since_, now);
  return now - enough_since_ >= options_.first_view_grace ||
         std::none_of(counts.begin(), counts.end(), [&](const Headcount& one) {
           return lacks(one, one.wanted.expected, "a moment for more ", "");
         });
}

std::optional<View> ViewPlan::Compose(std::vector<ReplicaGroup> placed, const Roster& roster) {
  View view;
  for (std::size_t i = 0; i < placed.size(); ++i) {
    if (placed[i].members.empty()) {
      unwitnessed_ = roster.returning > 0;
      waiting_ = absl::StrCat("waits for a ", NameOf(PlacementOf(i).role()), ": none is there");
      return std::nullopt;
    }
    if (!Form(i, placed[i], roster)) return std::nullopt;
  }
  view.groups = std::move(placed);
  NameMembers(roster, view);
  return view;
}

// The group with the history that its members need; false: they could not start from it yet. Who
// lives and can be a witness is added where one is missing: to a chain, who was in an earlier one;
// to a group of workers, who was drained and is not yet released. A worker that is not admitted,
// since its arithmetic differs, would take part in steps and is none.
bool ViewPlan::Form(std::size_t group, ReplicaGroup& placed, const Roster& roster) {
  const Placement& placement = PlacementOf(group);
  GroupHistory::Evidence evidence;
  evidence.ended = [&](const MemberId& id) { return roster.Ended(id); };
  evidence.state = [&](const MemberId& id) {
    const GroupReport* report = roster.ReportOf(id, group);
    return report == nullptr ? std::nullopt : report->state;
  };
  evidence.witness = [&](const MemberId& id) {
    const Participant* one = roster.Reporting(id);
    return one != nullptr && (one->admitted || one->role == Role::kServer);
  };
  evidence.newest_unknown = newest_unknown_;
  const ViewNumber missing = groups_[group].Form(placed, evidence);
  if (missing == 0) return true;
  unwitnessed_ = true;
  unwitnessed_group_ = group;
  waiting_ = MissingWitnessText(placement.Kept(group), absl::StrCat(NameOf(placement.role()), "s"),
                                missing);
  return false;
}

// All servers that are to stay or serve, then the workers: those of their group in its order, or
// where they hold nothing, as clients, all that are to stay. Members keep the view since which they
// have been in all; but where servers restore something all clients start over.
void ViewPlan::NameMembers(const Roster& roster, View& view) const {
  std::set<MemberId> servers;
  Members workers;
  bool restart = false;
  for (const ReplicaGroup& group : view.groups) {
    const bool serves = roster.Find(group.members.front())->role == Role::kServer;
    if (serves) {
      servers.insert(group.members.begin(), group.members.end());
      restart = restart || (group.restore && options_.rules.restart_clients);
    } else {
      workers = group.members;
    }
  }
  if (!servers.empty()) {
    for (const Participant* one : roster.Staying(Role::kServer)) servers.insert(one->id);
  }
  if (workers.empty()) {
    for (const Participant* one : roster.Staying(Role::kWorker)) workers.push_back(one->id);
  }
  const View* newest = Newest();
  const auto name = [&](const MemberId& id) {
    const Participant& one = *roster.Find(id);
    const ViewMember* before = newest == nullptr ? nullptr : newest->Find(id);
    const bool keeps = before != nullptr && !(restart && one.role == Role::kWorker);
    view.members.push_back(
        {id, one.address, keeps ? before->joined : ViewNumber{0}, one.pod, one.node, one.role});
  };
  std::for_each(servers.begin(), servers.end(), name);
  std::for_each(workers.begin(), workers.end(), name);
}

// A prepared view that cannot take effect is none.
bool ViewPlan::Changes(const View& view, const Roster& roster) const {
  const View* pending = Pending(roster);
  const View& stands = pending == nullptr ? *Current() : *pending;
  return IdsOf(view.members) != IdsOf(stands.members) ||
         !std::equal(
             view.groups.begin(), view.groups.end(), stands.groups.begin(), stands.groups.end(),
             [](const ReplicaGroup& a, const ReplicaGroup& b) { return a.members == b.members; });
}

// Whoever lacks a witness in the newest view would lack it in the same view again.
bool ViewPlan::MayHelp(const View& view) {
  const View& newest = *Newest();
  const bool same = IdsOf(view.members) == IdsOf(newest.members) &&
                    std::equal(view.groups.begin(), view.groups.end(), newest.groups.begin(),
                               newest.groups.end(), TellsNoMore);
  if (!same) return true;
  unwitnessed_ = true;
  unwitnessed_group_ = lost_;
  const Placement& placement = PlacementOf(*lost_);
  waiting_ = absl::StrCat("waits for a ", NameOf(placement.role()), " that knows ",
                          placement.Kept(*lost_), ", or for proof that all have ended");
  return false;
}

void ViewPlan::Publish(View& view) {
  const ViewNumber newest = std::max(Newest() == nullptr ? 0 : Newest()->number, seen_);
  view.number = options_.rules.incarnation_in_view_number
                    ? MakeViewNumber(options_.incarnation, next_epoch_++)
                    : MakeViewNumber(0, EpochOf(newest) + 1);
  for (ViewMember& member : view.members) {
    if (member.joined == 0) member.joined = view.number;
  }
  for (ReplicaGroup& group : view.groups) group.epoch = view.number;
  enough_since_ = broken_since_ = absl::InfiniteFuture();
  Learn(view);
}

}  // namespace starling::membership
