// SPDX-License-Identifier: Apache-2.0
// A lease that some shards have applied and others have not, whose worker has died: the next worker
// does it again, and only the ledgers say where it is in already. Here all who saw it are gone by
// then: the ledgers are those that new servers have copied.
//
// (A retry by the same worker does not show that: its numbers tell a push that is in as well.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "trainer/parameter_server/convert.h"
#include "trainer/testing/server_process.h"
#include "trainer/testing/visit_job.h"

namespace starling::worker {
namespace {

using ::testing::Each;
using Links = ServerCluster::Links;

constexpr std::int64_t kEpochs = 2;
constexpr std::size_t kReplication = 2;
constexpr std::size_t kServers = 4;

// A worker comes by before each batch. Thread-safe.
class Gate {
 public:
  void Pass() {
    const sync::MutexLock lock(mutex_);
    ++waiting_;
    while (!open_ && let_ == 0) changed_.Wait(mutex_);
    if (!open_) --let_;
    --waiting_;
  }
  void Close() { Set(false, 0); }
  void LetOne() { Set(false, 1); }
  void Open() { Set(true, 0); }
  bool held() {
    const sync::MutexLock lock(mutex_);
    return !open_ && let_ == 0 && waiting_ > 0;
  }

 private:
  void Set(bool open, int let) {
    const sync::MutexLock lock(mutex_);
    open_ = open;
    let_ = let;
    changed_.NotifyAll();
  }

  sync::Mutex mutex_;
  sync::Condition changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  int let_ ABSL_GUARDED_BY(mutex_) = 0;
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;
};

class ServerLedgerTest : public ClientWorkerTest {
 protected:
  ServerLedgerTest()
      : cluster_(
            Job(), VisitData(),
            [this](int) {
              return std::make_unique<VisitEngine>(kSamples, [this](std::size_t) { gate_.Pass(); });
            },
            NewJobDir(), Links::kMixed) {
    cluster_.AddServers(kServers);
    cluster_.AddWorkers(1);
  }
  ~ServerLedgerTest() override {
    gate_.Open();
    // Who stands still does not hear that the test ends.
    for (const std::string& uid : Servers()) cluster_.Resume(uid);
  }

  static v1alpha1::TrainingJobSpec Job() {
    v1alpha1::TrainingJobSpec spec = VisitJob(kEpochs);
    spec.mutable_exchange()->mutable_parameter_server()->set_replication(kReplication);
    spec.mutable_exchange()->mutable_parameter_server()->set_shards(16);
    return spec;
  }

