// SPDX-License-Identifier: Apache-2.0
#include "trainer/simulation/slot_simulation.h"

#include <cstdlib>
#include <functional>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::simulation {
namespace {

SlotOptions OptionsOf(int seed) {
  SlotOptions options;
  options.seed = static_cast<std::uint64_t>(seed);
  options.servers = 2 + seed % 3;
  options.clients = 2 + seed / 3 % 2;
  options.replication = 1 + seed % 3;
  const consistency::Options models[] = {
      consistency::StaleSynchronous{0}, consistency::StaleSynchronous{1},
      consistency::BulkSynchronous{1 + seed / 8 % 4}, consistency::Asynchronous{}};
  options.model = models[seed / 2 % 4];
  return options;
}

// Clients in groups, whose first sums up: what it forwards may meet retries, come twice, late or
// not at all, and it dies and sleeps like the others.
SlotOptions InATree(int seed) {
  SlotOptions options = OptionsOf(seed);
  options.clients = 3 + seed % 3;
  options.fanout = 2 + seed / 4 % 2;
  if (seed % 5 == 0) options.model = consistency::SoftSync{1 + seed / 5 % 3, false};
  return options;
}

TEST(SlotSimulation, AnUndisturbedRunDoesAllOfItsWorkInOneView) {
  SlotOptions options;
  options.faults = 0;
  const SlotOutcome outcome = SimulateSlots(options);
  EXPECT_EQ(outcome.violation, "");
  EXPECT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.views, 1);
}

// For whoever looks for a mistake: STARLING_SLOT_TRACE=57 prints the history of seed 57.
TEST(SlotSimulation, OneHistoryIsPrintedOnRequest) {
  const char* seed = std::getenv("STARLING_SLOT_TRACE");
  if (seed == nullptr) GTEST_SKIP() << "STARLING_SLOT_TRACE is not set";
  SlotOptions options = OptionsOf(std::atoi(seed));
  if (std::getenv("STARLING_SLOT_TREE") != nullptr) options = InATree(std::atoi(seed));
  options.planned = std::getenv("STARLING_SLOT_PLANNED") != nullptr;
  options.loads = options.planned && std::atoi(seed) % 2 == 0;
  if (options.loads) options.slots = 4;
  options.trace = true;
  const SlotOutcome outcome = SimulateSlots(options);
  std::printf("%s\n%s\n", absl::StrJoin(outcome.trace, "\n").c_str(), outcome.violation.c_str());
}

int Seeds() {
  const char* seeds = std::getenv("STARLING_SIM_SEEDS");
  return seeds == nullptr ? 300 : std::atoi(seeds);
}

// What happened in histories of all seeds, ten of which may fail.
SlotOutcome Play(const std::function<SlotOptions(int seed)>& options_of) {
  SlotOutcome sum;
  int failures = 0;
  for (int seed = 1; seed <= Seeds() && failures < 10; ++seed) {
    const SlotOutcome outcome = SimulateSlots(options_of(seed));
    EXPECT_EQ(outcome.violation, "") << "seed " << seed;
    failures += outcome.violation.empty() ? 0 : 1;
    sum.events += outcome.events;
    sum.views += outcome.views;
    sum.server_kills += outcome.server_kills;
    sum.client_kills += outcome.client_kills;
    sum.pauses += outcome.pauses;
    sum.broken_links += outcome.broken_links;
    sum.copies += outcome.copies;
    sum.short_copies += outcome.short_copies;
    sum.restores += outcome.restores;
    sum.takeovers += outcome.takeovers;
    sum.moves += outcome.moves;
    sum.late_views += outcome.late_views;
    sum.acknowledged += outcome.acknowledged;
    sum.skipped += outcome.skipped;
    sum.rests += outcome.rests;
    sum.reads += outcome.reads;
    sum.aggregates += outcome.aggregates;
    sum.singly += outcome.singly;
    sum.returns += outcome.returns;
    sum.refused += outcome.refused;
  }
  return sum;
}

// Under views that a seed makes up, and under those of the coordinator's own rules.
class SlotHistories : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(SlotSimulation, SlotHistories, testing::Bool(), [](const auto& planned) {
  return planned.param ? std::string("Planned") : std::string("MadeUp");
});

