// SPDX-License-Identifier: Apache-2.0
// What schedulers and queues are told of a job.
#include "controller/trainingjob/scheduling_facts.h"

#include "controller/kube/objects.h"
#include "controller/testing/test_scene.h"
#include "gtest/gtest.h"

namespace starling::trainingjob {
namespace {

const resources::Platform kCluster{.jobs_folder = "", .image = "starling:1"};

// A job with 4 workers that needs 2, and what was read of it.
class SchedulingFacts : public testing::Test {
 protected:
  SchedulingFacts() {
    scene_.Training(2);
    scene_.worker().set_replicas(4);
    scene_.worker().set_min_replicas(2);
    job_["metadata"] = {{"name", "digits"}, {"namespace", "default"}, {"uid", "u1"}};
  }

  scheduling::JobFacts Facts() {
    JobObjects objects;
    objects.job = &job_;
    Reading reading;
    reading.observed = scene_.seen;
    return FactsOf(objects, reading, kCluster);
  }

  static const scheduling::RoleFacts& Of(const scheduling::JobFacts& facts, Role role) {
    for (const scheduling::RoleFacts& found : facts.roles) {
      if (found.role == role) return found;
    }
    ADD_FAILURE() << "the role is not told of";
    return facts.roles.front();
  }

  Json job_ = {{"apiVersion", "starling.dev/v1alpha1"}, {"kind", "TrainingJob"}};
  Scene scene_;
};

TEST_F(SchedulingFacts, TellHowManyPodsAreWantedNeededAndThere) {
  scene_.seen.pods.back().ready = false;
  const scheduling::JobFacts facts = Facts();
  EXPECT_EQ(Of(facts, Role::kCoordinator).wanted, 1);
  EXPECT_EQ(Of(facts, Role::kCoordinator).least, 1);
  const scheduling::RoleFacts& workers = Of(facts, Role::kWorker);
  EXPECT_EQ(workers.wanted, 4);
  EXPECT_EQ(workers.least, 2);
  EXPECT_EQ(workers.live, 2);
  EXPECT_EQ(workers.ready, 1);
}

TEST_F(SchedulingFacts, CountAsReadyOnlyWhoIs) {
  EXPECT_EQ(Of(Facts(), Role::kWorker).ready, 2);
  for (ObservedPod& pod : scene_.seen.pods) pod.ready = false;
  EXPECT_EQ(Of(Facts(), Role::kWorker).ready, 0);
}

TEST_F(SchedulingFacts, SayWhoseTheyAreAndOfWhichSpec) {
  scene_.seen.generation = 7;
  const scheduling::JobFacts facts = Facts();
  EXPECT_EQ(facts.job.ns + "/" + facts.job.name, "default/digits");
  EXPECT_EQ(facts.job.uid, scene_.seen.job.uid);
  EXPECT_EQ(facts.generation, 7);
}

TEST_F(SchedulingFacts, OfAStandbyTwoCoordinatorsAreWantedAndOneIsNeeded) {
  scene_.seen.spec.mutable_replica_specs()->mutable_coordinator()->set_standby(true);
  EXPECT_EQ(Of(Facts(), Role::kCoordinator).wanted, 2);
  EXPECT_EQ(Of(Facts(), Role::kCoordinator).least, 1);
}

TEST_F(SchedulingFacts, OneOfARoleIsNeededWhereNothingElseIsSaid) {
  scene_.worker().set_min_replicas(0);
  scene_.servers(3).set_min_replicas(0);
  EXPECT_EQ(Of(Facts(), Role::kWorker).least, 1);
  EXPECT_EQ(Of(Facts(), Role::kParameterServer).wanted, 3);
  EXPECT_EQ(Of(Facts(), Role::kParameterServer).least, 1);
  scene_.servers(3).set_min_replicas(2);
  EXPECT_EQ(Of(Facts(), Role::kParameterServer).least, 2);
}

TEST_F(SchedulingFacts, PodsThatEndedHoldNothing) {
  for (ObservedPod& pod : scene_.seen.pods) pod.phase = PodPhase::kFailed;
  EXPECT_EQ(Of(Facts(), Role::kWorker).live, 0);
  EXPECT_EQ(Of(Facts(), Role::kCoordinator).live, 0);
}

TEST_F(SchedulingFacts, WhoGoesStillHoldsItsPlace) {
  for (ObservedPod& pod : scene_.seen.pods) pod.terminating = true;
  EXPECT_EQ(Of(Facts(), Role::kWorker).live, 2);
}

TEST_F(SchedulingFacts, NeverNeedMoreThanIsWanted) {
  scene_.worker().set_min_replicas(2);
  scene_.worker().set_max_replicas(1);
  const scheduling::RoleFacts workers = Of(Facts(), Role::kWorker);
  EXPECT_LE(workers.least, workers.wanted);
}

TEST_F(SchedulingFacts, CarryTheOwnersLabelsAndPolicy) {
  job_["metadata"]["labels"] = {{"team", "vision"}, {"odd", 3}};
  v1alpha1::SchedulingPolicy& policy = *scene_.policy().mutable_scheduling_policy();
  policy.set_queue("research");
  policy.set_priority_class("high");
  policy.set_min_available(3);
  policy.set_schedule_timeout_seconds(60);
  scene_.policy().set_suspend(true);
  const scheduling::JobFacts facts = Facts();
  EXPECT_EQ(facts.owner["uid"], "u1");
  EXPECT_EQ(facts.labels, (std::map<std::string, std::string>{{"team", "vision"}}));
  EXPECT_EQ(facts.queue, "research");
  EXPECT_EQ(facts.priority_class, "high");
  EXPECT_EQ(facts.min_available, 3);
  EXPECT_EQ(facts.timeout_seconds, 60);
  EXPECT_TRUE(facts.suspend);
}

TEST_F(SchedulingFacts, WhatIsNotSaidIsNotMadeUp) {
  const scheduling::JobFacts facts = Facts();
  EXPECT_EQ(facts.queue, "");
  EXPECT_FALSE(facts.min_available.has_value());
  EXPECT_FALSE(facts.timeout_seconds.has_value());
  EXPECT_FALSE(facts.suspend);
  EXPECT_EQ(facts.outcome, scheduling::Outcome::kNone);
}

TEST_F(SchedulingFacts, OnlyQueuesAreShownAPod) {
  EXPECT_TRUE(Of(Facts(), Role::kWorker).pod.is_null());
  job_["metadata"]["labels"] = {{"kueue.x-k8s.io/queue-name", "research"}};
  for (const Role role : {Role::kCoordinator, Role::kWorker}) {
    const scheduling::JobFacts facts = Facts();
    const Json& pod = Of(facts, role).pod;
    EXPECT_EQ(kube::StringAt(pod, "/spec/containers/0/image"), "starling:1") << pod;
    EXPECT_EQ(kube::StringAt(pod, "/metadata/labels/starling.dev~1role"),
              std::string(resources::RoleName(role)));
  }
}

TEST_F(SchedulingFacts, QueuesAreShownAWorkerThatBringsItsContainer) {
  job_["metadata"]["labels"] = {{"kueue.x-k8s.io/queue-name", "research"}};
  scene_.seen.spec.mutable_workload()->mutable_container();
  scene_.worker().set_template_(R"({"spec": {"containers": [
      {"name": "trainer", "image": "mine:1", "command": ["train"]}]}})");
  const scheduling::JobFacts facts = Facts();
  const Json& pod = Of(facts, Role::kWorker).pod;
  EXPECT_EQ(kube::StringAt(pod, "/spec/containers/0/image"), "mine:1") << pod;
  EXPECT_EQ(kube::StringAt(pod, "/metadata/annotations/starling.dev~1round"), "1") << pod;
}

