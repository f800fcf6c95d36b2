// SPDX-License-Identifier: Apache-2.0
// What the optimizers of this folder are written with, and the factories that optimizer.cc's table
// is made of. A factory reads its own member of spec.optimizer; what the spec leaves out is the
// schema's default, so no default stands in code.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/optimizer/optimizer.h"

namespace google::protobuf {
class Message;
}  // namespace google::protobuf

namespace starling::optimizer {

using StateVectors = std::span<const std::span<float>>;

// An optimizer with these state.
class Rule : public Optimizer {
 public:
  explicit Rule(std::vector<std::string> state_names) : state_names_(std::move(state_names)) {}
  const std::vector<std::string>& state_names() const override { return state_names_; }

 protected:
  // Spans of different sizes are the caller's mistake: the program ends.
  void CheckSizes(std::span<float> parameters, std::span<const float> gradient,
                  StateVectors state) const;

 private:
  const std::vector<std::string> state_names_;
};

// The member of spec.optimizer that is set; sgd where none is.
const google::protobuf::Message& SettingsOf(const v1alpha1::Optimizer& spec);
// A number of such a member, by its name in the schema ("learning_rate"), or its default there. A
// name that the schema lacks is a mistake of ours: the program ends.
double Setting(const google::protobuf::Message& settings, std::string_view name);

using Made = absl::StatusOr<std::unique_ptr<Optimizer>>;
Made SgdOf(const v1alpha1::Optimizer& spec);
Made AdamOf(const v1alpha1::Optimizer& spec);
Made AdamWOf(const v1alpha1::Optimizer& spec);
Made RmsPropOf(const v1alpha1::Optimizer& spec);
Made LarsOf(const v1alpha1::Optimizer& spec);
Made AdagradOf(const v1alpha1::Optimizer& spec);
Made AdaRevisionOf(const v1alpha1::Optimizer& spec);
Made DelayCompensatedOf(const v1alpha1::Optimizer& spec);
Made FtrlOf(const v1alpha1::Optimizer& spec);
Made ProximalGradientOf(const v1alpha1::Optimizer& spec);

}  // namespace starling::optimizer
