// SPDX-License-Identifier: Apache-2.0
#include "trainer/engine/torch_engine.h"

#include <torch/torch.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random/philox.h"
#include "common/status/macros.h"
#include "trainer/engine/network.h"

namespace starling::engine {
namespace {

// Tells the engine that a parameter's gradient is complete. It hangs behind the AccumulateGrad
// node: a hook of the tensor itself would fire before the accumulation.
class AccumulatedHook final : public torch::autograd::FunctionPostHook {
 public:
  AccumulatedHook(std::function<void(size_t)>* on_parameter, size_t index)
      : on_parameter_(on_parameter), index_(index) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    if (*on_parameter_) (*on_parameter_)(index_);
    return outputs;
  }

 private:
  std::function<void(size_t)>* on_parameter_;
  size_t index_;
};

// Backward makes the last layer's gradients first: they lie at the front.
std::vector<Tensor> LayOut(std::span<const Parameter> parameters) {
  std::vector<Tensor> tensors;
  tensors.reserve(parameters.size());
  int64_t offset = 0;
  for (size_t i = parameters.size(); i-- > 0;) {
    int64_t size = 1;
    for (int64_t extent : parameters[i].shape) size *= extent;
    tensors.push_back({parameters[i].name, parameters[i].shape, offset, size});
    offset += size;
  }
  return tensors;
}

// A bucket ends with the tensor that brings it to `bytes`.
std::vector<Bucket> CutBuckets(std::span<const Tensor> tensors, int64_t bytes) {
  std::vector<Bucket> buckets;
  int64_t begin = 0;
  for (const Tensor& tensor : tensors) {
    const int64_t end = tensor.offset + tensor.size;
    const bool last = &tensor == &tensors.back();
    if ((end - begin) * static_cast<int64_t>(sizeof(float)) < bytes && !last) continue;
    buckets.push_back({begin, end});
    begin = end;
  }
  return buckets;
}

class TorchEngine final : public Engine {
 public:
  TorchEngine(const EngineConfig& config, std::unique_ptr<Network> network)
      : input_shape_(config.input_shape),
        network_(std::move(network)),
        tensors_(LayOut(network_->parameters())),
        buckets_(CutBuckets(tensors_, config.bucket_bytes)) {
    const int64_t size = tensors_.back().offset + tensors_.back().size;
    flat_parameters_ = at::zeros({size}, at::kFloat);
    flat_gradients_ = at::zeros({size}, at::kFloat);
    Initialise(config.seed);
    for (size_t i = 0; i < tensors_.size(); ++i) AddView(TensorOf(i));
  }

  std::span<const Tensor> tensors() const override { return tensors_; }
  std::span<float> parameters() override { return Span(flat_parameters_); }
  std::span<float> gradients() override { return Span(flat_gradients_); }
  std::span<const Bucket> buckets() const override { return buckets_; }

  absl::StatusOr<BatchSums> ComputeGradients(std::span<const float> features,
                                             std::span<const int64_t> labels,
                                             const OnBucket& on_bucket) override {
    const std::span<float> gradients = Span(flat_gradients_);
    std::memset(gradients.data(), 0, gradients.size_bytes());
    BatchSums sums;
    kept_.assign(kept_.size(), {});
    StartBuckets(on_bucket);
    if (!labels.empty()) {
      try {
        const at::Tensor target = Labels(labels);
        const at::Tensor logits =
            network_->Forward(views_, Features(features, labels.size()), Recorder());
        const at::Tensor loss = SummedLoss(logits, target);
        sums = {loss.item<double>(), Correct(logits.detach(), target)};
        loss.backward();
      } catch (const std::exception& error) {
        on_parameter_ = nullptr;
        return absl::InternalError(absl::StrCat("compute gradients: libtorch: ", error.what()));
      }
    }
    FinishBuckets(on_bucket);
    return sums;
  }

  void KeepFactors() override { kept_.resize(tensors_.size()); }
  std::optional<Factors> FactorsOf(size_t index) const override {
    if (index >= kept_.size() || !kept_[index].errors.defined()) return std::nullopt;
    const Kept& kept = kept_[index];
    return Factors{Span(kept.errors), Span(kept.activations)};
  }

  absl::StatusOr<BatchSums> Evaluate(std::span<const float> features,
                                     std::span<const int64_t> labels) override {
    if (labels.empty()) return BatchSums{};
    try {
      const at::NoGradGuard no_gradients;
      const at::Tensor target = Labels(labels);
      const at::Tensor logits = network_->Forward(views_, Features(features, labels.size()), {});
      return BatchSums{SummedLoss(logits, target).item<double>(), Correct(logits, target)};
    } catch (const std::exception& error) {
      return absl::InternalError(absl::StrCat("evaluate: libtorch: ", error.what()));
    }
  }

 private:
  static std::span<float> Span(const at::Tensor& flat) {
    return {flat.data_ptr<float>(), static_cast<size_t>(flat.numel())};
  }

