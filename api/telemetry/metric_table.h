// SPDX-License-Identifier: Apache-2.0
// Every metric that a process of Starling shows: its name, type, labels and meaning, once.
//
//   metrics::Counter steps = telemetry::AddCounter(registry, "starling_worker_steps_total");
//
// Processes take help texts and bounds from here, docs/reference/metrics.md is made from it, and a
// test holds it against the output of running jobs: nothing appears that is not in the table, and
// nothing stands in it that does not appear. Dashboards and alert rules are checked against the
// page. To add a metric: a row in metric_table.cc, and AddX where it is counted, once, at start.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "common/metrics/metrics.h"

namespace starling::telemetry {

enum class Kind { kCounter, kGauge, kHistogram };

// Who shows a metric.
enum class Source {
  kEveryProcess,
  kWorker,
  kServer,
  kCoordinator,
  kController,         // of a machine or of a cluster
  kRest,               // whoever serves REST: on one machine the controller
  kClusterController,  // of a cluster only
};

struct MetricRow {
  std::string_view name;
  Kind kind;
  Source source;
  std::string_view labels;  // "state,reason": those that the process itself sets, in any order
  std::string_view help;
  std::span<const double> bounds = {};  // of a histogram; empty: metrics::SecondsBuckets()
};

std::span<const MetricRow> Metrics();

// In words: "worker", "parameter server", ...
std::string_view NameOf(Source source);
std::string_view NameOf(Kind kind);

// Registers a metric of the table. One that is not in it, that is of another kind there, or whose
// labels are others is our own mistake and ends the process.
metrics::Counter AddCounter(metrics::Registry& registry, std::string_view name,
                            const metrics::Labels& labels = {});
metrics::Gauge AddGauge(metrics::Registry& registry, std::string_view name,
                        const metrics::Labels& labels = {});
metrics::Histogram AddHistogram(metrics::Registry& registry, std::string_view name,
                                const metrics::Labels& labels = {});

// docs/reference/metrics.md.
std::string MetricsPage();

}  // namespace starling::telemetry
