// SPDX-License-Identifier: Apache-2.0
#include "trainer/engine/forward.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random/philox.h"

namespace starling::engine {
namespace {

using network::Op;
using network::Operation;

// Rounds what passes, and in backward its gradient, which is divided by `divisor` then.
class Rounding final : public torch::autograd::Function<Rounding> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const Narrow* narrow, double divisor) {
    context->saved_data["narrow"] = reinterpret_cast<int64_t>(narrow);
    context->saved_data["divisor"] = divisor;
    return Rounded(x, *narrow);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto* narrow = reinterpret_cast<const Narrow*>(context->saved_data["narrow"].toInt());
    at::Tensor gradient = Rounded(gradients[0], *narrow);
    const double divisor = context->saved_data["divisor"].toDouble();
    if (divisor != 1) gradient.div_(divisor);
    return {gradient, {}, {}};
  }

 private:
  static at::Tensor Rounded(const at::Tensor& x, const Narrow& narrow) {
    at::Tensor copy = x.detach().clone(at::MemoryFormat::Contiguous);
    narrow.round({copy.data_ptr<float>(), static_cast<size_t>(copy.numel())});
    return copy;
  }
};

// A pass on its way through the network.
struct Run {
  const std::vector<at::Tensor>& parameters;
  const Pass& pass;
  const Operation* operation = nullptr;
  size_t index = 0;  // of the operation
  std::vector<at::Tensor> kept = {};

  // The operation's own, counted from 0.
  const at::Tensor& Own(size_t parameter) const {
    return parameters[operation->parameter + parameter];
  }
  at::Tensor Bias() const { return operation->bias ? Own(1) : at::Tensor(); }
};

// y = x W^T + b, with an empty b for none, whose backward offers the factors of W's gradient before
// it multiplies them: the product may then be written where the gradient is to lie. Autograd alone
// would put it elsewhere and add it, which for large matrices takes a third of a step.
class Linear final : public torch::autograd::Function<Linear> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, const at::Tensor& bias, size_t parameter,
                            const Pass::OnProduct* on_product) {
    context->save_for_backward({x, weight});
    context->saved_data["errorsGoOn"] = x.requires_grad();
    context->saved_data["biased"] = bias.numel() > 0;
    context->saved_data["parameter"] = static_cast<int64_t>(parameter);
    context->saved_data["onProduct"] = reinterpret_cast<int64_t>(on_product);
    return at::linear(x, weight, bias.numel() > 0 ? bias : at::Tensor());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list errors_of_output) {
    const at::Tensor& errors = errors_of_output[0];
    const auto saved = context->get_saved_variables();
    const auto& [x, weight] = std::tie(saved[0], saved[1]);
    at::Tensor of_x;
    if (context->saved_data["errorsGoOn"].toBool()) of_x = at::matmul(errors, weight);
    const auto parameter = static_cast<size_t>(context->saved_data["parameter"].toInt());
    const auto& on_product =
        *reinterpret_cast<const Pass::OnProduct*>(context->saved_data["onProduct"].toInt());
    at::Tensor of_weight;
    if (!on_product(parameter, errors, x)) {
      of_weight = AsMatrix(errors).t().mm(AsMatrix(x));
    }
    at::Tensor of_bias;
    if (context->saved_data["biased"].toBool()) of_bias = AsMatrix(errors).sum(0);
    return {of_x, of_weight, of_bias, {}, {}};
  }
};

// `weight` is counted from the operation's first parameter.
at::Tensor LinearOf(Run& run, const at::Tensor& x, size_t weight, const at::Tensor& bias) {
  if (!run.pass.training) return at::linear(x, run.Own(weight), bias);
  // A function of one's own takes no undefined tensor.
  return Linear::apply(x, run.Own(weight), bias.defined() ? bias : at::empty({0}),
                       run.operation->parameter + weight, &run.pass.on_product);
}

at::Tensor Dense(Run& run, const at::Tensor& x) { return LinearOf(run, x, 0, run.Bias()); }

at::Tensor Convolution(Run& run, const at::Tensor& x) {
  const Operation& o = *run.operation;
  return at::conv2d(x, run.Own(0), run.Bias(), o.stride, o.padding, 1, o.groups);
}

at::Tensor MaxPool(Run& run, const at::Tensor& x) {
  const Operation& o = *run.operation;
  return at::max_pool2d(x, {o.kernel, o.kernel}, {o.stride, o.stride}, {o.padding, o.padding});
}

at::Tensor AveragePool(Run& run, const at::Tensor& x) {
  const Operation& o = *run.operation;
  return at::avg_pool2d(x, {o.kernel, o.kernel}, {o.stride, o.stride}, {o.padding, o.padding});
}

