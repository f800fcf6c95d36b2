// SPDX-License-Identifier: Apache-2.0
// How many threads serve a server's shards: one less than the pod has cores (on two cores a second
// one gains nothing beside whoever pushes), up to four, since one thread that carries the messages
// feeds no more than three others. STARLING_SERVER_EXECUTORS says otherwise.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"

namespace starling::server {

inline constexpr int kMostExecutorsByDefault = 4;
inline constexpr int kMostExecutors = 64;

// `text` is the environment variable's; empty: by `cores`. INVALID_ARGUMENT if it is no number from
// 1 to kMostExecutors.
absl::StatusOr<int> ParseExecutors(std::string_view text, int cores);

}  // namespace starling::server
