// SPDX-License-Identifier: Apache-2.0
#include "trainer/consistency/consistency.h"

#include <algorithm>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::consistency {
namespace {

Client C(int number, membership::ViewNumber joined = 1) {
  return {{absl::StrCat("worker-", number), 0}, joined};
}

Contribution Push(const Client& client, Clock clock, Version read = 0, double weight = 1) {
  Contribution push;
  push.client = client;
  push.clock = clock;
  push.read = read;
  push.weight = weight;
  return push;
}

// What a model promises its readers, for the oracle.
struct Promise {
  std::optional<std::int64_t> staleness;  // reads hold all below clock - staleness
  std::optional<std::int64_t> delay;      // no task starts while one older than t - delay runs
};

// A random history of joins, leaves, reads and pushes at one shard, and an oracle that knows only
// what was read and pushed.
class History {
 public:
  History(const Options& options, Promise promise, Rules rules, int seed)
      : model_(MakeConsistency(options, rules)),
        promise_(promise),
        random_(static_cast<std::uint64_t>(seed)) {}

  // The first broken promise, or nothing.
  std::string Run(int events) {
    ChangeView();
    for (int i = 0; i < events && broken_.empty(); ++i) {
      const std::uint64_t kind = random_() % 20;
      if (kind == 0) {
        ChangeView();
      } else if (kind == 1) {
        RestOrWake();
      } else {
        Step();
      }
      CheckProgress();
    }
    for (Worker& worker : workers_) {
      if (worker.rests) Wake(worker);
    }
    const Clock goal = last_clock_ + 2;
    for (int left = 20000; broken_.empty() && !AllAt(goal); Step()) {
      CheckProgress();
      if (--left == 0) Break("some do not get on");
    }
    return broken_;
  }
  const Consistency& model() const { return *model_; }
  std::int64_t refused() const { return refused_; }
  std::int64_t applied() const { return applied_; }
  std::int64_t accepted() const { return accepted_; }

 private:
  struct Worker {
    Client client;
    Clock clock = 0;
    bool computing = false;
    Version read = 0;
    std::int64_t task = 0;
    bool rests = false;
  };

  // Somebody who is between two tasks has no work for a while, or has some again.
  void RestOrWake() {
    Worker& worker = workers_[random_() % workers_.size()];
    if (worker.rests) {
      Wake(worker);
    } else if (!worker.computing) {
      worker.rests = true;
      Count(model_->OnRest(worker.client));
      if (AllRest() && !model_->held().empty()) Break("all rest, and something is held back");
    }
  }
  void Wake(Worker& worker) {
    worker.rests = false;
    Count(model_->OnWake(worker.client));
    worker.clock = model_->StartOf(worker.client);
    worker.task = next_task_++;
  }
  bool AllRest() const {
    return std::all_of(workers_.begin(), workers_.end(),
                       [](const Worker& worker) { return worker.rests; });
  }

  void ChangeView() {
    ++view_;
    if (workers_.size() > 1 && random_() % 2 == 0) {
      workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(random_() % workers_.size()));
    }
    const std::size_t joined = workers_.size();
    if (workers_.size() < 2 || (workers_.size() < 5 && random_() % 2 == 0)) {
      workers_.push_back({C(next_++, view_), 0, false, 0, 0, false});
    }
    std::vector<Client> clients;
    for (const Worker& worker : workers_) clients.push_back(worker.client);
    Count(model_->OnView(clients));
    for (std::size_t i = joined; i < workers_.size(); ++i) {
      workers_[i].clock = model_->StartOf(workers_[i].client);
      workers_[i].task = next_task_++;
    }
  }

  void Step() {
    Worker& worker = workers_[random_() % workers_.size()];
    if (worker.computing) {
      Finish(worker);
    } else if (worker.rests) {
      if (!model_->MayRead(worker.client, 0)) Break("who rests may not read");
    } else if (model_->MayRead(worker.client, worker.clock)) {
      Start(worker);
    }
  }

