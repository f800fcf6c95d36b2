// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/schema/documents.h"
#include "api/schema/field_schema.h"
#include "api/yaml/yaml.h"
#include "nlohmann/json.hpp"
#include "starling/v1alpha1/training_job.pb.h"
#include "starling/v1alpha1/training_template.pb.h"

namespace starling::schema {
namespace {

using Json = nlohmann::json;

// The API server owns the metadata: a schema may only narrow the name.
Json RootSchema(const spec::Descriptor& message) {
  Json schema = SchemaWriter(Dialect::kStructural).OfMessage(message);
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

struct Names {
  const char* kind;
  const char* plural;
  const char* singular;
  const char* short_name;
  const char* scope;
  Json categories;
};

std::string Definition(const Names& names, Json version) {
  version.update({{"name", "v1alpha1"}, {"served", true}, {"storage", true}});
  Json called = {{"kind", names.kind},
                 {"listKind", absl::StrCat(names.kind, "List")},
                 {"plural", names.plural},
                 {"singular", names.singular},
                 {"shortNames", {names.short_name}}};
  if (!names.categories.empty()) called["categories"] = names.categories;
  const Json crd = {{"apiVersion", "apiextensions.k8s.io/v1"},
                    {"kind", "CustomResourceDefinition"},
                    {"metadata", {{"name", absl::StrCat(names.plural, ".starling.dev")}}},
                    {"spec",
                     {{"group", "starling.dev"},
                      {"scope", names.scope},
                      {"names", std::move(called)},
                      {"versions", Json::array({std::move(version)})}}}};
  return "# Generated from api/proto by starling-schema-gen (make generate). Do not edit.\n" +
         yaml::Write(crd);
}

Json TemplateVersion() {
  const auto& message = *v1alpha1::TrainingTemplate::descriptor();
  return {{"schema", {{"openAPIV3Schema", RootSchema(message)}}},
          {"additionalPrinterColumns",
           {Column("Description", "string", ".spec.description"),
            Column("Age", "date", ".metadata.creationTimestamp")}}};
}

}  // namespace

std::string CrdYaml() {
  const auto& message = *v1alpha1::TrainingJob::descriptor();
  return Definition({"TrainingJob", "trainingjobs", "trainingjob", "tj", "Namespaced", {"all"}},
                    {{"schema", {{"openAPIV3Schema", RootSchema(message)}}},
                     {"subresources",
                      {{"status", Json::object()},
                       {"scale",
                        {{"specReplicasPath", ".spec.replicaSpecs.worker.replicas"},
                         {"statusReplicasPath", ".status.replicas"},
                         {"labelSelectorPath", ".status.selector"}}}}},
                     {"additionalPrinterColumns", Columns()}});
}

std::string TemplateCrdYaml() {
  return Definition({"TrainingTemplate", "trainingtemplates", "trainingtemplate", "tt",
                     "Namespaced", Json::array()},
                    TemplateVersion());
}

std::string ClusterTemplateCrdYaml() {
  return Definition({"ClusterTrainingTemplate", "clustertrainingtemplates",
                     "clustertrainingtemplate", "ctt", "Cluster", Json::array()},
                    TemplateVersion());
}

}  // namespace starling::schema
