// SPDX-License-Identifier: Apache-2.0
// What a kind of job may add to a coordinator and peers do not: groups of which nothing is known at
// first, several of them, servers, and views that are looked for seldom.
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/membership/coordinator.h"

namespace starling::membership {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Shards that lie on the servers that the test names.
class NamedPlacement final : public Placement {
 public:
  explicit NamedPlacement(std::vector<std::string> servers) : servers_(std::move(servers)) {}

  std::size_t groups() const override { return servers_.size(); }
  Role role() const override { return Role::kServer; }
  std::string Kept(std::size_t) const override { return "its shard"; }
  std::vector<ReplicaGroup> Repair(const Scene& /*scene*/, std::string& /*waiting*/) override {
    std::vector<ReplicaGroup> groups(servers_.size());
    for (std::size_t i = 0; i < groups.size(); ++i) groups[i].members = {{servers_[i], 0}};
    return groups;
  }
  std::vector<ReplicaGroup> Plan(const Scene& scene) override {
    std::string waiting;
    return Repair(scene, waiting);
  }

  std::vector<std::string> servers_;
};

// A process says of every group what it says of its state.
class GivenCoordinator final : public Coordinator {
 public:
  GivenCoordinator(CoordinatorOptions options, absl::Duration replan)
      : Coordinator(std::move(options), {kWorkerRole, kServerRole}, /*settled=*/-1, replan) {}

  std::vector<std::shared_ptr<Placement>> placements_;  // none: they are not known yet
  bool idle_ = false;
  int pods_changed_ = 0;

 private:
  void Hear(const Report& report, Participant& said, absl::Time /*now*/) override {
    said.phase = report.phase;
    said.groups.assign(2, {.state = report.state});
  }
  std::vector<std::shared_ptr<Placement>> MakePlacements() override { return placements_; }
  void Admit(Roster& roster) override { roster.idle = idle_; }
  void Work(absl::Time /*now*/) override {}
  bool Stopped() const override { return false; }
  void FillTraining(Summary& /*summary*/) const override {}
  void OnPodsChanged() override { ++pods_changed_; }
};

// Pods whose UIDs begin with s are servers; their processes are what the test reports of them.
struct Job {
  explicit Job(const std::vector<std::string>& uids, std::uint64_t granted = 1,
               CoordinatorOptions options = {}, absl::Duration replan = absl::ZeroDuration())
      : incarnation(granted), coordinator(WithBootId(std::move(options)), replan) {
    for (const std::string& uid : uids) {
      const bool serves = uid[0] == 's';
      desired.pods.push_back({uid, uid, serves ? kServerRole : kWorkerRole,
                              static_cast<std::int64_t>(desired.pods.size()), "127.0.0.9",
                              PodState::kLive});
      ++(serves ? desired.servers : desired.workers);
      said[uid].id = {uid, 0};
      said[uid].highest_incarnation = granted;
    }
  }
  static CoordinatorOptions WithBootId(CoordinatorOptions options) {
    options.boot_id = "boot";
    return options;
  }
  void GrantIt(ViewNumber seen = 0) {
    coordinator.OnGrant({incarnation, "boot", desired.pods, seen}, now);
  }
  void Want() {
    ++desired.sequence;
    coordinator.OnDesired(desired, now);
  }
  void Say(const std::string& uid) {
    if (connected.insert(uid).second) coordinator.OnConnected(uid, now);
    coordinator.OnReport(uid, said.at(uid), now);
  }
  void Run(const std::vector<std::string>& uids) {
    const View view = *coordinator.view();
    for (const std::string& uid : uids) {
      Report& report = said.at(uid);
      report.installed = view;
      report.fence = view.number;
      report.phase = Phase::kRun;
      report.state = {view.number, 1};
      Say(uid);
    }
  }
  void Abort(const std::string& uid, const std::vector<std::string>& unreachable) {
    said.at(uid).phase = Phase::kAborted;
    said.at(uid).unreachable.clear();
    for (const std::string& other : unreachable) said.at(uid).unreachable.push_back({other, 0});
    Say(uid);
  }
  // All who are connected go on reporting, except the mute.
  void Pass(absl::Duration time, const std::set<std::string>& mute = {}) {
    for (const absl::Time end = now + time; now < end;) {
      now = std::min(end, now + absl::Milliseconds(100));
      for (const std::string& uid : std::set<std::string>(connected)) {
        if (!mute.contains(uid)) Say(uid);
      }
      coordinator.OnTick(now);
    }
  }
  ViewNumber Number() const {
    return coordinator.view() == nullptr ? 0 : coordinator.view()->number;
  }
  std::vector<std::string> Members() const {
    std::vector<std::string> members;
    for (const ViewMember& member : coordinator.view()->members) {
      members.push_back(member.id.pod_uid);
    }
    return members;
  }

