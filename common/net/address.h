// SPDX-License-Identifier: Apache-2.0
// Numeric addresses of TCP endpoints: "127.1.2.3:7072", "[::1]:7072".
//
// Names are not looked up: the members of a job learn one another's addresses from views.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace starling::net {

struct Address {
  std::string host;  // numeric, IPv4 or IPv6 without brackets
  std::uint16_t port = 0;

  friend bool operator==(const Address&, const Address&) = default;
};

// InvalidArgument, with the text, unless it is HOST:PORT with a numeric host.
absl::StatusOr<Address> ParseAddress(std::string_view text);

// As ParseAddress reads it.
std::string ToString(const Address& address);

// The form that the system's calls take, and back.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};
absl::StatusOr<SocketAddress> ToSocketAddress(const Address& address);
absl::StatusOr<Address> FromSocketAddress(const SocketAddress& address);

}  // namespace starling::net
