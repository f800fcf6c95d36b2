// SPDX-License-Identifier: Apache-2.0
// Each kind of layer by its gradients, and what batch normalization and dropout keep and draw. That
// the numbers are PyTorch's is shown in tests/e2e/models_test.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "api/network/plan.h"
#include "google/protobuf/text_format.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/engine/torch_engine.h"

namespace starling::engine {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kClasses = 3;

struct Model {
  std::string layers;  // protobuf's text form
  network::Shape input;
};

network::Network PlanOf(const Model& described) {
  v1alpha1::Model model;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(described.layers, &model));
  auto planned = network::PlanNetwork(model, described.input, kClasses);
  EXPECT_TRUE(planned.ok()) << planned.status();
  return *std::move(planned);
}

std::unique_ptr<Engine> Make(const Model& described) {
  EngineConfig config;
  config.network = PlanOf(described);
  config.seed = 3;
  return MakeTorchEngine(config).value();
}

std::vector<float> Features(const network::Shape& input, size_t samples, float scale = 1) {
  const auto each = static_cast<size_t>(
      std::accumulate(input.begin(), input.end(), int64_t{1}, std::multiplies<>()));
  std::vector<float> features(samples * each);
  for (size_t i = 0; i < features.size(); ++i) {
    features[i] = scale * std::sin(static_cast<float>(i * i + 1));
  }
  return features;
}

const std::vector<int64_t> kLabels = {0, 2, 1, 1};
const std::vector<int64_t> kIds = {5, 9, 2, 7};

// Of the loss as training sees it.
double TrainingLoss(Engine& engine, std::span<const float> features) {
  engine.NextSamples(kIds, 1);
  const auto sums = engine.ComputeGradients(features, kLabels, nullptr);
  EXPECT_TRUE(sums.ok()) << sums.status();
  return sums.ok() ? sums->loss : 0;
}

void CheckGradients(Engine& engine, std::span<const float> features) {
  TrainingLoss(engine, features);
  const std::vector<float> gradients(engine.gradients().begin(), engine.gradients().end());
  for (const Tensor& tensor : engine.tensors()) {
    if (tensor.momentum != 0) continue;
    float& value = engine.parameters()[static_cast<size_t>(tensor.offset + tensor.size / 2)];
    const float before = value;
    value = before + 1e-2F;
    const double above = TrainingLoss(engine, features);
    value = before - 1e-2F;
    const double below = TrainingLoss(engine, features);
    value = before;
    EXPECT_NEAR(gradients[static_cast<size_t>(tensor.offset + tensor.size / 2)],
                (above - below) / 2e-2, 6e-3)
        << tensor.name;
  }
}

TEST(Layers, GradientsOfEachKindAgreeWithFiniteDifferences) {
  const network::Shape image = {2, 6, 6};
  const network::Shape sequence = {5, 4};
  const std::string end = " layers { flatten {} } layers { dense {} }";
  const Model models[] = {
      {"layers { convolution { channels: 4 kernel: 3 stride: 2 padding: 1 groups: 2 } }"
       "layers { tanh {} } layers { average_pool { kernel: 2 stride: 1 } }" +
           end,
       image},
      {"layers { convolution { channels: 4 kernel: 3 initialization: INITIALIZATION_KAIMING } }"
       "layers { group_norm { groups: 2 } } layers { gelu {} }"
       "layers { max_pool { kernel: 2 } }" +
           end,
       image},
      {"layers { convolution { channels: 4 kernel: 3 bias: false } }"
       "layers { batch_norm {} } layers { sigmoid {} } layers { global_average_pool {} }"
       "layers { dense {} }",
       image},
      {"layers { residual { layers { convolution { channels: 2 kernel: 3 padding: 1 } } } }"
       "layers { residual { layers { convolution { channels: 3 kernel: 3 stride: 2 padding: 1 } }"
       " projection { stride: 2 } } } layers { adaptive_average_pool { size: 2 } }" +
           end,
       image},
      {"layers { lstm { units: 3 sequence: true } } layers { lstm { units: 3 } }"
       "layers { dropout { rate: 0.25 } } layers { dense {} }",
       sequence},
      {"layers { residual { layers { layer_norm {} } layers { attention { heads: 2 causal: true } }"
       "} } layers { dense { units: 5 bias: false } } layers { relu {} }"
       "layers { global_average_pool {} } layers { dense {} }",
       sequence},
      {"layers { positions {} }"
       "layers { transformer_block { heads: 2 hidden: 6 causal: true dropout: 0.25 } }"
       "layers { global_average_pool {} } layers { dense {} }",
       sequence},
  };
  for (const Model& model : models) {
    SCOPED_TRACE(model.layers);
    const auto engine = Make(model);
    CheckGradients(*engine, Features(model.input, kLabels.size()));
  }
}

