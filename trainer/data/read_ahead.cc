// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/read_ahead.h"

#include <memory>
#include <utility>

namespace starling::data {

ReadAhead::ReadAhead(int threads, Make make) : make_(std::move(make)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

ReadAhead::~ReadAhead() {
  {
    const sync::MutexLock lock(mutex_);
    ending_ = true;
    asked_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void ReadAhead::Expect(std::span<const SampleKey> keys) {
  const sync::MutexLock lock(mutex_);
  ++round_;
  for (const SampleKey& key : keys) {
    const auto [entry, is_new] = entries_.try_emplace(key);
    entry->second.round = round_;
    if (is_new) queue_.push_back(key);
  }
  DropOld();
  asked_.NotifyAll();
}

void ReadAhead::Want(std::span<const SampleKey> keys) {
  const sync::MutexLock lock(mutex_);
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    Entry& entry = entries_[*key];
    entry.round = round_;
    if (!entry.begun) queue_.push_front(*key);
  }
  asked_.NotifyAll();
}

absl::StatusOr<RawSample> ReadAhead::Take(const SampleKey& key) {
  sync::MutexLock lock(mutex_);
  while (true) {
    const auto [entry, is_new] = entries_.try_emplace(key);
    if (is_new) {
      entry->second.round = round_;
      queue_.push_front(key);
      asked_.NotifyOne();
    }
    if (entry->second.made != nullptr) {
      const auto made = std::move(entry->second.made);
      entries_.erase(entry);
      return std::move(*made);
    }
    entry->second.awaited = true;
    made_.Wait(mutex_);
  }
}

std::size_t ReadAhead::size() const {
  const sync::MutexLock lock(mutex_);
  return entries_.size();
}

std::optional<SampleKey> ReadAhead::Next() {
  while (!queue_.empty()) {
    const SampleKey key = queue_.front();
    queue_.pop_front();
    const auto entry = entries_.find(key);
    if (entry == entries_.end() || entry->second.begun) continue;
    entry->second.begun = true;
    return key;
  }
  return std::nullopt;
}

void ReadAhead::DropOld() {
  std::erase_if(entries_, [this](const auto& entry) {
    const bool making = entry.second.begun && entry.second.made == nullptr;
    return !making && !entry.second.awaited && entry.second.round + 1 < round_;
  });
  std::erase_if(queue_, [this](const SampleKey& key) { return !entries_.contains(key); });
}

void ReadAhead::Run() {
  while (true) {
    std::optional<SampleKey> key;
    {
      const sync::MutexLock lock(mutex_);
      while (!ending_ && !(key = Next()).has_value()) asked_.Wait(mutex_);
      if (ending_) return;
    }
    auto made = std::make_unique<absl::StatusOr<RawSample>>(make_(*key));
    const sync::MutexLock lock(mutex_);
    entries_[*key].made = std::move(made);  // what is being made stays there until it is
    made_.NotifyAll();
  }
}

}  // namespace starling::data
