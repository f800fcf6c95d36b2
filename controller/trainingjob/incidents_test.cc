// SPDX-License-Identifier: Apache-2.0
// What failed is told once, by whomever, and counted for what it is.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "controller/testing/test_cluster.h"
#include "controller/testing/test_scene.h"
#include "controller/trainingjob/policies.h"
#include "gtest/gtest.h"

namespace starling::trainingjob {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'000'000);
const Options kOptions;

// What somebody tells of a failure: coordinators know no exit, pods nothing else.
struct Told {
  const char* reason = "WorkerLost";
  const char* pod = "w1";
  const char* uid = "";
  absl::Duration at = {};
  std::optional<int> code = {};
  std::optional<int> signal = {};
};

v1alpha1::Incident IncidentOf(const Told& told) {
  v1alpha1::Incident incident;
  incident.set_reason(told.reason);
  incident.set_pod(told.pod);
  if (*told.uid != '\0') incident.set_pod_uid(told.uid);
  incident.set_message(std::string("as told of ") + told.reason);
  if (told.code.has_value()) incident.set_exit_code(*told.code);
  if (told.signal.has_value()) incident.set_signal(*told.signal);
  SetTime(incident.mutable_time(), kNow + told.at);
  return incident;
}

// Both are told, one after the other.
v1alpha1::TrainingJobStatus After(const v1alpha1::Incident& first,
                                  const v1alpha1::Incident& second) {
  const Observed seen;
  Pass pass(seen, kOptions, kNow);
  AddIncident(pass, first);
  AddIncident(pass, second);
  EXPECT_EQ(Count<EmitEvent>(pass.decision), pass.status.incidents_size()) << "each is told once";
  return pass.status;
}

TEST(AddIncident, TwoThatTellOfOneFailureAreOne) {
  const absl::Duration close = absl::Milliseconds(249), far = absl::Milliseconds(250);
  const absl::Duration notice = absl::Seconds(15) - absl::Nanoseconds(1);
  const struct {
    const char* why;
    Told first, second;
    int incidents;
  } cases[] = {
      {"a notice and the end", {.code = 1}, {.reason = "WorkerFailed", .at = notice}, 1},
      {"a later end", {.code = 1}, {.reason = "WorkerFailed", .at = absl::Seconds(15)}, 2},
      {"the same pod", {.uid = "u1", .code = 1}, {.uid = "u1"}, 1},
      {"a pod of the same name", {.uid = "u1", .code = 1}, {.uid = "u2"}, 2},
      {"a pod of one UID by two names", {.pod = "a", .uid = "u1"}, {.pod = "b", .uid = "u1"}, 1},
      {"known by its name alone", {.uid = "u1", .code = 1}, {}, 1},
      {"known by its name alone, first", {.code = 1}, {.uid = "u1"}, 1},
      {"another pod", {.code = 1}, {.pod = "w2"}, 2},
      {"an end that is told again", {.code = 1}, {.at = close, .code = 1}, 1},
      {"a second end", {.code = 1}, {.at = far, .code = 1}, 2},
      {"ends by two codes", {.code = 1}, {.code = 2}, 2},
      {"ends by two signals", {.code = 137, .signal = 9}, {.code = 137, .signal = 15}, 2},
      {"ends of two kinds", {.code = 1}, {.reason = "OOMKilled", .code = 1}, 2},
      {"two words for a loss", {}, {.reason = "WorkerSilent"}, 1},
      {"a loss and something else", {}, {.reason = "WorkerUnreachable"}, 2},
      {"something else and a loss", {.reason = "WorkerUnreachable"}, {}, 2},
      {"the same twice", {.reason = "WorkerUnreachable"}, {.reason = "WorkerUnreachable"}, 1},
      {"of no pod",
       {.reason = "StepsLost", .pod = ""},
       {.reason = "StepsLost", .pod = "", .at = close},
       1},
      {"of no pod, later",
       {.reason = "StepsLost", .pod = ""},
       {.reason = "StepsLost", .pod = "", .at = far},
       2},
      {"of no pod, of two kinds",
       {.reason = "StepsLost", .pod = ""},
       {.reason = "StepsAtRisk", .pod = ""},
       2},
  };
  for (const auto& one : cases) {
    const v1alpha1::Incident first = IncidentOf(one.first), second = IncidentOf(one.second);
    EXPECT_EQ(After(first, second).incidents_size(), one.incidents) << one.why;
    EXPECT_EQ(After(second, first).incidents_size(), one.incidents) << one.why << ", reversed";
  }
}

