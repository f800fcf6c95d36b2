// SPDX-License-Identifier: Apache-2.0
// Suspension and the end of a job.
#include "controller/testing/test_cases.h"
#include "controller/trainingjob/reasons.h"

namespace starling::trainingjob {
namespace {

// Nobody reports that the training's state is saved.
void SuspendBeyondHaltTimeout(Scene& scene) {
  scene.policy().set_suspend(true);
  scene.Settle();
  scene.now += absl::Seconds(31);
}

// The same, until the pods have gone.
void GiveUpToSave(Scene& scene) {
  SuspendBeyondHaltTimeout(scene);
  scene.Settle();
  scene.seen.pods.clear();
  scene.seen.link.reset();
  scene.Settle();
}

class DecideEnd : public testing::TestWithParam<Case> {};

TEST_P(DecideEnd, Holds) {
  Scene scene;
  GetParam().arrange(scene);
  GetParam().check(scene.Do());
}

const Case kSuspension[] = {
    {"EndingControllerHaltsTrainingAndMakesNothing",
     [](Scene& s) {
       s.Training();
       s.worker().set_replicas(5);
       s.seen.shutting_down = true;
     },
     [](const Decision& d) {
       EXPECT_TRUE(d.supervision->desired->settings().halt());
       EXPECT_EQ(Count<CreatePod>(d), 0);
       EXPECT_EQ(Count<DeletePod>(d), 0);
       EXPECT_FALSE(d.at_rest);
       EXPECT_EQ(FindCondition(d.status, "Suspended"), nullptr);
     }},
    {"HaltedTrainingIsAtRest",
     [](Scene& s) {
       s.Training();
       s.seen.shutting_down = true;
       s.report().set_stopped(true);
     },
     [](const Decision& d) { EXPECT_TRUE(d.at_rest); }},
    {"JobSuspendedFromTheStartHasNoPods", [](Scene& s) { s.policy().set_suspend(true); },
     [](const Decision& d) {
       EXPECT_TRUE(Is(d, "Suspended"));
       EXPECT_EQ(d.status.state(), "Suspended");
       EXPECT_EQ(Count<CreatePod>(d), 0);
       EXPECT_FALSE(d.status.has_start_time());
     }},
    {"SuspensionFirstAsksForAHalt",
     [](Scene& s) {
       s.Training();
       s.policy().set_suspend(true);
     },
     [](const Decision& d) {
       EXPECT_EQ(ConditionStatus(d.status, "Suspended"), "Unknown");
       EXPECT_TRUE(d.supervision->desired->settings().halt());
       EXPECT_EQ(Count<DeletePod>(d), 0);
       EXPECT_LE(d.requeue_after, absl::Seconds(30));
     }},
    {"WorkersAreReleasedWhenTheyHaveStopped",
     [](Scene& s) {
       s.Training();
       s.policy().set_suspend(true);
       s.report().set_stopped(true);
     },
     [](const Decision& d) {
       EXPECT_NE(Deletes(d, "digits-worker-0"), nullptr);
       EXPECT_NE(Deletes(d, "digits-worker-1"), nullptr);
       EXPECT_EQ(Deletes(d, "digits-coordinator-0"), nullptr);
     }},
    {"HaltThatTakesTooLongEnds",
     [](Scene& s) {
       s.Training();
       SuspendBeyondHaltTimeout(s);
     },
     [](const Decision& d) { EXPECT_NE(Deletes(d, "digits-worker-0"), nullptr); }},
    {"CheckpointThatCannotBeWrittenIsGivenUpAndItsPlaceIsNamed",
     [](Scene& s) {
       s.servers(2);
       s.seen.spec.mutable_checkpoint()->set_uri("file:///full/disk");
       s.Training();
       SuspendBeyondHaltTimeout(s);
     },
     [](const Decision& d) {
       EXPECT_NE(Deletes(d, "digits-parameter-server-0"), nullptr);
       EXPECT_NE(Deletes(d, "digits-worker-0"), nullptr);
       EXPECT_EQ(ConditionStatus(d.status, "Suspended"), "Unknown") << "pods are still there";
       EXPECT_EQ(ReasonOf(d, "Suspended"), kCheckpointNotWritten);
       const std::string message = FindCondition(d.status, "Suspended")->message();
       EXPECT_NE(message.find("file:///full/disk"), std::string::npos) << message;
       EXPECT_NE(message.find("step 0"), std::string::npos) << message;
       EXPECT_NE(message.find("make room"), std::string::npos) << message;
       EXPECT_TRUE(Emits(d, kCheckpointNotWritten));
     }},
    {"PeersThatCannotSaveAreGivenUpLikewiseAndTheNewestCheckpointIsNamed",
     [](Scene& s) {
       s.Training();
       s.report().mutable_training()->mutable_checkpoint()->set_name("1-1-60");
       SuspendBeyondHaltTimeout(s);
     },
     [](const Decision& d) {
       EXPECT_EQ(ReasonOf(d, "Suspended"), kCheckpointNotWritten);
       const std::string message = FindCondition(d.status, "Suspended")->message();
       EXPECT_NE(message.find("the newest one before, 1-1-60"), std::string::npos) << message;
     }},
    {"CheckpointThatWasGivenUpIsToldOnceAndUntilTheJobGoesOn",
     [](Scene& s) {
       s.Training();
       GiveUpToSave(s);
     },
     [](const Decision& d) {
       EXPECT_TRUE(Is(d, "Suspended"));
       EXPECT_EQ(ReasonOf(d, "Suspended"), kCheckpointNotWritten);
       EXPECT_FALSE(Emits(d, kCheckpointNotWritten));
       EXPECT_FALSE(Emits(d, "Suspended"));
     }},
    {"ResumptionForgetsThatACheckpointWasGivenUp",
     [](Scene& s) {
       s.Training();
       GiveUpToSave(s);
       s.policy().set_suspend(false);
     },
     [](const Decision& d) {
       EXPECT_EQ(ReasonOf(d, "Suspended"), "JobResumed");
       EXPECT_EQ(Count<CreatePod>(d), 3);
     }},
    {"SuspensionThatSavesInTimeIsNotGivenUp",
     [](Scene& s) {
       s.Training();
       s.policy().set_suspend(true);
       s.Settle();
       s.report().set_stopped(true);
       s.now += absl::Seconds(31);
     },
     [](const Decision& d) { EXPECT_EQ(ReasonOf(d, "Suspended"), "Suspending"); }},
    {"JobThatNeverMadeAStepHasNothingToSave",
     [](Scene& s) {
       s.Training();
       s.report().set_settled_step(0);
       s.report().mutable_training()->mutable_progress()->set_step(0);
       s.seen.status.clear_progress();
       SuspendBeyondHaltTimeout(s);
     },
     [](const Decision& d) {
       EXPECT_NE(Deletes(d, "digits-worker-0"), nullptr);
       EXPECT_EQ(ReasonOf(d, "Suspended"), "Suspending");
     }},
    {"CoordinatorGoesWhenTheWorkersAreGone",
     [](Scene& s) {
       s.Training();
       s.policy().set_suspend(true);
       s.Settle();
       s.seen.pods.resize(1);
     },
     [](const Decision& d) { EXPECT_NE(Deletes(d, "digits-coordinator-0"), nullptr); }},
    {"SuspendedOnlyWhenNoPodIsLeft",
     [](Scene& s) {
       s.Training();
       s.policy().set_suspend(true);
       s.Settle();
       s.seen.pods.clear();
       s.seen.link.reset();
     },
     [](const Decision& d) {
       EXPECT_TRUE(Is(d, "Suspended"));
       EXPECT_FALSE(Is(d, "Running"));
     }},
    {"SuspensionStopsTheClock",
     [](Scene& s) {
       s.Training();
       s.now += absl::Seconds(40);
       s.policy().set_suspend(true);
       s.Settle();
       s.now += absl::Seconds(1000);
     },
     [](const Decision& d) { EXPECT_DOUBLE_EQ(d.status.active_seconds(), 40); }},
    {"ResumeMakesThePodsAgain",
     [](Scene& s) {
       s.Suspended();
       s.policy().set_suspend(false);
     },
     [](const Decision& d) {
       EXPECT_FALSE(Is(d, "Suspended"));
       EXPECT_EQ(Count<CreatePod>(d), 3);
       EXPECT_EQ(Count<CreateConfig>(d), 0);
       EXPECT_TRUE(Emits(d, "Resumed"));
     }},
    {"ResumeAfterAnEditFreezesTheSpecAnew",
     [](Scene& s) {
       s.Suspended();
       s.policy().set_suspend(false);
       s.seen.generation = 4;
       s.seen.configs = {{1, false}};
     },
     [](const Decision& d) {
       ASSERT_EQ(Count<CreateConfig>(d), 1);
       for (const Action& action : d.actions) {
         if (const auto* pod = std::get_if<CreatePod>(&action)) {
           EXPECT_EQ(pod->config_generation, 4);
         }
       }
     }},
    {"ResumeInTheMidstOfASuspensionCompletesItFirst",
     [](Scene& s) {
       s.Training();
       s.policy().set_suspend(true);
       s.Settle();
       s.policy().set_suspend(false);
     },
     [](const Decision& d) {
       EXPECT_TRUE(d.supervision->desired->settings().halt());
       EXPECT_EQ(Count<CreatePod>(d), 0);
     }},
    {"PodsOfAnOutdatedSpecAreLetGoFirst",
     [](Scene& s) {
       s.Training();
       s.seen.configs = {{1, false}};
     },
     [](const Decision& d) {
       EXPECT_TRUE(d.supervision->desired->settings().halt());
       EXPECT_EQ(Count<CreateConfig>(d), 0);
     }},
};

const Case kEnd[] = {
    {"ResultMakesTheJobSucceed",
     [](Scene& s) {
       s.Training();
       auto& result = *s.report().mutable_training()->mutable_result();
       result.set_steps(230);
       (*result.mutable_metrics())["validation/accuracy"] = 0.96;
     },
     [](const Decision& d) {
       EXPECT_TRUE(Is(d, "Succeeded"));
       EXPECT_EQ(d.status.state(), "Succeeded");
       EXPECT_EQ(d.status.result().steps(), 230);
       EXPECT_TRUE(d.status.has_completion_time());
       EXPECT_TRUE(d.write_status);
       EXPECT_TRUE(d.supervision->desired->finished());
       EXPECT_EQ(Count<DeletePod>(d), 0);
     }},
    {"EndedJobIsNotStartedAgain",
     [](Scene& s) {
       s.Finished(true);
       s.seen.pods.clear();
     },
     [](const Decision& d) { EXPECT_EQ(Count<CreatePod>(d), 0); }},
    {"PodsThatStayAfterSuccessAreDeletedInTheEnd",
     [](Scene& s) {
       s.Finished(true);
       s.now += absl::Seconds(11);
     },
     [](const Decision& d) { EXPECT_NE(Deletes(d, "digits-worker-0"), nullptr); }},
    {"CoordinatorGoesAsSoonAsTheWorkersHaveEnded",
     [](Scene& s) {
       s.Finished(true);
       s.End("digits-worker-0", 0);
       s.End("digits-worker-1", 0);
     },
     [](const Decision& d) {
       EXPECT_NE(Deletes(d, "digits-coordinator-0"), nullptr);
       EXPECT_EQ(Count<DeletePod>(d), 1);
     }},
    {"ResultTellsHowLongItTook",
     [](Scene& s) {
       s.Training();
       s.now += absl::Seconds(30);
       s.report().mutable_training()->mutable_result()->set_steps(230);
     },
     [](const Decision& d) { EXPECT_DOUBLE_EQ(d.status.result().seconds(), 30); }},
    {"CleanRunningKeepsPodsThatEnded",
     [](Scene& s) {
       s.Finished(true);
       s.End("digits-worker-0", 0);
       s.now += absl::Seconds(11);
     },
     [](const Decision& d) { EXPECT_EQ(Deletes(d, "digits-worker-0"), nullptr); }},
    {"CleanAllDeletesPodsThatEnded",
     [](Scene& s) {
       s.Finished(true);
       s.policy().set_clean_pod_policy(v1alpha1::CLEAN_POD_POLICY_ALL);
       for (ObservedPod& pod : s.seen.pods) pod.phase = PodPhase::kSucceeded;
     },
     [](const Decision& d) { EXPECT_EQ(Count<DeletePod>(d), 3); }},
    {"CleanNoneDeletesNothing",
     [](Scene& s) {
       s.Finished(false);
       s.policy().set_clean_pod_policy(v1alpha1::CLEAN_POD_POLICY_NONE);
       s.now += absl::Hours(1);
     },
     [](const Decision& d) {
       EXPECT_EQ(Count<DeletePod>(d), 0);
       EXPECT_TRUE(d.supervision->desired->finished());
     }},
    {"FailureOfTrainingFailsTheJobAndEndsItsPods",
     [](Scene& s) {
       s.Training();
       s.report().mutable_training()->set_failure("the loss is not a number");
     },
     [](const Decision& d) {
       EXPECT_EQ(ReasonOf(d, "Failed"), "TrainingFailed");
       EXPECT_NE(Deletes(d, "digits-worker-0"), nullptr);
     }},
    {"TimeToLiveDeletesTheJob",
     [](Scene& s) {
       s.Finished(true);
       s.policy().set_ttl_seconds_after_finished(5);
       s.now += absl::Seconds(5);
     },
     [](const Decision& d) { EXPECT_EQ(Count<DeleteJob>(d), 1); }},
    {"TimeToLiveIsWaitedFor",
     [](Scene& s) {
       s.Finished(true);
       s.policy().set_ttl_seconds_after_finished(5);
       s.now += absl::Seconds(2);
     },
     [](const Decision& d) {
       EXPECT_EQ(Count<DeleteJob>(d), 0);
       EXPECT_LE(d.requeue_after, absl::Seconds(3));
     }},
    {"DeadlineFailsTheJob",
     [](Scene& s) {
       s.Training();
       s.policy().set_active_deadline_seconds(60);
       s.now += absl::Seconds(60);
     },
     [](const Decision& d) { EXPECT_EQ(ReasonOf(d, "Failed"), "DeadlineExceeded"); }},
    {"DeadlineIsWaitedFor",
     [](Scene& s) {
       s.Training();
       s.policy().set_active_deadline_seconds(60);
       s.now += absl::Seconds(59.5);
     },
     [](const Decision& d) {
       EXPECT_FALSE(Is(d, "Failed"));
       EXPECT_LE(d.requeue_after, absl::Seconds(1));
     }},
    {"TimeInSuspensionDoesNotCountForTheDeadline",
     [](Scene& s) {
       s.Training();
       s.policy().set_active_deadline_seconds(60);
       s.policy().set_suspend(true);
       s.Settle();
       s.now += absl::Hours(2);
     },
     [](const Decision& d) { EXPECT_FALSE(Is(d, "Failed")); }},
    {"InvalidSpecFailsTheJob", [](Scene& s) { s.seen.spec_error = "spec.workload: required"; },
     [](const Decision& d) {
       EXPECT_EQ(ReasonOf(d, "Failed"), "InvalidSpec");
       EXPECT_EQ(Count<CreatePod>(d), 0);
       EXPECT_EQ(d.status.state(), "Failed");
     }},
    {"MereProgressWaitsForItsTurn",
     [](Scene& s) {
       s.Training();
       s.seen.since_status_write = absl::Milliseconds(300);
       s.report().mutable_training()->mutable_progress()->set_step(101);
     },
     [](const Decision& d) {
       EXPECT_FALSE(d.write_status);
       EXPECT_LE(d.requeue_after, absl::Milliseconds(700));
     }},
    {"ProgressIsWrittenInItsTurn",
     [](Scene& s) {
       s.Training();
       s.seen.since_status_write = absl::Seconds(1);
       s.report().mutable_training()->mutable_progress()->set_step(101);
     },
     [](const Decision& d) {
       EXPECT_TRUE(d.write_status);
       EXPECT_EQ(d.status.progress().step(), 101);
     }},
};

INSTANTIATE_TEST_SUITE_P(Suspension, DecideEnd, testing::ValuesIn(kSuspension), NameOf);
INSTANTIATE_TEST_SUITE_P(End, DecideEnd, testing::ValuesIn(kEnd), NameOf);

// A job with something to save that nobody saves, suspended so long ago.
Scene Unsaved(absl::Duration ago, std::int64_t progress, std::int64_t settled) {
  Scene scene;
  scene.Training();
  scene.policy().set_suspend(true);
  scene.Settle();
  scene.seen.status.mutable_progress()->set_step(progress);
  scene.report().mutable_training()->clear_progress();
  scene.report().set_settled_step(settled);
  scene.now += ago;
  return scene;
}

TEST(Suspension, ACheckpointIsWaitedForForThirtySeconds) {
  const Decision waits = Unsaved(absl::Seconds(29), 100, 100).Do();
  EXPECT_EQ(Count<DeletePod>(waits), 0);
  EXPECT_EQ(waits.requeue_after, absl::Seconds(1));
  EXPECT_EQ(ReasonOf(waits, "Suspended"), "Suspending");
  const Decision gives_up = Unsaved(absl::Seconds(30), 100, 100).Do();
  EXPECT_EQ(Count<DeletePod>(gives_up), 2);
  EXPECT_EQ(ReasonOf(gives_up, "Suspended"), kCheckpointNotWritten);
  EXPECT_TRUE(Emits(gives_up, kCheckpointNotWritten));
  const Decision afterwards = Unsaved(absl::Seconds(30), 100, 100).Settle().Do();
  EXPECT_FALSE(Emits(afterwards, kCheckpointNotWritten)) << "it is told once";
}

TEST(Suspension, StepsThatAnybodyKnowsOfAreSomethingToSave) {
  EXPECT_EQ(ReasonOf(Unsaved(absl::Minutes(1), 1, 0).Do(), "Suspended"), kCheckpointNotWritten);
  EXPECT_EQ(ReasonOf(Unsaved(absl::Minutes(1), 0, 1).Do(), "Suspended"), kCheckpointNotWritten);
  EXPECT_EQ(ReasonOf(Unsaved(absl::Minutes(1), 0, 0).Do(), "Suspended"), "Suspending");
  Scene alone = Unsaved(absl::Minutes(1), 0, 1);
  alone.seen.link.reset();
  EXPECT_EQ(ReasonOf(alone.Do(), "Suspended"), "Suspending") << "nobody knows";
}

TEST(Suspension, NobodyIsWaitedForWhoIsNotThere) {
  Scene scene = Unsaved(absl::ZeroDuration(), 100, 100);
  Scene unled = scene;
  unled.seen.pods.erase(unled.seen.pods.begin());
  unled.seen.link.reset();
  EXPECT_EQ(Count<DeletePod>(unled.Do()), 2) << "nobody could tell the workers to save";
  Scene starting = scene;
  for (ObservedPod& pod : starting.seen.pods) pod.phase = PodPhase::kPending;
  EXPECT_EQ(Count<DeletePod>(starting.Do()), 2) << "members first";
  Scene ended = scene;
  ended.End("digits-worker-1", 0);
  const Decision decision = ended.Do();
  ASSERT_EQ(Count<DeletePod>(decision), 1);
  EXPECT_EQ(Deletes(decision, "digits-worker-1")->grace_seconds, 0);
  ended.Pod("digits-worker-1").terminating = true;
  EXPECT_EQ(Count<DeletePod>(ended.Do()), 0);
}

TEST(Suspension, TheCoordinatorGoesLastAndNobodyTwice) {
  Scene scene = Unsaved(absl::Minutes(1), 100, 100);
  scene.Pod("digits-worker-0").terminating = true;
  Decision decision = scene.Do();
  EXPECT_EQ(Count<DeletePod>(decision), 1);
  EXPECT_NE(Deletes(decision, "digits-worker-1"), nullptr);
  scene.Pod("digits-worker-1").terminating = true;
  EXPECT_EQ(Count<DeletePod>(scene.Do()), 0) << "they may need it yet";
  scene.End("digits-worker-0", 0);
  scene.End("digits-worker-1", 0);
  decision = scene.Do();
  EXPECT_EQ(Count<DeletePod>(decision), 1);
  ASSERT_NE(Deletes(decision, "digits-coordinator-0"), nullptr);
  EXPECT_FALSE(Deletes(decision, "digits-coordinator-0")->grace_seconds.has_value());
}

// What is said of a job whose pods have all gone.
Decision WithoutPods(Scene scene) {
  scene.seen.pods.clear();
  scene.seen.link.reset();
  return scene.Do();
}

TEST(Suspension, IsToldOfOnceAsWhatItIs) {
  const auto event_of = [](const Decision& decision) {
    for (const Action& action : decision.actions) {
      const auto* event = std::get_if<EmitEvent>(&action);
      if (event != nullptr && event->reason == "Suspended") return *event;
    }
    return EmitEvent{false, "", "", "none"};
  };
  Scene scene = Unsaved(absl::Seconds(1), 100, 100);
  Decision decision = WithoutPods(scene);
  EXPECT_EQ(event_of(decision).note, "training is saved and all pods are released");
  EXPECT_FALSE(event_of(decision).warning);
  EXPECT_EQ(FindCondition(decision.status, "Suspended")->message(), "no pod is left");
  scene.seen.status = decision.status;
  EXPECT_EQ(event_of(WithoutPods(scene)).note, "none");

  Scene lost = Unsaved(absl::Seconds(1), 100, 100);
  lost.seen.checkpoint_durable = false;
  lost.seen.status.mutable_last_checkpoint()->set_name("1-1-60");
  lost.seen.status.set_failures(1);
  lost.seen.status.set_failures_since_step(60);
  decision = WithoutPods(lost);
  EXPECT_TRUE(event_of(decision).warning);
  EXPECT_EQ(ReasonOf(decision, "Suspended"), kCheckpointNotDurable);
  EXPECT_TRUE(FindCondition(decision.status, "Suspended")
                  ->message()
                  .starts_with(MeaningOf(kCheckpointNotDurable)));
  EXPECT_FALSE(decision.status.has_last_checkpoint());
  EXPECT_EQ(decision.status.failures(), 0);
  EXPECT_EQ(decision.status.failures_since_step(), 0);
  lost.seen.status = decision.status;
  EXPECT_EQ(ReasonOf(WithoutPods(lost), "Suspended"), kCheckpointNotDurable) << "it stays said";
  lost.seen.status.clear_start_time();
  EXPECT_EQ(ReasonOf(WithoutPods(lost), "Suspended"), "JobSuspended") << "there was nothing";

  Scene unwritten = Unsaved(absl::Minutes(1), 100, 100).Settle();
  decision = WithoutPods(unwritten);
  EXPECT_TRUE(event_of(decision).warning);
  EXPECT_EQ(event_of(decision).note, FindCondition(decision.status, "Suspended")->message());
  EXPECT_EQ(ReasonOf(decision, "Suspended"), kCheckpointNotWritten);
}

TEST(Suspension, OneThatIsLostLaterIsNotSaidToBe) {
  Scene scene = Unsaved(absl::Seconds(1), 100, 100);
  scene.seen.status = WithoutPods(scene).status;
  scene.seen.checkpoint_durable = false;
  EXPECT_EQ(ReasonOf(WithoutPods(scene), "Suspended"), "JobSuspended");
}

TEST(Suspension, SaysWhoseWishItIs) {
  Scene scene;
  scene.Prepared();
  scene.seen.queueing.hold = true;
  scene.seen.queueing.message = "waits for quota";
  EXPECT_EQ(ReasonOf(scene.Do(), "Suspended"), "Queued");
  EXPECT_EQ(FindCondition(scene.Do().status, "Suspended")->message(), "waits for quota");
  scene.seen.queueing.reason = "Evicted";
  EXPECT_EQ(ReasonOf(scene.Do(), "Suspended"), "Evicted");
  scene.policy().set_suspend(true);
  EXPECT_EQ(ReasonOf(scene.Do(), "Suspended"), "JobSuspended") << "the user's own comes first";
}

TEST(Suspension, CountsTheTimeOfActivityOnce) {
  Scene scene;
  scene.Training();
  scene.now += absl::Seconds(40);
  scene.policy().set_suspend(true);
  scene.Settle();
  EXPECT_EQ(scene.seen.status.active_seconds(), 40);
  scene.now += absl::Seconds(5);
  scene.Settle();
  EXPECT_EQ(scene.seen.status.active_seconds(), 40) << "while it is under way";
  scene.seen.pods.clear();
  scene.seen.link.reset();
  scene.Settle();
  scene.now += absl::Seconds(5);
  scene.Settle();
  EXPECT_EQ(scene.seen.status.active_seconds(), 40);
  scene.policy().set_suspend(false);
  scene.Settle();
  scene.now += absl::Seconds(7);
  scene.policy().set_active_deadline_seconds(47);
  EXPECT_EQ(ReasonOf(scene.Do(), "Failed"), "DeadlineExceeded");
}

TEST(Suspension, WhoResumesIsToldFromWhereTrainingGoesOn) {
  for (const bool durable : {true, false}) {
    Scene scene;
    scene.Suspended();
    scene.seen.checkpoint_durable = durable;
    scene.policy().set_suspend(false);
    const Decision decision = scene.Do();
    const auto& event = std::get<EmitEvent>(decision.actions.at(0));
    EXPECT_EQ(event.note, durable ? "training goes on from the newest checkpoint"
                                  : "training begins again at step 0");
    EXPECT_FALSE(event.warning);
    EXPECT_EQ(ReasonOf(decision, "Suspended"), "JobResumed");
    EXPECT_EQ(FindCondition(decision.status, "Suspended")->message(), "training goes on");
  }
}

TEST(Suspension, WhatIsOnlyOutdatedGoesOnAsSoonAsItsPodsHaveGone) {
  Scene scene;
  scene.Training();
  scene.seen.configs = {{3, true}, {1, false}};
  EXPECT_EQ(scene.Do().actions.size(), 0U) << "the newest one is what counts";
  scene.seen.configs = {{1, true}, {3, false}};
  EXPECT_EQ(ConditionStatus(scene.Do().status, "Suspended"), "Unknown");
  scene.Settle();
  scene.seen.pods.clear();
  scene.seen.link.reset();
  const Decision gone = scene.Do();
  EXPECT_TRUE(Is(gone, "Suspended"));
  EXPECT_EQ(gone.requeue_after, absl::Milliseconds(1));
  scene.Settle();
  EXPECT_EQ(Count<CreatePod>(scene.Do()), 3) << "and it is made anew";
}

}  // namespace
}  // namespace starling::trainingjob
