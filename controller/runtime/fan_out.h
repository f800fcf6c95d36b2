// SPDX-License-Identifier: Apache-2.0
// Runs many similar tasks in parallel: the pods of a large job are created this way.
//
// In batches of 1, 2, 4, ... up to `width`, as Kubernetes' own controllers do: if all would fail
// for the same reason (a quota, a webhook), only one is tried instead of a thousand. What is in a
// batch of two is done one after the other.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "absl/status/status.h"

namespace starling::runtime {

// Runs task(0) to task(count - 1), each once, on threads of its own and the caller's, and waits for
// them. After the first batch in which one failed no other is begun. Returns the results of those
// that were run; `stops` says which results end it (by default all but OK).
std::vector<absl::Status> FanOut(std::size_t count, std::size_t width,
                                 const std::function<absl::Status(std::size_t)>& task,
                                 const std::function<bool(const absl::Status&)>& stops = nullptr);

}  // namespace starling::runtime
