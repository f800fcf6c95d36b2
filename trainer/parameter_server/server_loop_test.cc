// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/server_loop.h"

#include <cstring>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "trainer/optimizer/server_rules.h"
#include "trainer/testing/client_loop.h"
#include "trainer/testing/transports.h"

namespace starling::parameter_server {
namespace {

using transport::testing::Kind;
using transport::testing::Soon;
using Floats = std::vector<float>;

constexpr std::uint64_t kRows = 5000;
constexpr int kServers = 2, kWorkers = 2, kShards = 3;

ShardOptions ShardOf(const consistency::Options& model) {
  auto table = std::make_shared<TableSpec>();
  table->name = "t";
  table->kind = TableKind::kDense;
  table->rows = kRows;
  table->combine = Combine::kSum;
  table->rule = optimizer::MakeAdd();
  return {table, {0, kRows}, model, {}};
}

// Two servers and two workers over real links. Ranks 0 and 1 are the servers.
class Cluster {
 public:
  Cluster(Kind kind, const Executors& executors, const consistency::Options& model)
      : members_(kind, kServers + kWorkers) {
    for (int rank = 0; rank < kServers + kWorkers; ++rank) {
      ranks_.push_back({absl::StrCat("member-", rank), 0});
    }
    const std::vector<ShardOptions> shards(kShards, ShardOf(model));
    for (int i = 0; i < kServers; ++i) {
      servers_.push_back(std::make_unique<ServerLoop>(ranks_[i], shards, executors));
    }
    for (int i = 0; i < kWorkers; ++i) {
      clients_.push_back(std::make_unique<ClientLoop>(ranks_[kServers + i], kShards));
    }
  }

  // One view: `alive` servers chained in each shard's own order; every worker runs `body`; when all
  // have returned the view ends. Returns what the workers' bodies returned.
  std::vector<absl::Status> InView(
      ViewNumber number, const std::vector<int>& alive,
      const std::function<absl::Status(int worker, ClientLoop& client)>& body) {
    std::vector<int> present = alive;
    for (int i = 0; i < kWorkers; ++i) present.push_back(kServers + i);
    Ranks ranks;
    std::vector<transport::Peer> peers;
    for (const int member : present) {
      ranks.push_back(ranks_[member]);
      peers.push_back(members_.peers()[member]);
    }
    const std::vector<ShardView> views = ViewsOf(number, alive);
    std::vector<absl::Status> results(kWorkers);
    std::vector<std::unique_ptr<transport::Mesh>> meshes(present.size());
    transport::testing::OnEachRank(static_cast<int>(present.size()), [&](int rank) {
      auto mesh = members_[present[rank]].Open(number, peers, rank, Soon(), nullptr);
      STARLING_CHECK(mesh.ok(), mesh.status().ToString().c_str());
      meshes[rank] = *std::move(mesh);
    });
    std::vector<std::thread> servers, workers;
    for (std::size_t i = 0; i < alive.size(); ++i) {
      servers.emplace_back([&, i] { (void)servers_[alive[i]]->Serve(views, ranks, *meshes[i]); });
    }
    for (int i = 0; i < kWorkers; ++i) {
      workers.emplace_back([&, i] {
        transport::Mesh& mesh = *meshes[alive.size() + static_cast<std::size_t>(i)];
        ClientView view{number, 1, {}};
        for (const ShardView& shard : views) {
          view.shards.push_back({shard.group.members.front(), shard.group.members.back()});
        }
        results[i] = clients_[i]->Enter(view, ranks, mesh);
        if (results[i].ok()) results[i] = body(i, *clients_[i]);
      });
    }
    for (std::thread& worker : workers) worker.join();
    for (const auto& mesh : meshes) mesh->Cancel(absl::AbortedError("the view is over"));
    for (std::thread& server : servers) server.join();
    last_meshes_ = std::move(meshes);
    past_.push_back(views);
    return results;
  }

