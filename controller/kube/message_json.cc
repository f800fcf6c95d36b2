// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/message_json.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "controller/kube/messages.h"
#include "controller/kube/objects.h"

namespace starling::kube {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Reflection;

constexpr int kText = 1;  // IntOrString.type

template <typename Stamp>
bool ReadStamp(const Json& json, Message& message) {
  if (message.GetDescriptor() != Stamp::descriptor()) return false;
  const auto time = json.is_string() ? ParseTimestamp(json.get_ref<const std::string&>())
                                     : std::optional<absl::Time>();
  if (time.has_value()) SetTime(&static_cast<Stamp&>(message), *time);
  return true;
}

// Nothing of what is no whole number, or not of 32 bits.
std::optional<std::int32_t> ReadInt32(const Json& json) {
  if (!json.is_number_integer()) return std::nullopt;
  const auto value = json.get<std::int64_t>();
  if (value < std::numeric_limits<std::int32_t>::min() ||
      value > std::numeric_limits<std::int32_t>::max()) {
    return std::nullopt;
  }
  return static_cast<std::int32_t>(value);
}

bool ReadIntOrString(const Json& json, Message& message) {
  if (message.GetDescriptor() != kubernetes::IntOrString::descriptor()) return false;
  auto& value = static_cast<kubernetes::IntOrString&>(message);
  if (json.is_string()) {
    value.set_type(kText);
    value.set_str_val(json.get<std::string>());
  } else if (const auto number = ReadInt32(json)) {
    value.set_type(0);
    value.set_int_val(*number);
  }
  return true;
}

bool ReadQuantity(const Json& json, Message& message) {
  if (message.GetDescriptor() != kubernetes::Quantity::descriptor()) return false;
  auto& quantity = static_cast<kubernetes::Quantity&>(message);
  if (json.is_string()) quantity.set_string(json.get<std::string>());
  if (json.is_number()) quantity.set_string(json.dump());
  return true;
}

// Whether the API writes such a message as a scalar; if so, it has been read.
bool ReadAsScalar(const Json& json, Message& message) {
  return ReadStamp<kubernetes::Time>(json, message) ||
         ReadStamp<kubernetes::MicroTime>(json, message) || ReadIntOrString(json, message) ||
         ReadQuantity(json, message);
}

std::optional<std::string> ReadText(const FieldDescriptor& field, const Json& json) {
  if (!json.is_string()) return std::nullopt;
  const auto& text = json.get_ref<const std::string&>();
  if (field.type() != FieldDescriptor::TYPE_BYTES) return text;
  std::string bytes;
  if (!absl::Base64Unescape(text, &bytes)) return std::nullopt;
  return bytes;
}

void ReadScalar(const FieldDescriptor& field, const Json& json, Message& message) {
  const Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      if (auto text = ReadText(field, json)) {
        if (field.is_repeated()) return reflection.AddString(&message, &field, *std::move(text));
        reflection.SetString(&message, &field, *std::move(text));
      }
      return;
    case FieldDescriptor::CPPTYPE_BOOL:
      if (json.is_boolean()) reflection.SetBool(&message, &field, json.get<bool>());
      return;
    case FieldDescriptor::CPPTYPE_INT64:
      if (json.is_number_integer()) reflection.SetInt64(&message, &field, json.get<std::int64_t>());
      return;
    case FieldDescriptor::CPPTYPE_INT32:
      if (const auto value = ReadInt32(json)) reflection.SetInt32(&message, &field, *value);
      return;
    default:
      return;  // no other type is used
  }
}

void ReadMap(const FieldDescriptor& field, const Json& json, Message& message) {
  if (!json.is_object()) return;
  const FieldDescriptor& value_field = *field.message_type()->map_value();
  for (const auto& [key, value] : json.items()) {
    const bool fits = value_field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE
                          ? value.is_string() || value.is_number()
                          : ReadText(value_field, value).has_value();
    if (!fits) continue;
    Message& entry = *message.GetReflection()->AddMessage(&message, &field);
    const Reflection& reflection = *entry.GetReflection();
    reflection.SetString(&entry, field.message_type()->map_key(), key);
    if (value_field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      FromJson(value, *reflection.MutableMessage(&entry, &value_field));
    } else {
      ReadScalar(value_field, value, entry);
    }
  }
}

