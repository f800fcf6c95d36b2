// SPDX-License-Identifier: Apache-2.0
#include "trainer/simulation/simulation.h"

#include <cstdlib>
#include <functional>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::simulation {
namespace {

int FromEnvironment(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

int Seeds() { return FromEnvironment("STARLING_SIM_SEEDS", 300); }

// What happened in histories of all seeds, ten of which may fail.
template <typename OptionsOf>
Outcome Play(OptionsOf options_of) {
  Outcome sum;
  int failures = 0;
  for (int seed = FromEnvironment("STARLING_SIM_FROM", 1); seed <= Seeds() && failures < 10;
       ++seed) {
    const Outcome outcome = Simulate(options_of(seed));
    EXPECT_EQ(outcome.violation, "") << "seed " << seed;
    failures += outcome.violation.empty() ? 0 : 1;
    for (const auto& [what, count] : outcome.counts) sum.counts[what] += count;
  }
  for (const auto& [what, count] : sum.counts)
    testing::Test::RecordProperty(what, std::to_string(count));
  return sum;
}

// The first violation in histories of so many seeds.
template <typename OptionsOf>
std::string FindViolation(OptionsOf options_of, int seeds = 2000) {
  for (int seed = 1; seed <= seeds; ++seed) {
    const std::string violation = Simulate(options_of(seed)).violation;
    if (violation.empty()) continue;
    testing::Test::RecordProperty("seed", seed);
    testing::Test::RecordProperty("violation", violation);
    return violation;
  }
  return "";
}

// For whoever looks for a mistake: STARLING_SIM_TRACE=57 prints the history of seed 57.
template <typename Of>
void PrintHistory(const char* variable, Of options_of) {
  const int seed = FromEnvironment(variable, 0);
  if (seed == 0) GTEST_SKIP() << variable << " is not set";
  auto options = options_of(seed);
  options.trace = true;
  const Outcome outcome = Simulate(options);
  std::printf("%s\n%s\n", absl::StrJoin(outcome.trace, "\n").c_str(), outcome.violation.c_str());
}

// Of jobs whose workers hold the whole state. -----------------------------------------------------

PeerOptions OptionsOf(int seed) {
  PeerOptions options;
  options.seed = static_cast<std::uint64_t>(seed);
  options.workers = 2 + seed % 3;
  return options;
}

TEST(Simulation, AnUndisturbedRunFinishesInOneView) {
  PeerOptions options;
  options.faults = 0;
  const Outcome outcome = Simulate(options);
  EXPECT_EQ(outcome.violation, "");
  EXPECT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.Of("views"), 1);
}

TEST(Simulation, OneHistoryIsPrintedOnRequest) { PrintHistory("STARLING_SIM_TRACE", OptionsOf); }

TEST(Simulation, TheInvariantsHoldWhateverFails) {
  const Outcome sum = Play(OptionsOf);
  // The faults did happen.
  EXPECT_GT(sum.Of("worker kills"), Seeds());
  EXPECT_GT(sum.Of("pauses"), Seeds() / 2);
  EXPECT_GT(sum.Of("coordinators"), Seeds() * 3 / 2);
  EXPECT_GT(sum.Of("copies"), Seeds() / 2);
  EXPECT_GT(sum.Of("restores"), Seeds() / 100);
  EXPECT_GE(sum.Of("half copies"), Seeds() / 300);
  EXPECT_GT(sum.Of("committed"), Seeds());
  EXPECT_GT(sum.Of("lags"), Seeds());
  EXPECT_GT(sum.Of("halts"), Seeds() / 10);
}

struct Control {
  const char* name;
  bool membership::Rules::*rule;
};

// The other rules need rarer luck: counterexamples_test.cc plays their histories by hand.
class WithoutARule : public testing::TestWithParam<Control> {};

TEST_P(WithoutARule, SomeHistoryBreaksAnInvariant) {
  const auto options_of = [](int seed) {
    PeerOptions options = OptionsOf(seed);
    options.rules.*GetParam().rule = false;
    return options;
  };
  EXPECT_NE(FindViolation(options_of, 5000), "");
}

INSTANTIATE_TEST_SUITE_P(
    Simulation, WithoutARule,
    testing::Values(Control{"haltFirst", &membership::Rules::halt_first},
                    Control{"witness", &membership::Rules::witness},
                    Control{"viewCheckOnData", &membership::Rules::view_check_on_data},
                    Control{"staging", &membership::Rules::staging},
                    Control{"leaveHalfCopied", &membership::Rules::leave_half_copied},
                    Control{"incarnationInViewNumber",
                            &membership::Rules::incarnation_in_view_number}),
    [](const testing::TestParamInfo<Control>& control) { return std::string(control.param.name); });

// With a second coordinator that stands by. -------------------------------------------------------

PeerOptions WithAStandby(int seed) {
  PeerOptions options = OptionsOf(seed);
  options.standby = true;
  options.faults = 10;
  options.steps = 40;  // it takes a standby seconds to notice
  return options;
}

TEST(StandbySimulation, AnUndisturbedRunFinishesInOneViewOfTheFirst) {
  PeerOptions options;
  options.faults = 0;
  options.standby = true;
  const Outcome outcome = Simulate(options);
  EXPECT_EQ(outcome.violation, "");
  EXPECT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.Of("views"), 1);
  EXPECT_EQ(outcome.Of("standbys"), 1);
  EXPECT_EQ(outcome.Of("successions"), 0);
}

