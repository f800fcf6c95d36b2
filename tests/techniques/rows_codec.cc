// SPDX-License-Identifier: Apache-2.0
// Rows about codecs: Z-1 to Z-7, Z-12 and Z-13.
#include <algorithm>
#include <cmath>
#include <random>

#include "common/status/check.h"
#include "tests/techniques/codec_lesson.h"
#include "tests/techniques/rows.h"
#include "trainer/compression/tensor_codec.h"

namespace starling::techniques {
namespace {

using compression::Codec;
using compression::Compressor;
using compression::kPieceHeadBytes;
using compression::Manner;
using compression::Piece;
using Floats = std::vector<float>;

struct Bounds {
  double below = 0;  // points below synchronous SGD, at most
  double fewer = 0;  // times fewer bytes, at least
  const char* what = "without error feedback";
};

double Loose(const Setting& setting, double thorough) { return setting.thorough ? thorough : 2.5; }

// What `harmed`, without what matters, comes to. On the digits the loss shows it, of which a test
// image is 0.28 points.
void JudgeHarm(const Setting& setting, const Lesson& lesson, const char* what, const Learned& coded,
               const Learned& harmed, Report& report) {
  const std::string name = lesson.name + ": " + what;
  report.ControlOfMean(name + ", loss over the training set times as high",
                       harmed.loss / coded.loss, Rule::kAtLeast, 2);
  report.ControlOfMean(name + ", points below", coded.accuracy - harmed.accuracy,
                       setting.thorough ? Rule::kAtLeast : Rule::kNone, 1);
}

// `way` and its control beside `synchronous`.
void Judge(const Setting& setting, const Bounds& bounds, const Way& synchronous, const Way& way,
           const Way& control, Report& report) {
  const Lesson lesson = CodecLesson(setting);
  const Learned whole = Learn(lesson, setting.seed, synchronous);
  const Learned coded = Learn(lesson, setting.seed, way);
  report.Mean(lesson.name + ": accuracy of synchronous SGD", whole.accuracy, Rule::kAtLeast,
              lesson.learned);
  report.Mean(lesson.name + ": accuracy, points below it at equal samples",
              whole.accuracy - coded.accuracy, Rule::kAtMost, Loose(setting, bounds.below));
  report.Mean(lesson.name + ": bytes that a worker sends, times fewer", coded.dense / coded.sent,
              Rule::kAtLeast, bounds.fewer);
  JudgeHarm(setting, lesson, bounds.what, coded, Learn(lesson, setting.seed, control), report);
}

// As above, the control without error feedback.
void JudgeFeedback(const Setting& setting, const Bounds& bounds, Way way, Report& report) {
  way.options.error_feedback = true;
  Way control = way;
  control.options.error_feedback = false;
  Judge(setting, bounds, {}, way, control, report);
}

// `way` beside synchronous SGD; its control is judged by what it sends.
void JudgeAlone(const Setting& setting, double below, const Way& way, Report& report) {
  const Lesson lesson = CodecLesson(setting);
  const Learned whole = Learn(lesson, setting.seed, {}), coded = Learn(lesson, setting.seed, way);
  report.Mean(lesson.name + ": accuracy, points below synchronous SGD at equal samples",
              whole.accuracy - coded.accuracy, Rule::kAtMost, below);
  report.Tell(lesson.name + ": bytes that a worker sends, times fewer", coded.dense / coded.sent);
}

Floats Normal(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Floats values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// What arrives of `values`, and in how many bytes, the head apart.
struct Sent {
  double bytes = 0;
  Floats arrived;
};
Sent SentBy(const Codec& codec, const Floats& values, const Manner& manner = {}) {
  std::vector<std::byte> bytes(codec.MaxBytes(values.size()));
  const auto size = codec.EncodeIn(manner, values, bytes);
  STARLING_CHECK(size.ok(), size.status().ToString().c_str());
  Sent sent{static_cast<double>(*size - kPieceHeadBytes), Floats(values.size())};
  const absl::Status decoded = codec.Decode(std::span(bytes).first(*size), sent.arrived);
  STARLING_CHECK(decoded.ok(), decoded.ToString().c_str());
  return sent;
}

double NonZeros(const Floats& values) {
  return static_cast<double>(std::ranges::count_if(values, [](float value) { return value != 0; }));
}

double SquaredError(const Floats& a, const Floats& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - double{b[i]}, 2);
  return sum;
}

// The largest difference, over many updates, of what was sent and is kept from what was given.
double Unaccounted(const Codec& codec, std::uint64_t seed, bool feedback) {
  constexpr std::size_t kCount = 4096;
  Compressor compressor(codec, kCount, feedback);
  std::vector<double> difference(kCount);
  std::vector<std::byte> bytes(codec.MaxBytes(kCount));
  Floats arrived(kCount);
  for (std::uint64_t update = 1; update <= 50; ++update) {
    const Floats given = Normal(kCount, seed * 100 + update);
    const auto size = compressor.Encode(update, {}, given, bytes);
    STARLING_CHECK(size.ok() && codec.Decode(std::span(bytes).first(*size), arrived).ok(),
                   "what is encoded is decoded");
    compressor.Commit(update);
    for (std::size_t i = 0; i < kCount; ++i) difference[i] += double{given[i]} - double{arrived[i]};
  }
  double worst = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const double kept = feedback ? double{compressor.residual()[i]} : 0;
    worst = std::max(worst, std::abs(difference[i] - kept));
  }
  return worst;
}

void JudgeConservation(const Codec& codec, std::uint64_t seed, Report& report) {
  report.Each("50 updates of 4,096 numbers: given, but neither sent nor kept, at most",
              Unaccounted(codec, seed, true), Rule::kAtMost, 1e-4);
  report.Control("without error feedback", Unaccounted(codec, seed, false), Rule::kAbove, 0.1);
}

}  // namespace

