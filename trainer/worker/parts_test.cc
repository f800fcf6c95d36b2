// SPDX-License-Identifier: Apache-2.0
// The worker's parts, each by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "common/clock/clock.h"
#include "trainer/testing/tiny_engine.h"
#include "trainer/transport/inproc_transport.h"
#include "trainer/worker/course.h"
#include "trainer/worker/state_copy.h"
#include "trainer/worker/step_files.h"
#include "trainer/worker/training_board.h"
#include "trainer/worker/training_state.h"
#include "trainer/worker/validation.h"
#include "trainer/workload/classification.h"

namespace starling::worker {
namespace {

using ::testing::ElementsAre;

// Course: 10 samples, batches of 4: 3 steps an epoch.

const data::Batches kBatches(10, 4, 1);

const std::vector<std::string> kNames = {"loss", "accuracy"};

TEST(Course, TrainingEndsAfterStepsOrEpochsWhicheverComesFirst) {
  v1alpha1::Stop stop;
  stop.set_epochs(2);
  EXPECT_EQ(TotalSteps(stop, kBatches), 6);
  stop.set_steps(5);
  EXPECT_EQ(TotalSteps(stop, kBatches), 5);
  stop.set_steps(7);
  EXPECT_EQ(TotalSteps(stop, kBatches), 6);
}

TEST(Course, ValidatesAtTheEndOfEveryFewEpochsAndAtTheEnd) {
  v1alpha1::Validation validation;
  validation.set_every_epochs(2);
  std::vector<int64_t> due;
  Course course;
  for (; course.step <= 14; ++course.step) {
    if (!ValidationDue(course, 14, validation, kBatches)) continue;
    due.push_back(course.step);
    course.validated_step = course.step;
  }
  EXPECT_THAT(due, ElementsAre(6, 12, 14));
}

TEST(Course, WhatCouldNotBeValidatedIsDueUntilItWas) {
  Course course;
  std::vector<int64_t> due;
  for (course.step = 1; course.step <= 9; ++course.step) {
    if (!ValidationDue(course, 14, {}, kBatches)) continue;
    due.push_back(course.step);
    if (course.step == 5) course.validated_step = 5;
  }
  EXPECT_THAT(due, ElementsAre(3, 4, 5, 6, 7, 8, 9));
}

TEST(Course, RemembersTheBestValidationAndCountsThoseWithoutGain) {
  Course course;
  course.step = 3;
  Validated validated = AfterValidation(course, {1.0, 0.5}, {}, {});
  EXPECT_TRUE(validated.best);
  validated.course.step = 6;
  validated = AfterValidation(validated.course, {1.0, 0.9}, {}, {});
  EXPECT_FALSE(validated.best);
  EXPECT_EQ(validated.course.best_step, 3);
  EXPECT_EQ(validated.course.without_gain, 1);

  v1alpha1::Validation validation;
  EXPECT_FALSE(EndsTraining(validated.course, {}, validation, kNames));
  validation.set_patience(1);
  EXPECT_TRUE(EndsTraining(validated.course, {}, validation, kNames));
}

TEST(Course, WhatReachesTheTargetIsKeptThoughAnEarlierLossWasLower) {
  v1alpha1::Stop stop;
  stop.mutable_target()->set_metric("validation/accuracy");
  stop.mutable_target()->set_at_least(0.95);
  Course course;
  course.step = 3;
  course = AfterValidation(course, {0.161, 0.949}, stop, kNames).course;
  course.step = 6;
  const Validated reached = AfterValidation(course, {0.162, 0.955}, stop, kNames);
  EXPECT_TRUE(reached.best);
  EXPECT_EQ(reached.course.best_step, 6);
  EXPECT_EQ(Metrics(reached.course, kNames, true).at("validation/accuracy"), 0.955);
  EXPECT_FALSE(AfterValidation(course, {0.162, 0.955}, {}, kNames).best) << "nothing was asked for";
}

TEST(Course, ATargetIsMetFromEitherSide) {
  Course course;
  course.validated_step = 3;
  course.validation = {0.3, 0.9};
  v1alpha1::Stop stop;
  EXPECT_FALSE(TargetReached(course, stop, kNames));
  stop.mutable_target()->set_metric("validation/accuracy");
  stop.mutable_target()->set_at_least(0.9);
  EXPECT_TRUE(TargetReached(course, stop, kNames));
  stop.mutable_target()->set_at_least(0.91);
  EXPECT_FALSE(TargetReached(course, stop, kNames));
  stop.mutable_target()->set_metric("validation/loss");
  stop.mutable_target()->set_at_most(0.3);
  EXPECT_TRUE(TargetReached(course, stop, kNames));
  stop.mutable_target()->set_metric("validation/unheard");
  EXPECT_FALSE(TargetReached(course, stop, kNames)) << "what is not reported is not reached";
}

TEST(Course, MetricsHaveTheNamesThatTheWorkloadDeclares) {
  Course course;
  course.step = 3;
  course.training = {0.5, 2.0};
  const std::vector<std::string> names = {"loss", "meanAbsoluteError"};
  EXPECT_THAT(Metrics(course, names, false),
              ElementsAre(std::pair("loss", 0.5), std::pair("meanAbsoluteError", 2.0)));
  course = AfterValidation(course, {0.25, 1.5}, {}, {}).course;
  course.step = 6;
  course = AfterValidation(course, {0.75, 1.0}, {}, {}).course;
  EXPECT_EQ(Metrics(course, names, false).at("validation/meanAbsoluteError"), 1.0);
  EXPECT_EQ(Metrics(course, names, true).at("validation/meanAbsoluteError"), 1.5);
}

TEST(Course, ATargetMustNameAMetricOfTheWorkload) {
  v1alpha1::Stop stop;
  EXPECT_TRUE(CheckTarget(stop, kNames).ok());
  stop.mutable_target()->set_metric("validation/accuracy");
  EXPECT_TRUE(CheckTarget(stop, kNames).ok());
  for (const char* wrong : {"validation/perplexity", "accuracy", "validation/", ""}) {
    stop.mutable_target()->set_metric(wrong);
    const absl::Status status = CheckTarget(stop, kNames);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr("validation/loss, validation/accuracy"));
  }
}

// State.

std::unique_ptr<workload::Workload> Tiny(std::int64_t inputs, std::int64_t classes,
                                         uint64_t seed = 1) {
  data::Datasets datasets;
  datasets.train.shape = {inputs};
  datasets.train.classes = classes;
  return std::make_unique<workload::Classification>(
      datasets, std::make_unique<TinyEngine>(inputs, classes, seed), "");
}

std::unique_ptr<optimizer::Optimizer> Momentum() {
  v1alpha1::Optimizer spec;
  spec.mutable_sgd()->set_learning_rate(0.1);
  spec.mutable_sgd()->set_momentum(0.9);
  return *optimizer::MakeOptimizer(spec);
}

std::vector<std::byte> BytesOf(std::span<const std::span<std::byte>> segments) {
  std::vector<std::byte> all;
  for (std::span<std::byte> segment : segments) {
    all.insert(all.end(), segment.begin(), segment.end());
  }
  return all;
}

TEST(TrainingState, ApplyDividesTheSummedGradientByTheBatch) {
  const auto workload = Tiny(1, 2);
  const auto rule = Momentum();
  TrainingState state(*workload, *rule, /*keep_best=*/false);
  const float before = workload->parameters()[0];
  std::vector<float> gradient(workload->parameters().size(), 8.0F);

  state.Apply(0.5, 4, {1.25, 0.75}, gradient);

  EXPECT_FLOAT_EQ(workload->parameters()[0], before - 0.5F * 2.0F);
  EXPECT_EQ(state.course().step, 1);
  EXPECT_EQ(state.course().training, (Values{1.25, 0.75}));
}

// Large tensors are updated piece by piece, but not where the rule looks at the whole of one.
TEST(TrainingState, ALargeTensorIsMovedByTheSameBitsAsInOnePiece) {
  constexpr std::int64_t kInputs = 25'000;
  constexpr std::int64_t kBatch = 4;
  v1alpha1::Optimizer lars;
  lars.mutable_lars()->set_learning_rate(0.1);
  v1alpha1::Optimizer adam;
  adam.mutable_adam()->set_learning_rate(0.1);
  for (const v1alpha1::Optimizer& spec : {adam, lars}) {
    const auto rule = *optimizer::MakeOptimizer(spec);
    const auto workload = Tiny(kInputs, 2);
    TrainingState state(*workload, *rule, /*keep_best=*/false);
    std::vector<float> expected(workload->parameters().begin(), workload->parameters().end());
    std::vector<float> gradient(expected.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] = std::sin(static_cast<float>(i)) * (i < gradient.size() / 2 ? 1.0F : 100.0F);
    }
    std::vector<float> mean = gradient;
    for (float& element : mean) element *= 1.0F / kBatch;
    for (const engine::Tensor& tensor : workload->declaration().tensors) {
      const auto first = static_cast<std::size_t>(tensor.offset);
      const auto size = static_cast<std::size_t>(tensor.size);
      auto vectors = optimizer::NewState(*rule, size);
      optimizer::Apply(
          *rule, {.learning_rate = 0.1, .number = 1, .whole_matrix = tensor.shape.size() > 1},
          std::span(expected).subspan(first, size), std::span(mean).subspan(first, size), vectors);
    }

    state.Apply(0.1, kBatch, {1, 1}, gradient);

    EXPECT_TRUE(std::ranges::equal(workload->parameters(), expected)) << spec.ShortDebugString();
  }
}

