// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "api/network/plan.h"
#include "google/protobuf/text_format.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/engine/engine_library.h"
#include "trainer/engine/numeric_identity.h"
#include "trainer/engine/torch_engine.h"

extern "C" void starling_open_engine(const starling::engine::EngineConfig& config,
                                     starling::engine::OpenedEngine* opened);

namespace starling::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Of a model in protobuf's text form.
network::Network Plan(const std::string& text, const network::Shape& input, int64_t classes) {
  v1alpha1::Model model;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &model)) << text;
  auto planned = network::PlanNetwork(model, input, classes);
  EXPECT_TRUE(planned.ok()) << planned.status();
  return *std::move(planned);
}

EngineConfig Mlp(const std::string& hidden) {
  EngineConfig config;
  config.network = Plan("mlp { " + hidden + " }", {1, 2, 2}, 3);
  config.seed = 4;
  config.bucket_bytes = 64;
  return config;
}

EngineConfig SmallMlp() { return Mlp("hidden: 7 hidden: 5"); }

EngineConfig Images() {
  EngineConfig config;
  config.network = Plan("lenet5 {}", {1, 28, 28}, 10);
  config.seed = 1;
  return config;
}

std::unique_ptr<Engine> Make(const EngineConfig& config) {
  auto engine = MakeTorchEngine(config);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

std::vector<float> Features(size_t count) {
  std::vector<float> features(count);
  for (size_t i = 0; i < count; ++i) features[i] = std::sin(static_cast<float>(i));
  return features;
}

TEST(TorchEngine, LaysParametersOutFromTheLastLayerToTheFirstInOneBuffer) {
  const auto engine = Make(SmallMlp());

  std::vector<std::string> names;
  int64_t end = 0;
  for (const Tensor& tensor : engine->tensors()) {
    names.push_back(tensor.name);
    EXPECT_EQ(tensor.offset, end);
    end += tensor.size;
  }
  EXPECT_THAT(names, ElementsAre("layers.2.bias", "layers.2.weight", "layers.1.bias",
                                 "layers.1.weight", "layers.0.bias", "layers.0.weight"));
  EXPECT_EQ(engine->parameters().size(), static_cast<size_t>(end));
}

TEST(TorchEngine, StartsFromTheSeedAlone) {
  const auto one = Make(SmallMlp());
  const auto same = Make(SmallMlp());
  EngineConfig config = SmallMlp();
  config.seed = 5;
  const auto other = Make(config);

  EXPECT_TRUE(std::ranges::equal(one->parameters(), same->parameters()));
  EXPECT_FALSE(std::ranges::equal(one->parameters(), other->parameters()));
  EXPECT_LE(std::abs(one->parameters().back()), 0.5F);  // 1/sqrt(4 inputs)
}

TEST(TorchEngine, BucketsRunFromTheLastLayerToTheFirstAndCoverAllGradients) {
  const auto engine = Make(SmallMlp());

  int64_t end = 0;
  for (const Bucket& bucket : engine->buckets()) {
    EXPECT_EQ(bucket.begin, end);
    EXPECT_GE((bucket.end - bucket.begin) * 4, 64);
    end = bucket.end;
  }
  EXPECT_EQ(end, static_cast<int64_t>(engine->gradients().size()));
  EXPECT_EQ(engine->buckets().size(), 3u);
}

TEST(TorchEngine, CountsLabelsAmongTheHighestScores) {
  constexpr size_t kClasses = 7, kSamples = 21;
  EngineConfig config;
  config.network = Plan("mlp {}", {4}, kClasses);
  config.top = 5;
  const auto engine = Make(config);
  const std::vector<float> features = Features(4 * kSamples);
  std::vector<int64_t> labels(kSamples);
  for (size_t i = 0; i < kSamples; ++i) labels[i] = static_cast<int64_t>(i % kClasses);
  const std::vector<float> scores = *engine->Scores(features);
  int64_t among = 0;
  for (size_t i = 0; i < kSamples; ++i) {
    const auto row = std::span(scores).subspan(i * kClasses, kClasses);
    const float own = row[static_cast<size_t>(labels[i])];
    if (std::ranges::count_if(row, [own](float score) { return score > own; }) < 5) ++among;
  }
  EXPECT_LT(among, static_cast<int64_t>(kSamples)) << "or the check would hold for all labels";
  EXPECT_EQ(engine->Evaluate(features, labels)->in_top, among);
  EXPECT_EQ(engine->ComputeGradients(features, labels, {})->in_top, among);

  config.top = 0;
  EXPECT_EQ(Make(config)->Evaluate(features, labels)->in_top, 0) << "nobody asks";
}

TEST(TorchEngine, AScoreThatIsNoNumberIsAmongTheHighestOfNoLabel) {
  EngineConfig config;
  config.network = Plan("mlp {}", {4}, 7);
  config.top = 5;
  const auto engine = Make(config);
  std::ranges::fill(engine->parameters(), std::nanf(""));
  const std::vector<int64_t> labels = {0, 6};
  EXPECT_EQ(engine->Evaluate(Features(8), labels)->in_top, 0);
}

EngineConfig Numbers(NumberLoss loss) {
  EngineConfig config;
  config.network = Plan("mlp { hidden: 5 }", {4}, 2);
  config.loss = loss;
  config.seed = 4;
  return config;
}

// From what the network gives, by hand.
double LossByHand(NumberLoss loss, double given, double wanted) {
  const double off = std::abs(given - wanted);
  switch (loss) {
    case NumberLoss::kSquared:
      return off * off;
    case NumberLoss::kHuber:
      return off < 1 ? off * off / 2 : off - 0.5;
    case NumberLoss::kAbsolute:
      return off;
    case NumberLoss::kBinaryCrossEntropy:
      return -wanted * std::log(given) - (1 - wanted) * std::log(1 - given);
  }
  return 0;
}

TEST(TorchEngine, LossesOfNumbersAreTheMeanOverASamplesNumbers) {
  const std::vector<float> features = Features(12);
  const std::vector<float> wanted = {0.5F, 0, 1, 0.25F, 0.75F, 0.125F};
  for (const NumberLoss loss : {NumberLoss::kSquared, NumberLoss::kHuber, NumberLoss::kAbsolute,
                                NumberLoss::kBinaryCrossEntropy}) {
    const auto engine = Make(Numbers(loss));
    // Some are off by more than 1, where Huber's is another.
    if (loss != NumberLoss::kBinaryCrossEntropy) engine->parameters()[0] += 3;
    const std::vector<float> given = *engine->Scores(features);
    double by_hand = 0;
    std::vector<double> squares(2);
    for (size_t i = 0; i < given.size(); ++i) {
      by_hand += LossByHand(loss, given[i], wanted[i]) / 2;
      squares[i % 2] += std::pow(double{given[i]} - double{wanted[i]}, 2);
    }
    const BatchSums judged = *engine->EvaluateNumbers(features, wanted);
    EXPECT_NEAR(judged.loss, by_hand, 1e-5);
    ASSERT_EQ(judged.squares.size(), 2u);
    EXPECT_NEAR(judged.squares[0], squares[0], 1e-5);
    EXPECT_NEAR(judged.squares[1], squares[1], 1e-5);
    EXPECT_NEAR(engine->FitNumbers(features, wanted, {})->loss, by_hand, 1e-5);
  }
}

TEST(TorchEngine, GradientsOfNumbersAreTheSlopeOfTheLoss) {
  const std::vector<float> features = Features(12);
  const std::vector<float> wanted = {0.5F, 0, 1, 0.25F, 0.75F, 0.125F};
  for (const NumberLoss loss : {NumberLoss::kSquared, NumberLoss::kHuber, NumberLoss::kAbsolute,
                                NumberLoss::kBinaryCrossEntropy}) {
    const auto engine = Make(Numbers(loss));
    ASSERT_TRUE(engine->FitNumbers(features, wanted, {}).ok());
    const std::vector<float> gradients(engine->gradients().begin(), engine->gradients().end());
    EXPECT_GT(std::abs(gradients[0]), 0.1F) << "or there would be nothing to compare";
    constexpr float kStep = 1e-2F;
    for (const size_t i : {size_t{0}, size_t{1}, gradients.size() - 1}) {
      engine->parameters()[i] += kStep;
      const double above = engine->EvaluateNumbers(features, wanted)->loss;
      engine->parameters()[i] -= 2 * kStep;
      const double below = engine->EvaluateNumbers(features, wanted)->loss;
      engine->parameters()[i] += kStep;
      EXPECT_NEAR(gradients[i], (above - below) / (2 * double{kStep}), 1e-2) << i;
    }
  }
}

TEST(TorchEngine, ABatchInPartsHasTheGradientsOfTheWhole) {
  constexpr size_t kSamples = 11;
  EngineConfig config = SmallMlp();
  config.network = Plan(
      "layers { flatten {} } layers { dense { units: 9 bias: true } } "
      "layers { dropout { rate: 0.5 } } layers { dense { bias: true } }",
      {1, 2, 2}, 3);
  const std::vector<float> features = Features(4 * kSamples);
  std::vector<int64_t> labels(kSamples), ids(kSamples);
  for (size_t i = 0; i < kSamples; ++i) labels[i] = static_cast<int64_t>(i % 3);
  std::iota(ids.begin(), ids.end(), 100);
  const auto compute = [&](int64_t micro_batch) {
    config.micro_batch = micro_batch;
    auto engine = Make(config);
    std::vector<int64_t> order;
    engine->NextSamples(ids, 1);
    const auto sums =
        engine->ComputeGradients(features, labels, [&](int64_t i) { order.push_back(i); });
    EXPECT_TRUE(sums.ok()) << sums.status();
    std::vector<int64_t> all(engine->buckets().size());
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(order, all) << "each bucket once, when all parts are in it";
    return std::pair(*sums,
                     std::vector<float>(engine->gradients().begin(), engine->gradients().end()));
  };
  const auto [whole, gradients] = compute(0);
  for (const int64_t micro_batch : {1, 3, 4, 11, 100}) {
    const auto [sums, parts] = compute(micro_batch);
    EXPECT_NEAR(sums.loss, whole.loss, 1e-5);
    EXPECT_EQ(sums.correct, whole.correct);
    for (size_t i = 0; i < gradients.size(); ++i) EXPECT_NEAR(parts[i], gradients[i], 1e-5);
  }
  // The control: what dropout leaves out of a sample depends on its number.
  std::ranges::reverse(ids);
  EXPECT_NE(compute(3).second, gradients);
  EXPECT_GT(std::abs(compute(3).first.loss - whole.loss), 1e-3);
}

TEST(TorchEngine, APartInABatchIsJudgedAlike) {
  EngineConfig config = SmallMlp();
  const std::vector<float> features = Features(20);
  const std::vector<int64_t> labels = {0, 2, 1, 1, 0};
  const BatchSums whole = *Make(config)->Evaluate(features, labels);
  config.micro_batch = 2;
  const BatchSums parts = *Make(config)->Evaluate(features, labels);
  EXPECT_NEAR(parts.loss, whole.loss, 1e-5);
  EXPECT_EQ(parts.correct, whole.correct);
}

TEST(TorchEngine, FactorsAreThoseOfAllSamplesOrNone) {
  EngineConfig config = SmallMlp();
  const std::vector<float> features = Features(8);
  const std::vector<int64_t> labels = {0, 2};
  for (const int64_t micro_batch : {0, 1}) {
    config.micro_batch = micro_batch;
    const auto engine = Make(config);
    engine->KeepFactors();
    ASSERT_TRUE(engine->ComputeGradients(features, labels, {}).ok());
    EXPECT_EQ(engine->FactorsOf(1).has_value(), micro_batch == 0);
  }
}

TEST(TorchEngine, ReportsBucketsInOrderWhenTheirGradientsAreComplete) {
  const auto engine = Make(SmallMlp());
  const std::vector<float> features = Features(8);
  const std::vector<int64_t> labels = {0, 2};
  std::vector<int64_t> order;
  std::vector<float> seen(engine->gradients().size());

  const auto sums = engine->ComputeGradients(features, labels, [&](int64_t i) {
    order.push_back(i);
    const Bucket bucket = engine->buckets()[static_cast<size_t>(i)];
    for (int64_t k = bucket.begin; k < bucket.end; ++k) {
      seen[static_cast<size_t>(k)] = engine->gradients()[static_cast<size_t>(k)];
    }
  });

  ASSERT_TRUE(sums.ok()) << sums.status();
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
  EXPECT_TRUE(std::ranges::equal(seen, engine->gradients()));
}

// Of each fully connected layer; of nothing else.
TEST(TorchEngine, FactorsOfFullyConnectedLayersMultiplyToTheirGradients) {
  for (const bool images : {false, true}) {
    const auto engine = Make(images ? Images() : SmallMlp());
    const size_t inputs = images ? 784 : 4;
    const std::vector<int64_t> labels = {0, 2, 1};
    const std::vector<float> features = Features(labels.size() * inputs);
    ASSERT_TRUE(engine->ComputeGradients(features, labels, nullptr).ok());
    EXPECT_FALSE(engine->FactorsOf(1).has_value()) << "nobody has asked for them";
    engine->KeepFactors();
    // As a push would: when the bucket is made.
    std::vector<std::string> found;
    size_t next = 0;
    const auto on_bucket = [&](int64_t bucket) {
      for (; next < engine->tensors().size(); ++next) {
        const Tensor& tensor = engine->tensors()[next];
        if (tensor.offset >= engine->buckets()[static_cast<size_t>(bucket)].end) return;
        const auto factors = engine->FactorsOf(next);
        if (!factors.has_value()) continue;
        found.push_back(tensor.name);
        const auto rows = static_cast<size_t>(tensor.shape[0]);
        const size_t columns = static_cast<size_t>(tensor.size) / rows;
        ASSERT_EQ(factors->errors.size(), labels.size() * rows);
        ASSERT_EQ(factors->activations.size(), labels.size() * columns);
        for (size_t i = 0; i < rows * columns; i += 7) {
          float product = 0;
          for (size_t k = 0; k < labels.size(); ++k) {
            product += factors->errors[k * rows + i / columns] *
                       factors->activations[k * columns + i % columns];
          }
          EXPECT_NEAR(product, engine->gradients()[static_cast<size_t>(tensor.offset) + i], 1e-5);
        }
      }
    };
    ASSERT_TRUE(engine->ComputeGradients(features, labels, on_bucket).ok());
    if (!images) {
      EXPECT_THAT(found, ElementsAre("layers.2.weight", "layers.1.weight", "layers.0.weight"));
    } else {
      EXPECT_THAT(found, ElementsAre("fc3.weight", "fc2.weight", "fc1.weight"));
    }
  }
}

TEST(TorchEngine, GradientsAgreeWithFiniteDifferencesOfTheSummedLoss) {
  const auto engine = Make(SmallMlp());
  const std::vector<float> features = Features(12);
  const std::vector<int64_t> labels = {0, 2, 1};
  ASSERT_TRUE(engine->ComputeGradients(features, labels, nullptr).ok());
  const std::vector<float> gradients(engine->gradients().begin(), engine->gradients().end());

  for (size_t k = 0; k < gradients.size(); k += 5) {
    const float before = engine->parameters()[k];
    engine->parameters()[k] = before + 1e-2F;
    const double above = engine->Evaluate(features, labels)->loss;
    engine->parameters()[k] = before - 1e-2F;
    const double below = engine->Evaluate(features, labels)->loss;
    engine->parameters()[k] = before;
    EXPECT_NEAR(gradients[k], (above - below) / 2e-2, 2e-3) << k;
  }
}

TEST(TorchEngine, GradientsDoNotPileUpOverCalls) {
  const auto engine = Make(SmallMlp());
  const std::vector<float> features = Features(4);
  const std::vector<int64_t> labels = {1};
  ASSERT_TRUE(engine->ComputeGradients(features, labels, nullptr).ok());
  const std::vector<float> first(engine->gradients().begin(), engine->gradients().end());

  ASSERT_TRUE(engine->ComputeGradients(features, labels, nullptr).ok());

  EXPECT_TRUE(std::ranges::equal(first, engine->gradients()));
}

TEST(TorchEngine, GradientsAreMadeWhereTheyArePlaced) {
  const auto placed = Make(SmallMlp());
  const auto plain = Make(SmallMlp());
  std::vector<float> memory(plain->gradients().size(), -1);
  const std::vector<float> features = Features(8);
  const std::vector<int64_t> labels = {1, 0};
  ASSERT_TRUE(placed->ComputeGradients(features, labels, nullptr).ok());  // also between two calls

  ASSERT_TRUE(placed->PlaceGradients(memory));
  ASSERT_TRUE(placed->ComputeGradients(features, labels, nullptr).ok());
  ASSERT_TRUE(plain->ComputeGradients(features, labels, nullptr).ok());

  EXPECT_EQ(placed->gradients().data(), memory.data());
  EXPECT_TRUE(std::ranges::equal(plain->gradients(), memory));
}

// Others sum up in place between two calls, and what they leave may be no numbers.
TEST(TorchEngine, GradientsReplaceWhateverLiesInTheirMemory) {
  EngineConfig attention = SmallMlp();
  attention.network = Plan(
      "layers { attention { heads: 2 } } layers { flatten {} } layers { dense {} }", {2, 2}, 3);
  const std::vector<float> features = Features(8);
  const std::vector<int64_t> labels = {1, 0};
  for (EngineConfig config : {SmallMlp(), attention}) {
    for (const int64_t micro_batch : {0, 1}) {
      config.micro_batch = micro_batch;
      const auto engine = Make(config);
      ASSERT_TRUE(engine->ComputeGradients(features, labels, nullptr).ok());
      const std::vector<float> first(engine->gradients().begin(), engine->gradients().end());
      std::ranges::fill(engine->gradients(), std::numeric_limits<float>::quiet_NaN());

      ASSERT_TRUE(engine->ComputeGradients(features, labels, nullptr).ok());

      EXPECT_TRUE(std::ranges::equal(first, engine->gradients())) << micro_batch;
    }
  }
}

TEST(TorchEngine, NoSamplesGiveZeroGradientsAndEveryBucket) {
  const auto engine = Make(SmallMlp());
  ASSERT_TRUE(engine->ComputeGradients(Features(4), std::vector<int64_t>{1}, nullptr).ok());
  int64_t buckets = 0;

  const auto sums = engine->ComputeGradients({}, {}, [&](int64_t) { ++buckets; });

  ASSERT_TRUE(sums.ok());
  EXPECT_EQ(sums->loss, 0);
  EXPECT_EQ(buckets, 3);
  EXPECT_THAT(engine->gradients(), ::testing::Each(0.0F));
}

TEST(TorchEngine, EvaluateCountsWhatTheLargestLogitNames) {
  const auto engine = Make(Mlp(""));  // logistic regression: 3x4 weights, 3 biases
  std::ranges::fill(engine->parameters(), 0.0F);
  engine->parameters()[1] = 1.0F;  // biases come first

  const auto sums = engine->Evaluate(Features(12), std::vector<int64_t>{1, 0, 1});

  ASSERT_TRUE(sums.ok());
  EXPECT_EQ(sums->correct, 2);
  EXPECT_NEAR(sums->loss, 3 * std::log(2 + std::exp(1.0)) - 2, 1e-5);
}

TEST(TorchEngine, LearnsWithLeNet5OnImages) {
  const auto engine = Make(Images());
  const std::vector<float> features = Features(4 * 28 * 28);
  const std::vector<int64_t> labels = {3, 1, 4, 1};
  const double before = engine->ComputeGradients(features, labels, nullptr)->loss;

  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(engine->ComputeGradients(features, labels, nullptr).ok());
    for (size_t k = 0; k < engine->parameters().size(); ++k) {
      engine->parameters()[k] -= 0.02F * engine->gradients()[k];
    }
  }

  EXPECT_LT(engine->Evaluate(features, labels)->loss, before);
}

