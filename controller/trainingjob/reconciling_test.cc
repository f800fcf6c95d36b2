// SPDX-License-Identifier: Apache-2.0
// What a reconcile writes, tells and remembers, step by step, whatever others do meanwhile.
#include "controller/testing/reconciling.h"

#include "api/spec/trace_request.h"
#include "controller/resources/names.h"
#include "controller/scheduling/scheduling.h"
#include "kubernetes/objects.pb.h"

namespace starling::trainingjob {
namespace {

using kube::Json;

constexpr absl::Duration kAtOnce = absl::Milliseconds(1);

Json Replicas(int workers) {
  return {{"spec", {{"replicaSpecs", {{"worker", {{"replicas", workers}}}}}}}};
}

// Nobody can run this.
Json Misspelt() { return {{"spec", {{"replicaSpecs", {{"worker", {{"replcas", 3}}}}}}}}; }

Json WithServers() {
  return {{"spec",
           {{"exchange", {{"parameterServer", Json::object()}}},
            {"replicaSpecs", {{"parameterServer", {{"replicas", 1}}}}}}}};
}

Json ManagedBy(std::string_view manager) {
  return {{"spec", {{"runPolicy", {{"managedBy", std::string(manager)}}}}}};
}

Json InQueue() { return {{"metadata", {{"labels", {{"kueue.x-k8s.io/queue-name", "research"}}}}}}; }

TEST_F(Reconciling, ASecretOfAnotherSeedIsMadeAnewAndOnesOwnIsNot) {
  CreateJob(1);
  ASSERT_TRUE(Reconcile().ok());
  const Json first = Secret();
  ASSERT_TRUE(Reconcile().ok());
  EXPECT_EQ(Secret(), first);
  Start("another seed, of a chart made anew");
  ASSERT_TRUE(Reconcile().ok());
  EXPECT_NE(Secret()["data"], first["data"]);
  EXPECT_NE(kube::UidOf(Secret()), kube::UidOf(first));
}

TEST_F(Reconciling, WhatCannotBeReadIsAnErrorAndNothingIsDone) {
  CreateJob(1);
  for (const kube::ResourceKind& kind :
       {kube::kTrainingJob, kube::kPod, kube::kConfigMap, kube::kSecret, kube::kService}) {
    client_.AskBeforeReads([&](const kube::ResourceKind& read) {
      return read == kind ? absl::UnavailableError("busy") : absl::OkStatus();
    });
    EXPECT_TRUE(absl::IsUnavailable(Reconcile().status())) << kind.kind;
    EXPECT_EQ(client_.writes(), 0) << kind.kind;
  }
  client_.Heal();
  EXPECT_TRUE(Reconcile().ok());
}

TEST_F(Reconciling, WhereAStatusCannotBeWrittenNothingElseIsDone) {
  CreateJob(1);
  client_.FailWritesThat([](const auto&, std::string_view verb) { return verb == "updateStatus"; },
                         kube::Fault::kConflict);
  EXPECT_TRUE(absl::IsAborted(Reconcile().status()));
  EXPECT_EQ(client_.writes(), 1);
  EXPECT_EQ(Pods(), 0U);
}

TEST_F(Reconciling, AfterWritesOfItsOwnItLooksAgain) {
  Options options;
  options.look_again = absl::Seconds(5);
  Start("the seed of these tests: 32 bytes", options);
  CreateJob(1);
  EXPECT_EQ(Reconcile()->requeue_after, absl::Seconds(5));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Reconcile().ok());  // the pods are seen
  const std::int64_t written = client_.writes();
  EXPECT_EQ(Reconcile()->requeue_after, absl::ZeroDuration());
  EXPECT_EQ(client_.writes(), written);
}

TEST_F(Reconciling, AJobThatIsGoneIsForgottenWithItsStreams) {
  CreateJob(1);
  ASSERT_TRUE(Reconcile().ok());
  ASSERT_TRUE(store_->Delete(kube::kTrainingJob, {"default", "digits"}, {}).ok());
  const auto result = Reconcile();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->requeue_after, absl::ZeroDuration());
  reconciler_->Halt();
  EXPECT_TRUE(reconciler_->Halted());
}

