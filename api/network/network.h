// SPDX-License-Identifier: Apache-2.0
// A network as a list of operations, with the shapes and names of its tensors: what whoever
// computes it needs to know, and nothing of the job file that it was described in.
//
// These are plain types, without protobuf, because they cross the boundary of the engine's library
// (trainer/engine/engine_library.h). PlanNetwork (plan.h) makes them. To add an operation: a value
// of Op, and a row in kinds.cc, trainer/engine/forward.cc and trainer/onnx/onnx_model.cc each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace starling::network {

// Of one sample, without the axis of the samples.
using Shape = std::vector<std::int64_t>;

// How a tensor begins.
enum class Initial {
  kUniform,  // in (-1/sqrt(fan_in), 1/sqrt(fan_in)), as PyTorch's Linear and Conv2d do
  kKaiming,  // normal, variance 2/fan_in (He et al. 2015)
  kNormal,   // normal, variance 1
  kZeros,
  kOnes,
};

struct Parameter {
  std::string name;
  Shape shape;
  std::int64_t fan_in = 0;
  Initial initial = Initial::kUniform;
  // Not 0: no optimizer moves it. It is the running mean of something that each batch has, and
  // follows that by this share.
  float momentum = 0;
};

enum class Op {
  kDense,
  kConvolution,
  kMaxPool,
  kAveragePool,
  kAdaptiveAveragePool,
  kGlobalAveragePool,
  kBatchNorm,
  kGroupNorm,
  kLayerNorm,
  kRelu,
  kGelu,
  kTanh,
  kSigmoid,
  kDropout,
  kFlatten,
  kEmbedding,
  kPositions,
  kLstm,
  kAttention,
  // A residual block is kKeep, its layers, kSwap where its input is projected, the projection, and
  // kAdd. They work on a stack of values beside the one that goes from operation to operation.
  kKeep,  // puts the value on the stack
  kSwap,  // the value and the top of the stack change places
  kAdd,   // adds the top of the stack, and takes it away
};

// The fields that an operation does not use are 0.
struct Operation {
  Op op = Op::kFlatten;
  std::string name;           // of the layer, for messages
  std::size_t parameter = 0;  // the first of its parameters in Network::parameters
  bool bias = false;
  std::int64_t kernel = 0;
  std::int64_t stride = 0;
  std::int64_t padding = 0;
  std::int64_t groups = 0;  // also an attention's heads
  std::int64_t size = 0;    // what an adaptive pool gives, an embedding's rows, an LSTM's width
  double rate = 0;          // of dropout
  double epsilon = 0;
  bool sequence = false;  // an LSTM gives all places
  bool causal = false;
};

struct Network {
  Shape input;
  // So many places of a sample each have a number for each class; 1: the sample as a whole has.
  std::int64_t places = 1;
  std::vector<Parameter> parameters;  // from the first layer to the last
  std::vector<Operation> operations;
};

}  // namespace starling::network