  void Start(Worker& worker) {
    worker.computing = true;
    worker.read = model_->version();
    last_clock_ = std::max(last_clock_, worker.clock);
    if (promise_.staleness) floor_ = std::max(floor_, worker.clock - *promise_.staleness);
    for (const Worker& other : workers_) {
      if (promise_.delay && !other.rests && other.task < worker.task - *promise_.delay) {
        Break("a task started while one older than its delay was unfinished");
      }
    }
  }

  void Finish(Worker& worker) {
    worker.computing = false;
    if (worker.clock < floor_) Break("a push is older than a read that was granted");
    const Verdict verdict = model_->OnPush(Push(worker.client, worker.clock, worker.read));
    verdict.accepted ? ++accepted_ : ++refused_;
    Count(verdict.ready);
    // Whoever was too late goes on with the running step.
    worker.clock = verdict.accepted ? worker.clock + 1 : model_->StartOf(worker.client);
    worker.task = next_task_++;
  }

  void Count(const std::vector<Batch>& ready) {
    for (const Batch& batch : ready) applied_ += static_cast<std::int64_t>(batch.members.size());
    if (applied_ + static_cast<std::int64_t>(model_->held().size()) != accepted_) {
      Break("an accepted push is neither applied nor held");
    }
  }

  void CheckProgress() {
    if (!AllRest() && !std::any_of(workers_.begin(), workers_.end(), [&](const Worker& worker) {
          if (worker.rests) return false;
          return worker.computing || model_->MayRead(worker.client, worker.clock);
        })) {
      Break("everybody waits");
    }
  }
  bool AllAt(Clock clock) const {
    return std::all_of(workers_.begin(), workers_.end(),
                       [&](const Worker& worker) { return worker.clock >= clock; });
  }
  void Break(const std::string& what) {
    if (broken_.empty()) broken_ = what;
  }

  std::unique_ptr<Consistency> model_;
  const Promise promise_;
  std::mt19937_64 random_;
  std::vector<Worker> workers_;
  membership::ViewNumber view_ = 0;
  int next_ = 0;
  Clock floor_ = 0;
  Clock last_clock_ = 0;
  std::int64_t next_task_ = 0;
  std::int64_t accepted_ = 0, refused_ = 0, applied_ = 0;
  std::string broken_;
};

struct Case {
  const char* name;
  Options options;
  Promise promise;
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> kCases = {
      {"Asynchronous", Asynchronous{}, {}},
      {"Sequential", BoundedDelay{0}, {{}, 0}},
      {"BoundedDelay", BoundedDelay{4}, {{}, 4}},
      {"StaleSynchronous0", StaleSynchronous{0}, {0, {}}},
      {"StaleSynchronous3", StaleSynchronous{3}, {3, {}}},
      {"EagerStaleSynchronous", EagerStaleSynchronous{2, 1e6, Priority::kFifo}, {2, {}}},
      {"BackupWorkers", BackupWorkers{1}, {}},
      {"SoftSync", SoftSync{2, true}, {}},
  };
  return kCases;
}

class EveryModel : public testing::TestWithParam<Case> {};

TEST_P(EveryModel, KeepsItsPromiseAndNeverStandsStillWhoeverJoinsOrLeaves) {
  for (int seed = 1; seed <= 300; ++seed) {
    History history(GetParam().options, GetParam().promise, {}, seed);
    ASSERT_EQ(history.Run(300), "") << "seed " << seed;
  }
}

TEST_P(EveryModel, GoesOnFromWhatWasSavedAsIfNothingHadHappened) {
  History history(GetParam().options, GetParam().promise, {}, 7);
  ASSERT_EQ(history.Run(200), "");
  bytes::Writer saved;
  history.model().Save(saved);
  const auto loaded = MakeConsistency(GetParam().options);
  bytes::Reader reader(saved.bytes());
  loaded->Load(reader);
  EXPECT_TRUE(reader.done());
  bytes::Writer again;
  loaded->Save(again);
  EXPECT_EQ(again.bytes(), saved.bytes());
}

