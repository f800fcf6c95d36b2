// SPDX-License-Identifier: Apache-2.0
#include "api/spec/explain.h"

#include <string>

#include "api/spec/documentation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::spec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string ErrorOf(std::string_view path) {
  const auto text = Explain(path);
  EXPECT_EQ(text.status().code(), absl::StatusCode::kNotFound);
  return std::string(text.status().message());
}

TEST(Explain, ShowsAUnionWithItsMembersAndDefault) {
  const std::string text = Explain("spec.optimizer").value();
  EXPECT_THAT(text, AllOf(HasSubstr("FIELD: optimizer <Optimizer>"),
                          HasSubstr("How parameters follow gradients"),
                          HasSubstr("(at most one of sgd, adam, adamW, rmsProp,"),
                          HasSubstr("  adamW\t<Adam>\n    AdamW (Loshchilov"),
                          HasSubstr("  schedule\t<LearningRateSchedule>")));
}

TEST(Explain, ShowsAScalarWithItsRules) {
  const std::string text = Explain("spec.optimizer.sgd.learningRate").value();
  EXPECT_THAT(text, AllOf(HasSubstr("FIELD: learningRate <number>"), HasSubstr("Step size."),
                          HasSubstr("more than 0; at most 1000; default: 0.05")));
  EXPECT_THAT(text, Not(HasSubstr("FIELDS")));
}

TEST(Explain, ShowsTheValuesOfAnEnum) {
  const std::string text = Explain("spec.replicaSpecs.worker.restartPolicy").value();
  EXPECT_THAT(text, AllOf(HasSubstr("one of OnFailure, ExitCode, Never"),
                          HasSubstr("  ExitCode\n    Exit codes 1 to 127 fail the job")));
}

TEST(Explain, ShowsTheWholeObject) {
  for (const char* path : {"", "tj", "trainingjob", "trainingjobs."}) {
    EXPECT_THAT(Explain(path).value(), HasSubstr("  spec\t<TrainingJobSpec> -required-")) << path;
  }
  EXPECT_EQ(Explain("tj.spec.seed").value(), Explain("spec.seed").value());
}

TEST(Explain, GoesThroughListsAndMaps) {
  EXPECT_THAT(Explain("status.incidents[3].pod").value(), HasSubstr("FIELD: pod <string>"));
  EXPECT_THAT(Explain("status.conditions").value(), HasSubstr("<[Condition]>"));
  EXPECT_THAT(Explain("status.replicaStatuses").value(), HasSubstr("  active\t<integer>"));
  EXPECT_THAT(Explain("metadata.labels").value(), HasSubstr("<map[string]string>"));
}

TEST(Explain, SuggestsTheNearestField) {
  EXPECT_EQ(ErrorOf("spec.optimiser"),
            "spec.optimiser: unknown field, did you mean \"optimizer\"?");
  EXPECT_EQ(ErrorOf("spec.seed.x"), "spec.seed: is integer and has no fields");
  EXPECT_THAT(ErrorOf(std::string(10000, 'a')), HasSubstr("too long"));
}

TEST(Explain, KeepsItsLinesShort) {
  const std::string text = Explain("spec").value();
  std::size_t start = 0;
  for (auto end = text.find('\n'); end != std::string::npos; end = text.find('\n', start)) {
    EXPECT_LE(end - start, 80U) << text.substr(start, end - start);
    start = end + 1;
  }
}

void CheckDocumented(const Descriptor& message, const Documentation& documentation) {
  EXPECT_NE(documentation.Of(message.full_name()), "") << message.full_name();
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    EXPECT_NE(documentation.Of(field.full_name()), "") << field.full_name();
    const FieldDescriptor& value = field.is_map() ? MapValueOf(field) : field;
    if (KindOf(value) == Kind::kMessage) CheckDocumented(*value.message_type(), documentation);
    for (int j = 1; field.enum_type() != nullptr && j < field.enum_type()->value_count(); ++j) {
      const auto& name = field.enum_type()->value(j)->full_name();
      EXPECT_NE(documentation.Of(name), "") << name;
    }
  }
}

TEST(Documentation, CoversEveryFieldOfTheContract) {
  CheckDocumented(*v1alpha1::TrainingJob::descriptor(), Documentation());
}

TEST(Documentation, SaysNothingOfWhatDoesNotExist) {
  EXPECT_EQ(Documentation().Of("starling.v1alpha1.Nothing"), "");
}

}  // namespace
}  // namespace starling::spec
