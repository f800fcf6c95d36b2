// SPDX-License-Identifier: Apache-2.0
// The comments and rules of the contract as text for people: what explain, the CRD, the OpenAPI
// document and the reference page say about a field.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "api/spec/contract.h"

namespace starling::spec {

// The comments of training_job.proto, which are compiled in. Thread-compatible; const use is safe
// from several threads.
class Documentation {
 public:
  Documentation();

  // Of a message, field, enum or enum value by its full name; "" if it has none. One line.
  const std::string& Of(const std::string& full_name) const;

 private:
  std::map<std::string, std::string> comments_;
};

// string, integer, number, boolean, duration, time, object, [integer], map[string]number, or the
// message's name.
std::string TypeText(const FieldDescriptor& field);

// Each rule of a field as a phrase: "required", "at least 1", "default: 64".
std::vector<std::string> RuleTexts(const FieldDescriptor& field);

// "exactly one of a, b" or "at most one of a, b; by default a".
std::string UnionText(const OneofDescriptor& oneof);

}  // namespace starling::spec
