// SPDX-License-Identifier: Apache-2.0
// How the contract's descriptors are read: the rules beside fields, the names that users write, and
// the text forms of enums, durations and times. Reader, writer, resolver, explanation and the
// schema generator all ask here, so that they cannot disagree. To add a kind of value, add it to
// Kind and let the compiler name the places.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"
#include "starling/v1alpha1/options.pb.h"

namespace starling::spec {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::OneofDescriptor;

// What one value of a field is (for a list or map: each of its values).
enum class Kind {
  kString,
  kRawJson,
  kInteger,
  kNumber,
  kBoolean,
  kEnum,
  kDuration,
  kTimestamp,
  kMessage
};

Kind KindOf(const FieldDescriptor& field);
const FieldDescriptor& MapValueOf(const FieldDescriptor& map);  // the value's own descriptor

const v1alpha1::FieldRules& RulesOf(const FieldDescriptor& field);
const v1alpha1::UnionRules& RulesOf(const OneofDescriptor& oneof);

// The message's unions, without the synthetic ones that `optional` makes.
std::vector<const OneofDescriptor*> UnionsOf(const Descriptor& message);
// With the list that counts as one (UnionRules.list_member), if there is one.
std::vector<std::string> MemberNames(const OneofDescriptor& oneof);
// The union that the field is a member of; null if it is in none.
const OneofDescriptor* UnionWith(const FieldDescriptor& field);

// Fields by the name that users write; null if there is none.
const FieldDescriptor* FindField(const Descriptor& message, std::string_view json_name);
std::vector<std::string> FieldNames(const Descriptor& message);

// OnFailure for RESTART_POLICY_ON_FAILURE; empty for the zero value, which nobody writes.
std::string EnumText(const EnumValueDescriptor& value);
std::vector<std::string> EnumTexts(const EnumDescriptor& descriptor);
const EnumValueDescriptor* FindEnumValue(const EnumDescriptor& descriptor, std::string_view text);

// The largest whole number that every JSON reader keeps exactly, and that we therefore take.
inline constexpr std::int64_t kLargestInteger = std::int64_t{1} << 53;
// For strings, lists and maps whose rules name no bound.
inline constexpr std::uint32_t kDefaultMaxLength = 32768;
inline constexpr std::uint32_t kDefaultMaxItems = 1024;

// Patterns that the whole string matches, in the syntax that RE2 and the API server share.
inline constexpr std::string_view kDurationPattern = "0|([0-9]+(\\.[0-9]+)?(ns|us|ms|s|m|h))+";

struct FormatRule {
  std::string_view name, pattern, hint;
};
// The known values of FieldRules.format that a pattern can say; null if there is none.
const FormatRule* FindFormat(std::string_view name);

// Whether all of `text` matches; false too for a pattern that RE2 does not take.
bool FullMatch(std::string_view text, std::string_view pattern);

// Durations as Go writes them, not negative, at most ten thousand years; to the nanosecond.
absl::StatusOr<google::protobuf::Duration> ParseDuration(std::string_view text);
std::string FormatDuration(const google::protobuf::Duration& duration);

// RFC 3339, to the nanosecond, in UTC when written.
absl::StatusOr<google::protobuf::Timestamp> ParseTimestamp(std::string_view text);
std::string FormatTimestamp(const google::protobuf::Timestamp& timestamp);

// A bound as people write it: 3, not 3.0; 0.05.
std::string NumberText(double number);

}  // namespace starling::spec
