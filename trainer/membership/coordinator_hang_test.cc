// SPDX-License-Identifier: Apache-2.0
// C7: a member whose process answers, but whose work stands still, is taken out of the view and
// told to end; the others go on.
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/scripted_peers.h"

namespace starling::membership {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kind = Standing::Kind;

ViewNumber V(std::uint64_t epoch) { return MakeViewNumber(1, epoch); }

void Does(ScriptedPeers& peers, int pod, Kind kind, double seconds) {
  peers.Of(pod).standing = {.kind = kind,
                            .where = "compute",
                            .since = absl::Seconds(seconds),
                            .usual = absl::Milliseconds(50),
                            .stretches = 100};
}

// All of view 1 run, and say that they wait.
ScriptedPeers Peers(int pods) {
  ScriptedPeers peers(pods);
  std::vector<int> all;
  for (int pod = 0; pod < pods; ++pod) {
    Does(peers, pod, Kind::kWaits, 1);
    all.push_back(pod);
  }
  peers.Say(all);
  peers.Run(all);
  return peers;
}

TEST(Hang, WhoeverHasNotContributedIsLeftBehindAndTheOthersGoOn) {
  ScriptedPeers peers = Peers(3);
  Does(peers, 1, Kind::kWorks, 1.9);
  peers.Say({0, 1, 2});
  EXPECT_EQ(peers.Number(), V(1));
  Does(peers, 1, Kind::kWorks, 2);
  const std::uint64_t told = peers.coordinator_.directives_version();
  peers.Say(1);
  EXPECT_THAT(peers.Members(), ElementsAre(0, 2));
  EXPECT_GT(peers.coordinator_.directives_version(), told);
  EXPECT_EQ(peers.Told(1).hung, ScriptedPeers::Id(1));
  EXPECT_EQ(peers.Told(0).hung, std::nullopt);
  EXPECT_EQ(peers.Told(2).hung, std::nullopt);
}

TEST(Hang, IsOneIncidentThatSaysWhereAndWhatItCost) {
  ScriptedPeers peers = Peers(3);
  Does(peers, 1, Kind::kWorks, 2);
  peers.Say(1);
  peers.Pass(absl::Milliseconds(300));
  for (const int pod : {0, 2}) peers.Of(pod).stepped = true;
  peers.Run({0, 2});
  ASSERT_THAT(peers.Look().incidents, SizeIs(1));
  const IncidentRecord incident = peers.Look().incidents[0];
  EXPECT_EQ(incident.reason, "WorkerHung");
  EXPECT_EQ(incident.pod, "w1");
  EXPECT_EQ(incident.detection, absl::Seconds(2));
  EXPECT_THAT(incident.message, HasSubstr("has stood still for 2.00 s in \"compute\""));
  EXPECT_THAT(incident.message, HasSubstr("; 2 workers go on"));
  EXPECT_EQ(incident.recovery, absl::Milliseconds(300));
}

TEST(Hang, TheNextProcessOfItsPodJoinsAndIsNotToldToEnd) {
  ScriptedPeers peers = Peers(3);
  Does(peers, 1, Kind::kWorks, 2);
  peers.Say(1);
  peers.Run({0, 2});
  peers.Refuse(1);
  EXPECT_EQ(peers.Told(1).hung, ScriptedPeers::Id(1)) << "it may be there still";
  Report next;
  next.id = {ScriptedPeers::Uid(1), 1};
  next.highest_incarnation = 1;
  next.last_exit = LastExit{.exit_code = 200, .log_tail = "#0 in a loop"};
  peers.Of(1) = next;
  peers.Say(1);
  EXPECT_EQ(peers.Told(1).hung, std::nullopt);
  EXPECT_THAT(peers.Members(), ElementsAre(0, 2, 1));
  ASSERT_THAT(peers.Look().incidents, SizeIs(1)) << "its end is no loss of its own";
  EXPECT_EQ(peers.Look().incidents[0].exit->log_tail, "#0 in a loop");
}

TEST(Hang, AMemberThatHangsWhileAViewBeginsIsFoundToo) {
  ScriptedPeers peers = Peers(3);
  Does(peers, 1, Kind::kWorks, 1);
  peers.Say(1);
  peers.Refuse(2);
  ASSERT_EQ(peers.Number(), V(2));
  ASSERT_THAT(peers.Members(), ElementsAre(0, 1));
  peers.Of(1).installed = peers.Newest();
  peers.Of(1).phase = Phase::kSync;
  Does(peers, 1, Kind::kWorks, 2);
  peers.Say({0, 1});
  EXPECT_THAT(peers.Members(), ElementsAre(0));
}

TEST(Hang, WhereTheOthersAreTooFewItEndsAllTheSame) {
  ScriptedPeers peers = Peers(2);
  peers.desired_.min_workers = 2;
  peers.Want();
  Does(peers, 1, Kind::kWorks, 2);
  peers.Say({0, 1});
  EXPECT_EQ(peers.Number(), V(1));
  EXPECT_EQ(peers.Told(1).hung, ScriptedPeers::Id(1));
  EXPECT_EQ(peers.Look().waiting, "waits for workers: 1 of at least 2 are there");
  peers.Restart(1);
  EXPECT_THAT(peers.Members(), ElementsAre(0, 1));
}

TEST(Hang, ASlowMachineReplacesNobody) {
  ScriptedPeers peers = Peers(4);
  for (int tenth = 0; tenth < 79; ++tenth) {
    for (int pod = 0; pod < 4; ++pod) Does(peers, pod, Kind::kWorks, tenth / 10.0);
    peers.Pass(absl::Milliseconds(100));
  }
  EXPECT_EQ(peers.Number(), V(1));
  EXPECT_THAT(peers.Look().incidents, IsEmpty());
}

TEST(Hang, ALongValidationReplacesNobody) {
  ScriptedPeers peers = Peers(2);
  Does(peers, 1, Kind::kAnnounced, 600);
  peers.Pass(absl::Seconds(30));
  EXPECT_EQ(peers.Number(), V(1));
  EXPECT_EQ(peers.Told(1).hung, std::nullopt);
}

TEST(Hang, AFreezeOfTheCoordinatorReplacesNobody) {
  ScriptedPeers peers = Peers(2);
  peers.Freeze(absl::Seconds(30));
  Does(peers, 1, Kind::kWorks, 3);  // as it said in the midst of it
  peers.Say({0, 1});
  Does(peers, 1, Kind::kWaits, 0);  // and what it said then
  peers.Pass(absl::Seconds(3));
  EXPECT_EQ(peers.Number(), V(1));
  EXPECT_THAT(peers.Look().incidents, IsEmpty());
}

}  // namespace
}  // namespace starling::membership