TEST_P(EveryModel, WhatIsLoadedReplacesAllThatWasThere) {
  History history(GetParam().options, GetParam().promise, {}, 7);
  ASSERT_EQ(history.Run(200), "");
  bytes::Writer used, fresh, again;
  history.model().Save(used);
  const auto model = MakeConsistency(GetParam().options);
  model->Save(fresh);
  for (const bytes::Writer* saved : {&used, &fresh}) {
    bytes::Reader in(saved->bytes());
    model->Load(in);
  }
  model->Save(again);
  EXPECT_EQ(again.bytes(), fresh.bytes());
}

INSTANTIATE_TEST_SUITE_P(Consistency, EveryModel, testing::ValuesIn(Cases()),
                         [](const testing::TestParamInfo<Case>& one) { return one.param.name; });

struct Control {
  const char* name;
  bool Rules::*rule;
  Case model;
  const char* harm;
};

class WithoutARule : public testing::TestWithParam<Control> {};

TEST_P(WithoutARule, SomeHistoryBreaksAPromise) {
  Rules rules;
  rules.*GetParam().rule = false;
  std::string harm;
  for (int seed = 1; seed <= 300 && harm.empty(); ++seed) {
    harm = History(GetParam().model.options, GetParam().model.promise, rules, seed).Run(300);
  }
  EXPECT_EQ(harm, GetParam().harm);
}

constexpr char kWaits[] = "everybody waits";
constexpr char kOld[] = "a push is older than a read that was granted";

INSTANTIATE_TEST_SUITE_P(
    Consistency, WithoutARule,
    testing::Values(
        Control{"StaleSynchronousKeepsTheDeparted", &Rules::drop_departed, Cases()[4], kWaits},
        Control{"StaleSynchronousAdmitsAtZero", &Rules::admit_at_minimum, Cases()[4], kOld},
        Control{"StaleSynchronousWithoutABound", &Rules::bound, Cases()[4], kOld},
        Control{"BoundedDelayKeepsTheDeparted", &Rules::drop_departed, Cases()[2], kWaits},
        Control{"BoundedDelayWithoutABound", &Rules::bound, Cases()[2],
                "a task started while one older than its delay was unfinished"}),
    [](const testing::TestParamInfo<Control>& control) { return control.param.name; });

TEST(Clocks, ADepartureRaisesTheMinimumAndAJoinerNeverLowersIt) {
  Clocks clocks;
  clocks.OnView({C(1), C(2)});
  clocks.Advance(C(1), 5);
  clocks.Advance(C(2), 2);
  clocks.OnView({C(1), C(2), C(3, 2)});
  EXPECT_EQ(clocks.Of(C(3, 2)), 2);
  clocks.OnView({C(1), C(3, 2)});
  clocks.Advance(C(3, 2), 4);
  EXPECT_EQ(clocks.Minimum(), 4);
  clocks.OnView({});
  EXPECT_EQ(clocks.Minimum(), std::nullopt);
  clocks.OnView({C(4, 4)});
  EXPECT_EQ(clocks.Of(C(4, 4)), 5) << "the highest ever, for nobody was left";
}

TEST(Clocks, AProcessThatMissedAViewIsAnotherClient) {
  Clocks clocks;
  clocks.OnView({C(1, 1), C(2, 1)});
  clocks.Advance(C(1, 1), 7);
  clocks.OnView({C(1, 3), C(2, 1)});
  EXPECT_EQ(clocks.Of(C(1, 1)), std::nullopt);
  EXPECT_EQ(clocks.Of(C(1, 3)), 0);
}

TEST(Clocks, WhoRestsIsNotWaitedForAndWakesAtTheMinimumOfTheOthers) {
  Clocks clocks;
  clocks.OnView({C(1), C(2), C(3)});
  clocks.Rest(C(3));
  EXPECT_EQ(clocks.awake(), 2u);
  clocks.Advance(C(1), 5);
  clocks.Advance(C(2), 4);
  EXPECT_EQ(clocks.Minimum(), 4);
  bytes::Writer saved;
  clocks.Save(saved);
  Clocks loaded;
  bytes::Reader in(saved.bytes());
  loaded.Load(in);
  EXPECT_TRUE(loaded.Rests(C(3)));
  loaded.Wake(C(3));
  EXPECT_EQ(loaded.Of(C(3)), 4);
  EXPECT_EQ(loaded.Minimum(), 4);
  for (const int client : {1, 2, 3}) loaded.Rest(C(client));
  EXPECT_EQ(loaded.Minimum(), std::nullopt);
  loaded.Wake(C(2));
  EXPECT_EQ(loaded.Of(C(2)), 5) << "the highest ever, for nobody else is awake";
  loaded.OnView({C(2)});
  EXPECT_EQ(loaded.awake(), 1u) << "who has left rests no more";
}

