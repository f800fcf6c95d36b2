// SPDX-License-Identifier: Apache-2.0
#include "api/spec/writer.h"

#include <cmath>
#include <string>
#include <utility>

#include "api/spec/contract.h"
#include "common/json/json.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"

namespace starling::spec {
namespace {

using google::protobuf::Message;
using google::protobuf::Reflection;
using Json = nlohmann::json;

constexpr int kSingular = -1;

// The value of a field, or of its element `index`; null if JSON has no way to say it.
class Value {
 public:
  Value(const Message& message, const FieldDescriptor& field, int index)
      : message_(message), reflection_(*message.GetReflection()), field_(field), index_(index) {}

  Json Write() const {
    switch (KindOf(field_)) {
      case Kind::kString:
        return Text();
      case Kind::kRawJson: {
        const auto value = json::Parse(Text());
        return value.ok() ? *value : Json(Text());
      }
      case Kind::kInteger:
        return Integer();
      case Kind::kNumber:
        return Number();
      case Kind::kBoolean:
        return index_ == kSingular ? reflection_.GetBool(message_, &field_)
                                   : reflection_.GetRepeatedBool(message_, &field_, index_);
      case Kind::kEnum:
        return Enum();
      case Kind::kDuration:
        return FormatDuration(Child<google::protobuf::Duration>());
      case Kind::kTimestamp:
        return FormatTimestamp(Child<google::protobuf::Timestamp>());
      case Kind::kMessage:
        return WriteMessage(Child<Message>());
    }
    return nullptr;
  }

 private:
  std::string Text() const {
    return index_ == kSingular ? reflection_.GetString(message_, &field_)
                               : reflection_.GetRepeatedString(message_, &field_, index_);
  }

  Json Integer() const {
    const bool one = index_ == kSingular;
    switch (field_.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return one ? reflection_.GetInt32(message_, &field_)
                   : reflection_.GetRepeatedInt32(message_, &field_, index_);
      case FieldDescriptor::CPPTYPE_UINT32:
        return one ? reflection_.GetUInt32(message_, &field_)
                   : reflection_.GetRepeatedUInt32(message_, &field_, index_);
      case FieldDescriptor::CPPTYPE_UINT64:
        return one ? reflection_.GetUInt64(message_, &field_)
                   : reflection_.GetRepeatedUInt64(message_, &field_, index_);
      default:
        return one ? reflection_.GetInt64(message_, &field_)
                   : reflection_.GetRepeatedInt64(message_, &field_, index_);
    }
  }

  Json Number() const {
    const bool one = index_ == kSingular;
    double number = 0;
    if (field_.cpp_type() == FieldDescriptor::CPPTYPE_FLOAT) {
      number = static_cast<double>(one ? reflection_.GetFloat(message_, &field_)
                                       : reflection_.GetRepeatedFloat(message_, &field_, index_));
    } else {
      number = one ? reflection_.GetDouble(message_, &field_)
                   : reflection_.GetRepeatedDouble(message_, &field_, index_);
    }
    return std::isfinite(number) ? Json(number) : Json(nullptr);
  }

  Json Enum() const {
    const EnumValueDescriptor& value =
        index_ == kSingular ? *reflection_.GetEnum(message_, &field_)
                            : *reflection_.GetRepeatedEnum(message_, &field_, index_);
    std::string text = EnumText(value);
    return text.empty() ? Json(nullptr) : Json(std::move(text));
  }

  template <typename T>
  const T& Child() const {
    return static_cast<const T&>(index_ == kSingular
                                     ? reflection_.GetMessage(message_, &field_)
                                     : reflection_.GetRepeatedMessage(message_, &field_, index_));
  }

  const Message& message_;
  const Reflection& reflection_;
  const FieldDescriptor& field_;
  const int index_;
};

Json WriteMap(const Message& message, const FieldDescriptor& field) {
  Json object = Json::object();
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    const Message& entry = reflection.GetRepeatedMessage(message, &field, i);
    const std::string key =
        entry.GetReflection()->GetString(entry, field.message_type()->map_key());
    Json value = Value(entry, MapValueOf(field), kSingular).Write();
    if (!value.is_null()) object[key] = std::move(value);
  }
  return object;
}

Json WriteList(const Message& message, const FieldDescriptor& field) {
  Json list = Json::array();
  for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
    list.push_back(Value(message, field, i).Write());
  }
  return list;
}

}  // namespace

Json WriteMessage(const Message& message) {
  std::vector<const FieldDescriptor*> present;
  message.GetReflection()->ListFields(message, &present);
  Json object = Json::object();
  for (const FieldDescriptor* field : present) {
    Json value = field->is_map()        ? WriteMap(message, *field)
                 : field->is_repeated() ? WriteList(message, *field)
                                        : Value(message, *field, kSingular).Write();
    if (!value.is_null()) object[field->json_name()] = std::move(value);
  }
  return object;
}

}  // namespace starling::spec
