// SPDX-License-Identifier: Apache-2.0
// `--set path=value`: one field of a job document, found by its descriptor.
#include <cctype>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "api/spec/contract.h"
#include "api/spec/job_file.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "nlohmann/json.hpp"

namespace starling::spec {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLongestPath = 1024;
constexpr std::size_t kMostSegments = 32;
constexpr std::size_t kLongestList = 1024;

struct Segment {
  std::string text;
  bool bracketed = false;  // an index or a map's key
};

absl::Status At(std::string_view path, std::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(std::string(path), ": ", std::string(message)));
}

absl::StatusOr<std::vector<Segment>> Split(std::string_view path) {
  if (path.size() > kLongestPath) return At(path.substr(0, 80), "the path is too long");
  std::vector<Segment> segments;
  std::size_t at = 0;
  while (at < path.size()) {
    if (path[at] == '[') {
      const auto end = path.find(']', at);
      if (end == std::string_view::npos) return At(path, "a [ without its ]");
      segments.push_back({std::string(path.substr(at + 1, end - at - 1)), true});
      at = end + 1;
      continue;
    }
    if (!segments.empty()) {
      if (path[at] != '.') return At(path, "expected . or [ after ]");
      ++at;
    }
    const auto end = std::min(path.find_first_of(".[", at), path.size());
    if (end == at) return At(path, "a field's name is missing");
    segments.push_back({std::string(path.substr(at, end - at)), false});
    at = end;
  }
  if (segments.empty()) return absl::InvalidArgumentError("the path is empty");
  if (segments.size() > kMostSegments) return At(path, "the path goes too deep");
  return segments;
}

// Text as it stands for text fields; JSON for the others, and what is not JSON is left for the
// reader to refuse with its path.
absl::StatusOr<Json> ValueOf(std::string_view text, bool is_text, std::string_view path) {
  const std::string given(text);
  if (given == "null") return Json(nullptr);
  const Json as_text(given);
  if (!json::IsUtf8(given)) return At(path, "the value is not UTF-8");
  if (is_text) return as_text;
  auto value = json::Parse(text);
  return value.ok() ? *std::move(value) : as_text;
}

bool IsText(const FieldDescriptor& field) {
  switch (KindOf(field)) {
    case Kind::kString:
    case Kind::kEnum:
    case Kind::kDuration:
    case Kind::kTimestamp:
      return true;
    default:
      return false;
  }
}

// Walks a document along a path. Confined to SetPath.
class Walk {
 public:
  Walk(std::vector<Segment> segments, std::string_view value)
      : segments_(std::move(segments)), value_(value) {}

  absl::Status IntoMessage(Json& node, const Descriptor& descriptor) {
    const Segment segment = segments_[next_];
    RETURN_IF_ERROR(BecomeObject(node));
    const FieldDescriptor* field =
        segment.bracketed ? nullptr : FindField(descriptor, segment.text);
    Enter(segment);
    if (field == nullptr) {
      return At(path_,
                absl::StrCat("unknown field", DidYouMean(segment.text, FieldNames(descriptor))));
    }
    if (const OneofDescriptor* oneof = UnionWith(*field)) {
      for (const std::string& member : MemberNames(*oneof)) {
        if (member != segment.text) node.erase(member);
      }
    }
    Json& child = node[segment.text];
    if (field->is_map()) return IntoMap(child, *field);
    if (field->is_repeated()) return IntoList(child, *field);
    return IntoValue(child, *field);
  }

 private:
  bool AtEnd() const { return next_ == segments_.size(); }

  void Enter(const Segment& segment) {
    ++next_;
    path_ = segment.bracketed ? absl::StrCat(path_, "[", segment.text, "]")
                              : JoinPath(path_, segment.text);
  }

  absl::Status BecomeObject(Json& node) const {
    if (node.is_null()) node = Json::object();
    if (node.is_object()) return absl::OkStatus();
    return At(path_, absl::StrCat("holds ", json::Describe(node), " and has no fields to set"));
  }

  absl::Status Set(Json& node, bool is_text) const {
    ASSIGN_OR_RETURN(node, ValueOf(value_, is_text, path_));
    return absl::OkStatus();
  }

  absl::Status IntoValue(Json& node, const FieldDescriptor& field) {
    if (AtEnd()) return Set(node, IsText(field));
    if (KindOf(field) == Kind::kMessage) return IntoMessage(node, *field.message_type());
    if (KindOf(field) == Kind::kRawJson) return IntoRawJson(node);
    return At(path_, absl::StrCat("has no field \"", segments_[next_].text, "\""));
  }

  absl::Status IntoMap(Json& node, const FieldDescriptor& field) {
    if (AtEnd()) return Set(node, /*is_text=*/false);
    RETURN_IF_ERROR(BecomeObject(node));
    const Segment key = segments_[next_];
    Enter(key);
    return IntoValue(node[key.text], MapValueOf(field));
  }

  // The place of a list that the next segment names; one past the end makes it longer.
  absl::StatusOr<Json*> Element(Json& node) {
    const Segment segment = segments_[next_];
    if (node.is_null()) node = Json::array();
    if (!node.is_array()) return At(path_, absl::StrCat("holds ", json::Describe(node)));
    std::size_t index = 0;
    const char* end = segment.text.data() + segment.text.size();
    const auto parsed = std::from_chars(segment.text.data(), end, index);
    if (parsed.ec != std::errc() || parsed.ptr != end || index > node.size() ||
        index >= kLongestList) {
      return At(path_,
                absl::StrCat("is a list of ", node.size(), "; \"", segment.text,
                             "\" is no index of it, write [", node.size(), "] to add to it"));
    }
    Enter(segment);
    if (index == node.size()) node.push_back(nullptr);
    return &node[index];
  }

  absl::Status IntoList(Json& node, const FieldDescriptor& field) {
    if (AtEnd()) return Set(node, /*is_text=*/false);
    ASSIGN_OR_RETURN(Json * element, Element(node));
    return IntoValue(*element, field);
  }

  absl::Status IntoRawJson(Json& node) {
    if (AtEnd()) return Set(node, /*is_text=*/false);
    if (node.is_array()) {
      ASSIGN_OR_RETURN(Json * element, Element(node));
      return IntoRawJson(*element);
    }
    RETURN_IF_ERROR(BecomeObject(node));
    const Segment segment = segments_[next_];
    Enter(segment);
    return IntoRawJson(node[segment.text]);
  }

  const std::vector<Segment> segments_;
  const std::string_view value_;
  std::size_t next_ = 0;
  std::string path_;
};

}  // namespace

absl::Status SetPath(Json& document, std::string_view path, std::string_view value) {
  ASSIGN_OR_RETURN(std::vector<Segment> segments, Split(path));
  if (segments.front().text == "status") {
    return At(path, "the status is written by the controller and cannot be set");
  }
  // Nothing of a refused path stays behind.
  Json edited = document;
  Walk walk(std::move(segments), value);
  RETURN_IF_ERROR(walk.IntoMessage(edited, *v1alpha1::TrainingJob::descriptor()));
  document = std::move(edited);
  return absl::OkStatus();
}

}  // namespace starling::spec
