// SPDX-License-Identifier: Apache-2.0
#include "trainer/client/send_policy.h"

#include <cmath>
#include <utility>
#include <variant>

#include "trainer/consistency/eager_sender.h"
#include "trainer/kernels/span_math.h"
#include "trainer/parameter_server/job_tables.h"

namespace starling::client {
namespace {

class AtOnce final : public SendPolicy {
 public:
  void Add(std::size_t slot, std::span<const float> /*change*/,
           std::span<const float> /*parameters*/, std::size_t /*bytes*/) override {
    ready_.push_back(slot);
  }
  std::vector<std::uint64_t> Take(absl::Time /*now*/) override { return TakeAll(); }
  absl::Time Next(absl::Time now) const override {
    return ready_.empty() ? absl::InfiniteFuture() : now;
  }
  std::vector<std::uint64_t> TakeAll() override { return std::exchange(ready_, {}); }

 private:
  std::vector<std::uint64_t> ready_;
};

// Managed communication: consistency/eager_sender.h.
class WithinBudget final : public SendPolicy {
 public:
  explicit WithinBudget(const consistency::EagerSender::Options& options) : sender_(options) {}

  void Add(std::size_t slot, std::span<const float> change, std::span<const float> parameters,
           std::size_t bytes) override {
    sender_.OnUpdate(slot, std::sqrt(kernels::SumOfSquares(change)),
                     std::sqrt(kernels::SumOfSquares(parameters)),
                     static_cast<std::int64_t>(bytes));
  }
  std::vector<std::uint64_t> Take(absl::Time now) override { return sender_.Take(now); }
  absl::Time Next(absl::Time now) const override { return sender_.Next(now); }
  std::vector<std::uint64_t> TakeAll() override { return sender_.TakeAll(); }

 private:
  consistency::EagerSender sender_;
};

}  // namespace

std::unique_ptr<SendPolicy> NewSendPolicy(const v1alpha1::TrainingJobSpec& spec) {
  const consistency::Options options = parameter_server::ConsistencyOf(spec);
  const auto* eager = std::get_if<consistency::EagerStaleSynchronous>(&options);
  if (eager == nullptr) return std::make_unique<AtOnce>();
  consistency::EagerSender::Options sender;
  sender.bytes_per_second = eager->bytes_per_second;
  sender.priority = eager->priority;
  sender.seed = static_cast<std::uint64_t>(spec.seed());
  return std::make_unique<WithinBudget>(sender);
}

}  // namespace starling::client