TEST(TrainingState, KeepsTheBestParametersApart) {
  const auto workload = Tiny(1, 2);
  const auto rule = Momentum();
  TrainingState state(*workload, *rule, /*keep_best=*/true);
  std::vector<float> gradient(workload->parameters().size(), 1.0F);
  state.Apply(0.5, 1, {1}, gradient);
  const std::vector<float> best(state.parameters().begin(), state.parameters().end());
  state.TakeValidation(AfterValidation(state.course(), {1, 1}, {}, {}));
  std::ranges::fill(gradient, 1.0F);
  state.Apply(0.5, 1, {1}, gradient);
  state.TakeValidation(AfterValidation(state.course(), {2, 1}, {}, {}));

  EXPECT_TRUE(std::ranges::equal(state.best_parameters(), best));
  EXPECT_FALSE(std::ranges::equal(state.parameters(), best));
}

TEST(TrainingState, ACheckpointGivesEveryByteBack) {
  const auto workload = Tiny(3, 4);
  const auto rule = Momentum();
  TrainingState state(*workload, *rule, /*keep_best=*/true);
  std::vector<float> gradient(workload->parameters().size(), 0.3F);
  state.Apply(0.1, 3, {0.1, 0.7}, gradient);
  state.TakeValidation(AfterValidation(state.course(), {1.0 / 3, 2.0 / 3}, {}, {}));
  const std::vector<std::byte> bytes = BytesOf(state.parts().Replicated());
  const checkpoint::LoadedCheckpoint loaded(
      {.id = {1, 2, 3}, .tensors = state.parts().Views(), .attributes = {}}, {});

  const auto staging = state.parts().Read(loaded, /*own=*/true);

  ASSERT_TRUE(staging.ok()) << staging.status();
  EXPECT_EQ(BytesOf(staging->Replicated()), bytes);
  EXPECT_EQ(state.course().best, (Values{1.0 / 3, 2.0 / 3}));
}

