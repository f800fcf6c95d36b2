// SPDX-License-Identifier: Apache-2.0
// Which nodes new pods are kept away from, since when and for how long.
#include <string>
#include <tuple>
#include <vector>

#include "controller/testing/test_cluster.h"
#include "controller/trainingjob/policies.h"
#include "gtest/gtest.h"

namespace starling::trainingjob {
namespace {

constexpr absl::Duration kLeast = absl::Nanoseconds(1);

// Workers on "a" and "b" and the coordinator on "a", nothing of which has failed.
class Placement : public testing::Test {
 protected:
  Placement() { InCluster(scene_); }

  absl::Time Now() const { return scene_.now; }
  Pass Look() { return Pass(scene_.seen, scene_.options, scene_.now); }

  // A pod failed on the node so long before now, which counts towards `failures` there.
  void Note(const std::string& node, std::int64_t failures, absl::Duration ago,
            absl::Duration avoided_for = absl::ZeroDuration()) {
    v1alpha1::AvoidedNode& entry = *scene_.seen.status.add_avoided_nodes();
    entry.set_name(node);
    entry.set_failures(failures);
    SetTime(entry.mutable_last_failure_time(), Now() - ago);
    if (avoided_for != absl::ZeroDuration()) SetTime(entry.mutable_until(), Now() + avoided_for);
  }
  std::vector<std::string> Avoided() { return NodesToAvoid(Look()); }