TEST(Clocks, AnUnknownClientMovesNothingAndWhoDoesNotRestIsNotWoken) {
  Clocks clocks;
  clocks.OnView({C(1), C(2)});
  clocks.Advance(C(9), 100);
  EXPECT_EQ(clocks.highest(), 0);
  clocks.Advance(C(1), 5);
  clocks.Wake(C(2));
  EXPECT_EQ(clocks.Of(C(2)), 0) << "it has completed none";
}

TEST(Clocks, LoadingForgetsWhoRested) {
  Clocks awake, resting;
  awake.OnView({C(1)});
  resting.OnView({C(1), C(2)});
  resting.Rest(C(1));
  bytes::Writer saved;
  awake.Save(saved);
  bytes::Reader in(saved.bytes());
  resting.Load(in);
  EXPECT_EQ(resting.size(), 1u);
  EXPECT_EQ(resting.awake(), 1u);
}

TEST(Clocks, WhereTheRuleIsOffAJoinerStartsAtZero) {
  Rules rules;
  rules.admit_at_minimum = false;
  Clocks clocks(rules);
  clocks.OnView({C(1)});
  clocks.Advance(C(1), 5);
  clocks.OnView({C(1), C(2)});
  EXPECT_EQ(clocks.Of(C(2)), 0);
}

TEST(Consistency, WithTheBoundOffEveryReadIsServed) {
  for (const Options& options : {Options(BulkSynchronous{2}), Options(BoundedDelay{0}),
                                 Options(StaleSynchronous{0}), Options(BackupWorkers{0})}) {
    for (const bool bound : {true, false}) {
      Rules rules;
      rules.bound = bound;
      auto model = MakeConsistency(options, rules);
      model->OnView({C(1), C(2)});
      model->OnPush(Push(C(1), 0));
      EXPECT_EQ(model->MayRead(C(1), 1), !bound) << options.index();
    }
  }
}

// A count is held against the bytes that are there: the least that an item takes must be no more
// than what the shortest takes.
TEST(Consistency, TheShortestNamesAreReadBackToo) {
  const Client nameless;
  Clocks clocks;
  clocks.OnView({nameless});
  bytes::Writer saved;
  clocks.Save(saved);
  bytes::Reader in(saved.bytes());
  Clocks loaded;
  loaded.Load(in);
  EXPECT_TRUE(in.done());
  EXPECT_EQ(loaded.size(), 1u);
  const auto expect_read_back = [](const Consistency& model, const Options& options) {
    bytes::Writer out;
    model.Save(out);
    const auto again = MakeConsistency(options);
    bytes::Reader reader(out.bytes());
    again->Load(reader);
    EXPECT_TRUE(reader.done()) << options.index();
    EXPECT_EQ(again->held(), model.held());
  };
  const auto bounded = MakeConsistency(BoundedDelay{1});
  bounded->OnView({nameless});
  expect_read_back(*bounded, BoundedDelay{1});
  std::vector<Client> clients = {nameless};
  std::vector<Contribution> parts;
  for (int i = 0; i < 40; ++i) clients.push_back(C(i));
  for (int i = 0; i < 30; ++i) parts.push_back(Push(C(i), 0));
  for (const bool aggregate : {false, true}) {
    const auto soft = MakeConsistency(SoftSync{1});
    soft->OnView(clients);
    if (aggregate) {
      soft->OnAggregate(parts);
    } else {
      soft->OnPush(Push(nameless, 0));
    }
    ASSERT_EQ(soft->held().size(), 1u);
    expect_read_back(*soft, SoftSync{1});
  }
}

