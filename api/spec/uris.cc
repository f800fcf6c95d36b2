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
using storage::Place;

struct UriFormat {
  std::string_view name;
  bool object_stores;
  bool web_servers;
  std::string_view places;
};
constexpr UriFormat kFormats[] = {
    {"uri", true, true, "a path, file:///path, s3://bucket/key or https://host/path"},
    {"storeUri", true, false, "a path, file:///path or s3://bucket/prefix"},
    {"fileUri", false, false, "a path or file:///path"},
};

const UriFormat* Find(std::string_view format) {
  for (const UriFormat& candidate : kFormats) {
    if (candidate.name == format) return &candidate;
  }
  return nullptr;
}

bool May(const UriFormat& format, Place::Kind kind) {
  if (kind == Place::Kind::kS3) return format.object_stores;
  if (kind == Place::Kind::kHttp) return format.web_servers;
  return true;
}

bool NamesPlaces(const FieldDescriptor& field) {
  return Find(RulesOf(field).format()) != nullptr && !field.is_repeated();
}

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
    // A range of numbers is there when its first file is.
    const auto files = storage::ExpandRanges(beside.string());
    if (exists(beside) || (files.ok() && exists(files->front()))) return beside.string();
  }
  return (bases.working_directory / given).lexically_normal().string();
}

}  // namespace

std::string_view PlacesOf(std::string_view format) {
  const UriFormat* found = Find(format);
  return found == nullptr ? std::string_view{} : found->places;
}

absl::Status CheckUri(std::string_view format, std::string_view uri) {
  const auto place = storage::ParsePlace(uri);
  if (!place.ok()) return place.status();
  const UriFormat* found = Find(format);
  if (found == nullptr || May(*found, place->kind)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("has the scheme ", std::string(uri.substr(0, uri.find(':'))),
                   ", which cannot be used here; write ", std::string(found->places)));
}

absl::StatusOr<std::string> PathOfUri(std::string_view uri) {
  if (absl::Status status = CheckUri("fileUri", uri); !status.ok()) return status;
  return storage::ParsePlace(uri)->path;
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
    } else if (NamesPlaces(*field)) {
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
    } else if (NamesPlaces(*field)) {
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
