// SPDX-License-Identifier: Apache-2.0
// What a coordinator shows of its job on /metrics. To add a metric: a row in
// api/telemetry/metric_table.cc, a member here, its line in the constructor, and in Show.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/metrics/metrics.h"
#include "starling/v1alpha1/membership.pb.h"
#include "trainer/membership/summary.h"
#include "trainer/observe/activity_ledger.h"

namespace starling::coordinator {

// Confined to one thread. The registry outlives it.
class JobMetrics {
 public:
  explicit JobMetrics(metrics::Registry& registry);

  // What the controller wants of it.
  void Want(const membership::Desired& desired);
  void ShowSeconds(const observe::ActivityLedger& seconds);
  // What there is. `role_of` knows pods by their UIDs.
  void Show(const membership::Summary& summary, const v1alpha1::TrainingReport& training,
            const std::function<std::string(const std::string& pod_uid)>& role_of);

 private:
  void CountFromZero(const std::vector<std::string>& reasons);
  void CountIncidents(const membership::Summary& summary);

  metrics::Registry& registry_;
  metrics::Gauge incarnation_;
  metrics::Gauge step_;
  metrics::Gauge view_epoch_;
  metrics::Gauge loss_;
  metrics::Gauge interval_;
  metrics::Gauge checkpoint_;
  metrics::Gauge stragglers_;
  metrics::Counter repeated_;
  metrics::Histogram recovery_;
  // By cause; a view that follows a loss comes after the incident that tells of it.
  metrics::Counter planned_views_;
  metrics::Counter views_after_loss_;
  membership::ViewNumber newest_view_ = 0;
  bool servers_ = false;  // there have been
  bool lost_ = false;     // somebody, since the last view
  // Incidents whose recovery was counted, by time and pod; those that the summary still has.
  std::map<std::pair<absl::Time, std::string>, bool> recovered_;
};

}  // namespace starling::coordinator
