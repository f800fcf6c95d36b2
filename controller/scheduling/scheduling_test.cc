// SPDX-License-Identifier: Apache-2.0
#include "controller/scheduling/scheduling.h"

#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/objects.h"
#include "controller/scheduling/gang.h"
#include "controller/scheduling/kueue.h"
#include "controller/testing/test_facts.h"
#include "gtest/gtest.h"

namespace starling::scheduling {
namespace {

// A store that has such kinds of others, and the step over it.
class SchedulingTest : public testing::Test {
 protected:
  void Install(std::vector<kube::ResourceKind> kinds, Options options = {}) {
    kube::EmbeddedOptions store;
    store.optional_kinds = std::move(kinds);
    auto client = kube::OpenEmbeddedKubeClient(clock_, std::move(store));
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    scheduling_ = std::make_unique<Scheduling>(*client_, clock_, std::move(options));
  }

  Plan Look(const JobFacts& facts) {
    auto plan = scheduling_->Look(facts);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? *std::move(plan) : Plan();
  }

  // Until nothing is left to be written; returns how many writes it took.
  int SettleAll(const JobFacts& facts) {
    int writes = 0;
    for (Plan plan = Look(facts); !plan.writes.empty() && writes < 10; plan = Look(facts)) {
      writes += static_cast<int>(plan.writes.size());
      const absl::Status status = scheduling_->Settle(plan);
      EXPECT_TRUE(status.ok()) << status;
    }
    return writes;
  }

  Json Get(const kube::ResourceKind& kind, const std::string& name) {
    auto object = client_->Get(kind, {"team", name});
    EXPECT_TRUE(object.ok()) << object.status();
    return object.ok() ? *object : Json();
  }

  // What Kueue does: `change` the status of the job's Workload.
  void PlayKueue(const Json& change) {
    const auto written = client_->PatchStatus(kube::kKueueWorkload, {"team", "trainingjob-digits"},
                                              {{"status", change}});
    ASSERT_TRUE(written.ok()) << written.status();
  }

  static Json Condition(const char* type, const char* status) {
    return {{"type", type}, {"status", status}, {"reason", "Preempted"}, {"message", "because"}};
  }

