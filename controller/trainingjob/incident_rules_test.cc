// SPDX-License-Identifier: Apache-2.0
// Which failure is which, where many pods end at once, or one is told of again and again.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controller/testing/test_scene.h"
#include "controller/trainingjob/policies.h"
#include "gtest/gtest.h"

namespace starling::trainingjob {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'000'000);
const Options kOptions;

v1alpha1::Incident Told(const char* reason, const char* uid, absl::Duration at,
                        std::optional<int> code = {}) {
  v1alpha1::Incident incident;
  incident.set_reason(reason);
  incident.set_pod("w1");
  if (*uid != '\0') incident.set_pod_uid(uid);
  incident.set_message(std::string("as told of ") + reason);
  if (code.has_value()) incident.set_exit_code(*code);
  SetTime(incident.mutable_time(), kNow + at);
  return incident;
}

// The end of a pod is known by its time: with another time it would be counted again.
TEST(AddIncident, AnEndThatIsToldAgainStaysAsItWasToldFirst) {
  const Observed seen;
  Pass pass(seen, kOptions, kNow);
  v1alpha1::Incident first = Told("WorkerFailed", "u1", {}, 1);
  first.set_log_tail("last words");
  AddIncident(pass, first);
  AddIncident(pass, Told("WorkerFailed", "u1", absl::Milliseconds(249), 1));
  ASSERT_EQ(pass.status.incidents_size(), 1);
  EXPECT_EQ(ToTime(pass.status.incidents(0).time()), kNow);
  EXPECT_EQ(pass.status.incidents(0).log_tail(), "last words");
}

TEST(AddIncident, AnEvictionIsNoVerdictOnAPodThatFellSilentBefore) {
  const Observed seen;
  Pass pass(seen, kOptions, kNow);
  AddIncident(pass, Told("WorkerSilent", "", {}));
  AddIncident(pass, Told("WorkerEvicted", "u1", absl::Seconds(1)));
  ASSERT_EQ(pass.status.incidents_size(), 1);
  EXPECT_EQ(pass.status.incidents(0).reason(), "WorkerSilent");
  EXPECT_EQ(pass.status.incidents(0).message(), "as told of WorkerSilent");
}

TEST(AddIncident, OfTwoThatAreEquallyNearItBelongsToTheEarlier) {
  Observed seen;
  *seen.status.add_incidents() = Told("WorkerLost", "u1", {}, 1);
  *seen.status.add_incidents() = Told("WorkerLost", "u2", absl::Seconds(10), 1);
  Pass pass(seen, kOptions, kNow);
  v1alpha1::Incident notice = Told("WorkerLost", "", absl::Seconds(5));
  notice.set_recovery_seconds(1);
  AddIncident(pass, notice);
  EXPECT_TRUE(pass.status.incidents(0).has_recovery_seconds());
  EXPECT_FALSE(pass.status.incidents(1).has_recovery_seconds());
}

// The UIDs of what is kept of incidents that were told in this order, so long after kNow.
std::vector<std::string> Kept(const std::vector<absl::Duration>& times, bool listed = false) {
  Observed seen;
  for (const absl::Duration at : times) {
    const std::string uid = "u" + std::to_string(seen.status.incidents_size());
    *seen.status.add_incidents() = Told("WorkerLost", uid.c_str(), at);
    if (listed) seen.pods.emplace_back().uid = uid;
  }
  Pass pass(seen, kOptions, kNow);
  RecordIncidents(pass);
  std::vector<std::string> kept;
  for (const v1alpha1::Incident& incident : pass.status.incidents()) {
    kept.push_back(incident.pod_uid());
  }
  return kept;
}

TEST(RecordIncidents, AreInTheOrderOfTheirTimesHoweverTheyWereTold) {
  using Uids = std::vector<std::string>;
  EXPECT_EQ(Kept({absl::Minutes(2), absl::Minutes(1)}), (Uids{"u1", "u0"}));
  EXPECT_EQ(Kept({absl::Minutes(1), absl::Minutes(1)}), (Uids{"u0", "u1"}))
      << "of one time, as they were told";
}

TEST(RecordIncidents, TheOldestOfTwentyOneGoesThoughItWasToldLast) {
  std::vector<absl::Duration> times;
  for (int i = 1; i <= 20; ++i) times.push_back(absl::Minutes(i));
  times.push_back(absl::ZeroDuration());
  const std::vector<std::string> kept = Kept(times);
  ASSERT_EQ(kept.size(), 20U);
  EXPECT_EQ(kept.front(), "u0");
  EXPECT_EQ(kept.back(), "u19");
}

TEST(RecordIncidents, OfTwentyOneWhosePodsAreAllListedTwentyStay) {
  std::vector<absl::Duration> times;
  for (int i = 0; i < 21; ++i) times.push_back(absl::Minutes(i));
  EXPECT_EQ(Kept(times, /*listed=*/true).size(), 20U);
}

// Eleven workers have ended at once, one more than are recorded while they are there.
Scene ElevenEnded() {
  Scene scene;
  scene.Training(11);
  scene.policy().set_backoff_limit(1000);
  for (int i = 0; i < 11; ++i) scene.End(resources::PodName("digits", Role::kWorker, i), 1);
  return scene;
}