TEST(StandbySimulation, OneHistoryIsPrintedOnRequest) {
  PrintHistory("STARLING_STANDBY_TRACE", WithAStandby);
}

TEST(StandbySimulation, TheInvariantsHoldWhateverFails) {
  const Outcome sum = Play(WithAStandby);
  EXPECT_GT(sum.Of("losses in company"), Seeds() / 4);
  EXPECT_GT(sum.Of("partitions"), Seeds() / 8);
  EXPECT_GT(sum.Of("successions"), Seeds() / 4);
  EXPECT_GT(sum.Of("promoted"), Seeds() / 4);
  EXPECT_GT(sum.Of("worker kills"), Seeds());
  EXPECT_GT(sum.Of("coordinators"), Seeds() * 3 / 2);
}

struct StandbyControl {
  const char* name;
  std::function<void(PeerOptions&)> drop;
};

// That a standby is armed is too seldom all that keeps harm away: standby_test.cc and the model
// have its counterexamples.
class WithoutAStandbyRule : public testing::TestWithParam<StandbyControl> {};

TEST_P(WithoutAStandbyRule, SomeHistoryBreaksAnInvariant) {
  const auto options_of = [](int seed) {
    PeerOptions options = WithAStandby(seed);
    GetParam().drop(options);
    return options;
  };
  EXPECT_NE(FindViolation(options_of, 5000), "");
}

using P = PeerOptions;
INSTANTIATE_TEST_SUITE_P(
    StandbySimulation, WithoutAStandbyRule,
    testing::Values(StandbyControl{"Acknowledges",
                                   [](P& o) { o.rules.standby_acknowledges = false; }},
                    StandbyControl{"Ceases", [](P& o) { o.rules.standby_ceases = false; }}),
    [](const testing::TestParamInfo<StandbyControl>& control) {
      return std::string(control.param.name);
    });

// Of jobs with parameter servers. -----------------------------------------------------------------

ShardOptions ShardOptionsOf(int seed) {
  ShardOptions options;
  options.seed = static_cast<std::uint64_t>(seed);
  options.servers = 2 + seed % 3;
  options.workers = 2 + seed / 3 % 2;
  options.replication = 1 + seed % 3;
  options.faults = 10;
  const consistency::Options models[] = {
      consistency::StaleSynchronous{0}, consistency::StaleSynchronous{1},
      consistency::BulkSynchronous{1 + seed / 8 % 4}, consistency::Asynchronous{}};
  options.model = models[seed / 2 % 4];
  // Some with loads, and shards enough to be moved.
  options.loads = seed % 2 == 0;
  if (options.loads) options.shards = 4;
  return options;
}

ShardOptions AtAWhim(int seed) {
  ShardOptions options = ShardOptionsOf(seed);
  options.whims = true;
  return options;
}

// Clients in groups, whose first sums up: what it forwards may meet retries, come twice, late or
// not at all, and it dies and sleeps like the others.
ShardOptions InATree(int seed) {
  ShardOptions options = ShardOptionsOf(seed);
  options.shards = 2;
  options.workers = 3 + seed % 3;
  options.fanout = 2 + seed / 4 % 2;
  if (seed % 5 == 0) options.model = consistency::SoftSync{1 + seed / 5 % 3, false};
  return options;
}

