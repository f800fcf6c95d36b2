// SPDX-License-Identifier: Apache-2.0
#include "trainer/optimizer/optimizer.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/check.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "starling/v1alpha1/options.pb.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/optimizer/rule.h"

namespace starling::optimizer {
namespace {

using google::protobuf::FieldDescriptor;

constexpr OptimizerKind kKinds[] = {{"sgd", SgdOf},
                                    {"adam", AdamOf},
                                    {"adamW", AdamWOf},
                                    {"rmsProp", RmsPropOf},
                                    {"lars", LarsOf},
                                    {"adagrad", AdagradOf},
                                    {"adaRevision", AdaRevisionOf},
                                    {"delayCompensated", DelayCompensatedOf},
                                    {"ftrl", FtrlOf},
                                    {"proximalGradient", ProximalGradientOf}};

// The field of spec.optimizer that is set; sgd where none is.
const FieldDescriptor& KindOf(const v1alpha1::Optimizer& spec) {
  using v1alpha1::Optimizer;
  const bool given = spec.kind_case() != Optimizer::KIND_NOT_SET;
  return *Optimizer::descriptor()->FindFieldByNumber(
      given ? static_cast<int>(spec.kind_case()) : static_cast<int>(Optimizer::kSgdFieldNumber));
}

}  // namespace

void Rule::CheckSizes(std::span<float> parameters, std::span<const float> gradient,
                      StateVectors state) const {
  STARLING_CHECK(state.size() == state_names_.size(), "an optimizer gets all of its state");
  STARLING_CHECK(gradient.size() == parameters.size(), "a gradient has its parameters' size");
  for (const std::span<float> vector : state) {
    STARLING_CHECK(vector.size() == parameters.size(), "a vector has its parameters' size");
  }
}

const google::protobuf::Message& SettingsOf(const v1alpha1::Optimizer& spec) {
  return spec.GetReflection()->GetMessage(spec, &KindOf(spec));
}

double Setting(const google::protobuf::Message& settings, std::string_view name) {
  const FieldDescriptor* field = settings.GetDescriptor()->FindFieldByName(std::string(name));
  STARLING_CHECK(field != nullptr && field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE,
                 "an optimizer's setting is a number of the schema");
  const google::protobuf::Reflection& reflection = *settings.GetReflection();
  if (reflection.HasField(settings, field)) return reflection.GetDouble(settings, field);
  double otherwise = 0;
  STARLING_CHECK(
      absl::SimpleAtod(field->options().GetExtension(v1alpha1::rules).default_value(), &otherwise),
      "an optimizer's setting has a default in the schema");
  return otherwise;
}

std::span<const OptimizerKind> OptimizerKinds() { return kKinds; }

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const v1alpha1::Optimizer& spec) {
  const std::string& name = KindOf(spec).json_name();
  for (const OptimizerKind& kind : kKinds) {
    if (kind.name == name) return kind.make(spec);
  }
  return absl::UnimplementedError(absl::StrCat(
      "spec.optimizer.", name,
      ": this build has no such optimizer; worker, servers and controller must be of one version"));
}

std::vector<StateVector> NewState(const Optimizer& optimizer, std::size_t parameters) {
  std::vector<StateVector> state;
  for (const std::string& name : optimizer.state_names()) {
    state.push_back({name, std::vector<float>(parameters)});
  }
  return state;
}

void Apply(const Optimizer& optimizer, const Update& update, std::span<float> parameters,
           std::span<const float> gradient, std::vector<StateVector>& state, std::size_t first) {
  std::vector<std::span<float>> vectors;
  for (StateVector& vector : state) {
    STARLING_CHECK(
        first <= vector.values.size() && parameters.size() <= vector.values.size() - first,
        "each vector has an element for each parameter");
    vectors.push_back(std::span(vector.values).subspan(first, parameters.size()));
  }
  optimizer.Apply(update, parameters, gradient, vectors);
}

}  // namespace starling::optimizer
