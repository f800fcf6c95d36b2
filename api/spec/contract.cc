// SPDX-License-Identifier: Apache-2.0
#include "api/spec/contract.h"

#include <cctype>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/json/json.h"
#include "common/status/to_absl.h"
#include "nlohmann/json.hpp"
#include "re2/re2.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::spec {
namespace {

constexpr FormatRule kFormats[] = {
    {"dnsLabel", "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
     "lower-case letters, digits and '-', at most 63, beginning and ending with a letter or digit"},
    {"quantity", "[+-]?([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?",
     "a Kubernetes quantity such as 500m or 2Gi"},
    {"labelKey",
     "([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
     "a name of at most 63 letters, digits, '-', '_' and '.', perhaps after a domain and '/'"},
    {"labelValue", "([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?",
     "at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"},
};

}  // namespace

Kind KindOf(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_UINT64:
      return Kind::kInteger;
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT:
      return Kind::kNumber;
    case FieldDescriptor::CPPTYPE_BOOL:
      return Kind::kBoolean;
    case FieldDescriptor::CPPTYPE_ENUM:
      return Kind::kEnum;
    case FieldDescriptor::CPPTYPE_STRING:
      return RulesOf(field).raw_json() ? Kind::kRawJson : Kind::kString;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
  }
  if (field.is_map()) return KindOf(MapValueOf(field));
  const std::string& name = field.message_type()->full_name();
  if (name == "google.protobuf.Duration") return Kind::kDuration;
  if (name == "google.protobuf.Timestamp") return Kind::kTimestamp;
  return Kind::kMessage;
}

const FieldDescriptor& MapValueOf(const FieldDescriptor& map) {
  return *map.message_type()->map_value();
}

const v1alpha1::FieldRules& RulesOf(const FieldDescriptor& field) {
  return field.options().GetExtension(v1alpha1::rules);
}

const v1alpha1::UnionRules& RulesOf(const OneofDescriptor& oneof) {
  return oneof.options().GetExtension(v1alpha1::union_);
}

std::vector<const OneofDescriptor*> UnionsOf(const Descriptor& message) {
  std::vector<const OneofDescriptor*> unions;
  unions.reserve(static_cast<std::size_t>(message.real_oneof_decl_count()));
  for (int i = 0; i < message.real_oneof_decl_count(); ++i) unions.push_back(message.oneof_decl(i));
  return unions;
}

std::vector<std::string> MemberNames(const OneofDescriptor& oneof) {
  std::vector<std::string> names;
  names.reserve(static_cast<std::size_t>(oneof.field_count()) + 1);
  for (int i = 0; i < oneof.field_count(); ++i) names.push_back(oneof.field(i)->json_name());
  if (!RulesOf(oneof).list_member().empty()) names.push_back(RulesOf(oneof).list_member());
  return names;
}

const OneofDescriptor* UnionWith(const FieldDescriptor& field) {
  if (const OneofDescriptor* oneof = field.real_containing_oneof()) return oneof;
  for (const OneofDescriptor* oneof : UnionsOf(*field.containing_type())) {
    if (RulesOf(*oneof).list_member() == field.json_name()) return oneof;
  }
  return nullptr;
}

const FieldDescriptor* FindField(const Descriptor& message, std::string_view json_name) {
  for (int i = 0; i < message.field_count(); ++i) {
    if (message.field(i)->json_name() == json_name) return message.field(i);
  }
  return nullptr;
}

std::vector<std::string> FieldNames(const Descriptor& message) {
  std::vector<std::string> names;
  names.reserve(static_cast<std::size_t>(message.field_count()));
  for (int i = 0; i < message.field_count(); ++i) names.push_back(message.field(i)->json_name());
  return names;
}

std::string EnumText(const EnumValueDescriptor& value) {
  if (value.number() == 0) return "";
  // The zero value is called PREFIX_UNSPECIFIED; the prefix is every value's.
  const std::string& zero = value.type()->value(0)->name();
  const std::size_t prefix = zero.rfind("UNSPECIFIED");
  std::string text;
  bool starts_word = true;
  for (const char c : value.name().substr(prefix == std::string::npos ? 0 : prefix)) {
    if (c == '_') {
      starts_word = true;
      continue;
    }
    text += starts_word ? c : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    starts_word = false;
  }
  return text;
}