// A weight of two numbers, and a running mean.
class Averaging final : public workload::Workload {
 public:
  Averaging() : Workload(Declare()) {}
  std::span<float> parameters() override { return parameters_; }
  std::span<float> gradients() override { return {}; }
  absl::StatusOr<workload::Sums> Compute(std::span<const std::int64_t>,
                                         const workload::Client&) override {
    return workload::Sums{};
  }
  absl::StatusOr<workload::Sums> Evaluate(std::int64_t, std::int64_t) override {
    return workload::Sums{};
  }

 private:
  static workload::Declaration Declare() {
    workload::Declaration declaration;
    declaration.metrics = {"loss"};
    declaration.tensors = {{"weight", {2}, 0, 2}, {"running_mean", {1}, 2, 1, 0.25F}};
    return declaration;
  }

  std::vector<float> parameters_ = {1, 1, 8};
};

TEST(TrainingState, ARunningMeanFollowsTheMeanOverTheBatchAndNoOptimizerMovesIt) {
  Averaging workload;
  const auto rule = Momentum();
  TrainingState state(workload, *rule, /*keep_best=*/false);
  std::vector<float> gradient = {4, 4, 4 * 16};

  state.Apply(0.5, 4, {1}, gradient);

  EXPECT_EQ(workload.parameters()[0], 0.5F);
  EXPECT_EQ(workload.parameters()[2], 8 + 0.25F * (16 - 8));
  std::set<std::string> parts;
  for (const checkpoint::StatePart& part : state.parts().parts()) parts.insert(part.name);
  EXPECT_TRUE(parts.contains("model/running_mean")) << "copied and checkpointed";
  EXPECT_FALSE(parts.contains("optimizer/momentum/running_mean"));
}

