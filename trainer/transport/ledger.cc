// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/ledger.h"

namespace starling::transport {

Traffic& Traffic::operator+=(const Traffic& other) {
  payload_sent += other.payload_sent;
  header_sent += other.header_sent;
  payload_received += other.payload_received;
  header_received += other.header_received;
  return *this;
}

void TrafficCounter::Sent(std::uint64_t payload, std::uint64_t header) {
  payload_sent_.fetch_add(payload, std::memory_order_relaxed);
  header_sent_.fetch_add(header, std::memory_order_relaxed);
}

void TrafficCounter::Received(std::uint64_t payload, std::uint64_t header) {
  payload_received_.fetch_add(payload, std::memory_order_relaxed);
  header_received_.fetch_add(header, std::memory_order_relaxed);
}

Traffic TrafficCounter::Read() const {
  Traffic traffic;
  traffic.payload_sent = payload_sent_.load(std::memory_order_relaxed);
  traffic.header_sent = header_sent_.load(std::memory_order_relaxed);
  traffic.payload_received = payload_received_.load(std::memory_order_relaxed);
  traffic.header_received = header_received_.load(std::memory_order_relaxed);
  return traffic;
}

std::shared_ptr<TrafficCounter> Ledger::Counter(const std::string& member) {
  sync::MutexLock lock(mutex_);
  auto& counter = counters_[member];
  if (counter == nullptr) counter = std::make_shared<TrafficCounter>();
  return counter;
}

std::map<std::string, Traffic> Ledger::Read() const {
  sync::MutexLock lock(mutex_);
  std::map<std::string, Traffic> all;
  for (const auto& [member, counter] : counters_) all.emplace(member, counter->Read());
  return all;
}

Traffic Ledger::Total() const {
  Traffic total;
  for (const auto& [member, traffic] : Read()) total += traffic;
  return total;
}

}  // namespace starling::transport
