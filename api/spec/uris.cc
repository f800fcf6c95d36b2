// SPDX-License-Identifier: Apache-2.0
#include "api/spec/uris.h"

#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "api/spec/contract.h"
#include "common/storage/place.h"
#include "google/protobuf/message.h"

namespace starling::spec {
namespace {

using google::protobuf::Message;

std::string Absolute(const std::string& path, const UriBases& bases) {
  const std::filesystem::path given(path);
  if (given.is_absolute()) return path;
  const auto exists = [&bases](const std::filesystem::path& place) {
    if (bases.exists) return bases.exists(place);
    std::error_code ignored;
    return std::filesystem::exists(place, ignored);
  };
  if (!bases.job_folder.empty()) {
    const auto beside = (bases.working_directory / bases.job_folder / given).lexically_normal();
    if (exists(beside)) return beside.string();
  }
  return (bases.working_directory / given).lexically_normal().string();
}

}  // namespace

absl::StatusOr<std::string> PathOfUri(std::string_view uri) {
  auto place = storage::ParsePlace(uri);
  if (!place.ok()) return place.status();
  if (place->kind == storage::Place::Kind::kFile) return std::move(place->path);
  return absl::InvalidArgumentError(
      absl::StrCat("has the scheme ", std::string(uri.substr(0, uri.find(':'))),
                   ", but only files can be used so far; write a path or file:///path"));
}

void MakeUrisAbsolute(Message& message, const UriBases& bases) {
  const auto& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> present;
  reflection.ListFields(message, &present);
  for (const FieldDescriptor* field : present) {
    if (field->is_map()) continue;
    if (KindOf(*field) == Kind::kMessage) {
      if (!field->is_repeated()) {
        MakeUrisAbsolute(*reflection.MutableMessage(&message, field), bases);
        continue;
      }
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
        MakeUrisAbsolute(*reflection.MutableRepeatedMessage(&message, field, i), bases);
      }
    } else if (RulesOf(*field).format() == "uri" && !field->is_repeated()) {
      const auto path = PathOfUri(reflection.GetString(message, field));
      if (path.ok()) reflection.SetString(&message, field, Absolute(*path, bases));
    }
  }
}

FieldErrors CheckUrisAbsolute(const Message& message, std::string_view path) {
  FieldErrors errors;
  const auto& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> present;
  reflection.ListFields(message, &present);
  const auto check = [&errors](const Message& part, const std::string& at) {
    const FieldErrors found = CheckUrisAbsolute(part, at);
    errors.insert(errors.end(), found.begin(), found.end());
  };
  for (const FieldDescriptor* field : present) {
    if (field->is_map()) continue;
    const std::string at = JoinPath(path, field->json_name());
    if (KindOf(*field) == Kind::kMessage) {
      if (!field->is_repeated()) check(reflection.GetMessage(message, field), at);
      for (int i = 0; field->is_repeated() && i < reflection.FieldSize(message, field); ++i) {
        check(reflection.GetRepeatedMessage(message, field, i),
              JoinPath(at, static_cast<std::size_t>(i)));
      }
    } else if (RulesOf(*field).format() == "uri" && !field->is_repeated()) {
      const auto place = PathOfUri(reflection.GetString(message, field));
      if (!place.ok() || std::filesystem::path(*place).is_absolute()) continue;
      errors.push_back({at,
                        "is a relative path, but from which folder is not known here; write "
                        "an absolute one"});
    }
  }
  return errors;
}

}  // namespace starling::spec
