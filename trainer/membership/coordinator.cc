// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/coordinator.h"

#include <algorithm>
#include <utility>

namespace starling::membership {
namespace {

// Ticks come many times in this; if nothing came, it was this process that stood still.
constexpr absl::Duration kOwnGap = absl::Milliseconds(300);

}  // namespace

Coordinator::Coordinator(Options options) : options_(std::move(options)) {
  told_.boot_id = options_.boot_id;
}

// A coordinator that was frozen must not take its own silence for the members': what they said
// meanwhile waits behind the first tick.
void Coordinator::NoticeGap(absl::Time now) {
  const absl::Duration gap = now - last_event_;
  last_event_ = now;
  if (gap <= kOwnGap) return;
  granted_ += gap;
  enough_since_ += gap;
  unwitnessed_since_ += gap;
  for (auto& [uid, process] : processes_) {
    process.heard += gap;
    process.aborted_since += gap;
  }
}

void Coordinator::OnGrant(const Grant& grant, absl::Time now) {
  NoticeGap(now);
  if (grant_ || grant.boot_id != options_.boot_id || grant.incarnation == 0) return;
  grant_ = grant;
  granted_ = now;
  turn_ = static_cast<std::int64_t>(grant.incarnation << 32);
  for (const Pod& pod : grant.roster) {
    if (pod.role == "worker") pods_[pod.uid] = pod;
  }
  ++directives_version_;
  Refresh(now);
}

void Coordinator::OnDesired(const Desired& desired, absl::Time now) {
  NoticeGap(now);
  const bool older = desired_ && std::pair(desired.lease_transition, desired.sequence) <
                                     std::pair(desired_->lease_transition, desired_->sequence);
  if (older || !grant_) return;
  desired_ = desired;
  pods_.clear();
  for (const Pod& pod : desired.pods) {
    if (pod.role == "worker") pods_[pod.uid] = pod;
  }
  std::erase_if(processes_, [this](const auto& entry) { return !FindPod(entry.first); });
  ++directives_version_;
  Refresh(now);
}

void Coordinator::OnConnected(const std::string& pod_uid, absl::Time now) {
  NoticeGap(now);
  Process& process = processes_[pod_uid];
  process.connected = true;
  process.spoken = false;
  Refresh(now);
}

void Coordinator::OnDisconnected(const std::string& pod_uid, absl::Time now) {
  NoticeGap(now);
  const auto process = processes_.find(pod_uid);
  if (process == processes_.end()) return;
  if (process->second.spoken) process->second.broken = now;
  process->second.connected = false;
  process->second.spoken = false;
  Refresh(now);
}

void Coordinator::OnRefused(const std::string& pod_uid, absl::Time now) {
  NoticeGap(now);
  const auto process = processes_.find(pod_uid);
  if (process == processes_.end() || process->second.connected) return;
  process->second.refused = true;
  Refresh(now);
}

void Coordinator::OnTick(absl::Time now) {
  NoticeGap(now);
  Refresh(now);
}

void Coordinator::OnReport(const std::string& pod_uid, const Report& report, absl::Time now) {
  NoticeGap(now);
  if (!grant_ || report.id.pod_uid != pod_uid || !FindPod(pod_uid)) return;
  if (report.highest_incarnation > grant_->incarnation && options_.rules.refuse_lower_incarnation) {
    superseded_ = true;
  }
  Process& process = processes_[pod_uid];
  if (!process.connected) return;
  process.heard = now;
  process.spoken = true;
  process.refused = false;
  process.outdated = process.report && report.id.start < process.report->id.start;
  // Until it has heard of this incarnation it might still follow an older one: it does not count.
  if (process.outdated || report.highest_incarnation < grant_->incarnation) {
    Refresh(now);
    return;
  }
  const bool new_process = process.report && report.id.start > process.report->id.start;
  if (new_process) {
    process.held_until = absl::InfinitePast();
    released_.erase(pod_uid);
  }
  if (report.phase != Phase::kAborted) {
    process.aborted_since = absl::InfiniteFuture();
  } else if (!process.report || process.report->phase != Phase::kAborted || new_process) {
    process.aborted_since = now;
  }
  if (report.last_exit && (!process.report || new_process)) NoteExit(report);
  process.report = report;
  assumed_terminated_.erase(pod_uid);
  Learn(report);
  FollowRecovery(report, now);
  Refresh(now);
}

// Every event ends here: decide, then see whether the controller should hear of it at once.
void Coordinator::Refresh(absl::Time now) {
  Decide(now);
  Summary summary = MakeSummary(now);
  training_ = summary.training;
  settled_step_ = summary.settled_step;
  summary.settled_step = 0;
  summary.training.bytes.clear();
  for (MemberState& member : summary.members) {
    member.silent = absl::ZeroDuration();
    member.settled_step = 0;
  }
  if (summary == told_) return;
  told_ = std::move(summary);
  ++report_version_;
}

std::map<std::string, std::string> Coordinator::PodsToDial() const {
  std::map<std::string, std::string> dial;
  if (!grant_ || superseded_) return dial;
  for (const auto& [uid, pod] : pods_) {
    if (!pod.ip.empty() && pod.state != PodState::kTerminated) dial[uid] = pod.ip;
  }
  return dial;
}

Directive Coordinator::DirectiveFor(const std::string& pod_uid) const {
  Directive directive;
  if (!grant_) return directive;
  directive.incarnation = grant_->incarnation;
  if (desired_) {
    directive.settings = desired_->settings;
    directive.finished = desired_->finished;
  }
  directive.checkpoint_turn =
      turn_ == static_cast<std::int64_t>(grant_->incarnation << 32) ? 0 : turn_;
  const auto process = processes_.find(pod_uid);
  directive.superseded = process != processes_.end() && process->second.outdated;
  directive.released = released_.contains(pod_uid);
  if (taken_over_ && !superseded_ && !published_.empty()) {
    directive.view = published_.rbegin()->second;
  }
  return directive;
}

Summary Coordinator::MakeSummary(absl::Time now) const {
  Summary summary;
  summary.boot_id = options_.boot_id;
  if (!grant_) return summary;
  summary.incarnation = grant_->incarnation;
  summary.newest_view = std::max(Newest(), grant_->newest_view);
  for (const Incident& incident : incidents_) summary.incidents.push_back(incident.record);
  summary.superseded = superseded_;
  summary.waiting = waiting_;
  summary.stopped = AllStopped();
  const View* current = Current();
  for (const auto& [uid, process] : processes_) {
    const Pod* pod = FindPod(uid);
    if (pod == nullptr || !process.report) continue;
    const Report& report = *process.report;
    MemberState member;
    member.id = report.id;
    member.pod = pod->name;
    member.phase = report.phase;
    member.connected = process.connected && process.spoken;
    member.silent = now - process.heard;
    member.settled_step = report.settled_step;
    member.in_view = current != nullptr && current->Has(report.id);
    member.drained = released_.contains(uid);
    member.refused = process.not_admitted;
    summary.members.push_back(std::move(member));
  }
  FillTraining(summary);
  return summary;
}

// The members of the current view speak for training; the one that is farthest is heard, and
// whoever has a result or a failure before all others.
void Coordinator::FillTraining(Summary& summary) const {
  summary.training = training_;
  summary.settled_step = settled_step_;
  const View* current = Current();
  if (current == nullptr) return;
  summary.view_synced = SyncedByAll(*current);
  const Report* speaker = nullptr;
  std::optional<std::int64_t> settings;
  const auto rank = [](const Report& report) {
    return std::tuple(!report.training.failure.empty(), report.training.has_result,
                      report.settled_step);
  };
  for (const ViewMember& member : current->members) {
    const Report* report = ReportOf(member.id);
    if (report == nullptr) continue;
    settings =
        std::min(settings.value_or(report->settings_generation), report->settings_generation);
    if (report->state && (speaker == nullptr || rank(*report) > rank(*speaker))) speaker = report;
  }
  summary.settings_generation = settings.value_or(0);
  if (speaker == nullptr) return;
  summary.training = speaker->training;
  summary.settled_step = speaker->settled_step;
}

bool Coordinator::AllStopped() const {
  if (!taken_over_ || !desired_ || !desired_->settings.halt) return false;
  const View* current = Current();
  if (current == nullptr) return true;
  bool anyone = false;
  for (const ViewMember& member : current->members) {
    if (Terminated(member.id)) continue;
    const Report* report = ReportOf(member.id);
    if (report == nullptr || !report->stopped || !report->installed ||
        report->installed->number != current->number) {
      return false;
    }
    anyone = true;
  }
  return anyone || std::none_of(processes_.begin(), processes_.end(), [](const auto& entry) {
           return entry.second.report && entry.second.report->state.has_value();
         });
}

// A pod whose address refuses has no process any more; where the address itself is gone, the
// controller says that the pod has ended.
bool Coordinator::AllGone() const {
  if (!desired_ || !desired_->finished) return false;
  return std::all_of(pods_.begin(), pods_.end(), [this](const auto& entry) {
    const auto& [uid, pod] = entry;
    if (pod.ip.empty() || pod.state == PodState::kTerminated) return true;
    const auto process = processes_.find(uid);
    return process != processes_.end() && !process->second.connected && process->second.refused;
  });
}

const Pod* Coordinator::FindPod(const std::string& uid) const {
  const auto pod = pods_.find(uid);
  return pod == pods_.end() ? nullptr : &pod->second;
}

// Confirmed: by a later process of its pod, by the controller, or because its pod is gone.
bool Coordinator::Terminated(const MemberId& id) const {
  const Pod* pod = FindPod(id.pod_uid);
  if (pod == nullptr || pod->state == PodState::kTerminated) return true;
  const auto process = processes_.find(id.pod_uid);
  if (process != processes_.end() && process->second.report &&
      process->second.report->id.start > id.start) {
    return true;
  }
  return assumed_terminated_.contains(id.pod_uid);
}

bool Coordinator::Fresh(const Process& process, absl::Time now) const {
  return process.connected && process.spoken && now - process.heard <= options_.heartbeat_timeout;
}

Coordinator::Standing Coordinator::StandingOf(const MemberId& id, absl::Time now) const {
  if (Terminated(id)) return Standing::kGone;
  const auto found = processes_.find(id.pod_uid);
  if (found == processes_.end()) return taken_over_ ? Standing::kSilent : Standing::kUnclear;
  const Process& process = found->second;
  if (!process.report) return taken_over_ ? Standing::kSilent : Standing::kUnclear;
  if (process.refused || now - process.heard > options_.heartbeat_timeout) {
    return Standing::kSilent;
  }
  return process.spoken ? Standing::kReporting : Standing::kUnclear;
}

const Report* Coordinator::ReportOf(const MemberId& id) const {
  const auto process = processes_.find(id.pod_uid);
  if (process == processes_.end() || !process->second.report) return nullptr;
  return process->second.report->id == id ? &*process->second.report : nullptr;
}

void Coordinator::Learn(const Report& report) {
  if (report.installed) {
    const View& view = *report.installed;
    LearnView(view);
    const auto from = published_.find(view.from);
    if (view.at_boundary && from != published_.end() && from->second.Has(report.id)) {
      acted_.insert(view.number);
    }
  }
  if (report.candidate) LearnView(*report.candidate);
  if (report.state) {
    ViewNumber& synced = synced_[report.id];
    synced = std::max(synced, report.state->view);
  }
  Prune();
}

void Coordinator::LearnView(const View& view) {
  published_[view.number] = view;
  for (const PastView& past : view.since) {
    if (published_.contains(past.number)) continue;
    View& learned = published_[past.number];
    learned.number = past.number;
    for (const MemberId& id : past.members) learned.members.push_back({id, "", 0, ""});
  }
}

bool Coordinator::SyncedByAll(const View& view) const {
  return std::all_of(view.members.begin(), view.members.end(), [&](const ViewMember& member) {
    const auto synced = synced_.find(member.id);
    return synced != synced_.end() && synced->second >= view.number;
  });
}

// A view that all its members have synced holds whatever lower ones settled. It is kept itself:
// should all its members end, the next view must know that it was there. And so is a lower one with
// a member that is in neither that view nor its grave: it would then hold what is left.
void Coordinator::Prune() {
  const auto synced = std::find_if(published_.rbegin(), published_.rend(),
                                   [this](const auto& view) { return SyncedByAll(view.second); });
  if (synced == published_.rend()) return;
  const View& newest = synced->second;
  std::erase_if(published_, [&](const auto& entry) {
    const std::vector<ViewMember>& members = entry.second.members;
    return entry.first < newest.number &&
           std::all_of(members.begin(), members.end(), [&](const ViewMember& member) {
             return newest.Has(member.id) || Terminated(member.id);
           });
  });
  const auto kept = [this](const MemberId& id) {
    return std::any_of(published_.begin(), published_.end(),
                       [&](const auto& entry) { return entry.second.Has(id); });
  };
  std::erase_if(synced_, [&](const auto& entry) { return !kept(entry.first); });
  std::erase_if(acted_, [this](ViewNumber number) { return !published_.contains(number); });
}

// The newest view that took effect: a prepared one does when a member of the view in which it was
// prepared has installed it (joiners install it at once, which means nothing).
const View* Coordinator::Current() const {
  for (auto view = published_.rbegin(); view != published_.rend(); ++view) {
    if (!view->second.at_boundary) return &view->second;
    const bool acted = acted_.contains(view->first) || !published_.contains(view->second.from) ||
                       SyncedByAll(view->second);
    if (acted) return &view->second;
  }
  return nullptr;
}

// The newest view, if it is prepared in the current one and can still take effect.
const View* Coordinator::Pending(const View* current) const {
  if (current == nullptr || published_.empty()) return nullptr;
  const View& newest = published_.rbegin()->second;
  if (newest.number == current->number || newest.from != current->number) return nullptr;
  if (IncarnationOf(newest.number) == incarnation() || !options_.rules.incarnation_in_view_number) {
    return &newest;
  }
  // Another coordinator's: whoever has not got it will refuse it, and one is enough.
  const bool all_have_it =
      std::all_of(current->members.begin(), current->members.end(), [&](const ViewMember& member) {
        const Report* report = ReportOf(member.id);
        return report != nullptr && report->candidate && report->candidate->number == newest.number;
      });
  return all_have_it ? &newest : nullptr;
}

}  // namespace starling::membership
