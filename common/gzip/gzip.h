// SPDX-License-Identifier: Apache-2.0
// Bytes packed as gzip does (RFC 1952), and unpacked within a bound: what comes from elsewhere may
// claim to be a thousand times as large.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace starling::gzip {

// The same bytes give the same result.
std::string Pack(std::string_view bytes);

// INVALID_ARGUMENT: it is no whole gzip stream. RESOURCE_EXHAUSTED: it holds more than `most`.
absl::StatusOr<std::string> Unpack(std::string_view packed, std::size_t most);

}  // namespace starling::gzip
