// SPDX-License-Identifier: Apache-2.0
// Peers that exchange datagrams, with a protocol of our own above them (udp_window.h, udp_relay.h).
//
// Members find and recognise one another over TCP, as with every kind; then each end names the port
// of a UDP socket of its own. Datagrams carry a key that both derive from the handshake, so that
// nobody who is not on the way between them can be heard.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/net/address.h"
#include "trainer/transport/dialing.h"
#include "trainer/transport/transport.h"

namespace starling::transport {

// Listens as OpenTcpTransport does. For tests: `loss` is the share of datagrams that are dropped.
absl::StatusOr<std::unique_ptr<Transport>> OpenUdpTransport(const net::Address& address,
                                                            Options options, double loss = 0);

// How it dials, for kinds that use UDP among others; its links are `encrypted` or not.
std::unique_ptr<Connector> MakeUdpConnector(const net::Address& source, bool encrypted,
                                            double loss = 0);

}  // namespace starling::transport
