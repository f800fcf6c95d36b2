// SPDX-License-Identifier: Apache-2.0
#include "trainer/engine/network.h"

#include <torch/torch.h>

#include <functional>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace starling::engine {
namespace {

// Weight and bias of a layer whose every output reads `fan_in` inputs.
void AddLayer(std::string_view name, std::vector<int64_t> weight, int64_t fan_in,
              std::vector<Parameter>& parameters) {
  const int64_t outputs = weight.front();
  parameters.push_back({absl::StrCat(std::string(name), ".weight"), std::move(weight), fan_in});
  parameters.push_back({absl::StrCat(std::string(name), ".bias"), {outputs}, fan_in});
}

// The layer whose weight is parameter `weight`; its bias comes next.
at::Tensor Linear(const at::Tensor& input, const std::vector<at::Tensor>& parameters, size_t weight,
                  const Network::OnLinear& on_linear) {
  at::Tensor output = at::linear(input, parameters[weight], parameters[weight + 1]);
  if (on_linear) on_linear(weight, input, output);
  return output;
}

class Mlp final : public Network {
 public:
  Mlp(int64_t inputs, std::vector<int64_t> widths) {
    for (size_t i = 0; i < widths.size(); ++i) {
      AddLayer(absl::StrCat("layers.", i), {widths[i], inputs}, inputs, parameters_);
      inputs = widths[i];
    }
  }

  std::span<const Parameter> parameters() const override { return parameters_; }

  at::Tensor Forward(const std::vector<at::Tensor>& parameters, const at::Tensor& input,
                     const OnLinear& on_linear) const override {
    at::Tensor x = input.flatten(1);
    for (size_t i = 0; i < parameters.size(); i += 2) {
      x = Linear(x, parameters, i, on_linear);
      if (i + 2 < parameters.size()) x = at::relu(x);
    }
    return x;
  }

 private:
  std::vector<Parameter> parameters_;
};

class LeNet5 final : public Network {
 public:
  LeNet5(int64_t channels, int64_t height, int64_t width, int64_t classes) {
    const int64_t features = 16 * Pooled(height) * Pooled(width);
    AddLayer("conv1", {6, channels, 5, 5}, channels * 25, parameters_);
    AddLayer("conv2", {16, 6, 5, 5}, 6 * 25, parameters_);
    AddLayer("fc1", {120, features}, features, parameters_);
    AddLayer("fc2", {84, 120}, 120, parameters_);
    AddLayer("fc3", {classes, 84}, 84, parameters_);
  }

  std::span<const Parameter> parameters() const override { return parameters_; }

  at::Tensor Forward(const std::vector<at::Tensor>& p, const at::Tensor& input,
                     const OnLinear& on_linear) const override {
    at::Tensor x = at::max_pool2d(at::relu(at::conv2d(input, p[0], p[1], 1, 2)), {2, 2});
    x = at::max_pool2d(at::relu(at::conv2d(x, p[2], p[3])), {2, 2}).flatten(1);
    x = at::relu(Linear(x, p, 4, on_linear));
    x = at::relu(Linear(x, p, 6, on_linear));
    return Linear(x, p, 8, on_linear);
  }

 private:
  // Side length after both convolutions (the first padded by 2) and both poolings.
  static int64_t Pooled(int64_t side) { return (side / 2 - 4) / 2; }

  std::vector<Parameter> parameters_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> MakeNetwork(const EngineConfig& config) {
  const std::vector<int64_t>& shape = config.input_shape;
  if (config.model == ModelKind::kMlp) {
    std::vector<int64_t> widths = config.hidden;
    widths.push_back(config.classes);
    const int64_t inputs =
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    return std::make_unique<Mlp>(inputs, std::move(widths));
  }
  const size_t n = shape.size();
  if (n < 2 || n > 3 || shape[n - 2] < 20 || shape[n - 1] < 20) {
    return absl::InvalidArgumentError(absl::StrCat(
        "spec.workload.classification.model.lenet5: needs images [channels, height, width] of at "
        "least 20 by 20, but a sample has shape [",
        absl::StrJoin(shape, ", "), "]: set the dataset's shape, or use mlp"));
  }
  return std::make_unique<LeNet5>(n == 3 ? shape[0] : 1, shape[n - 2], shape[n - 1],
                                  config.classes);
}

}  // namespace starling::engine