// When it looks again.

class LookingAgain : public Reconciling {
 protected:
  LookingAgain() {
    Options options;
    options.look_again = absl::Seconds(5);
    Start(options);
  }
};

TEST_F(LookingAgain, FollowsAStatusThatIsNotTheLast) {
  CreateJob(1);
  for (int i = 0; i < 2; ++i) MustReconcile();
  Run("digits-worker-0");
  const std::int64_t before = client_.writes();
  EXPECT_EQ(Reconcile()->requeue_after, absl::Seconds(5));
  EXPECT_EQ(client_.writes(), before + 1);
}

TEST_F(LookingAgain, FollowsAnActionThatChangesNoStatus) {
  CreateJob(1);
  for (int i = 0; i < 2; ++i) MustReconcile();
  ASSERT_TRUE(store_->Delete(kube::kService, Of(resources::ServiceName("digits")), {}).ok());
  const std::string status = Job()["status"].dump();
  EXPECT_EQ(Reconcile()->requeue_after, absl::Seconds(5));
  EXPECT_EQ(Job()["status"].dump(), status);
}

TEST_F(LookingAgain, DoesNotFollowTheFailureOfAJobThatHasNothing) {
  CreateJob(1, Misspelt());
  EXPECT_EQ(Reconcile()->requeue_after, absl::ZeroDuration());
  EXPECT_EQ(State(), "Failed");
}

TEST_F(LookingAgain, DoesNotFollowTheSuccessOfAJobThatHasNothingMoreToGive) {
  CreateContainerJob(1);
  MustReconcile();
  End("digits-worker-0", 0);
  ASSERT_TRUE(store_->Delete(kube::kService, Of(resources::ServiceName("digits")), {}).ok());
  EXPECT_EQ(Reconcile()->requeue_after, absl::ZeroDuration());
  EXPECT_EQ(State(), "Succeeded");
}

// The end of this process.

TEST_F(Reconciling, AfterAHaltNoPodIsMade) {
  CreateJob(1);
  reconciler_->Halt();
  MustReconcile();
  EXPECT_EQ(Pods(), 0U);
}

TEST_F(Reconciling, AHaltIsOverOnceEachJobHasBeenLookedAtSince) {
  CreateJob(1, {{"spec", {{"runPolicy", {{"suspend", true}}}}}});
  MustReconcile();
  EXPECT_TRUE(reconciler_->Halted());
  reconciler_->Halt();
  EXPECT_FALSE(reconciler_->Halted());
  MustReconcile();
  EXPECT_TRUE(reconciler_->Halted());
}

TEST_F(Reconciling, TheStreamsOfAJobThatIsGoneEnd) {
  CreateJob(1);
  Lead();
  const std::string coordinator = UidOf("digits-coordinator-0");
  ASSERT_NE(links_.Told(coordinator), nullptr);
  ASSERT_TRUE(store_->Delete(kube::kTrainingJob, key_, {}).ok());
  MustReconcile();
  EXPECT_EQ(links_.Told(coordinator), nullptr);
}

// What is remembered from one reconcile to the next.

TEST_F(Reconciling, OfTwoCoordinatorsBothAreHeard) {
  CreateJob(1, {{"spec", {{"replicaSpecs", {{"coordinator", {{"standby", true}}}}}}}});
  Lead();
  MustReconcile();
  Run("digits-coordinator-1");
  MustReconcile();
  v1alpha1::CoordinatorReport standby;
  standby.set_boot_id("second boot");
  links_.Report(UidOf("digits-coordinator-1"), standby);
  MustReconcile();
  EXPECT_EQ(kube::StringAt(Job(), "/status/coordinator/standby/podUid"),
            UidOf("digits-coordinator-1"));
}

