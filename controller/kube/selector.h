// SPDX-License-Identifier: Apache-2.0
// Label and field selectors in kubectl's syntax, parsed once and asked often.
//
// To make another field selectable, add its pointer to the table in selector.cc.
#pragma once

#include <google/protobuf/message.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "controller/kube/kube_client.h"

namespace starling::kube {

// Thread-compatible.
class LabelSelector {
 public:
  // "key=v", "key==v", "key!=v", "key in (a,b)", "key notin (a,b)", "key", "!key", joined by
  // commas. InvalidArgument, naming the requirement, for anything else.
  static absl::StatusOr<LabelSelector> Parse(std::string_view text);

  bool Matches(const Json& labels) const;  // a JSON map; anything else has no labels

  // The value of a label; null: there is none, or it is no text.
  using Find = std::function<const std::string*(const std::string& key)>;
  bool Matches(const Find& find) const;

  // A label that all matches carry, with its value; empty: none is known.
  std::pair<std::string, std::string> Required() const;

 private:
  struct Requirement {
    std::string key;
    bool negated = false;         // the value, if any, must not be one of `values`
    bool only_existence = false;  // of the key
    std::vector<std::string> values;
  };

  static absl::StatusOr<Requirement> ParseOne(std::string_view text);

  std::vector<Requirement> requirements_;
};

// Both selectors of a Selection. Thread-compatible.
class Selector {
 public:
  static absl::StatusOr<Selector> Parse(const ResourceKind& kind, const Selection& selection);

  bool Matches(const Json& object) const;
  // Callers of either need the whole type: JSON can be made of what is not known to be something
  // else.
  bool Matches(const Message& object) const;
  std::pair<std::string, std::string> RequiredLabel() const { return labels_.Required(); }

  // The parts of an object that a selector can ask about, as a small object of the same form.
  static Json SelectableParts(const Json& object);

 private:
  struct FieldRequirement {
    std::string pointer;
    std::string value;
    bool negated = false;
  };

  LabelSelector labels_;
  std::vector<FieldRequirement> fields_;
};

}  // namespace starling::kube
