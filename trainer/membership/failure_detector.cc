// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/failure_detector.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace starling::membership {
namespace {

// After it: what was said meanwhile is read by then.
constexpr absl::Duration kCatchUp = absl::Seconds(1);
// Whoever hangs ends by itself in this time, or its pod is told as silent.
constexpr absl::Duration kToEnd = absl::Seconds(5);

std::string InSeconds(absl::Duration duration) {
  return absl::StrFormat("%.2f s", absl::ToDoubleSeconds(duration));
}

}  // namespace

FailureDetector::FailureDetector(CoordinatorOptions options, std::set<std::string> roles)
    : options_(std::move(options)), roles_(std::move(roles)) {}

// What they said meanwhile waits behind the first tick.
absl::Duration FailureDetector::OnTime(absl::Time now) {
  const absl::Duration gap = now - last_event_;
  last_event_ = now;
  if (gap <= kOwnGap) {
    TellOldDoubts(now);
    return absl::ZeroDuration();
  }
  granted_ += gap;
  hang_from_ = std::max(hang_from_, now + kCatchUp);
  for (auto& [uid, process] : processes_) {
    process.heard += gap;
  }
  return gap;
}

void FailureDetector::TakePods(const std::vector<Pod>& pods) {
  for (const Pod& pod : pods) {
    if (roles_.contains(pod.role)) pods_[pod.uid] = pod;
  }
}

bool FailureDetector::OnGrant(const Grant& grant, absl::Time now) {
  if (grant_ || grant.boot_id != options_.boot_id || grant.incarnation == 0) return false;
  grant_ = grant;
  granted_ = now;
  TakePods(grant.roster);
  return true;
}

bool FailureDetector::OnDesired(const Desired& desired) {
  const bool older = desired_ && std::pair(desired.lease_transition, desired.sequence) <
                                     std::pair(desired_->lease_transition, desired_->sequence);
  if (older || !grant_) return false;
  // B4: who has led or may lead over this coordinator is not forgotten, whoever says so.
  std::optional<StandbyPod> standby = desired_ ? desired_->standby : std::nullopt;
  desired_ = desired;
  if (standby) desired_->standby = std::move(standby);
  pods_.clear();
  TakePods(desired.pods);
  std::erase_if(processes_, [this](const auto& entry) { return FindPod(entry.first) == nullptr; });
  // Whoever has ended does not come back with anything.
  std::erase_if(doubts_, [this](const auto& entry) {
    const Pod* pod = FindPod(entry.first);
    return pod == nullptr || pod->state == PodState::kTerminated;
  });
  return true;
}

void FailureDetector::OnConnected(const std::string& pod_uid) {
  Process& process = processes_[pod_uid];
  process.connected = true;
  process.spoken = false;
}

bool FailureDetector::OnDisconnected(const std::string& pod_uid, absl::Time now) {
  const auto process = processes_.find(pod_uid);
  if (process == processes_.end()) return false;
  if (process->second.spoken) process->second.broken = now;
  process->second.connected = false;
  process->second.spoken = false;
  return true;
}

bool FailureDetector::OnRefused(const std::string& pod_uid) {
  const auto process = processes_.find(pod_uid);
  if (process == processes_.end() || process->second.connected) return false;
  process->second.refused = true;
  return true;
}

FailureDetector::Heard FailureDetector::OnReport(const std::string& pod_uid, const Report& report,
                                                 absl::Time now) {
  if (!grant_ || report.id.pod_uid != pod_uid || FindPod(pod_uid) == nullptr) {
    return Heard::kNothing;
  }
  if (report.highest_incarnation > grant_->incarnation && options_.rules.refuse_lower_incarnation) {
    superseded_ = true;
  }
  Process& process = processes_[pod_uid];
  if (!process.connected) return Heard::kNothing;
  process.heard = now;
  const bool new_process = process.report && report.id.start > process.report->id.start;
  // Until a new process counts, it does not speak for the one before it, which has ended.
  process.spoken = !new_process || report.highest_incarnation >= grant_->incarnation;
  process.refused = false;
  process.outdated = process.report && report.id.start < process.report->id.start;
  // Until it has heard of this incarnation it might still follow an older one: it does not count.
  if (process.outdated || report.highest_incarnation < grant_->incarnation) {
    return Heard::kSignOfLife;
  }
  if (new_process) {
    process.held_until = absl::InfinitePast();
    process.hung_since = absl::InfiniteFuture();
  }
  if (report.last_exit && (!process.report || new_process)) NoteExit(report);
  process.report = report;
  return new_process ? Heard::kNewProcess : Heard::kReport;
}

const Pod* FailureDetector::FindPod(const std::string& uid) const {
  const auto pod = pods_.find(uid);
  return pod == pods_.end() ? nullptr : &pod->second;
}

const FailureDetector::Process* FailureDetector::FindProcess(const std::string& uid) const {
  const auto process = processes_.find(uid);
  return process == processes_.end() ? nullptr : &process->second;
}

