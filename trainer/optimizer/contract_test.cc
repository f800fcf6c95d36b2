// SPDX-License-Identifier: Apache-2.0
// The contract of optimizers: each one in the table is asked all of this, and compared with its
// published formula, written here anew in double precision for one parameter.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/random/philox.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/optimizer/optimizer.h"

namespace starling::optimizer {
namespace {

using Floats = std::vector<float>;
using Names = std::vector<std::string>;

constexpr std::size_t kCount = 203;  // no multiple of any vector's width
constexpr int kSteps = 100;
constexpr double kRate = 0.01;
constexpr double kClose = 2e-5;

// A parameter after one update; `m` are three numbers that it may keep, zeros at first.
using Formula = double (*)(double p, double g, int step, double* m);

// Each as its paper or PyTorch has it, with the settings of its line below.
double Sgd(double p, double g, int /*step*/, double* /*m*/) { return p - kRate * g; }
double DecayedMomentum(double p, double g, int step, double* m) {
  g += 0.1 * p;
  m[0] = step == 1 ? g : 0.9 * m[0] + g;
  return p - kRate * m[0];
}
double Nesterov(double p, double g, int step, double* m) {
  g += 0.1 * p;
  m[0] = step == 1 ? g : 0.9 * m[0] + g;
  return p - kRate * (g + 0.9 * m[0]);
}
double Adam(double p, double g, int step, double* m) {
  m[0] = 0.9 * m[0] + 0.1 * g;
  m[1] = 0.999 * m[1] + 0.001 * g * g;
  const double mean = m[0] / (1 - std::pow(0.9, step));
  const double variance = m[1] / (1 - std::pow(0.999, step));
  return p - kRate * mean / (std::sqrt(variance) + 1e-8);
}
double AdamWithPenalty(double p, double g, int step, double* m) {
  return Adam(p, g + 0.1 * p, step, m);
}
double AdamW(double p, double g, int step, double* m) {
  return Adam(p, g, step, m) - kRate * 0.1 * p;
}
double RmsProp(double p, double g, int /*step*/, double* m) {
  m[0] = 0.99 * m[0] + 0.01 * g * g;
  return p - kRate * g / (std::sqrt(m[0]) + 1e-8);
}
double RmsPropWithMomentum(double p, double g, int /*step*/, double* m) {
  g += 0.1 * p;
  m[0] = 0.9 * m[0] + 0.1 * g * g;
  m[1] = 0.5 * m[1] + g / (std::sqrt(m[0]) + 0.3);
  return p - kRate * m[1];
}
// Where it has no whole matrix; the rate is in the momentum.
double Lars(double p, double g, int /*step*/, double* m) {
  m[0] = 0.9 * m[0] + kRate * g;
  return p - m[0];
}
double Adagrad(double p, double g, int /*step*/, double* m) {
  m[0] += g * g;
  return p - kRate * g / std::sqrt(m[0]);
}
double Ftrl(double w, double g, int step, double* m) {
  constexpr double kL1 = 0.05, kL2 = 0.2, kBeta = 1;
  double& z = m[0];
  double& n = m[1];
  const auto sign = [](double x) { return x > 0 ? 1.0 : -1.0; };
  if (step == 1) z = -w * (kBeta / kRate + kL2) - sign(w) * kL1;  // what gives w before any update
  z += g - (std::sqrt(n + g * g) - std::sqrt(n)) / kRate * w;
  n += g * g;
  if (std::abs(z) <= kL1) return 0;
  return -(z - sign(z) * kL1) / ((kBeta + std::sqrt(n)) / kRate + kL2);
}
double Proximal(double p, double g, int /*step*/, double* /*m*/) {
  const double moved = p - kRate * g;
  return std::abs(moved) <= kRate * 0.3 ? 0 : moved - std::copysign(kRate * 0.3, moved);
}

// A new optimizer gets a line here, and one without a line fails. Where gradients do not come late,
// AdaRevision is Adagrad and the delay-compensated rule plain descent.
struct Promise {
  const char* settings;
  Formula formula;
  double default_rate;
  Names vectors;
};
const Promise kPromises[] = {
    {"sgd {}", Sgd, 0.05, {}},
    {"sgd { momentum: 0.9 weight_decay: 0.1 }", DecayedMomentum, 0.05, {"momentum"}},
    {"sgd { momentum: 0.9 weight_decay: 0.1 nesterov: true }", Nesterov, 0.05, {"momentum"}},
    {"adam {}", Adam, 0.001, {"mean", "variance"}},
    {"adam { weight_decay: 0.1 }", AdamWithPenalty, 0.001, {"mean", "variance"}},
    {"adam_w { weight_decay: 0.1 }", AdamW, 0.001, {"mean", "variance"}},
    {"rms_prop {}", RmsProp, 0.01, {"meanSquare"}},
    {"rms_prop { decay: 0.9 epsilon: 0.3 momentum: 0.5 weight_decay: 0.1 }",
     RmsPropWithMomentum,
     0.01,
     {"meanSquare", "momentum"}},
    {"lars { weight_decay: 0.1 }", Lars, 1, {"momentum"}},
    {"adagrad {}", Adagrad, 0.05, {"squares"}},
    {"ada_revision {}", Adagrad, 0.05, {"squares", "largest", "gradients"}},
    {"delay_compensated {}", Sgd, 0.05, {}},
    {"delay_compensated { adaptive: true }", Sgd, 0.05, {"meanSquare"}},
    {"ftrl { l1: 0.05 l2: 0.2 }", Ftrl, 0.1, {"z", "n"}},
    {"proximal_gradient { l1: 0.3 }", Proximal, 0.05, {}}};

v1alpha1::Optimizer SpecOf(const Promise& promise) {
  v1alpha1::Optimizer spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(promise.settings, &spec))
      << promise.settings;
  return spec;
}

float Gradient(std::int64_t step, std::size_t i) {
  return static_cast<float>(
      random::Philox(4, random::Stream::kTest, static_cast<std::uint64_t>(step)).Normal(i));
}

Floats Row(std::int64_t step) {
  Floats values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) values[i] = Gradient(step, i);
  return values;
}