TEST_F(Reconciling, AStatusThatBringsOnlyCountsWaitsForItsIntervalAfterTheLast) {
  Options options;
  options.counts_interval = absl::Seconds(10);
  Start(options);
  CreateJob(1);
  MustReconcile();
  Run("digits-worker-0");
  clock_.Advance(absl::Seconds(4));
  EXPECT_EQ(Reconcile()->requeue_after, absl::Seconds(6));
  EXPECT_EQ(kube::IntAt(Job(), "/status/replicaStatuses/worker/ready"), 0);
  clock_.Advance(absl::Seconds(6));
  MustReconcile();
  EXPECT_EQ(kube::IntAt(Job(), "/status/replicaStatuses/worker/ready"), 1);
}

TEST_F(Reconciling, AWorkerThatIsNotWantedAndNotDrainedGoesAfterItsTime) {
  CreateJob(2);
  MustReconcile();
  Run("digits-worker-1");
  PatchJob(Replicas(1));
  MustReconcile();
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(kube::IsBeingDeleted(Pod("digits-worker-1")));
    clock_.Advance(absl::Seconds(30));  // of 60
    MustReconcile();
  }
  EXPECT_TRUE(kube::IsBeingDeleted(Pod("digits-worker-1")));
}

TEST_F(Reconciling, AWorkerOfWhichItsCoordinatorNeverHearsGoesAfterItsTime) {
  CreateJob(1);
  Lead();
  Run("digits-worker-0");
  MustReconcile();
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(kube::IsBeingDeleted(Pod("digits-worker-0")));
    clock_.Advance(absl::Seconds(30));  // of 60
    Report();
    MustReconcile();
  }
  EXPECT_TRUE(kube::IsBeingDeleted(Pod("digits-worker-0")));
}

// First statuses that wait.

TEST_F(Reconciling, WhileOthersWaitAFirstStatusDoesUntilItsTime) {
  StartBusy();
  CreateContainerJob(1);
  EXPECT_EQ(Reconcile()->requeue_after, absl::Seconds(10));
  EXPECT_EQ(Pods(), 1U);
  clock_.Advance(absl::Seconds(4));
  EXPECT_EQ(Reconcile()->requeue_after, absl::Seconds(6));
  EXPECT_EQ(State(), "");
  clock_.Advance(absl::Seconds(6));
  MustReconcile();
  EXPECT_NE(State(), "");
}

TEST_F(Reconciling, WhileNobodyWaitsAFirstStatusIsWrittenAtOnce) {
  StartBusy();
  busy_ = false;
  CreateContainerJob(1);
  MustReconcile();
  EXPECT_NE(State(), "");
}

TEST_F(Reconciling, WhereNobodyAsksWhetherOthersWaitAFirstStatusIsWrittenAtOnce) {
  CreateContainerJob(1);
  MustReconcile();
  EXPECT_NE(State(), "");
}

TEST_F(Reconciling, AStatusThatWaitedTellsWhatWasDecidedFirst) {
  StartBusy();
  CreateContainerJob(1);
  const std::string first = kube::FormatTimestamp(clock_.WallNow());
  MustReconcile();
  clock_.Advance(absl::Seconds(4));
  busy_ = false;
  MustReconcile();
  EXPECT_EQ(kube::StringAt(Job(), "/status/startTime"), first);
}

// Between two reconciles the job is deleted and made again.
class MadeAgain : public Reconciling {
 protected:
  MadeAgain() {
    StartBusy();
    CreateContainerJob(1);
    MustReconcile();
    clock_.Advance(absl::Seconds(8));
    DeleteJob();
    CreateContainerJob(1);
  }
};

TEST_F(MadeAgain, ItHasAFirstStatusOfItsOwn) {
  busy_ = false;
  MustReconcile();
  EXPECT_EQ(kube::StringAt(Job(), "/status/startTime"), kube::FormatTimestamp(clock_.WallNow()));
}

TEST_F(MadeAgain, ItsFirstStatusWaitsForAsLongAsAnyOther) {
  EXPECT_EQ(Reconcile()->requeue_after, absl::Seconds(10));
  clock_.Advance(absl::Seconds(5));
  MustReconcile();
  EXPECT_EQ(State(), "");
}

