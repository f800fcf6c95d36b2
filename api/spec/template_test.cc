// SPDX-License-Identifier: Apache-2.0
#include "api/spec/template.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/spec/admission.h"
#include "api/spec/quantity.h"
#include "api/spec/resolve.h"
#include "api/spec/test_job.h"
#include "common/json/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace starling::spec {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

Json Template(Json spec, const std::string& name = "small") {
  return {{"apiVersion", "starling.dev/v1alpha1"},
          {"kind", "TrainingTemplate"},
          {"metadata", {{"name", name}, {"namespace", "team"}, {"uid", "u1"}, {"generation", 3}}},
          {"spec", std::move(spec)}};
}

FindTemplate Only(Json object) {
  return [object = std::move(object)](const TemplateName& name) -> absl::StatusOr<Json> {
    if (name.name == object["metadata"]["name"] && name.kind == object["kind"]) return object;
    return absl::NotFoundError("none here");
  };
}

// As a store holds it, with what its schema fills in.
Json JobThatNames(const std::string& name, const std::vector<std::string>& settings = {}) {
  std::vector<std::string> all = {"spec.templateRef.name=" + name, "metadata.namespace=team",
                                  "spec.replicaSpecs.worker.minReplicas=1"};
  all.insert(all.end(), settings.begin(), settings.end());
  return DigitsJobWith(all);
}

std::string Apply(Json& job, const Json& object, const Json* old = nullptr) {
  FieldErrors errors = ApplyTemplate(job, old, Only(object));
  if (errors.empty()) errors = CheckAdmission(job, old);
  return Format(errors);
}

std::string ErrorsOfTemplate(Json spec) {
  return Format(CheckTemplate(Template(std::move(spec)), nullptr));
}

std::string ErrorsWithBound(const Json& bound, const std::vector<std::string>& settings) {
  Json job = JobThatNames("small", settings);
  return Apply(job, Template({{"bounds", {{"fields", {bound}}}}}));
}

TEST(Template, GivesWhatTheJobDoesNotSay) {
  Json job = JobThatNames("small", {"spec.stop.epochs=7"});
  ASSERT_EQ(Apply(job, Template({{"defaults",
                                  {{"stop", {{"epochs", 3}, {"steps", 100}}},
                                   {"optimizer", {{"adam", {{"learningRate", 0.01}}}}}}}})),
            "");
  EXPECT_EQ(job["spec"]["stop"], Json({{"epochs", 7}, {"steps", 100}}));
  EXPECT_EQ(job["spec"]["optimizer"]["adam"]["learningRate"], 0.01);
  const Json note = Json::parse(job["metadata"]["annotations"][kTemplateNote].get<std::string>());
  EXPECT_EQ(note["uid"], "u1");
  EXPECT_EQ(note["generation"], 3);
  EXPECT_EQ(note["spec"]["defaults"]["stop"]["epochs"], 3);
}

TEST(Template, AChoiceOfTheJobReplacesTheTemplates) {
  Json job = JobThatNames("small", {"spec.optimizer.sgd.learningRate=0.5"});
  ASSERT_EQ(Apply(job, Template({{"defaults", {{"optimizer", {{"adam", {{"beta1", 0.5}}}}}}}})),
            "");
  EXPECT_EQ(job["spec"]["optimizer"], Json({{"sgd", {{"learningRate", 0.5}}}}));
}

TEST(Template, BeatsThePresetThatAJobNames) {
  Json job = JobThatNames("small", {"spec.preset=horovod"});
  ASSERT_EQ(
      Apply(job,
            Template({{"defaults", {{"exchange", {{"allReduce", {{"bucketBytes", 4096}}}}}}}})),
      "");
  v1alpha1::TrainingJob read;
  ASSERT_THAT(ReadStoredJob(job, read), IsEmpty());
  const auto resolved = Resolve(read.spec());
  EXPECT_EQ(resolved.exchange().all_reduce().bucket_bytes(), 4096);
  EXPECT_EQ(resolved.exchange().all_reduce().algorithm(), v1alpha1::ALL_REDUCE_ALGORITHM_RING);
}

