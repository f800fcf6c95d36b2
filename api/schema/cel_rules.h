// SPDX-License-Identifier: Apache-2.0
// Rules of a message in the API server's expression language (CEL): what types and bounds cannot
// say. Each carries the words that the CLI would use, and the path of the field at fault.
//
// Rules over one field come from the marks beside it (options.proto); those over several fields
// stand in one table here, each beside the message that holds them all. To add one, add a row; what
// CEL cannot say, or only at too great a cost, is left to api/spec/validate, which the webhook
// runs.
//
// The server evaluates all rules at each write of the object, those of its status too, and pays for
// each rule and for each field that a rule asks for. So what is asked of all that lies below a
// field that may be left out is one rule, which ends at its first question where the field is not
// given. Such a rule stands beside that field and says which one below it is at fault, of several
// the first.
#pragma once

#include <string>
#include <vector>

#include "api/spec/contract.h"

namespace starling::schema {

struct CelRule {
  std::string rule;
  std::string message;  // empty: message_expression says it
  std::string path;  // of the field at fault, below the message: ".seed"; "" for the message itself
  const char* reason = "FieldValueInvalid";
  std::string message_expression = {};  // in CEL, evaluated when the rule is broken
};

std::vector<CelRule> CelRulesOf(const spec::Descriptor& message);

}  // namespace starling::schema
