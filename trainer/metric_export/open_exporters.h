// SPDX-License-Identifier: Apache-2.0
// The places that a job's spec.export names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock/clock.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/metric_export/exporter.h"

namespace starling::metric_export {

// Of which job, and by whom.
struct Origin {
  std::string job_name;
  std::string job_uid;
  std::string pod_name;
};

// INVALID_ARGUMENT names the field. No place is touched before there are points.
absl::StatusOr<std::vector<std::unique_ptr<Exporter>>> OpenExporters(const v1alpha1::Export& places,
                                                                     const Origin& origin,
                                                                     const clock::Clock& clock);

}  // namespace starling::metric_export