TEST(Template, LiesUnderThePodTemplateOfEveryRoleAndMayBeRemovedThere) {
  Json job = JobThatNames("small", {R"(spec.replicaSpecs.worker.template={"spec": {)"
                                    R"("nodeSelector": null, "containers": [{"name": "trainer",)"
                                    R"( "resources": {"limits": {"cpu": "2"}}}]}})"});
  const Json pods = {{"spec",
                      {{"nodeSelector", {{"pool", "small"}}},
                       {"tolerations", {{{"key", "gpu"}, {"operator", "Exists"}}}},
                       {"containers", {{{"name", "trainer"}, {"image", "ours:1"}}}}}}};
  ASSERT_EQ(Apply(job, Template({{"podTemplate", pods}})), "");
  const Json& worker = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"];
  EXPECT_EQ(worker["containers"][0]["image"], "ours:1");
  EXPECT_EQ(worker["containers"][0]["resources"]["limits"]["cpu"], "2");
  EXPECT_EQ(worker["tolerations"], pods["spec"]["tolerations"]);
  ASSERT_TRUE(worker.contains("nodeSelector"));
  EXPECT_TRUE(worker["nodeSelector"].is_null()) << "it removes what we would give, too";
  EXPECT_EQ(job["spec"]["replicaSpecs"]["coordinator"]["template"], pods);
  EXPECT_FALSE(job["spec"]["replicaSpecs"].contains("parameterServer"));
}

TEST(Template, MakesServersNoFewerThanCopies) {
  Json job = JobThatNames("small", {"spec.exchange.parameterServer.replication=2"});
  const Json pods = {{"spec", {{"nodeSelector", {{"pool", "small"}}}}}};
  ASSERT_EQ(Apply(job, Template({{"podTemplate", pods}})), "");
  EXPECT_EQ(job["spec"]["replicaSpecs"]["parameterServer"]["replicas"], 2);
  EXPECT_EQ(job["spec"]["replicaSpecs"]["parameterServer"]["template"], pods);
}

TEST(Template, IsWhatItWasWhenTheJobWasMade) {
  const Json first =
      Template({{"defaults", {{"stop", {{"epochs", 3}}}}},
                {"podTemplate", {{"spec", {{"nodeSelector", {{"a", "b"}}}}}}},
                {"bounds", {{"fields", {{{"field", "stop.epochs"}, {"maximum", 5}}}}}}});
  const Json later = Template({{"defaults", {{"stop", {{"epochs", 1}}}}}});
  Json job = JobThatNames("small");
  ASSERT_EQ(Apply(job, first), "");
  Json again = JobThatNames("small");  // the file of before, without what was filled in
  ASSERT_EQ(Apply(again, later, &job), "");
  EXPECT_EQ(again["spec"], job["spec"]);
  EXPECT_EQ(again["metadata"]["annotations"], job["metadata"]["annotations"]);
  Json longer = job;
  longer["spec"]["stop"]["epochs"] = 9;
  EXPECT_EQ(Apply(longer, later, &job),
            "spec.stop.epochs: is 9, and TrainingTemplate \"small\" allows at most 5");
}

TEST(Template, ANoteCannotBeForgedTakenAwayOrChanged) {
  const Json object =
      Template({{"bounds", {{"fields", {{{"field", "stop.epochs"}, {"maximum", 5}}}}}}});
  Json job = JobThatNames("small", {"spec.stop.epochs=9"});
  job["metadata"]["annotations"][kTemplateNote] =
      R"({"kind": "TrainingTemplate", "name": "small", "spec": {}})";
  EXPECT_THAT(Apply(job, object), HasSubstr("allows at most 5"));
  Json made = JobThatNames("small", {"spec.stop.epochs=4"});
  ASSERT_EQ(Apply(made, object), "");
  for (const char* note : {"", "{}", R"({"kind":"TrainingTemplate","name":"small","spec":{}})"}) {
    Json edited = made;
    edited["metadata"]["annotations"][kTemplateNote] = note;
    ASSERT_EQ(Apply(edited, object, &made), "");
    EXPECT_EQ(edited["metadata"]["annotations"], made["metadata"]["annotations"]);
  }
  Json edited = made;
  edited["metadata"].erase("annotations");
  ASSERT_EQ(Apply(edited, object, &made), "");
  EXPECT_EQ(edited["metadata"]["annotations"], made["metadata"]["annotations"]);
  Json plain = DigitsJob();
  plain["metadata"]["annotations"][kTemplateNote] = "{}";
  ASSERT_EQ(Apply(plain, object), "");
  EXPECT_FALSE(plain["metadata"].contains("annotations"));
}