void OneBitSgd(const Setting& setting, Report& report) {
  Way way;
  way.codec.mutable_one_bit();
  const std::unique_ptr<Codec> codec = CodecOf(way.codec);
  for (const std::size_t width : {512, 2048}) {
    const std::vector<Piece> pieces = {{8 * width, width, width}};
    const Sent sent = SentBy(*codec, Normal(8 * width, setting.seed), {pieces});
    const double words = static_cast<double>((width + 31) / 32);
    report.Each("rows of " + std::to_string(width) + ": bytes beside the formula",
                sent.bytes / (8 * (4 * words + 8)), Rule::kEqual, 1);
    report.Tell("the same: times fewer than floats", static_cast<double>(32 * width) / sent.bytes);
  }
  JudgeConservation(*codec, setting.seed, report);
  JudgeFeedback(setting, {.below = 0.5, .fewer = 8}, way, report);
}

void ThresholdSending(const Setting& setting, Report& report) {
  Way way;
  way.codec.mutable_threshold();
  const std::unique_ptr<Codec> codec = CodecOf(way.codec);
  const Sent sent = SentBy(*codec, Normal(60000, setting.seed));
  Floats levels = sent.arrived;
  std::ranges::sort(levels);
  levels.erase(std::unique(levels.begin(), levels.end()), levels.end());
  report.Each("60,000 numbers: different ones that arrive", static_cast<double>(levels.size()),
              Rule::kEqual, 3);
  report.Each("bytes for each that is sent, beside tau", (sent.bytes - 4) / NonZeros(sent.arrived),
              Rule::kEqual, 4);
  report.Each("percent that is sent", NonZeros(sent.arrived) / 600, Rule::kAtLeast, 0.5);
  report.Each("percent that is sent, at most", NonZeros(sent.arrived) / 600, Rule::kAtMost, 2);
  JudgeConservation(*codec, setting.seed, report);
  JudgeFeedback(setting, {.below = 0.7, .fewer = 10}, way, report);
}

void GradientDropping(const Setting& setting, Report& report) {
  Way way;
  way.codec.mutable_top_k();
  const std::unique_ptr<Codec> codec = CodecOf(way.codec);
  double numbers = 0, bytes = 0;
  for (std::uint64_t step = 1; step <= 100; ++step) {
    const Sent sent = SentBy(*codec, Normal(60000, setting.seed * 1000 + step));
    numbers += NonZeros(sent.arrived);
    bytes += sent.bytes;
  }
  report.Each("60,000 numbers, mean of 100 times: percent that is sent", numbers / 60000,
              Rule::kAtLeast, 0.8);
  report.Each("the same, at most", numbers / 60000, Rule::kAtMost, 1.2);
  report.Each("bytes for each", bytes / numbers, Rule::kEqual, 8);
  JudgeConservation(*codec, setting.seed, report);
  JudgeFeedback(setting, {.below = 0.5, .fewer = 10}, way, report);
}

namespace {

// Synchronous SGD with momentum, and a way that has it in the codec. The warm-up is a twentieth.
constexpr double kMomentum = 0.9;
constexpr char kNotKept[] = "what is not sent is not kept";
Way WithMomentum() {
  Way way;
  way.rate = 1 - kMomentum;
  way.momentum = kMomentum;
  return way;
}
Way Corrected(const v1alpha1::Codec& codec, const Lesson& lesson) {
  Way way;
  way.codec = codec;
  way.rate = 1 - kMomentum;
  way.options.momentum = kMomentum;
  way.options.warmup_steps = lesson.samples / (kCodecWorkers * kCodecBatch) / 20;
  return way;
}
// The optimizer has the momentum, and what is not sent is lost.
Way Uncorrected(Way way) {
  way.momentum = way.options.momentum;
  way.options.momentum = 0;
  return way;
}

}  // namespace