TEST(EngineLibrary, OpensWithOneComputeThreadAndSaysWhatBitsDependOn) {
  OpenedEngine opened;

  starling_open_engine(SmallMlp(), &opened);

  ASSERT_TRUE(opened.engine.ok()) << opened.engine.status();
  EXPECT_THAT(opened.numeric_identity, HasSubstr("threads=1"));
}

TEST(NumericIdentity, NamesKernelInstructionSetAndThreads) {
  EXPECT_THAT(NumericIdentity(), HasSubstr("blas="));
  EXPECT_THAT(NumericIdentity(), HasSubstr(" threads="));
  EXPECT_THAT(NumericIdentity(), HasSubstr(" cpu="));
}

// Numbers of few bits: none below 2^-10, and infinite from 2^20 on.
void RoundCoarsely(std::span<float> values) {
  for (float& value : values) {
    const float magnitude = std::abs(value);
    if (magnitude < 1.0F / 1024) value = 0;
    if (magnitude >= 1048576) value = std::copysign(INFINITY, value);
    value = static_cast<float>(std::ldexp(std::round(std::ldexp(value, 10)), -10));
  }
}

EngineConfig Narrow(EngineConfig config) {
  config.round = RoundCoarsely;
  return config;
}

std::vector<float> GradientsOf(Engine& engine, float scale, float of_features = 1) {
  std::vector<float> features = Features(4 * 8);
  for (float& feature : features) feature *= of_features;
  const std::vector<int64_t> labels = {0, 1, 2, 0, 1, 2, 0, 1};
  engine.ScaleLoss(scale);
  EXPECT_TRUE(engine.ComputeGradients(features, labels, {}).ok());
  return {engine.gradients().begin(), engine.gradients().end()};
}

