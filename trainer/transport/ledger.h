// SPDX-License-Identifier: Apache-2.0
// Counts what travels, per peer and direction, exactly.
//
// Bytes do not depend on the machine's load: they are how algorithms and codecs are compared and
// held to their formulas. A frame is counted when it is whole: written to the link, or received.
// What encryption adds to frames counts as headers. The few fixed bytes that open and close a
// connection are not counted.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "common/sync/mutex.h"

namespace starling::transport {

struct Traffic {
  std::uint64_t payload_sent = 0;  // bytes
  std::uint64_t header_sent = 0;
  std::uint64_t payload_received = 0;
  std::uint64_t header_received = 0;

  Traffic& operator+=(const Traffic& other);
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

// One peer's counters. Thread-safe.
class TrafficCounter {
 public:
  void Sent(std::uint64_t payload, std::uint64_t header);
  void Received(std::uint64_t payload, std::uint64_t header);
  Traffic Read() const;

 private:
  std::atomic<std::uint64_t> payload_sent_{0};
  std::atomic<std::uint64_t> header_sent_{0};
  std::atomic<std::uint64_t> payload_received_{0};
  std::atomic<std::uint64_t> header_received_{0};
};

// All that a transport ever moved, by member. Thread-safe.
class Ledger {
 public:
  // The counter of `member`, new or old; it stays valid as long as somebody holds it.
  std::shared_ptr<TrafficCounter> Counter(const std::string& member);
  std::map<std::string, Traffic> Read() const;
  Traffic Total() const;

 private:
  mutable sync::Mutex mutex_;
  std::map<std::string, std::shared_ptr<TrafficCounter>> counters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::transport
