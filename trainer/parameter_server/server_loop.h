// SPDX-License-Identifier: Apache-2.0
// The thin shell around the machines of a server: it serves the shards of a view over its mesh. It
// lives as long as its process; meshes come and go with views.
//
// It decides nothing: it carries messages between each shard's ChainServer and a MessageChannel. A
// server may serve its shards on several executors (executor.h): the calling thread carries, and
// each machine is fed by the one executor that its shard belongs to in this view.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock/clock.h"
#include "trainer/observe/stopwatch.h"
#include "trainer/parameter_server/chain_server.h"
#include "trainer/parameter_server/executor.h"
#include "trainer/parameter_server/filters.h"
#include "trainer/parameter_server/load_meter.h"
#include "trainer/parameter_server/message_channel.h"

namespace starling::parameter_server {

// The ids of a mesh's ranks, servers and workers alike.
using Ranks = std::vector<MemberId>;
int RankOf(const Ranks& ranks, const MemberId& id);  // -1: not in the view

// Where a server may be made to fail: before a push is looked at, when it has been applied and
// nothing sent, before it is passed down, before it is acknowledged, before a copy is handed out.
inline constexpr const char* kFailPush = "push";
inline constexpr const char* kFailApply = "apply";
inline constexpr const char* kFailReplicate = "replicate";
inline constexpr const char* kFailAcknowledge = "acknowledge";
inline constexpr const char* kFailRebalance = "rebalance";

// What a process adds to the loop; each may be empty. The tick is called on the loop's thread, the
// others on the executor of the shard that they are about.
struct ServerHooks {
  // The newest snapshot of a shard that this server can read and has verified; its bytes.
  std::function<ReadableSnapshot(std::size_t shard)> offer;
  std::function<absl::StatusOr<std::string>(std::size_t shard, const StateId& id)> load;
  // Every few milliseconds, also while nothing arrives. False: stop here, as if killed.
  std::function<bool()> tick;
  // True: stop here, as if killed. (A program's does not return.)
  std::function<bool(std::string_view point)> fail;
  // An update was applied, and its answers made, within so many seconds.
  std::function<void(double seconds)> applied;
};

// What a server was sent by clients, ever.
struct ServerCounts {
  std::int64_t pushes = 0;
  std::int64_t reads = 0;
};

// What others than its executor know of a shard: all of one moment, a few milliseconds ago at most.
struct ShardStatus {
  std::optional<StateId> state;
  ServerPhase phase = ServerPhase::kOut;
  ViewNumber fence = 0;
  bool cached = false;
  bool open = false;
  LeaseLedger ledger;
  std::int64_t index = 0;
  std::uint64_t bytes = 0;
  std::map<Version, std::int64_t> staleness;  // of what was applied
  LoadMeter load;
};

// Confined to one thread, which is executor 0 of those that it starts while it serves.
class ServerLoop {
 public:
  // One machine a shard, in the map's order. Of each client's lists of rows it keeps so many keys a
  // shard. `stopwatch` is the calling thread's and outlives it; null: it has one of its own.
  ServerLoop(MemberId id, const std::vector<ShardOptions>& shards, const Executors& executors = {},
             std::size_t kept_keys = kMostKeptKeys, observe::Stopwatch* stopwatch = nullptr);

  // Serves `views[shard]` over `mesh` until it ends (a peer is lost, Cancel), and says why. The
  // state stays for the next view.
  absl::Status Serve(const std::vector<ShardView>& views, const Ranks& ranks, transport::Mesh& mesh,
                     const ServerHooks& hooks = {});
  // From the tick, while serving: asks the shard's chain for a copy to keep.
  void FetchAhead(std::size_t shard);
  // From the tick: `look` is called on the shard's executor, between two messages; what was handed
  // to that executor before has been handled. It is called even if serving ends first.
  void Look(std::size_t shard, std::function<void(const ChainServer& machine)> look);

  std::shared_ptr<const ShardStatus> status(std::size_t shard) const;
  // What the executor does that has stood in its work for longest. Thread-safe; to be asked several
  // times a second.
  membership::Standing Standing() const;
  // Where loads are measured from.
  static double Seconds();
  // Not while it serves on several executors.
  const ChainServer& shard(std::size_t shard) const { return *shards_[shard]->machine; }
  std::size_t shards() const { return shards_.size(); }
  const ServerCounts& counts() const { return counts_; }

 private:
  struct Shard {
    // The executor's.
    std::unique_ptr<ChainServer> machine;
    RowReceiver rows;
    ExecutorWork work;
    LoadMeter load;
    bool changed = false;  // since it was last published
    net::Deadline publish_at = net::Deadline::After(absl::ZeroDuration());

    mutable sync::Mutex mutex;
    std::shared_ptr<const ShardStatus> status ABSL_GUARDED_BY(mutex);
  };
  // What the running Serve works with.
  struct Session {
    const std::vector<ShardView>& views;
    const Ranks& ranks;
    transport::Mesh& mesh;
    MessageChannel& messages;
    const ServerHooks& hooks;
    std::vector<int> executor_of = {};                     // by shard
    std::vector<std::vector<std::size_t>> shards_of = {};  // by executor
    std::atomic<bool> failed = false;
    // A message that its executor has no room for; nothing is received before it is in.
    std::function<void()> held = nullptr;
    std::size_t held_bytes = 0;
    std::size_t held_executor = 0;
    std::vector<std::unique_ptr<Executor>> executors =
        {};  // of executor 1 and up; the others outlive them
  };

  // Of the carrying thread.
  void StartExecutors(Session& session);
  absl::Status Carry(Session& session);
  absl::StatusOr<std::optional<Delivery>> Receive(Session& session, net::Deadline deadline);
  void Handle(Delivery delivery, Session& session);
  // Hands on what is held; false if there is no room for it yet at `deadline`.
  bool HandOn(Session& session, net::Deadline deadline);
  void Call(std::size_t shard, std::function<void()> call);
  observe::Stopwatch& StopwatchOf(std::size_t shard) const;

  // Of the shard's executor.
  void Begin(std::size_t shard, Session& session);
  void Unpack(std::size_t shard, const Message& message, Session& session);
  void Feed(std::size_t shard, const Message& message, Session& session);
  void LoadIfWanted(std::size_t shard, Session& session);
  static bool Fails(Session& session, const char* point);
  void PostAll(Session& session, std::size_t shard, const Sends& sends);
  void Touch(std::size_t shard);
  absl::Duration PublishDue(const std::vector<std::size_t>& shards);
  void Publish(std::size_t shard);

  const MemberId id_;
  const Executors executors_;
  std::vector<std::unique_ptr<Shard>> shards_;
  const clock::SystemClock clock_;
  std::vector<std::unique_ptr<observe::Stopwatch>> own_stopwatches_;
  std::vector<observe::Stopwatch*> stopwatches_;  // by executor
  ServerCounts counts_;
  Session* session_ = nullptr;
};

}  // namespace starling::parameter_server
