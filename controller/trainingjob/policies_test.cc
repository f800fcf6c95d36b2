// SPDX-License-Identifier: Apache-2.0
// Small policies by themselves, at the very bounds of what they say. How they work together:
// decide_*_test.cc.
#include "controller/trainingjob/policies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "controller/testing/test_scene.h"
#include "controller/trainingjob/quantity.h"

namespace starling::trainingjob {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'000'000);
const Options kOptions;
constexpr std::int64_t kMebi = 1 << 20;

// What a worker of so many MiB gets after it was killed for want of more; empty: nothing is done.
std::string MemoryAfter(std::int64_t had, double factor, const std::string& known = "",
                        const std::string& maximum = "100Gi") {
  Observed seen;
  auto& remedy = *seen.spec.mutable_replica_specs()->mutable_worker()->mutable_on_out_of_memory();
  remedy.set_factor(factor);
  remedy.set_maximum(maximum);
  if (!known.empty()) (*seen.status.mutable_replica_statuses())["worker"].set_memory(known);
  ObservedPod pod;
  pod.memory = had * kMebi;
  Pass pass(seen, kOptions, kNow);
  if (!RaiseMemory(pass, pod).has_value()) return "";
  EXPECT_EQ(Emits(pass.decision, "MemoryRaised"), RaisedMemory(pass, Role::kWorker) != known);
  return RaisedMemory(pass, Role::kWorker);
}