// [begin, begin + size) of each vector.
std::vector<std::span<float>> Cut(std::vector<StateVector>& state, std::size_t begin,
                                  std::size_t size) {
  std::vector<std::span<float>> vectors;
  vectors.reserve(state.size());
  for (StateVector& vector : state)
    vectors.push_back(std::span(vector.values).subspan(begin, size));
  return vectors;
}

// Parameters that were given, not learned, and then updated, in parts of at most `part`.
struct Training {
  Floats parameters = Row(0);
  std::vector<StateVector> state;

  explicit Training(const Optimizer& optimizer) : state(NewState(optimizer, kCount)) {
    optimizer.Begin({.learning_rate = kRate, .number = 1}, parameters, Cut(state, 0, kCount));
  }
  void Updates(const Optimizer& optimizer, int from, int to, std::size_t part = kCount) {
    for (int step = from; step <= to; ++step) {
      const Floats gradient = Row(step);
      for (std::size_t begin = 0; begin < kCount; begin += part) {
        const std::size_t size = std::min(part, kCount - begin);
        optimizer.Apply({.learning_rate = kRate, .number = step},
                        std::span(parameters).subspan(begin, size),
                        std::span(gradient).subspan(begin, size), Cut(state, begin, size));
      }
    }
  }
  bool operator==(const Training& other) const {
    return parameters == other.parameters &&
           std::ranges::equal(state, other.state, {}, &StateVector::values, &StateVector::values);
  }
};

std::vector<double> Computed(Formula formula) {
  const Floats start = Row(0);
  std::vector<double> parameters(start.begin(), start.end());
  std::vector<double> memory(3 * kCount);
  for (int step = 1; step <= kSteps; ++step) {
    for (std::size_t i = 0; i < kCount; ++i) {
      parameters[i] = formula(parameters[i], Gradient(step, i), step, &memory[3 * i]);
    }
  }
  return parameters;
}

template <typename Numbers>
double Distance(const Numbers& some, const std::vector<double>& others) {
  double largest = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    largest = std::max(largest, std::abs(some[i] - others[i]));
  }
  return largest;
}

class OptimizerContract : public ::testing::TestWithParam<Promise> {
 protected:
  std::unique_ptr<Optimizer> Make() const {
    auto made = MakeOptimizer(SpecOf(GetParam()));
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }
  const std::unique_ptr<Optimizer> optimizer_ = Make();
};
INSTANTIATE_TEST_SUITE_P(Each, OptimizerContract, ::testing::ValuesIn(kPromises),
                         [](const auto& one) {
                           std::string name = one.param.settings;
                           std::erase_if(name, [](unsigned char c) { return !std::isalnum(c); });
                           return name;
                         });

TEST_P(OptimizerContract, FollowsItsFormulaAndNoOther) {
  Training run(*optimizer_);
  run.Updates(*optimizer_, 1, kSteps);
  const std::vector<double> expected = Computed(GetParam().formula);
  EXPECT_LT(Distance(run.parameters, expected), kClose);
  int others = 0;
  for (const Promise& promise : kPromises) {
    if (promise.formula == GetParam().formula) continue;
    EXPECT_GT(Distance(run.parameters, Computed(promise.formula)), 100 * kClose)
        << "the check would not tell it from " << promise.settings;
    ++others;
  }
  EXPECT_GT(others, 0);
}

