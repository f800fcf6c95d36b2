// SPDX-License-Identifier: Apache-2.0
#include "api/schema/documents.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "api/spec/contract.h"
#include "api/spec/techniques.h"
#include "api/yaml/yaml.h"
#include "common/json/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::schema {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;

std::string Read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Json Crd() { return yaml::Parse(CrdYaml()).value(); }
Json RootSchema() { return Crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]; }
Json SpecField(const std::string& path) {
  Json schema = RootSchema()["properties"]["spec"];
  std::size_t start = 0;
  while (start < path.size()) {
    const auto end = std::min(path.find('.', start), path.size());
    schema = Json(schema["properties"][path.substr(start, end - start)]);
    start = end + 1;
  }
  return schema;
}

TEST(GeneratedFiles, AreCurrentInTheRepository) {
  const std::filesystem::path written = std::filesystem::path(::testing::TempDir()) /
                                        ("starling_schema_test." + std::to_string(getpid()));
  ASSERT_TRUE(WriteGeneratedFiles(written.string()).ok());
  for (const auto& [name, text] : GeneratedFiles()) {
    EXPECT_EQ(Read(written / name), text);
    EXPECT_TRUE(Read(std::filesystem::path(STARLING_SOURCE_DIR) / name) == text)
        << name << " is not what the protos say; run: make generate";
  }
  std::filesystem::remove_all(written);
}

TEST(GeneratedFiles, CannotBeWrittenUnderAFile) {
  EXPECT_FALSE(WriteGeneratedFiles("/dev/null").ok());
}

TEST(PythonTypes, SayWhatMayBeAbsentAndKeepKeysThatAreWordsOfTheLanguage) {
  const std::string text = PythonTypes();
  EXPECT_THAT(text, HasSubstr("class _TrainingJobRequired(TypedDict):\n"));
  EXPECT_THAT(text, HasSubstr("class TrainingJob(_TrainingJobRequired, total=False):\n"));
  EXPECT_THAT(text, HasSubstr("    status: TrainingJobStatus\n"));
  EXPECT_THAT(text, HasSubstr("        \"lambda\": \"float\",\n"));
  EXPECT_THAT(text, HasSubstr("class JobList(_JobListKeywords, _JobListRequired, total=False):\n"));
  EXPECT_THAT(text, HasSubstr("    metrics: dict[str, list[list[float]]]\n"));
  EXPECT_THAT(text, HasSubstr("    algorithm: Literal[\"Auto\", "));
}

// It keeps what it was given in an annotation, as JSON without spaces, and the server takes 256 KiB
// of annotations of one object. How deep YAML is indented does not count.
TEST(Crd, StaysUnderWhatKubectlApplyTakes) { EXPECT_LT(Crd().dump().size(), 224U * 1024U); }

// What is large and stands there elsewhere is not written down again; webhook and controller know
// it.
TEST(Crd, TakesAnyObjectWhereASchemaIsLeftOpenAndNoneWhereItIsNot) {
  const Json crd = Crd();
  const Json& spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
  const Json& workloads = spec["properties"]["workload"]["properties"];
  const auto open = [](const Json& schema) {
    return schema.value("x-kubernetes-preserve-unknown-fields", false);
  };
  for (const char* name : {"regression", "autoencoder"}) {
    EXPECT_TRUE(open(workloads[name])) << name;
    EXPECT_FALSE(workloads[name].contains("properties")) << name;
  }
  EXPECT_FALSE(open(workloads["classification"]));
  EXPECT_TRUE(workloads["classification"]["properties"].contains("model"));
}

TEST(Crd, HasNamesColumnsAndSubresources) {
  const Json crd = Crd();
  EXPECT_EQ(crd["metadata"]["name"], "trainingjobs.starling.dev");
  EXPECT_EQ(crd["spec"]["names"]["shortNames"], Json({"tj"}));
  EXPECT_EQ(crd["spec"]["names"]["categories"], Json({"all"}));
  const Json& version = crd["spec"]["versions"][0];
  EXPECT_EQ(version["subresources"]["scale"]["specReplicasPath"],
            ".spec.replicaSpecs.worker.replicas");
  EXPECT_TRUE(version["subresources"].contains("status"));
  EXPECT_EQ(version["additionalPrinterColumns"][0]["name"], "State");
}