TEST(NarrowNumbers, AreWhatForwardAndBackwardHold) {
  const auto engine = Make(Narrow(SmallMlp())), wide = Make(SmallMlp());
  const std::vector<float> narrow = GradientsOf(*engine, 1), exact = GradientsOf(*wide, 1);
  EXPECT_NE(narrow, exact);
  for (size_t i = 0; i < narrow.size(); ++i) {
    EXPECT_EQ(std::ldexp(narrow[i], 10), std::round(std::ldexp(narrow[i], 10))) << i;
    EXPECT_NEAR(narrow[i], exact[i], 0.1) << i;
  }
  EXPECT_TRUE(std::ranges::equal(engine->parameters(), wide->parameters()))
      << "weights keep all of their bits";
}

TEST(NarrowNumbers, AreNotWhatAModelIsJudgedBy) {
  const auto engine = Make(Narrow(SmallMlp())), wide = Make(SmallMlp());
  const std::vector<float> features = Features(4 * 3);
  const std::vector<int64_t> labels = {0, 1, 2};
  EXPECT_EQ(engine->Evaluate(features, labels)->loss, wide->Evaluate(features, labels)->loss);
  EXPECT_NE(engine->ComputeGradients(features, labels, {})->loss,
            wide->ComputeGradients(features, labels, {})->loss);
}

