// SPDX-License-Identifier: Apache-2.0
// What all workloads over dense samples declare alike.
#pragma once

#include "trainer/data/load_datasets.h"
#include "trainer/workload/workload.h"

namespace starling::workload {

// Numbers of samples, the data's digest, and for the model file the samples' shape and how they
// were scaled.
Declaration DeclareDense(const data::Datasets& datasets);

}  // namespace starling::workload
