// SPDX-License-Identifier: Apache-2.0
// The allreduce of ranks that share memory: see Algorithm::kSharedMemory.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "trainer/collectives/communicator.h"
#include "trainer/collectives/reduce_op.h"

namespace starling::collectives {

// `data` is of elements of `element` bytes. All ranks call it at the same place among their
// transfers.
absl::Status SharedMemoryAllreduce(const Communicator& communicator, std::span<std::byte> data,
                                   std::size_t element, Combine combine);

}  // namespace starling::collectives
