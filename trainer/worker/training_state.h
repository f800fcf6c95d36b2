// SPDX-License-Identifier: Apache-2.0
// The replicated state of training: parameters, optimizer slots, best parameters and the course.
//
// Every member holds it whole; equal state ids mean equal bytes. It is seen as a row of byte
// segments, of the same sizes at every member, so that a joiner can receive any range of it from
// any holder. A copy is received into a Staging and swapped in when it is whole and verified. To
// add a part: a segment in Segments(), a tensor in CheckpointView and Read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/bytes/bytes.h"
#include "trainer/checkpoint/checkpoint_store.h"
#include "trainer/engine/engine.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/worker/course.h"

namespace starling::worker {

// Memory of the size and shape of a state. Movable.
struct Staging {
  Course course;
  std::vector<float> parameters;
  std::vector<optimizer::StateSlot> slots;
  std::vector<float> best;

  std::vector<std::span<std::byte>> Segments();
};

bytes::Digest DigestOf(std::span<const std::span<std::byte>> segments);

// Confined to the step loop's thread.
class TrainingState {
 public:
  // `engine` and `rule` outlive this. The parameters are the engine's.
  TrainingState(engine::Engine& engine, const optimizer::Optimizer& rule, bool keep_best);

  const Course& course() const { return course_; }
  std::span<const float> parameters() const { return engine_.parameters(); }
  // The parameters of the best validation so far; without keepBest, and before the first, the
  // newest.
  std::span<const float> best_parameters() const;
  std::span<const engine::Tensor> tensors() const { return engine_.tensors(); }
  bool keeps_best() const { return keep_best_; }

  // One update: `gradient`, of the summed loss, is divided by `batch` in place and applied.
  void Apply(double learning_rate, int64_t batch, double mean_loss, std::span<float> gradient);
  // The state was validated: part of the step from it to the next.
  void TakeValidation(const Validated& validated);

  std::vector<std::span<std::byte>> Segments();
  // Zeros, of the state's sizes.
  Staging NewStaging() const;
  // The staged state becomes the state.
  void Adopt(Staging staging);

  // Everything as named tensors, counters and attributes, for a checkpoint. It points into this.
  checkpoint::State CheckpointView(const checkpoint::StateId& id) const;
  // FAILED_PRECONDITION, with what differs, when it is of another model or optimizer.
  absl::StatusOr<Staging> Read(const checkpoint::LoadedCheckpoint& checkpoint) const;

  // Tensors of the result: the best parameters, or the newest.
  std::vector<checkpoint::TensorView> ModelView(bool best) const;

 private:
  void AddViews(const std::string& prefix, std::span<const float> flat,
                std::vector<checkpoint::TensorView>& views) const;
  absl::Status ReadViews(const checkpoint::LoadedCheckpoint& checkpoint, const std::string& prefix,
                         std::span<float> flat) const;

  engine::Engine& engine_;
  const optimizer::Optimizer& rule_;
  const bool keep_best_;
  Course course_;
  std::vector<optimizer::StateSlot> slots_;
  std::vector<float> best_;  // empty without keepBest
};

}  // namespace starling::worker
