// SPDX-License-Identifier: Apache-2.0
#include "api/network/plan.h"

#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/network/presets.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::network {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1alpha1::Model ModelOf(const std::string& text) {
  v1alpha1::Model model;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &model)) << text;
  return model;
}

Network MustPlan(const std::string& text, const Shape& input, std::int64_t classes) {
  const auto planned = PlanNetwork(ModelOf(text), input, classes);
  EXPECT_TRUE(planned.ok()) << text << planned.status();
  return planned.ok() ? *planned : Network();
}

std::string Refused(const std::string& text, const Shape& input, std::int64_t classes = 10) {
  const auto planned = PlanNetwork(ModelOf(text), input, classes);
  EXPECT_FALSE(planned.ok()) << text;
  return std::string(planned.status().message());
}

std::int64_t Numbers(const Network& network) {
  std::int64_t numbers = 0;
  for (const Parameter& parameter : network.parameters) {
    if (parameter.momentum != 0) continue;
    numbers += std::accumulate(parameter.shape.begin(), parameter.shape.end(), std::int64_t{1},
                               std::multiplies<>());
  }
  return numbers;
}

TEST(PlanNetwork, InfersEveryShapeFromTheDatas) {
  const Network network = MustPlan(
      "layers { convolution { channels: 8 kernel: 3 padding: 1 } } layers { relu {} }"
      "layers { max_pool { kernel: 2 } } layers { flatten {} }"
      "layers { dense { units: 16 } name: 'hidden' } layers { dense {} }",
      {1, 8, 8}, 10);
  std::vector<std::string> tensors;
  for (const Parameter& parameter : network.parameters) {
    tensors.push_back(
        absl::StrCat(parameter.name, " ", parameter.shape.front(), " ", parameter.shape.back()));
  }
  EXPECT_THAT(tensors,
              ElementsAre("layers.0.weight 8 3", "layers.0.bias 8 8", "hidden.weight 16 128",
                          "hidden.bias 16 16", "layers.5.weight 10 16", "layers.5.bias 10 10"));
}

struct Wrong {
  const char* layers;
  Shape input;
  const char* path;
  const char* words;
};

TEST(PlanNetwork, NamesTheLayerThatDoesNotFitAndWhatWould) {
  const Wrong wrongs[] = {
      {"layers { dense { units: 3 } }", {8}, ": ", "gives [3], and must give one number for each"},
      {"layers { dense {} } layers { dense {} }", {8}, "[0].dense: ", "needs units"},
      {"layers { dense {} }", {1, 8, 8}, "[0].dense: ", "put flatten: {} or globalAveragePool"},
      {"layers { convolution { channels: 4 kernel: 3 } }",
       {64},
       "[0].convolution: ",
       "needs an image [channels, height, width], and is given [64]"},
      {"layers { convolution { channels: 4 kernel: 5 } } layers { max_pool { kernel: 5 } }",
       {1, 8, 8},
       "[1].maxPool: ",
       "is given [4, 4, 4]; write kernel: 4 or less"},
      {"layers { convolution { channels: 4 kernel: 1 groups: 3 } }",
       {4, 8, 8},
       "[0].convolution: ",
       "has 3 groups, which must divide the 4 channels that it is given and the 4 that it gives"},
      {"layers { average_pool { kernel: 2 padding: 2 } }",
       {1, 8, 8},
       "[0].averagePool: ",
       "must be at most half of its kernel (1)"},
      {"layers { global_average_pool {} }", {8}, "[0].globalAveragePool: ", "is given [8]"},
      {"layers { batch_norm {} }", {5, 8}, "[0].batchNorm: ", "use layerNorm"},
      {"layers { group_norm { groups: 3 } }", {4, 8, 8}, "[0].groupNorm: ", "divide the 4"},
      {"layers { layer_norm {} }", {4, 8, 8}, "[0].layerNorm: ", "use groupNorm"},
      {"layers { relu {} } layers { embedding { rows: 3 width: 2 } }",
       {8},
       "[1].embedding: ",
       "must be the first layer"},
      {"layers { lstm { units: 2 } }", {8}, "[0].lstm: ", "needs a sequence [length, width]"},
      {"layers { attention { heads: 3 } }", {5, 8}, "[0].attention: ", "divide the width 8"},
      {"layers { transformer_block { heads: 3 } }",
       {5, 8},
       "[0].transformerBlock: ",
       "its layer layers.0.self_attn has 3 heads, which must divide the width 8"},
      {"layers { transformer_block { heads: 2 } }",
       {8},
       "[0].transformerBlock: ",
       "needs a sequence [length, width], and is given [8]"},
      {"layers { positions {} }", {1, 8, 8}, "[0].positions: ", "needs a sequence"},
      {"layers { relu {} }", {10}, ": ", "no layer has anything to learn"},
      {"layers { dense {} }", {4, 8}, ": ", "gives [4, 10]"},
      {"layers {}", {8}, "[0]: ", "holds no kind of layer"},
      {"layers { dense { units: 4 } name: 'a' } layers { dense {} name: 'a' }",
       {8},
       "[1].dense: ",
       "names a tensor a.weight, as another layer does"},
      {"layers { dense { units: 65536 } } layers { dense { units: 65536 } } layers { dense {} }",
       {8},
       "[1].dense: ",
       "makes the network too large"},
      {"layers { residual { layers { convolution { channels: 4 kernel: 3 } } } }",
       {1, 8, 8},
       "[0].residual: ",
       "[4, 6, 6], to its input, [1, 8, 8]; write projection"},
      {"layers { residual { layers { convolution { channels: 4 kernel: 3 stride: 2 padding: 1 } }"
       " projection {} } }",
       {1, 8, 8},
       "[0].residual: ",
       "[4, 4, 4], to its projected input, [4, 8, 8]"},
      {"layers { residual { layers { dense { units: 3 } } } }",
       {8},
       "[0].residual: ",
       "let its layers give what they are given"},
      {"layers { residual { layers { relu {} } layers { dense {} } } }",
       {8},
       "[0].residual.layers[1].dense: ",
       "needs units"},
  };
  for (const Wrong& wrong : wrongs) {
    const std::string words = Refused(wrong.layers, wrong.input);
    EXPECT_THAT(words, HasSubstr(absl::StrCat(kModelPath, ".layers", wrong.path)));
    EXPECT_THAT(words, HasSubstr(wrong.words));
  }
}

