// SPDX-License-Identifier: Apache-2.0
#include "common/net/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <charconv>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/macros.h"

namespace starling::net {
namespace {

absl::Status BadAddress(std::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", std::string(text),
                   "\" is not an address: write HOST:PORT with a numeric host, such as "
                   "127.0.0.1:7072 or [::1]:7072"));
}

}  // namespace

absl::StatusOr<Address> ParseAddress(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return BadAddress(text);
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (bracketed != (host.find(':') != std::string_view::npos)) return BadAddress(text);

  Address address{std::string(host), 0};
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size()) return BadAddress(text);
  if (!ToSocketAddress(address).ok()) return BadAddress(text);
  return address;
}

std::string ToString(const Address& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return v6 ? absl::StrCat("[", address.host, "]:", address.port)
            : absl::StrCat(address.host, ":", address.port);
}

absl::StatusOr<SocketAddress> ToSocketAddress(const Address& address) {
  SocketAddress result;
  sockaddr_in v4 = {};
  if (inet_pton(AF_INET, address.host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(address.port);
    std::memcpy(&result.storage, &v4, sizeof v4);
    result.size = sizeof v4;
    return result;
  }
  sockaddr_in6 v6 = {};
  if (inet_pton(AF_INET6, address.host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(address.port);
    std::memcpy(&result.storage, &v6, sizeof v6);
    result.size = sizeof v6;
    return result;
  }
  return BadAddress(ToString(address));
}

absl::StatusOr<Address> FromSocketAddress(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.storage.ss_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &address.storage, sizeof v4);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return Address{text, ntohs(v4.sin_port)};
  }
  if (address.storage.ss_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, &address.storage, sizeof v6);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    return Address{text, ntohs(v6.sin6_port)};
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "a socket of address family ", address.storage.ss_family, " has no numeric address"));
}

}  // namespace starling::net
