// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/selector.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status/macros.h"
#include "controller/kube/message_json.h"
#include "controller/kube/messages.h"
#include "controller/kube/objects.h"

namespace starling::kube {
namespace {

std::string Stripped(std::string_view text) {
  return std::string(absl::StripAsciiWhitespace(absl::string_view(text.data(), text.size())));
}

// At commas that are not within parentheses.
std::vector<std::string> SplitRequirements(std::string_view text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c == ',' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

bool IsLabelKey(const std::string& key) {
  const auto legal = [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.' || c == '/';
  };
  return !key.empty() && key.size() <= 317 && absl::ascii_isalnum(key.front()) &&
         std::all_of(key.begin(), key.end(), legal);
}

absl::Status Bad(std::string_view requirement) {
  return absl::InvalidArgumentError(absl::StrCat(
      "selector: \"", std::string(requirement),
      "\" is not a requirement; write key=value, key!=value, key in (a,b), key notin (a,b), key or "
      "!key, joined by commas"));
}

// Fields that can be selected: of all kinds, or of one.
struct SelectableField {
  std::string_view plural;  // empty: every kind
  std::string_view field;
  std::string_view pointer;
};
constexpr SelectableField kSelectableFields[] = {
    {"", "metadata.name", "/metadata/name"},
    {"", "metadata.namespace", "/metadata/namespace"},
    {"pods", "spec.nodeName", "/spec/nodeName"},
    {"pods", "status.phase", "/status/phase"},
    {"events", "regarding.kind", "/regarding/kind"},
    {"events", "regarding.name", "/regarding/name"},
    {"events", "regarding.uid", "/regarding/uid"},
    {"events", "reason", "/reason"},
    {"events", "type", "/type"},
};

const SelectableField* FindField(const ResourceKind& kind, const std::string& name) {
  for (const SelectableField& field : kSelectableFields) {
    if (field.field == name && (field.plural.empty() || field.plural == kind.plural)) return &field;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<LabelSelector::Requirement> LabelSelector::ParseOne(std::string_view text) {
  const std::string whole = Stripped(text);
  Requirement requirement;
  const auto finish = [&]() -> absl::StatusOr<Requirement> {
    requirement.key = Stripped(requirement.key);
    if (!IsLabelKey(requirement.key)) return Bad(whole);
    return requirement;
  };
  if (absl::EndsWith(whole, ")")) {
    const std::size_t open = whole.find('(');
    if (open == std::string::npos) return Bad(whole);
    const std::vector<std::string> words =
        absl::StrSplit(whole.substr(0, open), absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.size() != 2 || (words[1] != "in" && words[1] != "notin")) return Bad(whole);
    requirement.key = words[0];
    requirement.negated = words[1] == "notin";
    for (absl::string_view value :
         absl::StrSplit(whole.substr(open + 1, whole.size() - open - 2), ',')) {
      requirement.values.push_back(Stripped({value.data(), value.size()}));
    }
    return finish();
  }
  const std::size_t equals = whole.find('=');
  if (equals == std::string::npos) {
    requirement.only_existence = true;
    requirement.negated = absl::StartsWith(whole, "!");
    requirement.key = whole.substr(requirement.negated ? 1 : 0);
    return finish();
  }
  requirement.negated = equals > 0 && whole[equals - 1] == '!';
  requirement.key = whole.substr(0, equals - (requirement.negated ? 1 : 0));
  std::string value = whole.substr(equals + 1);
  if (!requirement.negated && absl::StartsWith(value, "=")) value.erase(0, 1);
  if (value.find('=') != std::string::npos) return Bad(whole);
  requirement.values.push_back(Stripped(value));
  return finish();
}

absl::StatusOr<LabelSelector> LabelSelector::Parse(std::string_view text) {
  LabelSelector selector;
  if (Stripped(text).empty()) return selector;
  for (const std::string& part : SplitRequirements(text)) {
    ASSIGN_OR_RETURN(Requirement requirement, ParseOne(part));
    selector.requirements_.push_back(std::move(requirement));
  }
  return selector;
}

bool LabelSelector::Matches(const Find& find) const {
  return std::all_of(requirements_.begin(), requirements_.end(), [&](const Requirement& r) {
    const std::string* value = find(r.key);
    if (r.only_existence) return (value != nullptr) != r.negated;
    const bool found =
        value != nullptr && std::find(r.values.begin(), r.values.end(), *value) != r.values.end();
    return found != r.negated;
  });
}

bool LabelSelector::Matches(const Json& labels) const {
  return Matches([&labels](const std::string& key) -> const std::string* {
    if (!labels.is_object()) return nullptr;
    const auto found = labels.find(key);
    return found == labels.end() ? nullptr : found->get_ptr<const std::string*>();
  });
}

std::pair<std::string, std::string> LabelSelector::Required() const {
  for (const Requirement& r : requirements_) {
    if (!r.negated && !r.only_existence && r.values.size() == 1) return {r.key, r.values[0]};
  }
  return {};
}

absl::StatusOr<Selector> Selector::Parse(const ResourceKind& kind, const Selection& selection) {
  Selector selector;
  ASSIGN_OR_RETURN(selector.labels_, LabelSelector::Parse(selection.labels));
  for (absl::string_view part : absl::StrSplit(selection.fields, ',', absl::SkipWhitespace())) {
    const std::string whole = Stripped({part.data(), part.size()});
    const std::size_t equals = whole.find('=');
    if (equals == std::string::npos || equals == 0) return Bad(whole);
    const bool negated = whole[equals - 1] == '!';
    const std::string name = Stripped(whole.substr(0, equals - (negated ? 1 : 0)));
    std::string value = whole.substr(equals + 1);
    if (absl::StartsWith(value, "=")) value.erase(0, 1);
    const SelectableField* field = FindField(kind, name);
    if (field == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("field selector: \"", name, "\" of ",
                                                     std::string(kind.plural),
                                                     " cannot be selected by"));
    }
    selector.fields_.push_back({std::string(field->pointer), Stripped(value), negated});
  }
  return selector;
}

bool Selector::Matches(const Json& object) const {
  return std::all_of(fields_.begin(), fields_.end(),
                     [&](const FieldRequirement& field) {
                       return (StringAt(object, field.pointer) == field.value) != field.negated;
                     }) &&
         labels_.Matches(At(object, "/metadata/labels"));
}

bool Selector::Matches(const Message& object) const {
  if (!fields_.empty()) return Matches(ToJson(object));  // a field is named by its place in JSON
  const auto& labels = MetadataOf(object).labels();
  return labels_.Matches([&labels](const std::string& key) -> const std::string* {
    const auto found = labels.find(key);
    return found == labels.end() ? nullptr : &found->second;
  });
}

Json Selector::SelectableParts(const Json& object) {
  Json parts = Json::object();
  parts["metadata"]["labels"] = At(object, "/metadata/labels");
  for (const SelectableField& field : kSelectableFields) {
    const Json& value = At(object, field.pointer);
    if (!value.is_null()) parts[Json::json_pointer(std::string(field.pointer))] = value;
  }
  return parts;
}

}  // namespace starling::kube
