// SPDX-License-Identifier: Apache-2.0
// Peers of one machine in shared memory, all others on TCP, under TCP's addresses.
//
// Every member listens on its TCP address and, beside it, on a socket whose name follows from that
// address and the job's secret. Who dials tries the name first. It can be reached from the same
// network namespace only, so from the same machine: pods on one node that do not share a namespace
// go over TCP, as do members that listen on TCP alone, and neither has to know why.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/net/address.h"
#include "trainer/transport/transport.h"

namespace starling::transport {

// As OpenTcpTransport; without the second listener (somebody has its name) only a little slower.
absl::StatusOr<std::unique_ptr<Transport>> OpenMixedTransport(const net::Address& address,
                                                              Options options);

// Options::share_memory of a job's member. `text` is STARLING_SHARED_MEMORY: 0 for false, else
// empty. INVALID_ARGUMENT if it is neither.
absl::StatusOr<bool> ParseShareMemory(std::string_view text);
// Of this process's environment.
absl::StatusOr<bool> ShareMemoryOfJob();

}  // namespace starling::transport