  // The network counts its parameters from the first layer to the last.
  size_t IndexOf(size_t parameter) const { return tensors_.size() - 1 - parameter; }
  const Tensor& TensorOf(size_t parameter) const { return tensors_[IndexOf(parameter)]; }

  // Keeps what goes into each fully connected layer, and in backward the errors of what comes out:
  // those are there before the gradient of its weight is.
  Network::OnLinear Recorder() {
    if (kept_.empty()) return {};
    return [this](size_t weight, const at::Tensor& input, const at::Tensor& output) {
      Kept& kept = kept_[IndexOf(weight)];
      kept.activations = input.detach().contiguous();
      output.register_hook(
          [&kept](const at::Tensor& errors) { kept.errors = errors.detach().contiguous(); });
    };
  }

  // A stream of its own for each parameter, by its place in the network.
  void Initialise(uint64_t seed) {
    const std::span<float> flat = Span(flat_parameters_);
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const double bound = 1 / std::sqrt(static_cast<double>(network_->parameters()[i].fan_in));
      const random::Philox source(seed, random::Stream::kParameters, i);
      const Tensor& tensor = TensorOf(i);
      for (int64_t k = 0; k < tensor.size; ++k) {
        const double draw = source.Uniform(static_cast<uint64_t>(k));
        flat[static_cast<size_t>(tensor.offset + k)] = static_cast<float>((2 * draw - 1) * bound);
      }
    }
  }

  void AddView(const Tensor& tensor) {
    at::Tensor view =
        flat_parameters_.narrow(0, tensor.offset, tensor.size).view(tensor.shape).detach();
    view.set_requires_grad(true);
    view.mutable_grad() = flat_gradients_.narrow(0, tensor.offset, tensor.size).view(tensor.shape);
    auto node = torch::autograd::impl::grad_accumulator(view);
    node->add_post_hook(std::make_unique<AccumulatedHook>(&on_parameter_, views_.size()));
    accumulators_.push_back(std::move(node));
    views_.push_back(std::move(view));
    size_t bucket = 0;
    while (buckets_[bucket].end <= tensor.offset) ++bucket;
    bucket_of_.push_back(bucket);
  }

  at::Tensor Features(std::span<const float> features, size_t count) const {
    std::vector<int64_t> shape = {static_cast<int64_t>(count)};
    shape.insert(shape.end(), input_shape_.begin(), input_shape_.end());
    if (shape.size() == 3) shape.insert(shape.begin() + 1, 1);  // images without a channel axis
    // libtorch knows no tensor of constants; nothing writes to an input, here and in Labels.
    return at::from_blob(const_cast<float*>(features.data()), shape, at::kFloat);
  }

  static at::Tensor Labels(std::span<const int64_t> labels) {
    return at::from_blob(const_cast<int64_t*>(labels.data()), {static_cast<int64_t>(labels.size())},
                         at::kLong);
  }

  static at::Tensor SummedLoss(const at::Tensor& logits, const at::Tensor& target) {
    return at::cross_entropy_loss(logits, target, {}, at::Reduction::Sum);
  }

  static int64_t Correct(const at::Tensor& logits, const at::Tensor& target) {
    return logits.argmax(1).eq(target).sum().item<int64_t>();
  }

  // From here on each accumulated parameter counts its bucket down.
  void StartBuckets(const OnBucket& on_bucket) {
    missing_.assign(buckets_.size(), 0);
    for (size_t bucket : bucket_of_) ++missing_[bucket];
    reported_ = 0;
    on_parameter_ = [this, &on_bucket](size_t parameter) {
      --missing_[bucket_of_[parameter]];
      while (reported_ < buckets_.size() && missing_[reported_] == 0) {
        if (on_bucket) on_bucket(static_cast<int64_t>(reported_));
        ++reported_;
      }
    };
  }

  // Parameters that took no part in the loss keep a gradient of zero.
  void FinishBuckets(const OnBucket& on_bucket) {
    on_parameter_ = nullptr;
    for (; reported_ < buckets_.size(); ++reported_) {
      if (on_bucket) on_bucket(static_cast<int64_t>(reported_));
    }
  }

  const std::vector<int64_t> input_shape_;
  const std::unique_ptr<Network> network_;
  const std::vector<Tensor> tensors_;
  const std::vector<Bucket> buckets_;
  at::Tensor flat_parameters_;
  at::Tensor flat_gradients_;
  std::vector<at::Tensor> views_;
  // Held, or autograd would make new ones without our hooks.
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  std::vector<size_t> bucket_of_;  // by parameter
  struct Kept {
    at::Tensor activations;
    at::Tensor errors;
  };
  std::vector<Kept> kept_;  // by tensor; empty: nobody wants factors
  std::function<void(size_t)> on_parameter_;
  std::vector<size_t> missing_;  // by bucket
  size_t reported_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> MakeTorchEngine(const EngineConfig& config) {
  ASSIGN_OR_RETURN(std::unique_ptr<Network> network, MakeNetwork(config));
  try {
    return std::make_unique<TorchEngine>(config, std::move(network));
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(absl::StrCat("build the model: libtorch: ", error.what()));
  }
}

}  // namespace starling::engine
