// SPDX-License-Identifier: Apache-2.0
// That every network is a valid ONNX model, with the shapes that the plan says. That onnxruntime
// computes what the engine does is shown in tests/e2e/onnx_test.py.
#include "trainer/onnx/onnx_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <onnx/checker.h>
#include <onnx/onnx_pb.h>
#include <onnx/shape_inference/implementation.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/network/kinds.h"
#include "api/network/plan.h"
#include "google/protobuf/text_format.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::onnx {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kClasses = 10;

struct Case {
  std::string model;  // protobuf's text form
  network::Shape input;
  network::Task task = {.classes = kClasses};
  Result result = Result::kProbabilities;
};

network::Network PlanOf(const Case& one) {
  v1alpha1::Model model;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(one.model, &model)) << one.model;
  const auto planned = network::PlanNetwork(model, one.input, one.task);
  EXPECT_TRUE(planned.ok()) << planned.status();
  return planned.ok() ? *planned : network::Network();
}

// AlexNet and VGG have layers of 4096 numbers, some 400 MB of weights: they are made narrow here,
// and nothing else of the network changes.
void MakeNarrow(network::Network& network) {
  for (network::Parameter& parameter : network.parameters) {
    std::ranges::replace(parameter.shape, 4096, 8);
  }
}

// A network with numbers of its own in each place.
struct Trained {
  network::Network network;
  std::vector<float> values = {};

  explicit Trained(network::Network planned) : network(std::move(planned)) {
    std::int64_t most = 0;
    for (const network::Parameter& parameter : network.parameters) {
      most = std::max(most, network::NumbersOf(parameter.shape));
    }
    values.assign(static_cast<std::size_t>(most), 0.5F);
  }

  Source AsSource(Result result) const {
    Source source{.network = network, .result = result};
    for (const network::Parameter& parameter : network.parameters) {
      source.parameters.push_back(
          std::span(values).first(static_cast<std::size_t>(network::NumbersOf(parameter.shape))));
    }
    return source;
  }
};

::onnx::ModelProto MustEncode(const Source& source) {
  const auto file = Encode(source);
  EXPECT_TRUE(file.ok()) << file.status();
  ::onnx::ModelProto model;
  EXPECT_TRUE(file.ok() && model.ParseFromString(*file));
  return model;
}