TEST(ShardSimulation, AnUndisturbedRunDoesAllOfItsWorkInOneView) {
  ShardOptions options;
  options.faults = 0;
  const Outcome outcome = Simulate(options);
  EXPECT_EQ(outcome.violation, "");
  EXPECT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.Of("views"), 1);
}

TEST(ShardSimulation, OneHistoryIsPrintedOnRequest) {
  const bool tree = FromEnvironment("STARLING_SHARD_TREE", 0) != 0;
  const bool whims = FromEnvironment("STARLING_SHARD_WHIMS", 0) != 0;
  PrintHistory("STARLING_SHARD_TRACE", [&](int seed) {
    ShardOptions options = tree ? InATree(seed) : ShardOptionsOf(seed);
    options.whims = whims;
    return options;
  });
}

// Where shards lie as it was planned, and where a seed puts them.
class ShardHistories : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(ShardSimulation, ShardHistories, testing::Bool(), [](const auto& whims) {
  return whims.param ? std::string("AtAWhim") : std::string("Planned");
});

TEST_P(ShardHistories, EveryUpdateIsInEveryShardOnceWhateverFails) {
  const Outcome sum = Play(GetParam() ? AtAWhim : ShardOptionsOf);
  // The faults did happen.
  EXPECT_GT(sum.Of("server kills"), Seeds());
  EXPECT_GT(sum.Of("worker kills"), Seeds() / 2);
  EXPECT_GT(sum.Of("pauses"), Seeds() / 2);
  EXPECT_GT(sum.Of("data cuts"), Seeds() / 10);
  EXPECT_GT(sum.Of("drained"), Seeds() / 10);
  EXPECT_GT(sum.Of("copies"), Seeds());
  EXPECT_GT(sum.Of("short copies"), Seeds() / 10);
  EXPECT_GT(sum.Of("copies") - sum.Of("short copies"), Seeds() / 10);
  EXPECT_GT(sum.Of("restores"), Seeds() / 20);
  EXPECT_GT(sum.Of("acknowledged"), 40 * Seeds());
  EXPECT_GT(sum.Of("skipped"), Seeds() / 10);
  EXPECT_GT(sum.Of("rests"), Seeds());
  EXPECT_GT(sum.Of("coordinators"), Seeds() * 3 / 2);
  EXPECT_GT(sum.Of("late views"), Seeds() / 100);
  EXPECT_GT(sum.Of("moves"), Seeds() / 15);
  EXPECT_GT(sum.Of("halts"), Seeds() / 10);
}

TEST_P(ShardHistories, PushesThatAreSummedUpOnTheWayAreInEveryShardOnceToo) {
  const Outcome sum = Play([](int seed) {
    ShardOptions options = InATree(seed);
    options.whims = GetParam();
    return options;
  });
  EXPECT_GT(sum.Of("aggregates"), 3 * Seeds());
  EXPECT_GT(sum.Of("individually"), Seeds());
  EXPECT_GT(sum.Of("worker kills"), Seeds() / 2);
  EXPECT_GT(sum.Of("restores"), Seeds() / 20);
  EXPECT_GT(sum.Of("skipped"), Seeds() / 10);
}

TEST(ShardSimulation, LeasesThatAreGivenBackAreInEveryShardOnceToo) {
  const Outcome sum = Play([](int seed) {
    ShardOptions options = ShardOptionsOf(seed);
    options.returns = true;
    return options;
  });
  EXPECT_GT(sum.Of("returns"), 2 * Seeds());
  EXPECT_GT(sum.Of("skipped"), Seeds() / 2) << "some shards had taken them";
  EXPECT_GT(sum.Of("worker kills"), Seeds() / 2);
}

TEST(ShardSimulation, WithoutLedgersALeaseThatIsGivenBackIsAppliedTwice) {
  const auto options_of = [](int seed) {
    ShardOptions options = ShardOptionsOf(seed);
    options.returns = true;
    options.faults = 0;
    options.shard_rules.lease_dedupe = false;
    return options;
  };
  EXPECT_NE(FindViolation(options_of), "");
}

TEST(ShardSimulation, WithoutTheRuleThatAnAggregateIsTakenWholeSomeUpdateIsAppliedTwice) {
  const auto options_of = [](int seed) {
    ShardOptions options = InATree(seed);
    options.shard_rules.whole_aggregates = false;
    return options;
  };
  EXPECT_NE(FindViolation(options_of), "");
}