TEST_P(OptimizerContract, KeepsTheVectorsThatItNamesOfTheSizeOfTheParameters) {
  EXPECT_EQ(optimizer_->state_names(), GetParam().vectors);
  const std::vector<StateVector> state = NewState(*optimizer_, kCount);
  ASSERT_EQ(state.size(), GetParam().vectors.size());
  for (const StateVector& vector : state) EXPECT_EQ(vector.values, Floats(kCount));
}

// Servers cut the parameters into shards, workers into slices of an exchange.
TEST_P(OptimizerContract, AnyCutOfTheParametersGivesTheSameBits) {
  Training whole(*optimizer_);
  whole.Updates(*optimizer_, 1, 20);
  for (const std::size_t part : {1, 7, 64, 202}) {
    Training parts(*optimizer_);
    parts.Updates(*optimizer_, 1, 20, part);
    EXPECT_TRUE(parts == whole) << part;
  }
}

// Whoever takes over parameters and vectors, in another process, goes on with the same bits; so all
// that an optimizer keeps is in its vectors.
TEST_P(OptimizerContract, StateThatIsCopiedGoesOnAsIfNothingHadHappened) {
  Training run(*optimizer_);
  run.Updates(*optimizer_, 1, 10);
  Training copy = run;
  run.Updates(*optimizer_, 11, 20);
  copy.Updates(*Make(), 11, 20);
  EXPECT_TRUE(copy == run);
}

TEST_P(OptimizerContract, ParametersThatAreGivenAnewForgetWhatCameBefore) {
  Training run(*optimizer_);
  run.Updates(*optimizer_, 1, 10);
  run.parameters = Row(0);
  optimizer_->Begin({.learning_rate = kRate, .number = 1}, run.parameters,
                    Cut(run.state, 0, kCount));
  EXPECT_TRUE(run == Training(*optimizer_));
}

TEST_P(OptimizerContract, WithoutDelayIsAsIfItsReadersWereNotRemembered) {
  Training plain(*optimizer_), read(*optimizer_);
  plain.Updates(*optimizer_, 1, 20);
  for (int step = 1; step <= 20; ++step) {
    const int of = optimizer_->remembered();
    const Floats remembered =
        of < 0 ? read.parameters : read.state[static_cast<std::size_t>(of)].values;
    optimizer_->ApplyDelayed({.learning_rate = kRate, .number = step}, read.parameters, Row(step),
                             Cut(read.state, 0, kCount), remembered);
  }
  EXPECT_TRUE(read == plain);
}

// The loss 0.5 * (w - 1)^2, from -3.
TEST_P(OptimizerContract, DescendsToWhereTheLossIsSmall) {
  Floats w = {-3};
  std::vector<StateVector> state = NewState(*optimizer_, 1);
  optimizer_->Begin({.learning_rate = 0.3, .number = 1}, w, Cut(state, 0, 1));
  for (int step = 1; step <= 500; ++step) {
    Apply(*optimizer_, {.learning_rate = 0.3, .number = step}, w, Floats{w[0] - 1}, state);
  }
  EXPECT_LT(0.5 * std::pow(double{w[0]} - 1, 2), 0.8) << "a tenth of what it was";
}

TEST_P(OptimizerContract, ItsRateIsTheGivenOneOrTheSchemas) {
  v1alpha1::Optimizer spec = SpecOf(GetParam());
  EXPECT_DOUBLE_EQ(LearningRate(spec, 1), GetParam().default_rate);
  const google::protobuf::Reflection& reflection = *spec.GetReflection();
  google::protobuf::Message& settings = *reflection.MutableMessage(
      &spec, v1alpha1::Optimizer::descriptor()->FindFieldByNumber(spec.kind_case()));
  settings.GetReflection()->SetDouble(
      &settings, settings.GetDescriptor()->FindFieldByName("learning_rate"), 0.75);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 1), 0.75);
}

// What a job may ask for this build can do, and it is tested above.
TEST(Optimizers, AreThoseOfTheJobFileAndEachHasALineHere) {
  const auto* kinds = v1alpha1::Optimizer::descriptor()->FindOneofByName("kind");
  Names asked, made, promised;
  for (int i = 0; i < kinds->field_count(); ++i) asked.push_back(kinds->field(i)->json_name());
  for (const OptimizerKind& kind : OptimizerKinds()) made.emplace_back(kind.name);
  for (const Promise& promise : kPromises) {
    promised.push_back(v1alpha1::Optimizer::descriptor()
                           ->FindFieldByNumber(SpecOf(promise).kind_case())
                           ->json_name());
  }
  promised.erase(std::unique(promised.begin(), promised.end()), promised.end());
  EXPECT_THAT(made, ::testing::UnorderedElementsAreArray(asked));
  EXPECT_THAT(promised, ::testing::UnorderedElementsAreArray(asked));
}

}  // namespace
}  // namespace starling::optimizer
