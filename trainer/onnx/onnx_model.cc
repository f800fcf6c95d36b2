// SPDX-License-Identifier: Apache-2.0
#include "trainer/onnx/onnx_model.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "trainer/kernels/quantise.h"

namespace starling::onnx {
namespace {

using network::Op;
using network::Operation;
using network::Shape;
using Names = std::vector<std::string>;

// The first opset with LayerNormalization, and the version of the format that goes with it:
// onnxruntime reads both from 1.12 on.
constexpr std::int64_t kOpset = 17;
constexpr std::int64_t kFormat = 8;
constexpr char kInput[] = "input";
constexpr char kBatch[] = "batch";  // the axis of the samples, whose size is open
// Protobuf reads no message that is larger. The rest of the graph takes far less than a megabyte.
constexpr std::int64_t kMostBytes = (std::int64_t{1} << 31) - (1 << 20);

// A tensor of the graph, and its shape without the axis of the samples.
struct Value {
  std::string name;
  Shape shape;
};

struct Attribute {
  std::string name;
  std::variant<std::int64_t, float, std::vector<std::int64_t>> value;
};

// The graph while it grows. What it adds is named after the layer that it is for.
class Graph {
 public:
  explicit Graph(::onnx::GraphProto& graph) : graph_(graph) {}

  void EnterLayer(const std::string& name) { layer_ = name; }

  // The node's output.
  std::string Add(const std::string& type, const Names& inputs,
                  const std::vector<Attribute>& attributes = {}) {
    return AddAll(type, inputs, 1, attributes).front();
  }

  // The node's outputs, so many.
  Names AddAll(const std::string& type, const Names& inputs, std::size_t outputs,
               const std::vector<Attribute>& attributes) {
    ::onnx::NodeProto& node = *graph_.add_node();
    node.set_op_type(type);
    node.set_name(NewName(type));
    for (const std::string& input : inputs) node.add_input(input);
    for (const Attribute& attribute : attributes) Set(attribute, *node.add_attribute());
    Names names;
    for (std::size_t i = 0; i < outputs; ++i) {
      names.push_back(outputs == 1 ? node.name() : absl::StrCat(node.name(), ".", i));
      node.add_output(names.back());
    }
    return names;
  }

  // Gives `value` a name of its own.
  void Rename(const std::string& value, const std::string& name) {
    ::onnx::NodeProto& node = *graph_.add_node();
    node.set_op_type("Identity");
    node.set_name(absl::StrCat(name, "/Identity"));
    node.add_input(value);
    node.add_output(name);
  }

  void AddTensor(const std::string& name, const Shape& shape, std::span<const float> values) {
    ::onnx::TensorProto& tensor = Tensor(name, shape, ::onnx::TensorProto::FLOAT);
    const auto bytes = std::as_bytes(values);
    tensor.set_raw_data(bytes.data(), bytes.size());  // little-endian, as this machine is
  }

  // A matrix or kernel, as `weights` says: its bytes are made floats by the first node that has its
  // name. Others stay floats, for they are few.
  void AddWeight(Weights weights, const std::string& name, const Shape& shape,
                 std::span<const float> values) {
    const auto outputs = std::ranges::find_if(shape, [](std::int64_t side) { return side > 1; });
    if (weights == Weights::kFloat32 || outputs == shape.end() || shape.size() < 2) {
      return AddTensor(name, shape, values);
    }
    const auto rows = static_cast<std::size_t>(*outputs);
    const std::size_t row = values.size() / rows;
    std::vector<std::int8_t> levels(values.size());
    std::vector<float> scales(rows);
    for (std::size_t i = 0; i < rows; ++i) {
      const float scale = kernels::Int8Scale(values.subspan(i * row, row));
      scales[i] = scale == 0 ? 1 : scale;  // then all levels are 0
      kernels::QuantiseInt8(values.subspan(i * row, row), scales[i],
                            std::span(levels).subspan(i * row, row));
    }
    const std::string bytes = absl::StrCat(name, "/int8"), scale = absl::StrCat(name, "/scale");
    ::onnx::TensorProto& tensor = Tensor(bytes, shape, ::onnx::TensorProto::INT8);
    tensor.set_raw_data(levels.data(), levels.size());
    AddTensor(scale, {*outputs}, scales);
    ::onnx::NodeProto& node = *graph_.add_node();
    node.set_op_type("DequantizeLinear");
    node.set_name(absl::StrCat(name, "/DequantizeLinear"));
    node.add_input(bytes);
    node.add_input(scale);
    node.add_output(name);
    Set({"axis", std::int64_t{outputs - shape.begin()}}, *node.add_attribute());
  }