// Whether a schema is structural: a type everywhere, nothing that the API server refuses.
void CheckStructural(const Json& schema, const std::string& path) {
  ASSERT_TRUE(schema.contains("type")) << path;
  for (const char* refused : {"$ref", "oneOf", "allOf", "anyOf", "not"}) {
    EXPECT_FALSE(schema.contains(refused)) << path;
  }
  if (schema.contains("properties")) {
    EXPECT_FALSE(schema.contains("additionalProperties")) << path;
    for (const auto& [name, member] : schema["properties"].items()) {
      CheckStructural(member, absl::StrCat(path, ".", name));
    }
  }
  if (schema["type"] == "array") {
    EXPECT_TRUE(schema.contains("maxItems")) << path;
    CheckStructural(schema["items"], path + "[]");
  }
  if (schema.contains("additionalProperties")) {
    EXPECT_TRUE(schema.contains("maxProperties")) << path;
    CheckStructural(schema["additionalProperties"], path + "{}");
  }
}

TEST(Crd, IsStructuralAndBounded) { CheckStructural(RootSchema(), ""); }

TEST(Crd, CarriesBoundsPatternsAndEnums) {
  const Json rate = SpecField("optimizer.sgd.learningRate");
  EXPECT_EQ(rate["type"], "number");
  EXPECT_EQ(rate["minimum"], 0);
  EXPECT_EQ(rate["exclusiveMinimum"], true);
  EXPECT_EQ(SpecField("replicaSpecs.worker.replicas")["maximum"], 1024);
  EXPECT_EQ(SpecField("replicaSpecs.worker.restartPolicy")["enum"],
            Json({"OnFailure", "ExitCode", "Never"}));
  EXPECT_EQ(SpecField("checkpoint.interval")["type"], "string");
  EXPECT_EQ(SpecField("replicaSpecs.worker.template")["x-kubernetes-preserve-unknown-fields"],
            true);
  EXPECT_THAT(SpecField("seed")["description"].get<std::string>(), HasSubstr("Seed"));
  EXPECT_EQ(SpecField("")["required"], Json({"workload"}));
}

TEST(Crd, HasDefaultsOnlyWhereNoPresetMaySetTheField) {
  EXPECT_EQ(SpecField("replicaSpecs")["default"], Json::object());
  EXPECT_EQ(SpecField("replicaSpecs.worker")["default"], Json::object());
  EXPECT_EQ(SpecField("replicaSpecs.worker.replicas")["default"], 1);
  EXPECT_EQ(SpecField("runPolicy.suspend")["default"], false);
  EXPECT_FALSE(SpecField("exchange").contains("default"));
  EXPECT_FALSE(SpecField("seed").contains("default"));
  EXPECT_FALSE(SpecField("optimizer.sgd.learningRate").contains("default"));
}

// Whoever adds the role to a running job, to scale it, gets the server's default with it.
TEST(Crd, ADefaultThatComesWithItsMessageIsNoChange) {
  std::string rule;
  const Json rules = SpecField("")["x-kubernetes-validations"];
  for (const Json& candidate : rules) {
    const std::string text = candidate["rule"];
    if (text.find("parameterServer.restartPolicy") != std::string::npos) rule = text;
  }
  EXPECT_THAT(rule, HasSubstr("self.replicaSpecs.parameterServer.restartPolicy == \"OnFailure\""));
}

TEST(Crd, SaysUnionsInCel) {
  const Json rules = SpecField("exchange")["x-kubernetes-validations"];
  ASSERT_EQ(rules.size(), 1U) << rules;
  EXPECT_EQ(rules[0]["rule"],
            "(has(self.allReduce) ? 1 : 0) + (has(self.none) ? 1 : 0) + (has(self.parameterServer) "
            "? 1 : 0) <= 1");
  EXPECT_THAT(SpecField("workload")["x-kubernetes-validations"][0]["rule"].get<std::string>(),
              HasSubstr("== 1"));
}

std::map<std::string, Json> RulesOfSpecByPath() {
  std::map<std::string, Json> rules;
  const Json written = SpecField("")["x-kubernetes-validations"];
  for (const Json& rule : written) rules[rule.value("fieldPath", "")] = rule;
  return rules;
}

// All of them stand beside the uppermost field that need not be there, in the words of the CLI; of
// words that have the field at fault in their midst both ends.
TEST(Crd, SaysInCelWhatEachTechniqueNeedsAndExcludes) {
  auto rules = RulesOfSpecByPath();
  const auto words_of = [&](const std::string& field) {
    std::string path;
    for (const std::string& name : std::vector<std::string>(absl::StrSplit(field, '.'))) {
      absl::StrAppend(&path, ".", name);
      if (rules[path].contains("messageExpression")) {
        return absl::StrReplaceAll(rules[path]["messageExpression"].get<std::string>(),
                                   {{"\\'", "'"}});
      }
    }
    return std::string();
  };
  for (const spec::Technique& technique : spec::Techniques()) {
    for (const spec::TechniqueRule& rule : technique.rules) {
      for (const std::string& field : rule.fields) {
        const std::string text = spec::WordsOf(rule, field);
        const size_t end = text.find(", " + rule.why);
        EXPECT_THAT(words_of(technique.field), HasSubstr(text.substr(end))) << technique.field;
        EXPECT_THAT(words_of(technique.field),
                    HasSubstr(rule.kind == spec::TechniqueRule::Kind::kNeeds ? text : field))
            << technique.field;
      }
    }
  }
}

