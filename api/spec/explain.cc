// SPDX-License-Identifier: Apache-2.0
#include "api/spec/explain.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "api/spec/contract.h"
#include "api/spec/documentation.h"
#include "api/spec/field_error.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::spec {
namespace {

constexpr std::size_t kColumns = 80;
constexpr std::size_t kLongestPath = 1024;

// What a path leads to: a field of `parent`, or the whole object while `field` is null.
struct Place {
  const FieldDescriptor* field = nullptr;
  const Descriptor* message = nullptr;  // whose fields may follow; null for scalars
};

std::vector<std::string> NamesOf(std::string_view path) {
  // List indices and quotes of map keys carry no documentation of their own.
  std::string plain;
  for (const char c : path) plain += c == '[' ? '.' : c;
  std::vector<std::string> names;
  for (absl::string_view piece : absl::StrSplit(plain, '.')) {
    const bool index = !piece.empty() && piece.back() == ']';
    if (!piece.empty() && !index) names.emplace_back(piece);
  }
  if (!names.empty() &&
      (names[0] == "tj" || names[0] == "trainingjob" || names[0] == "trainingjobs")) {
    names.erase(names.begin());
  }
  return names;
}

absl::StatusOr<Place> Follow(const std::vector<std::string>& names) {
  Place place{nullptr, v1alpha1::TrainingJob::descriptor()};
  std::string path;
  for (const std::string& name : names) {
    if (place.message == nullptr) {
      if (place.field->is_map()) continue;  // any key
      return absl::NotFoundError(
          absl::StrCat(path, ": is ", TypeText(*place.field), " and has no fields"));
    }
    const FieldDescriptor* field = FindField(*place.message, name);
    path = JoinPath(path, name);
    if (field == nullptr) {
      return absl::NotFoundError(
          absl::StrCat(path, ": unknown field", DidYouMean(name, FieldNames(*place.message))));
    }
    const FieldDescriptor& value = field->is_map() ? MapValueOf(*field) : *field;
    place = {field, KindOf(value) == Kind::kMessage ? value.message_type() : nullptr};
  }
  return place;
}

// Words filled into lines of kColumns, each after `indent` spaces.
std::string Wrap(const std::string& text, std::size_t indent) {
  const std::string margin(indent, ' ');
  std::string result, line = margin;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (line.size() > indent && line.size() + 1 + word.size() > kColumns) {
      absl::StrAppend(&result, line, "\n");
      line = margin;
    }
    absl::StrAppend(&line, line.size() > indent ? " " : "", word);
  }
  return line.size() > indent ? absl::StrCat(result, line, "\n") : result;
}

std::string FieldBlock(const FieldDescriptor& field, const Documentation& documentation) {
  std::string block = absl::StrCat("  ", field.json_name(), "\t<", TypeText(field), ">",
                                   RulesOf(field).required() ? " -required-" : "", "\n");
  absl::StrAppend(&block, Wrap(documentation.Of(field.full_name()), 4));
  return block;
}

std::string EnumBlock(const EnumDescriptor& type, const Documentation& documentation) {
  std::string block = "\nVALUES:\n";
  for (int i = 0; i < type.value_count(); ++i) {
    const std::string text = EnumText(*type.value(i));
    if (text.empty()) continue;
    absl::StrAppend(&block, "  ", text, "\n",
                    Wrap(documentation.Of(type.value(i)->full_name()), 4));
  }
  return block;
}

std::string FieldsBlock(const Descriptor& message, const Documentation& documentation) {
  if (message.field_count() == 0) return "\nFIELDS: none, write {}\n";
  std::string block = "\nFIELDS:\n";
  for (const OneofDescriptor* oneof : UnionsOf(message)) {
    absl::StrAppend(&block, Wrap(absl::StrCat("(", UnionText(*oneof), ")"), 2));
  }
  for (int i = 0; i < message.field_count(); ++i) {
    absl::StrAppend(&block, FieldBlock(*message.field(i), documentation));
  }
  return block;
}

}  // namespace

absl::StatusOr<std::string> Explain(std::string_view path) {
  if (path.size() > kLongestPath) return absl::NotFoundError("the path is too long");
  const absl::StatusOr<Place> place = Follow(NamesOf(path));
  if (!place.ok()) return place.status();
  const Documentation documentation;
  std::string text = "KIND:     TrainingJob\nVERSION:  starling.dev/v1alpha1\n\n";
  const FieldDescriptor* field = place->field;
  if (field != nullptr) {
    absl::StrAppend(&text, "FIELD: ", field->json_name(), " <", TypeText(*field), ">\n\n");
  }
  const std::string described =
      field != nullptr ? documentation.Of(field->full_name()) : std::string();
  const std::string of_type =
      place->message != nullptr ? documentation.Of(place->message->full_name()) : std::string();
  absl::StrAppend(&text, "DESCRIPTION:\n", Wrap(described, 4));
  if (of_type != described) absl::StrAppend(&text, Wrap(of_type, 4));
  if (field != nullptr) {
    const std::vector<std::string> rules = RuleTexts(*field);
    if (!rules.empty()) {
      absl::StrAppend(&text, "\nRULES:\n", Wrap(absl::StrJoin(rules, "; "), 4));
    }
    if (field->enum_type() != nullptr) {
      absl::StrAppend(&text, EnumBlock(*field->enum_type(), documentation));
    }
  }
  if (place->message != nullptr) {
    absl::StrAppend(&text, FieldsBlock(*place->message, documentation));
  }
  return text;
}

}  // namespace starling::spec