at::Tensor AdaptiveAveragePool(Run& run, const at::Tensor& x) {
  return at::adaptive_avg_pool2d(x, {run.operation->size, run.operation->size});
}

at::Tensor GlobalAveragePool(Run& /*run*/, const at::Tensor& x) {
  return x.dim() == 4 ? at::adaptive_avg_pool2d(x, {1, 1}).flatten(1) : x.mean(1);
}

// One value a channel has no variance: there the running ones serve, and stay as they are.
at::Tensor BatchNorm(Run& run, const at::Tensor& x) {
  const Operation& o = *run.operation;
  const at::Tensor& mean = run.Own(2);
  const at::Tensor& variance = run.Own(3);
  const bool measures = run.pass.training && x.numel() / x.size(1) > 1;
  at::Tensor measured_mean = mean;
  at::Tensor measured_variance = variance;
  if (measures) {
    measured_mean = at::zeros(mean.sizes(), at::kFloat);
    measured_variance = at::zeros(variance.sizes(), at::kFloat);
  }
  // With a momentum of 1 the running values become those of these samples.
  at::Tensor output = at::batch_norm(x, run.Own(0), run.Own(1), measured_mean, measured_variance,
                                     measures, 1, o.epsilon, /*cudnn_enabled=*/false);
  if (run.pass.training) {
    run.pass.on_statistics(o.parameter + 2, measured_mean);
    run.pass.on_statistics(o.parameter + 3, measured_variance);
  }
  return output;
}

at::Tensor GroupNorm(Run& run, const at::Tensor& x) {
  return at::group_norm(x, run.operation->groups, run.Own(0), run.Own(1), run.operation->epsilon);
}

at::Tensor LayerNorm(Run& run, const at::Tensor& x) {
  return at::layer_norm(x, {x.size(-1)}, run.Own(0), run.Own(1), run.operation->epsilon);
}

at::Tensor Relu(Run& /*run*/, const at::Tensor& x) { return at::relu(x); }
at::Tensor Gelu(Run& /*run*/, const at::Tensor& x) { return at::gelu(x); }
at::Tensor Tanh(Run& /*run*/, const at::Tensor& x) { return at::tanh(x); }
at::Tensor Sigmoid(Run& /*run*/, const at::Tensor& x) { return at::sigmoid(x); }
at::Tensor Flatten(Run& /*run*/, const at::Tensor& x) { return x.flatten(1); }

// Draws by sample and epoch: the same values are left out whoever computes the sample, in whatever
// company.
at::Tensor Dropout(Run& run, const at::Tensor& x) {
  const double rate = run.operation->rate;
  if (!run.pass.training || rate == 0) return x;
  TORCH_CHECK(std::ssize(run.pass.samples) == x.size(0),
              "dropout must know whose values these are");
  constexpr double kDraws = 4294967296.0;  // 2^32
  const auto limit = static_cast<uint32_t>(rate * kDraws);
  const auto scale = static_cast<float>(1 / (1 - rate));
  at::Tensor mask = at::empty(x.sizes(), at::kFloat);
  auto* next = mask.data_ptr<float>();
  const auto each = static_cast<size_t>(x.numel() / x.size(0));
  for (const int64_t sample : run.pass.samples) {
    const auto substream =
        (static_cast<uint64_t>(run.pass.epoch) & 0xFFFFFF) << 32 | (sample & 0xFFFFFFFF);
    const random::Philox source(run.pass.seed, random::Stream::kDropout, substream);
    random::Block block = {};
    for (size_t k = 0; k < each; ++k) {
      if (k % block.size() == 0) block = source.At(run.index << 40 | k / block.size());
      *next++ = block[k % block.size()] < limit ? 0 : scale;
    }
  }
  return x * mask;
}

at::Tensor Embedding(Run& run, const at::Tensor& x) {
  const int64_t rows = run.operation->size;
  const at::Tensor numbers = x.to(at::kLong);
  const auto lowest = numbers.min().item<int64_t>();
  const auto highest = numbers.max().item<int64_t>();
  if (lowest < 0 || highest >= rows) {
    throw std::invalid_argument(absl::StrCat(
        "the embedding ", run.operation->name, " has ", rows, " rows, for numbers from 0 to ",
        rows - 1, ", and is given ", lowest < 0 ? lowest : highest,
        "; give it as many rows as the data have different numbers"));
  }
  return at::embedding(run.Own(0), numbers);
}

at::Tensor Positions(Run& run, const at::Tensor& x) { return x + run.Own(0); }

