// SPDX-License-Identifier: Apache-2.0
// The devices of one view, joined by NCCL: sums buffers in device memory.
//
// A group belongs to one view and is never reused: whoever is cut off from its peers aborts it, and
// the next view makes another.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/cuda/axpy.h"

namespace starling::cuda {

// NCCL's version as text, such as 2.28.9.
absl::StatusOr<std::string> NcclVersion();

// What the first rank makes and all ranks of a view share before they join.
absl::StatusOr<std::string> NewGroupKey();

// Confined to the thread that joined, except Abort.
class NcclGroup {
 public:
  // Waits for all `size` ranks of the same key. InvalidArgument for a key that NewGroupKey did not
  // make, Unavailable with NCCL's message when the ranks do not find one another.
  static absl::StatusOr<std::unique_ptr<NcclGroup>> Join(const std::string& key, int rank,
                                                         int size);
  ~NcclGroup();

  // Sums `buffer` (device memory) over all ranks, in place, in the order of `stream`.
  absl::Status AllReduceSum(std::span<float> buffer, Stream stream);

  // Ends every call on this rank with an error. Thread-safe.
  void Abort();

 private:
  struct State;
  explicit NcclGroup(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace starling::cuda