  static std::vector<std::string> Servers() {
    std::vector<std::string> uids;
    for (std::size_t i = 0; i < kServers; ++i) {
      uids.push_back(ServerCluster::ServerUid(static_cast<int>(i)));
    }
    return uids;
  }
  // Of the parameters; the last one is the course's, which knows of no leases.
  std::vector<membership::ReplicaGroup> Shards() {
    std::vector<membership::ReplicaGroup> shards = cluster_.coordinator().view()->groups;
    shards.pop_back();
    return shards;
  }
  // The head of some shard that serves not all of them; empty: there is none.
  std::string HeadOfSome() {
    const auto shards = Shards();
    for (const auto& shard : shards) {
      const std::string& uid = shard.members.front().pod_uid;
      const auto without = [&](const auto& other) { return !HasIn(other, uid); };
      if (std::any_of(shards.begin(), shards.end(), without)) return uid;
    }
    return "";
  }
  static bool HasIn(const membership::ReplicaGroup& shard, const std::string& uid) {
    return std::any_of(shard.members.begin(), shard.members.end(),
                       [&](const membership::MemberId& id) { return id.pod_uid == uid; });
  }
  // As many servers serve, each of them some shard, and each shard has its copies. (A server comes
  // in two views, and is in no chain in the first. A worker that waits at the gate holds up the
  // second.)
  bool AwaitWhole(std::size_t servers) {
    return cluster_.Await([&] {
      const membership::View* view = cluster_.coordinator().view();
      if (view == nullptr) return false;
      const auto members = view->servers();
      const auto shards = Shards();
      const auto serves = [&](const membership::ViewMember& server) {
        return std::any_of(shards.begin(), shards.end(),
                           [&](const auto& shard) { return HasIn(shard, server.id.pod_uid); });
      };
      return members.size() == servers && cluster_.Summary().view_synced &&
             std::all_of(members.begin(), members.end(), serves) &&
             std::all_of(view->groups.begin(), view->groups.end(),
                         [](const auto& shard) { return shard.members.size() == kReplication; });
    });
  }
  // How many leases each shard has, as the tails say; 0 where none does.
  std::map<std::size_t, std::size_t> LeasesByShard() {
    std::map<std::size_t, std::size_t> leases;
    for (std::size_t shard = 0; shard < Shards().size(); ++shard) leases[shard] = 0;
    for (const std::string& uid : Servers()) {
      v1alpha1::ParameterServerReport report;
      report.ParseFromString(cluster_.ReportOf(uid).parameter_server);
      for (const v1alpha1::ShardLedger& ledger : report.ledgers()) {
        const auto found = leases.find(static_cast<std::size_t>(ledger.shard()));
        if (found == leases.end()) continue;
        const parameter_server::LeaseLedger told = parameter_server::FromProto(ledger);
        for (const auto& [first, end] : told.intervals()) found->second += end - first;
      }
    }
    return leases;
  }
  // The worker does one lease, of which a server that stands still takes nothing.
  void DoOneLeaseWithout(const std::string& server);
  void Replace(const std::string& server) {
    cluster_.Kill(server);
    ASSERT_TRUE(AwaitWhole(kServers - 1)) << "without " << server;
    cluster_.Restart(server);
    ASSERT_TRUE(AwaitWhole(kServers)) << "with a new " << server;
  }

  Gate gate_;
  ServerCluster cluster_;
  const std::string worker_ = ServerCluster::WorkerUid(0);
};

void ServerLedgerTest::DoOneLeaseWithout(const std::string& server) {
  gate_.Close();
  ASSERT_TRUE(cluster_.Await([&] { return gate_.held(); }));
  // Reports come late: what the worker has computed is in, and the first values.
  const std::size_t before = cluster_.EngineOf<VisitEngine>(0).calls().size() + 1;
  ASSERT_TRUE(cluster_.Await([&] {
    const auto leases = LeasesByShard();
    return std::all_of(leases.begin(), leases.end(),
                       [&](const auto& one) { return one.second == before; });
  })) << "nothing is on its way";
  cluster_.Stop(server);
  gate_.LetOne();
  std::size_t taken = 0, missed = 0;
  ASSERT_TRUE(cluster_.Await([&] {
    taken = missed = 0;
    bool all = true;
    for (const auto& [shard, leases] : LeasesByShard()) {
      const bool here = HasIn(Shards()[shard], server);
      (here ? missed : taken) += 1;
      all = all && leases == before + (here ? 0 : 1);
    }
    return all;
  }));
  ASSERT_GT(taken, 0U);
  ASSERT_GT(missed, 0U);
}

TEST_F(ServerLedgerTest, WhatSomeShardsHaveOfADeadWorkersLeaseIsSkippedByThoseWhoCopiedIt) {
  ASSERT_TRUE(AwaitWhole(kServers));
  ASSERT_TRUE(cluster_.AwaitSettled(20));
  const std::string still = HeadOfSome();
  ASSERT_NE(still, "");
  ASSERT_NO_FATAL_FAILURE(DoOneLeaseWithout(still));
  const auto samples = cluster_.EngineOf<VisitEngine>(0).calls().back().samples;

  cluster_.Kill(worker_);
  ASSERT_NO_FATAL_FAILURE(Replace(still));
  for (const std::string& uid : Servers()) {
    if (uid == still) continue;
    ASSERT_NO_FATAL_FAILURE(Replace(uid));
  }
  gate_.Open();
  cluster_.Restart(worker_);

  EXPECT_THAT(VisitsOf(cluster_.AwaitResult()), Each(static_cast<float>(kEpochs)));
  EXPECT_EQ(cluster_.EngineOf<VisitEngine>(0).calls().front().samples, samples)
      << "the lease was done again";
}

}  // namespace
}  // namespace starling::worker