TEST(Consistency, WhoStartsCountsAsHavingCompletedAllBefore) {
  auto stale = MakeConsistency(StaleSynchronous{0});
  stale->OnView({C(1), C(2)});
  EXPECT_FALSE(stale->MayRead(C(2), 5));
  stale->OnStart(C(1), 5);
  EXPECT_EQ(stale->StartOf(C(1)), 5);
  EXPECT_TRUE(stale->MayRead(C(2), 5));
  EXPECT_EQ(stale->StartOf(C(9)), 0) << "a stranger's";
  auto backup = MakeConsistency(BackupWorkers{0});
  backup->OnView({C(1), C(2)});
  backup->OnStart(C(1), 3);
  EXPECT_EQ(backup->StartOf(C(2)), 3) << "all go on together from the highest";
  backup->OnStart(C(2), 1);
  EXPECT_EQ(backup->StartOf(C(1)), 3);
}

TEST(Consistency, APushThatWasHereBeforeStillEndsItsClock) {
  auto stale = MakeConsistency(StaleSynchronous{0});
  stale->OnView({C(1), C(2)});
  stale->OnSkip(C(1), 0);
  EXPECT_EQ(stale->clocks().Of(C(1)), 1);
  auto bounded = MakeConsistency(BoundedDelay{0});
  bounded->OnView({C(1), C(2)});
  EXPECT_FALSE(bounded->MayRead(C(2), 0)) << "the first's task comes before";
  bounded->OnSkip(C(1), 0);
  EXPECT_TRUE(bounded->MayRead(C(2), 0));
  EXPECT_FALSE(bounded->MayRead(C(1), 1));
}

TEST(Consistency, OnlyTheLastPushOfAClockEndsIt) {
  auto model = MakeConsistency(StaleSynchronous{0});
  model->OnView({C(1), C(2)});
  Contribution first = Push(C(1), 0);
  first.completes = false;
  EXPECT_EQ(model->OnPush(first).ready.size(), 1u) << "applied all the same";
  EXPECT_EQ(model->clocks().Of(C(1)), 0);
  model->OnPush(Push(C(1), 0));
  EXPECT_EQ(model->clocks().Of(C(1)), 1);
}

TEST(Consistency, WhatWasHeldIsReplacedByWhatIsLoaded) {
  auto model = MakeConsistency(SoftSync{1});
  bytes::Writer fresh;
  model->Save(fresh);
  model->OnView({C(1), C(2)});
  model->OnPush(Push(C(1), 0));
  ASSERT_EQ(model->held().size(), 1u);
  bytes::Reader in(fresh.bytes());
  model->Load(in);
  EXPECT_TRUE(model->held().empty());
}

TEST(Staleness, ItsMeanIsOverWhatWasCounted) {
  Staleness staleness;
  EXPECT_EQ(staleness.Mean(), 0) << "of nothing";
  staleness.Add(2);
  staleness.Add(2);
  staleness.Add(5);
  EXPECT_EQ(staleness.Mean(), 3);
  EXPECT_EQ(staleness.total(), 3);
}

TEST(BackupWorkers, TheLastStepIsCompleteWithThoseWhoHaveWork) {
  auto model = MakeConsistency(BackupWorkers{0});
  model->OnView({C(1), C(2)});
  EXPECT_TRUE(model->OnPush(Push(C(1), 0)).ready.empty());
  EXPECT_EQ(model->OnRest(C(2)).size(), 1u);
  EXPECT_EQ(model->OnPush(Push(C(1), 1)).ready.size(), 1u);
}