// What ONNX's checker says of it, and then its inference of shapes, which must come to those that
// the outputs are declared with.
std::string ProblemOf(::onnx::ModelProto model) {
  try {
    ::onnx::checker::check_model(model);
    const ::onnx::ShapeInferenceOptions strict(/*check_type_val=*/true, /*strict_mode_val=*/1,
                                               /*data_prop_val=*/true);
    ::onnx::shape_inference::InferShapes(model, ::onnx::OpSchemaRegistry::Instance(), strict);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

std::string ShapeOf(const ::onnx::ValueInfoProto& value) {
  std::string text = value.name();
  for (const auto& side : value.type().tensor_type().shape().dim()) {
    absl::StrAppend(&text, " ", side.has_dim_param() ? side.dim_param() : "",
                    side.has_dim_value() ? absl::StrCat(side.dim_value()) : "");
  }
  return text;
}

std::vector<std::string> ShapesOf(
    const google::protobuf::RepeatedPtrField<::onnx::ValueInfoProto>& values) {
  std::vector<std::string> shapes;
  for (const auto& value : values) shapes.push_back(ShapeOf(value));
  return shapes;
}

const std::vector<Case>& Presets() {
  static const auto& presets = *new std::vector<Case>{
      {"mlp { hidden: [5, 4] }", {3, 2}},
      {"linear {}", {6}},
      {"lenet5 {}", {1, 28, 28}},
      {"alexnet {}", {3, 64, 64}},
      {"alexnet {}", {3, 224, 224}},
      {"vgg11 {}", {3, 32, 32}},
      {"vgg16 {}", {3, 64, 64}},
      {"resnet18 {}", {3, 32, 32}},
      {"resnet50 {}", {3, 64, 64}},
      {"autoencoder { hidden: [4, 2] }",
       {2, 3},
       {.classes = 6, .gives_input = true},
       Result::kReconstruction},
      {"transformer { blocks: 2 width: 8 heads: 2 }",
       {5},
       {.classes = kClasses, .each_place = true},
       Result::kScores},
      {"mlp { hidden: [5] }", {4}, {.classes = 2}, Result::kPredictions},
  };
  return presets;
}

TEST(Encode, EachNamedNetworkIsAValidModel) {
  for (const Case& one : Presets()) {
    SCOPED_TRACE(one.model);
    network::Network network = PlanOf(one);
    MakeNarrow(network);
    const Trained trained(std::move(network));
    Source source = trained.AsSource(one.result);
    const ::onnx::ModelProto model = MustEncode(source);
    EXPECT_EQ(ProblemOf(model), "");
    source.weights = Weights::kInt8;
    EXPECT_EQ(ProblemOf(MustEncode(source)), "");
    EXPECT_EQ(model.graph().input(0).type().tensor_type().shape().dim(0).dim_param(), "batch");
  }
}

const std::vector<Case>& Layers() {
  static const auto& layers = *new std::vector<Case>{
      {"layers { convolution { channels: 8 kernel: 3 stride: 2 padding: 1 } }"
       "layers { group_norm { groups: 4 } } layers { gelu {} }"
       "layers { convolution { channels: 8 kernel: 3 groups: 8 bias: false } }"
       "layers { batch_norm {} } layers { sigmoid {} } layers { average_pool { kernel: 2 } }"
       "layers { adaptive_average_pool { size: 5 } } layers { max_pool { kernel: 2 padding: 1 } }"
       "layers { dropout {} } layers { flatten {} } layers { dense {} }",
       {3, 17, 20}},
      {"layers { residual { layers { convolution { channels: 3 kernel: 3 stride: 2 padding: 1 } } "
       "projection { stride: 2 } } } layers { global_average_pool {} } layers { dense {} }",
       {2, 6, 6}},
      {"layers { group_norm { groups: 2 } } layers { layer_norm {} } layers { batch_norm {} }"
       "layers { tanh {} } layers { dense { bias: false } }",
       {4}},
      {"layers { lstm { units: 3 sequence: true } } layers { lstm { units: 3 } }"
       "layers { dense {} }",
       {5, 4}},
      {"layers { embedding { rows: 7 width: 4 } } layers { positions {} }"
       "layers { attention { heads: 2 causal: true } } layers { transformer_block { heads: 2 } }"
       "layers { relu {} } layers { global_average_pool {} } layers { dense {} }",
       {5}},
  };
  return layers;
}

TEST(Encode, EachKindOfLayerIsAValidModel) {
  std::vector<network::Op> seen;
  for (const Case& one : Layers()) {
    SCOPED_TRACE(one.model);
    const Trained trained(PlanOf(one));
    Source source = trained.AsSource(one.result);
    EXPECT_EQ(ProblemOf(MustEncode(source)), "");
    source.weights = Weights::kInt8;
    EXPECT_EQ(ProblemOf(MustEncode(source)), "");
    for (const network::Operation& operation : trained.network.operations) {
      seen.push_back(operation.op);
    }
  }
  for (const network::Kind& kind : network::Kinds()) {
    EXPECT_TRUE(std::ranges::find(seen, kind.op) != seen.end()) << kind.number;
  }
}

TEST(Encode, WhatGoesInAndComesOut) {
  const auto of = [](const Case& one) {
    return MustEncode(Trained(PlanOf(one)).AsSource(one.result));
  };
  const ::onnx::ModelProto classes = of({"linear {}", {1, 2, 2}});
  EXPECT_THAT(ShapesOf(classes.graph().input()), ElementsAre("input batch 1 2 2"));
  EXPECT_THAT(ShapesOf(classes.graph().output()), ElementsAre("probabilities batch 10"));
  const ::onnx::ModelProto text = of(*std::ranges::find(Presets(), Result::kScores, &Case::result));
  EXPECT_THAT(ShapesOf(text.graph().input()), ElementsAre("input batch 5"));
  EXPECT_EQ(text.graph().input(0).type().tensor_type().elem_type(), ::onnx::TensorProto::INT64);
  EXPECT_THAT(ShapesOf(text.graph().output()), ElementsAre("scores batch 5 10"));
  const ::onnx::ModelProto rebuilt =
      of(*std::ranges::find(Presets(), Result::kReconstruction, &Case::result));
  EXPECT_THAT(ShapesOf(rebuilt.graph().output()),
              ElementsAre("reconstruction batch 2 3", "error batch"));
}

TEST(Encode, SamplesAreScaledInTheGraphAndMetadataGoAlong) {
  const Trained trained(PlanOf({"linear {}", {3}}));
  Source source = trained.AsSource(Result::kProbabilities);
  const int plain = MustEncode(source).graph().node_size();
  source.metadata = {{"starling.classNames", "cats/dogs"}, {"starling.workload", "classification"}};
  for (const std::size_t values : {1, 3}) {
    source.mean.assign(values, 2);
    source.deviation.assign(values, 4);
    const ::onnx::ModelProto model = MustEncode(source);
    EXPECT_EQ(ProblemOf(model), "");
    EXPECT_EQ(model.graph().node(0).op_type(), "Sub");
    EXPECT_EQ(model.graph().node(1).op_type(), "Div");
    EXPECT_EQ(model.graph().node_size(), plain + 2);
    ASSERT_EQ(model.metadata_props_size(), 2);
    EXPECT_EQ(model.metadata_props(0).key(), "starling.classNames");
    EXPECT_EQ(model.metadata_props(0).value(), "cats/dogs");
  }
}

TEST(Encode, MatricesOfBytesHaveAScaleForEachOutput) {
  Trained trained(PlanOf({"linear {}", {3}}));  // 10 outputs of 3 numbers
  for (std::size_t i = 0; i < trained.values.size(); ++i) {
    const auto row = static_cast<float>(i / 3);
    trained.values[i] = row * (static_cast<float>(i % 3) - 1);  // the first row is 0
  }
  Source source = trained.AsSource(Result::kProbabilities);
  source.weights = Weights::kInt8;
  const ::onnx::ModelProto model = MustEncode(source);
  const auto raw = [&](const std::string& ending) {
    for (const ::onnx::TensorProto& tensor : model.graph().initializer()) {
      if (tensor.name().ends_with(ending)) return tensor.raw_data();
    }
    ADD_FAILURE() << "no " << ending;
    return std::string();
  };
  const std::string bytes = raw("weight/int8");
  const std::string scales = raw("weight/scale");
  ASSERT_EQ(bytes.size(), 30);
  ASSERT_EQ(scales.size(), 40);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    float scale = 0;
    std::memcpy(&scale, scales.data() + i / 3 * sizeof scale, sizeof scale);
    EXPECT_NEAR(scale * static_cast<float>(static_cast<std::int8_t>(bytes[i])), trained.values[i],
                1e-4)
        << i;
  }
  EXPECT_EQ(raw("bias").size(), 40) << "vectors stay floats";
}

TEST(Encode, RefusesWhatTheFormatCannotHoldByName) {
  const Trained trained(
      PlanOf({"layers { embedding { rows: 7 width: 4 } name: 'words' }"
              "layers { flatten {} } layers { dense {} }",
              {5}}));
  Source scaled = trained.AsSource(Result::kProbabilities);
  scaled.mean = scaled.deviation = {1};
  const absl::Status numbers = Encode(scaled).status();
  EXPECT_EQ(numbers.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(numbers.message()),
              AllOf(HasSubstr("the embedding words reads"), HasSubstr("dataset.normalize: false")));

  Source large = trained.AsSource(Result::kProbabilities);
  large.parameters.assign(1, std::span(trained.values.data(), std::size_t{1} << 30));
  EXPECT_THAT(std::string(Encode(large).status().message()),
              HasSubstr("has 4096 MiB of tensors, but an ONNX file holds at most 2 GiB"));

  Source unknown = trained.AsSource(Result::kProbabilities);
  unknown.network.operations[1].op = static_cast<network::Op>(1000);
  unknown.network.operations[1].name = "layers.1";
  EXPECT_THAT(std::string(Encode(unknown).status().message()),
              HasSubstr("the layer layers.1 has no form in ONNX; train a network without it"));
}

// The controls of the tests above: what is wrong is noticed.
TEST(Encode, TheCheckerNoticesAModelThatIsWrong) {
  const Trained trained(PlanOf({"mlp { hidden: [5] }", {3}}));
  const ::onnx::ModelProto model = MustEncode(trained.AsSource(Result::kProbabilities));
  ::onnx::ModelProto without = model;
  without.mutable_graph()->mutable_initializer()->DeleteSubrange(0, 1);
  EXPECT_NE(ProblemOf(without), "");
  ::onnx::ModelProto other = model;
  other.mutable_graph()
      ->mutable_output(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(1)
      ->set_dim_value(kClasses + 1);
  EXPECT_NE(ProblemOf(other), "");
}

}  // namespace
}  // namespace starling::onnx