at::Tensor Lstm(Run& run, const at::Tensor& x) {
  const at::Tensor zero = at::zeros({1, x.size(0), run.operation->size}, at::kFloat);
  const at::Tensor output = std::get<0>(at::lstm(
      x, {zero, zero}, {run.Own(0), run.Own(1), run.Own(2), run.Own(3)}, /*has_biases=*/true,
      /*num_layers=*/1, /*dropout=*/0, run.pass.training, /*bidirectional=*/false,
      /*batch_first=*/true));
  return run.operation->sequence ? output : output.select(1, -1);
}

at::Tensor Attention(Run& run, const at::Tensor& x) {
  const int64_t samples = x.size(0);
  const int64_t length = x.size(1);
  const int64_t width = x.size(2);
  const int64_t heads = run.operation->groups;
  // (query, key, value; sample; head; place; number)
  const at::Tensor all = LinearOf(run, x, 0, run.Own(1))
                             .view({samples, length, 3, heads, width / heads})
                             .permute({2, 0, 3, 1, 4});
  at::Tensor scores =
      at::matmul(all[0], all[1].transpose(-2, -1)) / std::sqrt(static_cast<double>(width / heads));
  if (run.operation->causal) {
    const at::Tensor later = at::ones({length, length}, at::kBool).triu(1);
    scores = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
  }
  const at::Tensor seen = at::matmul(at::softmax(scores, -1), all[2]);
  return LinearOf(run, seen.transpose(1, 2).reshape({samples, length, width}), 2, run.Own(3));
}

at::Tensor Keep(Run& run, const at::Tensor& x) {
  run.kept.push_back(x);
  return x;
}

at::Tensor Swap(Run& run, const at::Tensor& x) { return std::exchange(run.kept.back(), x); }

at::Tensor Add(Run& run, const at::Tensor& x) {
  const at::Tensor sum = x + run.kept.back();
  run.kept.pop_back();
  return sum;
}

struct Step {
  Op op;
  at::Tensor (*forward)(Run& run, const at::Tensor& x);
  bool computes = true;  // else it chooses among the numbers that it is given
};

constexpr Step kSteps[] = {
    {Op::kDense, Dense},
    {Op::kConvolution, Convolution},
    {Op::kMaxPool, MaxPool, false},
    {Op::kAveragePool, AveragePool},
    {Op::kAdaptiveAveragePool, AdaptiveAveragePool},
    {Op::kGlobalAveragePool, GlobalAveragePool},
    {Op::kBatchNorm, BatchNorm},
    {Op::kGroupNorm, GroupNorm},
    {Op::kLayerNorm, LayerNorm},
    {Op::kRelu, Relu, false},
    {Op::kGelu, Gelu},
    {Op::kTanh, Tanh},
    {Op::kSigmoid, Sigmoid},
    {Op::kDropout, Dropout},
    {Op::kFlatten, Flatten, false},
    {Op::kEmbedding, Embedding},
    {Op::kPositions, Positions},
    {Op::kLstm, Lstm},
    {Op::kAttention, Attention},
    {Op::kKeep, Keep, false},
    {Op::kSwap, Swap, false},
    {Op::kAdd, Add},
};

const Step& StepOf(Op op) {
  const auto* const step = std::ranges::find(kSteps, op, &Step::op);
  TORCH_CHECK(step != std::end(kSteps), "the engine does not know this operation");
  return *step;
}

}  // namespace

at::Tensor AsMatrix(const at::Tensor& rows) { return rows.dim() == 2 ? rows : rows.flatten(0, -2); }

at::Tensor NarrowParameter(const at::Tensor& parameter, const Narrow& narrow) {
  return Rounding::apply(parameter, &narrow, double{narrow.loss_scale});
}

at::Tensor Forward(const network::Network& network, const std::vector<at::Tensor>& parameters,
                   at::Tensor input, const Pass& pass) {
  Run run{.parameters = parameters, .pass = pass};
  at::Tensor x = std::move(input);
  const auto narrow = [&pass](const at::Tensor& wide) {
    return pass.narrow == nullptr ? wide : at::Tensor(Rounding::apply(wide, pass.narrow, 1.0));
  };
  // What an embedding is given are numbers of rows.
  if (network.operations.front().op != Op::kEmbedding) x = narrow(x);
  for (const Operation& operation : network.operations) {
    run.operation = &operation;
    const Step& step = StepOf(operation.op);
    x = step.forward(run, x);
    if (step.computes) x = narrow(x);
    ++run.index;
  }
  return x;
}

}  // namespace starling::engine
