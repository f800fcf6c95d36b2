// SPDX-License-Identifier: Apache-2.0
// A parameter server process without its link to the coordinator: it is told directives, serves
// the newest view, and has a report ready at any time. Whoever owns it carries both.
//
// One thread (Run) fences, opens the view's mesh and serves until the mesh ends or a newer view
// comes; between messages it fetches ahead what it is asked to and hands over snapshots to be
// written. Where the loop has several executors, that thread carries the messages, and what is to
// be done with a shard is done on the shard's executor. In a turn of checkpoints a server saves the
// shards of which it is the tail: what it holds all others hold too. It reports the turn when all
// of those are on the storage.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/clock/clock.h"
#include "common/sync/mutex.h"
#include "trainer/control/failpoints.h"
#include "trainer/observe/stopwatch.h"
#include "trainer/parameter_server/server_loop.h"
#include "trainer/parameter_server/shard_placement.h"
#include "trainer/server/shard_snapshots.h"
#include "trainer/server/snapshot_writer.h"
#include "trainer/transport/transport.h"

namespace starling::server {

// From the coordinator that this process obeys: the whole of what a server is to know.
struct ServerDirective {
  std::optional<membership::View> view;
  std::vector<std::size_t> fetch_ahead;
  std::int64_t checkpoint_turn = 0;
  int keep_snapshots = 3;
};

// To the coordinator: the whole of what a server knows.
struct ServerReport {
  std::optional<membership::View> installed;
  bool broken = false;                            // the installed view's links have ended
  std::vector<membership::MemberId> unreachable;  // of that view
  membership::Phase phase = membership::Phase::kOut;
  std::vector<parameter_server::ShardReport> shards;
  // Of the shards that it answers for.
  std::map<std::size_t, parameter_server::LeaseLedger> ledgers;
  std::int64_t checkpoint_turn = 0;  // written, as far as this server answers for shards
  std::int64_t snapshots = 0;        // written
  std::int64_t snapshot_failures = 0;
  std::optional<membership::StateId> newest_snapshot;
  absl::Time newest_snapshot_time;
  absl::Status snapshot_failure;  // of the last one that could not be written, until one can
};

// Thread-safe.
class ShardServer {
 public:
  struct Options {
    membership::MemberId id;
    std::vector<parameter_server::ShardOptions> shards;
    // The mesh's name of a member.
    std::function<std::string(const membership::MemberId&)> peer_name;
    absl::Duration open_timeout = absl::Seconds(10);
    // Called on Run's thread, between messages, when something has changed that the coordinator
    // should hear at once.
    std::function<void()> changed;
    // Called on Run's thread every few milliseconds: for metrics, from the shards' status.
    std::function<void(const parameter_server::ServerLoop& loop)> watch;
    const clock::Clock* clock = nullptr;         // of snapshots' times; null: none are told
    parameter_server::Executors executors = {};  // threads that serve shards, Run's own among them
    observe::Stopwatch* stopwatch = nullptr;     // of Run's thread; null: nobody asks
    // An update was applied within so many seconds; called on any executor.
    std::function<void(double seconds)> applied = nullptr;
  };

  // `transport`, `snapshots` and `failpoints` outlive it.
  ShardServer(Options options, transport::Transport& transport, ShardSnapshots& snapshots,
              control::Failpoints& failpoints);

  void OnDirective(const ServerDirective& directive);
  ServerReport Report() const;
  // What it does now; to be asked several times a second.
  membership::Standing Standing() const { return loop_.Standing(); }

  // Serves until it is stopped (OK) or made to fail (CANCELLED).
  absl::Status Run();
  void Stop();

 private:
  absl::Status ServeView(const membership::View& view, transport::Cancellation& ended);
  void Enter(observe::Activity activity);
  void Tick();
  void TakeSnapshots();
  void OrderSnapshots(std::int64_t turn, int keep);
  // On the shard's executor.
  void HandOver(std::size_t shard, std::int64_t turn, int keep,
                const std::optional<membership::StateId>& saved,
                const parameter_server::ChainServer& machine);
  void ForgetOthersTurns();
  bool IsTail(std::size_t shard) const;
  std::int64_t SavedTurn() const;
  void NoteUnreachable(const membership::View& view, const absl::Status& status);
  void Tell(bool broken);

  const Options options_;
  transport::Transport& transport_;
  ShardSnapshots& snapshots_;
  control::Failpoints& failpoints_;
  // Of Run's thread.
  parameter_server::ServerLoop loop_;
  struct Saved {
    std::optional<membership::StateId> id;
    std::int64_t turn = 0;  // 0 once another server answers for the shard
    bool ordered = false;   // one is being written
  };
  std::vector<Saved> saved_;
  net::Deadline next_try_ = net::Deadline::After(absl::ZeroDuration());
  std::int64_t snapshots_written_ = 0;
  std::int64_t snapshot_failures_ = 0;
  std::optional<membership::StateId> newest_snapshot_;
  absl::Time newest_snapshot_time_;
  absl::Status snapshot_failure_;
  std::optional<membership::View> installed_;
  std::vector<membership::MemberId> unreachable_;
  observe::Activity entering_ = observe::Activity::kJoining;  // until the view's sync round is over
  std::string told_;  // what would be worth a report at once, as it was last told

  std::atomic<bool> unreadable_ = false;  // a snapshot, in the present view
  std::atomic<bool> failed_ = false;
  mutable sync::Mutex mutex_;
  sync::Condition changed_;
  ServerDirective directive_ ABSL_GUARDED_BY(mutex_);
  ServerReport report_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  // Of the view that is being opened or served: cancelled when a newer one comes.
  std::function<void(const absl::Status&)> interrupt_ ABSL_GUARDED_BY(mutex_);

  SnapshotWriter writer_;
};

}  // namespace starling::server