TEST(AddIncident, ANoticeTakesFromTheEndWhatOnlyThatKnows) {
  v1alpha1::Incident end =
      IncidentOf({.reason = "WorkerFailed", .uid = "u1", .at = absl::Seconds(1), .code = 3});
  end.set_log_tail("last words");
  v1alpha1::Incident known = After(IncidentOf({}), end).incidents(0);
  EXPECT_EQ(known.reason(), "WorkerLost");
  EXPECT_EQ(known.exit_code(), 3);
  EXPECT_EQ(known.log_tail(), "last words");
  EXPECT_EQ(known.pod_uid(), "u1");
  EXPECT_EQ(known.message(), "as told of WorkerFailed");
  EXPECT_EQ(ToTime(known.time()), kNow + absl::Seconds(1));

  end.clear_message();
  EXPECT_EQ(After(IncidentOf({}), end).incidents(0).message(), "as told of WorkerLost");
  // The other way round the end stays as it is.
  known = After(end, IncidentOf({.at = absl::Seconds(2)})).incidents(0);
  EXPECT_EQ(known.exit_code(), 3);
  EXPECT_EQ(ToTime(known.time()), kNow + absl::Seconds(1));
}

TEST(AddIncident, WhatItCostIsAddedAsItBecomesKnown) {
  v1alpha1::Incident told = IncidentOf({});
  told.set_detection_seconds(0.5);
  told.set_recovery_seconds(2);
  told.set_repeated_steps(3);
  told.set_resumed_step(70);
  const v1alpha1::Incident known = After(IncidentOf({.code = 1}), told).incidents(0);
  EXPECT_EQ(known.detection_seconds(), 0.5);
  EXPECT_EQ(known.recovery_seconds(), 2);
  EXPECT_EQ(known.repeated_steps(), 3);
  EXPECT_EQ(known.resumed_step(), 70);
  const v1alpha1::Incident kept = After(told, IncidentOf({.code = 1})).incidents(0);
  EXPECT_EQ(kept.detection_seconds(), 0.5);
  EXPECT_EQ(kept.recovery_seconds(), 2);
  EXPECT_EQ(kept.repeated_steps(), 3);
  EXPECT_EQ(kept.resumed_step(), 70);
}

// The controller gives up a pod that the coordinator has told of.
TEST(AddIncident, AVerdictStandsButWhoNoticedFirstKnowsHowSoon) {
  v1alpha1::Incident verdict = IncidentOf({.uid = "u1"});
  verdict.set_detection_seconds(6);
  v1alpha1::Incident notice = IncidentOf({.reason = "WorkerSilent"});
  notice.set_detection_seconds(1);
  v1alpha1::Incident known = After(notice, verdict).incidents(0);
  EXPECT_EQ(known.reason(), "WorkerLost");
  EXPECT_EQ(known.message(), "as told of WorkerSilent; it is replaced");
  EXPECT_EQ(known.detection_seconds(), 1);
  notice.clear_detection_seconds();
  EXPECT_EQ(After(notice, verdict).incidents(0).detection_seconds(), 6);
  // The coordinator's word that it is lost is no verdict: it names no UID.
  verdict.clear_pod_uid();
  notice.set_detection_seconds(1);
  known = After(notice, verdict).incidents(0);
  EXPECT_EQ(known.reason(), "WorkerSilent");
  EXPECT_EQ(known.detection_seconds(), 6);
  verdict.set_pod_uid("u1");
  for (const Told& stays :
       {Told{.reason = "WorkerHung"}, Told{.reason = "WorkerEvicted", .code = 1},
        Told{.reason = "WorkerLost"}}) {
    known = After(IncidentOf(stays), verdict).incidents(0);
    EXPECT_EQ(known.reason(), stays.reason);
    EXPECT_EQ(known.message(), std::string("as told of ") + stays.reason);
  }
}