TEST_P(SlotHistories, EveryUpdateIsInEverySlotOnceWhateverFails) {
  const SlotOutcome sum = Play([](int seed) {
    SlotOptions history = OptionsOf(seed);
    history.planned = GetParam();
    // Some with loads, and slots enough to be moved.
    history.loads = GetParam() && seed % 2 == 0;
    if (history.loads) history.slots = 4;
    return history;
  });
  // The faults did happen.
  EXPECT_GT(sum.server_kills, Seeds());
  EXPECT_GT(sum.client_kills, Seeds() / 2);
  EXPECT_GT(sum.pauses, Seeds() / 2);
  EXPECT_GT(sum.broken_links, Seeds() / 10);
  EXPECT_GT(sum.copies, Seeds());
  EXPECT_GT(sum.short_copies, Seeds() / 10);
  EXPECT_GT(sum.copies - sum.short_copies, Seeds() / 10);
  EXPECT_GT(sum.restores, Seeds() / 20);
  EXPECT_GT(sum.acknowledged, 40 * Seeds());
  EXPECT_GT(sum.skipped, Seeds() / 10);
  EXPECT_GT(sum.rests, Seeds());
  // A slot had some portions of a push, and not all; the real coordinator deals them so that after
  // a restore most are cut as before.
  EXPECT_GT(sum.refused, GetParam() ? -1 : 0);
  EXPECT_EQ(sum.takeovers > Seeds() / 2, GetParam());
  EXPECT_EQ(sum.moves > Seeds() / 15, GetParam());
  EXPECT_EQ(sum.late_views > Seeds() / 20, GetParam());
  RecordProperty("events", std::to_string(sum.events));
  RecordProperty("moves", std::to_string(sum.moves));
  RecordProperty("views", std::to_string(sum.views));
}

TEST_P(SlotHistories, PushesThatAreSummedUpOnTheWayAreInEverySlotOnceToo) {
  const SlotOutcome sum = Play([](int seed) {
    SlotOptions history = InATree(seed);
    history.planned = GetParam();
    return history;
  });
  EXPECT_GT(sum.aggregates, 3 * Seeds());
  EXPECT_GT(sum.singly, Seeds());
  EXPECT_GT(sum.client_kills, Seeds() / 2);
  EXPECT_GT(sum.restores, Seeds() / 20);
  EXPECT_GT(sum.skipped, Seeds() / 10);
  RecordProperty("aggregates", std::to_string(sum.aggregates));
  RecordProperty("singly", std::to_string(sum.singly));
}

TEST(SlotSimulation, LeasesThatAreGivenBackAreInEverySlotOnceToo) {
  const SlotOutcome sum = Play([](int seed) {
    SlotOptions history = OptionsOf(seed);
    history.planned = true;
    history.returns = true;
    return history;
  });
  EXPECT_GT(sum.returns, 2 * Seeds());
  EXPECT_GT(sum.skipped, Seeds() / 2) << "some slots had taken them";
  EXPECT_GT(sum.client_kills, Seeds() / 2);
  EXPECT_GT(sum.takeovers, Seeds() / 2);
  RecordProperty("returns", std::to_string(sum.returns));
}

TEST(SlotSimulation, WithoutLedgersALeaseThatIsGivenBackIsAppliedTwice) {
  std::string violation;
  for (int seed = 1; seed <= 2000 && violation.empty(); ++seed) {
    SlotOptions options = OptionsOf(seed);
    options.planned = true;
    options.returns = true;
    options.faults = 0;
    options.rules.lease_dedupe = false;
    violation = SimulateSlots(options).violation;
  }
  EXPECT_NE(violation, "");
}

TEST(SlotSimulation, WithoutTheRuleThatAnAggregateIsTakenWholeSomeUpdateIsAppliedTwice) {
  std::string violation;
  for (int seed = 1; seed <= 2000 && violation.empty(); ++seed) {
    SlotOptions options = InATree(seed);
    options.rules.whole_aggregates = false;
    violation = SimulateSlots(options).violation;
  }
  EXPECT_NE(violation, "");
}

