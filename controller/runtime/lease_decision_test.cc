// SPDX-License-Identifier: Apache-2.0
// Who leads: the rules by tables, the elector against a store, and two of them against each other.
#include "controller/runtime/lease_decision.h"

#include <atomic>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/objects.h"
#include "controller/runtime/forwarding_kube_client.h"
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
  ElectionOptions least = kMe;
  least.retry = absl::Milliseconds(10);
  EXPECT_TRUE(CheckElection(least).ok());
  least.renew_deadline = least.retry * 1.2;
  EXPECT_FALSE(CheckElection(least).ok()) << "one late renewal would be the end";
}

TEST(LeaseDecision, ARenewalIsTriedAgainSoonerThanALeaseIsLookedAt) {
  const auto wait = [](absl::Duration retry) {
    ElectionOptions options = kMe;
    options.retry = retry;
    return DecideElection(options, Leading(), kStart + absl::Seconds(9)).wait;
  };
  EXPECT_EQ(wait(absl::Seconds(2)), absl::Milliseconds(500));
  EXPECT_EQ(wait(absl::Seconds(8)), absl::Seconds(1));
}

TEST(LeaseDecision, ALeaseThatIsGoneIsLost) {
  ElectionState state = Leading();
  Observe(kMe, std::nullopt, kStart, state);
  EXPECT_FALSE(state.leads);
  EXPECT_EQ(DecideElection(kMe, state, kStart).act, ElectionAct::kStop);
}

// Counts what is read.
class Counting final : public ForwardingKubeClient {
 public:
  using ForwardingKubeClient::ForwardingKubeClient;
  absl::StatusOr<Json> Get(const kube::ResourceKind& kind, const kube::ObjectKey& key) override {
    ++gets;
    return ForwardingKubeClient::Get(kind, key);
  }
  int gets = 0;
};

class LeaderElectorTest : public testing::Test {
 protected:
  Json Lease() { return *store_->Get(kube::kLease, {"starling-system", "starling-controller"}); }
  void Pass(absl::Duration time) { clock_.Advance(time); }

  clock::FakeClock clock_;
  std::unique_ptr<kube::KubeClient> store_ = *kube::OpenEmbeddedKubeClient(clock_, {});
  kube::FaultyKubeClient to_a_{*store_};
  LeaderElector a_{to_a_, clock_, {.identity = "a"}};
  Counting to_b_{*store_};
  LeaderElector b_{to_b_, clock_, {.identity = "b"}};
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
  EXPECT_EQ(b_.transition(), 0);
  EXPECT_FALSE(b_.MayWrite());
  EXPECT_EQ(kube::IntAt(Lease(), "/spec/leaseDurationSeconds"), 15);
  EXPECT_EQ(to_a_.writes(), 20) << "one a turn";
  EXPECT_EQ(to_b_.gets, 20);
}

TEST_F(LeaderElectorTest, SaysSinceWhenItLeadsAndWhenItLastSaidSo) {
  const auto time = [this](const char* field) {
    return kube::StringAt(Lease(), absl::StrCat("/spec/", field));
  };
  a_.Turn();
  const std::string begun = time("acquireTime");
  EXPECT_EQ(begun, kube::FormatMicroTimestamp(clock_.WallNow()));
  Pass(absl::Seconds(2));
  a_.Turn();
  EXPECT_EQ(time("acquireTime"), begun);
  EXPECT_EQ(time("renewTime"), kube::FormatMicroTimestamp(clock_.WallNow()));
  ASSERT_TRUE(a_.Release().ok());
  EXPECT_EQ(kube::IntAt(Lease(), "/spec/leaseDurationSeconds"), 1);
  b_.Turn();
  EXPECT_EQ(time("acquireTime"), kube::FormatMicroTimestamp(clock_.WallNow()));
}

TEST_F(LeaderElectorTest, ALeaseThatWasDeletedIsLost) {
  a_.Turn();
  ASSERT_TRUE(store_->Delete(kube::kLease, {"starling-system", "starling-controller"}, {}).ok());
  Pass(absl::Seconds(2));
  a_.Turn();
  EXPECT_EQ(a_.standing(), Standing::kLost);
}

