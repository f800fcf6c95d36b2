// SPDX-License-Identifier: Apache-2.0
// What a worker makes of its samples between two exchanges: one gradient of them all, or steps of
// its own whose sum is exchanged. To add a way: a class in local_steps.cc, and its line in
// NewLocalSteps.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/workload/workload.h"

namespace starling::worker {

// One gradient of all samples, whose buckets leave while backward makes the next ones; others
// derive from it. Confined to one thread.
class LocalSteps {
 public:
  // Brings the workload's parameters up to date; the learning rate of the update that comes next.
  using Prepare = std::function<absl::StatusOr<double>()>;

  // `workload` outlives it.
  explicit LocalSteps(workload::Workload& workload) : workload_(workload) {}
  virtual ~LocalSteps() = default;

  // Works these samples off, and tells the client of every bucket of update() that is complete. The
  // first error of `prepare` or of the workload.
  virtual absl::StatusOr<workload::Sums> Compute(std::span<const std::int64_t> samples,
                                                 const Prepare& prepare, workload::Client client);
  // Where Compute leaves what is to be exchanged, and what it must be multiplied by to be what the
  // parameters are to change by (exchange::Step::scale).
  virtual std::span<float> update() { return workload_.gradients(); }
  virtual float Scale(std::size_t samples) const;
  // The workload's parameters were used for something else: they are no copy to go on with.
  virtual void ForgetCopy() {}

 protected:
  workload::Workload& workload_;
};

// Those of spec.update; `batch`: the samples of a step.
std::unique_ptr<LocalSteps> NewLocalSteps(const v1alpha1::TrainingJobSpec& spec,
                                          workload::Workload& workload, std::int64_t batch);

}  // namespace starling::worker