// A shard waits for steps, and the first values belong to none: who begins a portion before they
// are in every shard has it taken, and may read for the next step without them.
TEST(ShardSimulation, UnlessTheFirstValuesAreFirstSomeShardTakesAPortionBeforeThem) {
  const auto options_of = [](int seed) {
    ShardOptions options = ShardOptionsOf(seed);
    options.first_values_first = false;
    return options;
  };
  EXPECT_THAT(FindViolation(options_of), testing::EndsWith("before it has the first values"));
}

struct ShardControl {
  const char* name;
  std::function<void(ShardOptions&)> drop;
};

// Where a history needs rarer luck, shard_counterexamples_test.cc plays it by hand.
class WithoutAShardRule : public testing::TestWithParam<ShardControl> {};

TEST_P(WithoutAShardRule, SomeHistoryBreaksAnInvariant) {
  const auto options_of = [](int seed) {
    ShardOptions options = AtAWhim(seed);
    GetParam().drop(options);
    return options;
  };
  EXPECT_NE(FindViolation(options_of), "");
}

using O = ShardOptions;
INSTANTIATE_TEST_SUITE_P(
    ShardSimulation, WithoutAShardRule,
    testing::Values(
        // Neither the servers ask for witnesses, nor the coordinator.
        ShardControl{"S1Witness",
                     [](O& o) { o.shard_rules.sync.witness = o.rules.witness = false; }},
        ShardControl{"S2Open", [](O& o) { o.shard_rules.open = false; }},
        ShardControl{"S3InOrder", [](O& o) { o.shard_rules.in_order = false; }},
        ShardControl{"S3LeaseDedupe", [](O& o) { o.shard_rules.lease_dedupe = false; }},
        ShardControl{"S3WholePushes", [](O& o) { o.shard_rules.whole_pushes = false; }},
        ShardControl{"S4TailOnly", [](O& o) { o.shard_rules.tail_only = false; }},
        ShardControl{"S4SameViewChain", [](O& o) { o.shard_rules.same_view_chain = false; }},
        ShardControl{"S5AcknowledgedInView",
                     [](O& o) { o.shard_rules.acknowledged_in_view = false; }},
        ShardControl{"S6OneObject", [](O& o) { o.shard_rules.one_object = false; }},
        ShardControl{"S7StartOver", [](O& o) { o.shard_rules.start_over = false; }},
        ShardControl{"S8DropDeparted", [](O& o) { o.shard_rules.clocks.drop_departed = false; }},
        ShardControl{"S8AdmitAtMinimum",
                     [](O& o) { o.shard_rules.clocks.admit_at_minimum = false; }},
        ShardControl{"S9Bound", [](O& o) { o.shard_rules.clocks.bound = false; }},
        ShardControl{"S10CacheIsNoState", [](O& o) { o.shard_rules.cache_is_no_state = false; }},
        ShardControl{"C4RosterWait", [](O& o) { o.whims = o.rules.roster_wait = false; }},
        ShardControl{"C5WaiveOnlyTheEnded", [](O& o) { o.rules.waive_ended = false; }},
        ShardControl{"PruneOnlyTheSynced", [](O& o) { o.rules.prune_synced = false; }},
        ShardControl{"S7RestartClients", [](O& o) { o.rules.restart_clients = false; }}),
    [](const testing::TestParamInfo<ShardControl>& control) {
      return std::string(control.param.name);
    });

// Of jobs where servers hold a part of the model and workers the rest.
// -----------------------------

HybridOptions HybridOptionsOf(int seed) {
  HybridOptions options;
  options.seed = static_cast<std::uint64_t>(seed);
  options.workers = 1 + seed % 4;
  options.servers = 1 + seed / 4 % 3;
  options.replication = 1 + seed / 2 % 2;
  options.portions = 2 + seed / 3 % 3;
  options.faults = 10;
  options.steps = 12;
  return options;
}

HybridOptions HybridAtAWhim(int seed) {
  HybridOptions options = HybridOptionsOf(seed);
  options.whims = true;
  options.loads = seed % 2 == 0;
  if (options.loads) options.shards = 4;
  return options;
}

HybridOptions HybridWithAStandby(int seed) {
  HybridOptions options = HybridOptionsOf(seed);
  options.standby = true;
  options.steps = 40;
  return options;
}