TEST_F(Reconciling, AJobThatIsMadeAgainDoesNotFailForWhatWasRefusedOfTheOneBefore) {
  server_.RefusePods(absl::InvalidArgumentError("image: Required"));
  CreateJob(1);
  MustReconcile();
  DeleteJob();
  server_.RefusePods(absl::OkStatus());
  CreateJob(1);
  MustReconcile();
  EXPECT_EQ(State(), "Pending");
  EXPECT_EQ(Pods(), 2U);
}

TEST_F(Reconciling, AStatusThatWasWrittenUnheardIsNotWrittenAgain) {
  StartBusy();
  CreateContainerJob(1);
  MustReconcile();
  busy_ = false;
  client_.FailWrite(1, kube::Fault::kUnknownResult);
  EXPECT_TRUE(absl::IsUnavailable(Reconcile().status()));
  ASSERT_NE(State(), "");
  const std::int64_t before = client_.writes();
  MustReconcile();
  EXPECT_EQ(client_.writes(), before);
}

TEST_F(Reconciling, AStatusThatSomebodyHasWipedOutIsDecidedAndWaitsAnew) {
  StartBusy();
  CreateContainerJob(1);
  MustReconcile();
  busy_ = false;
  MustReconcile();
  ASSERT_NE(State(), "");
  ASSERT_TRUE(store_->PatchStatus(kube::kTrainingJob, key_, {{"status", nullptr}}).ok());
  busy_ = true;
  clock_.Advance(absl::Seconds(20));
  EXPECT_EQ(Reconcile()->requeue_after, absl::Seconds(10));
  EXPECT_EQ(State(), "");
}

// Disruption budgets.

TEST_F(Reconciling, BudgetsAreMadeOnce) {
  StartWithBudgets();
  CreateJob(1, WithServers());
  MustReconcile();
  EXPECT_EQ(Count(kube::kPodDisruptionBudget), 2U);
  for (int i = 0; i < 2; ++i) MustReconcile();
  EXPECT_EQ(server_.writes().at("create PodDisruptionBudget"), 2);
}

TEST_F(Reconciling, ABudgetOfSomebodyElseIsNotTheServers) {
  StartWithBudgets();
  const std::string name = resources::BudgetName("digits", Role::kParameterServer);
  ASSERT_TRUE(
      store_->Create(kube::kPodDisruptionBudget, Foreign(kube::kPodDisruptionBudget, name)).ok());
  CreateJob(1, WithServers());
  MustReconcile();
  EXPECT_EQ(Pods(), 0U);
}

TEST_F(Reconciling, WhereThereAreNoBudgetsNoneIsLookedFor) {
  client_.AskBeforeReads([](const kube::ResourceKind& kind) {
    return kind == kube::kPodDisruptionBudget ? absl::UnavailableError("no such API")
                                              : absl::OkStatus();
  });
  CreateJob(1, WithServers());
  MustReconcile();
  EXPECT_EQ(Pods(), 3U);
}

TEST_F(Reconciling, OfAJobWithoutServersOneBudgetIsLookedFor) {
  StartWithBudgets();
  CreateJob(1);
  MustReconcile();
  int reads = 0;
  client_.AskBeforeReads([&reads](const kube::ResourceKind& kind) {
    if (kind == kube::kPodDisruptionBudget) ++reads;
    return absl::OkStatus();
  });
  MustReconcile();
  EXPECT_EQ(reads, 1);
}

// Nodes.

class OnNodes : public Reconciling {
 protected:
  OnNodes() {
    CreateJob(2);
    MustReconcile();
    Run("digits-worker-0", "node-1");
    Run("digits-worker-1", "node-1");
  }
  // `node`: null if there is none.
  void Watch(std::shared_ptr<const kubernetes::Node> node) {
    reconciler_->WatchNodes([this, node](const std::string& name) {
      asked_.push_back(name);
      return node;
    });
  }
  static std::shared_ptr<const kubernetes::Node> Node(const char* ready) {
    auto node = std::make_shared<kubernetes::Node>();
    kubernetes::Condition& condition = *node->mutable_status()->add_conditions();
    condition.set_type("Ready");
    condition.set_status(ready);
    return node;
  }

  std::vector<std::string> asked_;
};