  std::string Weight(Weights weights, const Shape& shape, const std::vector<float>& values) {
    std::string name = NewName("weight");
    AddWeight(weights, name, shape, values);
    return name;
  }

  std::string Constant(const Shape& shape, const std::vector<float>& values) {
    std::string name = NewName("constant");
    AddTensor(name, shape, values);
    return name;
  }

  std::string Constant(float value) { return Constant({}, {value}); }

  std::string Integers(const std::vector<std::int64_t>& values) {
    std::string name = NewName("constant");
    ::onnx::TensorProto& tensor = Tensor(name, {std::ssize(values)}, ::onnx::TensorProto::INT64);
    const auto bytes = std::as_bytes(std::span(values));
    tensor.set_raw_data(bytes.data(), bytes.size());
    return name;
  }

  // To this shape, of each sample.
  Value Reshape(const std::string& value, Shape shape) {
    std::vector<std::int64_t> sides = {0};  // as many samples as there are
    sides.insert(sides.end(), shape.begin(), shape.end());
    return {Add("Reshape", {value, Integers(sides)}), std::move(shape)};
  }

 private:
  std::string NewName(const std::string& what) {
    return absl::StrCat(layer_, "/", what, "-", ++count_);
  }

  ::onnx::TensorProto& Tensor(const std::string& name, const Shape& shape,
                              ::onnx::TensorProto::DataType type) {
    ::onnx::TensorProto& tensor = *graph_.add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(type);
    for (const std::int64_t side : shape) tensor.add_dims(side);
    return tensor;
  }

  static void Set(const Attribute& attribute, ::onnx::AttributeProto& into) {
    into.set_name(attribute.name);
    if (const auto* integer = std::get_if<std::int64_t>(&attribute.value)) {
      into.set_type(::onnx::AttributeProto::INT);
      into.set_i(*integer);
    } else if (const auto* number = std::get_if<float>(&attribute.value)) {
      into.set_type(::onnx::AttributeProto::FLOAT);
      into.set_f(*number);
    } else {
      into.set_type(::onnx::AttributeProto::INTS);
      for (const std::int64_t one : std::get<std::vector<std::int64_t>>(attribute.value)) {
        into.add_ints(one);
      }
    }
  }

  ::onnx::GraphProto& graph_;
  std::string layer_;
  int count_ = 0;
};

// A network on its way into the graph.
struct Run {
  const Source& source;
  Graph& graph;
  const Operation* operation = nullptr;
  std::vector<Value> kept = {};

