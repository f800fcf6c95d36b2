// SPDX-License-Identifier: Apache-2.0
#include "api/spec/reader.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/spec/contract.h"
#include "api/spec/field_check.h"
#include "common/json/json.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"

namespace starling::spec {
namespace {

using google::protobuf::Message;
using google::protobuf::Reflection;
using Json = nlohmann::json;

// Where a value goes: a singular field is set, a repeated one grows by one.
class Target {
 public:
  Target(Message& message, const FieldDescriptor& field)
      : message_(message), reflection_(*message.GetReflection()), field_(field) {}

  void SetText(std::string text) const {
    if (field_.is_repeated()) {
      reflection_.AddString(&message_, &field_, std::move(text));
    } else {
      reflection_.SetString(&message_, &field_, std::move(text));
    }
  }
  void SetBool(bool value) const {
    if (field_.is_repeated()) {
      reflection_.AddBool(&message_, &field_, value);
    } else {
      reflection_.SetBool(&message_, &field_, value);
    }
  }
  void SetEnum(const EnumValueDescriptor& value) const {
    if (field_.is_repeated()) {
      reflection_.AddEnum(&message_, &field_, &value);
    } else {
      reflection_.SetEnum(&message_, &field_, &value);
    }
  }
  void SetNumber(double value) const {
    const bool list = field_.is_repeated();
    if (field_.cpp_type() == FieldDescriptor::CPPTYPE_FLOAT) {
      const auto number = static_cast<float>(value);
      list ? reflection_.AddFloat(&message_, &field_, number)
           : reflection_.SetFloat(&message_, &field_, number);
    } else {
      list ? reflection_.AddDouble(&message_, &field_, value)
           : reflection_.SetDouble(&message_, &field_, value);
    }
  }
  // False if the field's type does not hold the value.
  template <typename Integer>
  bool SetInteger(Integer value) const {
    const bool list = field_.is_repeated();
    switch (field_.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        if (!std::in_range<std::int32_t>(value)) return false;
        list ? reflection_.AddInt32(&message_, &field_, static_cast<std::int32_t>(value))
             : reflection_.SetInt32(&message_, &field_, static_cast<std::int32_t>(value));
        return true;
      case FieldDescriptor::CPPTYPE_UINT32:
        if (!std::in_range<std::uint32_t>(value)) return false;
        list ? reflection_.AddUInt32(&message_, &field_, static_cast<std::uint32_t>(value))
             : reflection_.SetUInt32(&message_, &field_, static_cast<std::uint32_t>(value));
        return true;
      case FieldDescriptor::CPPTYPE_UINT64:
        if (!std::in_range<std::uint64_t>(value)) return false;
        list ? reflection_.AddUInt64(&message_, &field_, static_cast<std::uint64_t>(value))
             : reflection_.SetUInt64(&message_, &field_, static_cast<std::uint64_t>(value));
        return true;
      default:
        if (!std::in_range<std::int64_t>(value)) return false;
        list ? reflection_.AddInt64(&message_, &field_, static_cast<std::int64_t>(value))
             : reflection_.SetInt64(&message_, &field_, static_cast<std::int64_t>(value));
        return true;
    }
  }
  Message& MutableMessage() const {
    return *(field_.is_repeated() ? reflection_.AddMessage(&message_, &field_)
                                  : reflection_.MutableMessage(&message_, &field_));
  }

 private:
  Message& message_;
  const Reflection& reflection_;
  const FieldDescriptor& field_;
};

// Confined to one call of ReadMessage. Recursion follows the contract, which has no cycles.
class Reader {
 public:
  explicit Reader(const ReadOptions& options) : options_(options) {}

  void Read(const Json& value, const std::string& path, Message& out) {
    if (!value.is_object()) return WrongType(path, "an object", value);
    const Descriptor& descriptor = *out.GetDescriptor();
    for (const auto& [name, member] : value.items()) {
      const FieldDescriptor* field = FindField(descriptor, name);
      if (field == nullptr) {
        UnknownField(path, name, descriptor);
      } else if (!member.is_null()) {
        ReadField(member, JoinPath(path, name), *field, out);
      }
    }
    CheckPresence(value, path, descriptor);
  }

  FieldErrors Take() { return std::move(errors_); }

 private:
  void Error(const std::string& path, std::string message) {
    errors_.push_back({path, std::move(message)});
  }
  // Adds what a check said, if it said anything and rules are asked for.
  void Check(const std::string& path, std::string message) {
    if (options_.check_rules && !message.empty()) Error(path, std::move(message));
  }
  void WrongType(const std::string& path, std::string_view wanted, const Json& value) {
    Error(path, absl::StrCat("must be ", std::string(wanted), ", not ", json::Describe(value)));
  }

