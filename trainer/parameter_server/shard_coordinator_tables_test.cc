// SPDX-License-Identifier: Apache-2.0
// What the tables of a job are, where they lie, and who may be in it with which.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/shard_fleet.h"

namespace starling::parameter_server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr std::int64_t kOthers = kSamples - 1;  // samples in files that are not the job's

std::int64_t SamplesToldTo(Fleet& fleet, const std::string& name) {
  fleet.Obey(fleet[name]);
  return fleet[name].told.layout().samples();
}

TEST(ShardCoordinator, TheTablesThatServersHaveMadeStayThoughANewWorkerBringsOtherFiles) {
  Fleet fleet(1, 2);
  fleet.Start("s0");
  fleet.Start("w0");
  fleet.Settle();  // the first view waits for the second server
  ASSERT_TRUE(fleet["s0"].tables);
  ASSERT_EQ(fleet.Look().newest_view, 0U);
  fleet.NewCoordinator();
  fleet["w0"].samples = kOthers;
  fleet.Start("s1");
  for (const char* name : {"w0", "s0", "s1"}) fleet.Meet(name);
  EXPECT_EQ(SamplesToldTo(fleet, "w0"), kSamples);
}

TEST(ShardCoordinator, WhereServersHaveForgottenTheTablesAreThoseOfAWorkerThatIsInAView) {
  Fleet fleet = Fleet::Running(2, 1);
  fleet.NewCoordinator();
  for (const char* name : {"s0", "w0"}) fleet.Start(name);
  fleet["w0"].samples = kOthers;
  for (const char* name : {"s0", "w0", "w1"}) fleet.Meet(name);
  EXPECT_EQ(SamplesToldTo(fleet, "w0"), kSamples);
}

TEST(ShardCoordinator, WithoutAnyTheTablesAreThoseOfTheFirstWorkerByItsIndex) {
  Fleet fleet(0, 1);
  fleet.AddPod("w", kWorkerRole, 2);
  fleet.AddPod("w", kWorkerRole, 10);  // by its name it is the first
  fleet.desired_.workers = 2;
  ++fleet.incarnation_;  // a successor hears everyone before it does anything
  fleet.NewCoordinator();
  for (const char* name : {"s0", "w10", "w2"}) fleet.Start(name);
  fleet["w10"].samples = kOthers;
  for (const char* name : {"w10", "w2", "s0"}) fleet.Meet(name);
  EXPECT_EQ(SamplesToldTo(fleet, "w10"), kSamples);
}

TEST(ShardCoordinator, WhatAProcessHadThatIsReplacedDoesNotCount) {
  Fleet fleet(1, 1);
  ++fleet.incarnation_;
  fleet.NewCoordinator();
  fleet.Start("w0").samples = kOthers;
  fleet.Meet("w0");
  fleet.Start("w0");
  fleet.Meet("w0");
  fleet.Start("s0");
  fleet.Meet("s0");
  EXPECT_EQ(SamplesToldTo(fleet, "w0"), kSamples);
}

TEST(ShardCoordinator, AJobThatCannotGoOnSaysSoOnceAndNotAgain) {
  Fleet fleet(1, 1);
  fleet.options_.tables = [](const Layout&) { return absl::InvalidArgumentError("no such table"); };
  fleet.NewCoordinator();
  fleet.Start("s0");
  fleet.Start("w0");
  fleet.Settle();
  EXPECT_EQ(fleet.Look().training.failure, "no such table");
  EXPECT_EQ(fleet["s0"].told.layout().samples(), kSamples);
  const std::uint64_t version = fleet.coordinator_->directives_version();
  fleet.Advance(absl::Seconds(0.2));
  EXPECT_EQ(fleet.coordinator_->directives_version(), version);
}

// Where shards lie.

std::vector<MemberId> ServersOf(const Fleet& fleet) {
  std::vector<MemberId> ids;
  for (const membership::ViewMember& server : fleet.coordinator_->view()->servers())
    ids.push_back(server.id);
  return ids;
}

TEST(ShardCoordinator, ShardsLieWhereTheirSizesAllow) {
  pb::TrainingJobSpec spec = Spec();
  spec.mutable_exchange()->mutable_parameter_server()->set_replication(1);
  Fleet fleet(1, 2, spec);
  std::optional<JobTables> tables;
  // One of the two is as large as nothing else: it shares its server with nobody.
  fleet.options_.tables = [&](const Layout& layout) -> absl::StatusOr<JobTables> {
    absl::StatusOr<JobTables> made = TablesOf(spec, layout);
    if (!made.ok()) return made;
    ShardOptions& large = made->shards[0];
    large.range.end = large.range.begin + 100 * large.range.size();
    made->ids[0].range = large.range;
    tables = *made;
    return made;
  };
  fleet.NewCoordinator();
  for (const Pod& pod : fleet.pods_) fleet.Start(pod.name);
  fleet.Settle();
  ASSERT_NE(fleet.coordinator_->view(), nullptr);
  const Chains chains = Place(tables->ids, ServersOf(fleet), WeightsOf(*tables), 1);
  ASSERT_NE(chains, Place(tables->ids, ServersOf(fleet), {}, 1)) << "choose other sizes";
  for (std::size_t shard = 0; shard < tables->ids.size(); ++shard) {
    EXPECT_EQ(fleet.coordinator_->view()->groups[shard].members, chains.at(tables->ids[shard]));
  }
}