TEST(AddIncident, OfSeveralItBelongsToTheNearest) {
  for (const auto& [at, nearest] :
       {std::pair(absl::Seconds(4), 0), {absl::Seconds(6), 1}, {-absl::Seconds(2), 0}}) {
    Observed seen;
    *seen.status.add_incidents() = IncidentOf({.uid = "u1", .code = 1});
    *seen.status.add_incidents() = IncidentOf({.uid = "u2", .at = absl::Seconds(10), .code = 1});
    Pass pass(seen, kOptions, kNow);
    v1alpha1::Incident notice = IncidentOf({.at = at});
    notice.set_recovery_seconds(1);
    AddIncident(pass, notice);
    ASSERT_EQ(pass.status.incidents_size(), 2);
    EXPECT_TRUE(pass.status.incidents(nearest).has_recovery_seconds()) << at;
    EXPECT_FALSE(pass.status.incidents(1 - nearest).has_recovery_seconds()) << at;
  }
}

TEST(AddIncident, SaysWhetherAnEndHasBecomeKnown) {
  const Observed seen;
  Pass pass(seen, kOptions, kNow);
  EXPECT_FALSE(AddIncident(pass, IncidentOf({})));
  EXPECT_TRUE(AddIncident(pass, IncidentOf({.reason = "WorkerFailed", .code = 1})));
  EXPECT_FALSE(AddIncident(pass, IncidentOf({.code = 1})));
  EXPECT_TRUE(AddIncident(pass, IncidentOf({.pod = "w2", .signal = 9})));
  EXPECT_FALSE(AddIncident(pass, IncidentOf({.pod = "w2"})));
}

TEST(AddIncident, IsToldAsAWarningThatNamesThePod) {
  const Observed seen;
  Pass pass(seen, kOptions, kNow);
  AddIncident(pass, IncidentOf({}));
  const auto& event = std::get<EmitEvent>(pass.decision.actions.at(0));
  EXPECT_TRUE(event.warning);
  EXPECT_EQ(event.reason, "WorkerLost");
  EXPECT_EQ(event.note, "w1: as told of WorkerLost");
}

ObservedPod EndedPod(std::int64_t code, std::int64_t signal = 0) {
  ObservedPod pod;
  pod.name = "w1";
  pod.uid = "u1";
  pod.phase = PodPhase::kFailed;
  pod.exit = PodExit{code, signal, "", "", kNow};
  return pod;
}

TEST(IsRecorded, IsAnEndOfThisPodAtThisTime) {
  const auto recorded = [](const Told& told, bool with_exit = true) {
    v1alpha1::TrainingJobStatus status;
    *status.add_incidents() = IncidentOf(told);
    ObservedPod pod = EndedPod(1);
    if (!with_exit) pod.exit.reset();
    return IsRecorded(status, pod);
  };
  EXPECT_TRUE(recorded({.uid = "u1", .code = 1}));
  EXPECT_FALSE(recorded({.uid = "u2", .code = 1}));
  EXPECT_FALSE(recorded({.uid = "u1"})) << "a loss is no end";
  EXPECT_FALSE(recorded({.uid = "u1", .at = absl::Seconds(1), .code = 1}));
  EXPECT_TRUE(recorded({.uid = "u1", .at = absl::Seconds(1), .code = -1}, false));
}

TEST(IsCondemned, IsAPodThatWasGivenUpAndHasNotEnded) {
  for (const char* reason :
       {"CoordinatorLost", "WorkerLost", "ParameterServerLost", "StandbyLost"}) {
    v1alpha1::TrainingJobStatus status;
    *status.add_incidents() = IncidentOf({.reason = reason, .uid = "u1"});
    ObservedPod pod = EndedPod(1);
    EXPECT_TRUE(IsCondemned(status, pod)) << reason;
    pod.uid = "u2";
    EXPECT_FALSE(IsCondemned(status, pod)) << reason;
    pod.uid = "u1";
    status.mutable_incidents(0)->set_exit_code(1);
    EXPECT_FALSE(IsCondemned(status, pod)) << "its process has ended, another may live in the pod";
    *status.mutable_incidents(0) = IncidentOf({.reason = "WorkerSilent", .uid = "u1"});
    EXPECT_FALSE(IsCondemned(status, pod));
  }
}

// What is decided of a training job one of whose workers ends so.
v1alpha1::Incident EndTold(const std::function<void(ObservedPod&)>& how, bool cluster = false) {
  Scene scene;
  if (cluster) {
    InCluster(scene);
  } else {
    scene.Training();
  }
  how(scene.End("digits-worker-1", 1));
  const Decision decision = scene.Do();
  EXPECT_EQ(decision.status.incidents_size(), 1);
  return decision.status.incidents(0);
}