// The strict reader refuses them first; whoever else asks must not bring the program down.
TEST(PlanNetwork, ComesThroughNumbersThatNoFileMayHold) {
  for (const char* layers :
       {"convolution {}", "convolution { kernel: -3 stride: -1 padding: -9 groups: -1 }",
        "max_pool {}", "average_pool { stride: -1 padding: -1 }", "adaptive_average_pool {}",
        "group_norm {}", "lstm {}", "attention {}", "embedding { rows: -1 width: -1 }",
        "dense { units: -1 }", "positions {}", "transformer_block {}",
        "transformer_block { heads: -1 hidden: -1 dropout: -1 }"}) {
    for (const Shape& shape : {Shape{4, 8, 8}, Shape{8, 8}, Shape{8}}) {
      const auto ignored = PlanNetwork(ModelOf(absl::StrCat("layers { ", layers, " }")), shape, 0);
    }
  }
}

TEST(PlanNetwork, ClassesThatAreNotKnownYetFitAnything) {
  EXPECT_EQ(MustPlan("layers { dense { units: 3 } }", {8}, 0).parameters[0].shape, (Shape{3, 8}));
  MustPlan("layers { dense {} }", {8}, 0);
  EXPECT_THAT(Refused("layers { dense {} }", {4, 8}, 0), HasSubstr("for each of the classes"));
}