  clock::FakeClock clock_;
  std::unique_ptr<kube::KubeClient> client_;
  std::unique_ptr<Scheduling> scheduling_;
};

TEST_F(SchedulingTest, WithNothingInstalledNothingIsDone) {
  Install({});
  const Plan plan = Look(TestFacts());
  EXPECT_TRUE(plan.writes.empty());
  EXPECT_FALSE(plan.verdict.hold);
  const Json pod = TestPod("worker", "0", "1Gi");
  EXPECT_EQ(Decorate(plan, resources::Role::kWorker, pod), pod);
  // The job asks for a queue, and hears that there is none.
  EXPECT_NE(plan.verdict.warning.find("Kueue"), std::string::npos) << plan.verdict.warning;
}

// Only a priority class needs no gang scheduler.
TEST_F(SchedulingTest, APolicyThatNobodyActsOnIsToldAndAPriorityClassWorksAllTheSame) {
  JobFacts facts = TestFacts();
  facts.labels.clear();
  facts.priority_class = "high";
  for (const char* gang_scheduler : {"auto", "none"}) {
    Install({kube::kCoschedulingPodGroup}, {.gang_scheduler = gang_scheduler});
    if (std::string(gang_scheduler) == "auto") Install({});
    facts.queue = "";
    facts.min_available = facts.timeout_seconds = std::nullopt;
    const Plan quiet = Look(facts);
    EXPECT_EQ(quiet.verdict.warning, "") << gang_scheduler;
    EXPECT_TRUE(quiet.writes.empty());
    const Json pod = Decorate(quiet, resources::Role::kWorker, TestPod("worker", "0", "1Gi"));
    EXPECT_EQ(pod["spec"]["priorityClassName"], "high");
    facts.queue = "research";
    facts.min_available = 4;
    facts.timeout_seconds = 60;
    EXPECT_NE(
        Look(facts).verdict.warning.find("queue, minAvailable, scheduleTimeoutSeconds are ignored"),
        std::string::npos)
        << gang_scheduler;
  }
}

TEST_F(SchedulingTest, WhatTheInstalledSchedulerHasNotIsTold) {
  JobFacts facts = TestFacts();
  facts.labels.clear();
  facts.queue = "research";
  facts.min_available = 4;
  facts.timeout_seconds = 60;
  Install({kube::kCoschedulingPodGroup});
  EXPECT_NE(Look(facts).verdict.warning.find(": queue is ignored: the gang scheduler coscheduling"),
            std::string::npos);
  Install({kube::kVolcanoPodGroup});
  EXPECT_NE(Look(facts).verdict.warning.find(": scheduleTimeoutSeconds is ignored"),
            std::string::npos);
  Install({kube::kNativePodGroup});
  EXPECT_NE(Look(facts).verdict.warning.find(": queue, scheduleTimeoutSeconds are ignored"),
            std::string::npos);
}

TEST_F(SchedulingTest, TwoThingsThatAreIgnoredAreBothTold) {
  Install({});
  JobFacts facts = TestFacts();
  facts.queue = "research";
  const std::string warning = Look(facts).verdict.warning;
  EXPECT_NE(warning.find("queue is ignored"), std::string::npos) << warning;
  EXPECT_NE(warning.find("Kueue"), std::string::npos) << warning;
}

TEST(IgnoredOnOneMachine, NamesAllThatTheJobGives) {
  JobFacts facts;
  EXPECT_EQ(IgnoredOnOneMachine(facts), "");
  facts.priority_class = "high";
  facts.min_available = 2;
  EXPECT_EQ(IgnoredOnOneMachine(facts).rfind(
                "runPolicy.schedulingPolicy: priorityClass, minAvailable are ignored", 0),
            0U);
}

TEST_F(SchedulingTest, GangIsTheCoordinatorAndTheWorkersThatTrainingNeeds) {
  Install({kube::kCoschedulingPodGroup});
  JobFacts facts = TestFacts();
  facts.labels.clear();
  EXPECT_EQ(SettleAll(facts), 1);
  EXPECT_EQ(Get(kube::kCoschedulingPodGroup, "digits")["spec"]["minMember"], 3);
  const Json pod = Decorate(Look(facts), resources::Role::kWorker, TestPod("worker", "0", "1Gi"));
  EXPECT_EQ(pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"], "digits");
  EXPECT_EQ(pod["metadata"]["labels"]["starling.dev/job"], "digits");
}

TEST_F(SchedulingTest, GangFollowsTheSpec) {
  Install({kube::kVolcanoPodGroup});
  JobFacts facts = TestFacts();
  facts.labels.clear();
  facts.queue = "research";
  facts.priority_class = "high";
  SettleAll(facts);
  facts.min_available = 4;
  EXPECT_EQ(SettleAll(facts), 1);
  const Json group = Get(kube::kVolcanoPodGroup, "digits");
  EXPECT_EQ(group["spec"],
            Json({{"minMember", 5}, {"queue", "research"}, {"priorityClassName", "high"}}));
  // Never more than there will be pods: such a gang would wait for ever.
  facts.roles[1].wanted = 3;
  SettleAll(facts);
  EXPECT_EQ(Get(kube::kVolcanoPodGroup, "digits")["spec"]["minMember"], 4);
  const Json pod = Decorate(Look(facts), resources::Role::kWorker, TestPod("worker", "0", "1Gi"));
  EXPECT_EQ(pod["spec"]["schedulerName"], "volcano");
  EXPECT_EQ(pod["spec"]["priorityClassName"], "high");
}

TEST_F(SchedulingTest, ImmutableGroupIsLeftAsItIs) {
  Install({kube::kNativePodGroup});
  JobFacts facts = TestFacts();
  facts.labels.clear();
  EXPECT_EQ(SettleAll(facts), 1);
  facts.min_available = 4;
  EXPECT_EQ(SettleAll(facts), 0);
}

TEST_F(SchedulingTest, AdministratorMayChooseOrForbid) {
  JobFacts facts = TestFacts();
  facts.labels.clear();
  Install({kube::kCoschedulingPodGroup}, {.gang_scheduler = "none"});
  EXPECT_TRUE(Look(facts).writes.empty());
  Install({kube::kCoschedulingPodGroup}, {.gang_scheduler = "volcano"});
  const Plan plan = Look(facts);
  EXPECT_TRUE(plan.writes.empty());
  EXPECT_NE(plan.verdict.warning.find("volcano"), std::string::npos);
}

TEST_F(SchedulingTest, QueuesAreToldThePriorityOfTheJobsPods) {
  Install({kube::kKueueWorkload, kube::kPriorityClass});
  ASSERT_TRUE(client_
                  ->Create(kube::kPriorityClass, {{"apiVersion", "scheduling.k8s.io/v1"},
                                                  {"kind", "PriorityClass"},
                                                  {"metadata", {{"name", "batch"}}},
                                                  {"value", 500}})
                  .ok());
  JobFacts facts = TestFacts();
  facts.priority_class = "batch";
  EXPECT_EQ(SettleAll(facts), 1);
  const Json spec = Get(kube::kKueueWorkload, "trainingjob-digits")["spec"];
  EXPECT_EQ(spec["priority"], 500) << spec.dump(1);
  EXPECT_EQ(spec["priorityClassSource"], "scheduling.k8s.io/priorityclass");
}

TEST_F(SchedulingTest, JobGoesThroughItsQueue) {
  Install({kube::kKueueWorkload, kResourceFlavor});
  JobFacts facts = TestFacts();
  ASSERT_TRUE(client_
                  ->Create(kResourceFlavor, {{"apiVersion", "kueue.x-k8s.io/v1beta1"},
                                             {"kind", "ResourceFlavor"},
                                             {"metadata", {{"name", "spot"}}},
                                             {"spec", {{"nodeLabels", {{"tier", "spot"}}}}}})
                  .ok());
  // Queued: no pod may be made.
  EXPECT_TRUE(Look(facts).verdict.hold);
  EXPECT_EQ(SettleAll(facts), 1);
  EXPECT_EQ(Look(facts).verdict.reason, "Queued");
  // Admitted, with three of the four workers.
  PlayKueue(
      {{"admission",
        {{"clusterQueue", "all"},
         {"podSetAssignments",
          Json::array({{{"name", "coordinator"}, {"count", 1}},
                       {{"name", "worker"}, {"count", 3}, {"flavors", {{"cpu", "spot"}}}}})}}},
       {"conditions",
        Json::array({Condition("QuotaReserved", "True"), Condition("Admitted", "True")})}});
  Plan plan = Look(facts);
  EXPECT_FALSE(plan.verdict.hold);
  EXPECT_EQ(plan.verdict.worker_limit, 3);
  const Json pod = Decorate(plan, resources::Role::kWorker, TestPod("worker", "0", "1Gi"));
  EXPECT_EQ(pod["spec"]["nodeSelector"], Json({{"tier", "spot"}}));
  facts.roles[0].live = facts.roles[0].ready = 1;
  facts.roles[1].live = facts.roles[1].ready = 3;
  SettleAll(facts);
  EXPECT_TRUE(kube::IsConditionTrue(Get(kube::kKueueWorkload, "trainingjob-digits"), "PodsReady"));
  // Evicted: held at once, the quota given back when the last pod is gone.
  Json conditions = Get(kube::kKueueWorkload, "trainingjob-digits")["status"]["conditions"];
  conditions.push_back(Condition("Evicted", "True"));
  PlayKueue({{"conditions", conditions}});
  EXPECT_EQ(Look(facts).verdict.reason, "Evicted");
  EXPECT_EQ(SettleAll(facts), 0);
  facts.roles[0].live = facts.roles[1].live = 0;
  EXPECT_EQ(SettleAll(facts), 1);
  const Json evicted = Get(kube::kKueueWorkload, "trainingjob-digits");
  EXPECT_FALSE(kube::At(evicted, "/status/admission").is_object());
  EXPECT_FALSE(kube::IsConditionTrue(evicted, "Admitted"));
  // The end.
  facts.outcome = Outcome::kSucceeded;
  EXPECT_EQ(SettleAll(facts), 1);
  EXPECT_TRUE(kube::IsConditionTrue(Get(kube::kKueueWorkload, "trainingjob-digits"), "Finished"));
}

TEST_F(SchedulingTest, WriteAgainstAnOlderVersionIsRefused) {
  Install({kube::kKueueWorkload});
  JobFacts facts = TestFacts();
  SettleAll(facts);
  facts.suspend = true;
  const Plan plan = Look(facts);
  PlayKueue({{"conditions", Json::array({Condition("QuotaReserved", "True")})}});
  EXPECT_EQ(scheduling_->Settle(plan).code(), absl::StatusCode::kAborted);
}

TEST(Decorate, AddsAndNeverTakesAway) {
  Plan plan;
  plan.pod_patch = {{"spec", {{"schedulerName", "volcano"}, {"priorityClassName", "high"}}}};
  plan.role_patches[resources::Role::kWorker] = {
      {"metadata", {{"annotations", {{"b", "2"}}}}},
      {"spec",
       {{"nodeSelector", {{"tier", "spot"}}},
        {"tolerations", Json::array({{{"key", "spot"}}, {{"key", "mine"}}})}}}};
  Json pod = TestPod("worker", "0", "1Gi");
  pod["metadata"]["annotations"] = {{"a", "1"}};
  pod["spec"]["schedulerName"] = "mine";
  pod["spec"]["nodeSelector"] = {{"disk", "fast"}};
  pod["spec"]["tolerations"] = Json::array({{{"key", "mine"}}});
  const Json worker = Decorate(plan, resources::Role::kWorker, pod);
  EXPECT_EQ(worker["spec"]["schedulerName"], "mine");
  EXPECT_EQ(worker["spec"]["priorityClassName"], "high");
  EXPECT_EQ(worker["spec"]["nodeSelector"], Json({{"disk", "fast"}, {"tier", "spot"}}));
  EXPECT_EQ(worker["spec"]["tolerations"], Json::array({{{"key", "mine"}}, {{"key", "spot"}}}));
  EXPECT_EQ(worker["metadata"]["annotations"], Json({{"a", "1"}, {"b", "2"}}));
  const Json coordinator = Decorate(plan, resources::Role::kCoordinator, pod);
  EXPECT_EQ(coordinator["spec"]["nodeSelector"], Json({{"disk", "fast"}}));
}

}  // namespace
}  // namespace starling::scheduling