TEST_F(OnNodes, OneThatIsReadyIsNoProblem) {
  Watch(Node("True"));
  MustReconcile();
  EXPECT_EQ(ReasonOf("Degraded"), "");
}

TEST_F(OnNodes, OneThatDoesNotAnswerIsTold) {
  Watch(Node("Unknown"));
  MustReconcile();
  EXPECT_EQ(ReasonOf("Degraded"), "NodeLost");
}

TEST_F(OnNodes, OneThatIsGoneIsTold) {
  Watch(nullptr);
  MustReconcile();
  EXPECT_EQ(ReasonOf("Degraded"), "NodeLost");
}

TEST_F(OnNodes, APodThatIsToLeaveOneThatIsGoneHasLeft) {
  Watch(nullptr);
  ASSERT_TRUE(store_->Delete(kube::kPod, Of("digits-worker-0"), {}).ok());
  ASSERT_TRUE(kube::IsBeingDeleted(Pod("digits-worker-0")));
  MustReconcile();
  EXPECT_TRUE(Pod("digits-worker-0").is_null());
}

TEST_F(OnNodes, EachIsLookedForOnceAndNoneForAPodWithoutPlace) {
  Watch(Node("True"));
  MustReconcile();
  EXPECT_EQ(asked_, std::vector<std::string>{"node-1"});
}

TEST_F(OnNodes, WhereTheyAreNotWatchedNothingIsKnownOfThem) {
  MustReconcile();
  EXPECT_EQ(ReasonOf("Degraded"), "");
}

// Schedulers and queues of others.

class InAQueue : public Reconciling {
 protected:
  InAQueue() { reconciler_->UseScheduling(scheduling_); }

  scheduling::Scheduling scheduling_{*store_, clock_, {}};
};

TEST_F(InAQueue, AJobIsToldToTheQueue) {
  CreateJob(1, InQueue());
  MustReconcile();
  EXPECT_EQ(Count(kube::kKueueWorkload), 1U);
}

TEST_F(InAQueue, AJobOfAnotherControllerIsNot) {
  CreateJob(1, InQueue());
  PatchJob(ManagedBy("kueue.x-k8s.io/multikueue"));
  MustReconcile();
  EXPECT_EQ(Count(kube::kKueueWorkload), 0U);
}

TEST_F(InAQueue, AJobThatIsBeingDeletedIsNot) {
  CreateJob(1, InQueue());
  PatchJob({{"metadata", {{"finalizers", Json::array({"example.com/hold"})}}}});
  ASSERT_TRUE(store_->Delete(kube::kTrainingJob, key_, {}).ok());
  MustReconcile();
  EXPECT_EQ(Count(kube::kKueueWorkload), 0U);
}

TEST_F(Reconciling, AJobThatNamesThisControllerIsAsMuchItsOwn) {
  CreateJob(1, {{"spec", {{"runPolicy", {{"schedulingPolicy", {{"queue", "research"}}}}}}}});
  PatchJob(ManagedBy(kManager));
  MustReconcile();
  EXPECT_EQ(Pods(), 2U);
  EXPECT_EQ(ReasonOf("Degraded"), "SchedulingIgnored");
}

// What the API server will not have.

TEST_F(Reconciling, ARefusalIsToldAtOnceAndForgottenWhenItIsOver) {
  server_.RefusePods(absl::PermissionDeniedError("violates PodSecurity"));
  CreateJob(1);
  EXPECT_EQ(Reconcile()->requeue_after, kAtOnce);
  MustReconcile();
  EXPECT_EQ(ReasonOf("Degraded"), "PodForbidden");
  EXPECT_EQ(State(), "Pending");
  server_.RefusePods(absl::OkStatus());
  clock_.Advance(absl::Seconds(1));
  for (int i = 0; i < 2; ++i) MustReconcile();
  EXPECT_EQ(Pods(), 2U);
  EXPECT_EQ(ReasonOf("Degraded"), "");
}