  void UnknownField(const std::string& path, const std::string& name,
                    const Descriptor& descriptor) {
    if (options_.ignore_unknown) return;
    Error(JoinPath(path, name),
          absl::StrCat("unknown field", DidYouMean(name, FieldNames(descriptor))));
  }

  static bool Given(const Json& value, const std::string& name) {
    const auto member = value.find(name);
    return member != value.end() && !member->is_null();
  }

  // The same of a path below, such as "workload.container".
  static bool GivenAt(const Json& value, const std::string& path) {
    if (!value.is_object()) return false;
    const std::size_t dot = std::min(path.find('.'), path.size());
    const std::string name = path.substr(0, dot);
    if (!Given(value, name)) return false;
    return dot == path.size() || GivenAt(value.at(name), path.substr(dot + 1));
  }

  static bool IsRequired(const v1alpha1::FieldRules& rules, const Json& value) {
    const auto given = [&value](const std::string& path) { return GivenAt(value, path); };
    return rules.required() || (!rules.required_unless().empty() &&
                                std::ranges::none_of(rules.required_unless(), given));
  }

  void CheckPresence(const Json& value, const std::string& path, const Descriptor& descriptor) {
    for (const OneofDescriptor* oneof : UnionsOf(descriptor)) CheckUnion(value, path, *oneof);
    if (!options_.check_required) return;
    for (int i = 0; i < descriptor.field_count(); ++i) {
      const FieldDescriptor& field = *descriptor.field(i);
      if (IsRequired(RulesOf(field), value) && !Given(value, field.json_name())) {
        Error(JoinPath(path, field.json_name()), "is required and missing");
      }
    }
  }

  void CheckUnion(const Json& value, const std::string& path, const OneofDescriptor& oneof) {
    std::vector<std::string> given;
    const std::vector<std::string> members = MemberNames(oneof);
    for (const std::string& name : members) {
      if (Given(value, name)) given.push_back(name);
    }
    if (given.size() > 1) {
      Error(path, absl::StrCat("holds ", absl::StrJoin(given, " and "),
                               "; leave one of them, they exclude one another"));
    }
    if (given.empty() && RulesOf(oneof).required() && options_.check_required) {
      Error(path, members.size() == 1
                      ? absl::StrCat("must hold ", members.front())
                      : absl::StrCat("must hold exactly one of ", absl::StrJoin(members, ", ")));
    }
  }

  void ReadField(const Json& value, const std::string& path, const FieldDescriptor& field,
                 Message& out) {
    if (field.is_map()) return ReadMap(value, path, field, out);
    if (!field.is_repeated()) return ReadValue(value, path, field, RulesOf(field), out);
    if (!value.is_array()) return WrongType(path, "a list", value);
    Check(path, CheckSize(RulesOf(field), value.size()));
    for (std::size_t i = 0; i < value.size(); ++i) {
      ReadValue(value[i], JoinPath(path, i), field, RulesOf(field), out);
    }
  }

  void ReadMap(const Json& value, const std::string& path, const FieldDescriptor& field,
               Message& out) {
    if (!value.is_object()) return WrongType(path, "an object", value);
    Check(path, CheckSize(RulesOf(field), value.size()));
    for (const auto& [key, member] : value.items()) {
      const std::string member_path = JoinPath(path, key);
      Check(member_path, CheckMapKey(RulesOf(field), key));
      if (member.is_null()) continue;
      Message& entry = *out.GetReflection()->AddMessage(&out, &field);
      entry.GetReflection()->SetString(&entry, field.message_type()->map_key(), key);
      ReadValue(member, member_path, MapValueOf(field), RulesOf(field), entry);
    }
  }

  void ReadValue(const Json& value, const std::string& path, const FieldDescriptor& field,
                 const v1alpha1::FieldRules& rules, Message& out) {
    const Target target(out, field);
    switch (KindOf(field)) {
      case Kind::kString:
        return ReadText(value, path, rules, target);
      case Kind::kRawJson:
        return ReadRawJson(value, path, rules, target);
      case Kind::kInteger:
        return ReadInteger(value, path, rules, target);
      case Kind::kNumber:
        return ReadNumber(value, path, rules, target);
      case Kind::kBoolean:
        if (!value.is_boolean()) return WrongType(path, "true or false", value);
        return target.SetBool(value.get<bool>());
      case Kind::kEnum:
        return ReadEnum(value, path, *field.enum_type(), target);
      case Kind::kDuration:
        return ReadDuration(value, path, rules, target);
      case Kind::kTimestamp:
        return ReadTimestamp(value, path, target);
      case Kind::kMessage:
        return Read(value, path, target.MutableMessage());
    }
  }

