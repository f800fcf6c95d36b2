// SPDX-License-Identifier: Apache-2.0
#include "api/network/kinds.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/macros.h"

namespace starling::network {
namespace {

// A value of a field that was not resolved is the schema's default.
template <typename Number>
Number Or(Number value, Number fallback) {
  return value == 0 ? fallback : value;
}

using Fields = const google::protobuf::Message&;

template <typename Layer>
const Layer& As(Fields fields) {
  return static_cast<const Layer&>(fields);  // the table says which it is
}

// Whoever plans what the strict reader would refuse must come through alive.
std::int64_t AtLeastOne(std::int64_t value) { return std::max<std::int64_t>(value, 1); }

absl::Status AddDense(Fields fields, Draft& draft) {
  const auto& dense = As<v1alpha1::Dense>(fields);
  if (draft.shape.size() > 2) {
    return draft.Refuse("a flat input [width] or a sequence [length, width]",
                        "put flatten: {} or globalAveragePool: {} before it");
  }
  std::int64_t units = dense.units();
  if (units < 1 && !draft.last) {
    return absl::InvalidArgumentError("needs units, which only the last layer may leave out");
  }
  if (units < 1) units = AtLeastOne(draft.classes);
  draft.operation.bias = !dense.has_bias() || dense.bias();
  draft.AddWeight({units, draft.shape.back()}, draft.shape.back(), dense.initialization());
  draft.shape.back() = units;
  return absl::OkStatus();
}

// Slides a window over the image, which it leaves smaller.
absl::Status Slide(Draft& draft) {
  const Operation& window = draft.operation;
  for (std::size_t side = 1; side < 3; ++side) {
    const std::int64_t padded = draft.shape[side] + 2 * window.padding;
    if (window.kernel > padded) {
      return absl::InvalidArgumentError(absl::StrCat(
          "has a kernel of ", window.kernel, " by ", window.kernel, ", and is given ",
          Text(draft.shape), window.padding > 0 ? " and its padding" : "",
          "; write kernel: ", padded, " or less, or leave out something that shrinks the image"));
    }
  }
  for (std::size_t side = 1; side < 3; ++side) {
    draft.shape[side] =
        (draft.shape[side] + 2 * window.padding - window.kernel) / window.stride + 1;
  }
  return absl::OkStatus();
}

absl::Status AddConvolution(Fields fields, Draft& draft) {
  const auto& convolution = As<v1alpha1::Convolution>(fields);
  RETURN_IF_ERROR(draft.NeedsImage());
  Operation& operation = draft.operation;
  operation.kernel = AtLeastOne(convolution.kernel());
  operation.stride = AtLeastOne(convolution.stride());
  operation.padding = std::max<std::int64_t>(convolution.padding(), 0);
  operation.groups = AtLeastOne(convolution.groups());
  operation.bias = !convolution.has_bias() || convolution.bias();
  const std::int64_t inputs = draft.shape[0];
  const std::int64_t outputs = AtLeastOne(convolution.channels());
  if (inputs % operation.groups != 0 || outputs % operation.groups != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", operation.groups, " groups, which must divide the ", inputs,
                     " channels that it is given and the ", outputs, " that it gives"));
  }
  RETURN_IF_ERROR(Slide(draft));
  const std::int64_t kernel = operation.kernel;
  draft.shape[0] = outputs;
  draft.AddWeight({outputs, inputs / operation.groups, kernel, kernel},
                  inputs / operation.groups * kernel * kernel, convolution.initialization());
  return absl::OkStatus();
}

absl::Status AddPooling(Fields fields, Draft& draft) {
  const auto& pooling = As<v1alpha1::Pooling>(fields);
  RETURN_IF_ERROR(draft.NeedsImage());
  Operation& operation = draft.operation;
  operation.kernel = AtLeastOne(pooling.kernel());
  operation.stride = AtLeastOne(Or(pooling.stride(), operation.kernel));
  operation.padding = std::max<std::int64_t>(pooling.padding(), 0);
  if (operation.padding > operation.kernel / 2) {
    return absl::InvalidArgumentError(absl::StrCat("has a padding of ", operation.padding,
                                                   ", which must be at most half of its kernel (",
                                                   operation.kernel / 2, ")"));
  }
  return Slide(draft);
}

absl::Status AddAdaptivePooling(Fields fields, Draft& draft) {
  RETURN_IF_ERROR(draft.NeedsImage());
  draft.operation.size = AtLeastOne(As<v1alpha1::AdaptivePooling>(fields).size());
  draft.shape = {draft.shape[0], draft.operation.size, draft.operation.size};
  return absl::OkStatus();
}

