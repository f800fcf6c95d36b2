// SPDX-License-Identifier: Apache-2.0
// Peers inside one process, for tests and simulations: no ports, the same rules.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/sync/mutex.h"
#include "trainer/transport/transport.h"

namespace starling::transport {

// The namespace in which the transports of a test find one another: the address is the member id.
// Outlives them. Thread-safe.
class InprocNetwork {
 public:
  InprocNetwork();
  ~InprocNetwork();

  // ALREADY_EXISTS when a living transport has that member id.
  absl::StatusOr<std::unique_ptr<Transport>> OpenTransport(const Options& options);

 private:
  class Switch;
  std::shared_ptr<Switch> switch_;
};

}  // namespace starling::transport
