// SPDX-License-Identifier: Apache-2.0
// A few threads that make samples before they are asked for, so that decoding an image or waiting
// for an object store does not hold up the arithmetic.
//
// What is made lies here until it is taken. It is bounded by what is expected: the samples of the
// last two calls of Expect, and those that somebody waits for.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/sync/mutex.h"

namespace starling::data {

// A sample as it lies in memory until it is used: bytes, for floats take four times the room.
struct RawSample {
  std::vector<std::uint8_t> values;
  std::int64_t label = 0;
};

struct SampleKey {
  std::int64_t id = 0;
  std::int64_t epoch = 0;
  auto operator<=>(const SampleKey&) const = default;
};

// Thread-safe. `make` is called on several threads at once.
class ReadAhead {
 public:
  using Make = std::function<absl::StatusOr<RawSample>(const SampleKey& key)>;

  ReadAhead(int threads, Make make);
  // Waits for the samples that are being made.
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Begins with what of them is not here yet, after all that was asked for before.
  void Expect(std::span<const SampleKey> keys);

  // Begins with what of them is not here yet, before all that is only expected.
  void Want(std::span<const SampleKey> keys);

  // The sample, or why it could not be made; it is not kept. Waits for it; what nobody has asked
  // for is wanted now.
  absl::StatusOr<RawSample> Take(const SampleKey& key);

  // How many samples lie here or are to be made.
  std::size_t size() const;

 private:
  struct Entry {
    std::int64_t round = 0;  // of the last Expect or Want that named it
    bool begun = false;
    bool awaited = false;  // somebody is in Take for it, and takes it: it is not dropped before
    std::unique_ptr<absl::StatusOr<RawSample>> made = {};
  };

  void Run();
  // The next that nobody has begun with; none: the queue is empty.
  std::optional<SampleKey> Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropOld() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Make make_;
  mutable sync::Mutex mutex_;
  sync::Condition asked_;
  sync::Condition made_;
  std::map<SampleKey, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  // Keys of entries that nobody has begun with; others may be in it and are passed over.
  std::deque<SampleKey> queue_ ABSL_GUARDED_BY(mutex_);
  std::int64_t round_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // last: they use the others
};

}  // namespace starling::data