TEST(BackupWorkers, TheFirstNCountAndTheLateAreRefusedByTheirStep) {
  auto model = MakeConsistency(BackupWorkers{1});
  model->OnView({C(1), C(2), C(3), C(4)});
  model->OnPush(Push(C(4), 0));
  model->OnPush(Push(C(2), 0));
  const Verdict third = model->OnPush(Push(C(1), 0));
  ASSERT_EQ(third.ready.size(), 1u);
  std::vector<Client> order;
  for (const Contribution& member : third.ready[0].members) order.push_back(member.client);
  EXPECT_EQ(order, (std::vector{C(1), C(2), C(4)})) << "whoever came first";
  EXPECT_TRUE(model->MayRead(C(1), 1)) << "the straggler holds nobody up";
  const Verdict late = model->OnPush(Push(C(3), 0));
  EXPECT_FALSE(late.accepted);
  EXPECT_EQ(model->StartOf(C(3)), 1);
  EXPECT_TRUE(model->OnPush(Push(C(3), 1)).accepted);
}

TEST(BackupWorkers, WhichPushIsLateIsAskedOfEach) {
  const std::vector<Contribution> parts = {Push(C(1), 0), Push(C(2), 0)};
  EXPECT_FALSE(MakeConsistency(BackupWorkers{1})->Combines(parts));
  EXPECT_TRUE(MakeConsistency(SoftSync{1})->Combines(parts));
}

TEST(BackupWorkers, ADeathMidStepDoesNotStallIt) {
  auto model = MakeConsistency(BackupWorkers{1});
  model->OnView({C(1), C(2), C(3), C(4)});
  model->OnPush(Push(C(1), 0));
  model->OnPush(Push(C(2), 0));
  const std::vector<Batch> ready = model->OnView({C(1), C(2), C(3)});
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(ready[0].members.size(), 2u);
}

TEST(BackupWorkers, APushThatWasHereBeforeCountsForItsStepSoThatNoneStarves) {
  auto model = MakeConsistency(BackupWorkers{1});
  model->OnView({C(1), C(2), C(3)});
  model->OnSkip(C(1), 0);
  EXPECT_FALSE(model->MayRead(C(1), 1)) << "one of two";
  const std::vector<Batch> ready = model->OnPush(Push(C(2), 0)).ready;
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(ready[0].members.size(), 1u);
  model->OnSkip(C(1), 1);
  EXPECT_TRUE(model->OnSkip(C(2), 1).empty());
  EXPECT_TRUE(model->MayRead(C(3), 2)) << "a step of which nothing is new is over, too";
  model->OnSkip(C(3), 0);
  EXPECT_FALSE(model->MayRead(C(3), 3)) << "one of another step does not count";
}

TEST(BackupWorkers, APushThatWasHereBeforeCountsForItsOwnStepOnly) {
  auto model = MakeConsistency(BackupWorkers{0});
  model->OnView({C(1), C(2)});
  for (const Clock step : {0, 1}) {
    EXPECT_TRUE(model->OnPush(Push(C(1), step)).ready.empty()) << "one of two, step " << step;
    model->OnSkip(C(2), step);
    EXPECT_TRUE(model->MayRead(C(1), step + 1));
  }
  EXPECT_TRUE(model->OnPush(Push(C(1), 2)).ready.empty()) << "nothing is left of the step before";
}

TEST(BackupWorkers, AViewOfNobodyEndsNoStepForWhoeverComesTakesPartInIt) {
  auto model = MakeConsistency(BackupWorkers{0});
  model->OnView({C(1), C(2)});
  model->OnPush(Push(C(1), 0));
  EXPECT_TRUE(model->OnView({}).empty());
  EXPECT_EQ(model->held().size(), 1u);
  EXPECT_TRUE(model->OnView({C(3, 3), C(4, 3)}).empty());
  const std::vector<Batch> ready = model->OnPush(Push(C(3, 3), 0)).ready;
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(ready[0].members.size(), 2u);
}

// Equal workers take turns; each reads, and pushes when the others have had their turn.
double MeanStaleness(const Options& options, int workers, Version& most) {
  auto model = MakeConsistency(options);
  std::vector<Client> clients;
  clients.reserve(static_cast<std::size_t>(workers));
  for (int i = 0; i < workers; ++i) clients.push_back(C(i));
  model->OnView(clients);
  std::vector<Version> read(clients.size(), 0);
  for (Clock clock = 0; clock < 200; ++clock) {
    for (std::size_t i = 0; i < clients.size(); ++i) {
      model->OnPush(Push(clients[i], clock, read[i]));
      read[i] = model->version();
    }
  }
  most = model->staleness().Maximum();
  return model->staleness().Mean();
}

