// SPDX-License-Identifier: Apache-2.0
// The state of training that every member holds: parameters, what the optimizer keeps, the best
// parameters, what narrow numbers need (trainer/numerics) and the course.
//
// Where parameter servers hold some of the tensors, their newest values and what their optimizer
// keeps are no part of it: a member reads those for each step, and servers may be ahead of it. The
// best parameters are whole, for they are of a state that all have read alike.
//
// Each of them is a part of parts(), the registry that copies, checkpoints and restores go over;
// whatever else belongs to the state of this job (the exchange's, for one) is registered there too.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/checkpoint/state_parts.h"
#include "trainer/numerics/numerics.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/parameter_server/job_tables.h"
#include "trainer/worker/course.h"
#include "trainer/workload/workload.h"

namespace starling::worker {

// In which numbers a network is computed and kept; none with servers.
struct NumericsOptions {
  v1alpha1::Numerics spec = {};
  std::uint64_t seed = 0;
};

// Confined to the training loop's thread.
class TrainingState {
 public:
  using ServedRanges = std::vector<parameter_server::RowRange>;

  // `workload` and `rule` outlive this. The parameters are the workload's, which are rounded here
  // to those that weights may be. `served`: which of them lie on servers, whole tensors, ascending.
  TrainingState(workload::Workload& workload, const optimizer::Optimizer& rule, bool keep_best,
                const ServedRanges& served = {}, const NumericsOptions& numerics = {});

  const Course& course() const { return course_; }
  std::span<const float> parameters() const { return workload_.parameters(); }
  // The parameters of the best validation so far; without keepBest, and before the first, the
  // newest.
  std::span<const float> best_parameters() const;
  std::span<const engine::Tensor> tensors() const { return workload_.declaration().tensors; }
  Names metrics() const { return workload_.declaration().metrics; }
  bool keeps_best() const { return keep_best_; }

  // One update of all that is not served: `gradient`, of the summed loss, is divided by `batch` in
  // place and applied; a running mean follows what it then holds. Where `clip_norm` is not 0, a
  // gradient whose norm over all tensors is larger is made this long first (Pascanu et al. 2013).
  void Apply(double learning_rate, int64_t batch, const Values& means, std::span<float> gradient,
             double clip_norm = 0);
  // The step is left out, for its gradient is not finite (numerics().CanSkip()): only the course
  // goes on.
  void Skip(const Values& means);
  const numerics::Numerics& numerics() const { return numerics_; }
  // The state was validated: part of the step from it to the next.
  void TakeValidation(const Validated& validated);

  checkpoint::StateParts& parts() { return parts_; }
  const checkpoint::StateParts& parts() const { return parts_; }

  // Tensors of the result: the best parameters, or the newest.
  std::vector<checkpoint::TensorView> ModelView(bool best) const;

 private:
  // What the gradients are multiplied by so that their norm is at most `most`.
  double Clipped(std::span<const float> gradient, double scale, double most) const;

  // A tensor that is held here, with what the optimizer keeps for it.
  struct Held {
    engine::Tensor tensor;
    std::vector<optimizer::StateVector> vectors;
    std::size_t weights = 0;  // its place among the tensors that numerics know
  };

  workload::Workload& workload_;
  const optimizer::Optimizer& rule_;
  const bool keep_best_;
  Course course_;
  std::vector<Held> held_;
  std::vector<float> best_;  // empty without keepBest
  numerics::Numerics numerics_;
  checkpoint::StateParts parts_;
};

}  // namespace starling::worker
