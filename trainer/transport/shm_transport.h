// SPDX-License-Identifier: Apache-2.0
// Peers of one machine, in shared memory.
//
// Members find one another by the name of a socket; over it they recognise one another as over tcp,
// and then the dialer hands over the memory of their link: see shm_segment.h and shm_stream.h. Only
// processes of one user in one network namespace can be peers. Where some members are elsewhere,
// mixed_transport.h chooses for each pair.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "trainer/transport/dialing.h"
#include "trainer/transport/transport.h"

namespace starling::transport {

// Listens on a name of its own (see Transport::address).
absl::StatusOr<std::unique_ptr<Transport>> OpenShmTransport(Options options);

// What a link does when the system's limits leave no room for its memory.
enum class WithoutMemory { kFail, kUseSocket };

// Connector::Fit of a connection over a UNIX socket, for kinds that share memory.
std::unique_ptr<Fitting> FitSharedMemory(net::FileDescriptor socket, bool dialer,
                                         std::size_t members, WithoutMemory without_memory);

}  // namespace starling::transport
