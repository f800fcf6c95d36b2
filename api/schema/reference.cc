// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "api/schema/documents.h"
#include "api/spec/contract.h"
#include "api/spec/documentation.h"
#include "api/spec/resolve.h"
#include "api/spec/writer.h"
#include "common/json/json.h"
#include "nlohmann/json.hpp"
#include "starling/v1alpha1/training_job.pb.h"
#include "starling/v1alpha1/training_template.pb.h"

namespace starling::schema {
namespace {

using spec::Descriptor;
using spec::FieldDescriptor;
using spec::Kind;

constexpr const char* kReferenceIntroduction = R"(# TrainingJob

Every field of `starling.dev/v1alpha1`, `TrainingJob`. Generated from the comments and rules in
`api/proto` by `make generate`; `starling explain spec.optimizer` prints the same in a terminal.

- Names are camelCase. A field that does not exist, stands twice or has the wrong type is an error.
- `null` means "not given". Whole numbers are at most 2^53.
- A duration is written as Go writes it: `500ms`, `30s`, `1h30m`.
- What a file does not give comes from its `preset`, if that says something, else from the default.
)";

constexpr const char* kTemplateIntroduction = R"(# TrainingTemplate, ClusterTrainingTemplate

Every field of administrators' templates, `starling.dev/v1alpha1`; how they are used stands in
[how-to/templates.md](../how-to/templates.md). Generated from the comments and rules in `api/proto` by
`make generate`. Metadata is that of a [job](trainingjob.md#objectmeta).
)";

std::string Cell(const std::string& text) { return absl::StrReplaceAll(text, {{"|", "\\|"}}); }

std::string TypeCell(const FieldDescriptor& field) {
  const FieldDescriptor& value = field.is_map() ? spec::MapValueOf(field) : field;
  if (spec::KindOf(value) != Kind::kMessage) return spec::TypeText(field);
  const std::string name = value.message_type()->name();
  const std::string link = absl::StrCat("[", name, "](#", absl::AsciiStrToLower(name), ")");
  if (field.is_map()) return absl::StrCat("map of ", link);
  return field.is_repeated() ? absl::StrCat("list of ", link) : link;
}

// Values of an enum with what each means, for the description's cell.
std::string EnumText(const FieldDescriptor& field, const spec::Documentation& documentation) {
  std::string text;
  if (field.enum_type() == nullptr) return text;
  for (int i = 0; i < field.enum_type()->value_count(); ++i) {
    const auto& value = *field.enum_type()->value(i);
    const std::string name = spec::EnumText(value);
    if (name.empty()) continue;
    absl::StrAppend(&text, "<br>`", name, "`: ", documentation.Of(value.full_name()));
  }
  return text;
}

void AddMessage(const Descriptor& message, const spec::Documentation& documentation,
                std::set<std::string>& done, std::string& page) {
  if (!done.insert(message.full_name()).second) return;
  absl::StrAppend(&page, "\n## ", message.name(), "\n\n", documentation.Of(message.full_name()),
                  "\n");
  for (const spec::OneofDescriptor* oneof : spec::UnionsOf(message)) {
    absl::StrAppend(&page, "\nHolds ", spec::UnionText(*oneof), ".\n");
  }
  if (message.field_count() == 0) {
    absl::StrAppend(&page, "\nIt has no fields: write `{}`.\n");
    return;
  }
  absl::StrAppend(&page, "\n| Field | Type | Rules | Meaning |\n| --- | --- | --- | --- |\n");
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    absl::StrAppend(&page, "| `", field.json_name(), "` | ", TypeCell(field), " | ",
                    Cell(absl::StrJoin(spec::RuleTexts(field), "; ")), " | ",
                    Cell(documentation.Of(field.full_name()) + EnumText(field, documentation)),
                    " |\n");
  }
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const FieldDescriptor& value = field.is_map() ? spec::MapValueOf(field) : field;
    if (spec::KindOf(value) == Kind::kMessage) {
      AddMessage(*value.message_type(), documentation, done, page);
    }
  }
}

std::string Presets() {
  std::string text = "\n## Presets\n\n| Preset | Gives |\n| --- | --- |\n";
  for (const std::string& name : spec::PresetNames()) {
    absl::StrAppend(&text, "| `", name, "` | `",
                    Cell(json::Dump(spec::WriteMessage(spec::PresetSpec(name)))), "` |\n");
  }
  return text;
}

}  // namespace

std::string TemplateReferencePage() {
  const spec::Documentation documentation;
  // What is of a job's file stands on the job's own page.
  std::set<std::string> done = {v1alpha1::ObjectMeta::descriptor()->full_name()};
  std::string page = kTemplateIntroduction;
  AddMessage(*v1alpha1::TrainingTemplate::descriptor(), documentation, done, page);
  return absl::StrReplaceAll(page, {{"](#objectmeta)", "](trainingjob.md#objectmeta)"}});
}

std::string ReferencePage() {
  const spec::Documentation documentation;
  std::set<std::string> done;
  std::string page = kReferenceIntroduction;
  AddMessage(*v1alpha1::TrainingJob::descriptor(), documentation, done, page);
  return page + Presets();
}

}  // namespace starling::schema