TEST(RecordIncidents, SaysHowAPodEnded) {
  using Pod = ObservedPod;
  const struct {
    std::function<void(Pod&)> how;
    const char* reason;
    const char* message;
  } cases[] = {
      {[](Pod&) {}, "WorkerFailed", "digits-worker-1 exited with code 1"},
      {[](Pod& pod) { pod.exit->signal = 11; }, "WorkerFailed",
       "digits-worker-1 was killed by signal 11"},
      {[](Pod& pod) { pod.exit->signal = 1; }, "WorkerFailed",
       "digits-worker-1 was killed by signal 1"},
      {[](Pod& pod) { pod.exit->reason = "OOMKilled"; }, "OOMKilled",
       "digits-worker-1 was killed because it used more memory than it may"},
      {[](Pod& pod) {
         pod.exit->reason = "OOMKilled";
         pod.memory = 64 << 20;
       },
       "OOMKilled", "digits-worker-1 was killed because it used more memory than it may (64Mi)"},
      {[](Pod& pod) {
         pod.exit.reset();
         pod.reason = "DeadlineExceeded";
       },
       "WorkerFailed", "digits-worker-1 failed (DeadlineExceeded)"},
      {[](Pod& pod) {
         pod.disrupted = true;
         pod.reason = "Evicted";
       },
       "WorkerEvicted", "digits-worker-1 was evicted (Evicted)"},
      {[](Pod& pod) {
         pod.disrupted = true;
         pod.disruption = "EvictionByEvictionAPI";
       },
       "WorkerEvicted", "digits-worker-1 was evicted (EvictionByEvictionAPI)"},
      {[](Pod& pod) { pod.disrupted = true; }, "WorkerEvicted",
       "digits-worker-1 was evicted (disruption)"},
      {[](Pod& pod) {
         pod.disrupted = true;
         pod.disruption = "PreemptionByScheduler";
       },
       "WorkerPreempted", "digits-worker-1 was preempted (PreemptionByScheduler)"},
  };
  for (const auto& one : cases) {
    const v1alpha1::Incident incident = EndTold(one.how);
    EXPECT_EQ(incident.reason(), one.reason);
    EXPECT_EQ(incident.message(), one.message);
    EXPECT_EQ(incident.pod(), "digits-worker-1");
  }
  EXPECT_EQ(EndTold([](Pod&) {}, true).message(), "digits-worker-1 on b exited with code 1");
  EXPECT_EQ(EndTold([](Pod& pod) { pod.node.clear(); }, true).message(),
            "digits-worker-1 exited with code 1");
}

TEST(RecordIncidents, TellsWhenAndByWhatItEnded) {
  const absl::Time then = kNow - absl::Minutes(1);
  const v1alpha1::Incident ended = EndTold([&](ObservedPod& pod) {
    pod.exit->finished = then;
    pod.exit->message = "no such file";
  });
  EXPECT_EQ(ToTime(ended.time()), then);
  EXPECT_EQ(ended.exit_code(), 1);
  EXPECT_EQ(ended.log_tail(), "no such file");
  const v1alpha1::Incident unknown = EndTold([](ObservedPod& pod) { pod.exit.reset(); });
  EXPECT_EQ(ToTime(unknown.time()), Scene().now);
  EXPECT_EQ(unknown.exit_code(), -1);
  EXPECT_FALSE(unknown.has_signal());
}

// Failures of a job of two workers that lost one so long ago, and now loses another.
std::int64_t FailuresAfter(const char* first, const char* second, absl::Duration between,
                           std::int64_t signal = 9) {
  Scene scene;
  scene.Training(3);
  scene.policy().set_backoff_limit(100);
  scene.End(first, 137, signal);
  scene.Settle();
  std::erase_if(scene.seen.pods, [](const ObservedPod& pod) { return pod.Terminated(); });
  scene.now += between;
  if (std::string_view(first) == second) scene.Add(Role::kWorker, 1);
  scene.End(second, 137, signal);
  return scene.Settle().seen.status.failures();
}