TEST(RecordIncidents, TenAreRecordedAtATimeWhileTheirPodsAreThere) {
  Scene scene = ElevenEnded();
  EXPECT_EQ(scene.Settle().seen.status.incidents_size(), 10);
  EXPECT_EQ(scene.Settle().seen.status.incidents_size(), 10) << "none of them has gone";
  std::erase_if(scene.seen.pods,
                [](const ObservedPod& pod) { return pod.name == "digits-worker-0"; });
  EXPECT_EQ(scene.Settle().seen.status.incidents_size(), 11);
}

TEST(RecordIncidents, ProcessesThatWereStartedAgainInTheirPodsTakeNobodysTurn) {
  Scene scene;
  scene.Training(11);
  for (int i = 0; i < 10; ++i) {
    const ObservedPod& pod = scene.Pod(resources::PodName("digits", Role::kWorker, i));
    v1alpha1::Incident& incident = *scene.seen.status.add_incidents();
    incident = Told("WorkerLost", pod.uid.c_str(), {}, 1);
    incident.set_pod(pod.name);
  }
  scene.End("digits-worker-10", 1);
  EXPECT_EQ(scene.Do().status.incidents_size(), 11);
}

TEST(RecordIncidents, AnEvictedPodStaysUntilItIsOnRecord) {
  Scene scene = ElevenEnded();
  for (ObservedPod& pod : scene.seen.pods) pod.disrupted = pod.Terminated();
  const Decision decision = scene.Do();
  EXPECT_NE(Deletes(decision, "digits-worker-9"), nullptr);
  EXPECT_EQ(Deletes(decision, "digits-worker-10"), nullptr);
}

// Failures of a job whose workers end by these signals at the same moment.
std::int64_t FailuresOf(std::int64_t first, std::int64_t second) {
  Scene scene;
  scene.Training();
  scene.End("digits-worker-0", 128 + first, first);
  scene.End("digits-worker-1", 128 + second, second);
  return scene.Do().status.failures();
}

TEST(RecordIncidents, OnlyThoseThatWereKilledArePartOfOneBlow) {
  EXPECT_EQ(FailuresOf(9, 9), 1);
  EXPECT_EQ(FailuresOf(9, 11), 2) << "the second by a fault of its own";
  EXPECT_EQ(FailuresOf(11, 9), 2) << "the first";
}

TEST(RecordIncidents, APodOfWhoseEndNothingIsKnownIsPartOfNoBlow) {
  Scene scene;
  scene.Training();
  scene.End("digits-worker-0", 137, 9);
  scene.End("digits-worker-1", 1).exit.reset();
  EXPECT_EQ(scene.Do().status.failures(), 2);
}

TEST(RecordIncidents, AContainerOfWhoseEndNothingIsKnownBeginsNoNewRow) {
  Observed seen;
  seen.spec.mutable_workload()->mutable_container();
  seen.status.set_failures(2);
  ObservedPod& pod = seen.pods.emplace_back();
  pod.name = "w1";
  pod.uid = "u1";
  pod.phase = PodPhase::kFailed;
  pod.started = kNow - absl::Hours(1);
  Pass pass(seen, kOptions, kNow);
  RecordIncidents(pass);
  EXPECT_EQ(pass.status.failures(), 3);
}

TEST(RecordIncidents, AnEvictionThatAGivenUpRoundBroughtAboutIsNone) {
  Scene scene;
  scene.Prepared();
  scene.seen.spec.mutable_workload()->mutable_container();
  scene.seen.status.mutable_round()->set_number(2);
  scene.Add(Role::kWorker, 0).world = {.round = 1, .members = {0}, .wanted = 2};
  scene.End("digits-worker-0", 143, 15).disrupted = true;
  EXPECT_EQ(scene.Do().status.incidents_size(), 0);
}

TEST(RecordIncidents, AnEvictedPodIsNotAnsweredWithMoreMemory) {
  Scene scene;
  scene.Training();
  auto& remedy = *scene.worker().mutable_on_out_of_memory();
  remedy.set_factor(2);
  remedy.set_maximum("1Gi");
  ObservedPod& pod = scene.End("digits-worker-1", 137, 9);
  pod.memory = 64 << 20;
  pod.exit->reason = "OOMKilled";
  pod.disrupted = true;
  EXPECT_FALSE(Emits(scene.Do(), "MemoryRaised"));
}

TEST(RecordIncidents, NamesANodeOnlyWhereNodesAreKeptAwayFrom) {
  Scene scene;
  scene.Training();
  scene.End("digits-worker-1", 1).node = "b";
  EXPECT_EQ(scene.Do().status.incidents(0).message(), "digits-worker-1 exited with code 1");
  scene.options.avoid_nodes = true;
  EXPECT_EQ(scene.Do().status.incidents(0).message(), "digits-worker-1 on b exited with code 1");
}

TEST(RecordIncidents, SaysHowMuchMemoryAPodMightUseWhereThatIsBounded) {
  for (const auto& [memory, bound] : {std::pair(0, ""), {1, " (1)"}}) {
    Scene scene;
    scene.Training();
    ObservedPod& pod = scene.End("digits-worker-1", 137, 9);
    pod.exit->reason = "OOMKilled";
    pod.memory = memory;
    EXPECT_EQ(
        scene.Do().status.incidents(0).message(),
        std::string("digits-worker-1 was killed because it used more memory than it may") + bound);
  }
}

}  // namespace
}  // namespace starling::trainingjob