  // The operation's own parameters, counted from 0.
  const network::Parameter& Own(std::size_t parameter) const {
    return source.network.parameters[operation->parameter + parameter];
  }
  std::span<const float> ValuesOf(std::size_t parameter) const {
    return source.parameters[operation->parameter + parameter];
  }
  // The nodes' name of it.
  const std::string& Name(std::size_t parameter) const { return Own(parameter).name; }
  // Weight, and bias where there is one.
  Names WithWeights(const std::string& input) const {
    Names names = {input, Name(0)};
    if (operation->bias) names.push_back(Name(1));
    return names;
  }
};

constexpr std::int64_t kLast = -1;  // axis

// Over the last axis of a sequence.
std::string Linear(Run& run, const std::string& x, std::size_t weight, bool bias) {
  const std::string transposed =
      run.graph.Add("Transpose", {run.Name(weight)}, {{"perm", std::vector<std::int64_t>{1, 0}}});
  const std::string product = run.graph.Add("MatMul", {x, transposed});
  return bias ? run.graph.Add("Add", {product, run.Name(weight + 1)}) : product;
}

Value Dense(Run& run, const Value& x) {
  Shape shape = x.shape;
  shape.back() = run.Own(0).shape.front();
  if (x.shape.size() > 1) return {Linear(run, x.name, 0, run.operation->bias), std::move(shape)};
  return {run.graph.Add("Gemm", run.WithWeights(x.name), {{"transB", std::int64_t{1}}}),
          std::move(shape)};
}

// What a window that slides over an image leaves of it.
Shape Slid(const Operation& window, Shape shape) {
  for (std::size_t side = 1; side < 3; ++side) {
    shape[side] = (shape[side] + 2 * window.padding - window.kernel) / window.stride + 1;
  }
  return shape;
}

std::vector<Attribute> Window(const Operation& window) {
  return {{"kernel_shape", std::vector<std::int64_t>(2, window.kernel)},
          {"strides", std::vector<std::int64_t>(2, window.stride)},
          {"pads", std::vector<std::int64_t>(4, window.padding)}};
}

Value Convolution(Run& run, const Value& x) {
  std::vector<Attribute> attributes = Window(*run.operation);
  attributes.push_back({"group", run.operation->groups});
  Shape shape = Slid(*run.operation, x.shape);
  shape.front() = run.Own(0).shape.front();
  return {run.graph.Add("Conv", run.WithWeights(x.name), attributes), std::move(shape)};
}

Value MaxPool(Run& run, const Value& x) {
  return {run.graph.Add("MaxPool", {x.name}, Window(*run.operation)),
          Slid(*run.operation, x.shape)};
}

Value AveragePool(Run& run, const Value& x) {
  std::vector<Attribute> attributes = Window(*run.operation);
  attributes.push_back({"count_include_pad", std::int64_t{1}});
  return {run.graph.Add("AveragePool", {x.name}, attributes), Slid(*run.operation, x.shape)};
}

// Row i holds how much each of `from` numbers counts in the i-th of `to` means, of windows that
// overlap where `to` does not divide `from`.
std::vector<float> Means(std::int64_t from, std::int64_t to) {
  std::vector<float> rows(static_cast<std::size_t>(from * to));
  for (std::int64_t i = 0; i < to; ++i) {
    const std::int64_t begin = i * from / to;
    const std::int64_t end = ((i + 1) * from + to - 1) / to;
    for (std::int64_t k = begin; k < end; ++k) {
      rows[static_cast<std::size_t>(i * from + k)] = 1 / static_cast<float>(end - begin);
    }
  }
  return rows;
}

std::vector<float> Transposed(const std::vector<float>& matrix, std::int64_t rows,
                              std::int64_t columns) {
  std::vector<float> result(matrix.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      result[static_cast<std::size_t>(column * rows + row)] =
          matrix[static_cast<std::size_t>(row * columns + column)];
    }
  }
  return result;
}

// ONNX has no such pooling: means over rows and over columns are products with a matrix each.
Value AdaptiveAveragePool(Run& run, const Value& x) {
  const std::int64_t size = run.operation->size;
  const std::int64_t height = x.shape[1];
  const std::int64_t width = x.shape[2];
  std::string result = x.name;
  if (height != size) {
    result =
        run.graph.Add("MatMul", {run.graph.Constant({size, height}, Means(height, size)), result});
  }
  if (width != size) {
    const std::vector<float> columns = Transposed(Means(width, size), size, width);
    result = run.graph.Add("MatMul", {result, run.graph.Constant({width, size}, columns)});
  }
  return {std::move(result), {x.shape.front(), size, size}};
}

Value GlobalAveragePool(Run& run, const Value& x) {
  if (x.shape.size() == 3) {
    const std::string means = run.graph.Add("GlobalAveragePool", {x.name});
    return {run.graph.Add("Flatten", {means}, {{"axis", std::int64_t{1}}}), {x.shape.front()}};
  }
  return {run.graph.Add("ReduceMean", {x.name},
                        {{"axes", std::vector<std::int64_t>{1}}, {"keepdims", std::int64_t{0}}}),
          {x.shape.back()}};
}

Attribute Epsilon(const Run& run) {
  return {"epsilon", static_cast<float>(run.operation->epsilon)};
}

Value BatchNorm(Run& run, const Value& x) {
  return {
      run.graph.Add("BatchNormalization",
                    {x.name, run.Name(0), run.Name(1), run.Name(2), run.Name(3)}, {Epsilon(run)}),
      x.shape};
}

// A group's values are normalised as one instance, which opset 17 has, and then scaled by channel.
Value GroupNorm(Run& run, const Value& x) {
  const std::int64_t groups = run.operation->groups;
  const auto count = static_cast<std::size_t>(groups);
  Graph& graph = run.graph;
  const Value together = graph.Reshape(x.name, {groups, -1});
  const std::string normalised =
      graph.Add("InstanceNormalization",
                {together.name, graph.Constant({groups}, std::vector<float>(count, 1)),
                 graph.Constant({groups}, std::vector<float>(count, 0))},
                {Epsilon(run)});
  const Value apart = graph.Reshape(normalised, x.shape);
  std::vector<std::int64_t> sides(x.shape.size(), 1);  // of the channels, before the image's sides
  sides.front() = x.shape.front();
  const std::string shape = graph.Integers(sides);
  const std::string scaled =
      graph.Add("Mul", {apart.name, graph.Add("Reshape", {run.Name(0), shape})});
  return {graph.Add("Add", {scaled, graph.Add("Reshape", {run.Name(1), shape})}), x.shape};
}

Value LayerNorm(Run& run, const Value& x) {
  return {run.graph.Add("LayerNormalization", {x.name, run.Name(0), run.Name(1)},
                        {{"axis", kLast}, Epsilon(run)}),
          x.shape};
}

Value Relu(Run& run, const Value& x) { return {run.graph.Add("Relu", {x.name}), x.shape}; }
Value Tanh(Run& run, const Value& x) { return {run.graph.Add("Tanh", {x.name}), x.shape}; }
Value Sigmoid(Run& run, const Value& x) { return {run.graph.Add("Sigmoid", {x.name}), x.shape}; }

// x / 2 * (1 + erf(x / sqrt(2))): Gelu itself is of a later opset.
Value Gelu(Run& run, const Value& x) {
  Graph& graph = run.graph;
  const std::string erf = graph.Add(
      "Erf", {graph.Add("Div", {x.name, graph.Constant(static_cast<float>(std::sqrt(2.0)))})});
  const std::string share = graph.Add("Add", {erf, graph.Constant(1)});
  const std::string half = graph.Add("Mul", {x.name, graph.Constant(0.5)});
  return {graph.Add("Mul", {half, share}), x.shape};
}

// Of training alone.
Value Dropout(Run& /*run*/, const Value& x) { return x; }

Value Flatten(Run& run, const Value& x) {
  if (x.shape.size() == 1) return x;
  std::int64_t numbers = 1;
  for (const std::int64_t side : x.shape) numbers *= side;
  return {run.graph.Add("Flatten", {x.name}, {{"axis", std::int64_t{1}}}), {numbers}};
}

Value Embedding(Run& run, const Value& x) {
  Shape shape = x.shape;
  shape.push_back(run.Own(0).shape.back());
  return {run.graph.Add("Gather", {run.Name(0), x.name}, {{"axis", std::int64_t{0}}}),
          std::move(shape)};
}

Value Positions(Run& run, const Value& x) {
  return {run.graph.Add("Add", {x.name, run.Name(0)}), x.shape};
}

// PyTorch has its gates as input, forget, cell, output; ONNX as input, output, forget, cell.
std::vector<float> GatesOf(std::span<const float> values) {
  const std::size_t gate = values.size() / 4;
  std::vector<float> result;
  for (const std::size_t from : {0, 3, 1, 2}) {
    const auto part = values.subspan(from * gate, gate);
    result.insert(result.end(), part.begin(), part.end());
  }
  return result;
}

// ONNX's goes over (places, samples, numbers), and gives an axis of directions, of which there is
// one here.
Value Lstm(Run& run, const Value& x) {
  Graph& graph = run.graph;
  const std::int64_t units = run.operation->size;
  const std::int64_t inputs = x.shape[1];
  std::vector<float> biases = GatesOf(run.ValuesOf(2));
  const std::vector<float> recurrent = GatesOf(run.ValuesOf(3));
  biases.insert(biases.end(), recurrent.begin(), recurrent.end());
  const std::vector<std::int64_t> swap = {1, 0, 2};
  const std::string places = graph.Add("Transpose", {x.name}, {{"perm", swap}});
  const Names given = graph.AddAll(
      "LSTM",
      {places, graph.Weight(run.source.weights, {1, 4 * units, inputs}, GatesOf(run.ValuesOf(0))),
       graph.Weight(run.source.weights, {1, 4 * units, units}, GatesOf(run.ValuesOf(1))),
       graph.Constant({1, 8 * units}, biases)},
      2, {{"hidden_size", units}});
  if (!run.operation->sequence) {
    return {graph.Add("Squeeze", {given[1], graph.Integers({0})}), {units}};
  }
  const std::string all = graph.Add("Squeeze", {given[0], graph.Integers({1})});
  return {graph.Add("Transpose", {all}, {{"perm", swap}}), {x.shape[0], units}};
}

// Adds minus infinity to the scores of what comes later.
std::string Later(Graph& graph, std::int64_t length) {
  std::vector<float> mask(static_cast<std::size_t>(length * length));
  for (std::int64_t place = 0; place < length; ++place) {
    const auto row = std::span(mask).subspan(static_cast<std::size_t>(place * length),
                                             static_cast<std::size_t>(length));
    std::ranges::fill(row.subspan(static_cast<std::size_t>(place + 1)),
                      -std::numeric_limits<float>::infinity());
  }
  return graph.Constant({length, length}, mask);
}

Value Attention(Run& run, const Value& x) {
  Graph& graph = run.graph;
  const std::int64_t length = x.shape[0];
  const std::int64_t width = x.shape[1];
  const std::int64_t heads = run.operation->groups;
  const Names parts =
      graph.AddAll("Split", {Linear(run, x.name, 0, /*bias=*/true)}, 3, {{"axis", kLast}});
  const auto of_heads = [&](const std::string& part, std::vector<std::int64_t> order) {
    const Value apart = graph.Reshape(part, {length, heads, width / heads});
    return graph.Add("Transpose", {apart.name}, {{"perm", std::move(order)}});
  };
  const std::string query = of_heads(parts[0], {0, 2, 1, 3});
  const std::string key = of_heads(parts[1], {0, 2, 3, 1});
  const std::string value = of_heads(parts[2], {0, 2, 1, 3});
  const auto root = static_cast<float>(std::sqrt(static_cast<double>(width / heads)));
  std::string scores = graph.Add("Div", {graph.Add("MatMul", {query, key}), graph.Constant(root)});
  if (run.operation->causal) scores = graph.Add("Add", {scores, Later(graph, length)});
  const std::string shares = graph.Add("Softmax", {scores}, {{"axis", kLast}});
  const std::string seen = graph.Add("Transpose", {graph.Add("MatMul", {shares, value})},
                                     {{"perm", std::vector<std::int64_t>{0, 2, 1, 3}}});
  const Value together = graph.Reshape(seen, {length, width});
  return {Linear(run, together.name, 2, /*bias=*/true), x.shape};
}

Value Keep(Run& run, const Value& x) {
  run.kept.push_back(x);
  return x;
}

Value Swap(Run& run, const Value& x) { return std::exchange(run.kept.back(), x); }

Value Add(Run& run, const Value& x) {
  const Value sum = {run.graph.Add("Add", {x.name, run.kept.back().name}), x.shape};
  run.kept.pop_back();
  return sum;
}

struct Step {
  Op op;
  Value (*add)(Run& run, const Value& x);
};

constexpr Step kSteps[] = {
    {Op::kDense, Dense},
    {Op::kConvolution, Convolution},
    {Op::kMaxPool, MaxPool},
    {Op::kAveragePool, AveragePool},
    {Op::kAdaptiveAveragePool, AdaptiveAveragePool},
    {Op::kGlobalAveragePool, GlobalAveragePool},
    {Op::kBatchNorm, BatchNorm},
    {Op::kGroupNorm, GroupNorm},
    {Op::kLayerNorm, LayerNorm},
    {Op::kRelu, Relu},
    {Op::kGelu, Gelu},
    {Op::kTanh, Tanh},
    {Op::kSigmoid, Sigmoid},
    {Op::kDropout, Dropout},
    {Op::kFlatten, Flatten},
    {Op::kEmbedding, Embedding},
    {Op::kPositions, Positions},
    {Op::kLstm, Lstm},
    {Op::kAttention, Attention},
    {Op::kKeep, Keep},
    {Op::kSwap, Swap},
    {Op::kAdd, Add},
};

absl::StatusOr<Value> AddOperation(Run& run, const Value& x) {
  const auto* const step = std::ranges::find(kSteps, run.operation->op, &Step::op);
  if (step != std::end(kSteps)) return step->add(run, x);
  return absl::InvalidArgumentError(
      absl::StrCat("the layer ", run.operation->name,
                   " has no form in ONNX; train a network without it, or use the model with "
                   "starling predict"));
}

void Declare(const std::string& name, ::onnx::TensorProto::DataType type, const Shape& shape,
             ::onnx::ValueInfoProto& value) {
  value.set_name(name);
  ::onnx::TypeProto::Tensor& tensor = *value.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(type);
  tensor.mutable_shape()->add_dim()->set_dim_param(kBatch);
  for (const std::int64_t side : shape) tensor.mutable_shape()->add_dim()->set_dim_value(side);
}

absl::Status CheckSize(const Source& source) {
  std::int64_t bytes = 0;
  for (const std::span<const float> values : source.parameters) {
    bytes += static_cast<std::int64_t>(values.size_bytes());
  }
  if (bytes <= kMostBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("has ", bytes >> 20,
                   " MiB of tensors, but an ONNX file holds at most 2 GiB; train a smaller "
                   "network, or use the model with starling predict"));
}

// The sample as the network sees it.
absl::StatusOr<Value> AddInput(const Source& source, Graph& graph, ::onnx::GraphProto& proto) {
  const Shape& shape = source.network.input;
  const Operation& first = source.network.operations.front();
  const bool numbers = first.op == Op::kEmbedding;
  Declare(kInput, numbers ? ::onnx::TensorProto::INT64 : ::onnx::TensorProto::FLOAT, shape,
          *proto.add_input());
  if (source.mean.empty()) return Value{kInput, shape};
  if (numbers) {
    return absl::InvalidArgumentError(
        absl::StrCat("the embedding ", first.name,
                     " reads numbers that were scaled; train it anew with dataset.normalize: "
                     "false"));
  }
  const Shape sides = source.mean.size() == 1 ? Shape() : shape;
  graph.EnterLayer("normalization");
  const std::string centred = graph.Add("Sub", {kInput, graph.Constant(sides, source.mean)});
  return Value{graph.Add("Div", {centred, graph.Constant(sides, source.deviation)}), shape};
}

struct Output {
  std::string name;
  Value value;
};

std::vector<Output> OutputsOf(const Source& source, Graph& graph, const Value& scaled,
                              Value given) {
  graph.EnterLayer("output");
  if (source.sigmoid) given.name = graph.Add("Sigmoid", {given.name});
  switch (source.result) {
    case Result::kScores:
      return {{"scores", given}};
    case Result::kPredictions:
      return {{"predictions", given}};
    case Result::kReconstruction: {
      const Value rebuilt = graph.Reshape(given.name, scaled.shape);
      const std::string off = graph.Add("Sub", {rebuilt.name, scaled.name});
      const std::string squares =
          graph.Add("Flatten", {graph.Add("Mul", {off, off})}, {{"axis", std::int64_t{1}}});
      const std::string mean =
          graph.Add("ReduceMean", {squares},
                    {{"axes", std::vector<std::int64_t>{1}}, {"keepdims", std::int64_t{0}}});
      return {{"reconstruction", rebuilt}, {"error", {mean, {}}}};
    }
    case Result::kProbabilities:
      break;
  }
  return {{"probabilities", {graph.Add("Softmax", {given.name}, {{"axis", kLast}}), given.shape}}};
}

}  // namespace

