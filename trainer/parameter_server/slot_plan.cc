// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/slot_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/membership/sync_round.h"

namespace starling::parameter_server {
namespace {

using membership::ViewMember;

bool Contains(const std::vector<MemberId>& ids, const MemberId& id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

const ViewMember* MemberIn(const std::vector<ViewMember>& members, const MemberId& id) {
  const auto found = std::find_if(members.begin(), members.end(),
                                  [&](const ViewMember& member) { return member.id == id; });
  return found == members.end() ? nullptr : &*found;
}

std::vector<MemberId> IdsOf(const std::vector<ViewMember>& members) {
  std::vector<MemberId> ids;
  ids.reserve(members.size());
  for (const ViewMember& member : members) ids.push_back(member.id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

bool JobView::HasServer(const MemberId& id) const { return MemberIn(servers, id) != nullptr; }

bool JobView::HasClient(const Client& client) const {
  const ViewMember* member = MemberIn(clients, client.id);
  return member != nullptr && member->joined == client.joined;
}

SlotView SlotViewOf(const JobView& view, std::size_t slot) {
  const SlotPart& part = view.slots[slot];
  SlotView mine;
  mine.group.epoch = view.number;
  mine.group.members = part.chain;
  mine.group.since = part.since;
  mine.group.waived = part.waived;
  mine.group.restore = part.restore;
  for (const ViewMember& client : view.clients) mine.clients.push_back({client.id, client.joined});
  return mine;
}

ClientView ClientViewOf(const JobView& view, const MemberId& client) {
  ClientView mine;
  mine.number = view.number;
  if (const ViewMember* member = MemberIn(view.clients, client)) mine.joined = member->joined;
  for (const SlotPart& part : view.slots) {
    mine.slots.push_back({part.chain.front(), part.chain.back()});
  }
  return mine;
}

std::vector<MemberId> RanksOf(const JobView& view) {
  std::vector<MemberId> ranks;
  for (const ViewMember& member : view.servers) ranks.push_back(member.id);
  for (const ViewMember& member : view.clients) ranks.push_back(member.id);
  return ranks;
}

SlotPlan::SlotPlan(Options options)
    : options_(std::move(options)), past_(options_.slots.size()), synced_(options_.slots.size()) {}

void SlotPlan::Learn(const JobView& view) {
  if (view.slots.size() != past_.size()) return;
  for (std::size_t slot = 0; slot < past_.size(); ++slot) {
    past_[slot][view.number] = view.slots[slot].chain;
    for (const membership::PastView& past : view.slots[slot].since) {
      past_[slot].emplace(past.number, past.members);
    }
  }
  if (view.number > newest_.number) newest_ = view;
}

const Participant* SlotPlan::Find(const MemberId& id) const {
  const auto found = known_.find(id);
  return found == known_.end() ? nullptr : found->second;
}

const Participant* SlotPlan::Reporting(const MemberId& id) const {
  const Participant* one = Find(id);
  return one != nullptr && one->presence == Presence::kReporting ? one : nullptr;
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

bool SlotPlan::AllEnded(const Chain& chain) const {
  return std::all_of(chain.begin(), chain.end(), [&](const MemberId& id) { return Ended(id); });
}

void SlotPlan::Fold() {
  known_.clear();
  for (const Participant& one : census_.participants) known_[one.id] = &one;
  for (std::size_t slot = 0; slot < past_.size(); ++slot) {
    for (const Participant& one : census_.participants) {
      if (slot >= one.slots.size() || !one.slots[slot].state) continue;
      ViewNumber& synced = synced_[slot][one.id];
      synced = std::max(synced, one.slots[slot].state->view);
    }
    Prune(slot);
  }
}

bool SlotPlan::SyncedByAll(std::size_t slot, ViewNumber view, const Chain& chain) const {
  return std::all_of(chain.begin(), chain.end(), [&](const MemberId& id) {
    const auto synced = synced_[slot].find(id);
    return synced != synced_[slot].end() && synced->second >= view;
  });
}

// A view that its whole chain has synced holds whatever lower ones acknowledged. It is kept itself;
// and so is a lower one with a server that is neither in that chain nor known to have ended: should
// the chain die, that server holds what is left.
void SlotPlan::Prune(std::size_t slot) {
  std::map<ViewNumber, Chain>& past = past_[slot];
  const auto synced = std::find_if(past.rbegin(), past.rend(), [&](const auto& view) {
    return !options_.rules.prune_synced || SyncedByAll(slot, view.first, view.second);
  });
  if (synced == past.rend()) return;
  const auto [newest, chain] = *synced;
  std::erase_if(past, [&, newest = newest, &chain = chain](const auto& entry) {
    return entry.first < newest &&
           std::all_of(entry.second.begin(), entry.second.end(), [&](const MemberId& id) {
             return !options_.rules.prune_synced || Contains(chain, id) || Ended(id);
           });
  });
  std::erase_if(synced_[slot], [&](const auto& entry) {
    return std::none_of(past.begin(), past.end(),
                        [&](const auto& view) { return Contains(view.second, entry.first); });
  });
}

// C4: a successor publishes nothing until everyone who may have been in a view has been heard.
bool SlotPlan::HeardAll() {
  if (heard_all_) return true;
  for (const Participant& one : census_.participants) {
    const bool wait = options_.incarnation > 1 && options_.rules.sync.roster_wait;
    if (one.presence != Presence::kUnclear || !wait) continue;
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
  for (std::size_t slot = 0; slot < past_.size(); ++slot) {
    if (!SyncedByAll(slot, newest_.number, newest_.slots[slot].chain)) return false;
  }
  return true;
}

// C1's guard.
SlotPlan::Trouble SlotPlan::TroubleIn(absl::Time now) {
  bool broken = false, others_hold = false, lost = false;
  for (const MemberId& id : RanksOf(newest_)) {
    const Participant* one = Find(id);
    if (one == nullptr || one->presence == Presence::kSilent) return Trouble::kGone;
    if (one->presence == Presence::kUnclear) {
      others_hold = true;
      continue;
    }
    // Whoever has not got another coordinator's view will refuse it from now on.
    const bool never = one->fence < newest_.number &&
                       membership::IncarnationOf(newest_.number) < options_.incarnation;
    if (one->fence > newest_.number || never) return Trouble::kGone;
    const bool here = one->fence == newest_.number;
    (here && one->broken ? broken : others_hold) = true;
    for (std::size_t slot = 0; here && slot < one->slots.size() && slot < past_.size(); ++slot) {
      lost = lost || (one->slots[slot].lost && Contains(newest_.slots[slot].chain, id));
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
    if (one.server == servers && one.presence == Presence::kReporting && !one.leaving) {
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
  if (Contains(newest_.slots[slot].chain, server)) return true;
  const SlotReport* report = ReportOf(server, slot);
  return report != nullptr && (report->state || report->cached);
}

SlotPlan::Chain SlotPlan::ChainFor(std::size_t slot, const Chain& target, bool move) const {
  Chain chain;
  if (newest_.number != 0) {
    for (const MemberId& id : newest_.slots[slot].chain) {
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

// C5, and the witness rule as the servers will compute it: witnesses that live are added, views of
// which nobody is left are waived. False: neither is possible yet.
bool SlotPlan::Witness(std::size_t slot, SlotPart& part) {
  membership::ReplicaGroup group;
  for (const auto& [number, chain] : past_[slot]) {
    group.since.push_back({number, chain});
    if (AllEnded(chain) || !options_.rules.waive_ended) group.waived.push_back(number);
  }
  const auto add = [&](const MemberId& id) { group.members.push_back(id); };
  for (const MemberId& id : part.chain) add(id);
  while (true) {
    std::map<MemberId, membership::SyncId> expected;
    ViewNumber synced = 0;
    for (const MemberId& member : group.members) {
      const SlotReport* report = ReportOf(member, slot);
      expected[member].state = report == nullptr ? std::nullopt : report->state;
      if (report != nullptr && report->state) synced = std::max(synced, report->state->view);
    }
    const ViewNumber missing = membership::MissingWitness(group, expected, options_.rules.sync);
    if (missing == 0) {
      part.restore = synced == 0 || newest_unknown_ ||
                     std::any_of(group.waived.begin(), group.waived.end(),
                                 [&](ViewNumber view) { return view > synced; });
      break;
    }
    const Chain& members = past_[slot].at(missing);
    const auto living = std::find_if(members.begin(), members.end(),
                                     [&](const MemberId& id) { return Reporting(id) != nullptr; });
    if (living == members.end()) {
      unwitnessed_ = true;
      waiting_ = absl::StrCat("the last updates of slot ", slot,
                              " may be known only to servers that do not answer (view ",
                              membership::IncarnationOf(missing), "-", membership::EpochOf(missing),
                              "); waits for them, or for proof that they have ended");
      return false;
    }
    part.chain.insert(part.chain.begin(), *living);
    add(*living);
  }
  part.since = std::move(group.since);
  part.waived = std::move(group.waived);
  return true;
}

// A client keeps the view since which it has been in all; where a slot is restored all start over.
void SlotPlan::NameClients(JobView& view) const {
  const bool restored =
      options_.rules.restart_clients && std::any_of(view.slots.begin(), view.slots.end(),
                                                    [](const SlotPart& p) { return p.restore; });
  for (const Participant* one : Staying(/*servers=*/false)) {
    const ViewMember* before = MemberIn(newest_.clients, one->id);
    const bool keeps = before != nullptr && !restored;
    view.clients.push_back(
        {one->id, one->address, keeps ? before->joined : ViewNumber{0}, one->pod, one->node});
  }
}

std::optional<JobView> SlotPlan::Compose(bool planned, absl::Time now) {
  std::vector<MemberId> servers;
  for (const Participant* one : Staying(/*servers=*/true)) servers.push_back(one->id);
  if (!planned || (move_ && PlacedByLoad(move_->slot, servers).empty())) move_.reset();
  if (move_ && newest_.slots[move_->slot].chain == move_->chain) move_.reset();
  std::vector<Chain> targets = Targets(servers);
  const bool settled =
      planned &&
      std::equal(targets.begin(), targets.end(), newest_.slots.begin(), newest_.slots.end(),
                 [](const Chain& target, const SlotPart& part) { return target == part.chain; });
  if (settled) {
    Relieve(servers, now);
    if (move_) targets = Targets(servers);
  } else {
    uneven_since_ = absl::InfiniteFuture();
  }
  const auto target_of = [&](std::size_t slot) -> const Chain& { return targets[slot]; };
  for (std::size_t slot = 0; planned && slot < past_.size(); ++slot) {
    for (const MemberId& id : target_of(slot)) {
      if (!Ready(slot, id)) ahead_[id].push_back(slot);
    }
  }
  if (ahead_.empty()) ahead_since_ = absl::InfiniteFuture();
  if (!ahead_.empty() && ahead_since_ == absl::InfiniteFuture()) ahead_since_ = now;
  const bool patient = now - ahead_since_ < options_.ahead_patience && !ahead_.empty();
  JobView view;
  for (std::size_t slot = 0; slot < past_.size(); ++slot) {
    SlotPart& part = view.slots.emplace_back();
    // One view moves everything, once everything is ready.
    part.chain = planned && patient ? newest_.slots[slot].chain
                                    : ChainFor(slot, target_of(slot), /*move=*/planned);
    if (part.chain.empty()) return std::nullopt;
    if (!Witness(slot, part)) return std::nullopt;
    const Chain by_load = PlacedByLoad(slot, servers);
    part.by_load = !by_load.empty() && part.chain.size() >= by_load.size() &&
                   std::equal(by_load.rbegin(), by_load.rend(), part.chain.rbegin());
  }
  std::set<MemberId> present(servers.begin(), servers.end());
  for (const SlotPart& part : view.slots) present.insert(part.chain.begin(), part.chain.end());
  for (const MemberId& id : present) {
    const Participant* one = Find(id);
    const ViewMember* before = MemberIn(newest_.servers, id);
    view.servers.push_back({id, one->address, before == nullptr ? 0 : before->joined, one->pod});
  }
  NameClients(view);
  if (static_cast<std::int64_t>(view.clients.size()) <
      std::min(census_.min_clients, census_.clients)) {
    waiting_ = absl::StrCat("waits for workers: ", view.clients.size(), " of at least ",
                            census_.min_clients, " are there");
    if (newest_.number == 0) return std::nullopt;
  }
  return view;
}

bool SlotPlan::Changes(const JobView& view) const {
  if (IdsOf(view.servers) != IdsOf(newest_.servers)) return true;
  if (IdsOf(view.clients) != IdsOf(newest_.clients)) return true;
  for (std::size_t slot = 0; slot < view.slots.size(); ++slot) {
    if (view.slots[slot].chain != newest_.slots[slot].chain) return true;
  }
  return false;
}

std::optional<JobView> SlotPlan::Plan(const Census& census, absl::Time now) {
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
  std::optional<JobView> view = Compose(/*planned=*/running_, now);
  if (!view) return std::nullopt;
  if (trouble == Trouble::kNone && !Changes(*view)) return std::nullopt;
  if (trouble == Trouble::kLost) {
    const bool same =
        !Changes(*view) &&
        std::equal(view->slots.begin(), view->slots.end(), newest_.slots.begin(),
                   [](const SlotPart& a, const SlotPart& b) { return a.waived == b.waived; });
    if (same) {
      unwitnessed_ = true;
      waiting_ = "waits for a server that knows the last updates, or for proof that all have ended";
      return std::nullopt;
    }
  }
  view->number = membership::MakeViewNumber(options_.incarnation, next_epoch_++);
  for (auto* members : {&view->servers, &view->clients}) {
    for (ViewMember& member : *members) {
      if (member.joined == 0) member.joined = view->number;
    }
  }
  broken_since_ = absl::InfiniteFuture();
  running_ = false;
  Learn(*view);
  return view;
}

std::vector<std::size_t> SlotPlan::FetchAhead(const MemberId& server) const {
  const auto found = ahead_.find(server);
  return found == ahead_.end() || !newest_.HasServer(server) ? std::vector<std::size_t>()
                                                             : found->second;
}

bool SlotPlan::Released(const MemberId& id) const {
  const Participant* one = Find(id);
  const bool there = newest_.HasServer(id) || MemberIn(newest_.clients, id) != nullptr;
  return one != nullptr && one->leaving && running_ && !there;
}

}  // namespace starling::parameter_server
