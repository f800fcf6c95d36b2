// SPDX-License-Identifier: Apache-2.0
#include "trainer/server/snapshot_writer.h"

#include <utility>

#include "common/status/macros.h"

namespace starling::server {
namespace {

constexpr std::size_t kMostWaitingBytes = std::size_t{256} << 20;

}  // namespace

SnapshotWriter::SnapshotWriter(ShardSnapshots& snapshots, control::Failpoints& failpoints)
    : snapshots_(snapshots), failpoints_(failpoints), thread_([this] { Run(); }) {}

SnapshotWriter::~SnapshotWriter() {
  {
    const sync::MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

bool SnapshotWriter::HasRoom() const {
  const sync::MutexLock lock(mutex_);
  return waiting_bytes_ < kMostWaitingBytes;
}

void SnapshotWriter::Write(SnapshotOrder order) {
  const sync::MutexLock lock(mutex_);
  waiting_bytes_ += order.bytes.size();
  orders_.push_back(std::move(order));
  changed_.NotifyAll();
}

void SnapshotWriter::Note(SnapshotOutcome outcome) {
  const sync::MutexLock lock(mutex_);
  outcomes_.push_back(std::move(outcome));
}

std::vector<SnapshotOutcome> SnapshotWriter::Take() {
  const sync::MutexLock lock(mutex_);
  return std::exchange(outcomes_, {});
}

bool SnapshotWriter::failed() const {
  const sync::MutexLock lock(mutex_);
  return failed_;
}

void SnapshotWriter::Run() {
  while (true) {
    SnapshotOrder order;
    {
      const sync::MutexLock lock(mutex_);
      while (!stopping_ && orders_.empty()) changed_.Wait(mutex_);
      if (stopping_ || failed_) return;
      order = std::move(orders_.front());
      orders_.pop_front();
    }
    const absl::Status status = WriteOne(order);
    const sync::MutexLock lock(mutex_);
    waiting_bytes_ -= order.bytes.size();
    failed_ = absl::IsCancelled(status);
    if (!failed_) outcomes_.push_back({order.shard, order.id, order.turn, {}, status});
  }
}

absl::Status SnapshotWriter::WriteOne(const SnapshotOrder& order) {
  ASSIGN_OR_RETURN(const checkpoint::Prepared prepared,
                   snapshots_.Prepare(order.shard, order.id, order.bytes));
  if (failpoints_.Hit(kFailCheckpoint)) {
    return absl::CancelledError("this server was made to fail");
  }
  return snapshots_.Commit(order.shard, prepared, order.keep);
}

}  // namespace starling::server
