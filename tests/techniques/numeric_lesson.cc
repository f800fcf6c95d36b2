// SPDX-License-Identifier: Apache-2.0
#include "tests/techniques/numeric_lesson.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/check.h"
#include "trainer/data/batches.h"
#include "trainer/kernels/span_math.h"
#include "trainer/worker/training_state.h"

namespace starling::techniques {
namespace {

using Floats = std::vector<float>;

Floats FirstWeights(const Problem& problem, std::uint64_t seed) {
  Floats first = problem.First(seed);
  if (!first.empty()) return first;
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-0.1F, 0.1F);
  first.resize(problem.parameters());
  for (float& value : first) value = uniform(random);
  return first;
}

workload::Declaration DeclareProblem(const Problem& problem) {
  workload::Declaration declaration;
  declaration.metrics = {"loss"};
  std::int64_t offset = 0;
  for (const std::vector<std::int64_t>& shape : problem.shapes()) {
    std::int64_t size = 1;
    for (const std::int64_t extent : shape) size *= extent;
    declaration.tensors.push_back(
        {absl::StrCat("tensor", declaration.tensors.size()), shape, offset, size});
    offset += size;
  }
  STARLING_CHECK(offset == static_cast<std::int64_t>(problem.parameters()),
                 "tensors cover the parameters");
  return declaration;
}

// What the training state of jobs is about: parameters and gradients.
class Held final : public workload::Workload {
 public:
  Held(const Problem& problem, std::uint64_t seed)
      : Workload(DeclareProblem(problem)),
        parameters_(FirstWeights(problem, seed)),
        gradients_(parameters_.size()) {}
  std::span<float> parameters() override { return parameters_; }
  std::span<float> gradients() override { return gradients_; }
  absl::StatusOr<workload::Sums> Compute(std::span<const std::int64_t> /*samples*/,
                                         const workload::Client& /*client*/) override {
    return workload::Sums();
  }
  absl::StatusOr<workload::Sums> Evaluate(std::int64_t /*begin*/, std::int64_t /*end*/) override {
    return workload::Sums();
  }

 private:
  Floats parameters_, gradients_;
};

struct Member {
  Member(const Problem& problem, std::uint64_t seed, const NumericWay& way)
      : held(problem, seed),
        rule(*optimizer::MakeOptimizer(way.optimizer)),
        state(held, *rule, /*keep_best=*/false, {}, {.spec = way.numerics, .seed = seed}) {}
  Held held;
  std::unique_ptr<optimizer::Optimizer> rule;
  worker::TrainingState state;
};

class Course {
 public:
  Course(const Lesson& lesson, std::uint64_t seed, const NumericWay& way)
      : problem_(*lesson.problem),
        way_(way),
        rate_(way.rate == 0 ? lesson.rate : way.rate),
        round_(numerics::ComputeRounding(way.numerics)),
        batches_(problem_.samples(), way.batch / kNumericWorkers, seed) {
    for (int rank = 0; rank < kNumericWorkers; ++rank) {
      members_.push_back(std::make_unique<Member>(problem_, seed, way));
    }
  }

  void Step(std::int64_t step) {
    Floats sum(problem_.parameters());
    std::vector<bool> finite;
    for (int rank = 0; rank < kNumericWorkers; ++rank) {
      Floats own = GradientOf(rank, step);
      finite.push_back(kernels::AllFinite(own));
      kernels::Add(own, sum);
    }
    const bool sum_is_finite = kernels::AllFinite(sum);
    for (int rank = 0; rank < kNumericWorkers; ++rank) {
      worker::TrainingState& state = members_[static_cast<std::size_t>(rank)]->state;
      Floats gradient = sum;
      if (way_.judged_alone ? !finite[static_cast<std::size_t>(rank)] : !sum_is_finite) {
        if (state.numerics().CanSkip()) state.Skip({});  // else it has diverged, and stays so
      } else {
        state.Apply(rate_, kNumericWorkers, {}, gradient);
      }
    }
  }

  NumericLearned Judged() {
    NumericLearned learned;
    const std::span<const float> first = members_[0]->held.parameters();
    learned.weights.assign(first.begin(), first.end());
    learned.accuracy = 100 * problem_.Accuracy(first);
    learned.loss = problem_.Loss(first);
    const numerics::Numerics& numbers = members_[0]->state.numerics();
    for (const auto& [name, value] : numbers.Told()) learned.told[name] = value;
    learned.skipped = static_cast<double>(numbers.skipped());
    for (std::size_t i = 0; i < first.size(); ++i) {
      const auto other = [&](const auto& member) {
        return !std::isfinite(member->held.parameters()[i]) ||
               member->held.parameters()[i] != first[i];
      };
      if (std::ranges::any_of(members_, other)) ++learned.different;
    }
    return learned;
  }

 private:
  // The mean over the worker's samples of this step.
  Floats GradientOf(int rank, std::int64_t step) {
    Member& member = *members_[static_cast<std::size_t>(rank)];
    Floats gradient(problem_.parameters());
    const auto ids = batches_.SampleIds((step - 1) * kNumericWorkers + rank + 1);
    if (round_) {
      problem_.NarrowGradient(member.held.parameters(), ids,
                              {round_, member.state.numerics().loss_scale()}, gradient);
    } else {
      problem_.Gradient(member.held.parameters(), ids, gradient);
    }
    if (rank == 1 && step == way_.infinite_at) {
      gradient[0] = std::numeric_limits<float>::infinity();
    }
    return gradient;
  }

  const Problem& problem_;
  const NumericWay way_;
  const double rate_;
  const numerics::Round round_;
  const data::Batches batches_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace

Lesson NumericLesson(const Setting& setting) {
  Lesson lesson = LessonOf(setting);
  if (lesson.name == kDigits) lesson.problem = Digits(64);
  return lesson;
}

NumericLearned LearnIn(const Lesson& lesson, std::uint64_t seed, const NumericWay& way,
                       std::int64_t samples) {
  Course course(lesson, seed, way);
  const std::int64_t steps = (samples == 0 ? lesson.samples : samples) / way.batch;
  for (std::int64_t step = 1; step <= steps; ++step) course.Step(step);
  return course.Judged();
}

}  // namespace starling::techniques
