// SPDX-License-Identifier: Apache-2.0
// Programs with loops of their own, in threads, beside real workers (testing/worker_cluster.h).
#include "trainer/embed/handover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "trainer/testing/worker_cluster.h"

namespace starling::embed {
namespace {

using worker::Cluster;

constexpr std::int64_t kSamples = 50;
constexpr std::int64_t kBatch = 16;
constexpr std::int64_t kSteps = 40;

v1alpha1::TrainingJobSpec Job(std::int64_t steps, bool reproducible = false) {
  v1alpha1::TrainingJobSpec spec = worker::TinyJob(steps);
  spec.set_reproducible(reproducible);
  spec.mutable_dataset()->set_global_batch_size(kBatch);
  spec.mutable_dataset()->clear_validation();
  return spec;
}

// A model of two numbers: each step adds the mean of (1, id) over the batch, so that what a sample
// was used for shows in the sum.
struct Program {
  struct Given {
    std::int64_t step;
    membership::ViewNumber view;
    std::vector<std::int64_t> ids;
    std::optional<Fate> fate;
    bool interrupted = false;
    bool last = false;
  };

  std::array<double, 2> state = {};  // where the library reads and writes it
  // Where the program has it: the same place, or what `state` is a copy of.
  std::array<double, 2> own = {};
  bool copied = false;
  std::atomic<bool> answers_falsely = false;  // says that the copy is up to date, and it is not
  std::atomic<int> asked = 0;                 // how often it was to bring the copy up to date
  Handover* handover = nullptr;
  std::vector<Given> given;
  std::int64_t replaced = 0;
  bool over = false;
  absl::Status wrong;
  // In its own code, before it reduces this step.
  std::function<void(const Ticket&)> at = [](const Ticket&) {};
  // Between a step that counts and the look at its gradients.
  std::function<void()> before_taking = [] {};
  std::thread thread;