absl::Status AddGlobalPooling(Fields /*fields*/, Draft& draft) {
  if (draft.shape.size() < 2) {
    return draft.Refuse("an image [channels, height, width] or a sequence [length, width]",
                        "leave it out");
  }
  draft.shape = {IsImage(draft.shape) ? draft.shape.front() : draft.shape.back()};
  return absl::OkStatus();
}

absl::Status NeedsChannels(const Draft& draft) {
  if (draft.shape.size() != 2) return absl::OkStatus();
  return draft.Refuse("features [width] or an image [channels, height, width]", "use layerNorm");
}

absl::Status AddBatchNorm(Fields fields, Draft& draft) {
  const auto& norm = As<v1alpha1::BatchNorm>(fields);
  RETURN_IF_ERROR(NeedsChannels(draft));
  const Shape channels = {draft.shape[0]};
  const auto momentum = static_cast<float>(Or(norm.momentum(), 0.1));
  draft.operation.epsilon = Or(norm.epsilon(), 1e-5);
  draft.Add("weight", channels, 0, Initial::kOnes);
  draft.Add("bias", channels, 0, Initial::kZeros);
  draft.Add("running_mean", channels, 0, Initial::kZeros, momentum);
  draft.Add("running_var", channels, 0, Initial::kOnes, momentum);
  return absl::OkStatus();
}

absl::Status AddGroupNorm(Fields fields, Draft& draft) {
  const auto& norm = As<v1alpha1::GroupNorm>(fields);
  RETURN_IF_ERROR(NeedsChannels(draft));
  draft.operation.groups = AtLeastOne(norm.groups());
  if (draft.shape[0] % draft.operation.groups != 0) {
    return absl::InvalidArgumentError(absl::StrCat("has ", draft.operation.groups,
                                                   " groups, which must divide the ",
                                                   draft.shape[0], " channels that it is given"));
  }
  draft.operation.epsilon = Or(norm.epsilon(), 1e-5);
  draft.Add("weight", {draft.shape[0]}, 0, Initial::kOnes);
  draft.Add("bias", {draft.shape[0]}, 0, Initial::kZeros);
  return absl::OkStatus();
}

absl::Status AddLayerNorm(Fields fields, Draft& draft) {
  if (IsImage(draft.shape)) {
    return draft.Refuse("features [width] or a sequence [length, width]", "use groupNorm");
  }
  draft.operation.epsilon = Or(As<v1alpha1::LayerNorm>(fields).epsilon(), 1e-5);
  draft.Add("weight", {draft.shape.back()}, 0, Initial::kOnes);
  draft.Add("bias", {draft.shape.back()}, 0, Initial::kZeros);
  return absl::OkStatus();
}

absl::Status AddPlain(Fields /*fields*/, Draft& /*draft*/) { return absl::OkStatus(); }

absl::Status AddDropout(Fields fields, Draft& draft) {
  const auto& dropout = As<v1alpha1::Dropout>(fields);
  draft.operation.rate = dropout.has_rate() ? dropout.rate() : 0.5;
  return absl::OkStatus();
}

absl::Status AddFlatten(Fields /*fields*/, Draft& draft) {
  draft.shape = {NumbersOf(draft.shape)};
  return absl::OkStatus();
}

absl::Status AddEmbedding(Fields fields, Draft& draft) {
  const auto& embedding = As<v1alpha1::Embedding>(fields);
  if (!draft.first) {
    return absl::InvalidArgumentError(
        "must be the first layer, for it reads the numbers of the data");
  }
  if (draft.shape.size() != 1) {
    return draft.Refuse("numbers in a row [length]", "give the dataset a shape of one side");
  }
  if (!embedding.has_rows() && !draft.each_place) {
    return absl::InvalidArgumentError("needs rows, which only a language model may leave out");
  }
  if (embedding.has_rows() && draft.each_place && embedding.rows() < draft.classes) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", embedding.rows(), " rows, but the text has ", draft.classes,
                     " symbols; leave rows out, and there is one for each"));
  }
  const std::int64_t width = AtLeastOne(embedding.width());
  draft.operation.size = AtLeastOne(embedding.has_rows() ? embedding.rows() : draft.classes);
  draft.Add("weight", {draft.operation.size, width}, 0, Initial::kNormal);
  draft.shape.push_back(width);
  return absl::OkStatus();
}

absl::Status AddPositions(Fields /*fields*/, Draft& draft) {
  RETURN_IF_ERROR(draft.NeedsSequence());
  draft.Add("weight", draft.shape, 0, Initial::kNormal);
  return absl::OkStatus();
}

