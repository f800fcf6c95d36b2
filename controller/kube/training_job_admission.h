// SPDX-License-Identifier: Apache-2.0
// What a cluster does to a TrainingJob before it is stored, for the embedded store: the schema's
// defaults are filled in and what the job's template gives, a wrong spec is refused with the paths
// of its fields, and so is an edit of what may not change while the job runs.
//
//   options.admission["TrainingJob"] = AdmitTrainingJobs(find);
#pragma once

#include "api/spec/template.h"
#include "controller/kube/embedded_kube_client.h"

namespace starling::kube {

// It refuses with InvalidArgument: all that is wrong, one field a line. `find` knows the templates.
Admission AdmitTrainingJobs(spec::FindTemplate find);

// Where there are no templates.
absl::Status AdmitTrainingJob(const AdmissionRequest& request);

}  // namespace starling::kube