TEST(RecordIncidents, OneBlowIsWhatKillsOthersWithinFiveSeconds) {
  const char* const a = "digits-worker-1";
  const char* const b = "digits-worker-2";
  EXPECT_EQ(FailuresAfter(a, b, absl::Seconds(5) - absl::Nanoseconds(1)), 1);
  EXPECT_EQ(FailuresAfter(a, b, -absl::Seconds(5) + absl::Nanoseconds(1)), 1);
  EXPECT_EQ(FailuresAfter(a, b, absl::Seconds(5)), 2);
  EXPECT_EQ(FailuresAfter(a, b, -absl::Seconds(5)), 2);
  EXPECT_EQ(FailuresAfter(a, b, absl::ZeroDuration(), 11), 2) << "by a fault of their own";
  EXPECT_EQ(FailuresAfter(a, a, absl::Seconds(1)), 2) << "the same again";
}

// A worker is killed, and again so much later together with another.
TEST(RecordIncidents, APodThatIsKilledAgainSoonIsAFailureOfItsOwn) {
  for (const auto& [later, failures] :
       {std::pair(absl::Seconds(30) - absl::Nanoseconds(1), 3), {absl::Seconds(30), 2}}) {
    Observed seen;
    *seen.status.add_incidents() = IncidentOf({.uid = "u0", .code = 137, .signal = 9});
    *seen.status.add_incidents() =
        IncidentOf({.pod = "w2", .uid = "u2", .at = later, .code = 137, .signal = 9});
    seen.status.set_failures(2);
    seen.spec.mutable_replica_specs()->mutable_worker()->set_replicas(2);
    seen.pods = {EndedPod(137, 9)};
    seen.pods[0].exit->finished = kNow + later;
    Pass pass(seen, kOptions, kNow + later);
    RecordIncidents(pass);
    EXPECT_EQ(pass.status.failures(), failures) << later;
  }
}

TEST(RecordIncidents, ARowOfFailuresBeginsAtTheNewestStepThatIsKnown) {
  const auto begins_at = [](std::int64_t reported, std::int64_t progress, std::int64_t since) {
    Scene scene;
    scene.Training();
    scene.seen.status.mutable_progress()->set_step(progress);
    scene.report().mutable_training()->clear_progress();
    scene.report().set_settled_step(reported);
    scene.seen.status.set_failures_since_step(since);
    scene.End("digits-worker-1", 1);
    return scene.Do().status.failures_since_step();
  };
  EXPECT_EQ(begins_at(100, 90, 0), 100);
  EXPECT_EQ(begins_at(90, 100, 0), 100);
  EXPECT_EQ(begins_at(90, 80, 100), 100);
  // In the midst of a row it stays where that began.
  Scene scene;
  scene.Training();
  scene.policy().set_backoff_limit(100);
  scene.seen.status.set_failures(1);
  scene.seen.status.set_failures_since_step(100);
  scene.seen.status.mutable_progress()->set_step(120);
  scene.report().mutable_training()->clear_progress();
  scene.End("digits-worker-1", 1);
  const Decision decision = scene.Do();
  EXPECT_EQ(decision.status.failures_since_step(), 100);
  EXPECT_EQ(decision.status.failures(), 2);
  EXPECT_EQ(decision.status.restarts(), 1);
}

TEST(RecordIncidents, AContainerThatRanForTenMinutesBeginsANewRow) {
  for (const auto& [ran, failures] :
       {std::pair(absl::Minutes(10) - absl::Nanoseconds(1), 3), {absl::Minutes(10), 1}}) {
    Observed seen;
    seen.spec.mutable_workload()->mutable_container();
    seen.status.set_failures(2);
    seen.pods = {EndedPod(1)};
    seen.pods[0].started = kNow - ran;
    Pass pass(seen, kOptions, kNow);
    RecordIncidents(pass);
    EXPECT_EQ(pass.status.failures(), failures) << ran;
    seen.pods[0].started = absl::UnixEpoch();
    Pass unknown(seen, kOptions, kNow);
    RecordIncidents(unknown);
    EXPECT_EQ(unknown.status.failures(), 3) << "nobody knows how long it ran";
    seen.spec.clear_workload();
    seen.pods[0].started = kNow - ran;
    Pass ours(seen, kOptions, kNow);
    RecordIncidents(ours);
    EXPECT_EQ(ours.status.failures(), 3) << "what makes steps is judged by them";
  }
}