TEST(RaiseMemory, GrowsByTheFactorInWholeMebibytesWithinBounds) {
  EXPECT_EQ(MemoryAfter(100, 1.5), "150Mi");
  EXPECT_EQ(MemoryAfter(101, 1.5), "152Mi");
  EXPECT_EQ(MemoryAfter(100, 0.1), "101Mi") << "no factor is less than 1.01";
  EXPECT_EQ(MemoryAfter(100, 1'000), "1600Mi") << "or more than 16";
  EXPECT_EQ(MemoryAfter(100, 2, "", "150Mi"), "150Mi");
  EXPECT_EQ(MemoryAfter(150, 2, "", "150Mi"), "") << "no more can be given";
  EXPECT_EQ(MemoryAfter(149, 2, "", "150Mi"), "150Mi");
  EXPECT_EQ(MemoryAfter(0, 2), "") << "what it had is not known";
}

TEST(RaiseMemory, NeverTakesBackWhatWasGivenBefore) {
  EXPECT_EQ(MemoryAfter(100, 1.5, "200Mi"), "200Mi");
  EXPECT_EQ(MemoryAfter(100, 1.5, "150Mi"), "150Mi");
  EXPECT_EQ(MemoryAfter(100, 1.5, "149Mi"), "150Mi");
}

TEST(Bytes, AreWrittenInTheLargestUnitThatHasThemWhole) {
  EXPECT_EQ(FormatBytes(0), "0");
  EXPECT_EQ(FormatBytes(1023), "1023");
  EXPECT_EQ(FormatBytes(1024), "1Ki");
  EXPECT_EQ(FormatBytes(3 * kMebi / 2), "1536Ki");
  EXPECT_EQ(FormatBytes(2048 * kMebi), "2Gi");
  EXPECT_EQ(FormatBytes(2048 * 1024 * kMebi), "2048Gi");
  EXPECT_EQ(ParseBytes("1.5"), 2);
  EXPECT_EQ(ParseBytes("1Ki"), 1024);
  EXPECT_EQ(ParseBytes("9e15"), 0) << "too many to be counted";
  EXPECT_EQ(ParseBytes("-1"), 0);
  EXPECT_EQ(ParseBytes("much"), 0);
}

TEST(TakeProgress, TellsHowFarOfHowMuchInTheWordsOfWhatEndsTheJob) {
  const auto summary = [](std::int64_t epochs, std::int64_t steps) {
    Observed seen;
    if (epochs > 0) seen.spec.mutable_stop()->set_epochs(epochs);
    if (steps > 0) seen.spec.mutable_stop()->set_steps(steps);
    v1alpha1::CoordinatorReport report;
    report.mutable_training()->mutable_progress()->set_step(7);
    report.mutable_training()->mutable_progress()->set_epoch(2);
    Pass pass(seen, kOptions, kNow);
    pass.report = &report;
    TakeProgress(pass);
    EXPECT_EQ(pass.status.progress().total_epochs(), epochs);
    return pass.status.progress().summary();
  };
  EXPECT_EQ(summary(0, 9), "step 7/9");
  EXPECT_EQ(summary(3, 9), "epoch 2/3");
  EXPECT_EQ(summary(3, 0), "epoch 2/3");
  EXPECT_EQ(summary(0, 0), "epoch 2");
}

TEST(TakeProgress, LeavesOutARemainderThatTheApiServerWouldRefuse) {
  const std::pair<int, int> all[] = {{0, 1}, {0, -1}, {1, 0}, {-1, 0}};
  for (const auto& [seconds, nanos] : all) {
    Observed seen;
    v1alpha1::CoordinatorReport report;
    auto& left = *report.mutable_training()->mutable_progress()->mutable_estimated_remaining();
    left.set_seconds(seconds);
    left.set_nanos(nanos);
    Pass pass(seen, kOptions, kNow);
    pass.report = &report;
    TakeProgress(pass);
    EXPECT_EQ(pass.status.progress().has_estimated_remaining(), seconds >= 0 && nanos >= 0)
        << seconds << " " << nanos;
  }
}

TEST(TakeProgress, OnlyStepsThatAreNewEndARowOfFailures) {
  for (const std::int64_t settled : {100, 101}) {
    Observed seen;
    seen.status.set_failures(2);
    seen.status.set_failures_since_step(100);
    seen.status.set_newest_view(5);
    v1alpha1::CoordinatorReport report;
    report.set_settled_step(settled);
    report.set_newest_view(4);
    Pass pass(seen, kOptions, kNow);
    pass.report = &report;
    TakeProgress(pass);
    EXPECT_EQ(pass.status.failures(), settled == 100 ? 2 : 0);
    EXPECT_EQ(pass.status.failures_since_step(), settled);
    EXPECT_EQ(pass.status.newest_view(), 5) << "views never go back";
  }
}

// The job has ended and its coordinator is gone, so that nobody tells the workers.
TEST(CleanPods, WhoIsToldNothingIsDeletedInTheEndWhereNoneAreCleaned) {
  const std::pair<absl::Duration, int> all[] = {{absl::Seconds(10) - absl::Nanoseconds(1), 0},
                                                {absl::Seconds(10), 2}};
  for (const auto& [later, deleted] : all) {
    Scene scene;
    scene.Finished(true);
    scene.policy().set_clean_pod_policy(v1alpha1::CLEAN_POD_POLICY_NONE);
    std::erase_if(scene.seen.pods,
                  [](const ObservedPod& pod) { return pod.role == Role::kCoordinator; });
    scene.seen.link.reset();
    scene.now += later;
    const Decision decision = scene.Do();
    EXPECT_EQ(Count<DeletePod>(decision), deleted) << later;
    EXPECT_TRUE(deleted > 0 || decision.requeue_after <= absl::Milliseconds(5));
  }
}

TEST(ExpireJob, IsDueWhenItsTimeToLiveIsOver) {
  const std::pair<absl::Duration, int> all[] = {{absl::Seconds(5) - absl::Nanoseconds(1), 0},
                                                {absl::Seconds(5), 1}};
  for (const auto& [later, deleted] : all) {
    Scene scene;
    scene.Finished(true);
    scene.policy().set_ttl_seconds_after_finished(5);
    scene.now += later;
    EXPECT_EQ(Count<DeleteJob>(scene.Do()), deleted) << later;
  }
}

TEST(FailByDeadline, CountsTheTimeOfActivityAlone) {
  Observed seen;
  seen.spec.mutable_run_policy()->set_active_deadline_seconds(60);
  seen.status.set_active_seconds(20);
  SetTime(seen.status.mutable_start_time(), kNow - absl::Seconds(100));
  v1alpha1::Condition& resumed = *seen.status.add_conditions();
  resumed.set_type("Suspended");
  resumed.set_status("False");
  const auto left = [&](absl::Duration active) {
    SetTime(resumed.mutable_last_transition_time(), kNow - active);
    Pass pass(seen, kOptions, kNow);
    FailByDeadline(pass);
    return ConditionStatus(pass.status, "Failed") == "True" ? absl::ZeroDuration()
                                                            : pass.decision.requeue_after;
  };
  EXPECT_EQ(left(absl::Seconds(39)), absl::Seconds(1) + absl::Milliseconds(1));
  EXPECT_EQ(left(absl::Seconds(40)), absl::ZeroDuration());
  EXPECT_EQ(left(-absl::Seconds(5)), absl::Seconds(40) + absl::Milliseconds(1))
      << "what has not begun yet takes nothing away";
  resumed.set_status("Unknown");
  Pass suspending(seen, kOptions, kNow);
  EXPECT_EQ(ActiveSeconds(suspending), 20);
}

TEST(FailByDeadline, LeavesAloneWhatIsNotActive) {
  Observed seen;
  seen.spec.mutable_run_policy()->set_active_deadline_seconds(10);
  seen.status.set_active_seconds(20);
  const auto looks_again = [&] {
    Pass pass(seen, kOptions, kNow);
    FailByDeadline(pass);
    EXPECT_EQ(ConditionStatus(pass.status, "Failed"), "");
    return pass.decision.requeue_after < absl::InfiniteDuration();
  };
  EXPECT_FALSE(looks_again()) << "it has not begun";
  SetTime(seen.status.mutable_start_time(), kNow - absl::Seconds(100));
  v1alpha1::Condition& suspended = *seen.status.add_conditions();
  suspended.set_type("Suspended");
  suspended.set_status("True");
  EXPECT_FALSE(looks_again()) << "its deadline was brought forward while it is suspended";
}

TEST(FinishJob, TellsOfTheEndAsWhatItIs) {
  for (const bool succeeded : {true, false}) {
    Observed seen;
    seen.generation = 3;
    SetTime(seen.status.mutable_start_time(), kNow - absl::Seconds(40));
    Pass pass(seen, kOptions, kNow);
    EXPECT_FALSE(pass.Finished());
    FinishJob(pass, succeeded, "Why", "so it was");
    EXPECT_TRUE(pass.Finished());
    EXPECT_EQ(pass.status.active_seconds(), 40);
    EXPECT_EQ(ToTime(pass.status.completion_time()), kNow);
    const v1alpha1::Condition& condition = pass.status.conditions(0);
    EXPECT_EQ(condition.type(), succeeded ? "Succeeded" : "Failed");
    EXPECT_EQ(condition.status(), "True");
    EXPECT_EQ(condition.reason(), "Why");
    EXPECT_EQ(condition.message(), "so it was");
    EXPECT_EQ(condition.observed_generation(), 3);
    ASSERT_EQ(pass.decision.actions.size(), 1U);
    const auto& event = std::get<EmitEvent>(pass.decision.actions[0]);
    EXPECT_EQ(event.warning, !succeeded);
    EXPECT_EQ(event.reason, "Why");
    EXPECT_EQ(event.action, succeeded ? "Succeed" : "Fail");
    EXPECT_EQ(event.note, "so it was");
  }
}

TEST(SucceedWithResult, SaysWhetherTheTargetIsReached) {
  const std::pair<std::optional<bool>, const char*> all[] = {
      {std::nullopt, "trained 230 steps"},
      {true, "trained 230 steps; the target is reached"},
      {false, "trained 230 steps; the target is not reached"}};
  for (const auto& [reached, message] : all) {
    Scene scene;
    scene.Training();
    v1alpha1::Result& result = *scene.report().mutable_training()->mutable_result();
    result.set_steps(230);
    if (reached.has_value()) result.set_target_reached(*reached);
    EXPECT_EQ(FindCondition(scene.Do().status, "Succeeded")->message(), message);
  }
}

TEST(SetCondition, ItsTimeMovesWithItsStatusAlone) {
  Observed seen;
  seen.generation = 2;
  v1alpha1::Condition& other = *seen.status.add_conditions();
  other.set_type("Other");
  Pass first(seen, kOptions, kNow);
  EXPECT_TRUE(SetCondition(first, "Running", "True", "Training", "workers train"));
  ASSERT_EQ(first.status.conditions_size(), 2);
  EXPECT_EQ(first.status.conditions(0).status(), "");
  EXPECT_EQ(ToTime(first.status.conditions(1).last_transition_time()), kNow);

  seen.status = first.status;
  seen.generation = 3;
  Pass second(seen, kOptions, kNow + absl::Seconds(5));
  EXPECT_FALSE(SetCondition(second, "Running", "True", "Anew", "more of them train"));
  const v1alpha1::Condition& same = second.status.conditions(1);
  EXPECT_EQ(ToTime(same.last_transition_time()), kNow);
  EXPECT_EQ(same.reason(), "Anew");
  EXPECT_EQ(same.message(), "more of them train");
  EXPECT_EQ(same.observed_generation(), 3);
  EXPECT_TRUE(SetCondition(second, "Running", "False", "Starting", ""));
  EXPECT_EQ(ToTime(same.last_transition_time()), second.now);
  EXPECT_EQ(same.status(), "False");
}

TEST(ToTime, KeepsNanoseconds) {
  const absl::Time time = kNow + absl::Nanoseconds(123'456'789);
  google::protobuf::Timestamp stamp;
  SetTime(&stamp, time);
  EXPECT_EQ(stamp.nanos(), 123'456'789);
  EXPECT_EQ(ToTime(stamp), time);
}

TEST(Pass, LooksAgainAtTheEarliestButNotAtOnce) {
  const Observed seen;
  Pass pass(seen, kOptions, kNow);
  pass.RequeueAfter(absl::Seconds(3));
  pass.RequeueAt(kNow + absl::Seconds(2));
  pass.RequeueAfter(absl::Seconds(5));
  EXPECT_EQ(pass.decision.requeue_after, absl::Seconds(2));
  pass.RequeueAt(kNow - absl::Seconds(1));
  EXPECT_EQ(pass.decision.requeue_after, absl::Milliseconds(1));
}

TEST(Pass, PodsAreInTheOrderOfTheirIndexHoweverTheyAreListed) {
  Scene scene;
  scene.Training(3);
  std::reverse(scene.seen.pods.begin(), scene.seen.pods.end());
  scene.worker().set_replicas(2);
  const Decision decision = scene.Do();
  EXPECT_EQ(decision.surplus, std::vector<std::string>{scene.Pod("digits-worker-2").uid});
}

TEST(ConfigGeneration, IsThatOfTheNewestSpecWhereItIsCurrentOrANewOne) {
  const struct {
    std::vector<ObservedConfig> configs;
    std::int64_t generation, expected;
  } cases[] = {
      {{}, 4, 4},
      {{{1, true}}, 4, 1},
      {{{1, false}}, 4, 4},
      {{{4, false}}, 4, 5},
      {{{7, false}}, 4, 8},
      {{{3, false}, {5, true}}, 6, 5},
      {{{5, true}, {3, false}}, 6, 5},
      {{{3, true}, {5, false}}, 6, 6},
      {{{0, true}}, 1, 0},
  };
  for (const auto& one : cases) {
    Observed seen;
    seen.configs = one.configs;
    seen.generation = one.generation;
    EXPECT_EQ(ConfigGeneration(Pass(seen, kOptions, kNow)), one.expected);
  }
}

TEST(EnsureObjects, WhatIsThereIsNeitherMadeNorWaitedFor) {
  Observed seen;
  seen.configs = {{1, true}};
  seen.has_secret = seen.has_service = true;
  seen.refusal = Refusal{kQuotaExceeded, "no more pods", kNow, 1};
  Pass pass(seen, kOptions, kNow);
  EnsureObjects(pass);
  EXPECT_TRUE(pass.decision.actions.empty());
  EXPECT_FALSE(pass.decision.delayed);
  seen.has_service = false;
  Pass waits(seen, kOptions, kNow);
  EnsureObjects(waits);
  EXPECT_TRUE(waits.decision.actions.empty());
  EXPECT_TRUE(waits.decision.delayed);
  EXPECT_EQ(waits.decision.requeue_after, absl::Milliseconds(200));
  seen.refusal.reset();
  Pass makes(seen, kOptions, kNow);
  EnsureObjects(makes);
  EXPECT_EQ(Count<CreateService>(makes.decision), 1);
  EXPECT_EQ(makes.decision.actions.size(), 1U);
}

TEST(EnsureObjects, AContainerOfTheUsersGetsNoBudget) {
  Observed seen;
  Options options;
  options.budgets = true;
  Pass ours(seen, options, kNow);
  EnsureObjects(ours);
  EXPECT_EQ(Count<CreateBudget>(ours.decision), 1);
  seen.spec.mutable_workload()->mutable_container();
  Pass theirs(seen, options, kNow);
  EnsureObjects(theirs);
  EXPECT_EQ(Count<CreateBudget>(theirs.decision), 0);
  EXPECT_EQ(Count<CreateSecret>(theirs.decision), 0);
}

TEST(CleanPods, WhoIsLetGoHasTenSecondsToExit) {
  Scene scene;
  scene.Finished(true);
  scene.now += absl::Seconds(10) - absl::Nanoseconds(1);
  EXPECT_EQ(Count<DeletePod>(scene.Do()), 0);
  EXPECT_LE(scene.Do().requeue_after, absl::Milliseconds(5));
  scene.now += absl::Nanoseconds(1);
  EXPECT_EQ(Count<DeletePod>(scene.Do()), 2);
}

TEST(CleanPods, AContainerOfTheUsersIsLeftToItselfWhereNoneAreCleaned) {
  Scene scene;
  scene.Finished(false);
  scene.policy().set_clean_pod_policy(v1alpha1::CLEAN_POD_POLICY_NONE);
  scene.seen.spec.mutable_workload()->mutable_container();
  scene.seen.pods.erase(scene.seen.pods.begin());  // they have no coordinator
  scene.seen.link.reset();
  scene.now += absl::Hours(1);
  EXPECT_EQ(Count<DeletePod>(scene.Do()), 0);
}

TEST(CleanPods, OfAllNoneIsDeletedTwice) {
  Scene scene;
  scene.Finished(true);
  scene.policy().set_clean_pod_policy(v1alpha1::CLEAN_POD_POLICY_ALL);
  for (ObservedPod& pod : scene.seen.pods) pod.phase = PodPhase::kSucceeded;
  scene.Pod("digits-worker-1").terminating = true;
  const Decision decision = scene.Do();
  EXPECT_EQ(Deletes(decision, "digits-worker-1"), nullptr);
  ASSERT_NE(Deletes(decision, "digits-worker-0"), nullptr);
  EXPECT_EQ(Deletes(decision, "digits-worker-0")->grace_seconds, 0);
}

TEST(ReleaseGoneNodes, OnlyPodsThatAreBeingDeletedAreReleased) {
  Scene scene;
  scene.Training();
  for (ObservedPod& pod : scene.seen.pods) pod.node = "b";
  scene.seen.nodes["b"].exists = false;
  scene.Pod("digits-worker-1").terminating = true;
  Pass pass(scene.seen, scene.options, scene.now);
  ReleaseGoneNodes(pass);
  ASSERT_EQ(Count<DeletePod>(pass.decision), 1);
  EXPECT_EQ(Deletes(pass.decision, "digits-worker-1")->grace_seconds, 0);
}

TEST(TakeProgress, WhatAReportDoesNotTellStaysAsItWas) {
  Observed seen;
  seen.status.set_failures_since_step(7);
  (*seen.status.mutable_goodput())["compute"] = 5;
  seen.status.mutable_last_checkpoint()->set_name("1-1-60");
  seen.status.mutable_progress()->set_step(60);
  v1alpha1::CoordinatorReport report;
  report.set_settled_step(100);
  Pass untold(seen, kOptions, kNow);
  untold.report = &report;
  TakeProgress(untold);
  EXPECT_EQ(untold.status.goodput().at("compute"), 5);
  EXPECT_EQ(untold.status.last_checkpoint().name(), "1-1-60");
  EXPECT_EQ(untold.status.progress().step(), 60);
  EXPECT_EQ(untold.status.failures_since_step(), 7) << "there is no row of failures to be ended";
  (*report.mutable_training()->mutable_goodput())["compute"] = 9;
  report.mutable_training()->mutable_checkpoint()->set_name("1-1-90");
  Pass told(seen, kOptions, kNow);
  told.report = &report;
  TakeProgress(told);
  EXPECT_EQ(told.status.goodput().at("compute"), 9);
  EXPECT_EQ(told.status.last_checkpoint().name(), "1-1-90");
}

TEST(AnswerCheckpointRequest, IsTheFirstCheckpointThatHoldsTheStep) {
  const auto answered = [](const std::string& wanted, const std::string& written, std::int64_t step,
                           const std::string& newest = "1-1-100") {
    Observed seen;
    seen.checkpoint_request = wanted;
    v1alpha1::CheckpointStatus& checkpoint = *seen.status.mutable_last_checkpoint();
    checkpoint.set_step(100);
    if (!newest.empty()) checkpoint.set_name(newest);
    v1alpha1::CoordinatorReport report;
    report.set_checkpoint_request(written);
    report.set_checkpoint_request_step(step);
    Pass pass(seen, kOptions, kNow);
    AnswerCheckpointRequest(pass);
    EXPECT_FALSE(pass.status.has_requested_checkpoint()) << "nobody speaks for training";
    pass.report = &report;
    AnswerCheckpointRequest(pass);
    return pass.status.has_requested_checkpoint();
  };
  EXPECT_TRUE(answered("now", "now", 99));
  EXPECT_TRUE(answered("now", "now", 100));
  EXPECT_FALSE(answered("now", "now", 101));
  EXPECT_FALSE(answered("now", "before", 99));
  EXPECT_FALSE(answered("now", "now", 99, "")) << "there is none yet";
  EXPECT_FALSE(answered("", "", 99)) << "nobody asks for one";
}

TEST(WantedWorkers, AreWithinWhatTheSpecAndTheQueueAllow) {
  const auto wanted = [](std::int64_t replicas, std::int64_t least,
                         std::optional<std::int64_t> most, std::optional<std::int64_t> queue = {}) {
    Observed seen;
    auto& worker = *seen.spec.mutable_replica_specs()->mutable_worker();
    worker.set_replicas(replicas);
    worker.set_min_replicas(least);
    if (most.has_value()) worker.set_max_replicas(*most);
    seen.queueing.worker_limit = queue;
    const Wanted found = WantedWorkers(Pass(seen, kOptions, kNow));
    return std::pair(found.replicas, found.limit);
  };
  using Found = std::pair<std::int64_t, std::string>;
  EXPECT_EQ(wanted(3, 1, 5), Found(3, ""));
  EXPECT_EQ(wanted(5, 1, 5), Found(5, ""));
  EXPECT_EQ(wanted(6, 1, 5), Found(5, "maxReplicas"));
  EXPECT_EQ(wanted(6, 1, 0), Found(1, "maxReplicas"));
  EXPECT_EQ(wanted(2, 2, 5), Found(2, ""));
  EXPECT_EQ(wanted(1, 2, 5), Found(2, "minReplicas"));
  EXPECT_EQ(wanted(-3, -3, 5), Found(1, "minReplicas"));
  EXPECT_EQ(wanted(2'000, 1, {}), Found(1'024, ""));
  EXPECT_EQ(wanted(1, 2'000, {}), Found(1'024, "minReplicas"));
  EXPECT_EQ(wanted(3, 1, {}, 3), Found(3, ""));
  EXPECT_EQ(wanted(3, 1, {}, 2), Found(2, "the queue"));
  EXPECT_EQ(wanted(3, 2, {}, 0), Found(1, "the queue"));
}

TEST(WantedWorkers, WithoutAnExchangeAreOneUnlessTheyAreTheUsersOwn) {
  v1alpha1::TrainingJobSpec spec;
  spec.mutable_replica_specs()->mutable_worker()->set_replicas(3);
  spec.mutable_exchange()->mutable_none();
  EXPECT_EQ(WantedWorkers(spec).replicas, 1);
  EXPECT_EQ(WantedWorkers(spec).limit, "exchange: none");
  spec.mutable_workload()->mutable_container();
  EXPECT_EQ(WantedWorkers(spec).replicas, 3);
}

TEST(WantedWorkers, OfAReproducibleJobAreAsManyAsItsBatchHasParts) {
  v1alpha1::TrainingJobSpec spec;
  spec.mutable_replica_specs()->mutable_worker()->set_replicas(40);
  spec.set_reproducible(true);
  for (const auto& [batch, workers] : {std::pair(0, 1), {1, 1}, {15, 15}, {16, 16}, {17, 16}}) {
    spec.mutable_dataset()->set_global_batch_size(batch);
    EXPECT_EQ(WantedWorkers(spec).replicas, workers) << batch;
  }
}

TEST(NoteWanted, TellsWhatBoundsTheWorkersWhenItBeginsTo) {
  Scene scene;
  scene.Training(2);
  scene.worker().set_replicas(9);
  scene.worker().set_max_replicas(3);
  Pass pass(scene.seen, scene.options, scene.now);
  ScaleWorkers(pass);
  ASSERT_EQ(Count<EmitEvent>(pass.decision), 1);
  const auto& event = std::get<EmitEvent>(pass.decision.actions[0]);
  EXPECT_TRUE(event.warning);
  EXPECT_EQ(event.note, "9 workers are asked for; maxReplicas makes that 3");
  scene.worker().set_replicas(3);
  Pass plain(scene.seen, scene.options, scene.now);
  ScaleWorkers(plain);
  EXPECT_EQ(Count<EmitEvent>(plain.decision), 0) << "nothing bounds them";
  EXPECT_EQ(plain.status.replicas(), 3);
}

TEST(ScaleServers, TellsWhatBoundsThemOnceForWhatIsWritten) {
  Scene scene;
  scene.servers(4).set_max_replicas(2);
  scene.seen.generation = 2;
  for (const std::int64_t generation : {1, 2}) {
    scene.seen.status.set_observed_generation(generation);
    Pass pass(scene.seen, scene.options, scene.now);
    ScaleServers(pass);
    EXPECT_EQ(Count<CreatePod>(pass.decision), 2);
    ASSERT_EQ(Count<EmitEvent>(pass.decision), generation == 1 ? 1 : 0);
    if (generation == 1) {
      EXPECT_EQ(std::get<EmitEvent>(pass.decision.actions[0]).note,
                "4 parameter servers are asked for; maxReplicas makes that 2");
    }
  }
  scene.seen.status.set_observed_generation(1);
  scene.servers(2);
  Pass plain(scene.seen, scene.options, scene.now);
  ScaleServers(plain);
  EXPECT_EQ(Count<EmitEvent>(plain.decision), 0);
}

TEST(FreeIndexes, AreTheLowestThatNoPodOfTheRoleHas) {
  Scene scene;
  scene.Add(Role::kWorker, 0);
  scene.Add(Role::kWorker, 2);
  scene.Add(Role::kParameterServer, 1);
  scene.End("digits-worker-2", 1);
  Pass pass(scene.seen, scene.options, scene.now);
  EXPECT_EQ(FreeIndexes(pass, Role::kWorker, 3), (std::vector<std::int64_t>{1, 3, 4}));
  pass.Delete(scene.Pod("digits-worker-2"), 0);
  pass.Delete(scene.Pod("digits-worker-0"), 0);
  EXPECT_EQ(FreeIndexes(pass, Role::kWorker, 3), (std::vector<std::int64_t>{1, 2, 3}))
      << "one that runs keeps its index until it is gone";
  EXPECT_TRUE(FreeIndexes(pass, Role::kWorker, 0).empty());
}

TEST(ScaleWorkers, ADrainIsWaitedForForAMinuteAndNoLonger) {
  Scene scene;
  scene.Training(3);
  scene.worker().set_replicas(2);
  ObservedPod& pod = scene.Pod("digits-worker-2");
  const auto scale = [&] {
    Pass pass(scene.seen, scene.options, scene.now);
    pass.report = &scene.report();
    ScaleWorkers(pass);
    return pass.decision;
  };
  EXPECT_EQ(scale().requeue_after, absl::Minutes(1));
  pod.surplus_since = scene.now - absl::Minutes(1) + absl::Seconds(1);
  EXPECT_EQ(Count<DeletePod>(scale()), 0);
  EXPECT_EQ(scale().requeue_after, absl::Seconds(1));
  pod.surplus_since = scene.now - absl::Minutes(1);
  EXPECT_EQ(Count<DeletePod>(scale()), 1);
  EXPECT_EQ(scale().surplus, std::vector<std::string>{pod.uid});
  // Another one's drain is not its own, and nobody is drained of whom nobody tells.
  pod.surplus_since = scene.now;
  scene.report().mutable_members(1)->set_drained(true);
  EXPECT_EQ(Count<DeletePod>(scale()), 0);
}

TEST(MakePod, TheFirstOneStartsTheJob) {
  Scene scene;
  Pass pass(scene.seen, scene.options, scene.now);
  MakePod(pass, Role::kWorker, 0, {});
  EXPECT_EQ(ToTime(pass.status.start_time()), scene.now);
  scene.seen.status = pass.status;
  Pass later(scene.seen, scene.options, scene.now + absl::Seconds(5));
  MakePod(later, Role::kWorker, 1, {});
  EXPECT_EQ(ToTime(later.status.start_time()), scene.now);
}

TEST(CleanPods, NobodyIsWaitedForWhereAllAreOnTheirWay) {
  Scene scene;
  scene.Finished(true);
  scene.seen.pods.erase(scene.seen.pods.begin());  // the coordinator has gone
  for (ObservedPod& pod : scene.seen.pods) pod.terminating = true;
  Pass pass(scene.seen, scene.options, scene.now);
  CleanPods(pass);
  EXPECT_EQ(pass.decision.requeue_after, absl::InfiniteDuration());
  EXPECT_EQ(Count<DeletePod>(pass.decision), 0);
}

TEST(ActiveSeconds, OfAJobThatHasEndedStayAsTheyWere) {
  Observed seen;
  seen.status.set_active_seconds(20);
  SetTime(seen.status.mutable_start_time(), kNow - absl::Seconds(100));
  SetTime(seen.status.mutable_completion_time(), kNow - absl::Seconds(80));
  EXPECT_EQ(ActiveSeconds(Pass(seen, kOptions, kNow)), 20);
}

TEST(AvoidedNodes, WhatHappenedLongAgoLeavesTheStatus) {
  Scene scene;
  scene.Training();
  v1alpha1::AvoidedNode& node = *scene.seen.status.add_avoided_nodes();
  node.set_name("a");
  node.set_failures(1);
  SetTime(node.mutable_last_failure_time(), scene.now);
  EXPECT_EQ(scene.Do().status.avoided_nodes_size(), 1);
  scene.now += absl::Minutes(11);
  EXPECT_EQ(scene.Do().status.avoided_nodes_size(), 0);
}

}  // namespace
}  // namespace starling::trainingjob
