// SPDX-License-Identifier: Apache-2.0
#include "trainer/engine/torch_engine.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random/philox.h"
#include "common/ranges/ranges.h"
#include "trainer/engine/forward.h"

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
std::vector<Tensor> LayOut(std::span<const network::Parameter> parameters) {
  std::vector<Tensor> tensors;
  tensors.reserve(parameters.size());
  int64_t offset = 0;
  for (size_t i = parameters.size(); i-- > 0;) {
    int64_t size = 1;
    for (int64_t extent : parameters[i].shape) size *= extent;
    tensors.push_back(
        {parameters[i].name, parameters[i].shape, offset, size, parameters[i].momentum});
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
  explicit TorchEngine(const EngineConfig& config)
      : network_(config.network),
        loss_(config.loss),
        seed_(config.seed),
        smoothing_(config.label_smoothing),
        top_(config.top),
        micro_batch_(static_cast<size_t>(config.micro_batch)),
        narrow_{config.round},
        tensors_(LayOut(network_.parameters)),
        buckets_(CutBuckets(tensors_, config.bucket_bytes)) {
    const int64_t size = tensors_.back().offset + tensors_.back().size;
    flat_parameters_ = at::zeros({size}, at::kFloat);
    flat_gradients_ = at::zeros({size}, at::kFloat);
    if (!config.class_weights.empty()) weights_ = at::tensor(config.class_weights);
    for (size_t i = 0; i < tensors_.size(); ++i) Initialise(i);
    for (size_t i = 0; i < tensors_.size(); ++i) AddView(TensorOf(i));
    is_product_.resize(views_.size());
    begun_.resize(views_.size());
  }

  std::span<const Tensor> tensors() const override { return tensors_; }
  std::span<float> parameters() override { return Span(flat_parameters_); }
  std::span<float> gradients() override { return Span(flat_gradients_); }
  bool PlaceGradients(std::span<float> memory) override {
    flat_gradients_ =
        at::from_blob(memory.data(), {static_cast<int64_t>(memory.size())}, at::kFloat);
    for (size_t i = 0; i < views_.size(); ++i) {
      if (views_[i].requires_grad()) views_[i].mutable_grad() = GradientOf(TensorOf(i));
    }
    return true;
  }
  std::span<const Bucket> buckets() const override { return buckets_; }

  absl::StatusOr<BatchSums> ComputeGradients(std::span<const float> features,
                                             std::span<const int64_t> labels,
                                             const OnBucket& on_bucket) override {
    const auto judge = [&](const at::Tensor& given, const Part& part) -> Judged {
      const at::Tensor target = Labels(labels, part);
      const at::Tensor rows = AsMatrix(given);  // one for each label
      const at::Tensor loss = OverPlaces(
          at::cross_entropy_loss(rows, target, weights_, at::Reduction::Sum, kIgnored, smoothing_));
      return {loss, Count(loss.item<double>(), rows.detach(), target)};
    };
    return Train(features, labels.size() / static_cast<size_t>(network_.places), judge, on_bucket);
  }

  absl::StatusOr<BatchSums> FitNumbers(std::span<const float> features,
                                       std::span<const float> wanted,
                                       const OnBucket& on_bucket) override {
    const auto judge = [&](const at::Tensor& given, const Part& part) {
      return JudgeNumbers(given, wanted, part);
    };
    return Train(features, features.size() / SampleSize(), judge, on_bucket);
  }

  void NextSamples(std::span<const int64_t> ids, int64_t epoch) override {
    ids_ = ids;
    epoch_ = epoch;
  }

  void ScaleLoss(float scale) override {
    if (narrow_.round) narrow_.loss_scale = scale;
  }

  void KeepFactors() override { kept_.resize(tensors_.size()); }
  std::optional<Factors> FactorsOf(size_t index) const override {
    if (index >= kept_.size() || !kept_[index].errors.defined()) return std::nullopt;
    const Kept& kept = kept_[index];
    return Factors{Span(kept.errors), Span(kept.activations)};
  }

  absl::StatusOr<BatchSums> Evaluate(std::span<const float> features,
                                     std::span<const int64_t> labels) override {
    const auto judge = [&](const at::Tensor& given, const Part& part) -> Judged {
      const at::Tensor target = Labels(labels, part);
      const at::Tensor rows = AsMatrix(given);  // one for each label
      return {{}, Count(SummedLoss(rows, target).item<double>(), rows, target)};
    };
    return Validate(features, labels.size() / static_cast<size_t>(network_.places), judge);
  }

  absl::StatusOr<BatchSums> EvaluateNumbers(std::span<const float> features,
                                            std::span<const float> wanted) override {
    const auto judge = [&](const at::Tensor& given, const Part& part) {
      return JudgeNumbers(given, wanted, part);
    };
    return Validate(features, features.size() / SampleSize(), judge);
  }

  absl::StatusOr<std::vector<float>> Scores(std::span<const float> features) override {
    try {
      const at::NoGradGuard no_gradients;
      const size_t samples = features.size() / SampleSize();
      if (samples == 0) return std::vector<float>();
      at::Tensor given = Forward(network_, views_, Features(features, {0, samples}), {});
      if (loss_ == NumberLoss::kBinaryCrossEntropy) given = at::sigmoid(given);
      given = given.contiguous();
      const std::span<const float> scores = Span(given);
      return std::vector<float>(scores.begin(), scores.end());
    } catch (const std::exception& error) {
      return FailedTo("compute scores", error);
    }
  }

 private:
  // Samples that go through the network together, of those that are computed.
  struct Part {
    size_t first = 0;
    size_t samples = 0;
  };

  // As many as there must be, of nearly one size: the last one's batch normalization is no worse.
  std::vector<Part> PartsOf(size_t samples) const {
    const size_t at_once = micro_batch_ == 0 ? samples : std::min(micro_batch_, samples);
    const size_t count = samples == 0 ? 0 : (samples + at_once - 1) / at_once;
    std::vector<Part> parts;
    for (size_t i = 0; i < count; ++i) {
      const size_t first = samples * i / count;
      parts.push_back({first, samples * (i + 1) / count - first});
    }
    return parts;
  }

  static void Add(const BatchSums& part, BatchSums& sums) {
    sums.loss += part.loss;
    sums.correct += part.correct;
    sums.in_top += part.in_top;
    sums.squares.resize(part.squares.size());
    for (size_t i = 0; i < part.squares.size(); ++i) sums.squares[i] += part.squares[i];
  }

  // The loss summed over samples, which backward begins at, and what is counted of them.
  struct Judged {
    at::Tensor loss;
    BatchSums sums;
  };
  // By what the network gives for them.
  using Judge = std::function<Judged(const at::Tensor& given, const Part& part)>;

  absl::StatusOr<BatchSums> Train(std::span<const float> features, size_t samples,
                                  const Judge& judge, const OnBucket& on_bucket) {
    BeginGradients();
    BatchSums sums;
    kept_.assign(kept_.size(), {});
    const std::vector<Part> parts = PartsOf(samples);
    try {
      for (const Part& part : parts) {
        // Backward adds to the gradients: they are complete with the last part.
        if (&part == &parts.back()) StartBuckets(on_bucket);
        const Pass pass = Training(part, parts.size() == 1);
        Judged judged =
            judge(Forward(network_, TrainedParameters(), Features(features, part), pass), part);
        Add(judged.sums, sums);
        (narrow_.loss_scale == 1 ? judged.loss : judged.loss * narrow_.loss_scale).backward();
      }
    } catch (const std::exception& error) {
      on_parameter_ = nullptr;
      return FailedTo("compute gradients", error);
    }
    if (parts.empty()) StartBuckets(on_bucket);
    FinishBuckets(on_bucket);
    return sums;
  }

  absl::StatusOr<BatchSums> Validate(std::span<const float> features, size_t samples,
                                     const Judge& judge) {
    BatchSums sums;
    try {
      const at::NoGradGuard no_gradients;
      for (const Part& part : PartsOf(samples)) {
        Add(judge(Forward(network_, views_, Features(features, part), {}), part).sums, sums);
      }
      return sums;
    } catch (const std::exception& error) {
      return FailedTo("evaluate", error);
    }
  }

  Judged JudgeNumbers(const at::Tensor& given, std::span<const float> wanted,
                      const Part& part) const {
    const at::Tensor rows = given.flatten(1);
    const auto each = static_cast<size_t>(rows.size(1));
    const at::Tensor target =
        at::from_blob(const_cast<float*>(wanted.data() + part.first * each), rows.sizes());
    const at::Tensor loss = NumbersLoss(rows, target) / static_cast<double>(each);
    at::Tensor numbers = rows.detach();
    if (loss_ == NumberLoss::kBinaryCrossEntropy) numbers = at::sigmoid(numbers);
    const at::Tensor squares =
        (numbers - target).square().sum(0, /*keepdim=*/false, at::kDouble).contiguous();
    BatchSums sums{loss.item<double>()};
    sums.squares.assign(squares.data_ptr<double>(), squares.data_ptr<double>() + squares.numel());
    return {loss, std::move(sums)};
  }

  at::Tensor NumbersLoss(const at::Tensor& given, const at::Tensor& target) const {
    switch (loss_) {
      case NumberLoss::kHuber:
        return at::huber_loss(given, target, at::Reduction::Sum);
      case NumberLoss::kAbsolute:
        return at::l1_loss(given, target, at::Reduction::Sum);
      case NumberLoss::kBinaryCrossEntropy:
        return at::binary_cross_entropy_with_logits(given, target, {}, {}, at::Reduction::Sum);
      case NumberLoss::kSquared:
        break;
    }
    return at::mse_loss(given, target, at::Reduction::Sum);
  }

  static std::span<float> Span(const at::Tensor& flat) {
    return {flat.data_ptr<float>(), static_cast<size_t>(flat.numel())};
  }

  static std::span<float> PartOf(const at::Tensor& flat, const Tensor& tensor) {
    return Span(flat).subspan(static_cast<size_t>(tensor.offset), static_cast<size_t>(tensor.size));
  }

  // The network counts its parameters from the first layer to the last.
  size_t IndexOf(size_t parameter) const { return tensors_.size() - 1 - parameter; }
  const Tensor& TensorOf(size_t parameter) const { return tensors_[IndexOf(parameter)]; }

  static absl::Status FailedTo(std::string_view what, const std::exception& error) {
    if (dynamic_cast<const std::invalid_argument*>(&error) != nullptr) {
      return absl::InvalidArgumentError(error.what());
    }
    return absl::InternalError(absl::StrCat(std::string(what), ": libtorch: ", error.what()));
  }

  // What a running mean is to follow lies where another parameter's gradient would: its sum over
  // the samples, of which there are so many.
  Pass Training(const Part& part, bool whole) {
    const auto add = [this, part](size_t parameter, const at::Tensor& mean) {
      const Tensor& tensor = TensorOf(parameter);
      flat_gradients_.narrow(0, tensor.offset, tensor.size)
          .add_(mean.detach(), static_cast<double>(part.samples));
    };
    return {.training = true,
            .on_product = Multiplier(whole),
            .on_statistics = add,
            .samples = ids_.empty() ? ids_ : ids_.subspan(part.first, part.samples),
            .epoch = epoch_,
            .seed = seed_,
            .narrow = narrow_.round ? &narrow_ : nullptr};
  }

  // As forward and backward see them. Running means are no factors of anything.
  std::vector<at::Tensor> TrainedParameters() const {
    if (!narrow_.round) return views_;
    std::vector<at::Tensor> narrow;
    narrow.reserve(views_.size());
    for (const at::Tensor& view : views_) {
      narrow.push_back(view.requires_grad() ? NarrowParameter(view, narrow_) : view);
    }
    return narrow;
  }

  // Multiplies where the gradient lies. Factors are kept where they are of all samples; of narrow
  // numbers the product is rounded first, which autograd does.
  Pass::OnProduct Multiplier(bool whole) {
    return [this, whole](size_t parameter, const at::Tensor& errors, const at::Tensor& inputs) {
      if (!kept_.empty() && whole && inputs.dim() == 2) {
        kept_[IndexOf(parameter)] = {inputs.detach().contiguous(), errors.detach().contiguous()};
      }
      if (narrow_.round) return false;
      is_product_[parameter] = true;
      at::Tensor& gradient = views_[parameter].mutable_grad();
      const at::Tensor by = AsMatrix(errors).t();
      if (begun_[parameter]) {
        gradient.addmm_(by, AsMatrix(inputs));
      } else {
        at::mm_out(gradient, by, AsMatrix(inputs));
        begun_[parameter] = true;
      }
      return true;
    };
  }

  // What is added begins with zero. A matrix that was a product in a step before will be written
  // over.
  void BeginGradients() {
    for (size_t i = 0; i < views_.size(); ++i) {
      begun_[i] = !is_product_[i];
      if (begun_[i]) Clear(i);
    }
  }
  // A matrix that took no part in the loss.
  void Complete(size_t parameter) {
    if (!begun_[parameter]) Clear(parameter);
    begun_[parameter] = true;
  }
  void Clear(size_t parameter) {
    std::ranges::fill(PartOf(flat_gradients_, TensorOf(parameter)), 0.0F);
  }

  // A stream of its own for each parameter, by its place in the network.
  void Initialise(size_t parameter) {
    using network::Initial;
    const network::Parameter& wanted = network_.parameters[parameter];
    const std::span<float> values = PartOf(flat_parameters_, TensorOf(parameter));
    if (wanted.initial == Initial::kZeros || wanted.initial == Initial::kOnes) {
      std::ranges::fill(values, wanted.initial == Initial::kOnes ? 1.0F : 0.0F);
      return;
    }
    const random::Philox source(seed_, random::Stream::kParameters, parameter);
    const auto fan_in = static_cast<double>(wanted.fan_in);
    const bool uniform = wanted.initial == Initial::kUniform;
    double scale = 1;
    if (uniform) scale = 1 / std::sqrt(fan_in);
    if (wanted.initial == Initial::kKaiming) scale = std::sqrt(2 / fan_in);
    std::array<double, 1024> draws;
    const ranges::Range<size_t> all{0, values.size()};
    for (size_t i = 0; i < ranges::PiecesOf(all, draws.size()); ++i) {
      const ranges::Range<size_t> piece = ranges::PieceOf(all, i, draws.size());
      const std::span<double> drawn = std::span(draws).first(piece.size());
      if (uniform) {
        source.Uniforms(piece.begin, drawn);
      } else {
        source.Normals(piece.begin, drawn);
      }
      std::ranges::transform(drawn, piece.Of(values).begin(), [&](double draw) {
        return static_cast<float>((uniform ? 2 * draw - 1 : draw) * scale);
      });
    }
  }

  at::Tensor GradientOf(const Tensor& tensor) const {
    return flat_gradients_.narrow(0, tensor.offset, tensor.size).view(tensor.shape);
  }

  void AddView(const Tensor& tensor) {
    at::Tensor view =
        flat_parameters_.narrow(0, tensor.offset, tensor.size).view(tensor.shape).detach();
    if (tensor.momentum != 0) {
      views_.push_back(std::move(view));
      bucket_of_.push_back(kNoBucket);
      return;
    }
    view.set_requires_grad(true);
    view.mutable_grad() = GradientOf(tensor);
    auto node = torch::autograd::impl::grad_accumulator(view);
    node->add_post_hook(std::make_unique<AccumulatedHook>(&on_parameter_, views_.size()));
    accumulators_.push_back(std::move(node));
    views_.push_back(std::move(view));
    size_t bucket = 0;
    while (buckets_[bucket].end <= tensor.offset) ++bucket;
    bucket_of_.push_back(bucket);
  }

  size_t SampleSize() const {
    size_t size = 1;
    for (const int64_t side : network_.input) size *= static_cast<size_t>(side);
    return size;
  }

  at::Tensor Features(std::span<const float> features, const Part& part) const {
    std::vector<int64_t> shape = {static_cast<int64_t>(part.samples)};
    shape.insert(shape.end(), network_.input.begin(), network_.input.end());
    // libtorch knows no tensor of constants; nothing writes to an input, here and in Labels.
    const float* first = features.data() + part.first * SampleSize();
    return at::from_blob(const_cast<float*>(first), shape, at::kFloat);
  }

  at::Tensor Labels(std::span<const int64_t> labels, const Part& part) const {
    const auto places = static_cast<size_t>(network_.places);
    const int64_t* first = labels.data() + part.first * places;
    return at::from_blob(const_cast<int64_t*>(first), {static_cast<int64_t>(part.samples * places)},
                         at::kLong);
  }

  // A sample's loss is the mean over its places.
  at::Tensor OverPlaces(const at::Tensor& loss) const {
    return network_.places == 1 ? loss : loss / static_cast<double>(network_.places);
  }

  at::Tensor SummedLoss(const at::Tensor& logits, const at::Tensor& target) const {
    return OverPlaces(at::cross_entropy_loss(logits, target, {}, at::Reduction::Sum));
  }

  static constexpr int64_t kIgnored = -100;  // PyTorch's default: no label is

  BatchSums Count(double loss, const at::Tensor& logits, const at::Tensor& target) const {
    BatchSums sums{loss, logits.argmax(1).eq(target).sum().item<int64_t>()};
    if (top_ == 0) return sums;
    // What is not a number is above every score.
    const at::Tensor above = logits.le(logits.gather(1, target.unsqueeze(1))).logical_not().sum(1);
    sums.in_top = above.lt(top_).sum().item<int64_t>();
    return sums;
  }

  // From here on each accumulated parameter counts its bucket down.
  void StartBuckets(const OnBucket& on_bucket) {
    missing_.assign(buckets_.size(), 0);
    for (const size_t bucket : bucket_of_) {
      if (bucket != kNoBucket) ++missing_[bucket];
    }
    reported_ = 0;
    on_parameter_ = [this, &on_bucket](size_t parameter) {
      Complete(parameter);
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
    for (size_t i = 0; i < begun_.size(); ++i) Complete(i);
    for (; reported_ < buckets_.size(); ++reported_) {
      if (on_bucket) on_bucket(static_cast<int64_t>(reported_));
    }
  }

  // A running mean is complete before backward begins.
  static constexpr size_t kNoBucket = static_cast<size_t>(-1);

  const network::Network network_;
  const NumberLoss loss_;
  const uint64_t seed_;
  const double smoothing_;
  const int64_t top_;
  const size_t micro_batch_;
  Narrow narrow_;       // without a rounding: numbers have 32 bits
  at::Tensor weights_;  // of the classes; undefined: alike
  const std::vector<Tensor> tensors_;
  const std::vector<Bucket> buckets_;
  at::Tensor flat_parameters_;
  at::Tensor flat_gradients_;
  std::vector<at::Tensor> views_;
  // Held, or autograd would make new ones without our hooks.
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  std::vector<size_t> bucket_of_;  // by parameter
  // By parameter: its gradient is written over, not added to, by the first product of a step; and
  // it holds something of this step, or zeros, that more may be added to.
  std::vector<bool> is_product_;
  std::vector<bool> begun_;
  struct Kept {
    at::Tensor activations;
    at::Tensor errors;
  };
  std::vector<Kept> kept_;  // by tensor; empty: nobody wants factors
  std::span<const int64_t> ids_;
  int64_t epoch_ = 0;
  std::function<void(size_t)> on_parameter_;
  std::vector<size_t> missing_;  // by bucket
  size_t reported_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> MakeTorchEngine(const EngineConfig& config) {
  try {
    return std::make_unique<TorchEngine>(config);
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(absl::StrCat("build the model: libtorch: ", error.what()));
  }
}

}  // namespace starling::engine
