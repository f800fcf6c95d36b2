// SPDX-License-Identifier: Apache-2.0
// Peers on TCP: between pods, and between the processes of one machine.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/net/address.h"
#include "trainer/transport/dialing.h"
#include "trainer/transport/transport.h"

namespace starling::transport {

// Listens on `address` (port 0: the system chooses) and dials from its host.
absl::StatusOr<std::unique_ptr<Transport>> OpenTcpTransport(const net::Address& address,
                                                            Options options);

// How it dials, for kinds that use TCP among others; its links are `encrypted` or not.
std::unique_ptr<Connector> MakeTcpConnector(const net::Address& source, bool encrypted);

}  // namespace starling::transport
