// SPDX-License-Identifier: Apache-2.0
// Addresses 127.x.y.z for pods: each pod has all ports of its own, as on a cluster.
//
// Every home has a network 127.x.y.0/24 by the hash of its path, so that two controllers of one
// machine rarely meet; addresses go round, so that a new pod does not get the one of a pod that
// ended just now and that somebody may still dial.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace starling::local {

// Thread-compatible.
class AddressPool {
 public:
  // Whether somebody else uses the address; see SomebodyListens.
  using Taken = std::function<bool(const std::string& address)>;

  AddressPool(std::string_view home, Taken taken);

  // The next free address. ResourceExhausted: all are in use.
  absl::StatusOr<std::string> Take();

  // An address that a pod has already; addresses go on after it.
  void Use(const std::string& address);
  void Release(const std::string& address) { used_.erase(address); }

 private:
  std::string Address(unsigned number) const;

  const Taken taken_;
  unsigned network_;   // the second and third number
  unsigned next_ = 0;  // the next to try
  std::set<std::string> used_;
};

// Whether a server of this machine listens at one of the pods' fixed ports of `address`.
bool SomebodyListens(const std::string& address);

}  // namespace starling::local