absl::Status AddLstm(Fields fields, Draft& draft) {
  const auto& lstm = As<v1alpha1::Lstm>(fields);
  RETURN_IF_ERROR(draft.NeedsSequence());
  const std::int64_t units = AtLeastOne(lstm.units());
  draft.operation.size = units;
  draft.operation.sequence = lstm.sequence();
  draft.Add("weight_ih_l0", {4 * units, draft.shape[1]}, units, Initial::kUniform);
  draft.Add("weight_hh_l0", {4 * units, units}, units, Initial::kUniform);
  draft.Add("bias_ih_l0", {4 * units}, units, Initial::kUniform);
  draft.Add("bias_hh_l0", {4 * units}, units, Initial::kUniform);
  draft.shape = lstm.sequence() ? Shape{draft.shape[0], units} : Shape{units};
  return absl::OkStatus();
}

absl::Status AddAttention(Fields fields, Draft& draft) {
  const auto& attention = As<v1alpha1::Attention>(fields);
  RETURN_IF_ERROR(draft.NeedsSequence());
  const std::int64_t width = draft.shape[1];
  draft.operation.groups = AtLeastOne(attention.heads());
  if (width % draft.operation.groups != 0) {
    return absl::InvalidArgumentError(absl::StrCat("has ", draft.operation.groups,
                                                   " heads, which must divide the width ", width,
                                                   " of its input"));
  }
  if (draft.each_place && !attention.causal()) {
    return absl::InvalidArgumentError("sees what it is to predict; write causal: true");
  }
  draft.operation.causal = attention.causal();
  draft.Add("in_proj_weight", {3 * width, width}, width, Initial::kUniform);
  draft.Add("in_proj_bias", {3 * width}, 0, Initial::kZeros);
  draft.Add("out_proj.weight", {width, width}, width, Initial::kUniform);
  draft.Add("out_proj.bias", {width}, 0, Initial::kZeros);
  return absl::OkStatus();
}

constexpr Kind kKinds[] = {
    {v1alpha1::Layer::kDenseFieldNumber, Op::kDense, AddDense},
    {v1alpha1::Layer::kConvolutionFieldNumber, Op::kConvolution, AddConvolution},
    {v1alpha1::Layer::kMaxPoolFieldNumber, Op::kMaxPool, AddPooling},
    {v1alpha1::Layer::kAveragePoolFieldNumber, Op::kAveragePool, AddPooling},
    {v1alpha1::Layer::kAdaptiveAveragePoolFieldNumber, Op::kAdaptiveAveragePool,
     AddAdaptivePooling},
    {v1alpha1::Layer::kGlobalAveragePoolFieldNumber, Op::kGlobalAveragePool, AddGlobalPooling},
    {v1alpha1::Layer::kBatchNormFieldNumber, Op::kBatchNorm, AddBatchNorm},
    {v1alpha1::Layer::kGroupNormFieldNumber, Op::kGroupNorm, AddGroupNorm},
    {v1alpha1::Layer::kLayerNormFieldNumber, Op::kLayerNorm, AddLayerNorm},
    {v1alpha1::Layer::kReluFieldNumber, Op::kRelu, AddPlain},
    {v1alpha1::Layer::kGeluFieldNumber, Op::kGelu, AddPlain},
    {v1alpha1::Layer::kTanhFieldNumber, Op::kTanh, AddPlain},
    {v1alpha1::Layer::kSigmoidFieldNumber, Op::kSigmoid, AddPlain},
    {v1alpha1::Layer::kDropoutFieldNumber, Op::kDropout, AddDropout},
    {v1alpha1::Layer::kFlattenFieldNumber, Op::kFlatten, AddFlatten},
    {v1alpha1::Layer::kEmbeddingFieldNumber, Op::kEmbedding, AddEmbedding},
    {v1alpha1::Layer::kPositionsFieldNumber, Op::kPositions, AddPositions},
    {v1alpha1::Layer::kLstmFieldNumber, Op::kLstm, AddLstm},
    {v1alpha1::Layer::kAttentionFieldNumber, Op::kAttention, AddAttention},
};

}  // namespace

std::string Text(const Shape& shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

std::int64_t NumbersOf(const Shape& shape) {
  std::int64_t numbers = 1;
  for (const std::int64_t side : shape) {
    if (side > kMostNumbers / std::max<std::int64_t>(numbers, 1)) return kMostNumbers + 1;
    numbers *= side;
  }
  return numbers;
}

std::span<const Kind> Kinds() { return kKinds; }

}  // namespace starling::network