void DeepCompression(const Setting& setting, Report& report) {
  const Lesson lesson = CodecLesson(setting);
  v1alpha1::Codec codec;
  codec.mutable_deep_gradient_compression();
  const Way way = Corrected(codec, lesson);
  const Bounds bounds{.below = 0.5, .fewer = 20, .what = kNotKept};
  Judge(setting, bounds, WithMomentum(), way, Uncorrected(way), report);
  const Learned with = Learn(lesson, setting.seed, way);
  Way plain = Uncorrected(way);
  plain.options.error_feedback = true;
  Way unmasked = way;
  unmasked.options.masking = false;
  report.Tell(lesson.name + ": momentum of the optimizer, error feedback: points below",
              with.accuracy - Learn(lesson, setting.seed, plain).accuracy);
  report.Tell(lesson.name + ": no masking: points below",
              with.accuracy - Learn(lesson, setting.seed, unmasked).accuracy);
  const double share = 0.001 * 8 / 4;  // bytes beside floats
  for (const int n : {2, 8, 64}) {
    report.Tell(
        "times fewer bytes than a ring, at a thousandth, of " + std::to_string(n) + " workers",
        2.0 * (n - 1) / n / ((n - 1) * share));
  }
}

void TernaryGradients(const Setting& setting, Report& report) {
  constexpr int kDraws = 100000;
  Way way;
  way.codec.mutable_tern_grad();
  v1alpha1::Codec unclipped;
  unclipped.mutable_tern_grad()->set_clip_sigma(0);
  const std::unique_ptr<Codec> codec = CodecOf(unclipped);
  const Floats values = Normal(64, setting.seed);
  float scale = 0;
  for (const float value : values) scale = std::max(scale, std::abs(value));
  const auto furthest = [&](bool draws) {
    std::vector<double> sums(values.size());
    for (int i = 1; i <= kDraws; ++i) {
      const std::uint64_t draw =
          draws ? setting.seed * 1'000'000 + static_cast<std::uint64_t>(i) : 1;
      const Floats arrived = SentBy(*codec, values, {.draw = draw}).arrived;
      for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += double{arrived[j]};
    }
    double worst = 0;
    for (std::size_t j = 0; j < sums.size(); ++j) {
      const double magnitude = std::abs(double{values[j]});
      const double error = std::sqrt((magnitude * (double{scale} - magnitude) + 1e-9) / kDraws);
      worst = std::max(worst, std::abs(sums[j] / kDraws - double{values[j]}) / error);
    }
    return worst;
  };
  report.Each("64 numbers, mean of 100,000 draws: furthest off, in standard errors", furthest(true),
              Rule::kAtMost, 4.5);
  report.Control("every draw the same", furthest(false), Rule::kAbove, 10);
  report.Each("1,001 numbers: bytes", SentBy(*codec, Normal(1001, 1)).bytes, Rule::kEqual, 255);
  JudgeAlone(setting, Loose(setting, 1), way, report);
}

void SparseBinary(const Setting& setting, Report& report) {
  Way way;
  way.codec.mutable_sparse_binary();
  way.local = 10;
  const std::unique_ptr<Codec> codec = CodecOf(way.codec);
  const Sent sent = SentBy(*codec, Normal(100000, setting.seed));
  report.Each("100,000 numbers: bits for each place", 8 * (sent.bytes - 9) / NonZeros(sent.arrived),
              Rule::kAtMost, 1.02 * 8.11);
  report.Tell("of weights alone, times fewer bits than floats at each of ten steps",
              10 * 32 * 100000.0 / (8 * sent.bytes));
  JudgeConservation(*codec, setting.seed, report);
  JudgeFeedback(setting, {.below = 1, .fewer = 500}, way, report);
}

