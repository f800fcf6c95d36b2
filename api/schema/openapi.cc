// SPDX-License-Identifier: Apache-2.0
#include "api/rest/openapi.h"

#include <set>
#include <string>

#include "api/schema/documents.h"
#include "api/schema/field_schema.h"
#include "common/json/json.h"
#include "nlohmann/json.hpp"
#include "starling/v1alpha1/training_job.pb.h"
#include "starling/v1alpha1/training_template.pb.h"

namespace starling::schema {
namespace {

using Json = nlohmann::json;

// Adds the schema of a message and of all that it reaches.
void Add(const spec::Descriptor& message, const SchemaWriter& writer, bool closed, Json& schemas) {
  if (schemas.contains(message.name())) return;
  Json schema = writer.OfMessage(message);
  // Spec and file refuse what they do not know; metadata and status may hold more.
  if (closed) schema["additionalProperties"] = false;
  schemas[message.name()] = std::move(schema);
  for (int i = 0; i < message.field_count(); ++i) {
    const spec::FieldDescriptor& field = *message.field(i);
    const spec::FieldDescriptor& value = field.is_map() ? spec::MapValueOf(field) : field;
    if (spec::KindOf(value) == spec::Kind::kMessage) {
      Add(*value.message_type(), writer, closed, schemas);
    }
  }
}

}  // namespace

std::string OpenApiJson() {
  const SchemaWriter writer(Dialect::kOpenApi);
  Json schemas = Json::object();
  Add(*v1alpha1::TrainingJobSpec::descriptor(), writer, /*closed=*/true, schemas);
  Add(*v1alpha1::TrainingJob::descriptor(), writer, /*closed=*/false, schemas);
  Add(*v1alpha1::TrainingTemplate::descriptor(), writer, /*closed=*/false, schemas);
  schemas.update(rest::OpenApiSchemas());
  const Json document = {
      {"openapi", "3.1.0"},
      {"info",
       {{"title", "Starling"},
        {"version", "v1alpha1"},
        {"description",
         "The objects of starling.dev/v1alpha1 and the requests of REST. Generated "
         "from api/proto and api/rest by starling-schema-gen."}}},
      {"paths", rest::OpenApiPaths()},
      {"components",
       {{"schemas", std::move(schemas)},
        {"securitySchemes", {{"token", {{"type", "http"}, {"scheme", "bearer"}}}}}}}};
  return json::DumpPretty(document) + "\n";
}

}  // namespace starling::schema
