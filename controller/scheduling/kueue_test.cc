// SPDX-License-Identifier: Apache-2.0
#include "controller/scheduling/kueue.h"

#include <fstream>

#include "controller/kube/objects.h"
#include "controller/testing/test_facts.h"
#include "controller/testing/test_schema.h"
#include "gtest/gtest.h"

namespace starling::scheduling {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

void Set(Json& workload, const char* type, bool value, const char* reason = "Test",
         const char* message = "") {
  Json conditions = kube::At(workload, "/status/conditions");
  if (!conditions.is_array()) conditions = Json::array();
  kube::SetCondition(
      conditions,
      {.type = type, .status = value ? "True" : "False", .reason = reason, .message = message},
      kNow);
  workload["status"]["conditions"] = conditions;
}

// As Kueue leaves it: admitted with so many workers.
Json Admitted(const JobFacts& facts, std::int64_t workers) {
  Json workload = BuildWorkload(facts, {});
  workload["metadata"]["resourceVersion"] = "7";
  Set(workload, "QuotaReserved", true);
  Set(workload, "Admitted", true);
  workload["status"]["admission"] = {
      {"clusterQueue", "all"},
      {"podSetAssignments",
       Json::array({{{"name", "coordinator"}, {"count", 1}, {"flavors", {{"cpu", "small"}}}},
                    {{"name", "worker"},
                     {"count", workers},
                     {"flavors", {{"cpu", "spot"}, {"memory", "spot"}}}}})}};
  return workload;
}

Json Evicted(const JobFacts& facts, const char* reason = "Preempted") {
  Json workload = Admitted(facts, 4);
  Set(workload, "Evicted", true, reason, "made room for another");
  return workload;
}

const Json* Condition(const Write& write, const std::string& type) {
  for (const Json& condition : write.body["status"]["conditions"]) {
    if (condition["type"] == type) return &condition;
  }
  return nullptr;
}

std::string StatusOf(const Write& write, const std::string& type) {
  const Json* condition = Condition(write, type);
  return condition == nullptr ? "" : (*condition)["status"].get<std::string>();
}

// What the API server would make of a write.
Json After(Json workload, const Write& write) {
  workload.merge_patch(write.body);
  return workload;
}

TEST(Workload, FollowsItsPublishedSchema) {
  std::ifstream file(std::string(STARLING_SCHEMAS) + "/kueue_workload.json");
  const Json schema = Json::parse(file);
  JobFacts facts = TestFacts();
  facts.labels["kueue.x-k8s.io/priority-class"] = "high";
  const Json workload = BuildWorkload(facts, {.priority = 1000});
  std::vector<std::string> problems;
  CheckFields(schema, workload["spec"], "spec", problems);
  EXPECT_EQ(problems, std::vector<std::string>()) << workload.dump(1);
  // Kueue's rules beyond the schema: a priority with its class, minCount within count, once.
  EXPECT_EQ(workload["spec"]["priority"], 1000);
  int with_minimum = 0;
  for (const Json& set : workload["spec"]["podSets"]) {
    if (!set.contains("minCount")) continue;
    ++with_minimum;
    EXPECT_LE(set["minCount"].get<int>(), set["count"].get<int>());
  }
  EXPECT_EQ(with_minimum, 1);
  // The check would see what is wrong.
  Json wrong = workload["spec"];
  wrong["podSets"][0]["template"]["metadata"]["name"] = "digits";
  CheckFields(schema, wrong, "spec", problems);
  EXPECT_EQ(problems.size(), 1U);
}

TEST(Workload, HasThePriorityOfItsPodsUnlessALabelNamesOneOfKueues) {
  const auto spec_of = [](const JobFacts& facts) {
    return BuildWorkload(facts, {.priority = 500})["spec"];
  };
  JobFacts facts = TestFacts();
  EXPECT_FALSE(PriorityClassOf(facts).has_value());
  EXPECT_FALSE(spec_of(facts).contains("priority")) << "it names no class";

  facts.roles[1].pod["spec"]["priorityClassName"] = "of-the-template";
  EXPECT_EQ(spec_of(facts)["priorityClassName"], "of-the-template");
  facts.priority_class = "batch";
  Json spec = spec_of(facts);
  EXPECT_EQ(spec["priorityClassName"], "batch");
  EXPECT_EQ(spec["priorityClassSource"], "scheduling.k8s.io/priorityclass");
  EXPECT_EQ(spec["priority"], 500);
  // The pod sets name what the pods will have.
  EXPECT_EQ(spec["podSets"][0]["template"]["spec"]["priorityClassName"], "batch");
  EXPECT_EQ(spec["podSets"][1]["template"]["spec"]["priorityClassName"], "of-the-template");
  // A class that is not there gives no priority.
  EXPECT_FALSE(BuildWorkload(facts, {})["spec"].contains("priorityClassName"));

  facts.labels["kueue.x-k8s.io/priority-class"] = "high";
  spec = spec_of(facts);
  EXPECT_EQ(spec["priorityClassName"], "high");
  EXPECT_EQ(spec["priorityClassSource"], "kueue.x-k8s.io/workloadpriorityclass");
}

TEST(Workload, AsksForEveryRoleWithWhatDecidesWhereItRuns) {
  const Json workload = BuildWorkload(TestFacts(), {});
  EXPECT_EQ(workload["metadata"]["name"], "trainingjob-digits");
  EXPECT_EQ(workload["spec"]["queueName"], "research");
  EXPECT_EQ(workload["spec"]["active"], true);
  const Json& sets = workload["spec"]["podSets"];
  ASSERT_EQ(sets.size(), 2U);
  EXPECT_EQ(sets[0]["name"], "coordinator");
  EXPECT_FALSE(sets[0].contains("minCount"));
  EXPECT_EQ(sets[1]["count"], 4);
  EXPECT_EQ(sets[1]["minCount"], 2);
  const Json& spec = sets[1]["template"]["spec"];
  EXPECT_EQ(spec["containers"][0]["resources"]["requests"]["memory"], "1Gi");
  EXPECT_FALSE(spec.contains("volumes"));
  EXPECT_FALSE(spec.contains("hostname"));
  EXPECT_FALSE(sets[1]["template"]["metadata"]["labels"].contains("starling.dev/index"));
}

// Kueue's webhook takes minCount on at most one set, and an admission with less than was asked for
// lessens that set alone.
JobFacts FactsWithServers() {
  JobFacts facts = TestFacts();
  facts.roles.push_back({.role = resources::Role::kParameterServer,
                         .pod = TestPod("parameter-server", "0", "2Gi"),
                         .wanted = 2,
                         .least = 1});
  return facts;
}

Json AdmittedWithServers(const JobFacts& facts, std::int64_t workers, std::int64_t servers) {
  Json workload = Admitted(facts, workers);
  workload["status"]["admission"]["podSetAssignments"].push_back(
      {{"name", "parameter-server"}, {"count", servers}, {"flavors", {{"cpu", "small"}}}});
  return workload;
}

TEST(Workload, OnlyWorkersMayBeAdmittedInPart) {
  const Json workload = BuildWorkload(FactsWithServers(), {});
  const Json& sets = workload["spec"]["podSets"];
  ASSERT_EQ(sets.size(), 3U);
  for (const Json& set : sets) {
    EXPECT_EQ(set.contains("minCount"), set["name"] == "worker") << set["name"];
  }
  EXPECT_EQ(sets[2]["name"], "parameter-server");
  EXPECT_EQ(sets[2]["count"], 2) << "servers are needed whole, though fewer would do";
}

TEST(QueueVerdict, AdmissionInPartBoundsWorkersAndLeavesServersWhole) {
  const JobFacts facts = FactsWithServers();
  const Verdict verdict = QueueVerdict(facts, {.workload = AdmittedWithServers(facts, 3, 2)});
  EXPECT_FALSE(verdict.hold);
  EXPECT_EQ(verdict.worker_limit, 3);
  EXPECT_EQ(verdict.server_limit, 2);
  EXPECT_EQ(QueueVerdict(TestFacts(), {.workload = Admitted(TestFacts(), 3)}).server_limit,
            std::nullopt)
      << "a job without servers";
}

TEST(QueueVerdict, ServersBeyondTheAdmissionHaveNoQuota) {
  JobFacts facts = FactsWithServers();
  const Json workload = AdmittedWithServers(facts, 4, 2);
  facts.roles[2].wanted = 3;  // the user has asked for one more since
  const Verdict verdict = QueueVerdict(facts, {.workload = workload});
  EXPECT_EQ(verdict.server_limit, 2);
  EXPECT_EQ(verdict.server_limit_message,
            "queue research admitted the job with 2 parameter servers; suspend and resume it to "
            "ask for more");
}

TEST(QueueVerdict, ServersThatWereGivenBackAreNotTheJobsAnyMore) {
  JobFacts facts = FactsWithServers();
  Json workload = AdmittedWithServers(facts, 4, 2);
  Set(workload, "PodsReady", true, "Started");
  facts.roles[1].live = 4;
  facts.roles[2].wanted = facts.roles[2].live = 1;
  const std::vector<Write> writes = QueueWrites(facts, {.workload = workload}, kNow);
  ASSERT_EQ(writes.size(), 1U);
  EXPECT_EQ(writes[0].body["status"]["reclaimablePods"],
            Json::array({{{"name", "parameter-server"}, {"count", 1}}}));
  facts.roles[2].wanted = 2;
  EXPECT_EQ(QueueVerdict(facts, {.workload = After(workload, writes[0])}).server_limit, 1);
}

TEST(Workload, WithoutAQueueThereIsNone) {
  JobFacts facts = TestFacts();
  facts.labels.clear();
  EXPECT_TRUE(QueueWrites(facts, {}, kNow).empty());
  EXPECT_FALSE(QueueVerdict(facts, {}).hold);
}

struct VerdictCase {
  const char* name;
  std::optional<Json> workload;
  bool hold;
  const char* reason;
  std::optional<std::int64_t> limit;
};

TEST(QueueVerdict, FollowsTheTable) {
  const JobFacts facts = TestFacts();
  Json pending = BuildWorkload(facts, {});
  Json reserved = pending;
  Set(reserved, "QuotaReserved", true);
  Json other = Admitted(facts, 4);
  other["metadata"]["ownerReferences"][0]["uid"] = "uid-0";
  Json shrunk = Admitted(facts, 4);
  shrunk["status"]["reclaimablePods"] = Json::array({{{"name", "worker"}, {"count", 1}}});
  Json old = Admitted(facts, 4);
  old["status"]["admission"]["podSetAssignments"][1].erase("count");
  const VerdictCase cases[] = {
      {"no workload yet", std::nullopt, true, "Queued", std::nullopt},
      {"not considered yet", pending, true, "Queued", std::nullopt},
      {"waits for checks", reserved, true, "WaitingForAdmissionChecks", std::nullopt},
      {"admitted whole", Admitted(facts, 4), false, "", 4},
      {"admitted in part", Admitted(facts, 2), false, "", 2},
      {"has given one back", shrunk, false, "", 3},
      {"assignment without a count", old, false, "", 4},
      {"evicted", Evicted(facts), true, "Evicted", std::nullopt},
      {"belongs to an earlier job", other, true, "Queued", std::nullopt},
  };
  for (const VerdictCase& row : cases) {
    const Verdict verdict = QueueVerdict(facts, {.workload = row.workload});
    EXPECT_EQ(verdict.hold, row.hold) << row.name;
    EXPECT_EQ(verdict.reason, row.reason) << row.name;
    EXPECT_EQ(verdict.worker_limit, row.limit) << row.name;
  }
}

TEST(QueueVerdict, SaysWhatKueueSays) {
  const JobFacts facts = TestFacts();
  Json pending = BuildWorkload(facts, {});
  Set(pending, "QuotaReserved", false, "Pending", "insufficient quota for cpu");
  EXPECT_EQ(QueueVerdict(facts, {.workload = pending}).message,
            "queue research: insufficient quota for cpu");
  EXPECT_EQ(QueueVerdict(facts, {.workload = Evicted(facts)}).message,
            "queue research: made room for another");
}

TEST(QueueVerdict, JobThatHasEndedIsNotHeld) {
  JobFacts facts = TestFacts();
  facts.outcome = Outcome::kSucceeded;
  EXPECT_FALSE(QueueVerdict(facts, {.workload = Evicted(facts)}).hold);
}

TEST(QueueWrites, MakesTheWorkloadOnce) {
  const JobFacts facts = TestFacts();
  const std::vector<Write> writes = QueueWrites(facts, {}, kNow);
  ASSERT_EQ(writes.size(), 1U);
  EXPECT_EQ(writes[0].kind, Write::Kind::kCreate);
  EXPECT_TRUE(QueueWrites(facts, {.workload = writes[0].body}, kNow).empty());
}

TEST(QueueWrites, MakesNoneForAJobThatHasEnded) {
  JobFacts facts = TestFacts();
  facts.outcome = Outcome::kFailed;
  EXPECT_TRUE(QueueWrites(facts, {}, kNow).empty());
}

TEST(QueueWrites, SuspensionGivesTheQuotaBackAndResumptionAsksAgain) {
  JobFacts facts = TestFacts();
  const Json running = Admitted(facts, 4);
  facts.suspend = true;
  std::vector<Write> writes = QueueWrites(facts, {.workload = running}, kNow);
  ASSERT_EQ(writes.size(), 1U);
  EXPECT_EQ(writes[0].body["spec"], Json({{"active", false}}));
  EXPECT_EQ(writes[0].body["metadata"]["resourceVersion"], "7");
  const Json inactive = After(running, writes[0]);
  facts.suspend = false;
  writes = QueueWrites(facts, {.workload = inactive}, kNow);
  ASSERT_EQ(writes.size(), 1U);
  EXPECT_EQ(writes[0].body["spec"], Json({{"active", true}}));
}

TEST(QueueWrites, NewSizeIsAskedForOnlyWithoutQuota) {
  JobFacts facts = TestFacts();
  const Json pending = BuildWorkload(facts, {});
  const Json running = Admitted(facts, 4);
  facts.roles[1].wanted = 6;
  std::vector<Write> writes = QueueWrites(facts, {.workload = pending}, kNow);
  ASSERT_EQ(writes.size(), 1U);
  EXPECT_EQ(writes[0].kind, Write::Kind::kPatch);
  EXPECT_EQ(writes[0].body["spec"]["podSets"][1]["count"], 6);
  EXPECT_TRUE(QueueWrites(facts, {.workload = After(pending, writes[0])}, kNow).empty());
  for (const Write& write : QueueWrites(facts, {.workload = running}, kNow)) {
    EXPECT_FALSE(write.body.contains("spec")) << write.body.dump();
  }
}

TEST(QueueWrites, QuotaOfAnEvictedJobGoesBackOnceItsPodsAreGone) {
  JobFacts facts = TestFacts();
  const Json workload = Evicted(facts);
  facts.roles[1].live = 1;
  EXPECT_TRUE(QueueWrites(facts, {.workload = workload}, kNow).empty());
  facts.roles[1].live = 0;
  const std::vector<Write> writes = QueueWrites(facts, {.workload = workload}, kNow);
  ASSERT_EQ(writes.size(), 1U);
  EXPECT_EQ(writes[0].kind, Write::Kind::kPatchStatus);
  EXPECT_TRUE(writes[0].body["status"]["admission"].is_null());
  EXPECT_EQ(StatusOf(writes[0], "QuotaReserved"), "False");
  EXPECT_EQ(StatusOf(writes[0], "Admitted"), "False");
  EXPECT_EQ(StatusOf(writes[0], "Requeued"), "True");
  EXPECT_EQ(StatusOf(writes[0], "Evicted"), "True");
  EXPECT_TRUE(QueueWrites(facts, {.workload = After(workload, writes[0])}, kNow).empty());
}

TEST(QueueWrites, OnlyThePreemptedAreRequeuedByUs) {
  const JobFacts facts = TestFacts();
  const std::vector<Write> writes =
      QueueWrites(facts, {.workload = Evicted(facts, "Deactivated")}, kNow);
  ASSERT_EQ(writes.size(), 1U);
  EXPECT_EQ(StatusOf(writes[0], "Requeued"), "False");
}

TEST(QueueWrites, PodsAreReadyWhenTrainingHasWhatItNeedsAndStaySo) {
  JobFacts facts = TestFacts();
  Json workload = Admitted(facts, 4);
  facts.roles[0].ready = 1;
  facts.roles[1].live = 4;
  facts.roles[1].ready = 1;
  std::vector<Write> writes = QueueWrites(facts, {.workload = workload}, kNow);
  ASSERT_EQ(writes.size(), 1U);
  EXPECT_EQ(StatusOf(writes[0], "PodsReady"), "False");
  workload = After(workload, writes[0]);
  EXPECT_TRUE(QueueWrites(facts, {.workload = workload}, kNow).empty());
  facts.roles[1].ready = 2;
  writes = QueueWrites(facts, {.workload = workload}, kNow);
  ASSERT_EQ(writes.size(), 1U);
  EXPECT_EQ(StatusOf(writes[0], "PodsReady"), "True");
  workload = After(workload, writes[0]);
  facts.roles[1].ready = 0;
  EXPECT_TRUE(QueueWrites(facts, {.workload = workload}, kNow).empty());
}

TEST(QueueWrites, WorkersThatAreNotNeededAreReclaimedOnceTheyAreGone) {
  JobFacts facts = TestFacts();
  Json workload = Admitted(facts, 4);
  Set(workload, "PodsReady", true, "Started");
  facts.roles[1].wanted = 3;
  facts.roles[1].live = 4;
  EXPECT_TRUE(QueueWrites(facts, {.workload = workload}, kNow).empty());
  facts.roles[1].live = 3;
  std::vector<Write> writes = QueueWrites(facts, {.workload = workload}, kNow);
  ASSERT_EQ(writes.size(), 1U);
  EXPECT_EQ(writes[0].body["status"]["reclaimablePods"],
            Json::array({{{"name", "worker"}, {"count", 1}}}));
  // What was given back is gone: it does not come back by asking for more.
  workload = After(workload, writes[0]);
  facts.roles[1].wanted = 4;
  EXPECT_TRUE(QueueWrites(facts, {.workload = workload}, kNow).empty());
  EXPECT_EQ(QueueVerdict(facts, {.workload = workload}).worker_limit, 3);
}

TEST(QueueWrites, EndOfTheJobIsTheEndOfTheWorkload) {
  for (const auto& [outcome, reason] :
       {std::pair{Outcome::kSucceeded, "Succeeded"}, std::pair{Outcome::kFailed, "Failed"}}) {
    JobFacts facts = TestFacts();
    const Json workload = Admitted(facts, 4);
    facts.outcome = outcome;
    facts.outcome_message = "that is all";
    const std::vector<Write> writes = QueueWrites(facts, {.workload = workload}, kNow);
    ASSERT_EQ(writes.size(), 1U);
    const Json* finished = Condition(writes[0], "Finished");
    ASSERT_NE(finished, nullptr);
    EXPECT_EQ((*finished)["reason"], reason);
    EXPECT_EQ((*finished)["message"], "that is all");
    EXPECT_TRUE(QueueWrites(facts, {.workload = After(workload, writes[0])}, kNow).empty());
  }
}

TEST(QueueWrites, WorkloadOfAnEarlierJobIsLeftAlone) {
  const JobFacts facts = TestFacts();
  Json workload = Evicted(facts);
  workload["metadata"]["ownerReferences"][0]["uid"] = "uid-0";
  EXPECT_TRUE(QueueWrites(facts, {.workload = workload}, kNow).empty());
}

TEST(AdmissionPatch, PodsGoWhereTheFlavorsAre) {
  const JobFacts facts = TestFacts();
  Queueing queueing;
  queueing.workload = Admitted(facts, 4);
  EXPECT_EQ(FlavorsOf(*queueing.workload), (std::vector<std::string>{"small", "spot"}));
  const Json toleration = {{"key", "spot"}, {"operator", "Exists"}};
  queueing.flavors["spot"] = {
      {"spec", {{"nodeLabels", {{"tier", "spot"}}}, {"tolerations", Json::array({toleration})}}}};
  (*queueing.workload)["status"]["admissionChecks"] =
      Json::array({{{"name", "provision"},
                    {"podSetUpdates", Json::array({{{"name", "worker"},
                                                    {"labels", {{"request", "r1"}}},
                                                    {"nodeSelector", {{"pool", "p1"}}}}})}}});
  const Json worker = AdmissionPatch(queueing, "worker");
  EXPECT_EQ(worker["spec"]["nodeSelector"], Json({{"tier", "spot"}, {"pool", "p1"}}));
  EXPECT_EQ(worker["spec"]["tolerations"], Json::array({toleration}));
  EXPECT_EQ(worker["metadata"]["labels"], Json({{"request", "r1"}}));
  EXPECT_EQ(AdmissionPatch(queueing, "coordinator")["spec"]["nodeSelector"], Json::object());
}

}  // namespace
}  // namespace starling::scheduling