TEST(ShardCoordinator, WhatStandsBeforeThePlanSaysWhereShardsLie) {
  Fleet fleet(1, 1);
  std::shared_ptr<membership::Placement> plan;
  fleet.options_.placement = [&](std::shared_ptr<membership::Placement> shards) {
    plan = shards;
    return shards;
  };
  fleet.NewCoordinator();
  for (const Pod& pod : fleet.pods_) fleet.Start(pod.name);
  fleet.Settle();
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->groups(), fleet.coordinator_->view()->groups.size());
}

TEST(ShardCoordinator, WhoIsToServeAShardFetchesItAheadWhileTheViewRuns) {
  Fleet fleet = Fleet::Running(1, 1);
  fleet.Work("w0");
  fleet.Settle();
  fleet.cached_ = {};
  fleet.AddPod("s", kServerRole, 1);
  fleet.desired_.servers = 2;
  fleet.Want();
  fleet.Start("s1");
  fleet.Settle();
  EXPECT_THAT(fleet["s1"].told.fetch_ahead(), ElementsAre(0, 1, 2));
  EXPECT_THAT(fleet["s0"].told.fetch_ahead(), IsEmpty());
  fleet["s0"].broken = true;
  fleet.Report("s0");
  fleet.Obey(fleet["s1"]);
  EXPECT_THAT(fleet["s1"].told.fetch_ahead(), IsEmpty()) << "the view does not run";
}

TEST(ShardCoordinator, ShardsMoveWithoutTheSlowestCacheAfterSoLong) {
  Fleet fleet(1, 1);
  fleet.options_.ahead_patience = absl::Seconds(2);
  fleet.NewCoordinator();
  for (const char* name : {"s0", "w0"}) fleet.Start(name);
  fleet.Settle();
  fleet.Work("w0");
  fleet.Settle();
  fleet.cached_ = {true, true, false};
  fleet.AddPod("s", kServerRole, 1);
  fleet.desired_.servers = 2;
  fleet.Want();
  fleet.Start("s1");
  fleet.Settle();
  const auto chain = [&](std::size_t shard) {
    return fleet.coordinator_->view()->groups[shard].members;
  };
  fleet.Advance(absl::Seconds(1.5));
  EXPECT_THAT(chain(0), SizeIs(1));
  fleet.Advance(absl::Seconds(1));
  EXPECT_THAT(chain(0), SizeIs(2));
  EXPECT_THAT(chain(2), SizeIs(1));
}

TEST(ShardCoordinator, AServerIsTooBusyForAsLongAsTheBalanceSays) {
  pb::TrainingJobSpec spec = Spec();
  spec.mutable_exchange()->mutable_parameter_server()->set_replication(1);
  Fleet fleet(1, 2, spec);
  fleet.options_.balance.patience = absl::Seconds(1);
  fleet.NewCoordinator();
  for (const Pod& pod : fleet.pods_) fleet.Start(pod.name);
  fleet.Settle();
  const std::vector<ReplicaGroup> before = fleet.coordinator_->view()->groups;
  // Two of the three shards are one server's, and they are hot.
  const MemberId& busy = before[2].members[0];
  for (std::size_t shard = 0; shard < 3; ++shard) {
    fleet.loads_[shard] = before[shard].members[0] == busy ? 50'000'000 : 1'000'000;
  }
  fleet.Advance(absl::Seconds(0.9));
  EXPECT_EQ(fleet.coordinator_->view()->groups[2].members, before[2].members);
  fleet.Advance(absl::Seconds(0.6));
  const std::vector<ReplicaGroup>& after = fleet.coordinator_->view()->groups;
  EXPECT_TRUE(std::ranges::any_of(after, [](const ReplicaGroup& group) { return group.by_load; }));
}

// Who may be in it.

TEST(ShardCoordinator, WhileNoServerIsWantedNothingBegins) {
  Fleet fleet(1, 1);
  fleet.desired_.servers = 0;
  fleet.Want();
  for (const char* name : {"s0", "w0"}) fleet.Start(name);
  fleet.Advance(absl::Seconds(2));
  EXPECT_EQ(fleet.coordinator_->view(), nullptr);
  EXPECT_EQ(fleet.Look().waiting, "");
  fleet.desired_.servers = 1;
  fleet.Want();
  fleet.Settle();
  EXPECT_NE(fleet.coordinator_->view(), nullptr);
}

TEST(ShardCoordinator, AReportThatSaysNothingOfWorkGivesNothingBack) {
  Fleet fleet = Fleet::Running(2, 1);
  fleet.Work("w0");
  fleet.Settle();
  const std::set<Lease> held = fleet["w0"].held;
  ASSERT_THAT(held, Not(IsEmpty()));
  membership::Report report = fleet.ReportOf(fleet["w0"]);
  report.parameter_server.clear();
  fleet.Say(report);
  fleet.Obey(fleet["w0"]);
  EXPECT_EQ(fleet["w0"].held, held);
}

}  // namespace
}  // namespace starling::parameter_server
