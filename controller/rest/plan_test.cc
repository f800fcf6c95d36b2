// SPDX-License-Identifier: Apache-2.0
#include "controller/rest/plan.h"

#include <nlohmann/json.hpp>

#include "api/spec/reader.h"
#include "api/spec/resolve.h"
#include "controller/rest/room.h"
#include "controller/rest/usage.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::service {
namespace {

using kube::Json;
using resources::Demand;
using ::testing::HasSubstr;

Json Spec(const Json& more = Json::object()) {
  Json spec = {{"workload", {{"classification", {{"model", {{"mlp", Json::object()}}}}}}},
               {"dataset", {{"train", {{"csv", {{"uri", "/a.csv"}}}}}}},
               {"replicaSpecs", {{"worker", {{"replicas", 4}, {"minReplicas", 2}}}}}};
  spec.merge_patch(more);
  return spec;
}

v1alpha1::TrainingJobSpec Resolved(const Json& spec) {
  v1alpha1::TrainingJobSpec read;
  EXPECT_EQ(spec::Format(spec::ReadMessage(spec, "spec", read)), "");
  return spec::Resolve(read);
}

Json Finished(const std::string& name, const Json& spec, double seconds, int steps, int epochs) {
  return {{"metadata", {{"name", name}, {"namespace", "team"}}},
          {"spec", spec},
          {"status",
           {{"conditions", {{{"type", "Succeeded"}, {"status", "True"}}}},
            {"result", {{"seconds", seconds}, {"steps", steps}, {"epochs", epochs}}}}}};
}

// What a list would show of the job.
std::optional<PastRun> RunIn(const Json& job, const std::string& name, const Json& spec) {
  return ReadRun({{"name", job["metadata"]["name"]}, {"run", RunOf(job)}}, name, LikenessOf(spec));
}

Json PlanWith(const Rooms& rooms) {
  const auto pods = PodsOf(Resolved(Spec()));
  EXPECT_TRUE(pods.ok());
  return PlanOf(*pods, rooms, Json::object());
}

TEST(Plan, CountsPodsAsASchedulerDoes) {
  const Json plan = PlanWith({});
  EXPECT_EQ(plan["total"]["pods"], 5);
  EXPECT_DOUBLE_EQ(plan["total"]["cpu"].get<double>(), 4 * 0.5 + 0.05);
  EXPECT_DOUBLE_EQ(plan["total"]["memory"].get<double>(), (4 * 512 + 64) * 1048576.0);
  EXPECT_EQ(plan["fits"], "Unknown");
  const auto pair =
      PodsOf(Resolved(Spec({{"replicaSpecs", {{"coordinator", {{"standby", true}}}}}})));
  ASSERT_TRUE(pair.ok()) << pair.status();
  EXPECT_EQ(PlanOf(*pair, {}, Json::object())["total"]["pods"], 6);
  const Json own = Spec(
      {{"replicaSpecs",
        {{"worker",
          {{"template",
            {{"spec",
              {{"containers",
                {{{"name", "trainer"},
                  {"resources", {{"limits", {{"cpu", "3"}, {"nvidia.com/gpu", 2}}}}}},
                 {{"name", "side"}, {"resources", {{"requests", {{"cpu", "250m"}}}}}}}}}}}}}}}}});
  const auto pods = PodsOf(Resolved(own));
  ASSERT_TRUE(pods.ok()) << pods.status();
  EXPECT_DOUBLE_EQ(pods->at(1).each.at("cpu"), 3.25);
  EXPECT_DOUBLE_EQ(pods->at(1).each.at("nvidia.com/gpu"), 2);
}

TEST(Plan, SaysWhetherItFitsWholeOrSmallerAndWhyNot) {
  const auto with = [](Demand left) { return PlanWith({{{"quota team", std::move(left)}}, ""}); };
  EXPECT_EQ(with({{"cpu", 3}})["fits"], "Yes");
  const Json fewer = with({{"cpu", 1.5}});
  EXPECT_EQ(fewer["fits"], "WithFewer");
  EXPECT_THAT(fewer["why"].get<std::string>(),
              HasSubstr("quota team: 2.05 of cpu are asked for and 1.5"));
  EXPECT_EQ(with({{"cpu", 1}})["fits"], "No");
  EXPECT_EQ(with({{"pods", 4}})["fits"], "WithFewer");
  EXPECT_EQ(with({{"jobs", 0}})["fits"], "No");
}

TEST(Plan, EveryPodNeedsANodeOfItsOwnSize) {
  const Demand node = {{"cpu", 0.75}, {"memory", 1e10}, {"pods", 10}};
  const auto with = [&](std::size_t count) {
    Room room{.source = "nodes", .left = {}, .nodes = std::vector<Demand>(count, node)};
    for (const Demand& each : room.nodes) resources::Add(each, room.left);
    return PlanWith({{room}, ""});
  };
  EXPECT_EQ(with(4)["fits"], "Yes");
  EXPECT_EQ(with(3)["fits"], "WithFewer") << "there are 2.25 cores, and half a worker on no node";
  EXPECT_THAT(with(3)["why"].get<std::string>(), HasSubstr("not for each pod on a node"));
}

TEST(Plan, TakesHowLongFromRunsThatComputedTheSame) {
  const Json spec = Spec({{"stop", {{"epochs", 10}}}});
  const Json half = Spec({{"stop", {{"epochs", 5}}}});
  std::vector<PastRun> runs;
  for (const double seconds : {50.0, 60.0, 100.0}) {
    runs.push_back(*RunIn(Finished("digits", half, seconds, 500, 5), "digits", spec));
  }
  const Json duration = DurationOf(Resolved(spec), runs);
  EXPECT_EQ(duration["steps"], 1000);
  EXPECT_DOUBLE_EQ(duration["seconds"]["p50"].get<double>(), 120);
  EXPECT_DOUBLE_EQ(duration["seconds"]["p90"].get<double>(), 184);
  EXPECT_EQ(duration["basis"], "3 finished jobs of this name that computed the same");
}

TEST(Plan, SaysWhenNothingTells) {
  const Json spec = Spec();
  EXPECT_EQ(DurationOf(Resolved(spec), {})["basis"], "unknown: no finished job computed the same");
  EXPECT_FALSE(DurationOf(Resolved(spec), {}).contains("seconds"));
  EXPECT_FALSE(DurationOf(Resolved(spec), {}).contains("steps"))
      << "how large the file is nobody knows";
  const Json other =
      Spec({{"workload", {{"classification", {{"model", {{"mlp", {{"hidden", {9}}}}}}}}}}});
  EXPECT_FALSE(RunIn(Finished("digits", other, 9, 9, 1), "digits", spec).has_value());
  Json failed = Finished("digits", spec, 9, 9, 1);
  failed["status"]["conditions"][0]["type"] = "Failed";
  EXPECT_TRUE(RunOf(failed).is_null());
  const PastRun other_batch{.seconds = 10, .steps = 10, .epochs = 1, .workers = 4, .batch = 32};
  EXPECT_EQ(DurationOf(Resolved(spec), {other_batch})["basis"],
            "unknown: nothing tells how many steps it takes");
}

TEST(Plan, KnowsItsOwnStepsWhereTheyAreWritten) {
  const Json made = Spec({{"dataset",
                           {{"train", {{"csv", nullptr}, {"synthetic", {{"samples", 100}}}}},
                            {"globalBatchSize", 64}}},
                          {"stop", {{"epochs", 3}}}});
  EXPECT_EQ(DurationOf(Resolved(made), {})["steps"], 6);
  EXPECT_EQ(DurationOf(Resolved(Spec({{"stop", {{"steps", 70}}}})), {})["steps"], 70);
}

TEST(Plan, DoesNotAssumeThatMoreWorkersAreFaster) {
  const PastRun two{
      .same_name = true, .seconds = 10, .steps = 10, .epochs = 1, .workers = 2, .batch = 64};
  const Json duration = DurationOf(Resolved(Spec({{"stop", {{"steps", 20}}}})), {two});
  EXPECT_DOUBLE_EQ(duration["seconds"]["p50"].get<double>(), 20);
  EXPECT_THAT(duration["basis"].get<std::string>(), HasSubstr("with 2 workers instead of 4"));
}

TEST(Room, OfAQuotaIsTheLeastOfItsBounds) {
  const Json quota = {{"status",
                       {{"hard",
                         {{"requests.cpu", "4"},
                          {"cpu", "2"},
                          {"pods", "5"},
                          {"requests.nvidia.com/gpu", "1"},
                          {"configmaps", "9"}}},
                        {"used", {{"requests.cpu", "500m"}, {"cpu", "500m"}, {"pods", "5"}}}}}};
  EXPECT_EQ(LeftOfQuota(quota), (Demand{{"cpu", 1.5}, {"pods", 0}, {"nvidia.com/gpu", 1}}));
  Json scoped = quota;
  scoped["spec"]["scopes"] = {"BestEffort"};
  EXPECT_TRUE(LeftOfQuota(scoped).empty());
  EXPECT_TRUE(LeftOfQuota(Json::array()).empty());
}

Json Node(const std::string& name, const std::string& ready, const char* cpu) {
  return {{"metadata", {{"name", name}}},
          {"status",
           {{"conditions", {{{"type", "Ready"}, {"status", ready}}}},
            {"allocatable", {{"cpu", cpu}, {"memory", "1Gi"}, {"pods", "10"}}}}}};
}

TEST(Room, OfNodesIsWhatRunningPodsLeave) {
  Json cordoned = Node("c", "True", "8");
  cordoned["spec"]["unschedulable"] = true;
  const auto pod = [](const char* node, const char* phase) {
    return Json{
        {"spec",
         {{"nodeName", node},
          {"containers", {{{"name", "a"}, {"resources", {{"requests", {{"cpu", "500m"}}}}}}}}}},
        {"status", {{"phase", phase}}}};
  };
  const Room room = RoomOfNodes({Node("a", "True", "2"), Node("b", "False", "4"), cordoned},
                                {pod("a", "Running"), pod("a", "Succeeded"), pod("b", "Running")});
  ASSERT_EQ(room.nodes.size(), 1U);
  EXPECT_DOUBLE_EQ(room.left.at("cpu"), 1.5);
  EXPECT_DOUBLE_EQ(room.left.at("pods"), 9);
  EXPECT_DOUBLE_EQ(RoomOfNodes({}, {}).left.at("pods"), 0);
}

Json Used(const std::string& ns, const std::string& who, const std::string& from,
          const std::string& to, const Json& goodput) {
  Json job = {{"metadata", {{"namespace", ns}, {"name", "digits"}}},
              {"spec", Spec()},
              {"status", {{"startTime", from}, {"goodput", goodput}}}};
  if (!to.empty()) job["status"]["completionTime"] = to;
  Json summary = {{"namespace", ns}, {"name", "digits"}, {"use", UseOf(job)}};
  if (!who.empty()) summary["createdBy"] = who;
  return summary;
}

absl::Time At(const std::string& text) {
  absl::Time time;
  EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, text, &time, nullptr));
  return time;
}

