// SPDX-License-Identifier: Apache-2.0
#include "controller/manager/job_metrics.h"

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/telemetry/metric_table.h"
#include "controller/kube/objects.h"

namespace starling::manager {
namespace {

// "Pending" as long as nothing is said of it.
std::string StateOf(const kube::Json& job) {
  const std::string state = kube::StringAt(job, "/status/state");
  return state.empty() ? "Pending" : state;
}

bool Ended(const std::string& state) { return state == "Succeeded" || state == "Failed"; }

std::string ReasonOf(const kube::Json& job, std::string_view condition) {
  return kube::StringAt(kube::FindCondition(job, condition), "/reason");
}

}  // namespace

JobMetrics::JobMetrics(metrics::Registry& registry, const clock::Clock& clock,
                       std::function<bool()> leads)
    : registry_(registry),
      clock_(clock),
      leads_(std::move(leads)),
      start_seconds_(telemetry::AddHistogram(registry, "starling_controller_job_start_seconds")),
      duration_seconds_(
          telemetry::AddHistogram(registry, "starling_controller_job_duration_seconds")) {}

void JobMetrics::Watch(runtime::Informer& jobs) {
  jobs.AddHandler([this](const auto& before, const auto& after) { OnChange(before, after); });
}

void JobMetrics::OnChange(const runtime::Informer::Object& before,
                          const runtime::Informer::Object& after) {
  if (before == nullptr || after == nullptr || !leads_()) return;
  const std::string was = StateOf(*before);
  const std::string is = StateOf(*after);
  if (was == is) return;
  const absl::Duration age =
      clock_.WallNow() - kube::CreationTimeOf(*after).value_or(clock_.WallNow());
  if (was == "Pending" && is == "Running") start_seconds_.Observe(absl::ToDoubleSeconds(age));
  if (Ended(was) || !Ended(is)) return;
  duration_seconds_.Observe(absl::ToDoubleSeconds(age));
  telemetry::AddCounter(registry_, "starling_controller_jobs_finished_total",
                        {{"job_namespace", kube::NamespaceOf(*after)},
                         {"result", is},
                         {"reason", ReasonOf(*after, is)}})
      .Increment();
}

void JobMetrics::Show(const std::vector<runtime::Informer::Object>& jobs,
                      const trainingjob::GrpcCoordinatorLinks::Counts& links) {
  std::map<metrics::Labels, double> states;
  std::map<metrics::Labels, double> degraded;
  std::map<metrics::Labels, double> streams;
  if (leads_()) {
    for (const auto& job : jobs) {
      const std::string ns = kube::NamespaceOf(*job);
      for (const char* state :
           {"Pending", "Running", "Restarting", "Suspended", "Succeeded", "Failed"}) {
        states.try_emplace({{"job_namespace", ns}, {"state", state}}, 0);
      }
      ++states[{{"job_namespace", ns}, {"state", StateOf(*job)}}];
      if (!kube::IsConditionTrue(*job, "Degraded")) continue;
      ++degraded[{{"job_namespace", ns}, {"reason", ReasonOf(*job, "Degraded")}}];
    }
    streams[{{"state", "reporting"}}] = links.reporting;
    streams[{{"state", "silent"}}] = links.silent;
  }
  Replace("starling_controller_jobs", shown_jobs_, states);
  Replace("starling_controller_jobs_degraded", shown_degraded_, degraded);
  Replace("starling_controller_coordinator_links", shown_links_, streams);
}

void JobMetrics::Replace(std::string_view name, std::set<metrics::Labels>& shown,
                         const std::map<metrics::Labels, double>& series) {
  for (const metrics::Labels& labels : shown) {
    if (!series.contains(labels)) registry_.Remove(name, labels);
  }
  shown.clear();
  for (const auto& [labels, value] : series) {
    telemetry::AddGauge(registry_, name, labels).Set(value);
    shown.insert(labels);
  }
}

}  // namespace starling::manager
