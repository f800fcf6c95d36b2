// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/coordinator.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/address.h"
#include "common/net/ports.h"

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

bool HoldsAnything(const Participant& one) {
  return std::any_of(one.groups.begin(), one.groups.end(),
                     [](const GroupReport& group) { return group.state.has_value(); });
}

const char* ReplicaNameOf(Role role) {
  return role == Role::kServer ? "ParameterServer" : "Worker";
}

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options, std::set<std::string> roles,
                         std::int64_t settled, absl::Duration replan)
    : options_(std::move(options)),
      detector_(options_, std::move(roles)),
      rounds_(settled),
      replan_(replan) {}

void Coordinator::NoticeGap(absl::Time now) {
  const absl::Duration gap = detector_.OnTime(now);
  if (plan_) plan_->OnGap(gap);
  unwitnessed_since_ += gap;
}

void Coordinator::OnGrant(const Grant& grant, absl::Time now) {
  NoticeGap(now);
  if (!detector_.OnGrant(grant, now)) return;
  rounds_.Start(grant.incarnation);
  MakePlan();
  Changed();
  Refresh(now);
}

void Coordinator::OnDesired(const Desired& desired, absl::Time now) {
  NoticeGap(now);
  if (!detector_.OnDesired(desired)) return;
  std::erase_if(returning_, [this](const std::string& uid) { return !detector_.FindPod(uid); });
  std::erase_if(said_, [this](const auto& said) { return !detector_.FindProcess(said.first); });
  rounds_.Request(desired.checkpoint_request);
  OnPodsChanged();
  plan_due_ = absl::InfinitePast();
  Changed();
  Refresh(now);
}

void Coordinator::OnConnected(const std::string& pod_uid, absl::Time now) {
  NoticeGap(now);
  detector_.OnConnected(pod_uid);
  plan_due_ = absl::InfinitePast();
  Refresh(now);
}

void Coordinator::OnDisconnected(const std::string& pod_uid, absl::Time now) {
  NoticeGap(now);
  returning_.erase(pod_uid);
  plan_due_ = absl::InfinitePast();
  if (detector_.OnDisconnected(pod_uid, now)) Refresh(now);
}

void Coordinator::OnRefused(const std::string& pod_uid, absl::Time now) {
  NoticeGap(now);
  plan_due_ = absl::InfinitePast();
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
  if (heard == FailureDetector::Heard::kNewProcess) {
    released_.erase(pod_uid);
    Changed();  // what its pod was told was meant for the process before it
  }
  if (heard != FailureDetector::Heard::kSignOfLife) {
    if (MayReturn(report)) {
      returning_.erase(pod_uid);
      detector_.TakeBack(pod_uid);
      Participant& said = said_[pod_uid];
      const Participant before = std::exchange(said, Participant());
      said.id = report.id;
      said.leaving = report.leaving;
      said.installed = report.installed ? report.installed->number : 0;
      said.prepared = report.candidate ? report.candidate->number : 0;
      said.fence = std::max(report.fence, said.installed);
      Hear(report, said, now);
      Learn(report);
      detector_.SettleDoubt(pod_uid, HoldsAnything(said));
      if (!SameShape(before, said)) plan_due_ = absl::InfinitePast();
    } else if (returning_.insert(pod_uid).second) {
      plan_due_ = absl::InfinitePast();
    }
  }
  Refresh(now);
}

// Whoever leads has heard members, or is about to: they obey this coordinator no more.
void Coordinator::OnShadowReply(const ShadowReply& reply, absl::Time now) {
  NoticeGap(now);
  if (!detector_.grant() || reply.incarnation != detector_.incarnation()) return;
  if (reply.leads && reply.standby > detector_.incarnation()) detector_.OnSuperseded();
  const bool newer =
      std::pair(reply.standby, reply.view) > std::pair(acknowledged_.standby, acknowledged_.view);
  if (newer) acknowledged_ = reply;
  Refresh(now);
}

// B1. Where there is no standby all views are told.
void Coordinator::TellView() {
  if (view() == nullptr || told_view_ == *view()) return;
  const std::optional<StandbyPod> named = standby();
  const bool asks =
      named && named->incarnation > detector_.incarnation() && options_.rules.standby_acknowledges;
  const bool acknowledged =
      asks && acknowledged_.standby == named->incarnation && acknowledged_.view >= view()->number;
  if (asks && !acknowledged) {
    waiting_ = "the standby has not acknowledged the newest view; if it has ended, it is replaced";
    return;
  }
  told_view_ = *view();
  Changed();
}