void EntropyShares(const Setting& setting, Report& report) {
  const Lesson lesson = CodecLesson(setting);
  v1alpha1::Codec spec;
  spec.mutable_entropy_top_k()->set_density(0.01);
  const std::unique_ptr<Codec> codec = CodecOf(spec);
  // Half of the numbers lie in two binades.
  double narrow = 0, wide = 0;
  for (std::uint64_t time = 1; time <= 50; ++time) {
    Floats values = Normal(40000, setting.seed * 100 + time);
    for (std::size_t i = 0; i < 20000; ++i) values[i] = 0.5F + std::abs(values[i]) / 10;
    const std::vector<Piece> pieces = {{20000, 100, 100}, {20000, 100, 100}};
    const Floats arrived = SentBy(*codec, values, {pieces}).arrived;
    narrow += NonZeros({arrived.begin(), arrived.begin() + 20000}) / 50;
    wide += NonZeros({arrived.begin() + 20000, arrived.end()}) / 50;
  }
  report.Each("budget of 400 numbers, mean of 50 times: sent, beside it", (narrow + wide) / 400,
              Rule::kAtLeast, 0.95);
  report.Each("the same, at most", (narrow + wide) / 400, Rule::kAtMost, 1.05);
  report.Each("sent of the tensor that spreads wider, beside the other", wide / narrow,
              Rule::kAbove, 1.5);
  v1alpha1::Codec thin, deep;
  thin.mutable_entropy_top_k();
  deep.mutable_deep_gradient_compression();
  const Way way = Corrected(thin, lesson);
  const Learned with = Learn(lesson, setting.seed, way);
  const Learned other = Learn(lesson, setting.seed, Corrected(deep, lesson));
  report.Mean(lesson.name + ": accuracy, points below deep gradient compression",
              other.accuracy - with.accuracy, Rule::kAtMost, Loose(setting, 0.3));
  JudgeHarm(setting, lesson, kNotKept, with, Learn(lesson, setting.seed, Uncorrected(way)), report);
}

void LogarithmicNumbers(const Setting& setting, Report& report) {
  Way way;
  way.codec.mutable_logarithmic();
  v1alpha1::Codec even;
  even.mutable_int8();
  std::mt19937_64 random(setting.seed);
  std::uniform_real_distribution<float> exponent(-14, 0);
  Floats values(4000);
  for (float& value : values) value = std::exp2(exponent(random));
  const auto worst = [&](const v1alpha1::Codec& codec) {
    const Floats arrived = SentBy(*CodecOf(codec), values).arrived;
    double most = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      most = std::max(most, 100 * std::abs(double{arrived[i]} / double{values[i]} - 1));
    }
    return most;
  };
  report.Each("numbers over 14 binades: furthest off, in percent", worst(way.codec), Rule::kAtMost,
              4.44);
  report.Control("in even steps", worst(even), Rule::kAbove, 50);
  const Sent sent = SentBy(*CodecOf(way.codec), Normal(1000, setting.seed));
  double uneven = 0;
  for (std::size_t i = 1; i < sent.arrived.size(); ++i) {
    const double product = std::abs(double{sent.arrived[i]} * double{sent.arrived[i - 1]});
    const double steps = product > 0 ? 8 * std::log2(product) : 0;
    uneven = std::max(uneven, std::abs(steps - std::nearbyint(steps)));
  }
  report.Each("products: furthest from a code", uneven, Rule::kAtMost, 1e-5);
  report.Each("1,000 numbers: bytes", sent.bytes, Rule::kEqual, 1002);
  JudgeAlone(setting, Loose(setting, 1), way, report);
  LearnInLogarithms(setting, report);
}

void ClippedBytes(const Setting& setting, Report& report) {
  Way way;
  way.codec.mutable_int8();
  const std::unique_ptr<Codec> codec = CodecOf(way.codec);
  const auto beside = [&](const Floats& values) {
    float largest = 0;
    for (const float value : values) largest = std::max(largest, std::abs(value));
    const float step = largest / 127;
    Floats unclipped;
    for (const float value : values) unclipped.push_back(std::nearbyint(value / step) * step);
    return SquaredError(SentBy(*codec, values).arrived, values) / SquaredError(unclipped, values);
  };
  double worst = 0;
  for (std::uint64_t time = 1; time <= 20; ++time) {
    worst = std::max(worst, beside(Normal(5000, setting.seed * 100 + time)));
  }
  report.Each("normal numbers: squared error beside that without clipping, at most", worst,
              Rule::kAtMost, 1.000001);
  // Half the sum of two squares is exponentially distributed, so with a sign these are Laplace's.
  Floats tailed = Normal(100000, setting.seed);
  const Floats other = Normal(100000, setting.seed + 1000);
  for (std::size_t i = 0; i < tailed.size(); ++i) {
    tailed[i] *= (tailed[i] * tailed[i] + other[i] * other[i]) / (2 * std::abs(tailed[i]));
  }
  report.ControlOfMean("100,000 of Laplace's distribution: that without clipping, times as much",
                       1 / beside(tailed), Rule::kAbove, 1.05);
  report.Each("1,000 numbers: bytes", SentBy(*codec, Normal(1000, setting.seed)).bytes,
              Rule::kEqual, 1004);
  JudgeAlone(setting, Loose(setting, 0.5), way, report);
}

}  // namespace starling::techniques
