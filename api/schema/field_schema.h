// SPDX-License-Identifier: Apache-2.0
// The JSON schema of the contract's messages, from descriptors, rules and comments.
//
// The API server's structural schemas and OpenAPI 3.1 differ in few places (references, exclusive
// bounds, unions); Dialect names the one that is meant.
#pragma once

#include <set>
#include <string>

#include "api/spec/contract.h"
#include "api/spec/documentation.h"
#include "nlohmann/json_fwd.hpp"

namespace starling::schema {

enum class Dialect {
  kStructural,  // of a CustomResourceDefinition: everything in place, unions as CEL rules
  kOpenApi      // 3.1: messages as references to #/components/schemas, all defaults told
};

// Thread-compatible.
class SchemaWriter {
 public:
  explicit SchemaWriter(Dialect dialect) : dialect_(dialect) {}

  // Of a whole message: an object with its fields.
  nlohmann::json OfMessage(const spec::Descriptor& message) const;
  // Of one field as it stands in its message.
  nlohmann::json OfField(const spec::FieldDescriptor& field) const;

 private:
  nlohmann::json OfValue(const spec::FieldDescriptor& field,
                         const v1alpha1::FieldRules& rules) const;
  void AddNumberBounds(const v1alpha1::FieldRules& rules, nlohmann::json& schema) const;
  void AddCelRules(const spec::Descriptor& message, nlohmann::json& schema) const;
  void AddUnion(const spec::OneofDescriptor& oneof, nlohmann::json& schema) const;
  void AddDefault(const spec::FieldDescriptor& field, nlohmann::json& schema) const;

  const Dialect dialect_;
  const spec::Documentation documentation_;
};

}  // namespace starling::schema