TEST_F(LeaderElectorTest, ALeaseThatSaysNotSinceWhenSaysItFromThenOn) {
  b_.Turn();
  Json bare = Lease();
  bare["spec"].erase("acquireTime");
  ASSERT_TRUE(store_->Update(kube::kLease, bare).ok());
  LeaderElector again(*store_, clock_, {.identity = "b"});
  again.Turn();
  EXPECT_EQ(kube::StringAt(Lease(), "/spec/acquireTime"),
            kube::FormatMicroTimestamp(clock_.WallNow()));
}

TEST_F(LeaderElectorTest, ALeaseLastsASecondAtLeast) {
  LeaderElector quick(*store_, clock_, {.identity = "quick", .duration = absl::Milliseconds(900)});
  quick.Turn();
  EXPECT_EQ(kube::IntAt(Lease(), "/spec/leaseDurationSeconds"), 1);
}

TEST_F(LeaderElectorTest, TurnsAreSpreadByAFifthAtMost) {
  a_.Turn();
  for (int i = 0; i < 20; ++i) {
    const absl::Duration wait = b_.Turn();
    EXPECT_GE(wait, absl::Seconds(2));
    EXPECT_LT(wait, absl::Seconds(2.4));
  }
  to_a_.FailWritesThat([](const auto&, auto) { return true; }, kube::Fault::kRefuse);
  Pass(absl::Seconds(2));
  const absl::Duration wait = a_.Turn();
  EXPECT_GE(wait, absl::Seconds(0.5));
  EXPECT_LT(wait, absl::Seconds(0.6));
}

TEST_F(LeaderElectorTest, WhoCannotReadTheLeaseBelievesWhatItHasSeen) {
  b_.Turn();
  a_.Turn();
  to_a_.FailWrite(1, kube::Fault::kCrashBefore);
  ASSERT_FALSE(to_a_.Create(kube::kConfigMap, {{"metadata", {{"name", "x"}}}}).ok());
  Pass(absl::Seconds(2));
  a_.Turn();
  EXPECT_EQ(a_.holder(), "b");
}

// By the real clock: a thread runs it until it has lost, or is told to end.
TEST_F(LeaderElectorTest, RunsUntilItHasLostOrIsStopped) {
  const clock::SystemClock clock;
  const ElectionOptions quick{.identity = "quick",
                              .duration = absl::Seconds(60),
                              .renew_deadline = absl::Seconds(30),
                              .retry = absl::Milliseconds(10)};
  const auto until = [&](const std::function<bool()>& holds) {
    const absl::Time deadline = clock.Now() + absl::Seconds(20);
    while (!holds() && clock.Now() < deadline) std::this_thread::yield();
    EXPECT_TRUE(holds());
  };
  LeaderElector leader(*store_, clock, quick);
  std::atomic<bool> ended = false;
  std::thread run([&] {
    leader.Run();
    ended = true;
  });
  until([&] { return leader.standing() == Standing::kLeader; });
  const std::string version = kube::ResourceVersionOf(Lease());
  until([&] { return kube::ResourceVersionOf(Lease()) != version; });
  until([&] {  // as one who takes it
    Json lease = Lease();
    lease["spec"]["holderIdentity"] = "b";
    return store_->Update(kube::kLease, lease).ok();
  });
  until([&] { return ended.load(); });
  leader.Stop();
  run.join();
  EXPECT_EQ(leader.standing(), Standing::kLost);

  ElectionOptions slow = quick;
  slow.identity = "slow";
  slow.retry = absl::Hours(1);
  LeaderElector standby(*store_, clock, slow);
  std::thread wait([&] { standby.Run(); });
  until([&] { return standby.holder() == "b"; });
  standby.Stop();
  wait.join();
  EXPECT_EQ(standby.standing(), Standing::kStandby);
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