TEST_F(Reconciling, TheSameRefusalAgainIsAnsweredWithMorePatienceAndAnotherIsNot) {
  server_.RefusePods(absl::PermissionDeniedError("violates PodSecurity"));
  CreateJob(1);
  EXPECT_EQ(Reconcile()->requeue_after, kAtOnce);
  for (const int patience : {200, 400, 800}) {
    EXPECT_EQ(Reconcile()->requeue_after, absl::Milliseconds(patience));
    clock_.Advance(absl::Milliseconds(patience));
  }
  server_.RefusePods(absl::ResourceExhaustedError("exceeded quota: team"));
  EXPECT_EQ(Reconcile()->requeue_after, kAtOnce);
  EXPECT_EQ(Reconcile()->requeue_after, absl::Milliseconds(200));
}

// Where the right is missing, for instance.
TEST_F(Reconciling, ADeletionThatIsRefusedIsTriedAgainWithPatience) {
  server_.Refuse("delete Pod", absl::PermissionDeniedError("pods is forbidden"));
  CreateJob(1);
  MustReconcile();
  End("digits-worker-0", 1);
  EXPECT_EQ(Reconcile()->requeue_after, kAtOnce);
  absl::Duration patience;
  for (int i = 0; i < 5; ++i) {
    patience = Reconcile()->requeue_after;
    EXPECT_GE(patience, absl::Milliseconds(200));
    clock_.Advance(patience);
  }
  EXPECT_GE(patience, absl::Seconds(1)) << "and grows";
  EXPECT_EQ(ReasonOf("Degraded"), "PodForbidden");
  server_.Refuse("delete Pod", absl::OkStatus());
  const std::string first = UidOf("digits-worker-0");
  MustReconcile();
  EXPECT_NE(UidOf("digits-worker-0"), first);
}

TEST_F(Reconciling, ANameThatStaysTakenIsToldAndNoFailure) {
  ASSERT_TRUE(store_->Create(kube::kSecret, Foreign(kube::kSecret, "digits-secret")).ok());
  const Json foreign = Secret();
  CreateJob(1);
  for (int i = 0; i < 6; ++i) {
    MustReconcile();
    clock_.Advance(absl::Minutes(1));
  }
  EXPECT_EQ(ReasonOf("Degraded"), "NameTaken");
  EXPECT_EQ(State(), "Pending");
  EXPECT_EQ(Pods(), 0U);
  EXPECT_EQ(Secret(), foreign);
}

TEST_F(Reconciling, AnErrorOfTheServersOwnIsHandedOn) {
  server_.RefusePods(absl::UnavailableError("etcd has no leader"));
  CreateJob(1);
  EXPECT_TRUE(absl::IsUnavailable(Reconcile().status()));
}

TEST_F(Reconciling, ASpecThatIsMendedAfterItWasRefusedIsTriedAtOnce) {
  server_.RefusePods(absl::InvalidArgumentError("image: Required"));
  CreateJob(1);
  MustReconcile();
  server_.RefusePods(absl::OkStatus());
  PatchJob(Replicas(2));
  MustReconcile();
  EXPECT_EQ(State(), "Pending");
  EXPECT_EQ(Pods(), 3U);
}

TEST_F(Reconciling, WhatCannotBeReadIsToldBeforeWhatWasRefused) {
  server_.RefusePods(absl::InvalidArgumentError("image: Required"));
  CreateJob(1);
  MustReconcile();
  ASSERT_TRUE(
      store_->PatchStatus(kube::kTrainingJob, key_, {{"status", {{"conditions", "none"}}}}).ok());
  MustReconcile();
  const std::string why = kube::StringAt(kube::FindCondition(Job(), "Failed"), "/message");
  EXPECT_NE(why.find("status.conditions"), std::string::npos) << why;
}

// Names that are taken.

TEST_F(Reconciling, AnOwnObjectThatWasSeenLateIsTakenForMade) {
  CreateJob(1);
  for (int i = 0; i < 2; ++i) MustReconcile();
  for (const kube::ResourceKind& kind : {kube::kSecret, kube::kService}) {
    bool late = true;
    client_.AskBeforeReads([kind, &late](const kube::ResourceKind& read) {
      if (read != kind || !late) return absl::OkStatus();
      late = false;
      return absl::NotFoundError("not yet");
    });
    EXPECT_EQ(Reconcile()->requeue_after, absl::ZeroDuration()) << kind.kind;
    client_.Heal();
  }
}