bool FailureDetector::Terminated(const MemberId& id) const {
  const Pod* pod = FindPod(id.pod_uid);
  if (pod == nullptr || pod->state == PodState::kTerminated) return true;
  const Process* process = FindProcess(id.pod_uid);
  if (process != nullptr && process->report && process->report->id.start > id.start) return true;
  return assumed_terminated_.contains(id.pod_uid);
}

Liveness FailureDetector::LivenessOf(const MemberId& id, bool taken_over, absl::Time now) const {
  if (Terminated(id)) return Liveness::kGone;
  const Process* process = FindProcess(id.pod_uid);
  if (process == nullptr || !process->report) {
    return taken_over ? Liveness::kSilent : Liveness::kUnclear;
  }
  const bool hung = process->hung() && process->report->id == id;
  if (hung || process->refused || now - process->heard > options_.heartbeat_timeout) {
    return Liveness::kSilent;
  }
  return process->spoken ? Liveness::kReporting : Liveness::kUnclear;
}

const Report* FailureDetector::ReportOf(const MemberId& id) const {
  const Process* process = FindProcess(id.pod_uid);
  if (process == nullptr || !process->report) return nullptr;
  return process->report->id == id ? &*process->report : nullptr;
}

bool FailureDetector::IsLeaving(const MemberId& id) const {
  const Pod* pod = FindPod(id.pod_uid);
  const Report* report = ReportOf(id);
  return pod == nullptr || pod->state != PodState::kLive || (report != nullptr && report->leaving);
}

// A pod whose address refuses has no process any more; where the address itself is gone, the
// controller says that the pod has ended.
bool FailureDetector::AllGone() const {
  if (!finished()) return false;
  return std::all_of(pods_.begin(), pods_.end(), [this](const auto& entry) {
    const auto& [uid, pod] = entry;
    if (pod.ip.empty() || pod.state == PodState::kTerminated) return true;
    const Process* process = FindProcess(uid);
    return process != nullptr && !process->connected && process->refused;
  });
}

std::map<std::string, Dial> FailureDetector::PodsToDial() const {
  std::map<std::string, Dial> dial;
  if (!grant_ || superseded_) return dial;
  for (const auto& [uid, pod] : pods_) {
    if (!pod.ip.empty() && pod.state != PodState::kTerminated) dial[uid] = {pod.ip, pod.role};
  }
  return dial;
}

bool FailureDetector::HeardRoster(bool witness,
                                  const std::function<bool(const std::string& pod_uid)>& in_a_view,
                                  const std::string& risked, absl::Time now, std::string& waiting) {
  std::set<std::string> missing;
  std::vector<std::string> names;
  for (const Pod& pod : grant_->roster) {
    if (!roles_.contains(pod.role) || Terminated({pod.uid, 0})) continue;
    const Process* process = FindProcess(pod.uid);
    if (process != nullptr && process->report) continue;
    missing.insert(pod.uid);
    names.push_back(pod.name);
  }
  // The first coordinator of a job has no predecessor whose views it might not know.
  if (!options_.rules.roster_wait || grant_->incarnation <= 1 || missing.empty()) return true;
  if (grant_->knows_all && now - granted_ >= options_.heartbeat_timeout) return true;
  const absl::Duration limit = grant_->knows_all ? options_.heartbeat_timeout
                               : witness         ? options_.takeover_timeout_with_witness
                                                 : options_.takeover_timeout;
  if (now - granted_ < limit) {
    waiting = absl::StrCat("a new coordinator has taken over; it waits for ",
                           absl::StrJoin(names, ", "), " to report");
    return false;
  }
  for (auto uid = missing.begin(); witness && uid != missing.end();) {
    if (in_a_view(*uid)) {
      ++uid;
      continue;
    }
    assumed_terminated_.insert(*uid);
    // A pod without an address has had no process yet.
    if (!FindPod(*uid)->ip.empty()) doubts_[*uid] = {now, risked};
    uid = missing.erase(uid);
  }
  if (!missing.empty()) AssumeTerminated(missing, risked, now);
  return true;
}

void FailureDetector::SettleDoubt(const std::string& pod_uid, bool holds_state) {
  const auto doubt = doubts_.extract(pod_uid);
  const Pod* pod = FindPod(pod_uid);
  if (doubt.empty() || !holds_state || pod == nullptr) return;
  NoteRisk({pod->name}, doubt.mapped().risked, doubt.mapped().since);
}

void FailureDetector::TellOldDoubts(absl::Time now) {
  if (doubts_.empty() || now - granted_ < options_.takeover_timeout) return;
  for (const auto& [uid, doubt] : std::exchange(doubts_, {})) {
    NoteRisk({FindPod(uid)->name}, doubt.risked, now);
  }
}

void FailureDetector::AssumeTerminated(const std::set<std::string>& uids, const std::string& risked,
                                       absl::Time now) {
  std::vector<std::string> names;
  for (const std::string& uid : uids) {
    assumed_terminated_.insert(uid);
    if (const Pod* pod = FindPod(uid)) names.push_back(pod->name);
  }
  NoteRisk(names, risked, now);
}

