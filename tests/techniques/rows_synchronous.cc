// SPDX-License-Identifier: Apache-2.0
// Rows in which the pushes of one round become one update: PS-4 and PS-6.
#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/status/check.h"
#include "tests/techniques/cluster.h"
#include "tests/techniques/lesson.h"
#include "tests/techniques/rounds.h"
#include "tests/techniques/rows.h"
#include "trainer/data/batches.h"

namespace starling::techniques {
namespace {

double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  }
  return largest;
}

// A worker that takes `seconds` more than the others.
auto Straggler(int straggler, double seconds) {
  return
      [=](int worker, std::int64_t, double) { return 0.1 + (worker == straggler ? seconds : 0); };
}

double SecondsAStep(std::uint64_t seed, const consistency::Options& model, double slower) {
  ClusterOptions options = DigitsCluster(seed, model, 0.2);
  options.leases = 400;
  options.compute = Straggler(3, slower);
  const ClusterResult result = Run(options);
  return result.seconds / static_cast<double>(result.updates);
}

double RecallOfPinnedClass(std::uint64_t seed, bool pinned) {
  constexpr std::int64_t kClass = 7;
  ClusterOptions options = DigitsCluster(seed, consistency::BackupWorkers{1}, 0.2);
  options.leases = 1500;
  options.compute = Straggler(3, 1);
  std::vector<std::int64_t> with, without;
  for (std::int64_t id = 0; id < options.problem->samples(); ++id) {
    (options.problem->Label(id) == kClass ? with : without).push_back(id);
  }
  if (pinned) {
    options.pinned = [=](int worker, std::int64_t nth) {
      const std::vector<std::int64_t>& own = worker == 3 ? with : without;
      std::mt19937_64 random(seed * 1000003 + static_cast<std::uint64_t>(worker * 100000 + nth));
      std::vector<std::int64_t> ids(16);
      for (std::int64_t& id : ids) id = own[random() % own.size()];
      return ids;
    };
  }
  return options.problem->Recall(Run(options).parameters, kClass);
}

Rounds RoundsOf(const Lesson& lesson, std::uint64_t seed, double rate) {
  Rounds rounds;
  rounds.problem = lesson.problem;
  rounds.seed = seed;
  rounds.initial_scale = 0.1F;
  rounds.rate = rate;
  return rounds;
}

// Several workers with shares of the batch, beside one with all of it.
void JudgeShares(const Lesson& lesson, double rate, std::uint64_t seed, Report& report) {
  const std::string of = absl::StrCat(lesson.name, ", rate ", rate, ": ");
  Rounds network = RoundsOf(lesson, seed, rate);
  network.shares = [](std::int64_t) { return std::vector<int>{16}; };
  const std::vector<float> one = Synchronous(network);
  network.shares = [](std::int64_t) { return std::vector<int>{4, 4, 4, 4}; };
  report.Each(of + "4 workers beside 1, 100 steps: largest difference",
              LargestDifference(one, Synchronous(network)), Rule::kBelow, 1e-5);
  network.shares = [](std::int64_t) { return std::vector<int>{7, 5, 4}; };
  const std::vector<float> uneven = Synchronous(network);
  report.Each(of + "shares of 7, 5 and 4 samples: largest difference",
              LargestDifference(one, uneven), Rule::kBelow, 1e-5);
  network.arrival_seed = 77;
  report.Each(of + "pushes arrive in another order: largest difference",
              LargestDifference(uneven, Synchronous(network)), Rule::kEqual, 0);
  network.weighted = false;
  report.Control(of + "shares of 7, 5 and 4 averaged as if they were equal: largest difference",
                 LargestDifference(one, Synchronous(network)), Rule::kAbove, 1e-5);
}

}  // namespace

