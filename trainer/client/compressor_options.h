// SPDX-License-Identifier: Apache-2.0
// What stands around a job's codec: what its spec.compression comes to for the tensors of its
// workload. Workers that sum up among themselves and clients of servers have the same.
#pragma once

#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/compression/compressor.h"
#include "trainer/workload/workload.h"

namespace starling::client {

// `spec` is resolved.
compression::CompressorOptions CompressorOptionsOf(const v1alpha1::TrainingJobSpec& spec,
                                                   const workload::Declaration& declaration);

}  // namespace starling::client
