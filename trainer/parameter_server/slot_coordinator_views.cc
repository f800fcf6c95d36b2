// SPDX-License-Identifier: Apache-2.0
// Who is there, as SlotPlan wants to know it, and what becomes of the views that it composes.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/address.h"
#include "common/net/ports.h"
#include "starling/v1alpha1/membership.pb.h"
#include "trainer/parameter_server/convert.h"
#include "trainer/parameter_server/slot_coordinator.h"

namespace starling::parameter_server {
namespace {

namespace pb = v1alpha1;
using membership::FailureDetector;
using membership::PodState;
using membership::Role;
using membership::ViewMember;

constexpr absl::Duration kReplan = absl::Milliseconds(20);

// Whether a plan could tell the difference: a log that has grown makes none.
bool SameShape(const Participant& a, const Participant& b) {
  const auto key = [](const Participant& one) {
    return std::tie(one.id, one.server, one.leaving, one.liveness, one.fence, one.broken);
  };
  const auto slot_key = [](const SlotReport& slot) {
    return std::tuple(slot.state ? slot.state->view : 0, slot.state.has_value(), slot.cached,
                      slot.lost);
  };
  return key(a) == key(b) && a.slots.size() == b.slots.size() &&
         std::equal(
             a.slots.begin(), a.slots.end(), b.slots.begin(),
             [&](const SlotReport& x, const SlotReport& y) { return slot_key(x) == slot_key(y); });
}

bool SameShape(const Census& a, const Census& b) {
  return std::tie(a.servers, a.clients, a.min_servers, a.min_clients) ==
             std::tie(b.servers, b.clients, b.min_servers, b.min_clients) &&
         a.participants.size() == b.participants.size() &&
         std::equal(a.participants.begin(), a.participants.end(), b.participants.begin(),
                    [](const Participant& x, const Participant& y) { return SameShape(x, y); });
}

std::string Count(std::size_t count, const char* what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

}  // namespace

void SlotCoordinator::Hear(const membership::Report& report) {
  Heard& heard = heard_[report.id.pod_uid];
  const Heard before = std::exchange(heard, Heard());
  heard.id = report.id;
  heard.fresh = true;
  pb::ParameterServerReport from;
  if (report.parameter_server.empty() || !from.ParseFromString(report.parameter_server)) return;
  if (from.has_layout()) heard.layout = FromProto(from.layout());
  heard.broken = from.broken();
  const View* newest = view();
  heard.installed = report.installed ? report.installed->number : 0;
  const bool known = newest != nullptr && newest->number == heard.installed;
  if (report.installed) {
    if (!known) heard.view = report.installed;
    const ViewMember* self = report.installed->Find(report.id);
    if (self != nullptr && self->role == Role::kWorker) heard.self = {report.id, self->joined};
  }
  for (const pb::SlotReport& slot : from.slots()) heard.slots.push_back(FromProto(slot));
  for (const pb::SlotLedger& ledger : from.ledgers()) {
    if (ledger.slot() < 0) continue;
    heard.ledgers.emplace_back(static_cast<std::size_t>(ledger.slot()), FromProto(ledger));
  }
  heard.done.assign(from.done().begin(), from.done().end());
  heard.held.assign(from.held().begin(), from.held().end());
  const bool same = known && before.installed == heard.installed && before.self == heard.self;
  for (const Lease lease : same ? before.held : std::vector<Lease>()) {
    const bool told = std::ranges::find(heard.held, lease) != heard.held.end() ||
                      std::ranges::find(heard.done, lease) != heard.done.end();
    if (!told) heard.returned.push_back(lease);
  }
  heard.turn = from.evaluation().turn();
  heard.ends_training = from.evaluation().ends_training();
}

bool SlotCoordinator::IsServer(const std::string& uid) const {
  const membership::Pod* pod = detector_.FindPod(uid);
  return pod != nullptr && pod->role == kServerRole;
}

const SlotCoordinator::Heard* SlotCoordinator::HeardOf(const MemberId& id) const {
  const auto found = heard_.find(id.pod_uid);
  return found == heard_.end() || found->second.id != id ? nullptr : &found->second;
}

// Whoever serves tables already says what they are; else the first worker that knows.
void SlotCoordinator::ChooseLayout() {
  if (layout_) return;
  const Heard* best = nullptr;
  const auto rank = [this](const Heard& heard) {
    const membership::Pod* pod = detector_.FindPod(heard.id.pod_uid);
    return std::tuple(heard.installed != 0, IsServer(heard.id.pod_uid),
                      pod == nullptr ? 0 : -pod->index);
  };
  for (const auto& [uid, heard] : heard_) {
    if (!heard.layout || heard.layout->parameters == 0) continue;
    if (best == nullptr || rank(heard) > rank(*best)) best = &heard;
  }
  if (best == nullptr) return;
  layout_ = best->layout;
  Changed();
}

bool SlotCoordinator::MakePlan() {
  if (plan_) return true;
  if (!layout_) {
    waiting_ = "waits for a worker that has read model and data";
    return false;
  }
  if (!impossible_.empty()) return false;
  absl::StatusOr<JobTables> tables =
      options_.tables ? options_.tables(*layout_) : TablesOf(*spec_, *layout_);
  if (!tables.ok()) {
    impossible_ = std::string(tables.status().message());
    return false;
  }
  SlotPlan::Options plan;
  plan.slots = tables->ids;
  plan.placement.replication = static_cast<int>(
      std::max<std::int64_t>(1, spec_->exchange().parameter_server().replication()));
  plan.incarnation = detector_.incarnation();
  plan.newest_view = detector_.grant()->newest_view;
  plan.ahead_patience = options_.ahead_patience;
  plan.balance = options_.balance;
  plan.weights = WeightsOf(*tables);
  plan.rules = options_.plan;
  book_.emplace(Lease{1}, tables->parameter_slots);
  tables_ = *std::move(tables);
  plan_.emplace(std::move(plan));
  return true;
}

// Views that members have installed, and so a predecessor has published.
void SlotCoordinator::LearnViews() {
  const ViewNumber before = plan_->newest().number;
  for (auto& [uid, heard] : heard_) {
    if (!heard.view) continue;
    plan_->Learn(*heard.view);
    heard.view.reset();
  }
  if (plan_->newest().number != before) OnNewest();
}

void SlotCoordinator::OnNewest() {
  book_->OnView(plan_->newest());
  progress_in_view_ = false;
  Changed();
}

// A worker whose model or data are not those of the tables would push nonsense.
bool SlotCoordinator::Admitted(const std::string& uid) {
  const auto heard = heard_.find(uid);
  if (heard == heard_.end() || !heard->second.layout || !layout_) return false;
  FailureDetector::Process& process = detector_.processes().at(uid);
  const bool fits = *heard->second.layout == *layout_;
  process.not_admitted =
      fits ? ""
           : absl::StrCat("its model or data differ from those that the job began with (",
                          heard->second.layout->parameters, " parameters and ",
                          heard->second.layout->samples, " samples here, ", layout_->parameters,
                          " and ", layout_->samples, " there): give every worker the same files");
  return fits;
}

// A client that leaves finishes what it holds before it is out of the view.
bool SlotCoordinator::KeepWhileWorking(const MemberId& id, absl::Time now) {
  const ViewMember* client = view() == nullptr ? nullptr : view()->Find(id);
  if (client == nullptr || book_->HeldBy({id, client->joined}).empty()) return false;
  const absl::Time since = leaving_since_.emplace(id.pod_uid, now).first->second;
  return now - since < options_.drain_patience;
}

std::optional<Participant> SlotCoordinator::ParticipantOf(const membership::Pod& pod,
                                                          absl::Time now) {
  const FailureDetector::Process* process = detector_.FindProcess(pod.uid);
  const bool heard = process != nullptr && process->report;
  Participant one;
  one.id = heard ? process->report->id : MemberId{pod.uid, 0};
  const Liveness liveness = detector_.LivenessOf(one.id, taken_over_, now);
  if (liveness == Liveness::kGone) return std::nullopt;
  one.server = pod.role == kServerRole;
  if (!one.server && !Admitted(pod.uid)) return std::nullopt;
  one.pod = pod.name;
  one.node = pod.node;
  one.address = net::ToString({pod.ip, net::kDataPort});
  one.index = pod.index;
  one.leaving = detector_.IsLeaving(one.id);
  if (one.leaving && !one.server && KeepWhileWorking(one.id, now)) one.leaving = false;
  one.liveness = liveness;
  if (heard && process->held_until > now) {
    one.liveness = Liveness::kSilent;
    detector_.processes().at(pod.uid).not_admitted =
        "other members could not reach it; it is tried again soon";
  } else if (heard && one.server) {
    detector_.processes().at(pod.uid).not_admitted.clear();
  }
  if (heard && process->outdated) one.liveness = Liveness::kUnclear;
  if (const Heard* said = HeardOf(one.id)) {
    one.fence = said->installed;
    one.broken = said->broken;
    one.slots = said->slots;
  }
  return one;
}

Census SlotCoordinator::MakeCensus(absl::Time now) {
  const membership::Desired& desired = *detector_.desired();
  Census census;
  census.servers = desired.servers;
  census.clients = desired.workers;
  census.min_servers = std::max<std::int64_t>(1, desired.min_servers);
  census.min_clients = std::max<std::int64_t>(1, desired.min_workers);
  for (const auto& [uid, pod] : detector_.pods()) {
    if (std::optional<Participant> one = ParticipantOf(pod, now)) {
      census.participants.push_back(*std::move(one));
    }
  }
  return census;
}

// The first view of all: once enough are there, and the rest had a moment to come too.
bool SlotCoordinator::MayBegin(const Census& census, absl::Time now) {
  if (Halted() || census.clients <= 0 || census.servers <= 0) return false;
  bool enough = true;
  bool all = true;
  for (const bool servers : {true, false}) {
    const auto there = std::count_if(
        census.participants.begin(), census.participants.end(), [&](const Participant& one) {
          return one.server == servers && one.liveness == Liveness::kReporting && !one.leaving;
        });
    std::int64_t live = 0;
    for (const auto& [uid, pod] : detector_.pods()) {
      live += pod.state == PodState::kLive && (pod.role == kServerRole) == servers ? 1 : 0;
    }
    const std::int64_t wanted = servers ? census.servers : census.clients;
    const std::int64_t least = std::min(wanted, servers ? census.min_servers : census.min_clients);
    const char* who = servers ? "parameter servers" : "workers";
    if (there < std::min(live, wanted)) {
      all = false;
      waiting_ = absl::StrCat("waits a moment for more ", who, ": ", there, " of ",
                              std::min(live, wanted), " are there");
    }
    if (there < least) {
      enough_since_ = absl::InfiniteFuture();
      waiting_ = absl::StrCat("waits for ", who, ": ", there, " of at least ", least, " are there");
      enough = false;
      break;
    }
  }
  if (!enough) return false;
  if (enough_since_ == absl::InfiniteFuture()) enough_since_ = now;
  if (!all && now - enough_since_ < options_.common.first_view_grace) return false;
  waiting_.clear();
  return true;
}

void SlotCoordinator::Replan(absl::Time now) {
  Census census = MakeCensus(now);
  NoteLosses(now);
  if (view() == nullptr ? !MayBegin(census, now) : now < plan_due_ && SameShape(census, census_)) {
    return;
  }
  plan_due_ = now + kReplan;
  census_ = census;
  Evict(census, now);
  const std::optional<View> next = plan_->Plan(census, now);
  NoticeUnwitnessed(census, now);
  Changed();  // what is to be fetched ahead, perhaps
  if (!next) return;
  if (plan_->blamed()) ++failed_views_;
  OnPublished(*next);
}

void SlotCoordinator::OnPublished(const View& next) {
  if (next.Restores() && informed_) before_restore_ = static_cast<std::int64_t>(book_->done());
  detector_.NoteRepair(next.number,
                       absl::StrCat(Count(next.workers().size(), "worker"), " and ",
                                    Count(next.servers().size(), "parameter server"), " go on"));
  OnNewest();
}

// C6: the second view in a row that broke though all report. The most blamed stays out, clients
// before servers, of equals the one with the higher index, if the others can go on without it.
void SlotCoordinator::Evict(Census& census, absl::Time now) {
  if (failed_views_ == 0 || view() == nullptr) return;
  {
    SlotPlan trial = *plan_;
    if (!trial.Plan(census, now) || !trial.blamed()) return;
  }
  std::map<MemberId, int> blame;
  for (const Participant& one : census.participants) {
    const membership::Report* report = detector_.ReportOf(one.id);
    if (report == nullptr || !one.broken || one.fence != view()->number) continue;
    for (const MemberId& id : report->unreachable) ++blame[id];
  }
  Participant* worst = nullptr;
  const auto rank = [&](const Participant& one) {
    return std::tuple(blame[one.id], !one.server, one.index);
  };
  for (Participant& one : census.participants) {
    if (!blame.contains(one.id) || one.liveness != Liveness::kReporting) continue;
    if (worst == nullptr || rank(one) > rank(*worst)) worst = &one;
  }
  if (worst == nullptr) return;
  Census rest = census;
  rest.participants[static_cast<std::size_t>(worst - census.participants.data())].liveness =
      Liveness::kSilent;
  SlotPlan trial = *plan_;
  const std::optional<View> without = trial.Plan(rest, now);
  const auto size = [](std::span<const ViewMember> members) {
    return static_cast<std::int64_t>(members.size());
  };
  if (!without || size(without->workers()) < std::min(census.clients, census.min_clients) ||
      size(without->servers()) < std::min(census.servers, census.min_servers)) {
    return;
  }
  detector_.processes().at(worst->id.pod_uid).held_until = now + options_.common.blame_hold;
  membership::Incident incident;
  incident.id = worst->id;
  incident.record.time = now;
  incident.record.reason = worst->server ? "ParameterServerUnreachable" : "WorkerUnreachable";
  incident.record.pod = worst->pod;
  incident.record.message = absl::StrCat("it answers the coordinator, but ", blame[worst->id],
                                         " other members cannot reach it; it stays out for ",
                                         absl::FormatDuration(options_.common.blame_hold));
  detector_.AddIncident(std::move(incident));
  census = std::move(rest);
}

void SlotCoordinator::NoteLosses(absl::Time now) {
  const View* newest = view();
  if (newest == nullptr) return;
  for (const ViewMember& member : newest->members) {
    const char* role = member.role == Role::kServer ? "ParameterServer" : "Worker";
    const Liveness liveness = detector_.LivenessOf(member.id, taken_over_, now);
    detector_.NoteLoss(member.id, member.pod, role, liveness, now);
  }
}

// C5: if the witness rule cannot hold for long, the silent count as ended.
void SlotCoordinator::NoticeUnwitnessed(const Census& census, absl::Time now) {
  if (!plan_->unwitnessed()) {
    unwitnessed_since_ = absl::InfiniteFuture();
    return;
  }
  if (unwitnessed_since_ == absl::InfiniteFuture()) unwitnessed_since_ = now;
  if (now - unwitnessed_since_ < options_.common.takeover_timeout) return;
  std::set<std::string> silent;
  for (const Participant& one : census.participants) {
    const Liveness liveness = detector_.LivenessOf(one.id, taken_over_, now);
    if (one.server && liveness == Liveness::kSilent) silent.insert(one.id.pod_uid);
  }
  unwitnessed_since_ = absl::InfiniteFuture();
  if (!silent.empty()) detector_.AssumeTerminated(silent, Risked(), now);
}

// C3: whoever leaves may go once a view without it runs. Where all servers go at once, nobody is
// left for that: they have saved what they hold. So they have where everything is halted, and no
// view is made any more.
void SlotCoordinator::Release() {
  const bool halted = stopped_ && Halted();
  const bool all_saved = halted || (halt_turn_ != 0 && ServersLeave() && SavedByAll(halt_turn_));
  for (const auto& [uid, process] : detector_.processes()) {
    if (!process.report || released_.contains(uid)) continue;
    const MemberId& id = process.report->id;
    if (!detector_.IsLeaving(id)) continue;
    const View* newest = view();
    const bool there = newest != nullptr && newest->Has(id);
    // An omitted one (it was not admitted) is in no view either.
    const bool free = newest == nullptr || (!there && plan_->running()) || all_saved;
    if (!free) continue;
    released_.insert(uid);
    Changed();
  }
}

}  // namespace starling::parameter_server