TEST(HybridSimulation, AnUndisturbedRunDoesAllOfItsWorkInOneView) {
  HybridOptions options;
  options.faults = 0;
  const Outcome outcome = Simulate(options);
  EXPECT_EQ(outcome.violation, "");
  EXPECT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.Of("views"), 1);
  EXPECT_EQ(outcome.Of("validations"), options.workers * (options.steps / options.validate_every));
}

TEST(HybridSimulation, OneHistoryIsPrintedOnRequest) {
  PrintHistory("STARLING_HYBRID_TRACE", HybridOptionsOf);
}

TEST(HybridSimulation, EveryPortionIsInTheReplicasAndInEveryShardOnceWhateverFails) {
  const Outcome sum = Play(HybridOptionsOf);
  // The faults did happen, and had to be made good.
  EXPECT_GT(sum.Of("worker kills"), Seeds() / 2);
  EXPECT_GT(sum.Of("server kills"), Seeds() / 2);
  EXPECT_GT(sum.Of("pauses"), Seeds() / 2);
  EXPECT_GT(sum.Of("coordinators"), Seeds() * 3 / 2);
  EXPECT_GT(sum.Of("copies"), Seeds() / 2);
  EXPECT_GT(sum.Of("restores"), Seeds() / 20);
  EXPECT_GT(sum.Of("halts"), Seeds() / 10);
  EXPECT_GT(sum.Of("drained"), Seeds() / 10);
  EXPECT_GT(sum.Of("skipped"), Seeds() / 10);
  EXPECT_GT(sum.Of("reads ahead"), Seeds() / 10);
  EXPECT_GT(sum.Of("catch-ups"), Seeds() / 20);
  EXPECT_GT(sum.Of("validations"), Seeds());
  EXPECT_GT(sum.Of("validations put off"), Seeds() / 100);
}

TEST(HybridSimulation, TheyAreThereOnceThoughShardsLieAnywhereAndMove) {
  const Outcome sum = Play(HybridAtAWhim);
  EXPECT_GT(sum.Of("moves"), Seeds() / 15);
  EXPECT_GT(sum.Of("restores"), Seeds() / 20);
  EXPECT_GT(sum.Of("catch-ups"), Seeds() / 20);
}

TEST(HybridSimulation, TheyAreThereOnceThoughAStandbyTakesOver) {
  const Outcome sum = Play(HybridWithAStandby);
  EXPECT_GT(sum.Of("partitions"), Seeds() / 8);
  EXPECT_GT(sum.Of("promoted"), Seeds() / 4);
  EXPECT_GT(sum.Of("reads ahead"), Seeds() / 10);
}

struct HybridControl {
  const char* name;
  std::function<void(HybridOptions&)> drop;
};

class WithoutAHybridRule : public testing::TestWithParam<HybridControl> {};

TEST_P(WithoutAHybridRule, SomeHistoryBreaksAnInvariant) {
  const auto options_of = [](int seed) {
    HybridOptions options = HybridOptionsOf(seed);
    GetParam().drop(options);
    return options;
  };
  EXPECT_NE(FindViolation(options_of), "");
}

using H = HybridOptions;
INSTANTIATE_TEST_SUITE_P(
    HybridSimulation, WithoutAHybridRule,
    testing::Values(
        HybridControl{"H1LeaseIsPortion", [](H& o) { o.lease_is_portion = false; }},
        HybridControl{"H2LedgerSkips", [](H& o) { o.shard_rules.lease_dedupe = false; }},
        HybridControl{"H3AcknowledgedBeforeWord", [](H& o) { o.acknowledged_before_word = false; }},
        HybridControl{"H4CatchUp", [](H& o) { o.catch_up = false; }},
        HybridControl{"OneOwner", [](H& o) { o.one_owner = false; }},
        HybridControl{"ValidatesStateBefore", [](H& o) { o.validates_state_before = false; }},
        HybridControl{"Witness",
                      [](H& o) { o.shard_rules.sync.witness = o.rules.witness = false; }},
        HybridControl{"S7RestartClients", [](H& o) { o.rules.restart_clients = false; }}),
    [](const testing::TestParamInfo<HybridControl>& control) {
      return std::string(control.param.name);
    });

}  // namespace
}  // namespace starling::simulation
