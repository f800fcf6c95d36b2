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
  return std::tie(a.servers, a.clients, a.min_servers, a.min_clients, a.renew) ==
             std::tie(b.servers, b.clients, b.min_servers, b.min_clients, b.renew) &&
         a.participants.size() == b.participants.size() &&
         std::equal(a.participants.begin(), a.participants.end(), b.participants.begin(),
                    [](const Participant& x, const Participant& y) { return SameShape(x, y); });
}

std::string Count(std::size_t count, const char* what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

}  // namespace

bool SlotCoordinator::Learn(const membership::Report& report, absl::Time /*now*/) {
  Heard& heard = heard_[report.id.pod_uid];
  if (std::exchange(heard, Heard()).id != report.id) leaving_since_.erase(report.id.pod_uid);
  heard.id = report.id;
  pb::ParameterServerReport from;
  if (report.parameter_server.empty() || !from.ParseFromString(report.parameter_server))
    return false;
  work_.OnReport(report, from);
  if (from.has_layout()) heard.layout = FromProto(from.layout());
  heard.broken = from.broken();
  const View* newest = view();
  heard.installed = report.installed ? report.installed->number : 0;
  const bool known = newest != nullptr && newest->number == heard.installed;
  if (!known) heard.view = report.installed;
  for (const pb::SlotReport& slot : from.slots()) heard.slots.push_back(FromProto(slot));
  return std::ranges::any_of(heard.slots,
                             [](const SlotReport& slot) { return slot.state.has_value(); });
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
      slot_options_.tables ? slot_options_.tables(*layout_) : TablesOf(*spec_, *layout_);
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
  plan.ahead_patience = slot_options_.ahead_patience;
  plan.balance = slot_options_.balance;
  plan.weights = WeightsOf(*tables);
  plan.rules = slot_options_.plan;
  work_.Begin(tables->parameter_slots, layout_->samples);
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
  work_.OnView(plan_->newest());
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
  if (client == nullptr || !work_.Holds({id, client->joined})) return false;
  const absl::Time since = leaving_since_.emplace(id.pod_uid, now).first->second;
  return now - since < slot_options_.drain_patience;
}

std::optional<Participant> SlotCoordinator::ParticipantOf(const membership::Pod& pod,
                                                          absl::Time now) {
  const FailureDetector::Process* process = detector_.FindProcess(pod.uid);
  const bool heard = process != nullptr && process->report;
  Participant one;
  one.id = heard ? process->report->id : MemberId{pod.uid, 0};
  const Liveness liveness = LivenessOf(one.id, now);
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
  census.renew = RenewForReturn();
  for (const std::string& uid : returning_) {
    detector_.processes().at(uid).not_admitted = membership::kReturning;
  }
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
  const auto count = [&](const char* who, bool servers) {
    const auto there = std::ranges::count_if(census.participants, [&](const Participant& one) {
      return one.server == servers && one.liveness == Liveness::kReporting && !one.leaving;
    });
    const std::int64_t wanted = servers ? census.servers : census.clients;
    return Headcount{who, there,
                     std::min(wanted, servers ? census.min_servers : census.min_clients),
                     std::min(wanted, LivePods(servers ? kServerRole : kWorkerRole))};
  };
  return EnoughToBegin({count("parameter servers", true), count("workers", false)}, now);
}

void SlotCoordinator::Replan(absl::Time now) {
  Census census = MakeCensus(now);
  if (view() != nullptr) NoteLosses(*view(), now);
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
  detector_.NoteRepair(next.number,
                       absl::StrCat(Count(next.workers().size(), "worker"), " and ",
                                    Count(next.servers().size(), "parameter server"), " go on"));
  OnNewest();
}

// C6: the second view in a row that broke though all report.
void SlotCoordinator::Evict(Census& census, absl::Time now) {
  if (failed_views_ == 0 || view() == nullptr) return;
  {
    SlotPlan trial = *plan_;
    if (!trial.Plan(census, now) || !trial.blamed()) return;
  }
  Census rest;
  const auto can = [&](const MemberId& id) {
    rest = census;
    for (Participant& one : rest.participants) {
      if (one.id == id) one.liveness = Liveness::kSilent;
    }
    SlotPlan trial = *plan_;
    const std::optional<View> without = trial.Plan(rest, now);
    return without && EnoughIn(*without, census);
  };
  const auto broken = [this](const membership::Report& report) {
    const Heard* said = HeardOf(report.id);
    return said != nullptr && said->broken && said->installed == view()->number;
  };
  if (EvictMostBlamed(*view(), broken, can, now)) census = std::move(rest);
}

// C5: if the witness rule cannot hold for long, the silent count as ended. So they do where only
// somebody reports who was given up, and who could harm them.
void SlotCoordinator::NoticeUnwitnessed(const Census& census, absl::Time now) {
  const bool nobody =
      !returning_.empty() && std::ranges::none_of(census.participants, [](const Participant& one) {
        return one.server && one.liveness == Liveness::kReporting;
      });
  if (!plan_->unwitnessed() && !nobody) return NoteWitnesses();
  membership::Members servers;
  for (const Participant& one : census.participants) {
    if (one.server) servers.push_back(one.id);
  }
  NoteWitnessMissing(servers, now);
}

// C3: whoever leaves may go once a view without it runs. Where all servers go at once, nobody is
// left for that: they have saved what they hold. So they have where everything is halted, and no
// view is made any more.
void SlotCoordinator::ReleaseLeaving() {
  const bool halted = stopped_ && Halted();
  const bool all_saved = halted || (halt_round_ != 0 && ServersLeave() && SavedByAll(halt_round_));
  const View* newest = view();
  Release([&](const membership::Report& report) {
    if (!detector_.IsLeaving(report.id)) return false;
    // An omitted one (it was not admitted) is in no view either.
    return newest == nullptr || (!newest->Has(report.id) && plan_->running()) || all_saved;
  });
}

}  // namespace starling::parameter_server
