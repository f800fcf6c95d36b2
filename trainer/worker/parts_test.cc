// SPDX-License-Identifier: Apache-2.0
// The worker's parts, each by itself.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <numeric>
#include <thread>

#include "common/clock/clock.h"
#include "common/rpc/credentials.h"
#include "common/rpc/test_identities.h"
#include "starling/v1alpha1/membership.grpc.pb.h"
#include "trainer/transport/inproc_transport.h"
#include "trainer/worker/control_service.h"
#include "trainer/worker/course.h"
#include "trainer/worker/options.h"
#include "trainer/worker/state_copy.h"
#include "trainer/worker/step_files.h"
#include "trainer/worker/stopwatch.h"
#include "trainer/worker/tiny_engine.h"
#include "trainer/worker/training_board.h"
#include "trainer/worker/training_state.h"
#include "trainer/worker/validation.h"

namespace starling::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Course: 10 samples, batches of 4: 3 steps an epoch.

const data::Batches kBatches(10, 4, 1);

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
  for (int64_t step = 0; step <= 14; ++step) {
    if (ValidationDue(step, 14, validation, kBatches)) due.push_back(step);
  }
  EXPECT_THAT(due, ElementsAre(6, 12, 14));
}

TEST(Course, RemembersTheBestValidationAndCountsThoseWithoutGain) {
  Course course;
  course.step = 3;
  Validated validated = AfterValidation(course, {.loss = 1.0, .accuracy = 0.5});
  EXPECT_TRUE(validated.best);
  validated.course.step = 6;
  validated = AfterValidation(validated.course, {.loss = 1.0, .accuracy = 0.9});
  EXPECT_FALSE(validated.best);
  EXPECT_EQ(validated.course.best_step, 3);
  EXPECT_EQ(validated.course.without_gain, 1);

  v1alpha1::Validation validation;
  EXPECT_FALSE(EndsTraining(validated.course, {}, validation));
  validation.set_patience(1);
  EXPECT_TRUE(EndsTraining(validated.course, {}, validation));
}

TEST(Course, ATargetIsMetFromEitherSide) {
  Course course;
  course.validated_step = 3;
  course.validation_accuracy = 0.9;
  course.validation_loss = 0.3;
  v1alpha1::Stop stop;
  EXPECT_FALSE(TargetReached(course, stop));
  stop.mutable_target()->set_metric("validation/accuracy");
  stop.mutable_target()->set_at_least(0.9);
  EXPECT_TRUE(TargetReached(course, stop));
  stop.mutable_target()->set_at_least(0.91);
  EXPECT_FALSE(TargetReached(course, stop));
  stop.mutable_target()->set_metric("validation/loss");
  stop.mutable_target()->set_at_most(0.3);
  EXPECT_TRUE(TargetReached(course, stop));
}

// State.

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
  TinyEngine engine(1, 2, 1);
  const auto rule = Momentum();
  TrainingState state(engine, *rule, /*keep_best=*/false);
  const float before = engine.parameters()[0];
  std::vector<float> gradient(engine.parameters().size(), 8.0F);

  state.Apply(0.5, 4, 1.25, gradient);

  EXPECT_FLOAT_EQ(engine.parameters()[0], before - 0.5F * 2.0F);
  EXPECT_EQ(state.course().step, 1);
  EXPECT_EQ(state.course().loss, 1.25);
}

TEST(TrainingState, KeepsTheBestParametersApart) {
  TinyEngine engine(1, 2, 1);
  const auto rule = Momentum();
  TrainingState state(engine, *rule, /*keep_best=*/true);
  std::vector<float> gradient(engine.parameters().size(), 1.0F);
  state.Apply(0.5, 1, 1, gradient);
  const std::vector<float> best(state.parameters().begin(), state.parameters().end());
  state.TakeValidation(AfterValidation(state.course(), {.loss = 1, .accuracy = 1}));
  std::ranges::fill(gradient, 1.0F);
  state.Apply(0.5, 1, 1, gradient);
  state.TakeValidation(AfterValidation(state.course(), {.loss = 2, .accuracy = 1}));

  EXPECT_TRUE(std::ranges::equal(state.best_parameters(), best));
  EXPECT_FALSE(std::ranges::equal(state.parameters(), best));
}