void FailureDetector::NoteRisk(const std::vector<std::string>& pods, const std::string& risked,
                               absl::Time since) {
  Incident incident;
  incident.record.time = since;
  incident.record.reason = "StepsAtRisk";
  incident.record.pod = pods.empty() ? "" : pods.front();
  incident.record.message = absl::StrCat(absl::StrJoin(pods, ", "),
                                         " did not answer in time and counts as ended; ", risked);
  incident.record.recovery = absl::ZeroDuration();
  AddIncident(std::move(incident));
}

bool FailureDetector::NoticeHang(const View& view, absl::Time now) {
  if (now < hang_from_) return false;
  std::vector<Process*> processes;
  bool may_hang = false;  // else there is nothing to judge, as mostly
  for (const ViewMember& member : view.members) {
    const auto process = processes_.find(member.id.pod_uid);
    if (process == processes_.end() || ReportOf(member.id) == nullptr) continue;
    Process& one = process->second;
    const bool fresh = one.spoken && !one.outdated && now - one.heard <= options_.hang.fresh;
    if (!fresh || one.hung() || one.report->standing.where.empty()) continue;
    processes.push_back(&one);
    may_hang = may_hang || one.report->standing.since >= options_.hang.floor;
  }
  if (!may_hang) return false;
  std::vector<Standing> standings;
  standings.reserve(processes.size());
  for (const Process* one : processes) standings.push_back(one->report->standing);
  const std::optional<std::size_t> who = WhoHangs(standings, options_.hang);
  if (!who) return false;
  processes[*who]->hung_since = now;
  hang_from_ = now + options_.hang.pause;
  return true;
}

Incident* FailureDetector::NoteLoss(const MemberId& id, const std::string& pod,
                                    const std::string& role, Liveness liveness, absl::Time now) {
  if (liveness == Liveness::kReporting) lost_.erase(id);
  if (liveness != Liveness::kGone && liveness != Liveness::kSilent) return nullptr;
  if (!lost_.insert(id).second) return nullptr;
  Incident incident;
  incident.id = id;
  incident.record.time = now;
  incident.record.pod = pod;
  const Process* process = FindProcess(id.pod_uid);
  const bool heard = process != nullptr && process->report;
  if (heard) {
    incident.record.silence = now - process->heard;
    incident.record.detection = now - std::max(process->heard, process->broken);
  }
  const bool frozen = heard && process->connected && liveness == Liveness::kSilent;
  incident.record.reason = role + (frozen ? "Silent" : "Lost");
  incident.record.message = frozen ? "it stopped answering" : "its process ended";
  if (heard && process->hung() && process->report->id == id) {
    const Standing& standing = process->report->standing;
    incident.record.reason = role + "Hung";
    incident.record.detection = standing.since;
    incident.record.message =
        absl::StrCat("it answers, but has stood still for ", InSeconds(standing.since), " in \"",
                     standing.where, "\" (usually ", InSeconds(standing.usual),
                     "); it writes where its threads are to its log, and its process ends");
  }
  if (heard && process->report->id.start > id.start) {
    incident.record.exit = process->report->last_exit;
    incident.record.detection = absl::ZeroDuration();  // unless its supervisor says when it ended
  }
  return &AddIncident(std::move(incident));
}

// A pod's new process tells how the one before it ended.
void FailureDetector::NoteExit(const Report& report) {
  for (auto incident = incidents_.rbegin(); incident != incidents_.rend(); ++incident) {
    const bool same_pod = incident->id.pod_uid == report.id.pod_uid;
    if (!same_pod || incident->id.start >= report.id.start || incident->record.exit) continue;
    incident->record.exit = report.last_exit;
    return;
  }
}

Incident& FailureDetector::AddIncident(Incident incident) {
  incidents_.push_back(std::move(incident));
  while (incidents_.size() > static_cast<std::size_t>(options_.max_incidents)) {
    incidents_.erase(incidents_.begin());
  }
  return incidents_.back();
}

void FailureDetector::NoteRepair(ViewNumber view, const std::string& deed) {
  for (Incident& incident : incidents_) {
    if (incident.repaired_by != 0 || incident.record.recovery) continue;
    incident.repaired_by = view;
    if (!deed.empty()) absl::StrAppend(&incident.record.message, "; ", deed);
  }
}

void FailureDetector::FillSummary(Summary& summary, const std::set<std::string>& released,
                                  const std::function<bool(const MemberId&)>& in_view,
                                  absl::Time now) const {
  for (const Incident& incident : incidents_) summary.incidents.push_back(incident.record);
  summary.superseded = superseded_;
  for (const auto& [uid, process] : processes_) {
    const Pod* pod = FindPod(uid);
    if (pod == nullptr || !process.report) continue;
    const Report& report = *process.report;
    MemberState member;
    member.id = report.id;
    member.pod = pod->name;
    member.phase = report.phase;
    const bool stays = process.hung() && now - process.hung_since > kToEnd;
    member.connected = process.connected && process.spoken && !stays;
    member.silent = now - (stays ? std::min(process.hung_since, process.heard) : process.heard);
    member.settled_step = report.settled_step;
    member.in_view = in_view(report.id);
    member.drained = released.contains(uid);
    member.refused = process.not_admitted;
    summary.members.push_back(std::move(member));
  }
}

}  // namespace starling::membership
