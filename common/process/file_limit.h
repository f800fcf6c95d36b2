// SPDX-License-Identifier: Apache-2.0
// How many files and sockets this process may have open.
#pragma once

#include <cstdint>

namespace starling::process {

// Raises the soft limit to the hard one, for servers with thousands of connections; children
// inherit it. Returns the limit that holds now, which is the old one where raising is not allowed.
std::uint64_t RaiseFileLimit();

}  // namespace starling::process
