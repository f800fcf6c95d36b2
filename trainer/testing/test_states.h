// SPDX-License-Identifier: Apache-2.0
// States whose bytes follow from their id: for the tests of checkpoints.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint_store.h"

namespace starling::checkpoint {

// Owns the numbers that its State's tensors point to.
class TestState {
 public:
  explicit TestState(StateId id, std::size_t count = 100) : weights_(count), momentum_(count) {
    for (std::size_t i = 0; i < count; ++i) {
      weights_[i] = static_cast<float>(id.step * 1000 + id.epoch) + static_cast<float>(i) * 0.5F;
      momentum_[i] = -weights_[i];
    }
    order_ = {id.step, id.epoch, id.incarnation};
    const auto size = static_cast<std::int64_t>(count);
    state_ = {
        .id = id,
        .tensors = {MakeView("weights", {size}, weights_),
                    MakeView("momentum", {1, size}, momentum_), MakeView("order", {3}, order_)},
        .attributes = {{"spec", "abc"}}};
  }
  TestState(const TestState&) = delete;
  TestState& operator=(const TestState&) = delete;
  const State& get() const { return state_; }
  std::vector<float>& weights() { return weights_; }

 private:
  std::vector<float> weights_;
  std::vector<float> momentum_;
  std::vector<std::int64_t> order_;
  State state_;
};

inline bool SameBytes(const State& state, const LoadedCheckpoint& loaded) {
  if (loaded.state().id != state.id || loaded.state().attributes != state.attributes ||
      loaded.state().tensors.size() != state.tensors.size()) {
    return false;
  }
  for (const TensorView& tensor : state.tensors) {
    const TensorView* found = loaded.Find(tensor.name);
    if (found == nullptr || found->type != tensor.type || found->shape != tensor.shape ||
        !std::equal(found->data.begin(), found->data.end(), tensor.data.begin(),
                    tensor.data.end())) {
      return false;
    }
  }
  return true;
}

}  // namespace starling::checkpoint