TEST(TrainingState, ACheckpointGivesEveryByteBack) {
  TinyEngine engine(3, 4, 1);
  const auto rule = Momentum();
  TrainingState state(engine, *rule, /*keep_best=*/true);
  std::vector<float> gradient(engine.parameters().size(), 0.3F);
  state.Apply(0.1, 3, 0.1, gradient);
  state.TakeValidation(AfterValidation(state.course(), {.loss = 1.0 / 3, .accuracy = 2.0 / 3}));
  const std::vector<std::byte> bytes = BytesOf(state.Segments());
  const checkpoint::LoadedCheckpoint loaded(state.CheckpointView({1, 2, 3}), {});

  absl::StatusOr<Staging> staging = state.Read(loaded);

  ASSERT_TRUE(staging.ok()) << staging.status();
  EXPECT_EQ(BytesOf(staging->Segments()), bytes);
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
  TinyEngine engine(2, 3, 5);
  data::Dataset dataset;
  dataset.shape = {2};
  dataset.classes = 3;
  for (int i = 0; i < 40; ++i) {
    dataset.features.push_back(0.1F * static_cast<float>(i));
    dataset.features.push_back(1.0F / static_cast<float>(i + 1));
    dataset.labels.push_back(i % 3);
  }
  const auto score = [&](int64_t shares) {
    std::vector<double> columns(kValidationColumns);
    for (int64_t i = 0; i < shares; ++i) {
      std::vector<double> mine(kValidationColumns);
      EXPECT_TRUE(ValidateShare(engine, dataset, i, shares, mine).ok());
      for (size_t c = 0; c < columns.size(); ++c) columns[c] += mine[c];
    }
    return ScoreOf(columns, dataset.size());
  };

  for (int64_t shares : {2, 3, 7, 20}) {
    EXPECT_EQ(score(shares).loss, score(1).loss) << shares;
    EXPECT_EQ(score(shares).accuracy, score(1).accuracy) << shares;
  }
  EXPECT_NEAR(score(1).accuracy, 13.5 / 40, 0.4);
}

// Time and speed.

TEST(Stopwatch, EverySecondBelongsToOneActivity) {
  clock::FakeClock clock;
  Stopwatch stopwatch(clock);
  clock.Advance(absl::Seconds(1));
  stopwatch.Enter(Activity::kCompute);
  clock.Advance(absl::Seconds(2));
  stopwatch.Enter(Activity::kExchange);
  clock.Advance(absl::Seconds(4));

  const std::map<std::string, double> seconds = stopwatch.Seconds();
  EXPECT_DOUBLE_EQ(seconds.at("idle"), 1);
  EXPECT_DOUBLE_EQ(seconds.at("compute"), 2);
  EXPECT_DOUBLE_EQ(seconds.at("exchange"), 4);
}

TEST(TrainingBoard, WorksOutSpeedAndTheTimeThatIsLeft) {
  clock::FakeClock clock;
  const Stopwatch stopwatch(clock);
  TrainingBoard board(clock, stopwatch);
  board.StartPace(100);
  clock.Advance(absl::Seconds(2));
  v1alpha1::Progress progress;
  progress.set_step(30);
  progress.set_samples(300);
  progress.set_total_steps(50);

  board.SetProgress(progress);

  const v1alpha1::TrainingReport report = board.report();
  EXPECT_DOUBLE_EQ(report.progress().samples_per_second(), 100);
  EXPECT_EQ(report.progress().estimated_remaining().seconds(), 2);
}

TEST(TrainingBoard, NoTimeIsLeftWhereTheEndWasMovedToBeforeTheStep) {
  clock::FakeClock clock;
  const Stopwatch stopwatch(clock);
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
  const Stopwatch stopwatch(clock);
  TrainingBoard board(clock, stopwatch);
  board.SetFailure("first");
  board.SetFailure("second");

  EXPECT_EQ(board.Read().failure, "first");
}

// Control. ThreadSanitizer cannot see how Debian's gRPC synchronises its threads and would report
// races that are none; the rest of the worker runs under it.
#if defined(STARLING_THREAD_SANITIZER)
#define SKIP_UNDER_THREAD_SANITIZER() GTEST_SKIP() << "gRPC is not instrumented"
#else
#define SKIP_UNDER_THREAD_SANITIZER() static_cast<void>(0)
#endif

class Control {
 public:
  explicit Control(uint64_t highest_incarnation = 0) {
    service_ = *ControlService::Start(
        {.address = "127.0.0.1:0", .identity = rpc::TestIdentity("worker", "u1"), .job_uid = "u1"},
        {.on_directive =
             [this](const membership::Directive& directive) {
               sync::MutexLock lock(mutex_);
               turn_ = directive.checkpoint_turn;
             },
         .make_report =
             [this, highest_incarnation] {
               sync::MutexLock lock(mutex_);
               membership::Report report;
               report.highest_incarnation = highest_incarnation;
               report.checkpoint_turn = turn_;
               return report;
             }});
  }
  ControlService& service() { return *service_; }