// G8: what a process knows that was given up, views and a state, counts only when it can do no harm
// any more: others have gone on without it, and were told that its steps are lost. Whoever knows of
// no view, as a process that has just started, brings nothing that could.
bool Coordinator::MayReturn(const Report& report) const {
  const bool given_up = detector_.assumed_terminated().contains(report.id.pod_uid);
  if (!options_.rules.return_when_synced || !given_up || view() == nullptr) return true;
  if (!report.installed && !report.candidate && !report.state) return true;
  ViewNumber known = report.state ? report.state->view : 0;
  for (const std::optional<View>* view : {&report.installed, &report.candidate}) {
    if (*view) known = std::max(known, (*view)->number);
  }
  const auto ended = [this](const MemberId& id) { return detector_.Terminated(id); };
  return std::all_of(plan_->groups().begin(), plan_->groups().end(),
                     [&](const GroupHistory& group) { return group.MayReturn(known, ended); });
}

// At the first call that can: everything that was reported before is learned.
bool Coordinator::MakePlan() {
  if (plan_) return true;
  std::vector<std::shared_ptr<Placement>> placements = MakePlacements();
  if (placements.empty()) return false;
  ViewPlan::Options options;
  options.rules = options_.rules;
  options.incarnation = detector_.incarnation();
  options.first_view_grace = options_.first_view_grace;
  plan_.emplace(options, std::move(placements));
  for (const auto& [uid, process] : detector_.processes()) {
    if (process.report && !returning_.contains(uid)) Learn(*process.report);
  }
  if (detector_.grant()->view) {
    plan_->Learn(*detector_.grant()->view);
    OnView(*view());
  }
  if (taken_over_) plan_->OnTakenOver(detector_.grant()->newest_view);
  return true;
}

// Views that members have installed or prepared, and so somebody has published.
void Coordinator::Learn(const Report& report) {
  if (!plan_) return;
  const ViewNumber before = view() == nullptr ? 0 : view()->number;
  for (const std::optional<View>* told : {&report.installed, &report.candidate}) {
    if (*told && (*told)->number != before) plan_->Learn(**told);
  }
  if (view() != nullptr && view()->number != before) OnView(*view());
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
  if (leads) TellView();
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
  if (plan_) plan_->OnTakenOver(newest);
  MakePlan();
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
  if (process != nullptr && process->hung()) directive.hung = process->report->id;
  if (!taken_over_ || superseded()) return directive;
  directive.view = told_view_;
  // What belongs to the newest view is told with it.
  if (view() != nullptr && (!told_view_ || told_view_->number != view()->number)) return directive;
  const bool heard = process != nullptr && process->report;
  directive.parameter_server = PartFor(heard ? &process->report->id : nullptr);
  return directive;
}

std::optional<Shadow> Coordinator::MakeShadow() const {
  const std::optional<Desired>& desired = detector_.desired();
  if (!taken_over_ || superseded() || !desired || !desired->standby) return std::nullopt;
  Shadow shadow;
  shadow.incarnation = detector_.incarnation();
  shadow.standby = desired->standby->incarnation;
  shadow.newest_view = detector_.grant()->newest_view;
  if (view() != nullptr) {
    shadow.view = *view();
    shadow.newest_view = std::max(shadow.newest_view, view()->number);
  }
  shadow.settled_step = std::max(settled_step_, detector_.grant()->settled_step);
  shadow.desired = *desired;
  shadow.desired.standby.reset();
  shadow.desired.lease_transition = shadow.desired.sequence = 0;
  return shadow;
}

Summary Coordinator::MakeSummary(absl::Time now) const {
  Summary summary;
  summary.boot_id = options_.boot_id;
  if (!detector_.grant()) return summary;
  summary.incarnation = detector_.incarnation();
  summary.newest_view =
      std::max(view() == nullptr ? 0 : view()->number, detector_.grant()->newest_view);
  summary.waiting = waiting_;
  summary.checkpoint_request = rounds_.answered();
  summary.checkpoint_request_step = rounds_.answered_settled();
  summary.stopped = taken_over_ && Halted() && Stopped();
  const View* current = Current();
  summary.view_synced = current != nullptr && plan_->synced();
  detector_.FillSummary(
      summary, released_,
      [current](const MemberId& id) { return current != nullptr && current->Has(id); }, now);
  FillTraining(summary);
  return summary;
}

// In the order of the design page.
void Coordinator::Decide(absl::Time now) {
  if (!MakePlan()) return;
  if (!Rests()) {
    Replan(now);
    Work(now);
  }
  ReleaseLeaving();
  if (waiting_.empty()) waiting_ = plan_->waiting();
}

