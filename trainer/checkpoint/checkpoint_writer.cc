// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "common/log/log.h"
#include "common/sync/mutex.h"

namespace starling::checkpoint {
namespace {

enum class Decision { kPending, kCommit, kDiscard };

absl::Duration Since(std::chrono::steady_clock::time_point start) {
  return absl::FromChrono(std::chrono::steady_clock::now() - start);
}

}  // namespace

// Thread-safe.
class CheckpointWriter::Core {
 public:
  Core(CheckpointStore store, int keep, std::function<void(const WriteResult&)> done)
      : store_(std::move(store)), done_(std::move(done)), keep_(keep) {
    thread_ = std::thread([this] { Run(); });
  }

  ~Core() {
    {
      sync::MutexLock lock(mutex_);
      stopping_ = true;
      if (decision_ == Decision::kPending) decision_ = Decision::kDiscard;
      changed_.NotifyAll();
    }
    thread_.join();
  }

  bool Begin(const State& state) {
    {
      sync::MutexLock lock(mutex_);
      if (busy_) return false;
      busy_ = true;
      decision_ = Decision::kPending;
      id_ = state.id;
    }
    // Busy, but not yet ready: nobody else touches the copy.
    Copy(state);
    sync::MutexLock lock(mutex_);
    ready_ = true;
    changed_.NotifyAll();
    return true;
  }

  void Decide(const StateId& id, Decision decision) {
    sync::MutexLock lock(mutex_);
    if (id_ != id || decision_ != Decision::kPending) return;
    decision_ = decision;
    changed_.NotifyAll();
  }

  void SetKeep(int keep) {
    sync::MutexLock lock(mutex_);
    keep_ = keep;
  }

  bool Flush(absl::Duration timeout) {
    const auto start = std::chrono::steady_clock::now();
    sync::MutexLock lock(mutex_);
    while (busy_ && decision_ != Decision::kPending) {
      const absl::Duration left = timeout - Since(start);
      if (left <= absl::ZeroDuration()) return false;
      changed_.WaitFor(mutex_, left);
    }
    return true;
  }

 private:
  // The tensors' bytes go into buffers that are kept: fresh pages cost more than the copy.
  void Copy(const State& state) {
    copy_ = state;
    buffers_.resize(std::max(buffers_.size(), state.tensors.size()));
    for (std::size_t i = 0; i < state.tensors.size(); ++i) {
      buffers_[i].assign(state.tensors[i].data.begin(), state.tensors[i].data.end());
      copy_.tensors[i].data = buffers_[i];
    }
  }

  void Run() {
    while (WaitForWork()) {
      const auto start = std::chrono::steady_clock::now();
      WriteResult result{.id = copy_.id, .status = {}, .uri = "", .elapsed = {}};
      result.status = WriteOne();
      if (result.status.ok()) result.uri = store_.UriOf(copy_.id);
      result.elapsed = Since(start);
      if (done_) done_(result);
      sync::MutexLock lock(mutex_);
      busy_ = false;
      ready_ = false;
      changed_.NotifyAll();
    }
  }

  bool WaitForWork() {
    sync::MutexLock lock(mutex_);
    while (!ready_ && !(stopping_ && !busy_)) changed_.Wait(mutex_);
    return ready_;
  }

  absl::Status WriteOne() {
    const auto prepared = store_.Prepare(copy_);
    if (!prepared.ok()) return prepared.status();
    const auto [decision, keep] = WaitForDecision();
    if (decision == Decision::kDiscard) {
      store_.Discard(*prepared).IgnoreError();
      return absl::CancelledError("the state was never settled");
    }
    if (absl::Status status = store_.Commit(*prepared); !status.ok()) return status;
    if (const absl::Status status = store_.Retain(keep, copy_.id); !status.ok()) {
      log::Warning("old checkpoints could not be removed; they will be tried again after the next",
                   {{"error", std::string(status.message())}});
    }
    return absl::OkStatus();
  }

  std::pair<Decision, int> WaitForDecision() {
    sync::MutexLock lock(mutex_);
    while (decision_ == Decision::kPending) changed_.Wait(mutex_);
    return {decision_, keep_};
  }

  CheckpointStore store_;
  const std::function<void(const WriteResult&)> done_;
  State copy_;                                   // the thread's while ready_, else Begin's
  std::vector<std::vector<std::byte>> buffers_;  // likewise

  sync::Mutex mutex_;
  sync::Condition changed_;
  int keep_ ABSL_GUARDED_BY(mutex_);
  StateId id_ ABSL_GUARDED_BY(mutex_);
  Decision decision_ ABSL_GUARDED_BY(mutex_) = Decision::kDiscard;  // pending only while busy
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;   // from Begin to the end of the report
  bool ready_ ABSL_GUARDED_BY(mutex_) = false;  // the copy is whole
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

CheckpointWriter::CheckpointWriter(CheckpointStore store, int keep,
                                   std::function<void(const WriteResult&)> done)
    : core_(std::make_unique<Core>(std::move(store), keep, std::move(done))) {}

CheckpointWriter::~CheckpointWriter() = default;

bool CheckpointWriter::Begin(const State& state) { return core_->Begin(state); }
void CheckpointWriter::Commit(const StateId& id) { core_->Decide(id, Decision::kCommit); }
void CheckpointWriter::Discard(const StateId& id) { core_->Decide(id, Decision::kDiscard); }
void CheckpointWriter::SetKeep(int keep) { core_->SetKeep(keep); }
bool CheckpointWriter::Flush(absl::Duration timeout) { return core_->Flush(timeout); }

}  // namespace starling::checkpoint
