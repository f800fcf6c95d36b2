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

}  // namespace
}  // namespace starling::trainingjob