void BulkSynchronous(const Setting& setting, Report& report) {
  Rounds whole;
  whole.problem = WholeNumbers();
  whole.seed = setting.seed;
  whole.shares = [](std::int64_t) { return std::vector<int>{16}; };
  const std::vector<float> alone = Synchronous(whole);
  whole.shares = [](std::int64_t) { return std::vector<int>{4, 4, 4, 4}; };
  report.Each("whole numbers, 4 workers beside 1, 100 steps: largest difference",
              LargestDifference(alone, Synchronous(whole)), Rule::kEqual, 0);

  JudgeShares(DigitsLesson(), 0.1, setting.seed, report);
  const Lesson lesson = LessonOf(setting);
  if (lesson.name == kDigits) return;
  // Shares are rounded otherwise than the whole batch. Among some million maxima of its pools and
  // thresholds of its units one of a few is then another, and a network that learns fast makes
  // much of it: at this rate it cannot.
  JudgeShares(lesson, 0.001, setting.seed, report);
  Rounds fast = RoundsOf(lesson, setting.seed, lesson.rate);
  fast.shares = [](std::int64_t) { return std::vector<int>{16}; };
  const std::vector<float> whole_batch = Synchronous(fast);
  fast.shares = [](std::int64_t) { return std::vector<int>{4, 4, 4, 4}; };
  report.Tell(lesson.name + absl::StrCat(": 4 workers beside 1, 100 steps, rate ", lesson.rate,
                                         ", roundings grow: largest difference"),
              LargestDifference(whole_batch, Synchronous(fast)));
}

void BackupWorkers(const Setting& setting, Report& report) {
  const consistency::Options backup = consistency::BackupWorkers{1};
  const double quiet = SecondsAStep(setting.seed, backup, 0);
  report.Each("3 of 4, one worker 2 s slower: step time beside no straggler",
              SecondsAStep(setting.seed, backup, 2) / quiet, Rule::kBelow, 1.2);
  report.Control("all 4 waited for, one worker 2 s slower: step time beside no straggler",
                 SecondsAStep(setting.seed, consistency::BulkSynchronous{4}, 2) / quiet,
                 Rule::kAbove, 5);

  ClusterOptions traced = DigitsCluster(setting.seed, backup, 0.2);
  traced.leases = 900;
  traced.compute = Straggler(static_cast<int>(setting.seed) % 4, 0.13);
  std::int64_t wrong = 0, updates = 0;
  traced.on_update = [&](const consistency::Batch& batch) {
    ++updates;
    wrong += batch.members.size() == 3 ? 0 : 1;
    for (const auto& member : batch.members) wrong += member.clock != updates - 1 ? 1 : 0;
  };
  const ClusterResult result = Run(traced);
  report.Each("updates that are not 3 gradients of their own step", static_cast<double>(wrong),
              Rule::kEqual, 0);
  report.Tell("updates looked at", static_cast<double>(updates));
  report.Each("late pushes refused", static_cast<double>(result.refused), Rule::kAbove, 0);

  // Never heard of again, and no view without it yet.
  ClusterOptions silent = DigitsCluster(setting.seed, backup, 0.2);
  silent.leases = 600;
  silent.compute = [](int worker, std::int64_t round, double) {
    return worker == 2 && round == 50 ? 1e9 : 0.1;
  };
  report.Each("seconds for 200 steps of 0.1 s, one worker dead from the 50th on",
              Run(silent).seconds, Rule::kBelow, 20.5);

  const Lesson lesson = LessonOf(setting);
  ClusterOptions learned = ClusterOf(lesson, setting.seed, backup, lesson.rate);
  learned.compute = [](int worker, std::int64_t round, double) {
    return 0.1 + 0.01 * static_cast<double>((worker * 7 + round * 3) % 5);
  };
  JudgeBelowSynchronous(lesson, learned, "", setting.thorough ? 0.5 : 2, report);
  report.Each("a slow worker, leases given to whoever asks: recall of class 7",
              RecallOfPinnedClass(setting.seed, false), Rule::kAtLeast, 0.8);
  report.Control("class 7 pinned to the slow worker: its recall",
                 RecallOfPinnedClass(setting.seed, true), Rule::kAtMost, 0.2);
}

}  // namespace starling::techniques