TEST(IsFailure, IsAnEndThatNobodyAskedFor) {
  const auto fails = [](const std::function<void(Scene&, ObservedPod&)>& how,
                        const char* name = "digits-worker-1") {
    Scene scene;
    scene.Training();
    how(scene, scene.End(name, 0));
    const Pass pass(scene.seen, scene.options, scene.now);
    return IsFailure(pass, scene.Pod(name));
  };
  EXPECT_TRUE(fails([](Scene&, ObservedPod&) {})) << "it leaves unasked";
  EXPECT_TRUE(fails([](Scene&, ObservedPod&) {}, "digits-coordinator-0"));
  EXPECT_FALSE(fails([](Scene&, ObservedPod& pod) { pod.phase = PodPhase::kRunning; }));
  EXPECT_FALSE(fails([](Scene&, ObservedPod& pod) { pod.terminating = true; }));
  EXPECT_FALSE(fails([](Scene&, ObservedPod& pod) { pod.disrupted = true; }));
  EXPECT_FALSE(fails([](Scene& s, ObservedPod&) { s.worker().set_replicas(1); })) << "a spare";
  EXPECT_TRUE(fails([](Scene& s, ObservedPod& pod) {
    s.worker().set_replicas(1);
    pod.phase = PodPhase::kFailed;
  })) << "a spare that fails";
  EXPECT_FALSE(fails([](Scene& s, ObservedPod&) {
    v1alpha1::Condition& suspended = *s.seen.status.add_conditions();
    suspended.set_type("Suspended");
    suspended.set_status("Unknown");
  })) << "it is let go";
  EXPECT_FALSE(fails([](Scene& s, ObservedPod&) {
    s.seen.spec.mutable_workload()->mutable_container();
    s.seen.status.mutable_round()->set_number(0);
  })) << "a container of the user's has ended well";
  EXPECT_FALSE(fails([](Scene& s, ObservedPod& pod) {
    s.seen.spec.mutable_workload()->mutable_container();
    s.seen.status.mutable_round()->set_number(2);
    pod.world.round = 1;
    pod.phase = PodPhase::kFailed;
  })) << "its round is over";
}

TEST(RecordIncidents, AServerThatLeavesIsAFailureWhileItIsWanted) {
  Scene scene;
  scene.servers(2);
  scene.Training();
  scene.End("digits-parameter-server-1", 0);
  EXPECT_EQ(scene.Do().status.failures(), 1);
  EXPECT_EQ(scene.Do().status.incidents(0).reason(), "ParameterServerLeftEarly");
  scene.servers(1);
  EXPECT_EQ(scene.Do().status.failures(), 0);
}

TEST(RecordIncidents, ADisruptionIsToldBeforeThePodHasEndedAndOnce) {
  Scene scene;
  scene.Training();
  ObservedPod& pod = scene.Pod("digits-worker-1");
  pod.disruption = "EvictionByEvictionAPI";
  pod.disrupted = true;
  EXPECT_EQ(scene.Do().status.incidents_size(), 0) << "it is not being deleted yet";
  pod.terminating = true;
  scene.Settle().Settle();
  ASSERT_EQ(scene.seen.status.incidents_size(), 1);
  EXPECT_EQ(scene.seen.status.incidents(0).message(),
            "digits-worker-1 was evicted (EvictionByEvictionAPI); it is replaced");
  EXPECT_EQ(scene.seen.status.incidents(0).pod(), "digits-worker-1");
  EXPECT_EQ(scene.seen.status.incidents(0).pod_uid(), pod.uid);
  EXPECT_EQ(ToTime(scene.seen.status.incidents(0).time()), scene.now);
  EXPECT_EQ(scene.seen.status.restarts(), 1);
  EXPECT_EQ(scene.seen.status.failures(), 0);
  // One that is first seen when it has ended, being deleted, is not told of any more.
  Scene late;
  late.Training();
  ObservedPod& gone = late.End("digits-worker-1", 143, 15);
  gone.disruption = "EvictionByEvictionAPI";
  gone.disrupted = gone.terminating = true;
  EXPECT_EQ(late.Do().status.incidents_size(), 0);
}

// The supervisor starts a worker's process again in its pod; only the coordinator knows of it.
TEST(RecordIncidents, AProcessThatIsStartedAgainIsARestartOnce) {
  Scene scene;
  scene.Training();
  v1alpha1::Incident& notice = *scene.report().add_incidents();
  notice = IncidentOf({.pod = "digits-worker-1"});
  SetTime(notice.mutable_time(), scene.now);
  scene.Settle();
  EXPECT_EQ(scene.seen.status.restarts(), 0) << "it may be silent only";
  notice.set_exit_code(1);
  scene.Settle().Settle();
  EXPECT_EQ(scene.seen.status.restarts(), 1);
  EXPECT_EQ(scene.seen.status.failures(), 0);
}

