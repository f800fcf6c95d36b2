// SPDX-License-Identifier: Apache-2.0
#include "controller/rest/body.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "api/yaml/yaml.h"
#include "common/json/json.h"

namespace starling::service {
namespace {

using kube::Json;

constexpr std::array<std::string_view, 4> kYaml = {"application/yaml", "application/x-yaml",
                                                   "text/yaml", "text/x-yaml"};

// The parser of YAML takes some 200 bytes for each bracket before it gives us the first one.
constexpr std::size_t kMostYaml = 32 << 10;

// Without parameters such as the character set.
std::string MediaType(const http::Request& request) {
  const std::string_view value = request.Header("Content-Type");
  const std::string_view type = value.substr(0, value.find(';'));
  return absl::AsciiStrToLower(
      absl::StripAsciiWhitespace(absl::string_view(type.data(), type.size())));
}

}  // namespace

std::variant<Json, rest::Problem> ReadBody(const http::Request& request, BodyForms forms) {
  const std::string type = MediaType(request);
  const bool yaml =
      forms == BodyForms::kJsonOrYaml && std::find(kYaml.begin(), kYaml.end(), type) != kYaml.end();
  const bool patch = forms == BodyForms::kMergePatch && type == "application/merge-patch+json";
  if (!yaml && !patch && !type.empty() && type != "application/json") {
    return rest::MakeProblem("UnsupportedMediaType",
                             absl::StrCat("the Content-Type is ", type.substr(0, 100)));
  }
  if (yaml && request.body.size() > kMostYaml) {
    return rest::MakeProblem("BodyTooLarge", "the body is too large for YAML",
                             "send at most 32 KiB of YAML, or JSON");
  }
  auto value = yaml ? yaml::Parse(request.body) : json::Parse(request.body);
  if (!value.ok())
    return rest::MakeProblem("MalformedRequest", std::string(value.status().message()));
  if (value->is_object()) return *std::move(value);
  return rest::MakeProblem(
      "MalformedRequest", absl::StrCat("the body must be an object, not ", json::Describe(*value)));
}

}  // namespace starling::service
