// SPDX-License-Identifier: Apache-2.0
// What computes a model's loss and gradients, seen as spans of floats.
//
// The training loop, the exchange, the optimizer and the checkpoints work on flat buffers and never
// see a tensor library: they build in seconds, and tests run them with a tiny engine of their own.
// The one real engine is TorchEngine (libtorch). It lives in a shared library that the worker opens
// at run time (engine_library.h), because libtorch takes 0.4 s to load: the worker answers its
// coordinator meanwhile. To add an engine: implement Engine and hand it to the worker's main.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace starling::engine {

// One named parameter: `size` floats from `offset` on in the flat buffers, in row-major order.
struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  int64_t offset = 0;
  int64_t size = 0;
  // Not 0: a running mean, such as batch normalization's, which no optimizer moves. What stands in
  // its gradient is a sum over the samples like any other; each step it follows their mean by this
  // share. So it is copied, checkpointed and saved as the parameters are, and equal at all workers.
  float momentum = 0;
};

// A stretch [begin, end) of the flat gradients that becomes ready as one.
struct Bucket {
  int64_t begin = 0;
  int64_t end = 0;
};

// What the gradient of a matrix [outputs, inputs] is the product of: the sum over the samples of
// the errors of its outputs times its inputs (the activations of the layer before).
struct Factors {
  std::span<const float> errors;       // samples x outputs
  std::span<const float> activations;  // samples x inputs
};

// Sums over the samples of a batch.
struct BatchSums {
  double loss = 0;
  int64_t correct = 0;  // of the labels
  int64_t in_top = 0;   // of the labels, those among the EngineConfig::top highest scores
  // Where numbers are wanted: of each of a sample's, the square of how far off it is.
  std::vector<double> squares = {};
};

// Confined to one thread. Two engines of the same configuration hold equal parameters, whatever the
// machine.
class Engine {
 public:
  // Told the index of a bucket.
  using OnBucket = std::function<void(int64_t)>;

  virtual ~Engine() = default;

  // In the order of the flat buffers: from the last layer to the first, as backward makes
  // gradients.
  virtual std::span<const Tensor> tensors() const = 0;
  virtual std::span<float> parameters() = 0;
  // Of the last ComputeGradients: the gradient of the summed loss. Others may use the memory
  // between two calls: the exchange sums in place.
  virtual std::span<float> gradients() = 0;
  // From now on they lie in `memory`, which has as many floats and outlives this. False: they stay
  // where they are.
  virtual bool PlaceGradients(std::span<float> /*memory*/) { return false; }
  // Consecutive, from the last layer to the first: together they cover the gradients once.
  virtual std::span<const Bucket> buckets() const = 0;

  // Forward and backward of some samples (row-major features, one after another), with the
  // cross-entropy loss summed over them. A sample has a label, or one for each of its places
  // (network::Network::places); then its loss is their mean. `on_bucket(i)` is called during
  // backward as soon as bucket i is complete, for i = 0, 1, 2 and so on: every bucket once, in this
  // order, also when there is no sample. It may read the gradients of that bucket and must not
  // change anything here.
  virtual absl::StatusOr<BatchSums> ComputeGradients(std::span<const float> features,
                                                     std::span<const int64_t> labels,
                                                     const OnBucket& on_bucket) = 0;

  // The same where numbers are wanted of a sample, as many as the network gives: its loss is the
  // mean over them of EngineConfig::loss.
  virtual absl::StatusOr<BatchSums> FitNumbers(std::span<const float> /*features*/,
                                               std::span<const float> /*wanted*/,
                                               const OnBucket& /*on_bucket*/) {
    return absl::UnimplementedError("this engine knows classes only");
  }

  // Which samples of which epoch the next ComputeGradients or FitNumbers is of: what is drawn there
  // (dropout) depends on them and on the seed alone. It outlives that call.
  virtual void NextSamples(std::span<const int64_t> /*ids*/, int64_t /*epoch*/) {}

  // From the next ComputeGradients on the loss is multiplied by this before backward, and each
  // gradient divided by it before it is handed out: where backward computes in narrow numbers,
  // small gradients are kept that way, and large ones become infinite.
  virtual void ScaleLoss(float /*scale*/) {}

  // From the next ComputeGradients on the factors of gradients are kept where there are any.
  virtual void KeepFactors() {}
  // Of tensor `index`, from its bucket on and until the next ComputeGradients, as long as the
  // features given to it are there. None where its gradient is no product (convolutions, biases)
  // or factors are not kept.
  virtual std::optional<Factors> FactorsOf(size_t /*index*/) const { return std::nullopt; }

  // What the network gives for these samples, one after another: a number for each class, of each
  // place where there are several, not normalised; or the numbers that it was trained to give.
  virtual absl::StatusOr<std::vector<float>> Scores(std::span<const float> /*features*/) {
    return absl::UnimplementedError("this engine trains only");
  }

  // The same sums without gradients.
  virtual absl::StatusOr<BatchSums> Evaluate(std::span<const float> features,
                                             std::span<const int64_t> labels) = 0;
  virtual absl::StatusOr<BatchSums> EvaluateNumbers(std::span<const float> /*features*/,
                                                    std::span<const float> /*wanted*/) {
    return absl::UnimplementedError("this engine knows classes only");
  }
};

}  // namespace starling::engine
