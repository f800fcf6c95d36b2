// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/http_status.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "controller/kube/objects.h"
#include "controller/kube/protobuf_wire.h"

namespace starling::kube {
namespace {

// Pages of thousands of pods; schemas of definitions nest deep.
constexpr json::Limits kLimits{.bytes = 64U << 20U, .depth = 400, .nodes = 20'000'000};

struct Meaning {
  int http;
  absl::StatusCode code;
};
constexpr Meaning kMeanings[] = {
    {400, absl::StatusCode::kInvalidArgument},  {401, absl::StatusCode::kPermissionDenied},
    {403, absl::StatusCode::kPermissionDenied}, {404, absl::StatusCode::kNotFound},
    {405, absl::StatusCode::kInvalidArgument},  {406, absl::StatusCode::kInvalidArgument},
    {409, absl::StatusCode::kAborted},          {410, absl::StatusCode::kOutOfRange},
    {413, absl::StatusCode::kInvalidArgument},  {415, absl::StatusCode::kInvalidArgument},
    {422, absl::StatusCode::kInvalidArgument},  {429, absl::StatusCode::kResourceExhausted},
};

bool IsAboutTheUid(const Json& object) {
  for (const Json& cause : At(object, "/details/causes")) {
    if (StringAt(cause, "/field") == "metadata.uid") return true;
  }
  return false;
}

absl::StatusCode CodeOf(const ServerStatus& told) {
  if (told.reason == "AlreadyExists") return absl::StatusCode::kAlreadyExists;
  if (told.reason == "Expired" || told.reason == "Gone") return absl::StatusCode::kOutOfRange;
  if (told.http == 403 && absl::StrContains(told.message, "exceeded quota")) {
    return absl::StatusCode::kResourceExhausted;
  }
  if (told.http == 422 && told.about_the_uid) return absl::StatusCode::kAborted;
  for (const Meaning& meaning : kMeanings) {
    if (meaning.http == told.http) return meaning.code;
  }
  return absl::StatusCode::kUnavailable;
}

std::string Printable(std::string_view text, std::size_t most) {
  std::string result;
  for (const char c : text.substr(0, most)) {
    result += absl::ascii_isprint(static_cast<unsigned char>(c)) ? c : ' ';
  }
  if (text.size() > most) result += "...";
  return std::string(absl::StripAsciiWhitespace(result));
}

bool IsJson(const http::Response& answer) {
  return absl::StartsWith(answer.content_type, "application/json");
}

bool IsProtobuf(const http::Response& answer) {
  return absl::StartsWith(answer.content_type, kProtobuf);
}

bool IsSuccess(const http::Response& answer) {
  return answer.status >= 200 && answer.status <= 299;
}

absl::Status NotThatForm(const http::Response& answer, const char* form) {
  return absl::UnavailableError(
      absl::StrCat("API server: the answer is ", Printable(answer.content_type, 60), " where ",
                   form, " belongs; is it an API server? It begins: ", Printable(answer.body, 80)));
}

// The end of the list that begins at `begin`; npos: it has none.
std::size_t EndOfList(std::string_view text, std::size_t begin) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if ((c == ']' || c == '}') && --depth == 0) {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

// A third of what an API server sends is who owns which field. Nobody here reads it, and skipping
// it costs much less than parsing it. (Within a string the key's quotes would be escaped.)
std::string WithoutManagedFields(std::string_view text) {
  constexpr std::string_view kKey = "\"managedFields\":[";
  std::string kept;
  for (std::size_t key = text.find(kKey); key != std::string_view::npos; key = text.find(kKey)) {
    const std::size_t list = key + kKey.size() - 1;
    const std::size_t end = EndOfList(text, list);
    if (end == std::string_view::npos) break;
    kept.append(text.substr(0, list)).append("[]");
    text.remove_prefix(end);
  }
  return kept.append(text);
}

}  // namespace

absl::StatusOr<Json> ParseServerJson(std::string_view text) {
  return json::Parse(WithoutManagedFields(text), kLimits);
}

absl::Status StatusOfServer(const ServerStatus& told) {
  return absl::Status(CodeOf(told), told.message.empty()
                                        ? absl::StrCat("API server: status ", told.http)
                                        : told.message);
}

absl::Status StatusOfObject(const Json& object) {
  return StatusOfServer({.http = static_cast<int>(IntAt(object, "/code")),
                         .reason = StringAt(object, "/reason"),
                         .message = StringAt(object, "/message"),
                         .about_the_uid = IsAboutTheUid(object)});
}

absl::Status StatusOfAnswer(const http::Response& answer) {
  const int http = answer.status;
  if (http >= 300 && http < 400) {
    return absl::UnavailableError(absl::StrCat(
        "API server: answers with a redirect to \"", Printable(answer.Header("Location"), 200),
        "\", which is not followed; name that server in the kubeconfig if it is the right one"));
  }
  if (IsJson(answer)) {
    const auto object = ParseServerJson(answer.body);
    if (object.ok() && StringAt(*object, "/kind") == "Status" && IntAt(*object, "/code") == http) {
      return StatusOfObject(*object);
    }
  }
  if (IsProtobuf(answer)) {
    if (auto status = DecodeStatus(answer.body)) return *std::move(status);
  }
  const std::string text = Printable(answer.body, 200);
  return absl::Status(CodeOf({.http = http, .reason = "", .message = text, .about_the_uid = false}),
                      absl::StrCat("API server: status ", http, text.empty() ? "" : ": ", text));
}

absl::StatusOr<std::string> ProtobufOfAnswer(http::Response answer) {
  if (!IsSuccess(answer)) return StatusOfAnswer(answer);
  if (!IsProtobuf(answer)) return NotThatForm(answer, "protobuf");
  return std::move(answer.body);
}

absl::StatusOr<Json> ObjectOfAnswer(const http::Response& answer) {
  if (!IsSuccess(answer)) return StatusOfAnswer(answer);
  if (!IsJson(answer)) return NotThatForm(answer, "JSON");
  auto object = ParseServerJson(answer.body);
  if (!object.ok()) {
    return absl::UnavailableError(absl::StrCat("API server: the answer cannot be understood: ",
                                               std::string(object.status().message())));
  }
  if (!object->is_object()) return absl::UnavailableError("API server: the answer is no object");
  return object;
}

}  // namespace starling::kube
