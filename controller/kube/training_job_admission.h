// SPDX-License-Identifier: Apache-2.0
// What a cluster does to a TrainingJob before it is stored, for the embedded store: the schema's
// defaults are filled in, a wrong spec is refused with the paths of its fields, and so is an edit
// of what may not change while the job runs.
//
//   options.admission["TrainingJob"] = AdmitTrainingJob;
#pragma once

#include "controller/kube/embedded_kube_client.h"

namespace starling::kube {

// InvalidArgument: all that is wrong, one field a line.
absl::Status AdmitTrainingJob(const AdmissionRequest& request);

}  // namespace starling::kube
