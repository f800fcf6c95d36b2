// SPDX-License-Identifier: Apache-2.0
// The exchange of a job whose workers all hold the whole state: what its spec's exchange,
// reproducible and compression come to. To add one: a line here, beside its class (exchange.h).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/exchange/exchange.h"
#include "trainer/transport/window.h"
#include "trainer/workload/workload.h"

namespace starling::worker {

// INVALID_ARGUMENT when the spec names a codec that there is not.
absl::StatusOr<std::unique_ptr<exchange::Exchange>> MakeExchange(
    const v1alpha1::TrainingJobSpec& spec, const workload::Declaration& declaration);

// Where the spec's exchange may sum up gradients as they are in shared memory, the workload's lie
// from now on in the window that this returns. Null: they stay, for another way is theirs or there
// is no room for a window.
std::shared_ptr<const transport::Window> PlaceGradients(const v1alpha1::TrainingJobSpec& spec,
                                                        workload::Workload& workload);

}  // namespace starling::worker