TEST_F(SchedulingFacts, ARoleWhosePodsCannotBeBuiltHasNone) {
  job_["metadata"]["labels"] = {{"kueue.x-k8s.io/queue-name", "research"}};
  scene_.worker().set_template_("{not json");
  const scheduling::RoleFacts workers = Of(Facts(), Role::kWorker);
  EXPECT_TRUE(workers.pod.is_null());
  EXPECT_EQ(workers.wanted, 0);
  EXPECT_EQ(workers.least, 0);
}

TEST_F(SchedulingFacts, AJobThatBringsItsContainerHasWorkersOnly) {
  scene_.seen.spec.mutable_workload()->mutable_container();
  const scheduling::JobFacts facts = Facts();
  ASSERT_EQ(facts.roles.size(), 1U);
  EXPECT_EQ(facts.roles[0].role, Role::kWorker);
}

TEST_F(SchedulingFacts, TellHowItEnded) {
  scene_.Finished(true);
  EXPECT_EQ(Facts().outcome, scheduling::Outcome::kSucceeded);
  EXPECT_NE(Facts().outcome_message, "");
  Scene other;
  other.Finished(false);
  scene_.seen = other.seen;
  EXPECT_EQ(Facts().outcome, scheduling::Outcome::kFailed);
  EXPECT_NE(Facts().outcome_message.find("not a number"), std::string::npos);
}

TEST(QueueingOf, CarriesTheWholeVerdict) {
  const Queueing queueing = QueueingOf({.hold = true,
                                        .reason = "Queued",
                                        .message = "no quota",
                                        .worker_limit = 3,
                                        .limit_message = "ask for more",
                                        .server_limit = 2,
                                        .server_limit_message = "servers: ask for more",
                                        .warning = "no such scheduler"});
  EXPECT_TRUE(queueing.hold);
  EXPECT_EQ(queueing.reason, "Queued");
  EXPECT_EQ(queueing.message, "no quota");
  EXPECT_EQ(queueing.worker_limit, 3);
  EXPECT_EQ(queueing.limit_message, "ask for more");
  EXPECT_EQ(queueing.server_limit, 2);
  EXPECT_EQ(queueing.server_limit_message, "servers: ask for more");
  EXPECT_EQ(queueing.warning, "no such scheduler");
}

}  // namespace
}  // namespace starling::trainingjob