TEST(Asynchronous, EqualWorkersAreStaleByAllTheOthers) {
  Version most = 0;
  EXPECT_NEAR(MeanStaleness(Asynchronous{}, 4, most), 3, 0.5);
}

TEST(SoftSync, MeanStalenessIsAboutNAndNeverAboveTwice) {
  for (const int n : {1, 2, 4}) {
    Version most = 0;
    const double mean = MeanStaleness(SoftSync{n, true}, 8, most);
    EXPECT_NEAR(mean, n, 1) << n;
    EXPECT_LE(most, 2 * n) << n;
  }
  Version most = 0;
  MeanStaleness(Asynchronous{}, 8, most);
  EXPECT_GT(most, 2 * 2) << "without it staleness is higher";
}

TEST(SoftSync, DividesTheLearningRateByTheMeanStalenessIfAsked) {
  for (const bool aware : {true, false}) {
    auto model = MakeConsistency(SoftSync{2, aware});
    model->OnView({C(1), C(2), C(3), C(4)});
    for (Clock clock = 0; clock < 2; ++clock) {
      model->OnPush(Push(C(1), clock, clock));
      model->OnPush(Push(C(2), clock, clock));
    }
    model->OnPush(Push(C(3), 0, 0));
    const std::vector<Batch> ready = model->OnPush(Push(C(4), 0, 0)).ready;
    ASSERT_EQ(ready.size(), 1u);
    EXPECT_EQ(ready[0].rate_factor, aware ? 0.5 : 1);
  }
}

TEST(SoftSync, WhatIsLeftWhenEveryoneHasGoneIsTheLastUpdate) {
  auto model = MakeConsistency(SoftSync{1, false});
  model->OnView({C(1), C(2), C(3)});
  model->OnPush(Push(C(1), 0));
  model->OnPush(Push(C(2), 0));
  const std::vector<Batch> ready = model->OnView({});
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(ready[0].members.size(), 2u);
  EXPECT_TRUE(model->held().empty());
}

TEST(SoftSync, OfAsManyAsThereAreClientsEachPushIsAnUpdate) {
  auto model = MakeConsistency(SoftSync{2, false});
  model->OnView({C(1), C(2)});
  EXPECT_EQ(model->OnPush(Push(C(1), 0)).ready.size(), 1u);
  auto shrunk = MakeConsistency(SoftSync{1, false});
  shrunk->OnView({C(1), C(2), C(3)});
  shrunk->OnPush(Push(C(1), 0));
  shrunk->OnPush(Push(C(2), 0));
  EXPECT_EQ(shrunk->OnView({C(3)}).size(), 2u) << "of one client, too";
}

TEST(StaleSynchronous, ARotatingStragglerCostsLessTheMoreStaleReadsMayBe) {
  // Rounds until all have completed 60 clocks; in each round one worker stands still.
  const auto rounds = [](std::int64_t staleness) {
    auto model = MakeConsistency(StaleSynchronous{staleness});
    const std::vector<Client> clients = {C(0), C(1), C(2), C(3)};
    model->OnView(clients);
    std::vector<Clock> clock(4, 0);
    int round = 0;
    for (; *std::min_element(clock.begin(), clock.end()) < 60; ++round) {
      std::vector<std::size_t> able;
      for (std::size_t i = 0; i < 4; ++i) {
        const bool slow = static_cast<std::size_t>(round / 3) % 4 == i;
        if (!slow && model->MayRead(clients[i], clock[i])) able.push_back(i);
      }
      for (const std::size_t i : able) model->OnPush(Push(clients[i], clock[i]++));
      EXPECT_LE(*std::max_element(clock.begin(), clock.end()) -
                    *std::min_element(clock.begin(), clock.end()),
                staleness + 1);
    }
    return round;
  };
  EXPECT_LT(rounds(3), 0.7 * rounds(0));
}

}  // namespace
}  // namespace starling::consistency