std::vector<std::string> EnumTexts(const EnumDescriptor& descriptor) {
  std::vector<std::string> texts;
  for (int i = 0; i < descriptor.value_count(); ++i) {
    if (descriptor.value(i)->number() != 0) texts.push_back(EnumText(*descriptor.value(i)));
  }
  return texts;
}

const EnumValueDescriptor* FindEnumValue(const EnumDescriptor& descriptor, std::string_view text) {
  for (int i = 0; i < descriptor.value_count(); ++i) {
    const EnumValueDescriptor& value = *descriptor.value(i);
    if (value.number() != 0 && EnumText(value) == text) return &value;
  }
  return nullptr;
}

const FormatRule* FindFormat(std::string_view name) {
  for (const FormatRule& format : kFormats) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

namespace {

// Jobs are read often, and compiling an expression costs many times what matching it does.
using Expressions = std::map<std::string, std::unique_ptr<const RE2>, std::less<>>;

void Compile(std::string_view pattern, Expressions& all) {
  RE2::Options options;
  options.set_log_errors(false);
  all.try_emplace(
      std::string(pattern),
      std::make_unique<const RE2>(re2::StringPiece(pattern.data(), pattern.size()), options));
}

void CompilePatternsOf(const Descriptor& descriptor, std::set<const Descriptor*>& seen,
                       Expressions& all) {
  if (!seen.insert(&descriptor).second) return;
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    if (!RulesOf(field).pattern().empty()) Compile(RulesOf(field).pattern(), all);
    if (field.message_type() != nullptr) CompilePatternsOf(*field.message_type(), seen, all);
  }
}

// All that the contract has.
Expressions CompileAll() {
  Expressions all;
  for (const FormatRule& format : kFormats) Compile(format.pattern, all);
  Compile(kDurationPattern, all);
  std::set<const Descriptor*> seen;
  CompilePatternsOf(*v1alpha1::TrainingJob::descriptor(), seen, all);
  return all;
}

}  // namespace

bool FullMatch(std::string_view text, std::string_view pattern) {
  static const Expressions& known = *new Expressions(CompileAll());
  const re2::StringPiece piece(text.data(), text.size());
  const auto found = known.find(pattern);
  if (found != known.end()) return RE2::FullMatch(piece, *found->second);
  Expressions other;
  Compile(pattern, other);
  return RE2::FullMatch(piece, *other.begin()->second);
}

absl::StatusOr<google::protobuf::Duration> ParseDuration(std::string_view text) {
  absl::Duration duration;
  if (text.size() > 64 || !FullMatch(text, kDurationPattern) ||
      !absl::ParseDuration(ToAbsl(text), &duration)) {
    return absl::InvalidArgumentError("must be a duration such as 500ms, 30s or 1h30m");
  }
  if (duration > absl::Hours(24) * 366 * 10'000) {
    return absl::InvalidArgumentError("must be a duration of at most ten thousand years");
  }
  google::protobuf::Duration result;
  result.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &duration));
  result.set_nanos(static_cast<std::int32_t>(absl::ToInt64Nanoseconds(duration)));
  return result;
}

std::string FormatDuration(const google::protobuf::Duration& duration) {
  return absl::FormatDuration(absl::Seconds(duration.seconds()) +
                              absl::Nanoseconds(duration.nanos()));
}

absl::StatusOr<google::protobuf::Timestamp> ParseTimestamp(std::string_view text) {
  absl::Time time;
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, ToAbsl(text), &time, &error) ||
      time == absl::InfiniteFuture() || time == absl::InfinitePast()) {
    return absl::InvalidArgumentError("must be a time such as 2026-01-31T12:00:00Z");
  }
  absl::Duration since = time - absl::UnixEpoch();
  google::protobuf::Timestamp result;
  const absl::Duration whole = absl::Floor(since, absl::Seconds(1));
  result.set_seconds(absl::ToInt64Seconds(whole));
  result.set_nanos(static_cast<std::int32_t>(absl::ToInt64Nanoseconds(since - whole)));
  return result;
}

std::string FormatTimestamp(const google::protobuf::Timestamp& timestamp) {
  const absl::Time time =
      absl::FromUnixSeconds(timestamp.seconds()) + absl::Nanoseconds(timestamp.nanos());
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E*SZ", time, absl::UTCTimeZone());
}

std::string NumberText(double number) {
  if (number == std::floor(number) && std::abs(number) <= static_cast<double>(kLargestInteger)) {
    return absl::StrCat(static_cast<std::int64_t>(number));
  }
  return json::Dump(number);
}

}  // namespace starling::spec
