// SPDX-License-Identifier: Apache-2.0
#include "trainer/simulation/simulation.h"

#include <cstdlib>

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace starling::simulation {
namespace {

Options OptionsOf(int seed) {
  Options options;
  options.seed = static_cast<std::uint64_t>(seed);
  options.workers = 2 + seed % 3;
  return options;
}

TEST(Simulation, AnUndisturbedRunFinishesInOneView) {
  Options options;
  options.faults = 0;
  const Outcome outcome = Simulate(options);
  EXPECT_EQ(outcome.violation, "");
  EXPECT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.views, 1);
}

// For whoever looks for a mistake: STARLING_SIM_TRACE=57 prints the history of seed 57.
TEST(Simulation, OneHistoryIsPrintedOnRequest) {
  const char* seed = std::getenv("STARLING_SIM_TRACE");
  if (seed == nullptr) GTEST_SKIP() << "STARLING_SIM_TRACE is not set";
  Options options = OptionsOf(std::atoi(seed));
  options.trace = true;
  const Outcome outcome = Simulate(options);
  std::printf("%s\n%s\n", absl::StrJoin(outcome.trace, "\n").c_str(), outcome.violation.c_str());
}

int Seeds() {
  const char* seeds = std::getenv("STARLING_SIM_SEEDS");
  return seeds == nullptr ? 300 : std::atoi(seeds);
}

TEST(Simulation, TheInvariantsHoldWhateverFails) {
  Outcome sum;
  int failures = 0;
  for (int seed = 1; seed <= Seeds() && failures < 10; ++seed) {
    const Outcome outcome = Simulate(OptionsOf(seed));
    EXPECT_EQ(outcome.violation, "") << "seed " << seed;
    failures += outcome.violation.empty() ? 0 : 1;
    sum.events += outcome.events;
    sum.kills += outcome.kills;
    sum.pauses += outcome.pauses;
    sum.coordinators += outcome.coordinators;
    sum.copies += outcome.copies;
    sum.restores += outcome.restores;
    sum.committed += outcome.committed;
    sum.lags += outcome.lags;
    sum.halts += outcome.halts;
  }
  // The faults did happen.
  EXPECT_GT(sum.kills, Seeds());
  EXPECT_GT(sum.pauses, Seeds() / 2);
  EXPECT_GT(sum.coordinators, Seeds() * 3 / 2);
  EXPECT_GT(sum.copies, Seeds() / 2);
  EXPECT_GT(sum.restores, Seeds() / 100);
  EXPECT_GT(sum.committed, Seeds());
  EXPECT_GT(sum.lags, Seeds());
  EXPECT_GT(sum.halts, Seeds() / 10);
  RecordProperty("events", std::to_string(sum.events));
}

struct Control {
  const char* name;
  bool membership::Rules::*rule;
};

// The other rules need rarer luck: counterexamples_test.cc plays their histories by hand.
class WithoutARule : public testing::TestWithParam<Control> {};

TEST_P(WithoutARule, SomeHistoryBreaksAnInvariant) {
  int seed = 1;
  std::string violation;
  for (; seed <= 5000 && violation.empty(); ++seed) {
    Options options = OptionsOf(seed);
    options.rules.*GetParam().rule = false;
    violation = Simulate(options).violation;
  }
  RecordProperty("seed", seed - 1);
  RecordProperty("violation", violation);
  EXPECT_NE(violation, "");
}

INSTANTIATE_TEST_SUITE_P(
    Simulation, WithoutARule,
    testing::Values(Control{"haltFirst", &membership::Rules::halt_first},
                    Control{"witness", &membership::Rules::witness},
                    Control{"viewCheckOnData", &membership::Rules::view_check_on_data},
                    Control{"staging", &membership::Rules::staging},
                    Control{"incarnationInViewNumber",
                            &membership::Rules::incarnation_in_view_number}),
    [](const testing::TestParamInfo<Control>& control) { return std::string(control.param.name); });

}  // namespace
}  // namespace starling::simulation
