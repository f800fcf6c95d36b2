// SPDX-License-Identifier: Apache-2.0
#include "api/schema/documents.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
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

// All of them stand beside the spec, with the words that the CLI would use.
TEST(Crd, SaysInCelWhatEachTechniqueNeedsAndExcludes) {
  std::map<std::string, std::string> rules;  // message and path to rule
  const Json written = SpecField("")["x-kubernetes-validations"];
  for (const Json& rule : written) {
    rules[rule["message"].get<std::string>() + " at " + rule.value("fieldPath", "")] = rule["rule"];
  }
  const auto rule_of = [&](const std::string& message, const std::string& field) {
    return rules[absl::StrCat(message, " at .", field)];
  };
  for (const spec::Technique& technique : spec::Techniques()) {
    if (!technique.pending.empty()) {
      EXPECT_NE(rule_of(spec::WordsOfPending(technique), technique.field), "") << technique.field;
      continue;
    }
    for (const spec::TechniqueRule& rule : technique.rules) {
      for (const std::string& field : rule.fields) {
        EXPECT_NE(rule_of(spec::WordsOf(rule, field), technique.field), "")
            << technique.field << " " << field;
      }
    }
  }
  const std::string needs =
      "needs spec.dataset.validation, to judge by; give it, or leave this out";
  EXPECT_EQ(rule_of(needs, "validation.patience"),
            "!(has(self.validation) && has(self.validation.patience) && self.validation.patience "
            "!= 0) || has(self.preset) || (has(self.dataset) && has(self.dataset.validation))");
  const std::string left =
      "needs spec.exchange.allReduce or spec.exchange.parameterServer, for nothing else sends "
      "updates; write codec: {identity: {}}, or leave it out";
  EXPECT_THAT(rule_of(left, "compression.codec.bfloat16"),
              HasSubstr(" || !(has(self.exchange) && (has(self.exchange.allReduce) || "
                        "has(self.exchange.none) || has(self.exchange.parameterServer)))"))
      << "an exchange that is not given is an allreduce";
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
