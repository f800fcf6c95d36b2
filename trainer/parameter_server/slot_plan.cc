// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/slot_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
namespace starling::parameter_server {
namespace {

using membership::Role;
using membership::ViewMember;

bool Contains(const std::vector<MemberId>& ids, const MemberId& id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

std::vector<MemberId> IdsOf(const std::vector<ViewMember>& members) {
  std::vector<MemberId> ids;
  ids.reserve(members.size());
  for (const ViewMember& member : members) ids.push_back(member.id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

bool HasClient(const View& view, const Client& client) {
  const ViewMember* member = view.Find(client.id);
  return member != nullptr && member->role == Role::kWorker && member->joined == client.joined;
}

SlotView SlotViewOf(const View& view, std::size_t slot) {
  SlotView mine;
  mine.group = view.groups[slot];
  for (const ViewMember& client : view.workers())
    mine.clients.push_back({client.id, client.joined});
  return mine;
}

ClientView ClientViewOf(const View& view, const MemberId& client) {
  ClientView mine;
  mine.number = view.number;
  const ViewMember* member = view.Find(client);
  if (member != nullptr && member->role == Role::kWorker) mine.joined = member->joined;
  for (const ReplicaGroup& chain : view.groups) {
    mine.slots.push_back({chain.members.front(), chain.members.back()});
  }
  return mine;
}

std::vector<MemberId> RanksOf(const View& view) {
  std::vector<MemberId> ranks;
  for (const ViewMember& member : view.members) ranks.push_back(member.id);
  return ranks;
}

bool EnoughIn(const View& view, const Census& census) {
  const auto size = [](std::span<const ViewMember> members) {
    return static_cast<std::int64_t>(members.size());
  };
  return size(view.workers()) >= std::min(census.clients, census.min_clients) &&
         size(view.servers()) >= std::min(census.servers, census.min_servers);
}

SlotPlan::SlotPlan(Options options)
    : options_(std::move(options)),
      groups_(options_.slots.size(), membership::GroupHistory(options_.rules.sync)) {}

void SlotPlan::Learn(const View& view) {
  if (view.groups.size() != groups_.size()) return;
  for (std::size_t slot = 0; slot < groups_.size(); ++slot) groups_[slot].Learn(view.groups[slot]);
  if (view.number > newest_.number) newest_ = view;
}

const Participant* SlotPlan::Find(const MemberId& id) const {
  const auto found = known_.find(id);
  return found == known_.end() ? nullptr : found->second;
}

const Participant* SlotPlan::Reporting(const MemberId& id) const {
  const Participant* one = Find(id);
  return one != nullptr && one->liveness == Liveness::kReporting ? one : nullptr;
}

const SlotReport* SlotPlan::ReportOf(const MemberId& server, std::size_t slot) const {
  const Participant* one = Reporting(server);
  return one != nullptr && slot < one->slots.size() ? &one->slots[slot] : nullptr;
}

// Its pod is gone, or a later process of its pod is known: the supervisor reaps before it starts.
bool SlotPlan::Ended(const MemberId& id) const {
  if (Find(id) != nullptr) return false;
  return std::none_of(census_.participants.begin(), census_.participants.end(),
                      [&](const Participant& one) {
                        return one.id.pod_uid == id.pod_uid && one.id.start < id.start;
                      });
}

void SlotPlan::Fold() {
  known_.clear();
  for (const Participant& one : census_.participants) {
    known_[one.id] = &one;
    const std::size_t slots = std::min(one.slots.size(), groups_.size());
    for (std::size_t slot = 0; slot < slots; ++slot) {
      if (one.slots[slot].state) groups_[slot].LearnState(one.id, *one.slots[slot].state);
    }
  }
  for (membership::GroupHistory& group : groups_) {
    group.Prune([this](const MemberId& id) { return Ended(id); });
  }
}

// C4: a successor publishes nothing until everyone who may have been in a view has been heard.
bool SlotPlan::HeardAll() {
  if (heard_all_) return true;
  for (const Participant& one : census_.participants) {
    const bool wait = options_.incarnation > 1 && options_.rules.sync.roster_wait;
    if (one.liveness != Liveness::kUnclear || !wait) continue;
    waiting_ = absl::StrCat("a new coordinator has taken over; it waits for ", one.pod,
                            " to report, and perhaps for others");
    return false;
  }
  heard_all_ = true;
  newest_unknown_ = options_.newest_view > newest_.number;
  return true;
}

bool SlotPlan::IsRunning() const {
  for (const MemberId& id : RanksOf(newest_)) {
    const Participant* one = Reporting(id);
    if (one == nullptr || one->fence != newest_.number || one->broken) return false;
  }
  for (std::size_t slot = 0; slot < groups_.size(); ++slot) {
    if (!groups_[slot].SyncedByAll(newest_.groups[slot])) return false;
  }
  return true;
}

// C1's guard.
SlotPlan::Trouble SlotPlan::TroubleIn(absl::Time now) {
  if (census_.renew) return Trouble::kGone;
  bool broken = false, others_hold = false, lost = false;
  for (const MemberId& id : RanksOf(newest_)) {
    const Participant* one = Find(id);
    if (one == nullptr || one->liveness == Liveness::kSilent) return Trouble::kGone;
    if (one->liveness == Liveness::kUnclear) {
      others_hold = true;
      continue;
    }
    // Whoever has not got another coordinator's view will refuse it from now on.
    const bool never = one->fence < newest_.number &&
                       membership::IncarnationOf(newest_.number) < options_.incarnation;
    if (one->fence > newest_.number || never) return Trouble::kGone;
    const bool here = one->fence == newest_.number;
    (here && one->broken ? broken : others_hold) = true;
    for (std::size_t slot = 0; here && slot < one->slots.size() && slot < groups_.size(); ++slot) {
      lost = lost || (one->slots[slot].lost && newest_.groups[slot].Has(id));
    }
  }
  if (!broken) broken_since_ = absl::InfiniteFuture();
  if (broken && broken_since_ == absl::InfiniteFuture()) broken_since_ = now;
  if (broken && (!others_hold || now - broken_since_ >= options_.abort_wait)) {
    return Trouble::kBroken;
  }
  return lost ? Trouble::kLost : Trouble::kNone;
}

// Whoever is to be in the next view: not leaving, and of too many those with the lowest indices.
std::vector<const Participant*> SlotPlan::Staying(bool servers) const {
  std::vector<const Participant*> staying;
  for (const Participant& one : census_.participants) {
    if (one.server == servers && one.liveness == Liveness::kReporting && !one.leaving) {
      staying.push_back(&one);
    }
  }
  std::sort(staying.begin(), staying.end(), [](const Participant* a, const Participant* b) {
    return std::tie(a->index, a->id) < std::tie(b->index, b->id);
  });
  const auto most = static_cast<std::size_t>(
      std::max<std::int64_t>(0, servers ? census_.servers : census_.clients));
  if (staying.size() > most) staying.resize(most);
  return staying;
}

// Whether a server may be put into a chain that others serve.
bool SlotPlan::Ready(std::size_t slot, const MemberId& server) const {
  if (newest_.groups[slot].Has(server)) return true;
  const SlotReport* report = ReportOf(server, slot);
  return report != nullptr && (report->state || report->cached);
}

SlotPlan::Chain SlotPlan::ChainFor(std::size_t slot, const Chain& target, bool move) const {
  Chain chain;
  if (newest_.number != 0) {
    for (const MemberId& id : newest_.groups[slot].members) {
      if (Reporting(id) != nullptr) chain.push_back(id);
    }
  }
  if (chain.empty()) {
    // Nobody serves it: whoever is to, and whoever has the most.
    std::optional<StateId> best;
    chain = target;
    for (const Participant& one : census_.participants) {
      const SlotReport* report = one.server ? ReportOf(one.id, slot) : nullptr;
      if (report != nullptr && report->state) best = std::max(best, report->state);
    }
    for (const Participant& one : census_.participants) {
      const SlotReport* report = one.server ? ReportOf(one.id, slot) : nullptr;
      const bool holds = best && report != nullptr && report->state == best;
      if (holds && !Contains(chain, one.id)) chain.insert(chain.begin(), one.id);
    }
    return chain;
  }
  if (std::all_of(target.begin(), target.end(),
                  [&](const MemberId& id) { return Ready(slot, id); })) {
    return target.empty() ? chain : target;
  }
  for (const MemberId& id : target) {
    if (move && Ready(slot, id) && !Contains(chain, id)) chain.push_back(id);
  }
  return chain;
}

// The chain with the history that its servers need; nothing if they could not start from it yet.
std::optional<ReplicaGroup> SlotPlan::Form(std::size_t slot, Chain chain) {
  const auto state = [&](const MemberId& id) {
    const SlotReport* report = ReportOf(id, slot);
    return report == nullptr ? std::nullopt : report->state;
  };
  membership::FormedGroup formed = groups_[slot].Form(
      std::move(chain), {.ended = [this](const MemberId& id) { return Ended(id); },
                         .state = state,
                         .witness = [this](const MemberId& id) { return Reporting(id) != nullptr; },
                         .newest_unknown = newest_unknown_});
  if (formed.missing_witness == 0) return std::move(formed.group);
  unwitnessed_ = true;
  waiting_ = membership::MissingWitnessText(absl::StrCat("the last updates of slot ", slot),
                                            "servers", formed.missing_witness);
  return std::nullopt;
}

// Whoever serves or is to, and the clients. Those keep the view since which they have been in all;
// where a slot is restored all start over.
void SlotPlan::NameMembers(const Chain& servers, View& view) const {
  std::set<MemberId> present(servers.begin(), servers.end());
  for (const ReplicaGroup& chain : view.groups) {
    present.insert(chain.members.begin(), chain.members.end());
  }
  for (const MemberId& id : present) {
    const Participant* one = Find(id);
    const ViewMember* before = newest_.Find(id);
    view.members.push_back({id, one->address, before == nullptr ? 0 : before->joined, one->pod,
                            one->node, Role::kServer});
  }
  const bool restart = options_.rules.restart_clients && view.Restores();
  for (const Participant* one : Staying(/*servers=*/false)) {
    const ViewMember* before = newest_.Find(one->id);
    const bool keeps = before != nullptr && !restart;
    view.members.push_back(
        {one->id, one->address, keeps ? before->joined : ViewNumber{0}, one->pod, one->node});
  }
}

std::optional<View> SlotPlan::Compose(bool planned, absl::Time now) {
  std::vector<MemberId> servers;
  for (const Participant* one : Staying(/*servers=*/true)) servers.push_back(one->id);
  if (!planned || (move_ && PlacedByLoad(move_->slot, servers).empty())) move_.reset();
  if (move_ && newest_.groups[move_->slot].members == move_->chain) move_.reset();
  std::vector<Chain> targets = Targets(servers);
  const bool settled = planned && std::equal(targets.begin(), targets.end(), newest_.groups.begin(),
                                             newest_.groups.end(),
                                             [](const Chain& target, const ReplicaGroup& group) {
                                               return target == group.members;
                                             });
  if (settled) {
    Relieve(servers, now);
    if (move_) targets = Targets(servers);
  } else {
    uneven_since_ = absl::InfiniteFuture();
  }
  const auto target_of = [&](std::size_t slot) -> const Chain& { return targets[slot]; };
  for (std::size_t slot = 0; planned && slot < groups_.size(); ++slot) {
    for (const MemberId& id : target_of(slot)) {
      if (!Ready(slot, id)) ahead_[id].push_back(slot);
    }
  }
  if (ahead_.empty()) ahead_since_ = absl::InfiniteFuture();
  if (!ahead_.empty() && ahead_since_ == absl::InfiniteFuture()) ahead_since_ = now;
  const bool patient = now - ahead_since_ < options_.ahead_patience && !ahead_.empty();
  View view;
  for (std::size_t slot = 0; slot < groups_.size(); ++slot) {
    // One view moves everything, once everything is ready.
    Chain chain = planned && patient ? newest_.groups[slot].members
                                     : ChainFor(slot, target_of(slot), /*move=*/planned);
    if (chain.empty()) return std::nullopt;
    std::optional<ReplicaGroup> group = Form(slot, std::move(chain));
    if (!group) return std::nullopt;
    const Chain by_load = PlacedByLoad(slot, servers);
    group->by_load = !by_load.empty() && group->members.size() >= by_load.size() &&
                     std::equal(by_load.rbegin(), by_load.rend(), group->members.rbegin());
    view.groups.push_back(*std::move(group));
  }
  NameMembers(servers, view);
  const auto clients = static_cast<std::int64_t>(view.workers().size());
  if (clients < std::min(census_.min_clients, census_.clients)) {
    waiting_ = absl::StrCat("waits for workers: ", clients, " of at least ", census_.min_clients,
                            " are there");
    if (newest_.number == 0) return std::nullopt;
  }
  return view;
}

bool SlotPlan::Changes(const View& view) const {
  return IdsOf(view.members) != IdsOf(newest_.members) ||
         !std::equal(
             view.groups.begin(), view.groups.end(), newest_.groups.begin(), newest_.groups.end(),
             [](const ReplicaGroup& a, const ReplicaGroup& b) { return a.members == b.members; });
}

std::optional<View> SlotPlan::Plan(const Census& census, absl::Time now) {
  census_ = census;
  waiting_.clear();
  ahead_.clear();
  running_ = false;
  blamed_ = false;
  unwitnessed_ = false;
  Fold();
  if (!HeardAll()) return std::nullopt;
  const auto there = static_cast<std::int64_t>(Staying(/*servers=*/true).size());
  const bool first = newest_.number == 0;
  if (first && there < std::max<std::int64_t>(1, census_.min_servers)) {
    waiting_ = absl::StrCat("waits for parameter servers: ", there, " of at least ",
                            census_.min_servers, " are there");
    return std::nullopt;
  }
  const Trouble trouble = first ? Trouble::kGone : TroubleIn(now);
  running_ = !first && trouble == Trouble::kNone && IsRunning();
  blamed_ = trouble == Trouble::kBroken;
  if (trouble == Trouble::kNone && !running_) return std::nullopt;
  if (running_) newest_unknown_ = false;
  std::optional<View> view = Compose(/*planned=*/running_, now);
  if (!view) return std::nullopt;
  if (trouble == Trouble::kNone && !Changes(*view)) return std::nullopt;
  if (trouble == Trouble::kLost) {
    const bool same = !Changes(*view) &&
                      std::equal(view->groups.begin(), view->groups.end(), newest_.groups.begin(),
                                 [](const ReplicaGroup& a, const ReplicaGroup& b) {
                                   return a.waived == b.waived;
                                 });
    if (same) {
      unwitnessed_ = true;
      waiting_ = "waits for a server that knows the last updates, or for proof that all have ended";
      return std::nullopt;
    }
  }
  view->number = membership::MakeViewNumber(options_.incarnation, next_epoch_++);
  for (ViewMember& member : view->members) {
    if (member.joined == 0) member.joined = view->number;
  }
  for (ReplicaGroup& group : view->groups) group.epoch = view->number;
  broken_since_ = absl::InfiniteFuture();
  running_ = false;
  Learn(*view);
  return view;
}

std::vector<std::size_t> SlotPlan::FetchAhead(const MemberId& server) const {
  const auto found = ahead_.find(server);
  return found == ahead_.end() || !newest_.Has(server) ? std::vector<std::size_t>() : found->second;
}

bool SlotPlan::Released(const MemberId& id) const {
  const Participant* one = Find(id);
  return one != nullptr && one->leaving && running_ && !newest_.Has(id);
}

}  // namespace starling::parameter_server