TEST(TrainingState, ALongGradientIsClippedByItsNormOverAllTensorsAndAShortOneIsNot) {
  for (const double clip : {2.5, 10.0}) {
    Averaging workload;
    const auto rule = Momentum();
    TrainingState state(workload, *rule, /*keep_best=*/false);
    std::vector<float> gradient = {4 * 3, 4 * 4, 4 * 16};  // the mean has a norm of 5

    state.Apply(1, 4, {1}, gradient, clip);

    const float share = clip < 5 ? 0.5F : 1;
    EXPECT_NEAR(workload.parameters()[0], 1 - 3 * share, 1e-5);
    EXPECT_NEAR(workload.parameters()[1], 1 - 4 * share, 1e-5);
    EXPECT_EQ(workload.parameters()[2], 10) << "what is no gradient is not clipped";
  }
}

// Servers are read by each member for itself, at one version or the next.
TEST(TrainingState, WhatServersHoldIsNoPartOfItButOfTheBest) {
  const auto workload = Tiny(2, 3);
  const auto rule = Momentum();
  const engine::Tensor& served = workload->declaration().tensors.front();
  const auto begin = static_cast<std::uint64_t>(served.offset);
  const auto end = begin + static_cast<std::uint64_t>(served.size);
  TrainingState state(*workload, *rule, /*keep_best=*/true, {{begin, end}});
  const std::vector<float> before(state.parameters().begin(), state.parameters().end());
  std::vector<float> gradient(before.size(), 1.0F);

  state.Apply(0.5, 1, {1}, gradient);

  std::set<std::string> parts;
  for (const checkpoint::StatePart& part : state.parts().parts()) parts.insert(part.name);
  for (const engine::Tensor& tensor : workload->declaration().tensors) {
    const bool held = tensor.name != served.name;
    EXPECT_EQ(parts.contains("model/" + tensor.name), held) << tensor.name;
    EXPECT_EQ(parts.contains("optimizer/momentum/" + tensor.name), held) << tensor.name;
    EXPECT_TRUE(parts.contains("best/" + tensor.name)) << tensor.name;
    const auto at = static_cast<std::size_t>(tensor.offset);
    EXPECT_EQ(state.parameters()[at] == before[at], !held) << "servers apply what is theirs";
  }
  const std::vector<std::byte> bytes = BytesOf(state.parts().Replicated());
  workload->parameters()[begin] += 1;
  EXPECT_EQ(BytesOf(state.parts().Replicated()), bytes);
}

TEST(ShareOf, SharesCoverEveryByteOnceWhateverTheirNumber) {
  std::vector<std::byte> a(7);
  std::vector<std::byte> b(12);
  std::vector<std::byte> c(1);
  const std::vector<std::span<std::byte>> segments = {a, b, c};
  for (size_t shares : {1, 2, 3, 5, 21}) {
    for (auto segment : segments) std::ranges::fill(segment, std::byte{0});
    for (size_t i = 0; i < shares; ++i) {
      for (std::span<std::byte> piece : ShareOf(segments, i, shares)) {
        for (std::byte& byte : piece) byte = std::byte(std::to_integer<int>(byte) + 1);
      }
    }
    for (std::byte byte : BytesOf(segments)) EXPECT_EQ(byte, std::byte{1}) << shares;
  }
}