TEST(Usage, SumsCoresTimesSecondsByWhoAndWhere) {
  Usage usage({}, At("2026-01-02T00:00:00Z"));
  const std::string from = "2026-01-01T00:00:00Z", to = "2026-01-01T01:00:00Z";
  usage.Add(Used("a", "ann", from, to, {{"compute", 100}, {"idle", 20}, {"server/apply", 40}}), {});
  usage.Add(Used("a", "ann", from, to, {{"compute", 10}}), {});
  usage.Add(Used("b", "", from, to, {{"compute", 1000}}), {});
  const Json items = usage.ToJson()["items"];
  ASSERT_EQ(items.size(), 2U);
  EXPECT_EQ(items[0], Json({{"namespace", "b"},
                            {"account", ""},
                            {"jobs", 1},
                            {"coreSeconds", 500.0},
                            {"processSeconds", 1000.0}}));
  EXPECT_EQ(items[1], Json({{"namespace", "a"},
                            {"account", "ann"},
                            {"jobs", 2},
                            {"coreSeconds", 130 * 0.5 + 40 * 0.25},
                            {"processSeconds", 170.0}}));
}

TEST(Usage, CountsTheShareOfAJobsTimeThatIsAskedAbout) {
  UsageQuery query;
  query.from = At("2026-01-01T00:45:00Z");
  query.to = At("2026-01-01T02:00:00Z");
  Usage usage(query, At("2026-01-02T00:00:00Z"));
  usage.Add(Used("a", "", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z", {{"compute", 100}}), {});
  usage.Add(Used("a", "", "2026-01-01T02:00:00Z", "2026-01-01T03:00:00Z", {{"compute", 100}}), {});
  // It went unfinished: until then it counts.
  usage.Add(Used("a", "", "2026-01-01T01:00:00Z", "", {{"compute", 100}}),
            At("2026-01-01T03:00:00Z"));
  EXPECT_EQ(usage.ToJson()["items"][0]["processSeconds"], 75.0);
  EXPECT_EQ(usage.ToJson()["items"][0]["jobs"], 2);
}

TEST(Usage, SaysWhatIsEstimatedAndWhatNobodyKnows) {
  Usage usage({}, At("2026-01-01T00:10:00Z"));
  Json own = {{"metadata", {{"name", "own"}}},
              {"spec",
               {{"workload", {{"container", Json::object()}}},
                {"replicaSpecs", {{"worker", {{"replicas", 2}}}}}}},
              {"status", {{"startTime", "2026-01-01T00:00:00Z"}}}};
  usage.Add({{"namespace", "a"}, {"use", UseOf(own)}}, {});
  usage.Add({{"namespace", "a"}}, At("2026-01-01T00:00:00Z"));  // of an older version
  usage.Add({{"namespace", "a"}, {"step", 0}}, {});             // has not begun
  const Json told = usage.ToJson();
  EXPECT_EQ(told["items"][0]["coreSeconds"], 600.0);
  EXPECT_EQ(told["items"][0]["processSeconds"], 1200.0);
  EXPECT_EQ(told["estimatedJobs"], 1);
  EXPECT_EQ(told["unknownJobs"], 1);
}

TEST(Usage, AsATableHoldsNoFormula) {
  Usage usage({}, At("2026-01-02T00:00:00Z"));
  usage.Add(
      Used("a", "=cmd(\"x\"),b", "2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z", {{"compute", 2}}),
      {});
  EXPECT_EQ(usage.ToCsv(),
            "namespace,account,job,jobs,coreSeconds,processSeconds\r\n"
            "a,\"'=cmd(\"\"x\"\"),b\",,1,1,2\r\n");
}

}  // namespace
}  // namespace starling::service
