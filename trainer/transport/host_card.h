// SPDX-License-Identifier: Apache-2.0
// One emulated network card that several processes of a machine share: those of an emulated host.
//
// It lies in a file that all of them map. Its lock is the kernel's robust one: who dies holding it
// leaves it to the next, who begins with an idle card. The file is the job's, and goes with its
// folder; what a machine left there before it was started anew is not believed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/transport/card.h"

namespace starling::transport {

// Thread-safe.
class HostCard {
 public:
  // The card of `host` in `folder`, which exists. FAILED_PRECONDITION if the file there is none of
  // ours, UNAVAILABLE if it cannot be had.
  static absl::StatusOr<std::shared_ptr<HostCard>> Open(const std::string& folder,
                                                        const std::string& host);
  ~HostCard();
  HostCard(const HostCard&) = delete;
  HostCard& operator=(const HostCard&) = delete;

  std::int64_t Send(std::int64_t now, std::int64_t takes);
  std::int64_t Receive(std::int64_t begin, std::int64_t takes);

  // Members say that they use it, so that others know whether they see the same file.
  void SitDown(const std::string& member);
  bool Sits(const std::string& member);

 private:
  struct Memory;
  class Lock;
  explicit HostCard(Memory* memory) : memory_(memory) {}

  Memory* const memory_;
};

}  // namespace starling::transport