// Runs `body(mesh)` for each of `size` ranks on threads of their own.
void OnMesh(int size, const std::function<void(transport::Mesh&)>& body) {
  transport::InprocNetwork network;
  std::vector<std::unique_ptr<transport::Transport>> transports;
  std::vector<transport::Peer> peers;
  for (int i = 0; i < size; ++i) {
    transport::Options options;
    options.member = absl::StrCat("m", i);
    options.job = "job";
    options.secret = "secret";
    transports.push_back(*network.OpenTransport(options));
    peers.push_back({options.member, transports.back()->address()});
  }
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(size));
  for (int i = 0; i < size; ++i) {
    threads.emplace_back([&, i] {
      auto mesh = transports[static_cast<size_t>(i)]->Open(
          1, peers, i, net::Deadline::After(absl::Seconds(10)), nullptr);
      ASSERT_TRUE(mesh.ok()) << mesh.status();
      body(**mesh);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CopyState, IsFedByAllHolders) {
  OnMesh(3, [](transport::Mesh& mesh) {
    std::vector<std::byte> state(1000);
    const std::vector<std::span<std::byte>> segments = {std::span(state).first(300),
                                                        std::span(state).subspan(300)};
    const net::Deadline deadline = net::Deadline::After(absl::Seconds(10));
    if (mesh.rank() == 2) {
      const int holders[] = {0, 1};
      EXPECT_TRUE(CopyState(mesh, segments, holders, deadline).ok());
      EXPECT_EQ(std::ranges::count(state, std::byte{7}), 1000);
      EXPECT_GT(mesh.traffic(0).payload_received, 500u);
      EXPECT_LT(mesh.traffic(0).payload_received, 600u);
    } else {
      std::ranges::fill(state, std::byte{7});
      const int copiers[] = {2};
      EXPECT_TRUE(
          ServeState(mesh, segments, static_cast<size_t>(mesh.rank()), 2, copiers, deadline).ok());
    }
  });
}

// A made-up part beside those of a real state; what each member has for itself stays behind.
TEST(CopyState, CarriesWhateverPartIsRegistered) {
  OnMesh(2, [](transport::Mesh& mesh) {
    const auto workload = Tiny(1, 2, static_cast<uint64_t>(mesh.rank()));
    const auto rule = Momentum();
    TrainingState state(*workload, *rule, /*keep_best=*/false);
    std::vector<std::int32_t> made_up(5, mesh.rank() == 0 ? 42 : -1);
    std::vector<float> residual(3, 0.5F);
    state.parts().Add("made-up", {5}, std::span(made_up));
    state.parts().Add("residual", {3}, std::span(residual), checkpoint::Scope::kOwn);
    const net::Deadline deadline = net::Deadline::After(absl::Seconds(10));
    const int other[] = {1 - mesh.rank()};
    if (mesh.rank() == 0) {
      EXPECT_TRUE(ServeState(mesh, state.parts().Replicated(), 0, 1, other, deadline).ok());
      EXPECT_THAT(residual, ElementsAre(0.5F, 0.5F, 0.5F));
      return;
    }
    const checkpoint::StateParts staging = state.parts().NewStaging();
    ASSERT_TRUE(CopyState(mesh, staging.Replicated(), other, deadline).ok());
    state.parts().Adopt(staging);
    EXPECT_THAT(made_up, ElementsAre(42, 42, 42, 42, 42));
    EXPECT_THAT(residual, ElementsAre(0, 0, 0)) << "a joiner begins without an error";
    EXPECT_TRUE(std::ranges::equal(workload->parameters(), Tiny(1, 2, 0)->parameters()));
  });
}

TEST(CopyState, RefusesHoldersThatDiffer) {
  OnMesh(3, [](transport::Mesh& mesh) {
    std::vector<std::byte> state(1000, std::byte(mesh.rank()));
    const std::vector<std::span<std::byte>> segments = {state};
    const net::Deadline deadline = net::Deadline::After(absl::Seconds(10));
    if (mesh.rank() == 2) {
      const int holders[] = {0, 1};
      EXPECT_TRUE(absl::IsDataLoss(CopyState(mesh, segments, holders, deadline)));
    } else {
      const int copiers[] = {2};
      EXPECT_TRUE(
          ServeState(mesh, segments, static_cast<size_t>(mesh.rank()), 2, copiers, deadline).ok());
    }
  });
}

TEST(Validation, SumsDoNotDependOnHowManyShareTheWork) {
  data::Datasets datasets;
  data::Dataset& dataset = datasets.validation.emplace();
  dataset.shape = {2};
  dataset.classes = 3;
  for (int i = 0; i < 40; ++i) {
    dataset.features.push_back(0.1F * static_cast<float>(i));
    dataset.features.push_back(1.0F / static_cast<float>(i + 1));
    dataset.labels.push_back(i % 3);
  }
  workload::Classification workload(datasets, std::make_unique<TinyEngine>(2, 3, 5), "");
  const auto means = [&](int64_t shares) {
    std::vector<double> columns(ValidationColumns(2));
    for (int64_t i = 0; i < shares; ++i) {
      std::vector<double> mine(columns.size());
      EXPECT_TRUE(ValidateShare(workload, i, shares, mine).ok());
      for (size_t c = 0; c < columns.size(); ++c) columns[c] += mine[c];
    }
    return ValidationMeans(columns, workload.declaration());
  };

  for (int64_t shares : {2, 3, 7, 20}) EXPECT_EQ(means(shares), means(1)) << shares;
  EXPECT_NEAR(means(1)[1], 13.5 / 40, 0.4);
}

// Time and speed.

TEST(TrainingBoard, WorksOutSpeedAndTheTimeThatIsLeft) {
  clock::FakeClock clock;
  const observe::Stopwatch stopwatch(clock, clock.Now());
  TrainingBoard board(clock, stopwatch);
  board.StartPace(100);
  clock.Advance(absl::Seconds(2));
  v1alpha1::Progress progress;
  progress.set_step(30);
  progress.set_samples(300);
  progress.set_total_steps(53);

  board.SetProgress(progress);

  const v1alpha1::TrainingReport report = board.report();
  EXPECT_DOUBLE_EQ(report.progress().samples_per_second(), 100);
  EXPECT_EQ(report.progress().estimated_remaining().seconds(), 3) << "2.3 of them";
  EXPECT_EQ(report.progress().estimated_remaining().nanos(), 0);
}

TEST(TrainingBoard, NoTimeIsLeftWhereTheEndWasMovedToBeforeTheStep) {
  clock::FakeClock clock;
  const observe::Stopwatch stopwatch(clock, clock.Now());
  TrainingBoard board(clock, stopwatch);
  board.StartPace(0);
  clock.Advance(absl::Seconds(2));
  v1alpha1::Progress progress;
  progress.set_step(30);
  progress.set_samples(300);
  progress.set_total_steps(20);

  board.SetProgress(progress);

  EXPECT_EQ(board.report().progress().estimated_remaining().seconds(), 0);
  EXPECT_EQ(board.report().progress().estimated_remaining().nanos(), 0);
}

TEST(TrainingBoard, TheFirstFailureStays) {
  clock::FakeClock clock;
  const observe::Stopwatch stopwatch(clock, clock.Now());
  TrainingBoard board(clock, stopwatch);
  board.SetFailure("first");
  board.SetFailure("second");

  EXPECT_EQ(board.Read(0).failure, "first");
}

// Files.

TEST(StepFiles, HoldTheNewestSettledStepAndOneLineForEveryCompletedOne) {
  const std::string path = absl::StrCat(::testing::TempDir(), "step_files_", getpid());
  std::ofstream(path + ".progress") << "a longer text of an older process";
  {
    StepFiles files(path + ".progress", path + ".log");
    files.Settled(9);
    files.Settled(10);
    files.Completed(10);
    files.Completed(11);
  }
  std::ifstream progress(path + ".progress");
  std::string text;
  std::getline(progress, text);
  EXPECT_EQ(text, "10");
  std::ifstream log(path + ".log");
  std::vector<std::string> lines;
  for (std::string line; std::getline(log, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[1], ::testing::MatchesRegex("step 11 [0-9]+\\.[0-9]+ [0-9]+"));
  std::remove((path + ".progress").c_str());
  std::remove((path + ".log").c_str());
}

}  // namespace
}  // namespace starling::worker
