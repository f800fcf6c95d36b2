// SPDX-License-Identifier: Apache-2.0
// Weights that stay 0: masks of matrices and kernels, by magnitude. Gradients of masked weights are
// 0 before an optimizer sees them, so nothing that it keeps moves them either.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/numerics/weight_rule.h"

namespace starling::numerics {
namespace {

constexpr std::byte kMasked{1};

// Of one tensor, a byte for each weight.
using Mask = std::span<std::byte>;

std::size_t MaskedIn(std::span<const std::byte> mask) {
  return static_cast<std::size_t>(std::ranges::count(mask, kMasked));
}

// The magnitude of a weight that is masked already is below all others.
float RankOf(std::span<const float> weights, std::span<const std::byte> mask, std::size_t i) {
  return mask[i] == kMasked ? -1 : std::abs(weights[i]);
}

// The `count` smallest are masked; of equal ones the first.
void MaskSmallest(std::span<const float> weights, std::size_t count, Mask mask) {
  if (count <= MaskedIn(mask)) return;
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), 0);
  const auto smaller = [&](std::size_t a, std::size_t b) {
    const float x = RankOf(weights, mask, a), y = RankOf(weights, mask, b);
    return x != y ? x < y : a < b;
  };
  std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count) - 1,
                   order.end(), smaller);
  std::vector<std::byte> next(mask.begin(), mask.end());
  for (std::size_t i = 0; i < count; ++i) next[order[i]] = kMasked;
  std::ranges::copy(next, mask.begin());
}

class SparsityRule : public WeightRule {
 public:
  // Vectors have no mask.
  explicit SparsityRule(const std::vector<WeightTensor>& tensors) : tensors_(tensors) {
    for (const WeightTensor& tensor : tensors) {
      masks_.emplace_back(tensor.shape.size() > 1 ? static_cast<std::size_t>(tensor.size) : 0);
    }
  }

  void Register(checkpoint::StateParts& parts) override {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (masks_[i].empty()) continue;
      parts.Add(absl::StrCat("numerics/mask/", tensors_[i].name), tensors_[i].shape,
                std::span(masks_[i]));
    }
  }
  void BeforeUpdate(const WeightUpdate& update, std::span<float> gradient) override {
    Clear(update.tensor, gradient);
  }
  void AfterUpdate(const WeightUpdate& update, std::span<float> weights) override {
    if (masks_[update.tensor].empty()) return;
    Choose(update, tensors_[update.tensor], weights, masks_[update.tensor]);
    Clear(update.tensor, weights);
  }
  std::vector<std::pair<std::string, double>> Told() const override {
    double masked = 0, all = 0;
    for (const std::vector<std::byte>& mask : masks_) {
      masked += static_cast<double>(MaskedIn(mask));
      all += static_cast<double>(mask.size());
    }
    return {{"numerics/masked", all == 0 ? 0 : masked / all}};
  }

 protected:
  // Masks more of them, where it is time to.
  virtual void Choose(const WeightUpdate& update, const WeightTensor& tensor,
                      std::span<const float> weights, Mask mask) const = 0;

 private:
  void Clear(std::size_t tensor, std::span<float> values) const {
    const std::vector<std::byte>& mask = masks_[tensor];
    for (std::size_t i = 0; i < mask.size(); ++i) values[i] = mask[i] == kMasked ? 0 : values[i];
  }

  const std::vector<WeightTensor> tensors_;
  std::vector<std::vector<std::byte>> masks_;
};

// Of each tensor a share that grows as Zhu and Gupta (2017) let it, fast at first.
class MagnitudeRule final : public SparsityRule {
 public:
  MagnitudeRule(const v1alpha1::MagnitudePruning& spec, const std::vector<WeightTensor>& tensors)
      : SparsityRule(tensors),
        share_(spec.share()),
        from_(spec.from_step()),
        to_(std::max(spec.to_step(), spec.from_step())) {}

 protected:
  void Choose(const WeightUpdate& update, const WeightTensor& /*tensor*/,
              std::span<const float> weights, Mask mask) const override {
    constexpr std::int64_t kTimes = 32;
    const std::int64_t every = std::max<std::int64_t>(1, (to_ - from_) / kTimes);
    const std::int64_t since = update.step - from_;
    const bool due = update.step == to_ || (since > 0 && update.step < to_ && since % every == 0);
    if (update.step == 0 || !due) return;
    const double left =
        to_ == from_ ? 0 : 1 - static_cast<double>(since) / static_cast<double>(to_ - from_);
    const double share = share_ * (1 - left * left * left);
    MaskSmallest(weights, static_cast<std::size_t>(share * static_cast<double>(weights.size())),
                 mask);
  }

 private:
  const double share_;
  const std::int64_t from_;
  const std::int64_t to_;
};

// Of each four in a row two: hardware multiplies such matrices in half the time. What is left of a
// row at its end has no mask.
class TwoOfFourRule final : public SparsityRule {
 public:
  using SparsityRule::SparsityRule;

 protected:
  void Choose(const WeightUpdate& update, const WeightTensor& tensor,
              std::span<const float> weights, Mask mask) const override {
    constexpr std::size_t kGroup = 4, kZeros = 2;
    if (update.step > 0) return;
    const auto row =
        static_cast<std::size_t>(tensor.size / std::max<std::int64_t>(1, tensor.shape.front()));
    for (std::size_t begin = 0; begin < weights.size(); begin += row) {
      for (std::size_t i = begin; i + kGroup <= begin + row; i += kGroup) {
        MaskSmallest(weights.subspan(i, kGroup), kZeros, mask.subspan(i, kGroup));
      }
    }
  }
};

}  // namespace

std::unique_ptr<WeightRule> SparsityOf(const v1alpha1::Numerics& spec, std::uint64_t /*seed*/,
                                       const std::vector<WeightTensor>& tensors) {
  if (spec.sparsity().has_two_of_four()) return std::make_unique<TwoOfFourRule>(tensors);
  return std::make_unique<MagnitudeRule>(spec.sparsity().magnitude(), tensors);
}

}  // namespace starling::numerics