TEST(RecordIncidents, TheOldestGoButNoneOfAPodThatIsListed) {
  const auto pods_after = [](int incidents, std::vector<std::string> listed) {
    Observed seen;
    for (int i = 0; i < incidents; ++i) {
      v1alpha1::Incident& incident = *seen.status.add_incidents();
      incident = IncidentOf({.at = absl::Minutes(i)});
      incident.set_pod_uid("u" + std::to_string(i));
    }
    for (std::string& uid : listed) seen.pods.emplace_back().uid = std::move(uid);
    Pass pass(seen, kOptions, kNow);
    RecordIncidents(pass);
    std::vector<std::string> kept;
    for (const auto& incident : pass.status.incidents()) kept.push_back(incident.pod_uid());
    return kept;
  };
  EXPECT_EQ(pods_after(20, {}).front(), "u0");
  EXPECT_EQ(pods_after(21, {}).front(), "u1");
  const std::vector<std::string> kept = pods_after(22, {"u0", "u2"});
  ASSERT_EQ(kept.size(), 20U);
  EXPECT_EQ(kept[0], "u0");
  EXPECT_EQ(kept[1], "u2");
  EXPECT_EQ(kept[2], "u4");
  std::vector<std::string> all;
  for (int i = 0; i < 22; ++i) all.push_back("u" + std::to_string(i));
  EXPECT_EQ(pods_after(22, all).front(), "u2") << "no more than twenty, whoever is listed";
}

// A coordinator repeats all that it knows; what is older than the twenty that are kept is no news.
TEST(RecordIncidents, WhatWasDroppedIsNotToldAgain) {
  for (const auto& [after, told] :
       {std::pair(absl::Milliseconds(249), false), {absl::Milliseconds(250), true}}) {
    Scene scene;
    scene.Training();
    scene.seen.status.clear_incidents();
    for (int i = 0; i < 20; ++i) {
      v1alpha1::Incident& incident = *scene.seen.status.add_incidents();
      incident = IncidentOf({.pod = "digits-worker-0"});
      SetTime(incident.mutable_time(), scene.now + absl::Minutes(i));
    }
    v1alpha1::Incident& again = *scene.report().add_incidents();
    again = IncidentOf({.pod = "digits-worker-1"});
    SetTime(again.mutable_time(), scene.now + after);
    EXPECT_EQ(Emits(scene.Do(), "WorkerLost"), told) << after;
    scene.seen.status.mutable_incidents()->RemoveLast();
    EXPECT_TRUE(Emits(scene.Do(), "WorkerLost")) << "there is room";
  }
}

TEST(RecordIncidents, MoreMemoryIsAnAnswerToTheWantOfItAlone) {
  for (const bool wanted : {true, false}) {
    Scene scene;
    scene.Training();
    auto& remedy = *scene.worker().mutable_on_out_of_memory();
    remedy.set_factor(2);
    remedy.set_maximum("1Gi");
    ObservedPod& pod = scene.End("digits-worker-1", 1);
    pod.memory = 64 << 20;
    if (wanted) pod.exit->reason = "OOMKilled";
    const Decision decision = scene.Do();
    EXPECT_EQ(Emits(decision, "MemoryRaised"), wanted);
    EXPECT_EQ(decision.status.failures(), wanted ? 0 : 1);
    EXPECT_EQ(decision.status.restarts(), 1);
  }
}

TEST(RecordIncidents, WithoutALimitNoMoreMemoryIsGiven) {
  Scene scene;
  scene.Training();
  auto& remedy = *scene.worker().mutable_on_out_of_memory();
  remedy.set_factor(2);
  remedy.set_maximum("1Gi");
  scene.End("digits-worker-1", 137, 9).exit->reason = "OOMKilled";
  const Decision decision = scene.Do();
  EXPECT_EQ(decision.status.incidents(0).message(),
            "digits-worker-1 was killed because it used more memory than it may");
  EXPECT_EQ(decision.status.failures(), 1);
}

}  // namespace
}  // namespace starling::trainingjob