// A slot waits for steps, and the first values belong to none: who is given a portion before they
// are in every slot has it taken, and may read for the next step without them (seed 372).
TEST(SlotSimulation, UnlessTheFirstValuesAreFirstSomeSlotTakesAPortionBeforeThem) {
  std::string violation;
  for (int seed = 1; seed <= 2000 && violation.empty(); ++seed) {
    SlotOptions options = OptionsOf(seed);
    options.first_values_first = false;
    violation = SimulateSlots(options).violation;
  }
  EXPECT_THAT(violation, testing::EndsWith("before it has the first values"));
}

struct Control {
  const char* name;
  std::function<void(parameter_server::Rules&)> drop;
};

// Where a history needs rarer luck, slot_counterexamples_test.cc plays it by hand.
class WithoutASlotRule : public testing::TestWithParam<Control> {};

TEST_P(WithoutASlotRule, SomeHistoryBreaksAnInvariant) {
  int seed = 1;
  std::string violation;
  for (; seed <= 2000 && violation.empty(); ++seed) {
    SlotOptions options = OptionsOf(seed);
    GetParam().drop(options.rules);
    violation = SimulateSlots(options).violation;
  }
  RecordProperty("seed", seed - 1);
  RecordProperty("violation", violation);
  EXPECT_NE(violation, "");
}

using parameter_server::Rules;
INSTANTIATE_TEST_SUITE_P(
    SlotSimulation, WithoutASlotRule,
    testing::Values(
        Control{"S1Witness", [](Rules& r) { r.sync.witness = false; }},
        Control{"S2Open", [](Rules& r) { r.open = false; }},
        Control{"S3InOrder", [](Rules& r) { r.in_order = false; }},
        Control{"S3LeaseDedupe", [](Rules& r) { r.lease_dedupe = false; }},
        Control{"S3WholePushes", [](Rules& r) { r.whole_pushes = false; }},
        Control{"S4TailOnly", [](Rules& r) { r.tail_only = false; }},
        Control{"S4SameViewChain", [](Rules& r) { r.same_view_chain = false; }},
        Control{"S5AcknowledgedInView", [](Rules& r) { r.acknowledged_in_view = false; }},
        Control{"S6OneObject", [](Rules& r) { r.one_object = false; }},
        Control{"S7StartOver", [](Rules& r) { r.start_over = false; }},
        Control{"S8DropDeparted", [](Rules& r) { r.clocks.drop_departed = false; }},
        Control{"S8AdmitAtMinimum", [](Rules& r) { r.clocks.admit_at_minimum = false; }},
        Control{"S10CacheIsNoState", [](Rules& r) { r.cache_is_no_state = false; }},
        Control{"S9Bound", [](Rules& r) { r.clocks.bound = false; }}),
    [](const testing::TestParamInfo<Control>& control) { return std::string(control.param.name); });

struct PlanControl {
  const char* name;
  std::function<void(membership::Rules&)> drop;
};

class WithoutAPlanRule : public testing::TestWithParam<PlanControl> {};

TEST_P(WithoutAPlanRule, SomeHistoryBreaksAnInvariant) {
  int seed = 1;
  std::string violation;
  for (; seed <= 2000 && violation.empty(); ++seed) {
    SlotOptions options = OptionsOf(seed);
    options.planned = true;
    GetParam().drop(options.plan);
    violation = SimulateSlots(options).violation;
  }
  RecordProperty("seed", seed - 1);
  RecordProperty("violation", violation);
  EXPECT_NE(violation, "");
}

using PlanRules = membership::Rules;
INSTANTIATE_TEST_SUITE_P(
    SlotSimulation, WithoutAPlanRule,
    testing::Values(PlanControl{"C4RosterWait", [](PlanRules& r) { r.roster_wait = false; }},
                    PlanControl{"C5WaiveOnlyTheEnded", [](PlanRules& r) { r.waive_ended = false; }},
                    PlanControl{"PruneOnlyTheSynced", [](PlanRules& r) { r.prune_synced = false; }},
                    PlanControl{"S7RestartClients",
                                [](PlanRules& r) { r.restart_clients = false; }}),
    [](const testing::TestParamInfo<PlanControl>& control) {
      return std::string(control.param.name);
    });

}  // namespace
}  // namespace starling::simulation
