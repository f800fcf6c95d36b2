// SPDX-License-Identifier: Apache-2.0
// How parameters follow a gradient: SGD, Adam, AdamW and RMSProp, with PyTorch's meaning of every
// term, LARS, and rules made for parameter servers (server_rules.h).
//
// An Optimizer is a rule without state: its state is a list of named vectors beside the parameters,
// which belong to the caller, who checkpoints, copies and shards them like the parameters. One
// implementation serves worker and server alike, and any range of the parameters can be updated by
// itself. Every element is computed alone, in float, in one fixed order, without contraction: equal
// inputs give equal bits, whatever the range and the machine's instruction set. (LARS alone looks
// at whole matrices, where it is told that it has one.)
//
// To add an optimizer: the message of its settings in the schema, a source file with a Rule and its
// factory, which rule.h declares, a line in the table of optimizer.cc, and a line with its formula
// in contract_test.cc. What it does not go with stands in the table of api/spec/techniques.cc.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace starling::v1alpha1 {
class Optimizer;
class LearningRateSchedule;
}  // namespace starling::v1alpha1

namespace starling::optimizer {

struct StateVector {
  std::string name;  // "momentum", "mean", "variance"
  std::vector<float> values;
};

// One update: its number counts from 1 and is the step's.
struct Update {
  double learning_rate = 0;
  std::int64_t number = 1;
  // The spans are a whole tensor, and it has two dimensions or more: no bias, and no
  // normalization's scale.
  bool whole_matrix = false;
};

// Thread-safe: immutable.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // The names of its vectors, in the order in which Apply takes them.
  virtual const std::vector<std::string>& state_names() const = 0;

  // Updates `parameters` by `gradient`; `vectors` are the same range of each vector. All spans are
  // of one size. Its vectors start as zeros.
  virtual void Apply(const Update& update, std::span<float> parameters,
                     std::span<const float> gradient,
                     std::span<const std::span<float>> vectors) const = 0;

  // Any part of a tensor may be updated by itself, with the same result.
  virtual bool elementwise() const { return true; }

  // The parameters were given these values, not by an update: what the rule keeps starts anew, for
  // update `first`.
  virtual void Begin(const Update& /*first*/, std::span<const float> /*parameters*/,
                     std::span<const std::span<float>> vectors) const {
    for (const std::span<float> vector : vectors) std::fill(vector.begin(), vector.end(), 0.0F);
  }

  // For rules that correct for what came between a worker's read and its gradient: of what the
  // server keeps a copy for each reader. kNothing, kParameters, or the index of a vector.
  static constexpr int kNothing = -2;
  static constexpr int kParameters = -1;
  virtual int remembered() const { return kNothing; }

  // As Apply; `read` is what remembered() names, as the gradient's sender was given it.
  virtual void ApplyDelayed(const Update& update, std::span<float> parameters,
                            std::span<const float> gradient,
                            std::span<const std::span<float>> vectors,
                            std::span<const float> /*read*/) const {
    Apply(update, parameters, gradient, vectors);
  }
};

// All that a job may ask for. A kind's name is that of its field in spec.optimizer.
struct OptimizerKind {
  std::string_view name;
  absl::StatusOr<std::unique_ptr<Optimizer>> (*make)(const v1alpha1::Optimizer& spec);
};
std::span<const OptimizerKind> OptimizerKinds();

// That of the spec's member that is set; sgd where none is. INVALID_ARGUMENT for settings that do
// not go together, UNIMPLEMENTED for an optimizer that this build lacks.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const v1alpha1::Optimizer& spec);

// Zeros for `parameters` parameters.
std::vector<StateVector> NewState(const Optimizer& optimizer, std::size_t parameters);

// Apply over the elements of `state` from `first` on, as many as there are parameters.
void Apply(const Optimizer& optimizer, const Update& update, std::span<float> parameters,
           std::span<const float> gradient, std::vector<StateVector>& state, std::size_t first = 0);

// The learning rate of step `step` (from 1): the rule's own rate under its schedule.
double LearningRate(const v1alpha1::Optimizer& spec, std::int64_t step);

// Warm-up steps 1..w give rate * step / w; then, counted from there, constant, stairs
// (rate * factor^floor(k / every)) or half a cosine down to rate * minimum.
double LearningRate(const v1alpha1::LearningRateSchedule& schedule, double rate, std::int64_t step);

}  // namespace starling::optimizer