TEST(NarrowNumbers, AScaledLossKeepsSmallGradientsAndShowsThoseThatAreTooLarge) {
  const auto lost = [](const std::vector<float>& gradients) {
    return std::ranges::count(gradients, 0.0F);
  };
  const auto engine = Make(Narrow(SmallMlp()));
  const auto plain = GradientsOf(*engine, 1, 0.01F), scaled = GradientsOf(*engine, 4096, 0.01F);
  EXPECT_LT(lost(scaled), lost(plain));
  const auto wide = Make(SmallMlp());
  const auto exact = GradientsOf(*wide, 4096, 0.01F);
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(scaled[i], exact[i], 0.1) << i;
  EXPECT_TRUE(std::ranges::all_of(plain, [](float value) { return std::isfinite(value); }));
  const auto huge = GradientsOf(*engine, 16777216);
  EXPECT_FALSE(std::ranges::all_of(huge, [](float value) { return std::isfinite(value); }));
}

TEST(NarrowNumbers, GoThroughEveryKindOfLayer) {
  EngineConfig config;
  config.network = Plan(
      "layers { convolution { channels: 4 kernel: 3 } } layers { batch_norm {} } "
      "layers { relu {} } layers { max_pool { kernel: 2 } } layers { flatten {} } "
      "layers { dense {} }",
      {1, 8, 8}, 3);
  config.seed = 2;
  const auto engine = Make(Narrow(config)), wide = Make(config);
  const std::vector<float> features = Features(64 * 6);
  const std::vector<int64_t> labels = {0, 1, 2, 2, 1, 0};
  const std::vector<int64_t> ids = {0, 1, 2, 3, 4, 5};
  for (Engine* each : {engine.get(), wide.get()}) {
    each->NextSamples(ids, 1);
    ASSERT_TRUE(each->ComputeGradients(features, labels, {}).ok());
  }
  double difference = 0, length = 0;
  for (size_t i = 0; i < wide->gradients().size(); ++i) {
    difference += std::pow(double{engine->gradients()[i]} - double{wide->gradients()[i]}, 2);
    length += std::pow(double{wide->gradients()[i]}, 2);
  }
  EXPECT_GT(difference, 0);
  EXPECT_LT(std::sqrt(difference / length), 0.05);
}

}  // namespace
}  // namespace starling::engine