  std::array<double, 2>& Work() { return copied ? own : state; }
  const std::array<double, 2>& Work() const { return copied ? own : state; }
  void Refresh() {
    ++asked;
    if (!answers_falsely) state = own;
  }
  // A copy that is read without having been asked for shows.
  void TakeOver(const Ticket& ticket) {
    if (!copied) return;
    if (ticket.replaced) own = state;
    state = {std::nan(""), std::nan("")};
  }
  void Loop() {
    Ticket ticket;
    while (true) {
      const absl::StatusOr<Handover::Given> next = handover->Next(ticket);
      if (next.ok() && *next == Handover::Given::kStateWanted) {
        Refresh();
        continue;
      }
      if (!next.ok()) wrong = next.status();
      over = next.ok() && *next == Handover::Given::kOver;
      if (over) TakeOver(ticket);
      if (!next.ok() || *next != Handover::Given::kStep) break;
      TakeOver(ticket);
      replaced += ticket.replaced ? 1 : 0;
      given.push_back(
          {ticket.step, ticket.view, ticket.ids, std::nullopt, ticket.interrupted, ticket.last});
      at(ticket);
      if (!Step(ticket)) break;
    }
    while (!handover->MayFinish()) Refresh();
    handover->Finish();
  }
  bool Step(const Ticket& ticket) {
    std::array<float, 2> sum = {};
    for (const std::int64_t id : ticket.ids) {
      sum[0] += 1;
      sum[1] += static_cast<float>(id);
    }
    std::ranges::copy(sum, handover->gradients().begin());
    const auto weight = static_cast<double>(ticket.ids.size());
    for (const std::int64_t bucket : {1, 0}) (void)handover->Ready(bucket);
    (void)handover->Log(0, 2);
    const absl::StatusOr<Fate> fate = handover->Reduce(weight);
    if (!fate.ok()) {
      wrong = fate.status();
      return false;
    }
    given.back().fate = *fate;
    if (*fate != Fate::kCommitted) return true;
    before_taking();
    Work()[0] += handover->gradients()[0];
    Work()[1] += handover->gradients()[1];
    return true;
  }
};

class HandoverTest : public ::testing::Test {
 protected:
  HandoverTest() : folder_(absl::StrCat(::testing::TempDir(), "handover_test_", getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~HandoverTest() override {
    if (cluster_) End();
    cluster_.reset();
    std::filesystem::remove_all(folder_);
  }

  void Begin(const v1alpha1::TrainingJobSpec& spec) {
    cluster_.emplace(spec, folder_, [this, spec](const std::string&) {
      Program& program = *programs_.back();
      Description description;
      description.samples = kSamples;
      description.buckets = {1, 1};
      description.state.push_back(
          {.part = {.name = "sums",
                    .type = buffer::DType::kF64,
                    .shape = {2},
                    .data = std::as_writable_bytes(std::span(program.state))},
           .model = true,
           .copied = program.copied});
      auto handover = std::make_unique<Handover>(
          description, data::Batches(kSamples, kBatch, static_cast<std::uint64_t>(spec.seed())),
          spec.reproducible());
      program.handover = handover.get();
      return handover;
    });
  }
  // A worker with its program, which runs from here on.
  Program& Add(std::function<void(const Ticket&)> at = [](const Ticket&) {}) {
    programs_.push_back(std::make_unique<Program>());
    Program& program = *programs_.back();
    program.at = std::move(at);
    program.copied = copied_;
    cluster_->Add();
    program.thread = std::thread([&program] { program.Loop(); });
    return program;
  }
  // The only member has made a checkpoint, of step `saved`, and crashes; another one goes on from
  // it, and crashes in the fifth step behind it.
  void ResumeFrom(std::int64_t& saved) {
    Begin(Job(1'000'000));
    Add();
    cluster_->PublishNow({0});
    ASSERT_TRUE(cluster_->AwaitStep(0, 10));
    cluster_->AskForCheckpoint();
    ASSERT_TRUE(cluster_->Await([&] { return cluster_->TrainingOf(0).has_checkpoint(); }));
    saved = cluster_->TrainingOf(0).checkpoint().step();
    cluster_->Crash(0);
    Add([this, last = saved + 5](const Ticket& ticket) {
      if (ticket.step == last) cluster_->Crash(1);
    });
    cluster_->SetIncarnation(2);

    cluster_->PublishNow({1}, /*restore=*/true);

    ASSERT_TRUE(cluster_->AwaitEnd(1));
    End();
  }

  // Lets all programs end, after the worker of each has.
  void End() {
    for (std::size_t i = 0; i < programs_.size(); ++i) {
      if (!programs_[i]->thread.joinable()) continue;
      cluster_->Crash(static_cast<int>(i));
      ASSERT_TRUE(cluster_->AwaitEnd(static_cast<int>(i)));
      programs_[i]->handover->Ended();
      programs_[i]->thread.join();
    }
  }
  // The digest of the model, which is written when the first program has finished.
  std::string AwaitModel() {
    const auto written = [this] {
      for (std::size_t i = 0; i < programs_.size(); ++i) cluster_->Nudge(static_cast<int>(i));
      return cluster_->TrainingOf(0).has_result();
    };
    return cluster_->Await(written) ? cluster_->TrainingOf(0).result().model().sha256() : "";
  }

  // What the state is after all steps: by the law of Program.
  static std::array<double, 2> Expected(std::int64_t steps) {
    const data::Batches batches(kSamples, kBatch, 7);
    std::array<double, 2> state = {};
    for (std::int64_t step = 1; step <= steps; ++step) {
      double sum = 0;
      const std::vector<std::int64_t> ids = batches.SampleIds(step);
      for (const std::int64_t id : ids) sum += static_cast<double>(id);
      state[0] += 1;
      state[1] += sum / static_cast<double>(ids.size());
    }
    return state;
  }
  void ExpectTrained(const Program& program, std::int64_t steps) {
    EXPECT_TRUE(program.wrong.ok()) << program.wrong;
    const std::array<double, 2> expected = Expected(steps);
    EXPECT_NEAR(program.Work()[0], expected[0], 1e-5 * expected[0]);
    EXPECT_NEAR(program.Work()[1], expected[1], 1e-5 * expected[1]);
  }
  // In the view in which a step counts, what all members were given is its batch.
  void ExpectEachSampleOnce(std::int64_t steps) {
    const data::Batches batches(kSamples, kBatch, 7);
    std::map<std::int64_t, membership::ViewNumber> counted;
    for (const auto& program : programs_) {
      for (const Program::Given& given : program->given) {
        if (given.fate == Fate::kCommitted) counted[given.step] = given.view;
      }
    }
    ASSERT_EQ(counted.size(), static_cast<std::size_t>(steps));
    for (const auto& [step, view] : counted) {
      std::multiset<std::int64_t> used;
      for (const auto& program : programs_) {
        for (const Program::Given& given : program->given) {
          if (given.step == step && given.view == view) {
            used.insert(given.ids.begin(), given.ids.end());
          }
        }
      }
      const std::vector<std::int64_t> ids = batches.SampleIds(step);
      EXPECT_EQ(used, std::multiset<std::int64_t>(ids.begin(), ids.end())) << "step " << step;
    }
  }

  // The steps that a program was given as interrupted ones, and as the last one.
  static std::vector<std::int64_t> StepsThat(const Program& program, bool Program::Given::*are) {
    std::vector<std::int64_t> steps;
    for (const Program::Given& given : program.given) {
      if (given.*are) steps.push_back(given.step);
    }
    return steps;
  }

  const std::string folder_;
  bool copied_ = false;  // what the programs say of their state
  std::vector<std::unique_ptr<Program>> programs_;
  std::optional<Cluster> cluster_;
};

TEST_F(HandoverTest, AProgramAloneMakesEveryStepAndTheResultIsItsState) {
  Begin(Job(kSteps));
  Program& program = Add();

  cluster_->PublishNow({0});

  ASSERT_NE(AwaitModel(), "");
  End();
  EXPECT_TRUE(program.over);
  ExpectTrained(program, kSteps);
  ExpectEachSampleOnce(kSteps);
  EXPECT_EQ(cluster_->TrainingOf(0).result().steps(), kSteps);
  EXPECT_DOUBLE_EQ(cluster_->TrainingOf(0).progress().metrics().at("loss"), 2);
}

TEST_F(HandoverTest, MembersAgreeBitByBitWhateverTheyBeganWith) {
  Begin(Job(kSteps));
  for (int i = 0; i < 3; ++i) Add();
  programs_[1]->state = {5, 6};
  programs_[2]->state = {-1, 0.5};

  cluster_->PublishNow({0, 1, 2});

  ASSERT_NE(AwaitModel(), "");
  End();
  ExpectTrained(*programs_[0], kSteps);
  EXPECT_EQ(programs_[1]->state, programs_[0]->state);
  EXPECT_EQ(programs_[2]->state, programs_[0]->state);
  EXPECT_EQ(programs_[0]->replaced, 0);
  EXPECT_EQ(programs_[1]->replaced, 1);
  ExpectEachSampleOnce(kSteps);
}

TEST_F(HandoverTest, AStepWhosePeerDiesIsDroppedAndGivenAgainToThoseWhoAreLeft) {
  Begin(Job(kSteps));
  std::atomic<bool> dead = false;
  Add();
  Add();
  Add([this, &dead](const Ticket& ticket) {
    if (ticket.step == 10 && !dead.exchange(true)) cluster_->Crash(2);
  });
  cluster_->PublishNow({0, 1, 2});
  ASSERT_TRUE(cluster_->AwaitPhase(0, membership::Phase::kAborted));
  ASSERT_TRUE(cluster_->AwaitPhase(1, membership::Phase::kAborted));

  cluster_->PublishNow({0, 1});

  ASSERT_NE(AwaitModel(), "");
  End();
  ExpectTrained(*programs_[0], kSteps);
  EXPECT_EQ(programs_[1]->state, programs_[0]->state);
  ExpectEachSampleOnce(kSteps);
  const auto dropped = [](const Program& program) {
    return std::ranges::count_if(program.given,
                                 [](const auto& given) { return given.fate == Fate::kDropped; });
  };
  EXPECT_EQ(dropped(*programs_[0]), 1);
  EXPECT_EQ(dropped(*programs_[1]), 1);
}

TEST_F(HandoverTest, AllAreToldOfAStepThatWasPerhapsBegunInABrokenView) {
  Begin(Job(kSteps));
  std::atomic<bool> dead = false;
  Add();
  Add([this, &dead](const Ticket& ticket) {
    if (ticket.step == 10 && !dead.exchange(true)) cluster_->Crash(1);
  });
  cluster_->PublishNow({0, 1}, /*restore=*/true);
  ASSERT_TRUE(cluster_->AwaitPhase(0, membership::Phase::kAborted));
  Add();  // has never seen what was begun

  cluster_->PublishNow({0, 2});

  ASSERT_NE(AwaitModel(), "");
  End();
  for (const std::size_t member : {0, 2}) {
    EXPECT_THAT(StepsThat(*programs_[member], &Program::Given::interrupted),
                ::testing::ElementsAre(10));
    EXPECT_THAT(StepsThat(*programs_[member], &Program::Given::last),
                ::testing::ElementsAre(kSteps));
  }
}

TEST_F(HandoverTest, AJoinerHasTheOthersStateAtItsFirstStep) {
  Begin(Job(1000));
  Add();
  Add();
  cluster_->PublishNow({0, 1});
  ASSERT_TRUE(cluster_->AwaitStep(0, 10));
  Add();

  cluster_->PublishAtBoundary({0, 1, 2});

  ASSERT_NE(AwaitModel(), "");
  End();
  const Program& joiner = *programs_[2];
  EXPECT_EQ(joiner.replaced, 1);
  EXPECT_GT(joiner.given.front().step, 10);
  EXPECT_EQ(joiner.state, programs_[0]->state);
  EXPECT_EQ(programs_[0]->replaced, 0);
  // No step was begun in the view before.
  EXPECT_THAT(StepsThat(joiner, &Program::Given::interrupted), ::testing::IsEmpty());
  ExpectTrained(*programs_[0], 1000);
  ExpectEachSampleOnce(1000);
}

TEST_F(HandoverTest, AViewThatEndsDoesNotWaitForAProgramThatComputes) {
  Begin(Job(kSteps));
  std::atomic<bool> may_go_on = false;
  std::atomic<bool> computes = false;
  Add([&](const Ticket& ticket) {
    if (ticket.step != 5 || computes.exchange(true)) return;
    while (!may_go_on) std::this_thread::yield();
  });
  Add();
  cluster_->PublishNow({0, 1});
  ASSERT_TRUE(cluster_->Await([&] { return computes.load(); }));

  cluster_->Crash(1);
  cluster_->PublishNow({0});

  EXPECT_TRUE(
      cluster_->AwaitPhase(0, membership::Phase::kRun));  // while the program still computes
  may_go_on = true;
  ASSERT_NE(AwaitModel(), "");
  End();
  ExpectTrained(*programs_[0], kSteps);
  ExpectEachSampleOnce(kSteps);
}

TEST_F(HandoverTest, ACopyWaitsForAProgramThatIsInItsOwnCode) {
  Begin(Job(1000));
  std::atomic<bool> may_go_on = false;
  std::atomic<bool> computes = false;
  Add([&](const Ticket& ticket) {
    if (ticket.step != 5 || computes.exchange(true)) return;
    while (!may_go_on) std::this_thread::yield();
  });
  cluster_->PublishNow({0});
  ASSERT_TRUE(cluster_->Await([&] { return computes.load(); }));
  Add();
  cluster_->PublishNow({0, 1});
  ASSERT_TRUE(cluster_->AwaitPhase(1, membership::Phase::kCopy));
  EXPECT_TRUE(programs_[1]->given.empty());

  may_go_on = true;

  ASSERT_NE(AwaitModel(), "");
  End();
  EXPECT_EQ(programs_[1]->state, programs_[0]->state);
  ExpectTrained(*programs_[0], 1000);
}

// A joiner receives where its state belongs. The only holder computes, so nothing of the copy comes
// before it is lost; the joiner cannot know how much did. The joiner's state is a copy of what lies
// elsewhere: so the test knows, when the program is asked for it, that the worker is about to
// receive.
class HalfCopyTest : public HandoverTest {
 protected:
  ~HalfCopyTest() override { may_go_on_ = true; }

  void LoseTheHolder(bool with_checkpoint) {
    copied_ = true;
    Begin(Job(kSteps));
    Add([this, with_checkpoint](const Ticket& ticket) {
      if (ticket.step == 5 && with_checkpoint) cluster_->AskForCheckpoint();
      if (ticket.step < 20 || waits_.exchange(true)) return;
      while (!may_go_on_) std::this_thread::yield();
    });
    cluster_->PublishNow({0});
    ASSERT_TRUE(cluster_->Await([&] { return waits_.load(); }));
    if (with_checkpoint) {
      ASSERT_TRUE(cluster_->Await([&] { return cluster_->TrainingOf(0).has_checkpoint(); }));
    }
    Add();
    cluster_->PublishNow({0, 1});
    ASSERT_TRUE(cluster_->Await([&] { return programs_[1]->asked > 0; }));
    cluster_->Crash(0);
    cluster_->SetIncarnation(2);
    cluster_->PublishNow({1}, /*restore=*/with_checkpoint);
  }

  std::atomic<bool> waits_ = false;  // the holder, in its own code
  std::atomic<bool> may_go_on_ = false;
};

TEST_F(HalfCopyTest, TrainingDoesNotStartFromIt) {
  ASSERT_NO_FATAL_FAILURE(LoseTheHolder(/*with_checkpoint=*/false));

  ASSERT_TRUE(cluster_->AwaitEnd(1));
  EXPECT_EQ(cluster_->EndOf(1).code(), absl::StatusCode::kFailedPrecondition) << cluster_->EndOf(1);
  EXPECT_TRUE(programs_[1]->given.empty());
  may_go_on_ = true;
}

TEST_F(HalfCopyTest, ACheckpointIsGoneOnFrom) {
  ASSERT_NO_FATAL_FAILURE(LoseTheHolder(/*with_checkpoint=*/true));

  may_go_on_ = true;
  ASSERT_TRUE(cluster_->AwaitStep(1, kSteps));
  End();
  EXPECT_EQ(programs_[1]->replaced, 1);
  ExpectTrained(*programs_[1], kSteps);
}

TEST_F(HandoverTest, ReproducibleStepsComeInPortionsWhoseLastOneCounts) {
  std::array<double, 2> alone = {};
  for (const int members : {1, 2, 3}) {
    programs_.clear();
    Begin(Job(kSteps, /*reproducible=*/true));
    std::vector<int> all;
    for (int i = 0; i < members; ++i) {
      Add();
      all.push_back(i);
    }
    cluster_->PublishNow(all);
    ASSERT_NE(AwaitModel(), "") << members;
    End();
    ExpectTrained(*programs_[0], kSteps);
    if (members == 1) alone = programs_[0]->state;
    for (const auto& program : programs_) EXPECT_EQ(program->state, alone) << members;
    // 50 samples are 3 batches of 16 groups, and one of 2: some members have no part in that.
    const auto& given = programs_[0]->given;
    EXPECT_EQ(
        std::ranges::count_if(given, [](const auto& g) { return g.fate == Fate::kCommitted; }),
        kSteps);
    EXPECT_GT(std::ranges::count_if(given, [](const auto& g) { return g.fate == Fate::kPartial; }),
              0);
    cluster_.reset();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
}

TEST_F(HandoverTest, AStepWithoutAPortionWaitsUntilTheGradientsBeforeItAreTaken) {
  Begin(Job(8, /*reproducible=*/true));
  for (int i = 0; i < 3; ++i) {
    programs_.push_back(std::make_unique<Program>());
    Program& program = *programs_.back();
    program.before_taking = [] { std::this_thread::sleep_for(std::chrono::milliseconds(30)); };
    cluster_->Add();
    program.thread = std::thread([&program] { program.Loop(); });
  }
  cluster_->PublishNow({0, 1, 2});

  ASSERT_NE(AwaitModel(), "");
  End();
  // Batches of 16, 16, 16 and 2 groups: of the fourth one of the members has none.
  for (const auto& program : programs_) ExpectTrained(*program, 8);
}

TEST_F(HandoverTest, StartsAgainFromACheckpointWhenNobodyIsLeft) {
  std::int64_t saved = 0;
  ASSERT_NO_FATAL_FAILURE(ResumeFrom(saved));
  const Program& successor = *programs_[1];
  EXPECT_EQ(successor.replaced, 1);
  EXPECT_EQ(successor.given.front().step, saved + 1);
  ExpectTrained(successor, saved + 4);
}

// States that are copies of what the library cannot read.

TEST_F(HandoverTest, ACopyIsBroughtUpToDateForAJoinerAndTheResultAndNotAtEachStep) {
  copied_ = true;
  Begin(Job(1000));
  Add();
  Add();
  cluster_->PublishNow({0, 1});
  ASSERT_TRUE(cluster_->AwaitStep(0, 10));
  Add();

  cluster_->PublishAtBoundary({0, 1, 2});

  ASSERT_NE(AwaitModel(), "");
  End();
  EXPECT_GT(programs_[2]->given.front().step, 10);
  ExpectTrained(*programs_[0], 1000);
  EXPECT_EQ(programs_[1]->own, programs_[0]->own);
  EXPECT_EQ(programs_[2]->own, programs_[0]->own);
  EXPECT_EQ(programs_[0]->state, programs_[0]->own) << "what the result was written from";
  EXPECT_GT(programs_[0]->asked, 0);
  EXPECT_LT(programs_[0]->asked, 20);
}

TEST_F(HandoverTest, ControlACopyThatIsNotBroughtUpToDateGivesAJoinerAnotherState) {
  copied_ = true;
  Begin(Job(1'000'000));
  Add();
  cluster_->PublishNow({0});
  ASSERT_TRUE(cluster_->AwaitStep(0, 10));
  programs_[0]->answers_falsely = true;
  Add();
  cluster_->PublishAtBoundary({0, 1});
  ASSERT_TRUE(cluster_->AwaitStep(1, 20));
  End();
  EXPECT_TRUE(std::isnan(programs_[1]->own[0]));
  EXPECT_FALSE(std::isnan(programs_[0]->own[0]));
}

TEST_F(HandoverTest, ACopyThatIsWantedWhileTheProgramComputesIsGivenWhenItComes) {
  copied_ = true;
  Begin(Job(1000));
  std::atomic<bool> may_go_on = false;
  std::atomic<bool> computes = false;
  Add([&](const Ticket& ticket) {
    if (ticket.step != 5 || computes.exchange(true)) return;
    while (!may_go_on) std::this_thread::yield();
  });
  cluster_->PublishNow({0});
  ASSERT_TRUE(cluster_->Await([&] { return computes.load(); }));
  Add();
  cluster_->PublishNow({0, 1});
  ASSERT_TRUE(cluster_->AwaitPhase(1, membership::Phase::kCopy));
  // The view in which it is wanted ends, and another one after it wants it as well.
  cluster_->PublishNow({0});
  cluster_->PublishNow({0, 1});

  may_go_on = true;

  ASSERT_NE(AwaitModel(), "");
  End();
  EXPECT_EQ(programs_[1]->own, programs_[0]->own);
  ExpectTrained(*programs_[0], 1000);
}

TEST_F(HandoverTest, ACheckpointOfACopyIsOfItsStepAndWhoResumesIsToldOfIt) {
  copied_ = true;
  std::int64_t saved = 0;
  ASSERT_NO_FATAL_FAILURE(ResumeFrom(saved));
  const Program& successor = *programs_[1];
  EXPECT_EQ(successor.given.front().step, saved + 1);
  ExpectTrained(successor, saved + 4);
}

class CopiesTest : public ::testing::Test {
 protected:
  using Given = Handover::Given;

  Handover MakeHandover(bool copied) {
    Description description;
    description.samples = kSamples;
    description.buckets = {1};
    description.state.push_back({.part = {.name = "w",
                                          .type = buffer::DType::kF64,
                                          .shape = {2},
                                          .data = std::as_writable_bytes(std::span(memory_))},
                                 .model = true,
                                 .copied = copied});
    return Handover(std::move(description), data::Batches(kSamples, kBatch, 1),
                    /*reproducible=*/false);
  }

  std::array<double, 2> memory_ = {};
  Ticket ticket_;
};

TEST_F(CopiesTest, IsAskedForOnceForAllWhoReadWhileTheProgramStandsStill) {
  Handover handover = MakeHandover(/*copied=*/true);
  std::thread worker([&] {
    EXPECT_TRUE(handover.AwaitBoundary().ok());
    EXPECT_TRUE(handover.AwaitBoundary().ok());
    handover.Over();
  });
  EXPECT_EQ(*handover.Next(ticket_), Given::kStateWanted);
  EXPECT_EQ(*handover.Next(ticket_), Given::kOver);
  EXPECT_FALSE(ticket_.replaced);
  worker.join();
}

TEST_F(CopiesTest, IsNotReadWhileTheProgramWritesItAndAskedForAgainWhenItHasComputed) {
  Handover handover = MakeHandover(/*copied=*/true);
  std::atomic<int> read = 0;
  std::thread worker([&] {
    EXPECT_TRUE(handover.AwaitBoundary().ok());
    ++read;
    worker::StepRequest request;
    request.step = 1;
    EXPECT_TRUE(handover.Prepare(1, request).ok());
    EXPECT_TRUE(
        handover.Compute(std::array<std::int64_t, 1>{4}, {.push = [](std::int64_t) {}}).ok());
    handover.Dropped();
    EXPECT_TRUE(handover.AwaitBoundary().ok());
    ++read;
    handover.Over();
  });
  EXPECT_EQ(*handover.Next(ticket_), Given::kStateWanted);
  EXPECT_EQ(read, 0);
  EXPECT_EQ(*handover.Next(ticket_), Given::kStep);
  EXPECT_EQ(read, 1);
  EXPECT_EQ(*handover.Reduce(1), Fate::kDropped);
  EXPECT_EQ(*handover.Next(ticket_), Given::kStateWanted);
  EXPECT_EQ(read, 1);
  EXPECT_EQ(*handover.Next(ticket_), Given::kOver);
  worker.join();
}

TEST_F(CopiesTest, IsNotAskedForWhereOthersHaveWrittenIt) {
  Handover handover = MakeHandover(/*copied=*/true);
  std::thread worker([&] {
    EXPECT_TRUE(handover.AwaitBoundary().ok());
    handover.Replaced();
    EXPECT_TRUE(handover.AwaitBoundary().ok());
    handover.Over();
  });
  EXPECT_EQ(*handover.Next(ticket_), Given::kStateWanted);
  EXPECT_EQ(*handover.Next(ticket_), Given::kOver);
  EXPECT_TRUE(ticket_.replaced) << "the end of training tells it too";
  worker.join();
}

TEST_F(CopiesTest, IsAskedForBeforeTheEnd) {
  Handover handover = MakeHandover(/*copied=*/true);
  handover.Over();
  EXPECT_EQ(*handover.Next(ticket_), Given::kOver);
  EXPECT_FALSE(handover.MayFinish());
  EXPECT_TRUE(handover.MayFinish());
  handover.Finish();
  EXPECT_TRUE(handover.AwaitBoundary().ok());
}

TEST_F(CopiesTest, IsWaitedForNoLongerWhenTheProcessIsToEnd) {
  Handover handover = MakeHandover(/*copied=*/true);
  std::thread worker(
      [&] { EXPECT_EQ(handover.AwaitBoundary().code(), absl::StatusCode::kUnavailable); });
  EXPECT_EQ(*handover.Next(ticket_), Given::kStateWanted);
  handover.Interrupt(std::numeric_limits<membership::ViewNumber>::max());
  worker.join();
  EXPECT_TRUE(handover.MayFinish());
}

TEST_F(CopiesTest, AStateInItsOwnPlaceIsNeverAskedFor) {
  Handover handover = MakeHandover(/*copied=*/false);
  std::thread worker([&] {
    EXPECT_TRUE(handover.AwaitBoundary().ok());
    handover.Over();
  });
  EXPECT_EQ(*handover.Next(ticket_), Given::kOver);
  EXPECT_TRUE(handover.MayFinish());
  worker.join();
}

TEST_F(CopiesTest, TheEndOfTrainingIsToldAlsoWhenTheWorkerHasEndedSince) {
  Handover handover = MakeHandover(/*copied=*/false);
  handover.Over();
  handover.Ended();
  EXPECT_EQ(*handover.Next(ticket_), Given::kOver);
  Handover other = MakeHandover(/*copied=*/false);
  other.Ended();
  EXPECT_EQ(*other.Next(ticket_), Given::kEnded);
}

// The program's own mistakes.

class MistakeTest : public ::testing::Test {
 protected:
  MistakeTest()
      : handover_({.samples = kSamples,
                   .data_digest = "",
                   .numeric_identity = "",
                   .metrics = {"loss"},
                   .buckets = {2, 3},
                   .state = {}},
                  data::Batches(kSamples, kBatch, 1), /*reproducible=*/false) {}

  // The worker's thread offers one step until the test's end.
  void Offer() {
    worker::StepRequest request;
    request.step = 3;
    EXPECT_TRUE(handover_.Prepare(1, request).ok());
    worker_ = std::thread([this] {
      computed_ = handover_.Compute(std::array<std::int64_t, 2>{4, 7},
                                    {.push = [this](std::int64_t b) { pushed_.push_back(b); }});
      handover_.Dropped();
    });
    Ticket ticket;
    ASSERT_EQ(*handover_.Next(ticket), Handover::Given::kStep);
    EXPECT_EQ(ticket.step, 3);
    EXPECT_THAT(ticket.ids, ::testing::ElementsAre(4, 7));
  }
  ~MistakeTest() override {
    handover_.Interrupt(std::numeric_limits<membership::ViewNumber>::max());
    if (worker_.joinable()) worker_.join();
  }

  Handover handover_;
  std::thread worker_;
  absl::StatusOr<workload::Sums> computed_ = absl::UnknownError("not yet");
  std::vector<std::int64_t> pushed_;
};

TEST_F(MistakeTest, AStepThatWasNotReducedIsNamedInsteadOfWaitedFor) {
  Offer();
  Ticket ticket;
  const auto next = handover_.Next(ticket);
  EXPECT_EQ(next.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(next.status().message(), ::testing::HasSubstr("step 3"));
}

TEST_F(MistakeTest, ReducingTwiceOrBeforeAStepIsRefused) {
  EXPECT_EQ(handover_.Reduce(1).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(handover_.Ready(0).code(), absl::StatusCode::kFailedPrecondition);
  Offer();
  EXPECT_EQ(*handover_.Reduce(1), Fate::kDropped);
  EXPECT_EQ(handover_.Reduce(1).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(MistakeTest, BucketsMetricsAndWeightsThatThereAreNotAreRefused) {
  Offer();
  EXPECT_EQ(handover_.Ready(2).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(handover_.Ready(-1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(handover_.Ready(1).ok());
  EXPECT_EQ(handover_.Ready(1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(handover_.Log(1, 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(handover_.LogSum(0, {1, 1}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(handover_.LogSum(1, {1, 1}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(handover_.Reduce(-1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(handover_.Reduce(std::nan("")).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(MistakeTest, BucketsThatWereNotReadyCountAsZero) {
  std::vector<float> memory(handover_.gradients().size());
  ASSERT_TRUE(handover_.PlaceGradients(memory));
  ASSERT_EQ(handover_.gradients().data(), memory.data());
  Offer();
  std::ranges::fill(handover_.gradients(), 9.0F);
  EXPECT_TRUE(handover_.Ready(1).ok());
  EXPECT_EQ(*handover_.Reduce(2), Fate::kDropped);
  worker_.join();
  EXPECT_THAT(handover_.gradients(), ::testing::ElementsAre(0, 0, 9, 9, 9));
  EXPECT_THAT(pushed_, ::testing::ElementsAre(1, 0));
  ASSERT_TRUE(computed_.ok());
  EXPECT_EQ(computed_->front().count, 2);
  EXPECT_TRUE(std::isnan(computed_->front().sum)) << "no loss was logged, so none is known";
}

TEST_F(MistakeTest, AStepOfAViewThatHasEndedMayBeFinishedAndIsDropped) {
  Offer();
  handover_.Interrupt(2);
  worker_.join();
  EXPECT_EQ(computed_.status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(handover_.Ready(0).ok());
  EXPECT_EQ(*handover_.Reduce(1), Fate::kDropped);
  EXPECT_TRUE(pushed_.empty());
}

}  // namespace
}  // namespace starling::embed