 private:
  std::vector<ShardView> ViewsOf(ViewNumber number, const std::vector<int>& alive) const {
    std::vector<ShardView> views(kShards);
    for (int shard = 0; shard < kShards; ++shard) {
      membership::ReplicaGroup& group = views[shard].group;
      group.epoch = number;
      for (std::size_t i = 0; i < alive.size(); ++i) {
        const std::size_t at = (i + static_cast<std::size_t>(shard)) % alive.size();
        group.members.push_back(ranks_[alive[at]]);
      }
      for (const std::vector<ShardView>& past : past_) {
        membership::PastView& known = group.since.emplace_back();
        known.number = past[shard].group.epoch;
        known.members = past[shard].group.members;
      }
      for (int i = 0; i < kWorkers; ++i) views[shard].clients.push_back({ranks_[kServers + i], 1});
    }
    return views;
  }

  transport::testing::Members members_;
  Ranks ranks_;
  std::vector<std::unique_ptr<ServerLoop>> servers_;
  std::vector<std::unique_ptr<ClientLoop>> clients_;
  std::vector<std::vector<ShardView>> past_;
  std::vector<std::unique_ptr<transport::Mesh>> last_meshes_;
};

Entry Ones(Clock clock) {
  const Floats ones(kRows, 1);
  Entry entry;
  entry.clock = clock;
  entry.update = Encode({UpdateKind::kRange, 0, 0, kRows, {}, ones, {}});
  return entry;
}

absl::StatusOr<Floats> PullAll(ClientLoop& client, std::size_t shard, Clock clock) {
  Read read;
  read.clock = clock;
  read.rows = kRows;
  auto done = client.Pull(shard, read, Soon());
  if (!done.ok()) return done.status();
  Floats values(done->values->size() / sizeof(float));
  std::memcpy(values.data(), done->values->data(), done->values->size());
  return values;
}

// Over each transport, with one executor and with three.
ShardView FirstView(const MemberId& server, const std::vector<Client>& clients) {
  ShardView view;
  view.group.epoch = 1;
  view.group.members.push_back(server);
  view.clients = clients;
  return view;
}

class ServerLoopTest : public testing::TestWithParam<std::tuple<Kind, int>> {
 protected:
  static Kind kind() { return std::get<0>(GetParam()); }
  static Executors executors() { return {.count = std::get<1>(GetParam()), .least_bytes = 0}; }
};
class SeveralExecutorsTest : public ServerLoopTest {};

std::string KindAndExecutors(const testing::TestParamInfo<std::tuple<Kind, int>>& test) {
  return absl::StrCat(transport::testing::KindName(std::get<0>(test.param)),
                      std::get<1>(test.param), "Executors");
}
const auto kKinds = testing::Values(Kind::kTcp, Kind::kInproc);
INSTANTIATE_TEST_SUITE_P(Kinds, ServerLoopTest, testing::Combine(kKinds, testing::Values(1, 3)),
                         KindAndExecutors);
INSTANTIATE_TEST_SUITE_P(Kinds, SeveralExecutorsTest, testing::Combine(kKinds, testing::Values(3)),
                         KindAndExecutors);

TEST_P(ServerLoopTest, PushesOfAllWorkersAreInWhatTheyPullUnderBulkSynchronous) {
  Cluster cluster(kind(), executors(), consistency::BulkSynchronous{kWorkers});
  const auto results = cluster.InView(1, {0, 1}, [](int worker, ClientLoop& client) {
    auto start = client.WaitUntilReady(Soon());
    if (!start.ok()) return start.status();
    for (Clock clock = 0; clock < 20; ++clock) {
      for (std::size_t shard = 0; shard < kShards; ++shard) {
        const auto values = PullAll(client, shard, clock);
        if (!values.ok()) return values.status();
        if (*values != Floats(kRows, static_cast<float>(kWorkers * clock))) {
          return absl::InternalError(absl::StrCat("clock ", clock, " reads ", (*values)[0]));
        }
      }
      Entry portion = Ones(clock);
      portion.lease = static_cast<Lease>(2 + clock * kWorkers + worker);
      for (std::size_t shard = 0; shard < kShards; ++shard) client.Push(shard, portion);
    }
    return client.Drain(Soon());
  });
  for (const absl::Status& result : results) EXPECT_TRUE(result.ok()) << result;
}

TEST_P(ServerLoopTest, AServersDeathLosesNothingAndCostsTheWorkersOneRetry) {
  Cluster cluster(kind(), executors(), consistency::Asynchronous{});
  // Nobody waits for acknowledgements: the view ends with pushes under way at every stage.
  const auto push = [](ClientLoop& client, Clock from, Clock to) {
    for (Clock clock = from; clock < to; ++clock) {
      for (std::size_t shard = 0; shard < kShards; ++shard) client.Push(shard, Ones(clock));
    }
  };
  auto results = cluster.InView(1, {0, 1}, [&](int, ClientLoop& client) {
    auto start = client.WaitUntilReady(Soon());
    if (!start.ok()) return start.status();
    push(client, 0, 30);
    return absl::OkStatus();
  });
  for (const absl::Status& result : results) ASSERT_TRUE(result.ok()) << result;
  // Server 0 is dead.
  results = cluster.InView(2, {1}, [&](int, ClientLoop& client) {
    push(client, 30, 40);
    return client.Drain(Soon());
  });
  for (const absl::Status& result : results) ASSERT_TRUE(result.ok()) << result;
  results = cluster.InView(3, {1}, [&](int, ClientLoop& client) {
    for (std::size_t shard = 0; shard < kShards; ++shard) {
      const auto values = PullAll(client, shard, 40);
      if (!values.ok()) return values.status();
      if (*values != Floats(kRows, 40 * kWorkers)) {
        return absl::InternalError(absl::StrCat("shard ", shard, " has ", (*values)[0]));
      }
    }
    return absl::OkStatus();
  });
  for (const absl::Status& result : results) EXPECT_TRUE(result.ok()) << result;
}

TEST_P(ServerLoopTest, NobodyPushesInAnothersName) {
  transport::testing::Members members(kind(), 2);
  auto meshes = members.OpenAll(1);
  const Ranks ranks = {{"server", 0}, {"worker", 0}};
  const Client mine{ranks[1], 1}, other{{"other", 0}, 1};
  const ShardView view = FirstView(ranks[0], {mine, other});
  ServerLoop server(ranks[0], {ShardOf(consistency::Asynchronous{})}, executors());
  std::thread serving([&] { (void)server.Serve({view}, ranks, *meshes[0]); });
  MessageChannel messages(*meshes[1]);
  for (const Client& client : {other, mine}) {
    Entry entry = Ones(0);
    entry.client = client;
    entry.sequence = 1;
    messages.Post(0, 0, Push{1, entry});
  }
  const auto answer = messages.Receive(Soon());
  ASSERT_TRUE(answer.ok() && answer->has_value());
  EXPECT_EQ(std::get<Acknowledgement>((*answer)->message).client, mine);
  meshes[0]->Cancel(absl::AbortedError("the view is over"));
  serving.join();
  EXPECT_EQ(server.shard(0).state()->LastOf(other), 0);
  EXPECT_EQ(server.shard(0).state()->LastOf(mine), 1);
}

// Another shard's push is answered while one executor is held up, and what is asked of that
// executor comes after what it was handed before.
TEST_P(SeveralExecutorsTest, AShardThatIsBusyHoldsUpNoShardOfAnotherExecutor) {
  transport::testing::Members members(kind(), 2);
  auto meshes = members.OpenAll(1);
  const Ranks ranks = {{"server", 0}, {"worker", 0}};
  const Client mine{ranks[1], 1};
  const ShardView view = FirstView(ranks[0], {mine});
  const ShardOptions shard = ShardOf(consistency::Asynchronous{});
  ServerLoop server(ranks[0], {shard, shard}, executors());
  sync::Mutex mutex;
  sync::Condition changed;
  bool looking = false, enough = false;
  std::int64_t index = -1;
  ServerHooks hooks;
  bool asked = false;
  hooks.tick = [&] {
    if (std::exchange(asked, true)) return true;
    server.Look(0, [&](const ChainServer& machine) {
      const sync::MutexLock lock(mutex);
      looking = true;
      changed.NotifyAll();
      while (!enough) changed.Wait(mutex);
      index = machine.state()->index();
    });
    return true;
  };
  std::thread serving([&] { (void)server.Serve({view, view}, ranks, *meshes[0], hooks); });
  {
    const sync::MutexLock lock(mutex);
    while (!looking) changed.Wait(mutex);
  }
  MessageChannel messages(*meshes[1]);
  Entry entry = Ones(0);
  entry.client = mine;
  entry.sequence = 1;
  messages.Post(0, 0, Push{1, entry});
  messages.Post(0, 1, Push{1, entry});
  auto answer = messages.Receive(Soon());
  ASSERT_TRUE(answer.ok() && answer->has_value());
  EXPECT_EQ((*answer)->shard, 1u);
  {
    const sync::MutexLock lock(mutex);
    enough = true;
    changed.NotifyAll();
  }
  answer = messages.Receive(Soon());
  ASSERT_TRUE(answer.ok() && answer->has_value());
  EXPECT_EQ((*answer)->shard, 0u);
  meshes[0]->Cancel(absl::AbortedError("the view is over"));
  serving.join();
  EXPECT_EQ(index, 0);  // it was asked before the push came
  EXPECT_EQ(server.status(0)->index, 1);
  EXPECT_GT(server.status(0)->load.PerSecond(ServerLoop::Seconds()), 0);
}

// Seven large pushes more than the executor's queue takes, while the executor is held up.
TEST_P(SeveralExecutorsTest, AnExecutorThatIsFarBehindKeepsNeitherTicksNorTheEndOfTheViewWaiting) {
  constexpr std::size_t kFloats = 2 << 20;  // 8 MiB each; the queue takes 64 and one more
  constexpr int kPushes = 16;
  transport::testing::Members members(kind(), 2);
  auto meshes = members.OpenAll(1);
  const Ranks ranks = {{"server", 0}, {"worker", 0}};
  const Client mine{ranks[1], 1};
  const ShardView view = FirstView(ranks[0], {mine});
  ServerLoop server(ranks[0], {ShardOf(consistency::Asynchronous{})}, executors());
  sync::Mutex mutex;
  sync::Condition changed;
  bool enough = false;
  int ticks_when_full = 0;
  bool asked = false;
  ServerHooks hooks;
  hooks.tick = [&] {
    if (!std::exchange(asked, true)) {
      server.Look(0, [&](const ChainServer&) {
        const sync::MutexLock lock(mutex);
        while (!enough) changed.Wait(mutex);
      });
    }
    const sync::MutexLock lock(mutex);
    // One push more than there is room for has been received, and no other.
    if (server.counts().pushes < 10) return true;
    EXPECT_EQ(server.counts().pushes, 10);
    ++ticks_when_full;
    changed.NotifyAll();
    return true;
  };
  absl::Status served;
  std::thread serving([&] { served = server.Serve({view}, ranks, *meshes[0], hooks); });
  std::thread pushing([&] {
    MessageChannel messages(*meshes[1]);
    const Floats values(kFloats, 1);
    Entry entry;
    entry.client = mine;
    entry.update = Encode({UpdateKind::kRange, 0, 0, kFloats, {}, values, {}});
    for (entry.sequence = 1; entry.sequence <= kPushes; ++entry.sequence) {
      messages.Post(0, 0, Push{1, entry});
    }
    (void)messages.Flush(Soon());
  });
  {
    const sync::MutexLock lock(mutex);
    const net::Deadline soon = Soon();
    while (ticks_when_full < 5 && !soon.Expired()) changed.WaitFor(mutex, soon.Remaining());
    EXPECT_GE(ticks_when_full, 5) << "the thread that carries is held up by the executor";
  }
  meshes[0]->Cancel(absl::AbortedError("the view is over"));
  meshes[1]->Cancel(absl::AbortedError("the view is over"));
  {
    const sync::MutexLock lock(mutex);
    enough = true;
    changed.NotifyAll();
  }
  serving.join();
  pushing.join();
  EXPECT_TRUE(absl::IsAborted(served)) << served;
}

TEST(ExecutorsTest, AMessageWaitsForRoomUntilItsDeadlineAndNoLonger) {
  sync::Mutex mutex;
  sync::Condition changed;
  bool go_on = false;
  int handled = 0;
  Executor executor([] { return absl::InfiniteDuration(); });
  std::function<void()> first = [&] {
    const sync::MutexLock lock(mutex);
    while (!go_on) changed.Wait(mutex);
    ++handled;
  };
  std::function<void()> second = [&] {
    const sync::MutexLock lock(mutex);
    ++handled;
    changed.NotifyAll();
  };
  ASSERT_TRUE(executor.PutMessage(first, std::size_t{65} << 20, Soon()));
  EXPECT_FALSE(executor.PutMessage(second, 1, net::Deadline::After(absl::Milliseconds(20))));
  ASSERT_TRUE(second) << "what was not taken is left";
  {
    const sync::MutexLock lock(mutex);
    EXPECT_EQ(handled, 0);
    go_on = true;
    changed.NotifyAll();
  }
  EXPECT_TRUE(executor.PutMessage(second, 1, Soon()));
  const sync::MutexLock lock(mutex);
  while (handled < 2) changed.Wait(mutex);
}

TEST(ExecutorsTest, LargeShardsAreSpreadBySizeAndSmallOnesStayWithTheThreadThatCarries) {
  constexpr std::uint64_t kMega = 1 << 20;
  const std::vector<ExecutorWork> shards = {{4 * kMega}, {100}, {kMega}, {kMega}, {2 * kMega}, {0}};
  EXPECT_EQ(ExecutorsOf(shards, {1}), std::vector<int>({0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(ExecutorsOf(shards, {2}), std::vector<int>({1, 0, 1, 1, 1, 0}));
  EXPECT_EQ(ExecutorsOf(shards, {3}), std::vector<int>({1, 0, 2, 2, 2, 0}));
  // What is only fetched ahead counts after what is served.
  const std::vector<ExecutorWork> mixed = {
      {kMega, false}, {kMega, true}, {kMega, true}, {kMega, false}};
  EXPECT_EQ(ExecutorsOf(mixed, {3}), std::vector<int>({1, 1, 2, 2}));
}

TEST(LoadMeterTest, ASteadyFlowHasItsRateAndWhatStopsIsForgotten) {
  LoadMeter meter;
  double now = 100;
  for (int i = 0; i < 2000; ++i) meter.Add(1e6, now += 0.01);
  EXPECT_NEAR(static_cast<double>(meter.PerSecond(now)), 1e8, 1e6);
  EXPECT_NEAR(static_cast<double>(meter.PerSecond(now + 2)), 1e8 / 2.718, 1e6);
  EXPECT_EQ(meter.PerSecond(now + 100), 0);
}

TEST_P(ServerLoopTest, AMalformedPushIsRejectedAndNothingElseSuffers) {
  Cluster cluster(kind(), executors(), consistency::Asynchronous{});
  const auto results = cluster.InView(1, {0, 1}, [](int worker, ClientLoop& client) {
    auto start = client.WaitUntilReady(Soon());
    if (!start.ok()) return start.status();
    Entry entry = Ones(0);
    if (worker == 0) {
      EncodedUpdate malformed = *entry.update;
      malformed.body = std::make_shared<const std::string>("not its values");
      entry.update = std::make_shared<const EncodedUpdate>(malformed);
    }
    client.Push(0, entry);
    return client.Drain(Soon());
  });
  EXPECT_EQ(results[0].code(), absl::StatusCode::kInternal) << results[0];
  EXPECT_TRUE(results[1].ok()) << results[1];
}

}  // namespace
}  // namespace starling::parameter_server
