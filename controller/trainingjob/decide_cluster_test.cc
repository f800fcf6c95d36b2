// SPDX-License-Identifier: Apache-2.0
// What only a real cluster does to a job: places that are missing, images, quotas, kills for want
// of memory, pods that go with a warning.
#include "controller/testing/test_cases.h"
#include "controller/testing/test_cluster.h"
#include "controller/trainingjob/policies.h"
#include "controller/trainingjob/quantity.h"

namespace starling::trainingjob {
namespace {

ObservedPod& KillForMemory(Scene& s, std::string_view name) {
  ObservedPod& pod = s.End(name, 137, 9);
  pod.exit->reason = "OOMKilled";
  return pod;
}

void GrowOnOutOfMemory(Scene& s, double factor, const char* maximum) {
  s.worker().mutable_on_out_of_memory()->set_factor(factor);
  s.worker().mutable_on_out_of_memory()->set_maximum(maximum);
}

class DecideCluster : public testing::TestWithParam<Case> {};

TEST_P(DecideCluster, Holds) {
  Scene scene;
  GetParam().arrange(scene);
  GetParam().check(scene.Do());
}

const Case kProblemCases[] = {
    {"HealthyJobIsNotDegraded", [](Scene& s) { InCluster(s); },
     [](const Decision& d) { EXPECT_EQ(FindCondition(d.status, "Degraded"), nullptr); }},
    {"UnschedulableWorkerBeyondTheMinimumDegradesAJobThatRuns",
     [](Scene& s) {
       InCluster(s).worker().set_replicas(3);
       Pending(s, 2, kUnschedulable);
     },
     [](const Decision& d) {
       EXPECT_EQ(ReasonOf(d, "Degraded"), "Unschedulable");
       EXPECT_TRUE(Is(d, "Running"));
       EXPECT_TRUE(Emits(d, "Unschedulable"));
       EXPECT_NE(MessageOf(d, "Degraded").find("as the kubelet says it"), std::string::npos);
       EXPECT_NE(MessageOf(d, "Degraded").find("add nodes"), std::string::npos);
       EXPECT_EQ(Count<DeletePod>(d), 0);
     }},
    {"ProblemThatMayPassIsNotToldAtOnce",
     [](Scene& s) {
       InCluster(s).worker().set_replicas(3);
       Pending(s, 2, kUnschedulable).problem->since = s.now - absl::Milliseconds(500);
     },
     [](const Decision& d) {
       EXPECT_EQ(FindCondition(d.status, "Degraded"), nullptr);
       EXPECT_LE(d.requeue_after, absl::Milliseconds(1500));
     }},
    {"ImageThatCannotBePulledComesBeforeAMissingPlace",
     [](Scene& s) {
       InCluster(s).worker().set_replicas(4);
       Pending(s, 2, kUnschedulable);
       Pending(s, 3, kImagePullFailed);
     },
     [](const Decision& d) { EXPECT_EQ(ReasonOf(d, "Degraded"), "ImagePullFailed"); }},
    {"QuotaRefusalIsToldAndTriedAgainLater",
     [](Scene& s) {
       InCluster(s).worker().set_replicas(4);
       s.seen.refusal = Refusal{kQuotaExceeded, "exceeded quota: pods=2", s.now, 3};
     },
     [](const Decision& d) {
       EXPECT_EQ(ReasonOf(d, "Degraded"), "QuotaExceeded");
       EXPECT_EQ(Count<CreatePod>(d), 0);
       EXPECT_LE(d.requeue_after, absl::Milliseconds(800));
       EXPECT_FALSE(Is(d, "Failed"));
     }},
    {"QuotaIsTriedAgainWhenItsTimeHasCome",
     [](Scene& s) {
       InCluster(s).worker().set_replicas(4);
       s.seen.refusal = Refusal{kQuotaExceeded, "exceeded", s.now - absl::Seconds(1), 3};
     },
     [](const Decision& d) { EXPECT_EQ(Count<CreatePod>(d), 2); }},
    {"TakenNameIsToldOnlyWhenItStaysTaken",
     [](Scene& s) {
       InCluster(s).worker().set_replicas(4);
       s.seen.refusal = Refusal{kNameTaken, "taken", s.now, 1};
     },
     [](const Decision& d) { EXPECT_EQ(FindCondition(d.status, "Degraded"), nullptr); }},
    {"TakenNameOfASecretIsAskedForAgainLater",
     [](Scene& s) {
       InCluster(s);
       s.seen.has_secret = false;
       s.seen.refusal = Refusal{kNameTaken, "secrets \"digits-secret\" already exists", s.now, 5};
     },
     [](const Decision& d) {
       EXPECT_EQ(ReasonOf(d, "Degraded"), "NameTaken");
       EXPECT_EQ(Count<CreateSecret>(d), 0);
       EXPECT_TRUE(d.delayed);
       EXPECT_LE(d.requeue_after, absl::Milliseconds(3200));
     }},
    {"TakenNameOfASecretIsAskedForWhenItsTimeHasCome",
     [](Scene& s) {
       InCluster(s);
       s.seen.has_secret = false;
       s.seen.refusal = Refusal{kNameTaken, "taken", s.now - absl::Seconds(4), 5};
     },
     [](const Decision& d) { EXPECT_EQ(Count<CreateSecret>(d), 1); }},
    {"StuckTerminatingPodIsToldAndNotForced",
     [](Scene& s) {
       InCluster(s);
       s.Pod("digits-worker-1").terminating = true;
       s.Pod("digits-worker-1").deletion_due = s.now - absl::Seconds(31);
     },
     [](const Decision& d) {
       EXPECT_EQ(ReasonOf(d, "Degraded"), "PodStuckTerminating");
       EXPECT_EQ(Deletes(d, "digits-worker-1"), nullptr);
       EXPECT_TRUE(Creates(d, Role::kWorker, 2));
     }},
    {"LostNodeIsToldByItsName",
     [](Scene& s) {
       InCluster(s);
       s.seen.nodes["b"].ready = false;
       s.Pod("digits-worker-1").terminating = true;
     },
     [](const Decision& d) {
       EXPECT_EQ(ReasonOf(d, "Degraded"), "NodeLost");
       EXPECT_NE(MessageOf(d, "Degraded").find("b: it does not answer"), std::string::npos);
       EXPECT_EQ(Deletes(d, "digits-worker-1"), nullptr);
     }},
    {"StoppedKubeletDoesNotStopAPodThatTrains",
     [](Scene& s) { InCluster(s).seen.nodes["b"].ready = false; },
     [](const Decision& d) {
       EXPECT_EQ(Count<DeletePod>(d), 0);
       EXPECT_EQ(Count<CreatePod>(d), 0);
       EXPECT_TRUE(Is(d, "Running"));
     }},
    {"PodOfANodeThatIsGoneIsReleased",
     [](Scene& s) {
       InCluster(s);
       s.seen.nodes["b"].exists = s.seen.nodes["b"].ready = false;
       s.Pod("digits-worker-1").terminating = true;
     },
     [](const Decision& d) {
       ASSERT_NE(Deletes(d, "digits-worker-1"), nullptr);
       EXPECT_EQ(Deletes(d, "digits-worker-1")->grace_seconds, 0);
     }},
    {"PodThatHasEndedOnANodeThatIsGoneIsLeftToKubernetes",
     [](Scene& s) {
       InCluster(s);
       s.seen.nodes["b"].exists = s.seen.nodes["b"].ready = false;
       s.End("digits-worker-1", 143, 15).terminating = true;
     },
     [](const Decision& d) { EXPECT_EQ(Deletes(d, "digits-worker-1"), nullptr); }},
    {"WorkerThatIsNotAdmittedIsTold",
     [](Scene& s) {
       InCluster(s).report().mutable_members(1)->set_refused("its arithmetic differs");
       s.report().mutable_members(1)->set_in_view(false);
     },
     [](const Decision& d) { EXPECT_EQ(ReasonOf(d, "Degraded"), "WorkerRefused"); }},
};

const Case kDisruptions[] = {
    {"WorkerOnANodeThatIsAnnouncedToGoIsDrainedAndReplacedAtOnce",
     [](Scene& s) { InCluster(s).seen.nodes["b"].departure = "taint spot"; },
     [](const Decision& d) {
       EXPECT_EQ(StateInDesired(d, "digits-worker-1"), v1alpha1::Pod::DRAINING);
       EXPECT_EQ(StateInDesired(d, "digits-worker-0"), v1alpha1::Pod::LIVE);
       EXPECT_EQ(d.supervision->desired->workers(), 2);
       EXPECT_TRUE(Creates(d, Role::kWorker, 2));
       EXPECT_EQ(Count<DeletePod>(d), 0);
     }},
    {"DrainedWorkerLeavesTheDepartingNode",
     [](Scene& s) {
       InCluster(s).seen.nodes["b"].departure = "taint spot";
       s.report().mutable_members(1)->set_drained(true);
     },
     [](const Decision& d) {
       ASSERT_NE(Deletes(d, "digits-worker-1"), nullptr);
       EXPECT_FALSE(Deletes(d, "digits-worker-1")->grace_seconds.has_value());
     }},
    {"CoordinatorOnADepartingNodeIsReplacedAtOnce",
     [](Scene& s) { InCluster(s, 1).seen.nodes["a"].departure = "taint spot"; },
     [](const Decision& d) {
       EXPECT_NE(Deletes(d, "digits-coordinator-0"), nullptr);
       EXPECT_TRUE(Creates(d, Role::kCoordinator, 1));
       EXPECT_EQ(d.status.failures(), 0);
     }},
    {"WorkerThatTheLeavingCoordinatorNeverHeardOfIsLeftToTheNext",
     [](Scene& s) {
       InCluster(s).report().mutable_members()->RemoveLast();
       s.now += absl::Minutes(5);
       s.Pod("digits-worker-1").unheard_since = s.now - absl::Minutes(1);
       s.Pod("digits-coordinator-0").disrupted = true;
     },
     [](const Decision& d) {
       EXPECT_NE(Deletes(d, "digits-coordinator-0"), nullptr);
       EXPECT_EQ(Deletes(d, "digits-worker-1"), nullptr);
       EXPECT_TRUE(d.unheard.empty());
     }},
    {"PodThatIsAboutToBePreemptedIsDrainedBeforeItIsDeleted",
     [](Scene& s) {
       InCluster(s).Pod("digits-worker-1").disrupted = true;
       s.Pod("digits-worker-1").disruption = "PreemptionByScheduler";
     },
     [](const Decision& d) {
       EXPECT_EQ(StateInDesired(d, "digits-worker-1"), v1alpha1::Pod::DRAINING);
       EXPECT_TRUE(Creates(d, Role::kWorker, 2));
     }},
    {"EvictedPodIsAnIncidentAndNoFailure",
     [](Scene& s) {
       ObservedPod& pod = InCluster(s).Pod("digits-worker-1");
       pod.disrupted = pod.terminating = true;
       pod.disruption = "EvictionByEvictionAPI";
     },
     [](const Decision& d) {
       ASSERT_EQ(d.status.incidents_size(), 1);
       EXPECT_EQ(d.status.incidents(0).reason(), "WorkerEvicted");
       EXPECT_EQ(d.status.failures(), 0);
       EXPECT_TRUE(Emits(d, "WorkerEvicted"));
     }},
    {"PreemptionHasItsOwnName",
     [](Scene& s) {
       ObservedPod& pod = InCluster(s).Pod("digits-worker-1");
       pod.disrupted = pod.terminating = true;
       pod.disruption = "PreemptionByScheduler";
     },
     [](const Decision& d) {
       ASSERT_EQ(d.status.incidents_size(), 1);
       EXPECT_EQ(d.status.incidents(0).reason(), "WorkerPreempted");
     }},
    {"TerminatingPodIsDrainingToTheCoordinator",
     [](Scene& s) { InCluster(s).Pod("digits-worker-1").terminating = true; },
     [](const Decision& d) {
       EXPECT_EQ(StateInDesired(d, "digits-worker-1"), v1alpha1::Pod::DRAINING);
       EXPECT_EQ(d.status.incidents_size(), 0);
     }},
};

const Case kMemory[] = {
    {"KilledForMemoryComesBackWithMore",
     [](Scene& s) {
       GrowOnOutOfMemory(InCluster(s), 1.5, "1Gi");
       KillForMemory(s, "digits-worker-1");
     },
     [](const Decision& d) {
       ASSERT_NE(Creation(d, Role::kWorker, 1), nullptr);
       EXPECT_EQ(Creation(d, Role::kWorker, 1)->memory, "96Mi");
       EXPECT_EQ(d.status.replica_statuses().at("worker").memory(), "96Mi");
       EXPECT_EQ(d.status.failures(), 0);
       EXPECT_EQ(d.status.restarts(), 1);
       EXPECT_EQ(d.status.incidents(0).reason(), "OOMKilled");
       EXPECT_TRUE(Emits(d, "MemoryRaised"));
     }},
    {"MemoryNeverExceedsItsMaximum",
     [](Scene& s) {
       GrowOnOutOfMemory(InCluster(s), 4, "100Mi");
       KillForMemory(s, "digits-worker-1");
     },
     [](const Decision& d) { EXPECT_EQ(Creation(d, Role::kWorker, 1)->memory, "100Mi"); }},
    {"KillAtTheMaximumIsAFailure",
     [](Scene& s) {
       GrowOnOutOfMemory(InCluster(s), 2, "64Mi");
       KillForMemory(s, "digits-worker-1");
     },
     [](const Decision& d) {
       EXPECT_EQ(d.status.failures(), 1);
       EXPECT_EQ(ReasonOf(d, "Degraded"), "OutOfMemory");
     }},
    {"WithoutTheFieldAKillForMemoryIsAFailure",
     [](Scene& s) {
       InCluster(s);
       KillForMemory(s, "digits-worker-1");
     },
     [](const Decision& d) {
       EXPECT_EQ(d.status.failures(), 1);
       EXPECT_EQ(Creation(d, Role::kWorker, 1)->memory, "");
       EXPECT_NE(MessageOf(d, "Degraded").find("onOutOfMemory"), std::string::npos);
     }},
    {"RaisedMemoryIsKept",
     [](Scene& s) {
       GrowOnOutOfMemory(InCluster(s), 1.5, "1Gi");
       KillForMemory(s, "digits-worker-1");
       s.Settle();
       std::erase_if(s.seen.pods, [](const ObservedPod& pod) { return pod.Terminated(); });
       s.worker().set_replicas(3);
     },
     [](const Decision& d) {
       EXPECT_EQ(Creation(d, Role::kWorker, 1)->memory, "96Mi");
       EXPECT_EQ(Creation(d, Role::kWorker, 2)->memory, "96Mi");
     }},
    {"CoordinatorIsNotGivenTheWorkersMemory",
     [](Scene& s) {
       InCluster(s);
       (*s.seen.status.mutable_replica_statuses())["worker"].set_memory("96Mi");
       s.End("digits-coordinator-0", 1);
     },
     [](const Decision& d) { EXPECT_EQ(Creation(d, Role::kCoordinator, 0)->memory, ""); }},
};

const Case kPolicies[] = {
    {"JobOfAnotherControllerIsLeftAlone",
     [](Scene& s) { s.policy().set_managed_by("kueue.x-k8s.io/multikueue"); },
     [](const Decision& d) {
       EXPECT_TRUE(d.actions.empty());
       EXPECT_FALSE(d.write_status);
       EXPECT_FALSE(d.supervision.has_value());
     }},
    {"JobThatNamesThisControllerIsOurs",
     [](Scene& s) { s.policy().set_managed_by("starling.dev/controller"); },
     [](const Decision& d) { EXPECT_EQ(Count<CreatePod>(d), 3); }},
    {"ClusterJobGetsABudget", [](Scene& s) { s.options = ClusterOptions(); },
     [](const Decision& d) { EXPECT_EQ(Count<CreateBudget>(d), 1); }},
    {"QueueHoldsAJobLikeASuspension",
     [](Scene& s) {
       s.seen.queueing.hold = true;
       s.seen.queueing.reason = "Queued";
       s.seen.queueing.message = "waits for quota";
     },
     [](const Decision& d) {
       EXPECT_EQ(Count<CreatePod>(d), 0);
       EXPECT_EQ(ReasonOf(d, "Suspended"), "Queued");
     }},
    {"QueueBoundsTheWorkers",
     [](Scene& s) {
       s.worker().set_replicas(5);
       s.seen.queueing.worker_limit = 3;
     },
     [](const Decision& d) {
       EXPECT_EQ(Count<CreatePod>(d), 4);
       EXPECT_EQ(d.status.replicas(), 3);
     }},
    {"AQueueThatIsNotThereIsToldAndTheJobRuns",
     [](Scene& s) { InCluster(s).seen.queueing.warning = "the label is ignored: no Kueue"; },
     [](const Decision& d) {
       EXPECT_EQ(ReasonOf(d, "Degraded"), "SchedulingIgnored");
       EXPECT_TRUE(Is(d, "Running"));
       EXPECT_TRUE(Emits(d, "SchedulingIgnored"));
       EXPECT_NE(MessageOf(d, "Degraded").find("no Kueue; install"), std::string::npos);
     }},
    {"AQueueThatIsNotThereIsToldOnce",
     [](Scene& s) {
       InCluster(s).seen.queueing.warning = "the label is ignored: no Kueue";
       s.Settle();
     },
     [](const Decision& d) {
       EXPECT_EQ(ReasonOf(d, "Degraded"), "SchedulingIgnored");
       EXPECT_FALSE(Emits(d, "SchedulingIgnored"));
     }},
    {"AQueueThatHasComeIsNoProblemAnyMore",
     [](Scene& s) {
       InCluster(s).seen.queueing.warning = "the label is ignored: no Kueue";
       s.Settle();
       s.seen.queueing.warning.clear();
     },
     [](const Decision& d) { EXPECT_EQ(ReasonOf(d, "Degraded"), "NoProblem"); }},
    {"MetricsThatCannotBeExportedAreToldAndTheJobRuns",
     [](Scene& s) { InCluster(s).report().set_export_problem("cannot write /logs"); },
     [](const Decision& d) {
       EXPECT_EQ(ReasonOf(d, "Degraded"), "ExportFailing");
       EXPECT_TRUE(Is(d, "Running"));
       EXPECT_NE(MessageOf(d, "Degraded").find("cannot write /logs; see"), std::string::npos);
     }},
    {"SuspensionWithoutDurableCheckpointsSaysSo",
     [](Scene& s) {
       InCluster(s).seen.checkpoint_durable = false;
       s.policy().set_suspend(true);
       s.Settle();
       s.seen.pods.clear();
       s.seen.link.reset();
     },
     [](const Decision& d) {
       EXPECT_EQ(ReasonOf(d, "Suspended"), "CheckpointNotDurable");
       EXPECT_FALSE(d.status.has_last_checkpoint());
     }},
    {"SuspensionWithDurableCheckpointsIsPlain",
     [](Scene& s) {
       InCluster(s).policy().set_suspend(true);
       s.Settle();
       s.seen.pods.clear();
       s.seen.link.reset();
     },
     [](const Decision& d) { EXPECT_EQ(ReasonOf(d, "Suspended"), "JobSuspended"); }},
    {"SuccessWithoutADurablePlaceKeepsTheDigestOnly",
     [](Scene& s) {
       InCluster(s).seen.checkpoint_durable = false;
       auto& model = *s.report().mutable_training()->mutable_result()->mutable_model();
       model.set_uri("file:///var/lib/starling/job/model.safetensors");
       model.set_sha256("abc");
     },
     [](const Decision& d) {
       EXPECT_EQ(ReasonOf(d, "Succeeded"), "CheckpointNotDurable");
       EXPECT_FALSE(d.status.result().model().has_uri());
       EXPECT_EQ(d.status.result().model().sha256(), "abc");
     }},
    {"NobodyIsLeftWhenTheCoordinatorDiedBeforeItCouldLetThemGo",
     [](Scene& s) {
       s.policy().set_clean_pod_policy(v1alpha1::CLEAN_POD_POLICY_NONE);
       s.Finished(true);
       s.seen.pods.erase(s.seen.pods.begin());
       s.seen.link.reset();
       s.now += s.options.finish_timeout;
     },
     [](const Decision& d) { EXPECT_EQ(Count<DeletePod>(d), 2); }},
    {"CleanPodPolicyNoneDeletesNobodyWhoIsLetGo",
     [](Scene& s) {
       s.policy().set_clean_pod_policy(v1alpha1::CLEAN_POD_POLICY_NONE);
       s.Finished(true).now += absl::Hours(1);
     },
     [](const Decision& d) { EXPECT_EQ(Count<DeletePod>(d), 0); }},
};

INSTANTIATE_TEST_SUITE_P(Problems, DecideCluster, testing::ValuesIn(kProblemCases), NameOf);
INSTANTIATE_TEST_SUITE_P(Disruptions, DecideCluster, testing::ValuesIn(kDisruptions), NameOf);
INSTANTIATE_TEST_SUITE_P(Memory, DecideCluster, testing::ValuesIn(kMemory), NameOf);
INSTANTIATE_TEST_SUITE_P(Policies, DecideCluster, testing::ValuesIn(kPolicies), NameOf);

}  // namespace
}  // namespace starling::trainingjob
