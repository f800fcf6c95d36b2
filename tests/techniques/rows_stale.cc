// SPDX-License-Identifier: Apache-2.0
// Rows in which a worker may run ahead of the slowest, but not far: PS-8 and PS-9.
#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <numeric>
#include <random>

#include "tests/techniques/cluster.h"
#include "tests/techniques/factorization.h"
#include "tests/techniques/lesson.h"
#include "tests/techniques/rows.h"
#include "trainer/data/batches.h"
#include "trainer/optimizer/server_rules.h"

namespace starling::techniques {
namespace {

// In each round another worker, at random, takes `more` seconds more.
auto Rotating(std::uint64_t seed, int workers, double base, double more) {
  return [=](int worker, std::int64_t round, double) {
    std::mt19937_64 random(seed * 7919 + static_cast<std::uint64_t>(round));
    return base +
           (static_cast<int>(random() % static_cast<std::uint64_t>(workers)) == worker ? more : 0);
  };
}

struct ClockTable {
  std::int64_t too_old = 0;  // entries that a read lacked
  std::int64_t own_wrong = 0;
  std::int64_t reads = 0;
  std::int64_t spread = 0;
};

// Row i holds how many clocks worker i has pushed: what a read contains is plain to see.
ClockTable WatchClocks(std::uint64_t seed, std::int64_t staleness, bool bound) {
  constexpr int kWorkers = 4;
  ClusterOptions options = DigitsCluster(seed, consistency::StaleSynchronous{staleness}, 1);
  options.problem = WholeNumbers();
  options.table.rule = optimizer::MakeAdd();
  options.table.initial_scale = 0;
  options.table.clocks.bound = bound;
  options.leases = 1000;
  options.compute = Rotating(seed, kWorkers, 0.01, 0.05);
  options.make_update = [](int worker, Clock, std::vector<float>& update) {
    std::fill(update.begin(), update.end(), 0.0F);
    update[static_cast<std::size_t>(worker)] = 1;
  };
  ClockTable seen;
  options.on_read = [&](int worker, Clock clock, std::span<const float> values) {
    ++seen.reads;
    for (int other = 0; other < kWorkers; ++other) {
      const auto entry = static_cast<Clock>(values[static_cast<std::size_t>(other)]);
      if (other == worker) seen.own_wrong += entry != clock ? 1 : 0;
      seen.too_old += entry < clock - staleness ? 1 : 0;
    }
  };
  seen.spread = Run(options).spread;
  return seen;
}

std::vector<float> WholeNumberRun(std::uint64_t seed, const consistency::Options& model,
                                  double rate) {
  ClusterOptions options = DigitsCluster(seed, model, rate);
  options.problem = WholeNumbers();
  options.table.initial_scale = 0;
  options.batch = 2;  // whose mean is exact; the epoch's short batch is not reached
  options.leases = 400;
  options.compute = Rotating(seed, 4, 0.01, 0.05);
  // The same four in each round, whoever is given which lease.
  const data::Batches batches(options.problem->samples(), options.batch, seed);
  options.pinned = [&](int worker, std::int64_t round) {
    return batches.SampleIds(4 * round + worker + 1);
  };
  return Run(options).parameters;
}

std::int64_t Differing(const std::vector<float>& a, const std::vector<float>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), std::int64_t{0}, std::plus<>(),
                            [](float x, float y) { return std::int64_t{x != y}; });
}

double SecondsWith(std::uint64_t seed, std::int64_t staleness) {
  ClusterOptions options = DigitsCluster(seed, consistency::StaleSynchronous{staleness}, 0.05);
  options.leases = 800;
  options.compute = Rotating(seed, 4, 0.01, 0.05);
  return Run(options).seconds;
}

ClusterOptions Adaptive(std::uint64_t seed, std::unique_ptr<optimizer::Optimizer> rule,
                        int workers) {
  ClusterOptions options = DigitsCluster(seed, consistency::Asynchronous{}, 0.1);
  options.table.rule = std::move(rule);
  options.workers = workers;
  options.leases = 1500;
  return options;
}

}  // namespace

