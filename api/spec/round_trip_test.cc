// SPDX-License-Identifier: Apache-2.0
// Every field of the contract, filled by reflection, comes back from our JSON as it was.
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "api/spec/contract.h"
#include "api/spec/reader.h"
#include "api/spec/writer.h"
#include "common/json/json.h"
#include "google/protobuf/message.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::spec {
namespace {

using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::util::MessageDifferencer;

// A message whose only present field, at every level, is the one that `path` leads to.
struct Case {
  std::string name;
  std::vector<const FieldDescriptor*> path;
};

void Collect(const Descriptor& descriptor, std::vector<const FieldDescriptor*>& path,
             std::vector<Case>& cases) {
  for (int i = 0; i < descriptor.field_count(); ++i) {
    path.push_back(descriptor.field(i));
    Case entry{"", path};
    for (const FieldDescriptor* field : path) entry.name += field->camelcase_name() + "_";
    entry.name.pop_back();
    cases.push_back(entry);
    const FieldDescriptor& value = path.back()->is_map() ? MapValueOf(*path.back()) : *path.back();
    if (KindOf(value) == Kind::kMessage) Collect(*value.message_type(), path, cases);
    path.pop_back();
  }
}

std::vector<Case> AllFields() {
  std::vector<Case> cases;
  std::vector<const FieldDescriptor*> path;
  Collect(*v1alpha1::TrainingJob::descriptor(), path, cases);
  return cases;
}

void Fill(Message& message, const std::vector<const FieldDescriptor*>& path, std::size_t at);

void FillScalar(Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  switch (KindOf(field)) {
    case Kind::kString:
      return field.is_repeated() ? reflection.AddString(&message, &field, "tëxt \"1\"\n")
                                 : reflection.SetString(&message, &field, "tëxt \"1\"\n");
    case Kind::kRawJson:
      return reflection.SetString(&message, &field, R"({"spec":{"list":[1,2.5,null,{}]}})");
    case Kind::kInteger:
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
        return reflection.SetInt32(&message, &field, std::numeric_limits<std::int32_t>::min());
      }
      return field.is_repeated() ? reflection.AddInt64(&message, &field, -kLargestInteger)
                                 : reflection.SetInt64(&message, &field, -kLargestInteger);
    case Kind::kNumber:
      return field.is_repeated() ? reflection.AddDouble(&message, &field, 0.1)
                                 : reflection.SetDouble(&message, &field, 0.1);
    case Kind::kBoolean:
      return reflection.SetBool(&message, &field, false);  // given, and not what is not given
    case Kind::kEnum:
      return reflection.SetEnumValue(&message, &field, 2);
    case Kind::kDuration: {
      auto duration = ParseDuration("1h0m2.000000003s");
      return reflection.MutableMessage(&message, &field)->CopyFrom(*duration);
    }
    case Kind::kTimestamp: {
      auto time = ParseTimestamp("2026-01-31T12:00:00.000000001Z");
      return reflection.MutableMessage(&message, &field)->CopyFrom(*time);
    }
    case Kind::kMessage:
      break;
  }
}

void Fill(Message& message, const std::vector<const FieldDescriptor*>& path, std::size_t at) {
  const FieldDescriptor& field = *path[at];
  const Reflection& reflection = *message.GetReflection();
  Message* holder = &message;
  const FieldDescriptor* value = &field;
  if (field.is_map()) {
    holder = reflection.AddMessage(&message, &field);
    holder->GetReflection()->SetString(holder, field.message_type()->map_key(), "a.b/c");
    value = &MapValueOf(field);
  }
  if (KindOf(*value) != Kind::kMessage) return FillScalar(*holder, *value);
  const Reflection& inner = *holder->GetReflection();
  Message* child =
      value->is_repeated() ? inner.AddMessage(holder, value) : inner.MutableMessage(holder, value);
  if (at + 1 < path.size()) Fill(*child, path, at + 1);
}

class EveryField : public ::testing::TestWithParam<Case> {};

TEST_P(EveryField, ComesBackFromOurJsonAsItWas) {
  v1alpha1::TrainingJob job;
  Fill(job, GetParam().path, 0);

  const std::string text = json::Dump(WriteMessage(job));
  v1alpha1::TrainingJob read;
  const FieldErrors errors = ReadMessage(json::Parse(text).value(), "", read,
                                         {.check_rules = false, .check_required = false});

  EXPECT_EQ(Format(errors), "") << text;
  EXPECT_TRUE(MessageDifferencer::Equals(job, read)) << text << "\n" << read.ShortDebugString();
  for (const FieldDescriptor* field : GetParam().path) {
    EXPECT_NE(text.find('"' + field->json_name() + '"'), std::string::npos) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Contract, EveryField, ::testing::ValuesIn(AllFields()),
                         [](const auto& test) { return test.param.name; });

TEST(RoundTrip, CoversTheWholeContract) { EXPECT_GT(AllFields().size(), 120U); }

TEST(RoundTrip, ADifferenceIsSeenSoTheCheckCanFail) {
  v1alpha1::TrainingJob given, empty;
  given.mutable_spec()->set_reproducible(false);
  empty.mutable_spec();
  EXPECT_FALSE(MessageDifferencer::Equals(given, empty));
  EXPECT_NE(WriteMessage(given), WriteMessage(empty));
}

TEST(Writer, LeavesOutWhatJsonCannotSay) {
  v1alpha1::Progress progress;
  progress.set_loss(std::numeric_limits<double>::quiet_NaN());
  progress.set_step(3);
  (*progress.mutable_metrics())["a"] = std::numeric_limits<double>::infinity();
  (*progress.mutable_metrics())["b"] = 1.5;
  EXPECT_EQ(json::Dump(WriteMessage(progress)), R"({"metrics":{"b":1.5},"step":3})");
}

// What a writer and a reader must both know of each field of the contract.
void CheckRulesOf(const Descriptor& descriptor) {
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    const auto& rules = RulesOf(field);
    EXPECT_TRUE(rules.pattern().empty() || !FullMatch("\x01", rules.pattern()))
        << field.full_name();
    for (const std::string& bound : {rules.minimum_duration(), rules.maximum_duration()}) {
      EXPECT_TRUE(bound.empty() || ParseDuration(bound).ok()) << field.full_name();
    }
    EXPECT_TRUE(rules.default_value().empty() || json::Parse(rules.default_value()).ok())
        << field.full_name();
    EXPECT_FALSE(rules.required() && !rules.default_value().empty()) << field.full_name();
    if (!field.is_map() && KindOf(field) == Kind::kMessage) CheckRulesOf(*field.message_type());
  }
}

TEST(Contract, RulesAreWellFormed) { CheckRulesOf(*v1alpha1::TrainingJob::descriptor()); }

}  // namespace
}  // namespace starling::spec
