// SPDX-License-Identifier: Apache-2.0
#include "trainer/coordinator/job_metrics.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "api/telemetry/metric_table.h"
#include "trainer/membership/coordinator.h"

namespace starling::coordinator {

using membership::kServerRole;
using membership::kWorkerRole;
using telemetry::AddCounter;
using telemetry::AddGauge;

namespace {

// As incidents are named for a role's losses.
std::vector<std::string> LossesOf(const std::string& role) {
  std::vector<std::string> reasons;
  for (const char* how : {"Lost", "Silent", "Hung", "Unreachable"}) {
    reasons.push_back(absl::StrCat(role, how));
  }
  return reasons;
}

}  // namespace

JobMetrics::JobMetrics(metrics::Registry& registry)
    : registry_(registry),
      incarnation_(AddGauge(registry, "starling_coordinator_incarnation")),
      step_(AddGauge(registry, "starling_job_step")),
      view_epoch_(AddGauge(registry, "starling_job_view_epoch")),
      loss_(AddGauge(registry, "starling_job_loss")),
      interval_(AddGauge(registry, "starling_job_checkpoint_interval_seconds")),
      checkpoint_(AddGauge(registry, "starling_job_last_checkpoint_timestamp_seconds")),
      stragglers_(AddGauge(registry, "starling_job_stragglers")),
      repeated_(AddCounter(registry, "starling_job_repeated_steps_total")),
      recovery_(telemetry::AddHistogram(registry, "starling_job_recovery_seconds")),
      planned_views_(AddCounter(registry, "starling_job_views_total", {{"cause", "planned"}})),
      views_after_loss_(AddCounter(registry, "starling_job_views_total", {{"cause", "loss"}})) {
  CountFromZero({"StepsAtRisk", "StepsLost"});
  CountFromZero(LossesOf("Worker"));
}

// A series that begins with its first incident would not be seen to rise.
void JobMetrics::CountFromZero(const std::vector<std::string>& reasons) {
  for (const std::string& reason : reasons) {
    AddCounter(registry_, "starling_job_incidents_total", {{"reason", reason}});
  }
}

void JobMetrics::Want(const membership::Desired& desired) {
  const auto wanted = [this](const char* role, std::int64_t members) {
    AddGauge(registry_, "starling_job_members_wanted", {{"role", role}})
        .Set(static_cast<double>(members));
  };
  wanted(kWorkerRole, desired.workers);
  if (desired.servers > 0) {
    wanted(kServerRole, desired.servers);
    CountFromZero(LossesOf("ParameterServer"));
  }
  interval_.Set(static_cast<double>(desired.checkpoint_interval_ms) / 1000);
}

// A counter never falls: what turns out to have been another activity stays where it was until that
// has caught up.
void JobMetrics::ShowSeconds(const observe::ActivityLedger& seconds) {
  for (const auto& [name, sum] : seconds.sum()) {
    absl::string_view activity = name;
    const bool server = absl::ConsumePrefix(&activity, observe::kOfServers);
    const auto before = seconds.before().find(name);
    metrics::Counter shown = AddCounter(
        registry_, "starling_job_activity_seconds_total",
        {{"activity", std::string(activity)}, {"role", server ? kServerRole : kWorkerRole}});
    shown.Increment(sum - (before == seconds.before().end() ? 0 : before->second) - shown.Value());
  }
}

void JobMetrics::Show(const membership::Summary& summary, const v1alpha1::TrainingReport& training,
                      const std::function<std::string(const std::string& pod_uid)>& role_of) {
  std::map<std::string, double> members = {{kWorkerRole, 0}};
  if (servers_) members[kServerRole] = 0;
  for (const membership::MemberState& member : summary.members) {
    if (member.in_view && member.connected) ++members[role_of(member.id.pod_uid)];
  }
  servers_ = members.contains(kServerRole);
  for (const auto& [role, count] : members) {
    AddGauge(registry_, "starling_job_members", {{"role", role}}).Set(count);
  }
  incarnation_.Set(static_cast<double>(summary.incarnation));
  view_epoch_.Set(static_cast<double>(membership::EpochOf(summary.newest_view)));
  step_.Set(static_cast<double>(std::max<std::int64_t>(0, summary.settled_step)));
  if (training.progress().has_loss()) loss_.Set(training.progress().loss());
  for (const auto& [name, value] : training.progress().metrics()) {
    AddGauge(registry_, "starling_job_metric", {{"name", name}}).Set(value);
  }
  stragglers_.Set(training.progress().stragglers_size());
  checkpoint_.Set(static_cast<double>(training.checkpoint().time().seconds()));
  CountIncidents(summary);
  if (std::exchange(newest_view_, summary.newest_view) == summary.newest_view) return;
  (std::exchange(lost_, false) ? views_after_loss_ : planned_views_).Increment();
}

void JobMetrics::CountIncidents(const membership::Summary& summary) {
  std::map<std::pair<absl::Time, std::string>, bool> recovered;
  std::int64_t repeated = 0;
  for (const membership::IncidentRecord& incident : summary.incidents) {
    const std::pair key(incident.time, incident.pod);
    const auto known = recovered_.find(key);
    if (known == recovered_.end()) {
      lost_ = true;
      AddCounter(registry_, "starling_job_incidents_total", {{"reason", incident.reason}})
          .Increment();
    }
    const bool before = known != recovered_.end() && known->second;
    recovered[key] = before || incident.recovery.has_value();
    if (before || !incident.recovery) continue;
    // How long it took is told by the losses that led to it.
    if (!incident.resumed_step) recovery_.Observe(absl::ToDoubleSeconds(*incident.recovery));
    // Losses that end together have cost the same steps.
    repeated = std::max(repeated, incident.repeated_steps);
  }
  repeated_.Increment(static_cast<double>(repeated));
  recovered_ = std::move(recovered);
}

}  // namespace starling::coordinator