TEST(Crd, AsksOfTechniquesOnlyBesideTheFieldAboveThem) {
  auto rules = RulesOfSpecByPath();
  const Json& validation = rules[".validation"];
  EXPECT_EQ(validation["reason"], "FieldValueForbidden");
  EXPECT_EQ(validation["rule"],
            "!has(self.validation) || ((!(has(self.workload.container))) && "
            "(!(has(self.workload.pytorch))) && "
            "(!((has(self.validation.patience) && self.validation.patience != 0) || "
            "(has(self.validation.keepBest) && self.validation.keepBest)) || has(self.preset) || "
            "has(self.dataset) && has(self.dataset.validation)))");
  EXPECT_THAT(validation["messageExpression"].get<std::string>(),
              HasSubstr("(has(self.validation.patience) && self.validation.patience != 0 ? "
                        "'patience ' : 'keepBest ') + 'needs spec.dataset.validation, to judge by; "
                        "give it, or leave this out'"));
  EXPECT_THAT(rules[".compression"]["rule"].get<std::string>(),
              HasSubstr(" || !(has(self.exchange) && (has(self.exchange.allReduce) || "
                        "has(self.exchange.none) || has(self.exchange.parameterServer)))"))
      << "an exchange that is not given is an allreduce";
}

// A write of the status, at each of which the server evaluates it, ends at the first question.
TEST(Crd, SaysInOneRuleWhatMayNotChangeWhileTheJobRuns) {
  auto rules = RulesOfSpecByPath();
  const std::string rule = rules[""]["rule"], words = rules[""]["messageExpression"];
  EXPECT_THAT(rule, StartsWith("self == oldSelf || oldSelf.runPolicy.suspend || ("));
  for (const char* field : {"seed", "workload", "checkpoint.uri", "runPolicy.backoffLimit"}) {
    EXPECT_THAT(rule, HasSubstr(absl::StrCat("self.", field, " == oldSelf.", field)));
    EXPECT_THAT(words, HasSubstr(absl::StrCat("'spec.", field, "'")));
  }
  EXPECT_THAT(words, HasSubstr(" + ' must not change while the job runs; suspend it first"));
  EXPECT_THAT(words, Not(HasSubstr("stop")));
}

TEST(Crd, LeavesTheMetadataToTheServerButBoundsTheName) {
  const Json metadata = RootSchema()["properties"]["metadata"];
  EXPECT_EQ(metadata["properties"].size(), 1U);
  EXPECT_EQ(metadata["properties"]["name"]["maxLength"], 40);
}

TEST(OpenApi, RefersOnlyToSchemasThatItHas) {
  const Json document = json::Parse(OpenApiJson()).value();
  const Json& schemas = document["components"]["schemas"];
  const std::string prefix = "#/components/schemas/";
  int references = 0;
  const Json flat = document.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    if (pointer.size() < 5 || pointer.compare(pointer.size() - 5, 5, "/$ref") != 0) continue;
    ++references;
    EXPECT_TRUE(schemas.contains(value.get<std::string>().substr(prefix.size()))) << value;
  }
  EXPECT_GT(references, 30);
  EXPECT_EQ(schemas["Sgd"]["properties"]["learningRate"]["exclusiveMinimum"], 0);
  EXPECT_EQ(schemas["Sgd"]["properties"]["learningRate"]["default"], 0.05);
  EXPECT_EQ(schemas["Model"]["oneOf"].size(), 11U);
  EXPECT_EQ(schemas["Exchange"]["oneOf"].size(), 4U);
  EXPECT_EQ(schemas["Sgd"]["additionalProperties"], false);
  EXPECT_FALSE(schemas["ObjectMeta"].contains("additionalProperties"));
}

TEST(Reference, ListsEveryMessageAndPreset) {
  const std::string page = ReferencePage();
  for (const char* text :
       {"## TrainingJobSpec\n", "## Sgd\n", "## Incident\n",
        "| `learningRate` | number | more than 0; at most 1000; default: 0.05 | Step size. |",
        "[Optimizer](#optimizer)", "list of [Condition](#condition)", "| `horovod` |",
        "Holds at most one of allReduce, none, parameterServer; by default allReduce."}) {
    EXPECT_THAT(page, HasSubstr(text));
  }
}

}  // namespace
}  // namespace starling::schema
