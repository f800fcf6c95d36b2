// SPDX-License-Identifier: Apache-2.0
// Writes snapshots of shards on a thread of its own, so that no push waits for a disk: whoever
// serves the shards makes the bytes, hands them over, and hears later what became of them.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/sync/mutex.h"
#include "trainer/control/failpoints.h"
#include "trainer/membership/types.h"
#include "trainer/server/shard_snapshots.h"

namespace starling::server {

// Passed between the writing of a snapshot and its commit.
inline constexpr const char* kFailCheckpoint = "checkpoint";

struct SnapshotOrder {
  std::size_t shard = 0;
  membership::StateId id;
  std::int64_t turn = 0;
  int keep = 1;
  std::string bytes;
};

struct SnapshotOutcome {
  enum class Kind {
    kWritten,  // or not: see the status
    kSaved,    // it had been written before, and nothing has come since
    kNone,     // the shard is not answered for at the moment
  };
  std::size_t shard = 0;
  membership::StateId id;
  std::int64_t turn = 0;
  Kind kind = Kind::kWritten;
  absl::Status status;
};

// Thread-safe.
class SnapshotWriter {
 public:
  // Both outlive it.
  SnapshotWriter(ShardSnapshots& snapshots, control::Failpoints& failpoints);
  // Finishes the one that is being written; those that wait are dropped.
  ~SnapshotWriter();

  // Whether more may be handed over now: what waits takes memory.
  bool HasRoom() const;
  void Write(SnapshotOrder order);
  // Of an order that needs no writing.
  void Note(SnapshotOutcome outcome);
  // What was written, or could not be, since the last call.
  std::vector<SnapshotOutcome> Take();
  // The failpoint was hit: nothing more is written.
  bool failed() const;

 private:
  void Run();
  absl::Status WriteOne(const SnapshotOrder& order);

  ShardSnapshots& snapshots_;
  control::Failpoints& failpoints_;
  mutable sync::Mutex mutex_;
  sync::Condition changed_;
  std::deque<SnapshotOrder> orders_ ABSL_GUARDED_BY(mutex_);
  std::size_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<SnapshotOutcome> outcomes_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace starling::server