std::optional<Participant> Coordinator::ParticipantOf(const Pod& pod, absl::Time now) {
  const auto found = detector_.processes().find(pod.uid);
  FailureDetector::Process* process =
      found == detector_.processes().end() || !found->second.report ? nullptr : &found->second;
  Participant one;
  one.id = process == nullptr ? MemberId{pod.uid, 0} : process->report->id;
  const auto said = said_.find(pod.uid);
  if (said != said_.end() && said->second.id == one.id) one = said->second;
  one.liveness = LivenessOf(one.id, now);
  if (one.liveness == Liveness::kGone) return std::nullopt;
  one.pod = pod.name;
  one.node = pod.node;
  one.address = net::ToString({pod.ip, net::kDataPort});
  one.index = pod.index;
  one.role = pod.role == kServerRole ? Role::kServer : Role::kWorker;
  one.leaving = detector_.IsLeaving(one.id) && !Keeps(one.id, now);
  one.admitted = !released_.contains(pod.uid);
  if (process == nullptr) return one;
  if (process->held_until > now) {
    one.liveness = Liveness::kSilent;
    process->not_admitted = "other members could not reach it; it is tried again soon";
  }
  if (process->outdated) one.liveness = Liveness::kUnclear;
  return one;
}

// The job was halted and is wanted again before its processes were taken away: workers that hold a
// state have stopped, and go on in a view of their own.
bool Coordinator::Resumes(absl::Time now) const {
  const View* current = Current();
  if (Halted() || current == nullptr || current->workers().empty()) return false;
  return std::ranges::all_of(current->workers(), [&](const ViewMember& worker) {
    const Report* report = detector_.ReportOf(worker.id);
    return report != nullptr && report->stopped && report->installed &&
           report->settings_generation < detector_.desired()->settings.generation &&
           report->installed->number == current->number &&
           LivenessOf(worker.id, now) == Liveness::kReporting;
  });
}

Roster Coordinator::MakeRoster(absl::Time now) {
  const Desired& desired = *detector_.desired();
  Roster roster;
  roster.workers = {desired.workers, std::max<std::int64_t>(1, desired.min_workers)};
  roster.servers = {desired.servers, std::max<std::int64_t>(1, desired.min_servers)};
  roster.returning = static_cast<std::int64_t>(returning_.size());
  for (auto& [uid, process] : detector_.processes()) {
    process.not_admitted = returning_.contains(uid) ? kReturning : "";
  }
  for (const auto& [uid, pod] : detector_.pods()) {
    Roster::Wanted& wanted = pod.role == kServerRole ? roster.servers : roster.workers;
    if (pod.state == PodState::kLive) ++wanted.expected;
    if (std::optional<Participant> one = ParticipantOf(pod, now)) {
      roster.participants.emplace(one->id, *std::move(one));
    }
  }
  Admit(roster);
  roster.idle = roster.idle || Halted() || desired.workers <= 0;
  // Somebody who was given up waits to be taken back, and the newest view is another coordinator's:
  // its members get one of this coordinator, which is above all that the other can know.
  const bool other = view() != nullptr && options_.rules.incarnation_in_view_number &&
                     IncarnationOf(view()->number) < detector_.incarnation();
  roster.renew = (other && !returning_.empty()) || Resumes(now);
  return roster;
}

void Coordinator::Replan(absl::Time now) {
  if (view() != nullptr && detector_.NoticeHang(*view(), now)) {
    plan_due_ = absl::InfinitePast();
    Changed();
  }
  NoteLosses(now);
  if (now < plan_due_) return;
  plan_due_ = now + replan_;
  Roster roster = MakeRoster(now);
  Evict(roster, now);
  roster_ = std::move(roster);
  const std::optional<View> next = plan_->Next(roster_, now);
  NoticeUnwitnessed(now);
  if (!next) return;
  if (plan_->blamed()) ++failed_views_;
  std::string deed;
  if (!next->at_boundary) {
    const auto count = [](std::size_t members, const char* what) {
      return absl::StrCat(members, " ", what, members == 1 ? "" : "s");
    };
    const std::size_t servers = next->servers().size();
    deed = absl::StrCat(count(next->workers().size(), "worker"), servers == 0 ? "" : " and ",
                        servers == 0 ? "" : count(servers, "parameter server"),
                        next->members.size() == 1 ? " goes on" : " go on");
  }
  detector_.NoteRepair(next->number, deed);
  OnView(*next);
}

