// SPDX-License-Identifier: Apache-2.0
// Small things to learn, for checks that need real gradients: each is parameters in one flat
// vector, samples by number, and the mean gradient of some of them. All but one need no engine.
//
//   Digits(hidden)   the digits of examples/data: a perceptron with one hidden layer, or none
//   LeastSquares     the same images, labels as numbers: a quadratic whose stable rates are known
//   WholeNumbers     sums of whole numbers alone, so that any order of additions gives equal bits
//   Mnist            LeNet-5 on the 10,000 images of examples/data, 8,000 to learn from and 2,000
//   to
//                    be judged by, with the engine that workers have
//
// To add one: a class in problem.cc, or in a file of its own, and its factory here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace starling::techniques {

// Thread-safe.
class Problem {
 public:
  virtual ~Problem() = default;
  virtual std::size_t parameters() const = 0;
  // Of its tensors, one after another in the flat vector; none: it has no tensors.
  virtual std::vector<std::vector<std::int64_t>> shapes() const { return {}; }
  virtual std::int64_t samples() const = 0;
  // The parameters before anything is learned; none: whoever keeps them draws them.
  virtual std::vector<float> First(std::uint64_t /*seed*/) const { return {}; }
  // The mean over `ids`, written to `gradient`.
  virtual void Gradient(std::span<const float> parameters, std::span<const std::int64_t> ids,
                        std::span<float> gradient) const = 0;
  // The same in narrow numbers: weights and gradients are rounded, the gradient of `loss_scale`
  // times the loss, which is divided by that. With the workers' engine what lies between is too.
  struct Narrow {
    std::function<void(std::span<float>)> round;
    double loss_scale = 1;
  };
  virtual void NarrowGradient(std::span<const float> parameters, std::span<const std::int64_t> ids,
                              const Narrow& narrow, std::span<float> gradient) const;
  // Over the training set.
  virtual double Loss(std::span<const float> parameters) const = 0;
  // Share of the test set that is right.
  virtual double Accuracy(std::span<const float> parameters) const = 0;
  // Share of the test set's samples of one class that is right.
  virtual double Recall(std::span<const float> parameters, std::int64_t label) const = 0;
  virtual std::int64_t Label(std::int64_t sample) const = 0;
};

std::shared_ptr<const Problem> Digits(int hidden);
std::shared_ptr<const Problem> LeastSquares();
std::shared_ptr<const Problem> WholeNumbers();
// NOT_FOUND where there is no engine: without libtorch none is built. The numeric environment must
// be set before.
absl::StatusOr<std::shared_ptr<const Problem>> Mnist();

// The first samples' features, one sample after another, each feature with mean 0 and variance 1.
std::vector<float> DigitPixels(std::int64_t samples);

}  // namespace starling::techniques
