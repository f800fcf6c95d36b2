// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/local_steps.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/status/macros.h"
#include "trainer/consistency/downpour.h"
#include "trainer/kernels/span_math.h"

namespace starling::worker {
namespace {

using workload::Sums;

float MeanOf(std::size_t samples) {
  return 1 / static_cast<float>(std::max<std::size_t>(1, samples));
}

// Downpour SGD (consistency/downpour.h): units of plain descent on the worker's own copy, which is
// brought up to date every so many units; the sum of the units' mean gradients is exchanged.
class Downpour final : public LocalSteps {
 public:
  Downpour(workload::Workload& workload, const v1alpha1::LocalSgd& local, std::int64_t batch)
      : LocalSteps(workload),
        downpour_{.fetch_every = std::max<std::int64_t>(1, local.fetch_every()),
                  .push_every = std::max<std::int64_t>(1, local.push_every())},
        unit_(static_cast<std::size_t>(batch / downpour_.push_every)) {}

  absl::StatusOr<Sums> Compute(std::span<const std::int64_t> samples, const Prepare& prepare,
                               workload::Client client) override {
    const auto push = std::exchange(client.push, [](std::int64_t) {});
    sum_.assign(workload_.gradients().size(), 0.0F);
    Sums sums;
    do {
      const auto unit = samples.first(std::min(unit_, samples.size()));
      samples = samples.subspan(unit.size());
      if (downpour_.Fetches(units_)) {
        ASSIGN_OR_RETURN(client.rate, prepare());
        rate_ = client.rate;
      }
      ASSIGN_OR_RETURN(const Sums of_unit, workload_.Compute(unit, client));
      Add(of_unit, sums);
      kernels::Axpy(MeanOf(unit.size()), workload_.gradients(), sum_);
      ++units_;
      if (downpour_.Fetches(units_)) continue;
      kernels::Axpy(-static_cast<float>(rate_) * MeanOf(unit.size()), workload_.gradients(),
                    workload_.parameters());
    } while (!samples.empty());
    const auto buckets = static_cast<std::int64_t>(workload_.declaration().buckets.size());
    for (std::int64_t bucket = 0; bucket < buckets; ++bucket) push(bucket);
    return sums;
  }
  std::span<float> update() override {
    sum_.resize(workload_.gradients().size());
    return sum_;
  }
  float Scale(std::size_t /*samples*/) const override { return 1; }
  void ForgetCopy() override { units_ = 0; }

 private:
  const consistency::Downpour downpour_;
  const std::size_t unit_;  // samples
  std::int64_t units_ = 0;  // worked off since the own copy was lost
  double rate_ = 0;         // as of the last time that it was brought up to date
  std::vector<float> sum_;
};

}  // namespace

absl::StatusOr<Sums> LocalSteps::Compute(std::span<const std::int64_t> samples,
                                         const Prepare& prepare, workload::Client client) {
  ASSIGN_OR_RETURN(client.rate, prepare());
  return workload_.Compute(samples, client);
}

float LocalSteps::Scale(std::size_t samples) const {
  return workload_.declaration().changes ? 1 : MeanOf(samples);
}

std::unique_ptr<LocalSteps> NewLocalSteps(const v1alpha1::TrainingJobSpec& spec,
                                          workload::Workload& workload, std::int64_t batch) {
  if (!spec.update().has_local_sgd()) return std::make_unique<LocalSteps>(workload);
  return std::make_unique<Downpour>(workload, spec.update().local_sgd(), batch);
}

}  // namespace starling::worker