// The numbers are those of the papers' tables and of torchvision's own documentation.
TEST(NamedNetworks, HaveAsManyNumbersAsPyTorchs) {
  const std::map<std::string, std::int64_t> numbers = {
      {"alexnet {}", 61'100'840},  {"vgg11 {}", 132'863'336},   {"vgg16 {}", 138'357'544},
      {"resnet18 {}", 11'689'512}, {"resnet50 {}", 25'557'032},
  };
  for (const auto& [model, expected] : numbers) {
    EXPECT_EQ(Numbers(MustPlan(model, {3, 224, 224}, 1000)), expected) << model;
  }
  EXPECT_EQ(Numbers(MustPlan("lenet5 {}", {1, 28, 28}, 10)), 61'706);
  EXPECT_EQ(Numbers(MustPlan("linear {}", {1, 8, 8}, 10)), 650);
}

TEST(NamedNetworks, CallTheirTensorsAsTorchvisionDoes) {
  const auto has = [](const std::string& model, const std::string& name) {
    const Network network = MustPlan(model, {3, 64, 64}, 10);
    return std::ranges::count(network.parameters, name, &Parameter::name) == 1;
  };
  EXPECT_TRUE(has("resnet18 {}", "layer2.0.downsample.0.weight"));
  EXPECT_TRUE(has("resnet18 {}", "layer4.1.bn2.running_var"));
  EXPECT_TRUE(has("resnet50 {}", "layer1.0.downsample.1.running_mean"));
  EXPECT_TRUE(has("resnet50 {}", "layer3.5.conv3.weight"));
  EXPECT_TRUE(has("vgg16 {}", "features.28.bias"));
  EXPECT_TRUE(has("vgg11 {}", "classifier.3.weight"));
  EXPECT_TRUE(has("alexnet {}", "features.10.weight"));
  EXPECT_TRUE(has("mlp { hidden: 4 }", "layers.1.weight"));
}

TEST(NamedNetworks, TakeTheSmallestImagesThatTheySayAndNoSmaller) {
  for (const char* model :
       {"lenet5 {}", "alexnet {}", "vgg11 {}", "vgg16 {}", "resnet18 {}", "resnet50 {}"}) {
    const auto need = NeedOf(ModelOf(model));
    ASSERT_TRUE(need.has_value()) << model;
    MustPlan(model, {3, need->side, need->side}, 10);
    MustPlan(model, {need->side, need->side}, 10);  // one channel
    EXPECT_THAT(Refused(model, {3, need->side, need->side - 1}),
                HasSubstr(absl::StrCat(kModelPath, ".", need->name, ": needs images")));
  }
}

// Those of nn.TransformerEncoderLayer(4, 2, 16).
TEST(PlanNetwork, ATransformersBlockIsPyTorchsAndFourTimesAsWideInside) {
  const Network network = MustPlan(
      "layers { transformer_block { heads: 2 } name: 'a' }"
      "layers { global_average_pool {} } layers { dense {} name: 'b' }",
      {7, 4}, 10);
  std::vector<std::string> tensors;
  for (const Parameter& parameter : network.parameters) {
    tensors.push_back(absl::StrCat(parameter.name, " ", parameter.shape.front()));
  }
  EXPECT_THAT(tensors,
              ElementsAre("a.norm1.weight 4", "a.norm1.bias 4", "a.self_attn.in_proj_weight 12",
                          "a.self_attn.in_proj_bias 12", "a.self_attn.out_proj.weight 4",
                          "a.self_attn.out_proj.bias 4", "a.norm2.weight 4", "a.norm2.bias 4",
                          "a.linear1.weight 16", "a.linear1.bias 16", "a.linear2.weight 4",
                          "a.linear2.bias 4", "b.weight 10", "b.bias 10"));
}

constexpr char kPlace[] = "spec.workload.languageModel.model";

absl::StatusOr<Network> PlanText(const std::string& layers, std::int64_t symbols) {
  return PlanNetwork(ModelOf(layers), {5},
                     Task{.path = kPlace, .classes = symbols, .each_place = true});
}

TEST(PlanNetwork, PredictsAtEachPlaceOfALanguageModel) {
  for (const char* layers :
       {"transformer { blocks: 1 width: 4 heads: 2 }",
        "layers { embedding { width: 4 } } layers { lstm { units: 3 sequence: true } }"
        "layers { dense {} }"}) {
    const auto network = PlanText(layers, 7);
    ASSERT_TRUE(network.ok()) << network.status();
    EXPECT_EQ(network->places, 5);
    EXPECT_EQ(network->parameters.front().shape, (Shape{7, 4})) << "a row for each symbol";
    EXPECT_EQ(network->parameters.back().shape, (Shape{7})) << "a number for each symbol";
    EXPECT_TRUE(PlanText(layers, 0).ok()) << "how many there are is not known yet";
  }
  EXPECT_EQ(MustPlan("layers { dense {} }", {8}, 3).places, 1);
}

std::vector<std::string> NamesOf(const Network& network) {
  std::vector<std::string> names;
  for (const Parameter& parameter : network.parameters) {
    if (parameter.name.ends_with("weight")) {
      names.push_back(absl::StrCat(parameter.name, " ", parameter.shape[0]));
    }
  }
  return names;
}

TEST(PlanNetwork, AnAutoencoderGoesBackAsItCame) {
  const Task task{.path = "at", .gives_input = true, .each = "numbers of a sample"};
  const auto planned =
      PlanNetwork(ModelOf("autoencoder { hidden: 32 hidden: 4 }"), {1, 8, 8}, task);
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_THAT(NamesOf(*planned), ElementsAre("encoder.0.weight 32", "encoder.1.weight 4",
                                             "decoder.0.weight 32", "decoder.1.weight 64"));
  std::int64_t units = 0;
  for (const Operation& operation : planned->operations) units += operation.op == Op::kRelu ? 1 : 0;
  EXPECT_EQ(units, 2) << "the code is what the narrowest layer gives, as it is";
  const auto linear = PlanNetwork(ModelOf("autoencoder { hidden: 4 }"), {64}, task);
  EXPECT_THAT(NamesOf(*linear), ElementsAre("encoder.0.weight 4", "decoder.0.weight 64"));
  EXPECT_THAT(Refused("autoencoder { hidden: 4 }", {64}),
              HasSubstr("gives samples back, which workload.autoencoder wants"));
}

TEST(PlanNetwork, WhatGivesASampleBackMayKeepItsShape) {
  const Task task{.path = "at", .gives_input = true, .each = "numbers of a sample"};
  const auto plan = [&](const std::string& text) {
    return PlanNetwork(ModelOf(text), {2, 4, 4}, task).status();
  };
  const std::string same = "layers { convolution { channels: 5 kernel: 3 padding: 1 } }";
  EXPECT_TRUE(plan(same + "layers { convolution { channels: 2 kernel: 1 } }").ok());
  EXPECT_THAT(std::string(plan(same).message()),
              HasSubstr("must give one number for each of the 32 numbers of a sample"));
}

TEST(PlanNetwork, ALanguageModelSeesNoLaterPlace) {
  const std::pair<const char*, const char*> wrongs[] = {
      {"layers { embedding { width: 4 } } layers { attention { heads: 2 } } layers { dense {} }",
       ".layers[1].attention: sees what it is to predict; write causal: true"},
      {"layers { embedding { width: 4 } } layers { transformer_block { heads: 2 } }"
       "layers { dense {} }",
       ".layers[1].transformerBlock: its layer layers.1.self_attn sees what it is to predict"},
      {"layers { embedding { width: 4 } } layers { lstm { units: 4 } } layers { dense {} }",
       ".layers: the last layer gives [7], and must give one number for each of the 7 symbols at "
       "each of the 5 places"},
      {"layers { embedding { rows: 6 width: 4 } } layers { dense {} }",
       ".layers[0].embedding: has 6 rows, but the text has 7 symbols"},
      {"resnet18 {}", ".resnet18: needs images"},
      {"mlp {}", ".mlp: the last layer gives [7]"},
      {"transformer { width: 6 heads: 4 }",
       ".transformer: its layer blocks.0.self_attn has 4 heads, which must divide the width 6"}};
  for (const auto& [layers, words] : wrongs) {
    const auto network = PlanText(layers, 7);
    EXPECT_THAT(std::string(network.status().message()), HasSubstr(absl::StrCat(kPlace, words)));
  }
  EXPECT_THAT(Refused("layers { embedding { width: 2 } }", {3}),
              HasSubstr("needs rows, which only a language model may leave out"));
}

TEST(PathOf, FindsBatchNormalizationAlsoWithinBlocksAndProjections) {
  EXPECT_EQ(PathOfBatchNorm(ModelOf("resnet18 {}")), absl::StrCat(kModelPath, ".resnet18"));
  EXPECT_EQ(PathOfBatchNorm(ModelOf("layers { relu {} } layers { residual { projection {} } }")),
            absl::StrCat(kModelPath, ".layers[1]"));
  EXPECT_EQ(PathOfBatchNorm(ModelOf("layers { residual { projection { batch_norm: false } } }")),
            std::nullopt);
  EXPECT_EQ(PathOfBatchNorm(ModelOf("vgg16 {}")), std::nullopt);
  EXPECT_EQ(PathOfEmbedding(ModelOf("layers { embedding {} }")),
            absl::StrCat(kModelPath, ".layers[0]"));
}

}  // namespace
}  // namespace starling::network