void StaleSynchronous(const Setting& setting, Report& report) {
  for (const std::int64_t staleness : {0, 1, 3}) {
    const ClockTable seen = WatchClocks(setting.seed, staleness, true);
    const std::string of = ", s = " + std::to_string(staleness);
    report.Each("entries older than a read may miss" + of, static_cast<double>(seen.too_old),
                Rule::kEqual, 0);
    report.Each("reads without all of the reader's own pushes" + of,
                static_cast<double>(seen.own_wrong), Rule::kEqual, 0);
    report.Each("clocks between the fastest and the slowest, at most" + of,
                static_cast<double>(seen.spread), Rule::kAtMost,
                static_cast<double>(staleness + 1));
  }
  report.Control("without the bound, s = 1: entries older than a read may miss",
                 static_cast<double>(WatchClocks(setting.seed, 1, false).too_old), Rule::kAbove, 0);
  report.Each("s = 0 beside bulk-synchronous, whole numbers: parameters that differ",
              static_cast<double>(
                  Differing(WholeNumberRun(setting.seed, consistency::StaleSynchronous{0}, 0.25),
                            WholeNumberRun(setting.seed, consistency::BulkSynchronous{4}, 1))),
              Rule::kEqual, 0);
  report.Each("time with s = 3 beside s = 0, a random worker 50 ms slower in each round",
              SecondsWith(setting.seed, 3) / SecondsWith(setting.seed, 0), Rule::kBelow, 0.7);
  const Lesson lesson = LessonOf(setting);
  ClusterOptions learned =
      ClusterOf(lesson, setting.seed, consistency::StaleSynchronous{3}, lesson.rate / 4);
  learned.compute = Rotating(setting.seed, 4, 0.01, 0.05);
  JudgeBelowSynchronous(lesson, learned, ", s = 3", setting.thorough ? 0.5 : 2, report);
}

void ManagedCommunication(const Setting& setting, Report& report) {
  FactorizationOptions options;
  options.seed = setting.seed;
  options.priority = consistency::Priority::kFifo;
  const FactorizationResult fifo = Factorize(options);
  options.priority = consistency::Priority::kRelativeMagnitude;
  const FactorizationResult magnitude = Factorize(options);
  report.Each("bytes in any second beside the budget, by age", fifo.busiest_second, Rule::kAtMost,
              1.05);
  report.Each("bytes in any second beside the budget, by relative magnitude",
              magnitude.busiest_second, Rule::kAtMost, 1.05);
  report.Each("reads that lack what stale synchronous promises",
              static_cast<double>(fifo.too_old + magnitude.too_old), Rule::kEqual, 0);
  report.Tell("updates to the target loss, by relative magnitude beside by age",
              static_cast<double>(magnitude.updates) / static_cast<double>(fifo.updates));
  options.budgeted = false;
  report.Control("no budget: bytes in any second beside it", Factorize(options).busiest_second,
                 Rule::kAbove, 1.05);

  const std::vector<float> adagrad =
      Run(Adaptive(setting.seed, optimizer::MakeAdagrad({}), 1)).parameters;
  report.Each(
      "AdaRevision without delay: parameters that differ from Adagrad's",
      static_cast<double>(Differing(
          adagrad, Run(Adaptive(setting.seed, optimizer::MakeAdaRevision({}), 1)).parameters)),
      Rule::kEqual, 0);
  const auto loss = [&](std::unique_ptr<optimizer::Optimizer> rule) {
    const ClusterOptions late = Adaptive(setting.seed, std::move(rule), 16);
    return late.problem->Loss(Run(late).parameters);
  };
  report.Mean("AdaRevision beside Adagrad, staleness 15: final loss",
              loss(optimizer::MakeAdaRevision({})) / loss(optimizer::MakeAdagrad({})), Rule::kBelow,
              1);
}

}  // namespace starling::techniques
