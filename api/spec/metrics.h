// SPDX-License-Identifier: Apache-2.0
// The metrics that each workload reports by name, and which way is better. Validation of targets,
// the CRD's rules and the trainer's results are held against this table. To add a metric: a line in
// metrics.cc, beside the workload that reports it.
#pragma once

#include <string>
#include <vector>

#include "starling/v1alpha1/training_job.pb.h"

namespace starling::spec {

struct Metric {
  const char* name;  // as in stop.target.metric and in a result's metrics
  bool higher_is_better = false;
  bool is_share = false;  // from 0 to 1
};

// Those of one kind of workload; none for a container, whose program reports nothing to us.
std::vector<Metric> MetricsOf(v1alpha1::Workload::KindCase workload);

// accuracy of validation/accuracy.
std::string ShortName(const Metric& metric);

// Of all kinds, each name once: a name means the same in all of them.
std::vector<Metric> AllMetrics();

}  // namespace starling::spec
