// SPDX-License-Identifier: Apache-2.0
// What a controller shows of its jobs on /metrics. Of several controllers only the one that leads
// counts: sums over all that are scraped would be wrong otherwise.
//
// To add a metric: a row in api/telemetry/metric_table.cc, and the place here that sets it. Series
// of jobs that are gone go with them.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock/clock.h"
#include "common/metrics/metrics.h"
#include "controller/runtime/informer.h"
#include "controller/trainingjob/grpc_links.h"

namespace starling::manager {

// Watch is called on informers' threads, Show by one thread at a time.
class JobMetrics {
 public:
  // Both outlive it. `leads`: whether this process does at the moment; called on any thread.
  JobMetrics(metrics::Registry& registry, const clock::Clock& clock, std::function<bool()> leads);

  // Counts starts and ends as they happen. Before the informer runs; it must not outlive this.
  void Watch(runtime::Informer& jobs);
  // What there is at the moment. Shows nothing where this process does not lead.
  void Show(const std::vector<runtime::Informer::Object>& jobs,
            const trainingjob::GrpcCoordinatorLinks::Counts& links);

 private:
  void OnChange(const runtime::Informer::Object& before, const runtime::Informer::Object& after);
  void Replace(std::string_view name, std::set<metrics::Labels>& shown,
               const std::map<metrics::Labels, double>& series);

  metrics::Registry& registry_;
  const clock::Clock& clock_;
  const std::function<bool()> leads_;
  metrics::Histogram start_seconds_;
  metrics::Histogram duration_seconds_;
  std::set<metrics::Labels> shown_jobs_;
  std::set<metrics::Labels> shown_degraded_;
  std::set<metrics::Labels> shown_links_;
};

}  // namespace starling::manager