TEST(Layers, AnEmbeddingReadsNumbersAndRefusesThoseThatItHasNoRowFor) {
  const Model model = {
      "layers { embedding { rows: 4 width: 3 } } layers { flatten {} }"
      "layers { dense {} }",
      {2}};
  const auto engine = Make(model);
  CheckGradients(*engine, std::vector<float>{0, 1, 3, 3, 2, 0, 1, 1});

  const auto refused = engine->Evaluate(std::vector<float>{0, 4}, std::vector<int64_t>{1});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("layers.0 has 4 rows, for numbers from 0 to 3, and is given 4"));
}

const Model kNormalised = {"layers { batch_norm {} } layers { dense {} }", {2}};

const Tensor& TensorNamed(const Engine& engine, std::string_view name) {
  return *std::ranges::find(engine.tensors(), name, &Tensor::name);
}

TEST(BatchNorm, WhatItsRunningMeansAreToFollowStandsWhereOthersHaveGradients) {
  const auto engine = Make(kNormalised);
  const std::vector<float> features = {1, 10, 2, 10, 3, 40, 6, 40};
  TrainingLoss(*engine, features);

  const Tensor& mean = TensorNamed(*engine, "layers.0.running_mean");
  const Tensor& variance = TensorNamed(*engine, "layers.0.running_var");
  EXPECT_FLOAT_EQ(mean.momentum, 0.1F);
  const auto of = [&](const Tensor& tensor, int64_t i) {
    return engine->gradients()[static_cast<size_t>(tensor.offset + i)];
  };
  EXPECT_FLOAT_EQ(of(mean, 0), 4 * 3.0F);  // a sum over four samples
  EXPECT_FLOAT_EQ(of(mean, 1), 4 * 25.0F);
  EXPECT_FLOAT_EQ(of(variance, 0), 4 * 14.0F / 3);  // unbiased
  EXPECT_FLOAT_EQ(of(variance, 1), 4 * 300.0F);
  EXPECT_EQ(engine->parameters()[static_cast<size_t>(mean.offset)], 0) << "nothing has moved yet";
}

TEST(BatchNorm, OneValueAChannelIsScaledByTheRunningMeansAndLeavesThemAsTheyAre) {
  const auto engine = Make(kNormalised);
  const Tensor& mean = TensorNamed(*engine, "layers.0.running_mean");
  engine->parameters()[static_cast<size_t>(mean.offset)] = 0.5F;
  const std::vector<float> one = {1, 10};
  const std::vector<int64_t> label = {1};

  const auto trained = engine->ComputeGradients(one, label, nullptr);

  ASSERT_TRUE(trained.ok());
  EXPECT_EQ(trained->loss, engine->Evaluate(one, label)->loss);
  EXPECT_EQ(engine->gradients()[static_cast<size_t>(mean.offset)], 0.5F);
}

// Whoever computes a sample, in whatever company: only so is a job reproducible.
TEST(Dropout, DependsOnTheSampleAndTheEpochAlone) {
  const auto engine = Make({"layers { dropout { rate: 0.5 } } layers { dense {} }", {64}});
  const std::vector<float> features = Features({64}, 4);
  const auto loss = [&](std::vector<int64_t> ids, size_t first, size_t count, int64_t epoch) {
    engine->NextSamples(ids, epoch);
    return engine
        ->ComputeGradients(std::span(features).subspan(first * 64, count * 64),
                           std::span(kLabels).subspan(first, count), nullptr)
        ->loss;
  };
  const double together = loss({5, 9}, 0, 2, 1);
  EXPECT_NEAR(together, loss({5}, 0, 1, 1) + loss({9}, 1, 1, 1), 1e-5);
  EXPECT_NE(together, loss({5, 9}, 0, 2, 2));
  EXPECT_NE(together, loss({5, 8}, 0, 2, 1));
  EXPECT_EQ(together, loss({5, 9}, 0, 2, 1));
}

TEST(Dropout, LeavesOutItsShareAndKeepsTheMean) {
  const auto engine =
      Make({"layers { dropout { rate: 0.25 } } layers { dense { bias: false } }", {4096}});
  engine->NextSamples(std::vector<int64_t>{1}, 1);
  const std::vector<float> ones(4096, 1.0F);
  ASSERT_TRUE(engine->ComputeGradients(ones, std::vector<int64_t>{0}, nullptr).ok());
  // The gradient of a weight is its input times the error of its output.
  int left_out = 0;
  double sum = 0;
  for (size_t i = 0; i < 4096; ++i) {
    const float gradient = engine->gradients()[i];
    left_out += gradient == 0 ? 1 : 0;
    sum += gradient;
  }
  EXPECT_NEAR(left_out, 1024, 5 * std::sqrt(4096 * 0.25 * 0.75));
  EXPECT_NEAR(sum / 4096, 0.75 * *std::ranges::min_element(engine->gradients().first(4096)),
              0.05 * std::abs(sum / 4096));
}

