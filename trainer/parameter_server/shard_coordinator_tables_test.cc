// SPDX-License-Identifier: Apache-2.0
// What the tables of a job are, where they lie, and who may be in it with which.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/shard_cluster.h"

namespace starling::parameter_server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr std::int64_t kOthers = kSamples - 1;  // samples in files that are not the job's

std::int64_t SamplesToldTo(Cluster& cluster, const std::string& name) {
  cluster.Obey(cluster[name]);
  return cluster[name].told.layout().samples();
}

TEST(ShardCoordinator, TheTablesThatServersHaveMadeStayThoughANewWorkerBringsOtherFiles) {
  Cluster cluster(1, 2);
  cluster.Start("s0");
  cluster.Start("w0");
  cluster.Settle();  // the first view waits for the second server
  ASSERT_TRUE(cluster["s0"].tables);
  ASSERT_EQ(cluster.Look().newest_view, 0U);
  cluster.NewCoordinator();
  cluster["w0"].samples = kOthers;
  cluster.Start("s1");
  for (const char* name : {"w0", "s0", "s1"}) cluster.Meet(name);
  EXPECT_EQ(SamplesToldTo(cluster, "w0"), kSamples);
}

TEST(ShardCoordinator, WhereServersHaveForgottenTheTablesAreThoseOfAWorkerThatIsInAView) {
  Cluster cluster = Cluster::Running(2, 1);
  cluster.NewCoordinator();
  for (const char* name : {"s0", "w0"}) cluster.Start(name);
  cluster["w0"].samples = kOthers;
  for (const char* name : {"s0", "w0", "w1"}) cluster.Meet(name);
  EXPECT_EQ(SamplesToldTo(cluster, "w0"), kSamples);
}

TEST(ShardCoordinator, WithoutAnyTheTablesAreThoseOfTheFirstWorkerByItsIndex) {
  Cluster cluster(0, 1);
  cluster.AddPod("w", kWorkerRole, 2);
  cluster.AddPod("w", kWorkerRole, 10);  // by its name it is the first
  cluster.desired_.workers = 2;
  ++cluster.incarnation_;  // a successor hears everyone before it does anything
  cluster.NewCoordinator();
  for (const char* name : {"s0", "w10", "w2"}) cluster.Start(name);
  cluster["w10"].samples = kOthers;
  for (const char* name : {"w10", "w2", "s0"}) cluster.Meet(name);
  EXPECT_EQ(SamplesToldTo(cluster, "w10"), kSamples);
}

TEST(ShardCoordinator, WhatAProcessHadThatIsReplacedDoesNotCount) {
  Cluster cluster(1, 1);
  ++cluster.incarnation_;
  cluster.NewCoordinator();
  cluster.Start("w0").samples = kOthers;
  cluster.Meet("w0");
  cluster.Start("w0");
  cluster.Meet("w0");
  cluster.Start("s0");
  cluster.Meet("s0");
  EXPECT_EQ(SamplesToldTo(cluster, "w0"), kSamples);
}

TEST(ShardCoordinator, AJobThatCannotGoOnSaysSoOnceAndNotAgain) {
  Cluster cluster(1, 1);
  cluster.options_.tables = [](const Layout&) {
    return absl::InvalidArgumentError("no such table");
  };
  cluster.NewCoordinator();
  cluster.Start("s0");
  cluster.Start("w0");
  cluster.Settle();
  EXPECT_EQ(cluster.Look().training.failure, "no such table");
  EXPECT_EQ(cluster["s0"].told.layout().samples(), kSamples);
  const std::uint64_t version = cluster.coordinator_->directives_version();
  cluster.Advance(absl::Seconds(0.2));
  EXPECT_EQ(cluster.coordinator_->directives_version(), version);
}

// Where shards lie.

std::vector<MemberId> ServersOf(const Cluster& cluster) {
  std::vector<MemberId> ids;
  for (const membership::ViewMember& server : cluster.coordinator_->view()->servers())
    ids.push_back(server.id);
  return ids;
}

TEST(ShardCoordinator, ShardsLieWhereTheirSizesAllow) {
  pb::TrainingJobSpec spec = Spec();
  spec.mutable_exchange()->mutable_parameter_server()->set_replication(1);
  Cluster cluster(1, 2, spec);
  std::optional<JobTables> tables;
  // One of the two is as large as nothing else: it shares its server with nobody.
  cluster.options_.tables = [&](const Layout& layout) -> absl::StatusOr<JobTables> {
    absl::StatusOr<JobTables> made = TablesOf(spec, layout);
    if (!made.ok()) return made;
    ShardOptions& large = made->shards[0];
    large.range.end = large.range.begin + 100 * large.range.size();
    made->ids[0].range = large.range;
    tables = *made;
    return made;
  };
  cluster.NewCoordinator();
  for (const Pod& pod : cluster.pods_) cluster.Start(pod.name);
  cluster.Settle();
  ASSERT_NE(cluster.coordinator_->view(), nullptr);
  const Chains chains = Place(tables->ids, ServersOf(cluster), WeightsOf(*tables), 1);
  ASSERT_NE(chains, Place(tables->ids, ServersOf(cluster), {}, 1)) << "choose other sizes";
  for (std::size_t shard = 0; shard < tables->ids.size(); ++shard) {
    EXPECT_EQ(cluster.coordinator_->view()->groups[shard].members, chains.at(tables->ids[shard]));
  }
}