TEST(Template, AJobThatSlippedPastIsTold) {
  const Json job = JobThatNames("small");  // nobody applied anything
  EXPECT_THAT(Format(CheckAdmission(job, nullptr)),
              HasSubstr("spec.templateRef: TrainingTemplate \"small\" was not applied"));
}

TEST(Template, TheChoiceOfItNeverChanges) {
  const Json object = Template({{"description", "any"}});
  Json made = JobThatNames("small", {"spec.runPolicy.suspend=true"});
  ASSERT_EQ(Apply(made, object), "");
  Json other = made;
  other["spec"]["templateRef"]["name"] = "large";
  EXPECT_THAT(Apply(other, object, &made), HasSubstr("spec.templateRef"));
  Json none = made;
  none["spec"].erase("templateRef");
  EXPECT_THAT(Apply(none, object, &made), HasSubstr("spec.templateRef.name: never changes"));
}

TEST(Template, OneThatIsNotThereIsNamed) {
  Json job = JobThatNames("gpu");
  EXPECT_EQ(Apply(job, Template({{"description", "any"}})),
            "spec.templateRef.name: there is no TrainingTemplate \"gpu\": none here");
  EXPECT_FALSE(job["metadata"].contains("annotations"));
  job["spec"]["templateRef"]["kind"] = "ClusterTrainingTemplate";
  EXPECT_THAT(Apply(job, Template({{"description", "any"}}, "gpu")),
              HasSubstr("no ClusterTrainingTemplate \"gpu\""));
}

TEST(Template, OneThatBreaksTheJobIsToldByTheJobsOwnFields) {
  Json job = JobThatNames("small");
  EXPECT_THAT(
      Apply(job, Template({{"defaults",
                            {{"dataset", {{"globalBatchSize", 4}}}, {"reproducible", true}}}})),
      HasSubstr("spec.replicaSpecs.worker.maxReplicas"));
  Json broken = JobThatNames("small");
  EXPECT_THAT(
      Apply(broken, Template({{"defaults", {{"stop", {{"epoch", 3}}}}}})),
      HasSubstr("spec.templateRef: TrainingTemplate \"small\" is wrong, tell whoever keeps it: "
                "spec.defaults.stop.epoch: unknown field"));
}

TEST(Template, CannotGiveWhatTheSchemaAlreadyHasOrAnotherTemplate) {
  EXPECT_THAT(ErrorsOfTemplate({{"defaults", {{"replicaSpecs", {{"worker", {{"replicas", 4}}}}}}}}),
              HasSubstr("spec.defaults.replicaSpecs.worker.replicas: every job has it"));
  EXPECT_EQ(
      ErrorsOfTemplate({{"defaults", {{"replicaSpecs", {{"worker", {{"maxReplicas", 4}}}}}}}}), "");
  EXPECT_THAT(ErrorsOfTemplate({{"defaults", {{"templateRef", {{"name", "other"}}}}}}),
              HasSubstr("one template cannot name another"));
}