  std::uint64_t incarnation;
  absl::Time now = absl::FromUnixSeconds(1000);
  Desired desired;
  std::map<std::string, Report> said;
  std::set<std::string> connected;
  GivenCoordinator coordinator;
};

std::shared_ptr<Placement> Lockstep() { return std::make_shared<LockstepPlacement>(); }

// Groups that are known late. ---------------------------------------------------------------------

View Told(ViewNumber number, const std::vector<std::string>& uids) {
  std::vector<ViewMember> members;
  for (const std::string& uid : uids) members.push_back({{uid, 0}, "", number, uid});
  return ViewOfPeers(number, std::move(members));
}

// A successor to which w0 tells of a view in which it ran, and of which the groups are not known.
Job SuccessorThatKnowsNoGroups(ViewNumber seen) {
  Job job({"w0"}, /*granted=*/2);
  job.GrantIt(seen);
  job.said.at("w0").installed = Told(MakeViewNumber(1, 4), {"w0"});
  job.said.at("w0").fence = MakeViewNumber(1, 4);
  job.said.at("w0").state = {MakeViewNumber(1, 4), 7};
  job.said.at("w0").phase = Phase::kAborted;
  return job;
}

TEST(CoordinatorKinds, WhatWasSaidBeforeTheGroupsWereKnownCountsAsSoonAsTheyAre) {
  for (const std::uint64_t seen : {4, 5}) {
    Job job = SuccessorThatKnowsNoGroups(MakeViewNumber(1, seen));
    job.Want();
    job.Say("w0");
    EXPECT_EQ(job.Number(), 0U);
    job.coordinator.placements_ = {Lockstep()};
    job.coordinator.OnTick(job.now);
    ASSERT_EQ(job.Number(), MakeViewNumber(2, 1)) << "the one before has broken";
    EXPECT_EQ(job.coordinator.view()->groups[0].since[0].number, MakeViewNumber(1, 4));
    EXPECT_EQ(job.coordinator.view()->groups[0].restore, seen == 5) << "nobody tells of that view";
  }
}

TEST(CoordinatorKinds, TheNewestViewIsKnownBeforeTheControllerSaysWhatItWants) {
  Job job = SuccessorThatKnowsNoGroups(/*seen=*/0);
  job.coordinator.placements_ = {Lockstep()};
  job.Say("w0");
  EXPECT_EQ(job.coordinator.MakeSummary(job.now).newest_view, MakeViewNumber(1, 4));
}

TEST(CoordinatorKinds, WhileNoGroupsAreKnownWhoWasGivenUpMayReturn) {
  Job job({"w0"}, /*granted=*/2);
  job.GrantIt();
  job.Want();
  job.Pass(absl::Seconds(30));
  ASSERT_THAT(job.coordinator.assumed_terminated(), ElementsAre("w0"));
  job.said.at("w0").installed = Told(MakeViewNumber(1, 4), {"w0"});
  job.Say("w0");
  EXPECT_THAT(job.coordinator.assumed_terminated(), IsEmpty());
}

TEST(CoordinatorKinds, ItsSettingsAreThoseOfItsViews) {
  CoordinatorOptions options;
  options.first_view_grace = absl::Seconds(3);
  options.rules.incarnation_in_view_number = false;
  Job job({"w0", "w1"}, /*granted=*/1, options);
  job.coordinator.placements_ = {Lockstep()};
  job.GrantIt();
  job.Want();
  job.Say("w0");
  job.Pass(absl::Milliseconds(2999));
  EXPECT_EQ(job.Number(), 0U);
  job.Pass(absl::Milliseconds(1));
  EXPECT_EQ(job.Number(), MakeViewNumber(0, 1));
}

// What a kind says of its roster. -----------------------------------------------------------------

TEST(CoordinatorKinds, AnIdleKindBeginsNothingThoughWorkersAreWanted) {
  Job job({"w0"});
  job.coordinator.placements_ = {Lockstep()};
  job.coordinator.idle_ = true;
  job.GrantIt();
  job.Want();
  job.Say("w0");
  EXPECT_EQ(job.Number(), 0U);
  job.coordinator.idle_ = false;
  job.coordinator.OnTick(job.now);
  EXPECT_EQ(job.Number(), MakeViewNumber(1, 1));
}

TEST(CoordinatorKinds, AKindHearsThatThePodsMayHaveChanged) {
  Job job({"w0"});
  job.GrantIt();
  job.Want();
  EXPECT_EQ(job.coordinator.pods_changed_, 1);
  job.desired.sequence -= 2;
  job.Want();
  EXPECT_EQ(job.coordinator.pods_changed_, 1) << "that was older";
}

// Views that are looked for seldom. ---------------------------------------------------------------

// Looks every 10 s; w1 has just become silent, which nobody says.
Job JobThatLooksSeldom() {
  Job job({"w0", "w1", "w2"}, 1, {}, /*replan=*/absl::Seconds(10));
  job.desired.workers = 2;
  job.coordinator.placements_ = {Lockstep()};
  job.GrantIt();
  job.Want();
  job.Say("w0");
  job.Say("w1");
  job.Say("w2");
  EXPECT_THAT(job.Members(), ElementsAre("w0", "w1"));
  job.Run({"w0", "w1"});
  job.Pass(absl::Milliseconds(1100), /*mute=*/{"w1"});
  EXPECT_EQ(job.Number(), MakeViewNumber(1, 1));
  return job;
}

TEST(CoordinatorKinds, WhatNobodySaysIsNoticedWithTheNextLook) {
  Job job = JobThatLooksSeldom();
  job.Pass(absl::Seconds(8.8), {"w1"});
  EXPECT_EQ(job.Number(), MakeViewNumber(1, 1));
  job.Pass(absl::Milliseconds(100), {"w1"});
  EXPECT_EQ(job.Number(), MakeViewNumber(1, 2));
  EXPECT_THAT(job.Members(), ElementsAre("w0"));
}

TEST(CoordinatorKinds, WhateverIsSaidThatCouldMatterIsAReasonToLook) {
  const std::map<std::string, std::function<void(Job&)>> events = {
      {"desired", [](Job& job) { job.Want(); }},
      {"connected", [](Job& job) { job.coordinator.OnConnected("w2", job.now); }},
      {"disconnected", [](Job& job) { job.coordinator.OnDisconnected("w2", job.now); }},
      {"refused",
       [](Job& job) {
         job.coordinator.OnDisconnected("w1", job.now);
         job.coordinator.OnRefused("w1", job.now);
       }},
      {"leaves",
       [](Job& job) {
         job.said.at("w2").leaving = true;
         job.Say("w2");
       }},
  };
  for (const auto& [name, event] : events) {
    Job job = JobThatLooksSeldom();
    event(job);
    EXPECT_EQ(job.Number(), MakeViewNumber(1, 2)) << name;
  }
}

// Servers and clients. ----------------------------------------------------------------------------

// Its view has broken once already though all of it report.
Job JobThatBlamedOnce(std::int64_t least_workers) {
  Job job({"w0", "w1", "s0"});
  job.desired.min_workers = least_workers;
  job.coordinator.placements_ = {std::make_shared<NamedPlacement>(std::vector<std::string>{"s0"})};
  job.GrantIt();
  job.Want();
  for (const char* uid : {"w0", "w1", "s0"}) job.Say(uid);
  job.Run({"s0", "w0", "w1"});
  for (const char* uid : {"w0", "w1", "s0"}) job.Abort(uid, {});
  job.Run({"s0", "w0", "w1"});
  EXPECT_EQ(job.Number(), MakeViewNumber(1, 2));
  return job;
}

TEST(CoordinatorKinds, OfEquallyBlamedAWorkerGoesBeforeAServer) {
  Job job = JobThatBlamedOnce(/*least_workers=*/1);
  job.Abort("w0", {});
  job.Abort("s0", {});
  job.Abort("w1", {"s0", "w0"});
  ASSERT_EQ(job.Number(), MakeViewNumber(1, 3));
  EXPECT_THAT(job.Members(), ElementsAre("s0", "w1"));
  ASSERT_THAT(job.coordinator.MakeSummary(job.now).incidents, SizeIs(1));
  EXPECT_EQ(job.coordinator.MakeSummary(job.now).incidents[0].pod, "w0");
}

TEST(CoordinatorKinds, NoClientIsEvictedWhereTooFewWouldBeLeftToWork) {
  Job job = JobThatBlamedOnce(/*least_workers=*/2);
  job.Abort("w0", {});
  job.Abort("s0", {});
  job.Abort("w1", {"w0"});
  ASSERT_EQ(job.Number(), MakeViewNumber(1, 3));
  EXPECT_THAT(job.Members(), ElementsAre("s0", "w0", "w1"));
  EXPECT_THAT(job.coordinator.MakeSummary(job.now).incidents, IsEmpty());
}

// Of a shard that is to move nobody knows yet whether its holder has ended.
TEST(CoordinatorKinds, TheSilentOfEachGroupHaveTheWholeTimeToAnswer) {
  Job job({"w0", "s0", "s1", "s2"});
  const auto placement = std::make_shared<NamedPlacement>(std::vector<std::string>{"s0", "s1"});
  job.coordinator.placements_ = {placement};
  job.GrantIt();
  job.Want();
  for (const char* uid : {"w0", "s0", "s1", "s2"}) job.Say(uid);
  ASSERT_EQ(job.Number(), MakeViewNumber(1, 1));
  job.Run({"s0", "s1", "s2", "w0"});
  job.said.at("s2").state.reset();  // it has fetched nothing yet
  placement->servers_ = {"s2", "s2"};
  job.Pass(absl::Seconds(1.1), {"s0", "s1"});
  job.Pass(absl::Milliseconds(29900), {"s0", "s1"});
  EXPECT_THAT(job.coordinator.assumed_terminated(), IsEmpty());
  job.Pass(absl::Milliseconds(100), {"s0", "s1"});
  EXPECT_THAT(job.coordinator.assumed_terminated(), ElementsAre("s0"));
  job.Pass(absl::Milliseconds(29900), {"s0", "s1"});
  EXPECT_THAT(job.coordinator.assumed_terminated(), ElementsAre("s0"));
  job.Pass(absl::Milliseconds(300), {"s0", "s1"});
  EXPECT_THAT(job.coordinator.assumed_terminated(), ElementsAre("s0", "s1"));
  EXPECT_THAT(job.Members(), ElementsAre("s2", "w0"));
}

}  // namespace
}  // namespace starling::membership