void ReadField(const FieldDescriptor& field, const Json& json, Message& message) {
  const Reflection& reflection = *message.GetReflection();
  if (field.is_map()) return ReadMap(field, json, message);
  const bool nested = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  if (field.is_repeated()) {
    if (!json.is_array()) return;
    for (const Json& item : json) {
      if (!nested) {
        ReadScalar(field, item, message);
      } else if (item.is_object()) {
        FromJson(item, *reflection.AddMessage(&message, &field));
      }
    }
  } else if (!nested) {
    ReadScalar(field, json, message);
  } else if (!json.is_null()) {
    Message& read = *reflection.MutableMessage(&message, &field);
    FromJson(json, read);
    // A time that is none is not there.
    if (!json.is_object() && read.ByteSizeLong() == 0) reflection.ClearField(&message, &field);
  }
}

template <typename Stamp>
std::optional<Json> WriteStamp(const Message& message, std::string (*format)(absl::Time)) {
  if (message.GetDescriptor() != Stamp::descriptor()) return std::nullopt;
  const auto& stamp = static_cast<const Stamp&>(message);
  // The API server sends a time that was never set as an empty message.
  return stamp.has_seconds() ? Json(format(ToTime(stamp))) : Json();
}

std::optional<Json> WriteAsScalar(const Message& message) {
  if (auto time = WriteStamp<kubernetes::Time>(message, FormatTimestamp)) return time;
  if (auto time = WriteStamp<kubernetes::MicroTime>(message, FormatMicroTimestamp)) return time;
  if (message.GetDescriptor() == kubernetes::Quantity::descriptor()) {
    return static_cast<const kubernetes::Quantity&>(message).string();
  }
  if (message.GetDescriptor() == kubernetes::IntOrString::descriptor()) {
    const auto& value = static_cast<const kubernetes::IntOrString&>(message);
    if (value.type() == kText) return Json(value.str_val());
    return Json(value.int_val());
  }
  return std::nullopt;
}

// `index`: of a repeated field; -1: it is none.
Json WriteValue(const FieldDescriptor& field, const Message& message, int index) {
  const Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string text = index < 0 ? reflection.GetString(message, &field)
                                         : reflection.GetRepeatedString(message, &field, index);
      return field.type() == FieldDescriptor::TYPE_BYTES ? absl::Base64Escape(text) : text;
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field);
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.GetInt64(message, &field);
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.GetInt32(message, &field);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ToJson(index < 0 ? reflection.GetMessage(message, &field)
                              : reflection.GetRepeatedMessage(message, &field, index));
    default:
      return {};
  }
}

Json WriteRepeated(const FieldDescriptor& field, const Message& message) {
  const Reflection& reflection = *message.GetReflection();
  Json all = field.is_map() ? Json::object() : Json::array();
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    if (!field.is_map()) {
      all.push_back(WriteValue(field, message, i));
      continue;
    }
    const Message& entry = reflection.GetRepeatedMessage(message, &field, i);
    const std::string key =
        entry.GetReflection()->GetString(entry, field.message_type()->map_key());
    all[key] = WriteValue(*field.message_type()->map_value(), entry, -1);
  }
  return all;
}

}  // namespace

void FromJson(const Json& json, Message& message) {
  message.Clear();
  if (ReadAsScalar(json, message) || !json.is_object()) return;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const auto found = json.find(field.json_name());
    if (found != json.end()) ReadField(field, *found, message);
  }
}

MessagePtr FromJson(const ResourceKind& kind, const Json& json) {
  std::unique_ptr<Message> message = NewMessage(kind);
  FromJson(json, *message);
  return message;
}

Json ToJson(const Message& message) {
  if (auto scalar = WriteAsScalar(message)) return *std::move(scalar);
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  Json json = Json::object();
  for (const FieldDescriptor* field : fields) {
    Json value =
        field->is_repeated() ? WriteRepeated(*field, message) : WriteValue(*field, message, -1);
    if (!value.is_null()) json[field->json_name()] = std::move(value);
  }
  return json;
}

Json ToJson(const ResourceKind& kind, const Message& message) {
  Json json = ToJson(message);
  json["apiVersion"] = kind.ApiVersion();
  json["kind"] = std::string(kind.kind);
  return json;
}

}  // namespace starling::kube