TEST(ShardCoordinator, WhatStandsBeforeThePlanSaysWhereShardsLie) {
  Cluster cluster(1, 1);
  std::shared_ptr<membership::Placement> plan;
  cluster.options_.placement = [&](std::shared_ptr<membership::Placement> shards) {
    plan = shards;
    return shards;
  };
  cluster.NewCoordinator();
  for (const Pod& pod : cluster.pods_) cluster.Start(pod.name);
  cluster.Settle();
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->groups(), cluster.coordinator_->view()->groups.size());
}

TEST(ShardCoordinator, WhoIsToServeAShardFetchesItAheadWhileTheViewRuns) {
  Cluster cluster = Cluster::Running(1, 1);
  cluster.Work("w0");
  cluster.Settle();
  cluster.cached_ = {};
  cluster.AddPod("s", kServerRole, 1);
  cluster.desired_.servers = 2;
  cluster.Want();
  cluster.Start("s1");
  cluster.Settle();
  EXPECT_THAT(cluster["s1"].told.fetch_ahead(), ElementsAre(0, 1, 2));
  EXPECT_THAT(cluster["s0"].told.fetch_ahead(), IsEmpty());
  cluster["s0"].broken = true;
  cluster.Report("s0");
  cluster.Obey(cluster["s1"]);
  EXPECT_THAT(cluster["s1"].told.fetch_ahead(), IsEmpty()) << "the view does not run";
}

TEST(ShardCoordinator, ShardsMoveWithoutTheSlowestCacheAfterSoLong) {
  Cluster cluster(1, 1);
  cluster.options_.ahead_patience = absl::Seconds(2);
  cluster.NewCoordinator();
  for (const char* name : {"s0", "w0"}) cluster.Start(name);
  cluster.Settle();
  cluster.Work("w0");
  cluster.Settle();
  cluster.cached_ = {true, true, false};
  cluster.AddPod("s", kServerRole, 1);
  cluster.desired_.servers = 2;
  cluster.Want();
  cluster.Start("s1");
  cluster.Settle();
  const auto chain = [&](std::size_t shard) {
    return cluster.coordinator_->view()->groups[shard].members;
  };
  cluster.Advance(absl::Seconds(1.5));
  EXPECT_THAT(chain(0), SizeIs(1));
  cluster.Advance(absl::Seconds(1));
  EXPECT_THAT(chain(0), SizeIs(2));
  EXPECT_THAT(chain(2), SizeIs(1));
}

TEST(ShardCoordinator, AServerIsTooBusyForAsLongAsTheBalanceSays) {
  pb::TrainingJobSpec spec = Spec();
  spec.mutable_exchange()->mutable_parameter_server()->set_replication(1);
  Cluster cluster(1, 2, spec);
  cluster.options_.balance.patience = absl::Seconds(1);
  cluster.NewCoordinator();
  for (const Pod& pod : cluster.pods_) cluster.Start(pod.name);
  cluster.Settle();
  const std::vector<ReplicaGroup> before = cluster.coordinator_->view()->groups;
  // Two of the three shards are one server's, and they are hot.
  const MemberId& busy = before[2].members[0];
  for (std::size_t shard = 0; shard < 3; ++shard) {
    cluster.loads_[shard] = before[shard].members[0] == busy ? 50'000'000 : 1'000'000;
  }
  cluster.Advance(absl::Seconds(0.9));
  EXPECT_EQ(cluster.coordinator_->view()->groups[2].members, before[2].members);
  cluster.Advance(absl::Seconds(0.6));
  const std::vector<ReplicaGroup>& after = cluster.coordinator_->view()->groups;
  EXPECT_TRUE(std::ranges::any_of(after, [](const ReplicaGroup& group) { return group.by_load; }));
}

// Who may be in it.

TEST(ShardCoordinator, WhileNoServerIsWantedNothingBegins) {
  Cluster cluster(1, 1);
  cluster.desired_.servers = 0;
  cluster.Want();
  for (const char* name : {"s0", "w0"}) cluster.Start(name);
  cluster.Advance(absl::Seconds(2));
  EXPECT_EQ(cluster.coordinator_->view(), nullptr);
  EXPECT_EQ(cluster.Look().waiting, "");
  cluster.desired_.servers = 1;
  cluster.Want();
  cluster.Settle();
  EXPECT_NE(cluster.coordinator_->view(), nullptr);
}

TEST(ShardCoordinator, AReportThatSaysNothingOfWorkGivesNothingBack) {
  Cluster cluster = Cluster::Running(2, 1);
  cluster.Work("w0");
  cluster.Settle();
  const std::set<Lease> held = cluster["w0"].held;
  ASSERT_THAT(held, Not(IsEmpty()));
  membership::Report report = cluster.ReportOf(cluster["w0"]);
  report.parameter_server.clear();
  cluster.Say(report);
  cluster.Obey(cluster["w0"]);
  EXPECT_EQ(cluster["w0"].held, held);
}

}  // namespace
}  // namespace starling::parameter_server
