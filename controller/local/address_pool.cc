// SPDX-License-Identifier: Apache-2.0
#include "controller/local/address_pool.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/net/ports.h"

namespace starling::local {
namespace {

constexpr unsigned kHosts = 254;             // .1 to .254 of each /24
constexpr unsigned kNetworks = 254 * 256;    // 127.1.0 to 127.254.255
constexpr unsigned kAddresses = 4 * kHosts;  // what one home may use: four networks

std::uint32_t Hash(std::string_view text) {  // FNV-1a
  std::uint32_t hash = 2166136261U;
  for (const char character : text) {
    hash = (hash ^ static_cast<unsigned char>(character)) * 16777619U;
  }
  return hash;
}

}  // namespace

AddressPool::AddressPool(std::string_view home, Taken taken)
    : taken_(std::move(taken)), network_(Hash(home) % kNetworks) {}

std::string AddressPool::Address(unsigned number) const {
  const unsigned network = (network_ + number / kHosts) % kNetworks;
  return absl::StrCat("127.", 1 + network / 256, ".", network % 256, ".", 1 + number % kHosts);
}

absl::StatusOr<std::string> AddressPool::Take() {
  for (unsigned tries = 0; tries < kAddresses; ++tries) {
    std::string address = Address(next_);
    next_ = (next_ + 1) % kAddresses;
    if (used_.contains(address) || taken_(address)) continue;
    used_.insert(address);
    return address;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("no address is free from ", Address(0), " to ", Address(kAddresses - 1),
                   "; does another program listen at ports ", net::kFirstPodPort, " to ",
                   net::kLastPodPort, " of all addresses?"));
}

void AddressPool::Use(const std::string& address) {
  used_.insert(address);
  for (unsigned number = 0; number < kAddresses; ++number) {
    if (Address(number) == address && number >= next_) next_ = (number + 1) % kAddresses;
  }
}

bool SomebodyListens(const std::string& address) {
  for (int port = net::kFirstPodPort; port <= net::kLastPodPort; ++port) {
    const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) return false;
    const int yes = 1;  // connections in TIME_WAIT do not count
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(static_cast<std::uint16_t>(port));
    inet_pton(AF_INET, address.c_str(), &name.sin_addr);
    const int bound = bind(descriptor, reinterpret_cast<const sockaddr*>(&name), sizeof(name));
    close(descriptor);
    if (bound != 0) return true;
  }
  return false;
}

}  // namespace starling::local