absl::StatusOr<std::string> Encode(const Source& source) {
  RETURN_IF_ERROR(CheckSize(source));
  ::onnx::ModelProto model;
  model.set_ir_version(kFormat);
  model.set_producer_name("starling");
  model.add_opset_import()->set_version(kOpset);
  for (const auto& [key, value] : source.metadata) {
    ::onnx::StringStringEntryProto& entry = *model.add_metadata_props();
    entry.set_key(key);
    entry.set_value(value);
  }
  ::onnx::GraphProto& proto = *model.mutable_graph();
  proto.set_name("starling");
  Graph graph(proto);
  Run run{.source = source, .graph = graph};
  // An LSTM's tensors are kept in another order.
  std::vector<bool> reordered(source.parameters.size());
  for (const Operation& operation : source.network.operations) {
    if (operation.op != Op::kLstm) continue;
    std::fill_n(reordered.begin() + static_cast<std::ptrdiff_t>(operation.parameter), 4, true);
  }
  for (std::size_t i = 0; i < source.parameters.size(); ++i) {
    const network::Parameter& parameter = source.network.parameters[i];
    if (reordered[i]) continue;
    graph.AddWeight(source.weights, parameter.name, parameter.shape, source.parameters[i]);
  }
  ASSIGN_OR_RETURN(const Value scaled, AddInput(source, graph, proto));
  Value value = scaled;
  for (const Operation& operation : source.network.operations) {
    run.operation = &operation;
    graph.EnterLayer(operation.name);
    ASSIGN_OR_RETURN(value, AddOperation(run, value));
  }
  for (const Output& output : OutputsOf(source, graph, scaled, std::move(value))) {
    graph.Rename(output.value.name, output.name);
    Declare(output.name, ::onnx::TensorProto::FLOAT, output.value.shape, *proto.add_output());
  }
  std::string file;
  if (!model.SerializeToString(&file)) {
    return absl::InternalError("the ONNX model cannot be serialised");
  }
  return file;
}

}  // namespace starling::onnx