TEST_F(Reconciling, OwnPodsThatWereSeenLateAreTakenForMade) {
  CreateJob(1);
  for (int i = 0; i < 2; ++i) MustReconcile();
  server_.HidePods(1);
  EXPECT_EQ(Reconcile()->requeue_after, absl::ZeroDuration());
}

TEST_F(Reconciling, ANameWhoseOwnerCannotBeSeenIsTaken) {
  CreateJob(1);
  for (int i = 0; i < 2; ++i) MustReconcile();
  client_.AskBeforeReads([](const kube::ResourceKind& read) {
    return read == kube::kService ? absl::NotFoundError("not yet") : absl::OkStatus();
  });
  EXPECT_EQ(Reconcile()->requeue_after, kAtOnce);
}

TEST_F(Reconciling, TheNameOfAnOwnPodThatIsBeingDeletedIsTaken) {
  CreateJob(1);
  MustReconcile();
  Run("digits-worker-0", "node-1");
  ASSERT_TRUE(store_->Delete(kube::kPod, Of("digits-worker-0"), {}).ok());
  ASSERT_TRUE(kube::IsBeingDeleted(Pod("digits-worker-0")));
  server_.HidePods(1);
  EXPECT_EQ(Reconcile()->requeue_after, kAtOnce);
}

TEST_F(Reconciling, WhatMayOrMayNotHaveBeenMadeIsAnError) {
  for (const kube::ResourceKind& kind : {kube::kSecret, kube::kPod}) {
    CreateJob(1);
    client_.FailWritesThat(
        [kind](const kube::ResourceKind& made, std::string_view verb) {
          return made == kind && verb == "create";
        },
        kube::Fault::kUnknownResult);
    EXPECT_TRUE(absl::IsUnavailable(Reconcile().status())) << kind.kind;
    client_.Heal();
    ASSERT_TRUE(store_->Delete(kube::kTrainingJob, key_, {}).ok());
    ASSERT_TRUE(store_->Delete(kube::kSecret, Of("digits-secret"), {}).ok());
    MustReconcile();
  }
}

// Timelines.

class Traced : public Reconciling {
 protected:
  Traced() {
    CreateJob(1);
    Lead();
  }
  // It is asked for, and the coordinator has recorded it.
  void Record(const std::string& request) {
    PatchJob({{"metadata", {{"annotations", {{spec::kTraceRequest, request}}}}}});
    report_.set_trace_request(request);
    report_.set_trace("packed");
    Report();
  }
  std::string Stored() {
    return kube::AnnotationOf(Get(kube::kConfigMap, spec::TraceConfigName("digits")),
                              spec::kTraceRequest);
  }
};

TEST_F(Traced, IsStored) {
  Record("one");
  MustReconcile();
  EXPECT_EQ(Stored(), "one");
}

TEST_F(Traced, TheNextIsStoredInPlaceOfTheLast) {
  Record("one");
  MustReconcile();
  Record("two");
  MustReconcile();
  EXPECT_EQ(Stored(), "two");
}

TEST_F(Traced, WhatSomebodyElsePutsInPlaceOfTheLastStays) {
  Record("one");
  MustReconcile();
  Record("two");
  const std::string name = spec::TraceConfigName("digits");
  ReplaceBeforeDelete(kube::kConfigMap, name, Foreign(kube::kConfigMap, name));
  MustReconcile();
  EXPECT_EQ(Stored(), "");
  EXPECT_EQ(kube::NameOf(Get(kube::kConfigMap, name)), name);
}

// Pods that are made.

TEST_F(Reconciling, PodsAreWhatTheSpecSays) {
  CreateContainerJob(2);
  MustReconcile();
  for (const char* pod : {"digits-worker-0", "digits-worker-1"}) {
    EXPECT_EQ(kube::StringAt(Pod(pod), "/spec/containers/0/image"), "python:3") << pod;
  }
}

