// SPDX-License-Identifier: Apache-2.0
// Keys to be looked at, each at most once in the queue and never by two workers at a time.
//
// The heart of a level-triggered controller: events only say "look at this key"; a key added while
// a worker has it is handed out again once that worker is done. Failures come back with growing
// delays. Time comes from the injected clock, so that tests need not wait.
//
// New keys wait for keys that are already under way, so of a thousand objects that come together
// some are finished early instead of all being half done. A new key never waits for more than
// kInARow others each time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "common/clock/clock.h"
#include "common/sync/mutex.h"
#include "controller/kube/kube_client.h"
#include "controller/runtime/back_off.h"
#include "controller/runtime/controller_metrics.h"
#include "controller/runtime/token_bucket.h"

namespace starling::runtime {

using Key = kube::ObjectKey;

// Thread-safe.
class WorkQueue {
 public:
  // `retries` limits how many keys come back after failures, all of them together.
  WorkQueue(const clock::Clock& clock, BackOff back_off,
            TokenBucket retries = TokenBucket(/*per_second=*/0, /*burst=*/0))
      : clock_(clock), back_off_(back_off), retries_(retries), jitter_(back_off.seed) {}

  // Before the first Add().
  void UseMetrics(QueueMetrics metrics);
  // Brings up to date what the metrics say of keys that workers have now.
  void UpdateAges();

  void Add(const Key& key);
  // The same of an object for which nothing has been done yet. Add() of the same key counts more.
  void AddNew(const Key& key);
  // After `delay`; of several for one key the earliest counts.
  void AddAfter(const Key& key, absl::Duration delay);
  // After a delay that grows with every call until Forget(key).
  void AddBackedOff(const Key& key);
  void Forget(const Key& key);
  int FailuresOf(const Key& key) const;

  // The key that has waited longest of those under way, then of the new ones, waiting for one;
  // nothing after ShutDown(). The caller has it for itself until Done(key).
  std::optional<Key> Get();
  // The same without waiting.
  std::optional<Key> TryGet();
  void Done(const Key& key);

  // Ends every Get(). Keys still queued are dropped.
  void ShutDown();

  std::size_t size() const;                    // ready to be handed out
  std::optional<absl::Time> next_due() const;  // when the earliest delayed key is, if any

 private:
  enum class Turn { kUnderWay, kNew };
  struct Waiting {
    absl::Time since;
    Turn turn;
    std::uint64_t place = 0;  // in its line; 0: a worker has the key
  };
  using Line = std::map<std::uint64_t, Key>;  // first in, first out
  static constexpr int kInARow = 8;

  // Whether there is a key to be handed out that there was not.
  bool AddLocked(const Key& key, Turn turn = Turn::kUnderWay) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddAfterLocked(const Key& key, absl::Duration delay) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MoveDueLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Key> TakeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeReady(const Key& key, Waiting& waiting) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Line& LineOf(Turn turn) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Turn NextTurn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellDepth() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AwaitChange() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const clock::Clock& clock_;
  const BackOff back_off_;
  mutable sync::Mutex mutex_;
  // Of the workers that wait, one watches for the time of the next delayed key; were all to, all
  // would wake up for each. Who takes a key and leaves something to do or to watch wakes another.
  sync::Condition changed_;               // what the others wait for
  sync::Condition due_changed_;           // what the one waits for
  int idle_ ABSL_GUARDED_BY(mutex_) = 0;  // the others
  bool watching_ ABSL_GUARDED_BY(mutex_) = false;
  TokenBucket retries_ ABSL_GUARDED_BY(mutex_);
  Jitter jitter_ ABSL_GUARDED_BY(mutex_);
  QueueMetrics metrics_ ABSL_GUARDED_BY(mutex_);
  Line under_way_ ABSL_GUARDED_BY(mutex_);
  Line new_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t places_ ABSL_GUARDED_BY(mutex_) = 0;  // given so far
  int in_a_row_ ABSL_GUARDED_BY(mutex_) = 0;          // under way, while a new one waited
  // In a line, or to be on Done().
  absl::flat_hash_map<Key, Waiting> dirty_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Key, absl::Time> processing_ ABSL_GUARDED_BY(mutex_);  // handed out: when
  std::set<std::pair<absl::Time, Key>> delayed_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Key, absl::Time> due_ ABSL_GUARDED_BY(mutex_);  // of those delayed
  absl::flat_hash_map<Key, int> failures_ ABSL_GUARDED_BY(mutex_);
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace starling::runtime