// C6: the second view in a row that broke though all report. Members whose links have broken blame
// others. The most blamed goes, workers before servers, of equals the one with the higher index, if
// the others can go on without it; after a while it may come back.
void Coordinator::Evict(Roster& roster, absl::Time now) {
  if (failed_views_ == 0 || !plan_->IsBlamed(roster, now)) return;
  std::map<MemberId, int> blame;
  for (const ViewMember& member : Current()->members) {
    const Participant* one = roster.Find(member.id);
    if (one == nullptr || one->phase != Phase::kAborted) continue;
    for (const MemberId& id : detector_.ReportOf(member.id)->unreachable) {
      if (Current()->Has(id) && roster.Reporting(id) != nullptr) ++blame[id];
    }
  }
  const auto rank = [&](const auto& blamed) {
    const Participant& one = *roster.Find(blamed.first);
    return std::tuple(blamed.second, one.role == Role::kWorker, one.index);
  };
  const auto worst = std::max_element(
      blame.begin(), blame.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  if (worst == blame.end()) return;
  Roster rest = roster;
  Participant& evicted = rest.participants.at(worst->first);
  evicted.liveness = Liveness::kSilent;
  ViewPlan trial = *plan_;
  const std::optional<View> without = trial.Next(rest, now);
  if (!without || !EnoughIn(*without, roster)) return;
  detector_.processes().at(evicted.id.pod_uid).held_until = now + options_.blame_hold;
  Incident incident;
  incident.id = evicted.id;
  incident.record.time = now;
  incident.record.reason = absl::StrCat(ReplicaNameOf(evicted.role), "Unreachable");
  incident.record.pod = evicted.pod;
  incident.record.message = absl::StrCat("it answers the coordinator, but ", worst->second,
                                         " other members cannot reach it; it stays out for ",
                                         absl::FormatDuration(options_.blame_hold));
  detector_.AddIncident(std::move(incident));
  roster = std::move(rest);
}

// C5: if the witness rule cannot hold for long, those of earlier views who are silent count as
// ended. So they do where only somebody reports who was given up, and who could harm them.
void Coordinator::NoticeUnwitnessed(absl::Time now) {
  if (!plan_->unwitnessed()) {
    unwitnessed_since_ = absl::InfiniteFuture();
    return;
  }
  unwitnessed_since_ = std::min(unwitnessed_since_, now);
  if (now - unwitnessed_since_ < options_.takeover_timeout) return;
  unwitnessed_since_ = absl::InfiniteFuture();
  std::set<std::string> silent;
  const std::optional<std::size_t> only = plan_->unwitnessed_group();
  for (std::size_t group = 0; group < plan_->groups().size(); ++group) {
    if (only && group != *only) continue;
    for (const auto& [epoch, members] : plan_->groups()[group].past()) {
      for (const MemberId& id : members) {
        if (LivenessOf(id, now) == Liveness::kSilent) silent.insert(id.pod_uid);
      }
    }
  }
  if (!silent.empty()) detector_.AssumeTerminated(silent, Risked(), now);
}

void Coordinator::NoteLosses(absl::Time now) {
  const View* current = Current();
  if (current == nullptr) return;
  for (const ViewMember& member : current->members) {
    Incident* incident = detector_.NoteLoss(member.id, member.pod, ReplicaNameOf(member.role),
                                            LivenessOf(member.id, now), now);
    if (incident == nullptr) continue;
    incident->in_flight = plan_->synced();
    for (const ViewMember& other : current->members) {
      const Report* report = detector_.ReportOf(other.id);
      if (report == nullptr || !report->state) continue;
      incident->reached = std::max(incident->reached, report->state->step);
    }
  }
}

// C3: whoever leaves, or was drained, once all of the view that goes on without it are synced.
// Where all is saved nobody is waited for.
void Coordinator::ReleaseLeaving() {
  const View* current = Current();
  const View* pending = plan_->Pending(roster_);
  const bool saved = AllSaved();
  for (const auto& [uid, said] : said_) {
    const MemberId& id = said.id;
    const bool leaves = detector_.IsLeaving(id);
    const bool needed = (current != nullptr && (current->Has(id) || !plan_->synced())) ||
                        (pending != nullptr && pending->Has(id)) ||
                        (current == nullptr && HoldsAnything(said));
    const bool free = (leaves && saved) || (!needed && (leaves || said.phase == Phase::kLinger));
    if (free && released_.insert(uid).second) Changed();
  }
}

}  // namespace starling::membership
