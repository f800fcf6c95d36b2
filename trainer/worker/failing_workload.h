// SPDX-License-Identifier: Apache-2.0
// A workload that passes failpoints (control/failpoints.h) where a user's code may hang: "input"
// before the samples are read, "compute" before the arithmetic, "validation" before an evaluation.
// The program puts it around its workload where STARLING_FAILPOINT names one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "trainer/control/failpoints.h"
#include "trainer/workload/workload.h"

namespace starling::worker {

// Confined to one thread.
class FailingWorkload final : public workload::Workload {
 public:
  // Both outlive it.
  FailingWorkload(workload::Workload& workload, control::Failpoints& failpoints)
      : Workload(workload.declaration()), workload_(workload), failpoints_(failpoints) {}

  std::span<float> parameters() override { return workload_.parameters(); }
  std::span<float> gradients() override { return workload_.gradients(); }
  absl::StatusOr<workload::Sums> Compute(std::span<const std::int64_t> samples,
                                         const workload::Client& client) override {
    (void)failpoints_.Hit("input");
    workload::Client mine = client;
    mine.loaded = [&] {
      client.loaded();
      (void)failpoints_.Hit("compute");
    };
    return workload_.Compute(samples, mine);
  }
  absl::StatusOr<workload::Sums> Evaluate(std::int64_t begin, std::int64_t end) override {
    (void)failpoints_.Hit("validation");
    return workload_.Evaluate(begin, end);
  }
  void Expect(std::span<const std::int64_t> samples, std::int64_t epoch) override {
    workload_.Expect(samples, epoch);
  }
  void KeepFactors() override { workload_.KeepFactors(); }
  std::optional<engine::Factors> FactorsOf(std::size_t index) const override {
    return workload_.FactorsOf(index);
  }
  workload::SparseTable* sparse() override { return workload_.sparse(); }

 private:
  workload::Workload& workload_;
  control::Failpoints& failpoints_;
};

}  // namespace starling::worker