  void ReadText(const Json& value, const std::string& path, const v1alpha1::FieldRules& rules,
                const Target& target) {
    if (value.is_number() || value.is_boolean()) {
      return Error(path, absl::StrCat("must be text, not ", json::Describe(value),
                                      "; put it in quotes: \"", json::Dump(value), "\""));
    }
    if (!value.is_string()) return WrongType(path, "text", value);
    const auto& text = value.get_ref<const std::string&>();
    Check(path, CheckText(rules, text));
    target.SetText(text);
  }

  void ReadRawJson(const Json& value, const std::string& path, const v1alpha1::FieldRules& rules,
                   const Target& target) {
    if (!value.is_object()) return WrongType(path, "an object", value);
    std::string text = json::Dump(value);
    if (rules.max_length() != 0 && text.size() > rules.max_length()) {
      Check(path, absl::StrCat("must be at most ", rules.max_length(), " bytes of JSON, not ",
                               text.size()));
    }
    target.SetText(std::move(text));
  }

  void ReadInteger(const Json& value, const std::string& path, const v1alpha1::FieldRules& rules,
                   const Target& target) {
    if (!value.is_number()) return WrongType(path, "a whole number", value);
    const double number = value.get<double>();
    const bool too_large = options_.check_rules &&
                           std::abs(number) >= static_cast<double>(kLargestInteger) &&
                           value != kLargestInteger && value != -kLargestInteger;
    if (too_large) return Error(path, TooLarge(rules));
    if (value.is_number_float()) return WrongType(path, "a whole number", value);
    Check(path, CheckNumber(rules, number));
    const bool fits = value.is_number_unsigned() ? target.SetInteger(value.get<std::uint64_t>())
                                                 : target.SetInteger(value.get<std::int64_t>());
    if (!fits) Error(path, TooLarge(rules));
  }

  static std::string TooLarge(const v1alpha1::FieldRules& rules) {
    if (rules.has_minimum() && rules.has_maximum()) {
      return absl::StrCat("must be a whole number from ", NumberText(rules.minimum()), " to ",
                          NumberText(rules.maximum()));
    }
    return absl::StrCat("must be a whole number of at most ", kLargestInteger, " (2^53)");
  }

  void ReadNumber(const Json& value, const std::string& path, const v1alpha1::FieldRules& rules,
                  const Target& target) {
    if (!value.is_number()) return WrongType(path, "a number", value);
    const double number = value.get<double>();
    if (!std::isfinite(number)) return WrongType(path, "a finite number", value);
    Check(path, CheckNumber(rules, number));
    target.SetNumber(number);
  }

  void ReadEnum(const Json& value, const std::string& path, const EnumDescriptor& descriptor,
                const Target& target) {
    const std::vector<std::string> texts = EnumTexts(descriptor);
    const std::string wanted = absl::StrCat("must be one of ", absl::StrJoin(texts, ", "));
    if (!value.is_string()) {
      return Error(path, absl::StrCat(wanted, ", not ", json::Describe(value)));
    }
    const auto& text = value.get_ref<const std::string&>();
    if (const EnumValueDescriptor* found = FindEnumValue(descriptor, text)) {
      return target.SetEnum(*found);
    }
    if (options_.ignore_unknown) return;
    Error(path, absl::StrCat(wanted, ", not ", json::Describe(value), DidYouMean(text, texts)));
  }

  void ReadDuration(const Json& value, const std::string& path, const v1alpha1::FieldRules& rules,
                    const Target& target) {
    if (!value.is_string()) {
      return WrongType(path, "a duration such as 500ms, 30s or 1h30m", value);
    }
    const auto duration = ParseDuration(value.get_ref<const std::string&>());
    if (!duration.ok()) {
      return Error(path, absl::StrCat(std::string(duration.status().message()), ", not ",
                                      json::Describe(value)));
    }
    Check(path, CheckDuration(rules, *duration));
    target.MutableMessage().CopyFrom(*duration);
  }

  void ReadTimestamp(const Json& value, const std::string& path, const Target& target) {
    if (!value.is_string()) return WrongType(path, "a time such as 2026-01-31T12:00:00Z", value);
    const auto time = ParseTimestamp(value.get_ref<const std::string&>());
    if (!time.ok()) {
      return Error(path, absl::StrCat(std::string(time.status().message()), ", not ",
                                      json::Describe(value)));
    }
    target.MutableMessage().CopyFrom(*time);
  }

  const ReadOptions options_;
  FieldErrors errors_;
};

}  // namespace

FieldErrors ReadMessage(const Json& value, std::string_view path, Message& out,
                        const ReadOptions& options) {
  out.Clear();
  Reader reader(options);
  reader.Read(value, std::string(path), out);
  return reader.Take();
}

}  // namespace starling::spec