TEST(Template, IsNoLargerThanAnAnnotation) {
  const Json labels = {{"a", std::string(30'000, 'x')}};
  EXPECT_THAT(ErrorsOfTemplate(
                  {{"podTemplate", {{"metadata", {{"annotations", labels}}}}},
                   {"defaults",
                    {{"replicaSpecs",
                      {{"worker", {{"template", {{"metadata", {{"annotations", labels}}}}}}}}}}}}),
              HasSubstr("a template has at most 49152"));
}

TEST(TemplateBounds, KeepAJobWithin) {
  const Json most = {{"field", "stop.epochs"}, {"maximum", 5}};
  EXPECT_EQ(ErrorsWithBound(most, {"spec.stop.epochs=5"}), "");
  EXPECT_EQ(ErrorsWithBound(most, {"spec.stop.epochs=6"}),
            "spec.stop.epochs: is 6, and TrainingTemplate \"small\" allows at most 5");
  EXPECT_EQ(ErrorsWithBound(most, {}),
            "spec.stop.epochs: is 10, and TrainingTemplate \"small\" allows at most 5");
  EXPECT_EQ(
      ErrorsWithBound(most, {"spec.stop.steps=6"}),
      "spec.stop.epochs: is not given, and TrainingTemplate \"small\" allows at most 5; give it");
  const Json interval = {{"field", "checkpoint.interval"}, {"minimum", 10}, {"maximum", 60}};
  EXPECT_EQ(ErrorsWithBound(interval, {"spec.checkpoint.interval=1m"}), "");
  EXPECT_EQ(
      ErrorsWithBound(interval, {"spec.checkpoint.interval=500ms"}),
      "spec.checkpoint.interval: is 500ms, and TrainingTemplate \"small\" allows at least 10 s "
      "and at most 60 s");
}

TEST(TemplateBounds, KnowChoicesAndUnions) {
  const Json exchange = {{"field", "exchange"}, {"allowed", {"allReduce", "none"}}};
  EXPECT_EQ(ErrorsWithBound(exchange, {}), "");
  EXPECT_EQ(
      ErrorsWithBound(exchange, {"spec.exchange.parameterServer={}"}),
      "spec.exchange: is parameterServer, and TrainingTemplate \"small\" allows only allReduce, "
      "none");
  const Json policy = {{"field", "replicaSpecs.worker.restartPolicy"}, {"allowed", {"OnFailure"}}};
  EXPECT_EQ(ErrorsWithBound(policy, {}), "");
  EXPECT_THAT(ErrorsWithBound(policy, {"spec.replicaSpecs.worker.restartPolicy=Never"}),
              HasSubstr("is Never, and"));
  // Of a part that the job does not have nothing is asked.
  EXPECT_EQ(ErrorsWithBound({{"field", "exchange.parameterServer.shards"}, {"maximum", 2}}, {}),
            "");
}

TEST(TemplateBounds, ThatNoJobCanKeepAreRefused) {
  const auto errors = [](const Json& bound) {
    return ErrorsOfTemplate({{"bounds", {{"fields", {bound}}}}});
  };
  EXPECT_EQ(
      errors({{"field", "stop.epochs"}, {"minimum", 5}, {"maximum", 3}}),
      "spec.bounds.fields[0]: of spec.stop.epochs: no job can keep both: minimum 5 is more than "
      "maximum 3");
  EXPECT_THAT(errors({{"field", "replicaSpecs.worker.maxReplicas"}, {"minimum", 2000}}),
              HasSubstr("the field itself is at most 1024"));
  EXPECT_THAT(errors({{"field", "stop.epoch"}, {"maximum", 3}}),
              HasSubstr("has no field \"stop.epoch\", did you mean \"epochs\"?"));
  EXPECT_THAT(errors({{"field", "stop.epochs.x"}, {"maximum", 3}}), HasSubstr("has no fields"));
  EXPECT_THAT(errors({{"field", "stop.epochs"}}), HasSubstr("bounds nothing"));
  EXPECT_THAT(errors({{"field", "seed"}, {"minimum", 1}, {"allowed", {"2"}}}),
              HasSubstr("a range and a list"));
  EXPECT_THAT(errors({{"field", "exchange"}, {"allowed", {"allreduce"}}}),
              HasSubstr("there is no \"allreduce\" to be allowed"));
  EXPECT_THAT(errors({{"field", "preset"}, {"maximum", 3}}), HasSubstr("is no number or duration"));
  EXPECT_THAT(errors({{"field", "replicaSpecs.worker.replicas"}, {"maximum", 3}}),
              HasSubstr("scaling changes"));
  EXPECT_THAT(errors({{"field", "replicaSpecs.worker.template"}, {"allowed", {"x"}}}),
              HasSubstr("is no single value"));
  EXPECT_THAT(
      ErrorsOfTemplate(
          {{"bounds",
            {{"fields",
              {{{"field", "seed"}, {"maximum", 3}}, {{"field", "seed"}, {"minimum", 5}}}}}}}),
      HasSubstr("spec.bounds.fields[1].field: is bounded twice"));
  EXPECT_THAT(
      ErrorsOfTemplate({{"defaults", {{"stop", {{"epochs", 9}}}}},
                        {"bounds", {{"fields", {{{"field", "stop.epochs"}, {"maximum", 5}}}}}}}),
      HasSubstr("spec.defaults.stop.epochs: is 9, and this very template allows at most 5"));
}

Json Limited(const std::string& cpu, const std::string& image = "ours/train:1") {
  return {{"name", "trainer"}, {"image", image}, {"resources", {{"limits", {{"cpu", cpu}}}}}};
}

Json PodsOf(const Json& containers) { return {{"spec", {{"containers", containers}}}}; }

TEST(TemplateBounds, KeepEveryContainerWithin) {
  const Json object = Template(
      {{"podTemplate", PodsOf(Json::array({Limited("500m")}))},
       {"bounds", {{"pods", {{"maxResources", {{"cpu", "2"}}}, {"images", {"ours/*"}}}}}}});
  Json fits = JobThatNames("small");
  ASSERT_EQ(Apply(fits, object), "");
  const auto errors = [&](const Json& containers) {
    Json job = JobThatNames("small");
    job["spec"]["replicaSpecs"]["worker"]["template"] = PodsOf(containers);
    return Apply(job, object);
  };
  EXPECT_EQ(errors(Json::array({Limited("2000m")})), "");
  EXPECT_EQ(
      errors(Json::array({Limited("2001m")})),
      "spec.replicaSpecs.worker.template.spec.containers[0].resources.limits.cpu: is 2001m, and "
      "TrainingTemplate \"small\" allows at most 2");
  EXPECT_THAT(errors(Json::array({Limited("1", "theirs/train:1")})),
              HasSubstr("containers[0].image: is theirs/train:1, and TrainingTemplate \"small\" "
                        "allows only ours/*"));
  EXPECT_THAT(
      errors(Json::array({Limited("1"), {{"name", "helper"}, {"image", "ours/b"}}})),
      HasSubstr("containers[1].resources.limits.cpu: is not given, so that nothing bounds it"));
}

TEST(TemplateBounds, MemoryIsBoundedAsItGrows) {
  const Json limit = {{"name", "trainer"}, {"resources", {{"limits", {{"memory", "1Gi"}}}}}};
  const Json object = Template({{"podTemplate", PodsOf(Json::array({limit}))},
                                {"bounds", {{"pods", {{"maxResources", {{"memory", "4Gi"}}}}}}}});
  Json job = JobThatNames("small", {"spec.replicaSpecs.worker.onOutOfMemory.maximum=64Gi"});
  EXPECT_EQ(
      Apply(job, object),
      "spec.replicaSpecs.worker.onOutOfMemory.maximum: is 64Gi, and TrainingTemplate \"small\" "
      "allows at most 4Gi");
}

TEST(Quantity, IsANumberOrNothing) {
  EXPECT_EQ(ParseQuantity("500m"), 0.5);
  EXPECT_EQ(ParseQuantity("64Mi"), 64.0 * 1024 * 1024);
  EXPECT_EQ(ParseQuantity("1.5k"), 1500);
  EXPECT_EQ(ParseQuantity("1e3"), 1000);
  EXPECT_EQ(ParseQuantity("0"), 0);
  for (const char* wrong : {"", "-1", "x", "1 Gi", "1Gib", "nan", "inf"}) {
    EXPECT_FALSE(ParseQuantity(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace starling::spec
