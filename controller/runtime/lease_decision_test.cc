// SPDX-License-Identifier: Apache-2.0
// Who leads: the rules by tables, the elector against a store, and two of them against each other.
#include "controller/runtime/lease_decision.h"

#include <nlohmann/json.hpp>

#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/objects.h"
#include "controller/runtime/leader_elector.h"
#include "controller/testing/faulty_kube_client.h"
#include "gtest/gtest.h"

namespace starling::runtime {
namespace {

using kube::Json;

const absl::Time kStart = absl::FromUnixSeconds(1'000);
const ElectionOptions kMe{.identity = "me"};

LeaseRecord Held(const std::string& holder, int seconds = 15) {
  return {"1", holder, absl::Seconds(seconds), 3, ""};
}

ElectionState Standby(std::optional<LeaseRecord> lease) {
  ElectionState state;
  Observe(kMe, std::move(lease), kStart, state);
  return state;
}

ElectionState Leading() {
  ElectionState state;
  NoteHeld(Held("me"), kStart, state);
  return state;
}

struct Case {
  const char* name;
  ElectionState state;
  absl::Duration later;
  ElectionAct act;
};

TEST(LeaseDecision, EveryStateHasItsAct) {
  ElectionState gone = Leading();
  Observe(kMe, Held("other"), kStart, gone);
  const Case cases[] = {
      {"nothing is known yet", {}, absl::ZeroDuration(), ElectionAct::kRead},
      {"there is no lease", Standby(std::nullopt), absl::ZeroDuration(), ElectionAct::kCreate},
      {"it was given back", Standby(Held("")), absl::ZeroDuration(), ElectionAct::kTake},
      {"another holds it", Standby(Held("other")), absl::ZeroDuration(), ElectionAct::kRead},
      {"not renewed for nearly its duration", Standby(Held("other")),
       absl::Seconds(15) - absl::Nanoseconds(1), ElectionAct::kRead},
      {"not renewed for its duration", Standby(Held("other")), absl::Seconds(15),
       ElectionAct::kTake},
      {"its holder asked for a longer timeout", Standby(Held("other", 40)), absl::Seconds(39),
       ElectionAct::kRead},
      {"a longer timeout has its end too", Standby(Held("other", 40)), absl::Seconds(40),
       ElectionAct::kTake},
      {"a holder's short duration does not shorten ours", Standby(Held("other", 1)),
       absl::Seconds(14), ElectionAct::kRead},
      {"taken by a write whose answer was lost", Standby(Held("me")), absl::ZeroDuration(),
       ElectionAct::kRenew},
      {"ours and young", Leading(), absl::Seconds(2) - absl::Nanoseconds(1), ElectionAct::kWait},
      {"ours and to be renewed", Leading(), absl::Seconds(2), ElectionAct::kRenew},
      {"renewals fail", Leading(), absl::Seconds(10) - absl::Nanoseconds(1), ElectionAct::kRenew},
      {"renewals failed for too long", Leading(), absl::Seconds(10), ElectionAct::kStop},
      {"another has taken it", gone, absl::ZeroDuration(), ElectionAct::kStop}};
  for (const Case& one : cases) {
    EXPECT_EQ(DecideElection(kMe, one.state, kStart + one.later).act, one.act) << one.name;
  }
}

TEST(LeaseDecision, AnyChangeOfTheLeaseIsASignOfLife) {
  ElectionState state = Standby(Held("other"));
  LeaseRecord renewed = Held("other");
  renewed.version = "2";
  Observe(kMe, renewed, kStart + absl::Seconds(14), state);
  EXPECT_EQ(DecideElection(kMe, state, kStart + absl::Seconds(28)).act, ElectionAct::kRead);
  // Negative control: reading the same lease again is none.
  Observe(kMe, renewed, kStart + absl::Seconds(28), state);
  EXPECT_EQ(DecideElection(kMe, state, kStart + absl::Seconds(29)).act, ElectionAct::kTake);
}

TEST(LeaseDecision, ALeaderStopsWritingBeforeAnyoneMayTakeItsLease) {
  const ElectionState leader = Leading();
  ElectionState other;
  Observe({.identity = "other"}, Held("me"), kStart, other);
  for (absl::Duration later; later < absl::Seconds(20); later += absl::Milliseconds(50)) {
    const bool may_write = MayWrite(kMe, leader, kStart + later);
    const ElectionAct act = DecideElection({.identity = "other"}, other, kStart + later).act;
    EXPECT_FALSE(may_write && act == ElectionAct::kTake) << later;
  }
}

TEST(LeaseDecision, TimesThatWouldLetTwoLeadAreRefused) {
  EXPECT_TRUE(CheckElection(kMe).ok());
  ElectionOptions wrong = kMe;
  wrong.renew_deadline = wrong.duration;
  EXPECT_FALSE(CheckElection(wrong).ok());
  wrong = kMe;
  wrong.retry = wrong.renew_deadline;
  EXPECT_FALSE(CheckElection(wrong).ok());
  wrong = kMe;
  wrong.retry = absl::ZeroDuration();
  EXPECT_FALSE(CheckElection(wrong).ok());
}

class LeaderElectorTest : public testing::Test {
 protected:
  Json Lease() { return *store_->Get(kube::kLease, {"starling-system", "starling-controller"}); }
  void Pass(absl::Duration time) { clock_.Advance(time); }

  clock::FakeClock clock_;
  std::unique_ptr<kube::KubeClient> store_ = *kube::OpenEmbeddedKubeClient(clock_, {});
  kube::FaultyKubeClient to_a_{*store_};
  LeaderElector a_{to_a_, clock_, {.identity = "a"}};
  LeaderElector b_{*store_, clock_, {.identity = "b"}};
};

TEST_F(LeaderElectorTest, TheFirstLeadsAndRenewsAndTheOtherWaits) {
  for (int i = 0; i < 20; ++i) {
    a_.Turn();
    b_.Turn();
    Pass(absl::Seconds(2));
  }
  EXPECT_EQ(a_.standing(), Standing::kLeader);
  EXPECT_EQ(a_.transition(), 1);
  EXPECT_EQ(b_.standing(), Standing::kStandby);
  EXPECT_EQ(b_.holder(), "a");
  EXPECT_FALSE(b_.MayWrite());
  EXPECT_EQ(kube::IntAt(Lease(), "/spec/leaseDurationSeconds"), 15);
}

TEST_F(LeaderElectorTest, ALeaseThatIsGivenBackIsTakenAtOnce) {
  a_.Turn();
  b_.Turn();
  ASSERT_TRUE(a_.Release().ok());
  EXPECT_EQ(kube::StringAt(Lease(), "/spec/holderIdentity"), "");
  EXPECT_FALSE(a_.MayWrite());
  b_.Turn();
  EXPECT_EQ(b_.standing(), Standing::kLeader);
  EXPECT_EQ(b_.transition(), 2);
  a_.Turn();
  EXPECT_EQ(a_.standing(), Standing::kLost) << "a process leads once";
}

TEST_F(LeaderElectorTest, ALeaderThatIsStoppedBeyondItsLeaseWakesWithoutPower) {
  a_.Turn();
  ASSERT_TRUE(a_.MayWrite());
  for (int i = 0; i < 9; ++i) {
    Pass(absl::Seconds(2));
    b_.Turn();
  }
  ASSERT_EQ(b_.standing(), Standing::kLeader);
  EXPECT_FALSE(a_.MayWrite()) << "before it has asked anyone";
  EXPECT_EQ(a_.standing(), Standing::kLost);
  const std::string version = kube::ResourceVersionOf(Lease());
  a_.Turn();
  ASSERT_TRUE(a_.Release().ok());
  EXPECT_EQ(kube::ResourceVersionOf(Lease()), version) << "what b holds is not a's to write";
}

TEST_F(LeaderElectorTest, ALeaderThatCannotReachTheServerGivesUpBeforeItsLeaseEnds) {
  a_.Turn();
  to_a_.FailWritesThat([](const auto&, auto) { return true; }, kube::Fault::kRefuse);
  for (int i = 0; i < 4; ++i) {
    Pass(absl::Seconds(2));
    a_.Turn();
  }
  EXPECT_EQ(a_.standing(), Standing::kLeader) << "8 s";
  Pass(absl::Seconds(2));
  EXPECT_EQ(a_.standing(), Standing::kLost) << "10 s";
  b_.Turn();
  EXPECT_EQ(b_.standing(), Standing::kStandby);
}

TEST_F(LeaderElectorTest, ARenewalWhoseAnswerWasLostCostsNothing) {
  a_.Turn();
  Pass(absl::Seconds(2));
  to_a_.FailWrite(1, kube::Fault::kUnknownResult);
  a_.Turn();
  Pass(absl::Seconds(2));
  a_.Turn();
  Pass(absl::Seconds(9));
  EXPECT_EQ(a_.standing(), Standing::kLeader);
}

TEST_F(LeaderElectorTest, ALeaseTakenByAWriteWhoseAnswerWasLostIsOurs) {
  to_a_.FailWrite(1, kube::Fault::kUnknownResult);
  a_.Turn();
  EXPECT_EQ(a_.standing(), Standing::kStandby);
  a_.Turn();
  EXPECT_EQ(a_.standing(), Standing::kLeader);
  EXPECT_EQ(a_.transition(), 1);
}

TEST_F(LeaderElectorTest, OfTwoThatTakeItAtTheSameTimeOneLeads) {
  b_.Turn();
  ASSERT_TRUE(b_.Release().ok());
  LeaderElector c(*store_, clock_, {.identity = "c"});
  a_.Turn();
  c.Turn();
  EXPECT_EQ(a_.standing(), Standing::kLeader);
  EXPECT_EQ(c.standing(), Standing::kStandby);
  EXPECT_EQ(a_.transition(), 2);
}

}  // namespace
}  // namespace starling::runtime
