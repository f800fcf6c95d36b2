// SPDX-License-Identifier: Apache-2.0
// Rows about numbers of fewer than 32 bits, weights that stay 0, and LARS: Z-8 to Z-12 and Z-14.
#include <algorithm>
#include <cmath>
#include <random>

#include "tests/techniques/codec_lesson.h"
#include "tests/techniques/numeric_lesson.h"
#include "tests/techniques/rows.h"
#include "trainer/numerics/numerics.h"

namespace starling::techniques {
namespace {

using Floats = std::vector<float>;

// One test image of the digits is 0.28 points.
double LooseOf(const Setting& setting, double thorough) {
  return setting.thorough ? thorough : 2.5;
}

NumericWay MixedIn(v1alpha1::ComputeFormat format, double loss_scale) {
  NumericWay way;
  v1alpha1::MixedPrecision& mixed = *way.numerics.mutable_mixed_precision();
  mixed.set_compute(format);
  mixed.set_loss_scale(loss_scale);
  mixed.set_grow_every(2000);
  return way;
}

void JudgeBelowWide(const Setting& setting, const Lesson& lesson, const NumericLearned& wide,
                    const std::string& what, const NumericWay& way, double below, Report& report) {
  const NumericLearned learned = LearnIn(lesson, setting.seed, way);
  report.Mean(lesson.name + ": accuracy, points below 32 bits, " + what,
              wide.accuracy - learned.accuracy, Rule::kAtMost, LooseOf(setting, below));
}

// Gradients of 2^-20 to 2^-32, of which this share is lost.
double LostOf(const NumericWay& way, double loss_scale) {
  const numerics::Round round = numerics::ComputeRounding(way.numerics);
  Floats gradients;
  for (int exponent = 20; exponent <= 32; ++exponent) {
    gradients.push_back(static_cast<float>(std::ldexp(loss_scale, -exponent)));
  }
  round(gradients);
  return static_cast<double>(std::ranges::count(gradients, 0.0F)) /
         static_cast<double>(gradients.size());
}

}  // namespace

void MixedPrecision(const Setting& setting, Report& report) {
  const Lesson lesson = NumericLesson(setting);
  const NumericWay half = MixedIn(v1alpha1::COMPUTE_FORMAT_FLOAT16, 4096);
  const NumericLearned wide = LearnIn(lesson, setting.seed, {});
  report.Mean(lesson.name + ": accuracy in 32 bits", wide.accuracy, Rule::kAtLeast, lesson.learned);
  JudgeBelowWide(setting, lesson, wide, "float16", half, 0.5, report);
  JudgeBelowWide(setting, lesson, wide, "bfloat16", MixedIn(v1alpha1::COMPUTE_FORMAT_BFLOAT16, 1),
                 0.5, report);
  report.Each("gradients of 2^-20 to 2^-32 in float16, scaled by 4,096: share that is lost",
              LostOf(half, 4096), Rule::kEqual, 0);
  report.Control("not scaled", LostOf(half, 1), Rule::kAbove, 0.5);

  // At a scale at which nothing is infinite by itself, so that one step is skipped, and not others.
  NumericWay infinite = MixedIn(v1alpha1::COMPUTE_FORMAT_FLOAT16, 256);
  infinite.infinite_at = 50;
  const std::int64_t samples = 100 * infinite.batch;
  const NumericLearned skipped = LearnIn(lesson, setting.seed, infinite, samples);
  report.Each("an infinity at one of four workers: steps that all skip", skipped.skipped,
              Rule::kEqual, 1);
  report.Each("weights that are not the same bits at all of them, or no numbers", skipped.different,
              Rule::kEqual, 0);
  infinite.judged_alone = true;
  report.Control("each judges its own gradient: weights that are not the same bits",
                 LearnIn(lesson, setting.seed, infinite, samples).different, Rule::kAbove, 0);

  v1alpha1::Codec codec;
  codec.mutable_float16();
  const auto bytes = static_cast<double>(CodecOf(codec)->MaxBytes(1000));
  report.Each("1,000 gradients that travel in float16: bytes", bytes, Rule::kEqual, 2000);
}

namespace {

NumericWay FixedWith(int fraction_bits, v1alpha1::Rounding rounding) {
  NumericWay way;
  v1alpha1::FixedPoint& fixed = *way.numerics.mutable_fixed_point();
  fixed.set_integer_bits(2);
  fixed.set_fraction_bits(fraction_bits);
  fixed.set_rounding(rounding);
  return way;
}

// How far a control is behind: by the loss, and in the long form by points too.
void JudgeHarmOf(const Setting& setting, const Lesson& lesson, const char* what,
                 const NumericLearned& right, const NumericLearned& harmed, double points,
                 Report& report) {
  const std::string name = lesson.name + ": " + what;
  report.ControlOfMean(name + ", loss over the training set times as high",
                       harmed.loss / right.loss, Rule::kAtLeast, 2);
  report.ControlOfMean(name + ", points below", right.accuracy - harmed.accuracy,
                       setting.thorough ? Rule::kAtLeast : Rule::kNone, points);
}

// Of `weights`, those that are no multiples of `step`.
double OffGrid(const Floats& weights, double step) {
  return static_cast<double>(std::ranges::count_if(weights, [&](float weight) {
    const double multiple = double{weight} / step;
    return multiple != std::nearbyint(multiple);
  }));
}

double MaskedOf(const Floats& weights) {
  return static_cast<double>(std::ranges::count(weights, 0.0F)) /
         static_cast<double>(weights.size());
}

}  // namespace

void FixedPointWeights(const Setting& setting, Report& report) {
  const Lesson lesson = NumericLesson(setting);
  const NumericLearned wide = LearnIn(lesson, setting.seed, {});
  const NumericLearned drawn =
      LearnIn(lesson, setting.seed, FixedWith(14, v1alpha1::ROUNDING_STOCHASTIC));
  report.Mean(lesson.name + ": accuracy in 32 bits", wide.accuracy, Rule::kAtLeast, lesson.learned);
  report.Mean(lesson.name + ": accuracy, points below 32 bits, 14 bits behind the point",
              wide.accuracy - drawn.accuracy, Rule::kAtMost, LooseOf(setting, 0.5));
  report.Each("weights that are no multiples of 2^-14", OffGrid(drawn.weights, 0x1p-14),
              Rule::kEqual, 0);
  const NumericLearned coarse =
      LearnIn(lesson, setting.seed, FixedWith(7, v1alpha1::ROUNDING_STOCHASTIC));
  const NumericLearned nearest =
      LearnIn(lesson, setting.seed, FixedWith(7, v1alpha1::ROUNDING_NEAREST));
  JudgeHarmOf(setting, lesson, "7 bits behind the point, to nearest", coarse, nearest, 5, report);

  constexpr std::size_t kCount = 100000;
  constexpr float kNumber = 0.3001F;
  const std::vector<numerics::WeightTensor> tensor = {
      {"numbers", {static_cast<std::int64_t>(kCount)}, 0, static_cast<std::int64_t>(kCount)}};
  numerics::Numerics rounding(FixedWith(10, v1alpha1::ROUNDING_STOCHASTIC).numerics, setting.seed,
                              tensor);
  Floats numbers(kCount, kNumber);
  rounding.AfterUpdate({.tensor = 0, .step = 1}, numbers);
  double sum = 0;
  for (const float number : numbers) sum += number;
  const double part = double{kNumber} * 1024 - std::floor(double{kNumber} * 1024);
  const double error = std::sqrt(part * (1 - part) / kCount) / 1024;
  report.Each("100,000 draws of one number: mean, standard errors from it",
              std::abs(sum / kCount - double{kNumber}) / error, Rule::kAtMost, 4);
}

namespace {

NumericWay DynamicWith(std::int64_t adjust_every) {
  NumericWay way;
  v1alpha1::DynamicFixedPoint& dynamic = *way.numerics.mutable_dynamic_fixed_point();
  dynamic.set_compute_bits(10);
  dynamic.set_update_bits(12);
  dynamic.set_max_overflow(1e-4);
  dynamic.set_adjust_every(adjust_every);
  return way;
}

// Weights whose spread doubles ten times, and halves as often again, each for some looks at their
// range: how far what is kept of them is from them at the end of each stretch, beside their
// largest; the furthest.
double LostOfSpreads(const NumericWay& way, std::uint64_t seed) {
  constexpr std::int64_t kCount = 20000;
  numerics::Numerics rounding(way.numerics, seed, {{"weights", {kCount}, 0, kCount}});
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Floats drawn(kCount);
  for (float& number : drawn) number = normal(random);
  Floats first = drawn;
  rounding.Begin(0, first);
  double furthest = 0;
  std::int64_t step = 0;
  for (int spread = 0; spread <= 20; ++spread) {
    const float scale = std::ldexp(1.0F, spread <= 10 ? spread : 20 - spread);
    double lost = 0, largest = 0;
    for (int look = 0; look < 4; ++look) {
      Floats kept = drawn;
      for (float& number : kept) number *= scale;
      rounding.AfterUpdate({.tensor = 0, .step = ++step, .samples = 1000}, kept);
      lost = largest = 0;
      for (std::size_t i = 0; i < drawn.size(); ++i) {
        const double number = double{drawn[i]} * scale;
        lost = std::max(lost, std::abs(double{kept[i]} - number));
        largest = std::max(largest, std::abs(number));
      }
    }
    furthest = std::max(furthest, lost / largest);
  }
  return furthest;
}

}  // namespace

void DynamicRanges(const Setting& setting, Report& report) {
  const Lesson lesson = NumericLesson(setting);
  const NumericLearned wide = LearnIn(lesson, setting.seed, {});
  // A look at the ranges every 50 steps.
  const NumericWay way = DynamicWith(50 * kNumericWorkers);
  const NumericLearned learned = LearnIn(lesson, setting.seed, way);
  report.Mean(lesson.name + ": accuracy in 32 bits", wide.accuracy, Rule::kAtLeast, lesson.learned);
  report.Mean(lesson.name + ": accuracy, points below it, layers in 10 bits and weights in 12",
              wide.accuracy - learned.accuracy, Rule::kAtMost, LooseOf(setting, 1));
  report.Each("share of weights beyond their ranges, since these were last looked at",
              learned.told.at("numerics/overflow"), Rule::kAtMost, 0.0002);
  report.Each("weights that are not the same bits at all workers", learned.different, Rule::kEqual,
              0);
  // One number of 10,000 may be beyond the range, which is less than twice the largest of the
  // others: it loses what is beyond.
  report.Each("weights whose spread doubles and halves ten times: lost of the largest",
              LostOfSpreads(DynamicWith(1000), setting.seed), Rule::kAtMost, 0.5);
  report.Control("ranges that are not looked at",
                 LostOfSpreads(DynamicWith(1'000'000'000), setting.seed), Rule::kAbove, 0.9);
}

void LayerRates(const Setting& setting, Report& report) {
  const Lesson lesson = NumericLesson(setting);
  NumericWay lars;
  lars.batch = 1024;
  lars.rate = 1;
  v1alpha1::Lars& spec = *lars.optimizer.mutable_lars();
  spec.set_momentum(0.9);
  spec.set_trust(0.02);
  const NumericLearned learned = LearnIn(lesson, setting.seed, lars);
  NumericWay plain = lars;
  plain.optimizer.clear_lars();
  plain.optimizer.mutable_sgd()->set_momentum(0.9);
  plain.rate = lesson.rate;
  report.Mean(lesson.name + ": batches of 1,024, accuracy with LARS", learned.accuracy,
              Rule::kAtLeast, setting.thorough ? 90 : 85);
  report.Tell(lesson.name + ": points above momentum SGD at the rate of batches of 64",
              learned.accuracy - LearnIn(lesson, setting.seed, plain).accuracy);

  // A step of two matrices, one with gradients a thousand times as large.
  std::mt19937_64 random(setting.seed);
  std::normal_distribution<float> normal;
  const auto moved = [&](const v1alpha1::Optimizer& optimizer, float scale) {
    const auto rule = *optimizer::MakeOptimizer(optimizer);
    Floats weights(1000), gradient(1000);
    for (float& weight : weights) weight = normal(random);
    for (float& number : gradient) number = scale * normal(random);
    const Floats before = weights;
    auto state = optimizer::NewState(*rule, weights.size());
    optimizer::Apply(*rule, {.learning_rate = 1, .number = 1, .whole_matrix = true}, weights,
                     gradient, state);
    double step = 0, length = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      step += std::pow(double{weights[i]} - double{before[i]}, 2);
      length += std::pow(double{before[i]}, 2);
    }
    return std::sqrt(step / length);
  };
  const double small = moved(lars.optimizer, 1e-3F), large = moved(lars.optimizer, 1);
  report.Each("a step beside its weights, over trust: furthest from 1",
              std::max(std::abs(small / 0.02 - 1), std::abs(large / 0.02 - 1)), Rule::kAtMost,
              1e-4);
  report.Control("SGD: steps of gradients a thousand times as large, times as long",
                 moved(plain.optimizer, 1) / moved(plain.optimizer, 1e-3F), Rule::kAbove, 500);
}

void LearnInLogarithms(const Setting& setting, Report& report) {
  const Lesson lesson = NumericLesson(setting);
  NumericWay way;
  way.numerics.mutable_logarithmic();
  JudgeBelowWide(setting, lesson, LearnIn(lesson, setting.seed, {}),
                 "layers in logarithmic numbers", way, 1, report);
}

void PrunedWeights(const Setting& setting, Report& report) {
  const Lesson lesson = NumericLesson(setting);
  const std::int64_t steps = lesson.samples / 64;
  NumericWay pruned, fours, at_once;
  v1alpha1::MagnitudePruning& magnitude = *pruned.numerics.mutable_sparsity()->mutable_magnitude();
  magnitude.set_share(0.8);
  magnitude.set_from_step(steps / 10);
  magnitude.set_to_step(steps * 6 / 10);
  at_once = pruned;
  at_once.numerics.mutable_sparsity()->mutable_magnitude()->set_share(0.98);
  at_once.numerics.mutable_sparsity()->mutable_magnitude()->set_from_step(steps - 2);
  at_once.numerics.mutable_sparsity()->mutable_magnitude()->set_to_step(steps - 1);
  fours.numerics.mutable_sparsity()->mutable_two_of_four();
  const NumericLearned dense = LearnIn(lesson, setting.seed, {});
  const NumericLearned learned = LearnIn(lesson, setting.seed, pruned);
  const NumericLearned in_fours = LearnIn(lesson, setting.seed, fours);
  report.Mean(lesson.name + ": accuracy of all weights", dense.accuracy, Rule::kAtLeast,
              lesson.learned);
  report.Mean(lesson.name + ": accuracy, points below it with a fifth of the weights",
              dense.accuracy - learned.accuracy, Rule::kAtMost, LooseOf(setting, 1));
  report.Each("share of weights that are 0", MaskedOf(learned.weights), Rule::kAtLeast, 0.78);
  report.Each("weights that are not the same bits at all workers", learned.different, Rule::kEqual,
              0);
  report.Tell(
      lesson.name + ": points below all weights with two of four, from the first weights on",
      dense.accuracy - in_fours.accuracy);
  report.Each("two of four: share of weights that are 0", MaskedOf(in_fours.weights),
              Rule::kAtLeast, 0.45);
  JudgeHarmOf(setting, lesson, "49 of 50 pruned with the last step, not while it learns", learned,
              LearnIn(lesson, setting.seed, at_once), 5, report);
}

}  // namespace starling::techniques