  Scene scene_;
};

TEST_F(Placement, ThreeFailuresWithinTenMinutesOfEachOtherAreMany) {
  for (const auto& [failures, ago, avoided] : {std::tuple(2, absl::Minutes(10), true),
                                               {2, absl::Minutes(10) + kLeast, false},
                                               {1, absl::Minutes(1), false}}) {
    scene_.seen.status.clear_avoided_nodes();
    Note("b", failures, ago);
    Pass pass = Look();
    NoteFailureOn(pass, scene_.Pod("digits-worker-1"));
    EXPECT_EQ(!NodesToAvoid(pass).empty(), avoided) << failures << " " << ago;
    const v1alpha1::AvoidedNode& entry = pass.status.avoided_nodes(0);
    EXPECT_EQ(ToTime(entry.last_failure_time()), Now());
    EXPECT_EQ(entry.failures(), ago > absl::Minutes(10) ? 1 : failures + 1);
    EXPECT_EQ(entry.has_until(), avoided);
    if (avoided) {
      EXPECT_EQ(ToTime(entry.until()), Now() + absl::Minutes(10));
    }
  }
}

TEST_F(Placement, WhereTheJobRunsNowhereElseNoNodeIsToBlame) {
  Note("b", 5, absl::ZeroDuration());
  for (ObservedPod& pod : scene_.seen.pods) {
    if (pod.name == "digits-worker-0") pod.phase = PodPhase::kPending;
  }
  Pass pass = Look();
  NoteFailureOn(pass, scene_.Pod("digits-worker-1"));
  EXPECT_TRUE(NodesToAvoid(pass).empty()) << "the other worker does not run";
}

TEST_F(Placement, AMemberWhosePlaceIsNotKnownIsNoProofOfAnother) {
  Note("b", 5, absl::ZeroDuration());
  scene_.Pod("digits-worker-0").node.clear();
  Pass pass = Look();
  NoteFailureOn(pass, scene_.Pod("digits-worker-1"));
  EXPECT_TRUE(NodesToAvoid(pass).empty());
}

TEST_F(Placement, IsOfNoConcernOnOneMachineAndWithoutANode) {
  Pass unplaced = Look();
  scene_.Pod("digits-worker-1").node = "";
  NoteFailureOn(unplaced, scene_.Pod("digits-worker-1"));
  NoteSilenceOf(unplaced, "");
  EXPECT_EQ(unplaced.status.avoided_nodes_size(), 0);

  Note("c", 1, absl::ZeroDuration(), absl::Minutes(5));
  scene_.options.avoid_nodes = false;
  Pass pass = Look();
  scene_.Pod("digits-worker-1").node = "b";
  NoteFailureOn(pass, scene_.Pod("digits-worker-1"));
  NoteSilenceOf(pass, "b");
  EXPECT_EQ(pass.status.avoided_nodes_size(), 1);
  EXPECT_TRUE(NodesToAvoid(pass).empty());
}

TEST_F(Placement, ASilentNodeIsAvoidedForTwoMinutesAndToldOnce) {
  Pass pass = Look();
  NoteSilenceOf(pass, "b");
  EXPECT_EQ(NodesToAvoid(pass), std::vector<std::string>{"b"});
  ASSERT_EQ(Count<EmitEvent>(pass.decision), 1);
  const auto& event = std::get<EmitEvent>(pass.decision.actions[0]);
  EXPECT_TRUE(event.warning);
  EXPECT_EQ(event.reason, "NodeAvoided");
  EXPECT_EQ(event.note, "b: a pod fell silent there; new pods stay away from it for 2m");
  const v1alpha1::AvoidedNode& entry = pass.status.avoided_nodes(0);
  EXPECT_EQ(ToTime(entry.until()), Now() + absl::Minutes(2));
  EXPECT_EQ(ToTime(entry.last_failure_time()), Now());
  EXPECT_TRUE(entry.has_failures());
  EXPECT_EQ(entry.failures(), 0);

  // Later its time begins anew, which is no news.
  scene_.seen.status = pass.status;
  scene_.now += absl::Minutes(1);
  Pass later = Look();
  NoteSilenceOf(later, "b");
  EXPECT_EQ(ToTime(later.status.avoided_nodes(0).until()), Now() + absl::Minutes(2));
  EXPECT_EQ(Count<EmitEvent>(later.decision), 0);
  // When it is over it ends, to the moment, and silence is news again.
  scene_.now += absl::Minutes(1) - kLeast;
  EXPECT_EQ(Avoided().size(), 1U);
  scene_.now += kLeast;
  EXPECT_TRUE(Avoided().empty());
  Pass again = Look();
  NoteSilenceOf(again, "b");
  EXPECT_EQ(Count<EmitEvent>(again.decision), 1);
}

TEST_F(Placement, SilenceDoesNotShortenWhatFailuresHaveBroughtAbout) {
  Note("b", 3, absl::ZeroDuration(), absl::Minutes(10));
  Pass pass = Look();
  NoteSilenceOf(pass, "b");
  EXPECT_EQ(ToTime(pass.status.avoided_nodes(0).until()), Now() + absl::Minutes(10));
  EXPECT_EQ(pass.status.avoided_nodes_size(), 1);
}

TEST_F(Placement, ANodeIsNotItsOwnReasonToBeTheLast) {
  for (ObservedPod& pod : scene_.seen.pods) pod.node = "a";
  Note("a", 0, absl::ZeroDuration(), absl::Minutes(1));
  Pass pass = Look();
  NoteSilenceOf(pass, "a");
  EXPECT_EQ(ToTime(pass.status.avoided_nodes(0).until()), Now() + absl::Minutes(2));
}

TEST_F(Placement, SixtyFourNodesAreKeptAndTheOldestGoes) {
  for (int i = 0; i < 64; ++i) {
    Note("n" + std::to_string(i), 1, absl::Seconds(i == 7 ? 500 : i));
  }
  Pass full = Look();
  NoteSilenceOf(full, "n3");
  EXPECT_EQ(full.status.avoided_nodes_size(), 64) << "it is known";
  Pass pass = Look();
  NoteSilenceOf(pass, "c");
  ASSERT_EQ(pass.status.avoided_nodes_size(), 64);
  EXPECT_EQ(pass.status.avoided_nodes(63).name(), "c");
  for (const auto& entry : pass.status.avoided_nodes()) EXPECT_NE(entry.name(), "n7");
  scene_.seen.status.mutable_avoided_nodes()->RemoveLast();
  Pass room = Look();
  NoteSilenceOf(room, "c");
  EXPECT_EQ(room.status.avoided_nodes_size(), 64);
  EXPECT_EQ(room.status.avoided_nodes(7).name(), "n7");
}

TEST_F(Placement, OfTheEquallyOldTheOneThatIsKnownLongestGoes) {
  for (int i = 0; i < 64; ++i) Note("n" + std::to_string(i), 1, absl::Seconds(i / 2));
  Pass pass = Look();
  NoteSilenceOf(pass, "c");
  EXPECT_EQ(pass.status.avoided_nodes(61).name(), "n61");
  EXPECT_EQ(pass.status.avoided_nodes(62).name(), "n63");
}

TEST_F(Placement, WhatHappenedLongAgoIsForgottenUnlessItStillHolds) {
  Note("old", 2, absl::Minutes(10) + kLeast);
  Note("young", 2, absl::Minutes(10));
  Note("avoided", 3, absl::Minutes(11), absl::Seconds(1));
  Note("no more", 3, absl::Minutes(11), -absl::Seconds(1));
  Pass pass = Look();
  ForgetNodes(pass);
  ASSERT_EQ(pass.status.avoided_nodes_size(), 2);
  EXPECT_EQ(pass.status.avoided_nodes(0).name(), "young");
  EXPECT_EQ(pass.status.avoided_nodes(1).name(), "avoided");
}

TEST_F(Placement, WhoWaitsForAPlaceThatIsAvoidedIsMadeAnewWhenItIsNot) {
  scene_.seen.pods.pop_back();
  ObservedPod& pod = Pending(scene_, 1, kUnschedulable);
  pod.avoids = {"b", "c"};
  Note("c", 0, absl::ZeroDuration(), absl::Minutes(1));
  Note("b", 0, absl::ZeroDuration(), absl::Seconds(30));
  const auto retry = [&] {
    Pass pass = Look();
    RetryAvoidingPods(pass);
    return pass.decision;
  };
  EXPECT_EQ(Count<DeletePod>(retry()), 0);
  EXPECT_EQ(retry().requeue_after, absl::Seconds(30) + absl::Milliseconds(1));
  scene_.now += absl::Seconds(30);
  ASSERT_EQ(Count<DeletePod>(retry()), 1);
  EXPECT_FALSE(Deletes(retry(), pod.name)->grace_seconds.has_value());
  EXPECT_EQ(retry().requeue_after, absl::InfiniteDuration());
  // Others wait for other reasons, or are gone, or avoid nothing.
  scene_.now -= absl::Seconds(30);
  pod.avoids.clear();
  EXPECT_EQ(retry().requeue_after, absl::InfiniteDuration());
  pod.avoids = {"b", "c"};
  scene_.now += absl::Seconds(30);
  pod.problem->reason = kImagePullFailed;
  EXPECT_EQ(Count<DeletePod>(retry()), 0);
  pod.problem->reason = kUnschedulable;
  pod.terminating = true;
  EXPECT_EQ(Count<DeletePod>(retry()), 0);
  pod.terminating = false;
  pod.problem.reset();
  EXPECT_EQ(Count<DeletePod>(retry()), 0);
}

TEST_F(Placement, WhoHasAPlaceKeepsItThoughItAvoidsANodeForNothing) {
  ObservedPod& pod = Pending(scene_, 2, kUnschedulable);
  pod.avoids = {"b"};
  pod.node = "a";
  Pass pass = Look();
  RetryAvoidingPods(pass);
  EXPECT_EQ(Count<DeletePod>(pass.decision), 0);
}

// Otherwise it would be looked at again at once, and again.
TEST_F(Placement, WhoWaitsForANodeDoesNotWaitForOneThatIsAvoidedNoMore) {
  Pending(scene_, 2, kUnschedulable).avoids = {"b"};
  Note("b", 0, absl::ZeroDuration(), absl::Seconds(30));
  Note("c", 0, absl::Minutes(1), -kLeast);
  for (const absl::Duration over : {kLeast, absl::ZeroDuration()}) {
    SetTime(scene_.seen.status.mutable_avoided_nodes(1)->mutable_until(), Now() - over);
    Pass pass = Look();
    RetryAvoidingPods(pass);
    EXPECT_EQ(pass.decision.requeue_after, absl::Seconds(30) + absl::Milliseconds(1)) << over;
  }
}

TEST_F(Placement, TheNodeOfAWorkerThatIsGivenUpForItsSilenceIsAvoided) {
  scene_.report().mutable_members(1)->set_connected(false);
  scene_.report().mutable_members(1)->set_silent_seconds(6);
  const Decision decision = scene_.Do();
  ASSERT_NE(Deletes(decision, "digits-worker-1"), nullptr);
  ASSERT_EQ(decision.status.avoided_nodes_size(), 1);
  EXPECT_EQ(decision.status.avoided_nodes(0).name(), "b");
}

}  // namespace
}  // namespace starling::trainingjob
