// SPDX-License-Identifier: Apache-2.0
// How often the status is written, and what stands in it.
#include <functional>
#include <set>
#include <tuple>
#include <utility>

#include "controller/testing/test_scene.h"
#include "controller/trainingjob/policies.h"
#include "controller/trainingjob/quantity.h"
#include "gtest/gtest.h"

namespace starling::trainingjob {
namespace {

// The API server is not a metrics store: between milestones at most one write in ten seconds.
TEST(DecideStatus, ProgressAloneIsWrittenAtMostEveryTenSecondsInACluster) {
  Scene scene;
  scene.options = ClusterOptions();
  scene.options.budgets = false;
  scene.Training();
  scene.seen.since_status_write = absl::ZeroDuration();
  int writes = 0;
  for (int tick = 1; tick <= 600; ++tick) {  // a minute, a report every 100 ms
    scene.now += absl::Milliseconds(100);
    scene.seen.since_status_write += absl::Milliseconds(100);
    scene.report().set_settled_step(100 + tick);
    scene.report().mutable_training()->mutable_progress()->set_step(100 + tick);
    if (!scene.Do().write_status) continue;
    ++writes;
    scene.Settle();
    scene.seen.since_status_write = absl::ZeroDuration();
  }
  EXPECT_GE(writes, 4);
  EXPECT_LE(writes, 6);
}

TEST(DecideStatus, ProgressIsSummedUpInTheWordsOfWhatEndsTheJob) {
  Scene scene;
  scene.Training();
  v1alpha1::Progress& progress = *scene.report().mutable_training()->mutable_progress();
  progress.set_epoch(3);
  progress.set_step(57);
  v1alpha1::Stop& stop = *scene.seen.spec.mutable_stop();
  stop.set_epochs(20);
  scene.Settle();
  EXPECT_EQ(scene.seen.status.progress().summary(), "epoch 3/20");
  EXPECT_EQ(scene.seen.status.progress().total_epochs(), 20);

  progress.mutable_estimated_remaining()->set_seconds(-2);
  scene.Settle();
  EXPECT_FALSE(scene.seen.status.progress().has_estimated_remaining());

  stop.clear_epochs();
  stop.set_steps(1000);
  scene.Settle();
  EXPECT_EQ(scene.seen.status.progress().summary(), "step 57/1000");
}

TEST(DecideStatus, ATimelineIsWantedUntilItIsStoredAlsoWhenTheJobHasEnded) {
  Scene scene;
  scene.Training();
  const auto wanted = [&] { return scene.Do().supervision->desired->trace_request(); };
  EXPECT_EQ(wanted(), "");
  scene.seen.trace_request = "now";
  scene.seen.trace_stored = "before";
  EXPECT_EQ(wanted(), "now");
  scene.report().set_trace_request("before");
  scene.report().set_trace("bytes");
  EXPECT_EQ(Count<StoreTrace>(scene.Do()), 0) << "that was another";
  scene.report().set_trace_request("now");
  const Decision stores = scene.Do();
  ASSERT_EQ(Count<StoreTrace>(stores), 1);
  EXPECT_EQ(stores.supervision->desired->trace_request(), "now") << "until it is stored";
  for (const Action& action : stores.actions) {
    if (const auto* trace = std::get_if<StoreTrace>(&action); trace != nullptr) {
      EXPECT_EQ(trace->packed, "bytes");
    }
  }
  scene.report().mutable_training()->mutable_result()->set_steps(1);
  EXPECT_EQ(Count<StoreTrace>(scene.Do()), 1);
  scene.seen.trace_stored = "now";
  EXPECT_EQ(wanted(), "");
  EXPECT_EQ(Count<StoreTrace>(scene.Do()), 0);
}

TEST(DecideStatus, ARequestedCheckpointIsWantedUntilTheStatusSaysWhichItIs) {
  Scene scene;
  scene.options = ClusterOptions();
  scene.options.budgets = false;
  scene.Training();
  EXPECT_EQ(scene.Do().supervision->desired->checkpoint_request(), "");
  scene.seen.checkpoint_request = "now";
  scene.seen.since_status_write = absl::ZeroDuration();
  EXPECT_EQ(scene.Do().supervision->desired->checkpoint_request(), "now");

  v1alpha1::CheckpointStatus& newest = *scene.report().mutable_training()->mutable_checkpoint();
  newest.set_name("1-1-90");
  newest.set_step(90);
  scene.report().set_checkpoint_request("before");
  scene.report().set_checkpoint_request_step(80);
  EXPECT_EQ(scene.Do().supervision->desired->checkpoint_request(), "now") << "that was another";
  scene.report().set_checkpoint_request("now");
  scene.report().set_checkpoint_request_step(100);
  EXPECT_EQ(scene.Do().supervision->desired->checkpoint_request(), "now")
      << "who speaks does not know of it yet";

  newest.set_name("1-1-101");
  newest.set_step(101);
  const Decision answered = scene.Do();
  EXPECT_TRUE(answered.write_status) << "somebody waits for it";
  EXPECT_EQ(answered.supervision->desired->checkpoint_request(), "");
  EXPECT_EQ(answered.status.requested_checkpoint().request(), "now");
  EXPECT_EQ(answered.status.requested_checkpoint().checkpoint().step(), 101);

  scene.Settle();
  newest.set_step(200);
  EXPECT_EQ(scene.Do().status.requested_checkpoint().checkpoint().step(), 101);
  scene.seen.checkpoint_request = "again";
  EXPECT_EQ(scene.Do().supervision->desired->checkpoint_request(), "again");
}

TEST(DecideStatus, StragglersAreToldWithTheirNodes) {
  Scene scene;
  scene.Training();
  scene.seen.pods.back().node = "node-b";
  v1alpha1::Progress& progress = *scene.report().mutable_training()->mutable_progress();
  progress.add_stragglers()->set_pod(scene.seen.pods.back().name);
  progress.add_stragglers()->set_pod("gone");
  scene.Settle();
  ASSERT_EQ(scene.seen.status.progress().stragglers_size(), 2);
  EXPECT_EQ(scene.seen.status.progress().stragglers(0).node(), "node-b");
  EXPECT_FALSE(scene.seen.status.progress().stragglers(1).has_node());
  progress.clear_stragglers();
  scene.Settle();
  EXPECT_EQ(scene.seen.status.progress().stragglers_size(), 0);
}

// How long a job on a cluster waits after a write until it writes mere progress.
absl::Duration ProgressWait(const std::string& uid, std::int64_t written_step,
                            std::int64_t reported_step) {
  Scene scene;
  scene.options = ClusterOptions();
  scene.options.budgets = false;
  scene.options.coordinator_silence = absl::Hours(1);  // nothing else is waited for
  scene.seen.job.uid = uid;
  scene.Training();
  scene.report().mutable_training()->mutable_progress()->set_step(written_step);
  scene.Settle();
  scene.report().mutable_training()->mutable_progress()->set_step(reported_step);
  scene.seen.since_status_write = absl::ZeroDuration();
  const Decision waits = scene.Do();
  EXPECT_FALSE(waits.write_status);
  scene.seen.since_status_write = waits.requeue_after;
  EXPECT_TRUE(scene.Do().write_status);
  return waits.requeue_after;
}

TEST(DecideStatus, JobsThatStartedTogetherDoNotWriteTogether) {
  std::set<absl::Duration> waits;
  for (int job = 0; job < 50; ++job) {
    waits.insert(ProgressWait("uid-" + std::to_string(job), 100, 101));
  }
  EXPECT_GE(waits.size(), 40U);
  EXPECT_GE(*waits.begin(), absl::Seconds(10));
  EXPECT_LE(*waits.rbegin(), absl::Seconds(12));
}

TEST(DecideStatus, JobsThatWroteTogetherOnceDoNotForEver) {
  std::set<absl::Duration> waits;
  for (int step = 101; step <= 150; ++step) waits.insert(ProgressWait("uid", step, step + 1));
  EXPECT_GE(waits.size(), 40U);
}

TEST(DecideStatus, AJobsTurnStaysWhileItTrainsOn) {
  EXPECT_EQ(ProgressWait("uid", 100, 101), ProgressWait("uid", 100, 150));
}

TEST(DecideStatus, OnAClusterCountsWaitUntilThereIsMoreToSay) {
  Scene scene;
  scene.options = ClusterOptions();
  scene.options.budgets = false;
  scene.Prepared();
  scene.Settle();
  scene.seen.since_status_write = absl::Seconds(1);
  scene.Add(Role::kWorker, 0, PodPhase::kPending);
  const Decision decision = scene.Do();
  EXPECT_FALSE(decision.write_status);
  EXPECT_LE(decision.requeue_after, scene.options.counts_interval - absl::Seconds(1));
  scene.seen.since_status_write = scene.options.counts_interval;
  EXPECT_TRUE(scene.Do().write_status);
}

// A suspended job whose workers have gone, and whose coordinator tells of a checkpoint since the
// status was written.
Decision ToldAfterTheWorkersWent(bool stopped) {
  Scene scene;
  scene.options = ClusterOptions();
  scene.options.budgets = false;
  scene.Training();
  scene.policy().set_suspend(true);
  scene.report().set_stopped(stopped);
  std::erase_if(scene.seen.pods, [](const ObservedPod& pod) { return pod.role == Role::kWorker; });
  scene.Settle();
  scene.seen.since_status_write = absl::ZeroDuration();
  scene.report().mutable_training()->mutable_checkpoint()->set_step(117);
  return scene.Do();
}

// Whoever resumes the job would be told of an older one.
TEST(DecideStatus, WhatTheCoordinatorToldLastIsWrittenBeforeItGoes) {
  const Decision decision = ToldAfterTheWorkersWent(/*stopped=*/true);
  EXPECT_TRUE(decision.write_status);
  EXPECT_EQ(decision.status.last_checkpoint().step(), 117);
}

// Its members have gone before they could say that they stopped.
TEST(DecideStatus, WhatACoordinatorToldLastIsWrittenThoughItsJobHasNotStopped) {
  const Decision decision = ToldAfterTheWorkersWent(/*stopped=*/false);
  ASSERT_NE(Deletes(decision, "digits-coordinator-0"), nullptr);
  EXPECT_TRUE(decision.write_status);
}

// The one that wrote the checkpoint goes first, perhaps; the others have never heard of it.
TEST(DecideStatus, WhatAJobStoppedWithIsWrittenBeforeItsWorkersGo) {
  for (const bool stopped : {true, false}) {
    Scene scene;
    scene.options = ClusterOptions();
    scene.options.budgets = false;
    scene.Training();
    scene.seen.spec.mutable_run_policy()->set_suspend(true);
    scene.Settle();
    scene.seen.since_status_write = absl::ZeroDuration();
    scene.report().set_stopped(stopped);
    scene.report().mutable_training()->mutable_checkpoint()->set_step(117);
    const Decision decision = scene.Do();
    EXPECT_EQ(Deletes(decision, "digits-worker-0") != nullptr, stopped);
    EXPECT_EQ(decision.write_status, stopped) << "mere progress waits for its turn";
    EXPECT_EQ(decision.status.last_checkpoint().step(), 117);
  }
}

TEST(DecideStatus, ChangingWordsOfTheKubeletAreNotWrittenAgainAndAgain) {
  Scene scene;
  scene.options = ClusterOptions();
  scene.options.budgets = false;
  scene.Prepared();
  scene.worker().set_replicas(1);
  scene.Add(Role::kCoordinator, 0, PodPhase::kPending);
  ObservedPod& pod = scene.Add(Role::kWorker, 0, PodPhase::kPending);
  pod.problem = PodProblem{kImagePullFailed, "ErrImagePull: not found", scene.now};
  scene.now += absl::Seconds(5);
  scene.Settle();
  ASSERT_EQ(scene.seen.status.state(), "Pending");
  scene.Pod("digits-worker-0").problem->message = "ImagePullBackOff: back-off 10s";

  EXPECT_FALSE(scene.Do().write_status);
}

TEST(DecideStatus, FrozenWorkerIsOneIncident) {
  Scene scene;
  scene.Training();
  v1alpha1::Incident& notice = *scene.report().add_incidents();
  notice.set_reason("WorkerSilent");
  notice.set_pod("digits-worker-1");
  notice.set_message("it stopped answering; 1 worker goes on");
  notice.set_detection_seconds(1.0);
  SetTime(notice.mutable_time(), scene.now - absl::Seconds(4));
  scene.report().mutable_members(1)->set_connected(false);
  scene.report().mutable_members(1)->set_silent_seconds(6);

  scene.Settle().Settle();

  ASSERT_EQ(scene.seen.status.incidents_size(), 1);
  const v1alpha1::Incident& incident = scene.seen.status.incidents(0);
  EXPECT_EQ(incident.reason(), "WorkerLost");
  EXPECT_DOUBLE_EQ(incident.detection_seconds(), 1.0);
  EXPECT_EQ(incident.message(), "it stopped answering; 1 worker goes on; it is replaced");
  EXPECT_NE(Deletes(scene.Do(), "digits-worker-1"), nullptr);
}

TEST(DecideStatus, TwoWorkersThatAreLostAreTwoIncidents) {
  Scene scene;
  scene.Training(3);
  for (const int index : {1, 2}) {
    scene.report().mutable_members(index)->set_connected(false);
    scene.report().mutable_members(index)->set_silent_seconds(6);
  }

  EXPECT_EQ(scene.Do().status.incidents_size(), 2);
}

TEST(DecideStatus, StoppedControllerLeavesTheStateOfAJobWithoutPodsPending) {
  Scene scene;
  scene.Training();
  ASSERT_EQ(scene.seen.status.state(), "Running");
  scene.seen.shutting_down = true;
  scene.report().set_stopped(true);

  EXPECT_EQ(scene.Do().status.state(), "Pending");
}

TEST(Reasons, EveryReasonOfATableRowHasAMeaning) {
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for (const ReasonRow& row : Reasons()) {
    EXPECT_FALSE(row.where.empty());
    EXPECT_FALSE(row.reason.empty());
    EXPECT_FALSE(row.meaning.empty()) << row.reason;
    EXPECT_TRUE(seen.insert({row.where, row.reason}).second) << row.reason;
  }
  EXPECT_NE(ReasonsAsMarkdown().find("| Degraded | `Unschedulable` |"), std::string::npos);
  EXPECT_EQ(MeaningOf("NoSuchReason"), "");
}

TEST(Quantity, BytesAreReadAndWritten) {
  EXPECT_EQ(ParseBytes("64Gi"), 64LL << 30);
  EXPECT_EQ(ParseBytes("1.5Gi"), 3LL << 29);
  EXPECT_EQ(ParseBytes("500M"), 500'000'000);
  EXPECT_EQ(ParseBytes("1e9"), 1'000'000'000);
  EXPECT_EQ(ParseBytes("1234"), 1234);
  EXPECT_EQ(ParseBytes("1500m"), 2);
  for (const char* wrong : {"", "Gi", "much", "-1Gi", "1GiB", "nan", "inf"}) {
    EXPECT_EQ(ParseBytes(wrong), 0) << wrong;
  }
  EXPECT_EQ(FormatBytes(96LL << 20), "96Mi");
  EXPECT_EQ(FormatBytes(64LL << 30), "64Gi");
  EXPECT_EQ(FormatBytes(1500), "1500");
}

TEST(DecideStatus, SaysWhatTrainingWaitsFor) {
  Scene scene;
  scene.Prepared().Settle();
  EXPECT_EQ(ReasonOf(scene.Do(), "Running"), "Starting");
  EXPECT_EQ(FindCondition(scene.Do().status, "Running")->message(),
            "waiting for the coordinator and the workers");
  scene.Training();
  scene.report().set_view_synced(false);
  scene.seen.status.clear_conditions();
  EXPECT_EQ(scene.Do().status.state(), "Pending") << "it has not been in step yet";
  EXPECT_EQ(FindCondition(scene.Do().status, "Running")->message(),
            "waiting for the coordinator and the workers");
  scene.report().set_waiting("worker 1 has another data set");
  EXPECT_EQ(FindCondition(scene.Do().status, "Running")->message(),
            "worker 1 has another data set");
  Scene own;
  own.Prepared().seen.spec.mutable_workload()->mutable_container();
  EXPECT_EQ(FindCondition(own.Do().status, "Running")->message(), "waiting for the workers");
}

TEST(DecideStatus, TrainingIsToldWhenItBeginsAndWhenItStops) {
  Scene scene;
  scene.Training();
  EXPECT_FALSE(Emits(scene.Do(), "Running"));
  EXPECT_EQ(ReasonOf(scene.Do(), "Running"), "Training");
  scene.seen.status.clear_conditions();
  EXPECT_TRUE(Emits(scene.Do(), "Running"));
  EXPECT_TRUE(Is(scene.Do(), "Running"));
  EXPECT_EQ(FindCondition(scene.Do().status, "Restarting"), nullptr);
  scene.Settle();
  for (auto& member : *scene.report().mutable_members()) member.set_connected(false);
  EXPECT_TRUE(Emits(scene.Do(), "Restarting"));
  EXPECT_EQ(ReasonOf(scene.Do(), "Running"), "Recovering");
  EXPECT_EQ(ReasonOf(scene.Do(), "Restarting"), "Recovering");
  scene.Settle();
  EXPECT_FALSE(Emits(scene.Do(), "Restarting")) << "once";
  EXPECT_EQ(ReasonOf(scene.Do(), "Running"), "Recovering");
  scene.report().mutable_training()->set_failure("no use");
  EXPECT_EQ(ReasonOf(scene.Do(), "Restarting"), "JobFinished");
  EXPECT_FALSE(Is(scene.Do(), "Restarting"));
  EXPECT_EQ(ReasonOf(scene.Do(), "Running"), "JobFinished");
}

// A member that is led, in a view or on its way into one, is what training consists of.
TEST(DecideStatus, AJobTrainsWhoseMembersAreHeardAndInStep) {
  const auto trains = [](bool connected, bool in_view, v1alpha1::Phase phase) {
    Scene scene;
    scene.Training(1);
    v1alpha1::MemberStatus& member = *scene.report().mutable_members(0);
    member.set_connected(connected);
    member.set_in_view(in_view);
    member.set_phase(phase);
    return Is(scene.Do(), "Running");
  };
  EXPECT_TRUE(trains(true, true, v1alpha1::PHASE_OUT));
  EXPECT_TRUE(trains(true, false, v1alpha1::PHASE_RUN));
  EXPECT_FALSE(trains(true, false, v1alpha1::PHASE_OUT));
  EXPECT_FALSE(trains(false, true, v1alpha1::PHASE_RUN));
}

// Its members are in step: unlike the round of a job that brings its own container, it has begun.
TEST(DecideStatus, OnAClusterAJobTrainsHoweverLatelyItsWorkersStarted) {
  Scene scene;
  scene.options.round_settle = ClusterOptions().round_settle;
  scene.Prepared().Add(Role::kCoordinator, 0);
  for (const std::int64_t index : {0, 1}) scene.Add(Role::kWorker, index).started = scene.now;
  scene.Granted();

  EXPECT_TRUE(Is(scene.Do(), "Running"));
}

TEST(DecideStatus, PodsAreCountedByTheirRoleAndPhase) {
  Scene scene;
  scene.servers(1);
  scene.Training(4);
  scene.Pod("digits-worker-0").ready = false;
  scene.End("digits-worker-1", 0).ready = true;
  scene.End("digits-worker-2", 1);
  scene.Pod("digits-worker-3").terminating = true;
  const auto counts = [&](const char* role) {
    const v1alpha1::ReplicaStatus of = scene.Do().status.replica_statuses().at(role);
    return std::tuple(of.active(), of.ready(), of.succeeded(), of.failed());
  };
  EXPECT_EQ(counts("worker"), std::tuple(1, 0, 1, 1));
  EXPECT_EQ(counts("coordinator"), std::tuple(1, 1, 0, 0));
  EXPECT_EQ(counts("parameterServer"), std::tuple(1, 1, 0, 0));
  scene.Settle();
  scene.seen.pods.clear();
  EXPECT_EQ(counts("worker"), std::tuple(0, 0, 0, 0));
  scene.seen.spec.mutable_exchange()->mutable_all_reduce();
  EXPECT_FALSE(scene.Do().status.replica_statuses().contains("parameterServer"));
}

TEST(DecideStatus, WorkersAreCountedAsWantedBeforeAnyIsMade) {
  Scene scene;
  scene.Suspended();
  EXPECT_EQ(scene.seen.status.replicas(), 2);
  scene.worker().set_replicas(3);
  EXPECT_EQ(scene.Do().status.replicas(), 2) << "until it goes on";
}

TEST(DecideStatus, TheLastWordStandsWhileAJobIsOnItsWayIntoSuspension) {
  Scene scene;
  scene.Training();
  scene.policy().set_suspend(true);
  EXPECT_EQ(scene.Do().status.state(), "Running");
  EXPECT_EQ(ReasonOf(scene.Do(), "Running"), "JobSuspended");
  scene.seen.status.clear_state();
  EXPECT_EQ(scene.Do().status.state(), "Pending") << "there was none";
}

TEST(DecideStatus, WhatChangesAllTheTimeWaitsForItsTurn) {
  using Change = void (*)(Scene&);
  const std::pair<Change, bool> changes[] = {
      {[](Scene& s) { (*s.report().mutable_training()->mutable_goodput())["compute"] = 9; }, false},
      {[](Scene& s) { s.report().mutable_training()->mutable_checkpoint()->set_name("1-1-9"); },
       false},
      {[](Scene& s) { s.report().mutable_training()->mutable_progress()->set_step(101); }, false},
      {[](Scene& s) { s.Pod("digits-worker-1").ready = false; }, false},
      {[](Scene& s) {
         ObservedPod& going = s.Add(Role::kWorker, 7);
         going.terminating = true;
         going.deletion_due = s.now;
       },
       false},
      {[](Scene& s) { s.End("digits-worker-1", 0).terminating = true; }, false},
      {[](Scene& s) { s.End("digits-worker-1", 1).terminating = true; }, true},
      {[](Scene& s) { s.report().set_newest_view((1ULL << 32) + 2); }, true},
      {[](Scene& s) { s.seen.generation = 2; }, true}};
  int number = 0;
  for (const auto& [change, at_once] : changes) {
    Scene scene;
    scene.options.counts_interval = absl::Seconds(10);
    scene.Training();
    scene.seen.since_status_write = absl::ZeroDuration();
    change(scene);
    EXPECT_EQ(scene.Do().write_status, at_once) << number;
    scene.seen.since_status_write = absl::Seconds(10);
    const bool changes_status = number != 4;  // a pod that goes is not counted
    EXPECT_EQ(scene.Do().write_status, changes_status) << number;
    ++number;
  }
}

TEST(DecideStatus, AStatusThatIsNotWrittenYetIsWritten) {
  Scene scene;
  scene.Training();
  scene.seen.status_unwritten = true;
  EXPECT_TRUE(scene.Do().write_status);
}

TEST(DecideStatus, NothingIsLeftForLaterWhereTheStatusIsWrittenNow) {
  using Change = void (*)(Scene&);
  for (const Change change :
       {Change([](Scene& s) { s.seen.status_unwritten = true; }),
        Change([](Scene& s) { s.report().set_newest_view((1ULL << 32) + 2); })}) {
    Scene scene;
    scene.options.coordinator_silence = absl::Hours(1);  // nothing else is waited for
    scene.options.counts_interval = absl::Seconds(10);
    scene.Training();
    scene.seen.since_status_write = absl::ZeroDuration();
    scene.report().mutable_training()->mutable_progress()->set_step(101);
    EXPECT_LT(scene.Do().requeue_after, absl::Minutes(1));
    change(scene);
    EXPECT_TRUE(scene.Do().write_status);
    EXPECT_GT(scene.Do().requeue_after, absl::Minutes(1));
  }
}

// The first status of a job that its pods tell as well.
TEST(DecideStatus, OnlyWhatPodsTellTooMayWait) {
  const auto started = [](Scene& s) {
    s.Prepared();
    s.seen.spec.mutable_workload()->mutable_container();
  };
  const auto may_wait = [&](const std::function<void(Scene&)>& change) {
    Scene scene;
    started(scene);
    change(scene);
    return scene.Do().status_may_wait;
  };
  EXPECT_TRUE(may_wait([](Scene&) {}));
  EXPECT_TRUE(may_wait([](Scene& s) { s.Settle().seen.status_unwritten = true; }));
  EXPECT_FALSE(may_wait([](Scene& s) { s.Settle(); })) << "it is not the first";
  EXPECT_FALSE(may_wait([](Scene& s) { s.seen.spec.clear_workload(); })) << "grants are written";
  EXPECT_FALSE(may_wait([](Scene& s) {
    s.Settle().seen.status_unwritten = true;
    s.seen.spec.clear_workload();
  })) << "an edit came before it was written: now there are grants";
  EXPECT_FALSE(may_wait([](Scene& s) { s.seen.status.mutable_round()->set_number(2); }));
  EXPECT_FALSE(may_wait([](Scene& s) { s.seen.spec_error = "spec: wrong"; }));
  EXPECT_FALSE(may_wait([](Scene& s) { s.policy().set_suspend(true); }));
  EXPECT_FALSE(may_wait([](Scene& s) { s.seen.queueing.warning = "no Kueue"; }));
  EXPECT_FALSE(may_wait([](Scene& s) {
    s.seen.status.mutable_round()->set_number(1);
    ObservedPod& former = s.Add(Role::kWorker, 0);
    former.disruption = "EvictionByEvictionAPI";
    former.terminating = true;
    former.deletion_due = s.now;
  })) << "an incident";
}

TEST(DecideStatus, AJobIsAtRestThatWouldLoseNothing) {
  const auto at_rest = [](const std::function<void(Scene&)>& change) {
    Scene scene;
    scene.Training();
    change(scene);
    return scene.Do().at_rest;
  };
  EXPECT_FALSE(at_rest([](Scene&) {}));
  EXPECT_FALSE(at_rest([](Scene& s) { s.report().set_stopped(true); })) << "nobody asked it to";
  EXPECT_FALSE(at_rest([](Scene& s) { s.seen.shutting_down = true; }));
  EXPECT_FALSE(at_rest([](Scene& s) {
    s.seen.shutting_down = true;
    s.seen.link.reset();
  })) << "nobody knows";
  EXPECT_TRUE(at_rest([](Scene& s) {
    s.seen.shutting_down = true;
    s.report().set_stopped(true);
  }));
  EXPECT_TRUE(at_rest([](Scene& s) { s.seen.pods.resize(1); }));
  EXPECT_TRUE(at_rest([](Scene& s) { s.report().mutable_training()->set_failure("no use"); }));
  EXPECT_TRUE(at_rest([](Scene& s) {
    s.report().mutable_training()->mutable_result()->set_steps(100);
  })) << "its pods end by themselves";
  EXPECT_TRUE(at_rest([](Scene& s) { s.seen.spec.mutable_workload()->mutable_container(); }));
}

TEST(DecideStatus, AControllerThatEndsSaysSoOfJobsThatAreAtRest) {
  Scene scene;
  scene.Training();
  scene.seen.shutting_down = true;
  EXPECT_EQ(ReasonOf(scene.Do(), "Running"), "Training");
  scene.report().set_stopped(true);
  EXPECT_EQ(ReasonOf(scene.Do(), "Running"), "ControllerStopped");
  Scene empty;
  empty.Prepared();
  EXPECT_EQ(ReasonOf(empty.Do(), "Running"), "Starting");
}

TEST(ClusterOptions, AClusterIsGivenMoreTimeToStartAndWrittenToLessOften) {
  const Options cluster = ClusterOptions();
  const Options machine;
  EXPECT_GT(cluster.coordinator_start, machine.coordinator_start);
  EXPECT_LT(cluster.worker_silence, machine.worker_silence);
  EXPECT_GT(cluster.progress_interval, machine.progress_interval);
  EXPECT_GT(cluster.counts_interval, machine.counts_interval);
  EXPECT_GT(cluster.progress_jitter, machine.progress_jitter);
  EXPECT_GT(cluster.round_settle, machine.round_settle);
  EXPECT_GT(cluster.first_status_wait, machine.first_status_wait);
  EXPECT_GT(cluster.create_width, machine.create_width);
  EXPECT_LT(cluster.look_again, machine.look_again);
  EXPECT_TRUE(cluster.budgets && cluster.avoid_nodes);
  EXPECT_FALSE(machine.budgets || machine.avoid_nodes);
}

TEST(ClusterOptions, WaitsAreAsLongAsIsPromised) {
  const Options cluster = ClusterOptions();
  EXPECT_EQ(cluster.first_status_wait, absl::Seconds(10));
  EXPECT_EQ(cluster.look_again, absl::Seconds(5));
}

// Pods that run and that nobody has heard of say nothing of a job that has never trained.
TEST(DecideStatus, AJobThatHasNotTrainedIsNotTakenToTrainUnheard) {
  Scene scene;
  scene.Prepared().Add(Role::kCoordinator, 0);
  for (const std::int64_t index : {0, 1}) scene.Add(Role::kWorker, index);
  EXPECT_FALSE(Is(scene.Do(), "Running"));
}

TEST(DecideStatus, AWorkerThatGoesTakesNothingWithItThatMustBeWrittenAtOnce) {
  Scene scene;
  scene.Training();
  scene.Member(scene.Add(Role::kWorker, 7));
  scene.Settle();
  scene.seen.since_status_write = absl::ZeroDuration();
  scene.report().mutable_members(2)->set_drained(true);
  scene.report().mutable_training()->mutable_progress()->set_step(101);
  const Decision decision = scene.Do();
  ASSERT_NE(Deletes(decision, "digits-worker-7"), nullptr);
  EXPECT_FALSE(decision.write_status) << "others tell of the same training";
}

}  // namespace
}  // namespace starling::trainingjob