TEST_F(Reconciling, PodsThatAreMadeAreTold) {
  CreateJob(1);
  MustReconcile();
  EXPECT_EQ(kube::StringAt(Event("PodsCreated"), "/note"),
            "created digits-coordinator-0, digits-worker-0");
}

TEST_F(Reconciling, OfManyPodsThatAreMadeEightAreNamed) {
  CreateContainerJob(8);
  MustReconcile();
  const std::string eight = kube::StringAt(Event("PodsCreated"), "/note");
  EXPECT_TRUE(eight.ends_with(", digits-worker-7")) << eight;
}

TEST_F(Reconciling, OfManyPodsThatAreMadeTheOthersAreCounted) {
  CreateContainerJob(9);
  MustReconcile();
  const std::string nine = kube::StringAt(Event("PodsCreated"), "/note");
  EXPECT_TRUE(nine.ends_with(", digits-worker-7 and 1 more")) << nine;
}

TEST_F(Reconciling, PodsThatAreNotMadeAreNotTold) {
  server_.LimitPods(1);
  CreateJob(1);
  MustReconcile();
  EXPECT_EQ(kube::StringAt(Event("PodsCreated"), "/note"), "created digits-coordinator-0");
}

// What is deleted is what was seen, and nothing that has come into its place.

TEST_F(Reconciling, APodThatHasEndedMakesRoomForTheNext) {
  CreateJob(1);
  MustReconcile();
  const std::string first = UidOf("digits-worker-0");
  End("digits-worker-0", 1);
  MustReconcile();
  EXPECT_NE(UidOf("digits-worker-0"), "");
  EXPECT_NE(UidOf("digits-worker-0"), first);
}

TEST_F(Reconciling, APodThatIsGoneBeforeItIsDeletedIsNoError) {
  CreateJob(1);
  MustReconcile();
  End("digits-worker-0", 1);
  BeforeDelete(kube::kPod, [this] {
    kube::DeleteOptions now;
    now.grace_period_seconds = 0;
    ASSERT_TRUE(store_->Delete(kube::kPod, Of("digits-worker-0"), now).ok());
  });
  MustReconcile();
  EXPECT_EQ(Pods(), 2U);
}

TEST_F(Reconciling, APodThatCameIntoThePlaceOfAnEndedOneStays) {
  CreateJob(1);
  MustReconcile();
  End("digits-worker-0", 1);
  ReplaceBeforeDelete(kube::kPod, "digits-worker-0", Foreign(kube::kPod, "digits-worker-0"));
  MustReconcile();
  EXPECT_EQ(kube::ControllerUidOf(Pod("digits-worker-0")), "");
}

TEST_F(Reconciling, ASecretThatCameIntoThePlaceOfAnOldOneStays) {
  CreateJob(1);
  MustReconcile();
  Start("another seed, of a chart made anew");
  ReplaceBeforeDelete(kube::kSecret, "digits-secret", Foreign(kube::kSecret, "digits-secret"));
  MustReconcile();
  EXPECT_EQ(kube::ControllerUidOf(Secret()), "");
  EXPECT_FALSE(Secret().is_null());
}

// A job that fails at once, and is deleted as soon as it has.
class Expiring : public Reconciling {
 protected:
  Expiring() {
    Json job = Misspelt();
    job["spec"]["runPolicy"] = {{"ttlSecondsAfterFinished", 0}};
    CreateJob(1, job);
  }
};

TEST_F(Expiring, ItDeletesItself) {
  MustReconcile();
  EXPECT_TRUE(Job().is_null());
}

TEST_F(Expiring, AJobThatCameIntoItsPlaceStays) {
  Json next = Job();
  next["metadata"] = {{"name", "digits"}, {"namespace", "default"}};
  ReplaceBeforeDelete(kube::kTrainingJob, "digits", next);
  MustReconcile();
  EXPECT_FALSE(Job().is_null());
}

TEST_F(Expiring, TheFailureIsAWarning) {
  MustReconcile();
  EXPECT_EQ(kube::StringAt(Event("InvalidSpec"), "/type"), "Warning");
}

}  // namespace
}  // namespace starling::trainingjob
