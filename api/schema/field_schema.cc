// SPDX-License-Identifier: Apache-2.0
#include "api/schema/field_schema.h"

#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/schema/cel_rules.h"
#include "common/json/json.h"
#include "common/status/check.h"
#include "nlohmann/json.hpp"

namespace starling::schema {
namespace {

using Json = nlohmann::json;
using spec::Kind;

// Schemas match a pattern anywhere in a string; our rules mean all of it.
std::string Anchored(std::string_view pattern) {
  return absl::StrCat("^(", std::string(pattern), ")$");
}

Json NumberOf(double number) {
  if (number == std::floor(number) &&
      std::abs(number) <= static_cast<double>(spec::kLargestInteger)) {
    return static_cast<std::int64_t>(number);
  }
  return number;
}

Json TextSchema(const v1alpha1::FieldRules& rules) {
  Json schema = {
      {"type", "string"},
      {"maxLength", rules.max_length() != 0 ? rules.max_length() : spec::kDefaultMaxLength}};
  const spec::FormatRule* format =
      spec::FindFormat(rules.format() == "label" ? "labelValue" : rules.format());
  if (!rules.pattern().empty()) {
    schema["pattern"] = Anchored(rules.pattern());
  } else if (format != nullptr) {
    schema["pattern"] = Anchored(format->pattern);
  }
  return schema;
}

Json DurationSchema(const v1alpha1::FieldRules& rules, Dialect dialect) {
  Json schema = {
      {"type", "string"}, {"maxLength", 64}, {"pattern", Anchored(spec::kDurationPattern)}};
  if (dialect != Dialect::kStructural) return schema;
  const auto add = [&schema](const std::string& bound, const char* relation, const char* words) {
    if (bound.empty() || bound == "0s") return;
    schema["x-kubernetes-validations"].push_back(
        {{"rule", absl::StrCat("duration(self) ", relation, " duration('", bound, "')")},
         {"message", absl::StrCat("must be ", words, " ", bound)}});
  };
  add(rules.minimum_duration(), ">=", "at least");
  add(rules.maximum_duration(), "<=", "at most");
  return schema;
}

}  // namespace

Json SchemaWriter::OfMessage(const spec::Descriptor& message) const {
  Json schema = {{"type", "object"}};
  if (const std::string& text = documentation_.Of(message.full_name()); !text.empty()) {
    schema["description"] = text;
  }
  std::vector<std::string> required;
  for (int i = 0; i < message.field_count(); ++i) {
    const spec::FieldDescriptor& field = *message.field(i);
    schema["properties"][field.json_name()] = OfField(field);
    if (spec::RulesOf(field).required()) required.push_back(field.json_name());
  }
  if (!required.empty()) schema["required"] = required;
  for (const spec::OneofDescriptor* oneof : spec::UnionsOf(message)) AddUnion(*oneof, schema);
  if (dialect_ == Dialect::kStructural) AddCelRules(message, schema);
  return schema;
}

Json SchemaWriter::OfField(const spec::FieldDescriptor& field) const {
  const auto& rules = spec::RulesOf(field);
  Json schema;
  if (field.is_map()) {
    schema = {{"type", "object"},
              {"additionalProperties", OfValue(spec::MapValueOf(field), rules)}};
    schema["maxProperties"] = rules.max_items() != 0 ? rules.max_items() : spec::kDefaultMaxItems;
  } else if (field.is_repeated()) {
    schema = {{"type", "array"}, {"items", OfValue(field, rules)}};
    schema["maxItems"] = rules.max_items() != 0 ? rules.max_items() : spec::kDefaultMaxItems;
    if (rules.min_items() != 0) schema["minItems"] = rules.min_items();
    if (dialect_ == Dialect::kStructural && !rules.list_key().empty()) {
      schema["x-kubernetes-list-type"] = "map";
      schema["x-kubernetes-list-map-keys"] = {rules.list_key()};
    }
  } else {
    schema = OfValue(field, rules);
  }
  if (const std::string& text = documentation_.Of(field.full_name()); !text.empty()) {
    schema["description"] = text;
  }
  AddDefault(field, schema);
  return schema;
}

Json SchemaWriter::OfValue(const spec::FieldDescriptor& field,
                           const v1alpha1::FieldRules& rules) const {
  switch (spec::KindOf(field)) {
    case Kind::kString:
      return TextSchema(rules);
    case Kind::kRawJson: {
      Json schema = {{"type", "object"}};
      if (dialect_ == Dialect::kStructural) schema["x-kubernetes-preserve-unknown-fields"] = true;
      return schema;
    }
    case Kind::kInteger: {
      Json schema = {{"type", "integer"}, {"format", "int64"}};
      AddNumberBounds(rules, schema);
      return schema;
    }
    case Kind::kNumber: {
      Json schema = {{"type", "number"}};
      AddNumberBounds(rules, schema);
      return schema;
    }
    case Kind::kBoolean:
      return {{"type", "boolean"}};
    case Kind::kEnum:
      return {{"type", "string"}, {"enum", spec::EnumTexts(*field.enum_type())}};
    case Kind::kDuration:
      return DurationSchema(rules, dialect_);
    case Kind::kTimestamp:
      return {{"type", "string"}, {"format", "date-time"}};
    case Kind::kMessage:
      break;
  }
  if (dialect_ == Dialect::kStructural && rules.schema_open()) {
    return {{"type", "object"}, {"x-kubernetes-preserve-unknown-fields", true}};
  }
  if (dialect_ == Dialect::kStructural) return OfMessage(*field.message_type());
  return {{"$ref", "#/components/schemas/" + field.message_type()->name()}};
}

void SchemaWriter::AddNumberBounds(const v1alpha1::FieldRules& rules, Json& schema) const {
  if (rules.has_minimum()) schema["minimum"] = NumberOf(rules.minimum());
  if (rules.has_maximum()) schema["maximum"] = NumberOf(rules.maximum());
  if (!rules.has_exclusive_minimum()) return;
  if (dialect_ == Dialect::kStructural) {
    schema["minimum"] = NumberOf(rules.exclusive_minimum());
    schema["exclusiveMinimum"] = true;
  } else {
    schema["exclusiveMinimum"] = NumberOf(rules.exclusive_minimum());
  }
}

void SchemaWriter::AddCelRules(const spec::Descriptor& message, Json& schema) const {
  for (const CelRule& rule : CelRulesOf(message)) {
    Json entry = {{"rule", rule.rule}, {"reason", rule.reason}};
    if (!rule.message.empty()) entry["message"] = rule.message;
    if (!rule.message_expression.empty()) entry["messageExpression"] = rule.message_expression;
    if (!rule.path.empty()) entry["fieldPath"] = rule.path;
    schema["x-kubernetes-validations"].push_back(std::move(entry));
  }
}

void SchemaWriter::AddUnion(const spec::OneofDescriptor& oneof, Json& schema) const {
  const bool required = spec::RulesOf(oneof).required();
  const std::vector<std::string> members = spec::MemberNames(oneof);
  if (dialect_ == Dialect::kStructural) {
    std::vector<std::string> counts;
    counts.reserve(members.size());
    for (const std::string& name : members) counts.push_back("(has(self." + name + ") ? 1 : 0)");
    schema["x-kubernetes-validations"].push_back(
        {{"rule", absl::StrJoin(counts, " + ") + (required ? " == 1" : " <= 1")},
         {"message", absl::StrCat("must hold ", required ? "exactly" : "at most", " one of ",
                                  absl::StrJoin(members, ", "))}});
    return;
  }
  Json choices = Json::array(), given = Json::array();
  for (const std::string& name : members) given.push_back({{"required", {name}}});
  choices = given;
  if (!required) choices.push_back({{"not", {{"anyOf", given}}}});
  schema["oneOf"] = choices;
}

void SchemaWriter::AddDefault(const spec::FieldDescriptor& field, Json& schema) const {
  const auto& rules = spec::RulesOf(field);
  if (rules.default_value().empty()) return;
  // The API server would apply a default before we know the preset, or which sibling is given.
  if (dialect_ == Dialect::kStructural && !rules.schema_default()) return;
  if (!rules.default_unless().empty() || !rules.default_beside().empty()) return;
  const auto value = json::Parse(rules.default_value());
  STARLING_CHECK(value.ok(), field.full_name().c_str());
  schema["default"] = *value;
}

}  // namespace starling::schema
