// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include "api/schema/documents.h"
#include "api/schema/field_schema.h"
#include "api/yaml/yaml.h"
#include "nlohmann/json.hpp"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::schema {
namespace {

using Json = nlohmann::json;

// The API server owns the metadata: a schema may only narrow the name.
Json RootSchema() {
  const auto& job = *v1alpha1::TrainingJob::descriptor();
  Json schema = SchemaWriter(Dialect::kStructural).OfMessage(job);
  Json& properties = schema["properties"];
  Json name = std::move(properties["metadata"]["properties"]["name"]);
  properties["metadata"] = {{"type", "object"}, {"properties", {{"name", std::move(name)}}}};
  properties["apiVersion"] = {{"type", "string"}};
  properties["kind"] = {{"type", "string"}};
  schema["required"] = {"spec"};
  return schema;
}

Json Column(const char* name, const char* type, const char* path, int priority = 0) {
  Json column = {{"name", name}, {"type", type}, {"jsonPath", path}};
  if (priority != 0) column["priority"] = priority;  // only with -o wide
  return column;
}

Json Columns() {
  return {Column("State", "string", ".status.state"),
          Column("Workers", "integer", ".status.replicaStatuses.worker.ready"),
          Column("Step", "integer", ".status.progress.step"),
          Column("Progress", "string", ".status.progress.summary"),
          Column("Restarts", "integer", ".status.restarts"),
          Column("Age", "date", ".metadata.creationTimestamp"),
          Column("Servers", "integer", ".status.replicaStatuses.parameterServer.ready", 1),
          Column("Loss", "number", ".status.progress.loss", 1),
          Column("Remaining", "string", ".status.progress.estimatedRemaining", 1)};
}

}  // namespace

std::string CrdYaml() {
  const Json version = {{"name", "v1alpha1"},
                        {"served", true},
                        {"storage", true},
                        {"schema", {{"openAPIV3Schema", RootSchema()}}},
                        {"subresources",
                         {{"status", Json::object()},
                          {"scale",
                           {{"specReplicasPath", ".spec.replicaSpecs.worker.replicas"},
                            {"statusReplicasPath", ".status.replicas"},
                            {"labelSelectorPath", ".status.selector"}}}}},
                        {"additionalPrinterColumns", Columns()}};
  const Json crd = {{"apiVersion", "apiextensions.k8s.io/v1"},
                    {"kind", "CustomResourceDefinition"},
                    {"metadata", {{"name", "trainingjobs.starling.dev"}}},
                    {"spec",
                     {{"group", "starling.dev"},
                      {"scope", "Namespaced"},
                      {"names",
                       {{"kind", "TrainingJob"},
                        {"listKind", "TrainingJobList"},
                        {"plural", "trainingjobs"},
                        {"singular", "trainingjob"},
                        {"shortNames", {"tj"}},
                        {"categories", {"all"}}}},
                      {"versions", Json::array({version})}}}};
  return "# Generated from api/proto by starling-schema-gen (make generate). Do not edit.\n" +
         yaml::Write(crd);
}

}  // namespace starling::schema