// What reproducible mode rests on: a group of a batch gives the same bits, whoever computes it
// after whatever else.
TEST(Layers, AGroupOfABatchGivesTheSameBitsInAnyEngine) {
  const Model model = {
      "layers { convolution { channels: 4 kernel: 3 } } layers { batch_norm {} } layers { relu {} }"
      "layers { dropout { rate: 0.5 } } layers { flatten {} } layers { dense {} }",
      {2, 6, 6}};
  const std::vector<float> features = Features(model.input, 4);
  const auto compute = [&](Engine& engine, size_t group) {
    engine.NextSamples(std::span(kIds).subspan(2 * group, 2), 1);
    const size_t size = features.size() / 2;
    EXPECT_TRUE(engine
                    .ComputeGradients(std::span(features).subspan(group * size, size),
                                      std::span(kLabels).subspan(2 * group, 2), nullptr)
                    .ok());
    return std::vector<float>(engine.gradients().begin(), engine.gradients().end());
  };
  const auto one = Make(model);
  const auto other = Make(model);
  const auto first = compute(*one, 0);
  EXPECT_NE(first, compute(*one, 1));
  EXPECT_EQ(compute(*one, 1), compute(*other, 1));
  EXPECT_EQ(first, compute(*other, 0));
}

class LanguageModel : public ::testing::Test {
 protected:
  static std::unique_ptr<Engine> Make(const std::string& text) {
    v1alpha1::Model model;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &model));
    EngineConfig config;
    config.network =
        network::PlanNetwork(model, {4}, network::Task{.classes = kClasses, .each_place = true})
            .value();
    config.seed = 3;
    return MakeTorchEngine(config).value();
  }
  const std::string small_ = "transformer { blocks: 1 width: 6 heads: 2 dropout: 0.25 }";
  const std::vector<float> given_ = {0, 2, 1, 1, 2, 0, 0, 1};
  const std::vector<int64_t> wanted_ = {2, 1, 1, 0, 0, 0, 1, 2};
};

TEST_F(LanguageModel, GradientsAreThoseOfTheMeanOverThePlacesOfEachSample) {
  const auto engine = Make(small_);
  const auto loss = [&] {
    engine->NextSamples(std::span(kIds).first(2), 1);
    return engine->ComputeGradients(given_, wanted_, nullptr)->loss;
  };
  loss();
  const std::vector<float> gradients(engine->gradients().begin(), engine->gradients().end());
  for (size_t i = 0; i < gradients.size(); i += 11) {
    float& value = engine->parameters()[i];
    const float before = value;
    value = before + 1e-2F;
    const double above = loss();
    value = before - 1e-2F;
    EXPECT_NEAR(gradients[i], (above - loss()) / 2e-2, 6e-3) << i;
    value = before;
  }
}

TEST_F(LanguageModel, WhatItScoresIsWhatItIsJudgedByAndNoPlaceSeesALaterOne) {
  const auto engine = Make(small_);
  const std::vector<float> scores = engine->Scores(given_).value();
  ASSERT_EQ(scores.size(), given_.size() * kClasses);
  double loss = 0;
  for (size_t place = 0; place < given_.size(); ++place) {
    const auto of = std::span(scores).subspan(place * kClasses, kClasses);
    double sum = 0;
    for (const float score : of) sum += std::exp(static_cast<double>(score));
    loss += std::log(sum) - static_cast<double>(of[static_cast<size_t>(wanted_[place])]);
  }
  EXPECT_NEAR(engine->Evaluate(given_, wanted_)->loss, loss / 4, 1e-5);
  std::vector<float> other = given_;
  other[2] = 0;
  const std::vector<float> changed = engine->Scores(other).value();
  const auto before = [](const std::vector<float>& all) {
    return std::vector<float>(all.begin(), all.begin() + 2 * kClasses);
  };
  EXPECT_EQ(before(changed), before(scores));
  EXPECT_NE(changed[2 * kClasses], scores[2 * kClasses]);
  EXPECT_TRUE(engine->Scores({})->empty());
}

TEST(Loss, ClassesCountByTheirWeightsAndLabelsAreSmoothedInTrainingAlone) {
  EngineConfig config;
  config.network = PlanOf({"layers { dense {} }", {2}});
  config.label_smoothing = 0.3;
  const auto smoothed = MakeTorchEngine(config).value();
  config.label_smoothing = 0;
  config.class_weights = {1, 3, 0};
  const auto weighted = MakeTorchEngine(config).value();
  const std::vector<float> x = {1, -2};
  const auto loss = [&](Engine& engine, int64_t label) {
    return engine.ComputeGradients(x, std::vector<int64_t>{label}, nullptr)->loss;
  };
  std::vector<double> plain;
  for (int64_t label = 0; label < kClasses; ++label) {
    plain.push_back(smoothed->Evaluate(x, std::vector<int64_t>{label})->loss);
  }
  const double mean = (plain[0] + plain[1] + plain[2]) / 3;
  for (int64_t label = 0; label < kClasses; ++label) {
    const auto at = static_cast<size_t>(label);
    EXPECT_NEAR(loss(*weighted, label), plain[at] * config.class_weights[at], 1e-5);
    EXPECT_NEAR(loss(*smoothed, label), 0.7 * plain[at] + 0.3 * mean, 1e-5);
    EXPECT_NEAR(weighted->Evaluate(x, std::vector<int64_t>{label})->loss, plain[at], 1e-6);
  }
}

}  // namespace
}  // namespace starling::engine