  std::unique_ptr<grpc::ClientReaderWriter<v1alpha1::Directive, v1alpha1::Report>> Dial(
      grpc::ClientContext& context,
      const tls::Identity& identity = rpc::TestIdentity("coordinator", "u1")) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    rpc::ExpectPeer(arguments, tls::PeerName("worker", "u1"));
    stub_ = v1alpha1::MemberControl::NewStub(
        grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", service_->port()),
                                  rpc::ChannelCredentials(identity), arguments));
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    return stub_->Attend(&context);
  }

 private:
  sync::Mutex mutex_;
  int64_t turn_ = 0;
  std::unique_ptr<ControlService> service_;
  std::unique_ptr<v1alpha1::MemberControl::Stub> stub_;
};

// How a call ends that shows this leaf and reads a report.
grpc::Status EndOfCall(const tls::Identity& identity) {
  Control control;
  control.service().Ready();
  grpc::ClientContext context;
  const auto call = control.Dial(context, identity);
  v1alpha1::Report report;
  EXPECT_FALSE(call->Read(&report));
  return call->Finish();
}

TEST(ControlService, RefusesOtherRolesOfTheJobByName) {
  SKIP_UNDER_THREAD_SANITIZER();
  for (const char* role : {"worker", "controller"}) {
    const grpc::Status status = EndOfCall(rpc::TestIdentity(role, "u1"));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << status.error_message();
    EXPECT_EQ(status.error_message(),
              absl::StrCat("only coordinator.u1.starling may call, not ", role, ".u1.starling"));
  }
}

TEST(ControlService, RefusesTheCoordinatorOfAnotherJobInTheHandshake) {
  SKIP_UNDER_THREAD_SANITIZER();
  tls::Identity other = rpc::TestIdentity("coordinator", "u2");
  other.authority = rpc::TestAuthority("u1").certificate();
  EXPECT_EQ(EndOfCall(other).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(ControlService, ReportsOnceReadyAndAtOnceOnChange) {
  SKIP_UNDER_THREAD_SANITIZER();
  Control control;
  grpc::ClientContext context;
  const auto call = control.Dial(context);
  v1alpha1::Directive directive;
  directive.set_incarnation(1);
  directive.set_checkpoint_turn(5);
  ASSERT_TRUE(call->Write(directive));
  control.service().Ready();

  v1alpha1::Report report;
  do {
    ASSERT_TRUE(call->Read(&report));
  } while (report.checkpoint_turn() != 5);
  EXPECT_TRUE(control.service().Flush(absl::Seconds(10)));
  call->WritesDone();
}

TEST(ControlService, HangsUpOnACoordinatorThatWasSuperseded) {
  SKIP_UNDER_THREAD_SANITIZER();
  Control control(/*highest_incarnation=*/3);
  control.service().Ready();
  grpc::ClientContext context;
  const auto call = control.Dial(context);
  v1alpha1::Directive directive;
  directive.set_incarnation(2);
  ASSERT_TRUE(call->Write(directive));

  v1alpha1::Report report;
  uint64_t seen = 0;
  while (call->Read(&report)) seen = report.highest_incarnation();
  EXPECT_EQ(seen, 3u);
  EXPECT_TRUE(call->Finish().ok());
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

// Command line.

TEST(Options, TakesBothFormsAndNamesWhatIsMissing) {
  const auto options = ParseOptions({"--spec", "s", "--secret=k", "--address", "127.0.0.1",
                                     "--pod-name", "p", "--pod-uid", "u", "--job-uid", "j",
                                     "--job-name", "n", "--job-dir", "d", "--tls", "t"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->secret_path, "k");
  EXPECT_EQ(options->job_dir, "d");

  EXPECT_THAT(ParseOptions({"--spec", "s"}).status().message(), HasSubstr("--secret is required"));
  EXPECT_THAT(ParseOptions({"--specs", "s"}).status().message(), HasSubstr("unknown flag --specs"));
  EXPECT_THAT(ParseOptions({"--spec"}).status().message(), HasSubstr("needs a value"));
}

TEST(Options, ReadsHowTheProcessBeforeEnded) {
  const std::string path = absl::StrCat(::testing::TempDir(), "last_exit_", getpid(), ".json");
  std::ofstream(path) << R"({"exitCode": 1, "signal": 9, "logTail": "oops", "unixNanos": 7})";

  const auto exit = ReadLastExit(path);

  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->signal, 9);
  EXPECT_EQ(exit->log_tail, "oops");
  EXPECT_FALSE(ReadLastExit(path + ".absent").has_value());
  std::remove(path.c_str());
}

}  // namespace
}  // namespace starling::worker
