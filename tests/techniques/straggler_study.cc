// SPDX-License-Identifier: Apache-2.0
#include "tests/techniques/straggler_study.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tests/techniques/cluster.h"

namespace starling::techniques {
namespace {

constexpr int kWorkers = 8;
constexpr double kStep = 0.1;  // seconds that a worker needs for its batch
constexpr double kTurn = 2;    // the straggler is another one every so many
constexpr double kSlower = 10;
constexpr double kTarget = 0.95;
constexpr double kLongest = 300;
constexpr std::int64_t kBatch = 8;  // samples of a worker's push
constexpr const char* kSynchronous = "bulkSynchronous";

struct Contender {
  const char* name;
  consistency::Options model;
  double rate;  // of one update
};

// One update of a synchronous model is the mean of all workers' gradients; the others' is one
// worker's, so that equal samples move the parameters equally far.
std::vector<Contender> Contenders() {
  constexpr double kRate = 0.4;
  return {
      {kSynchronous, consistency::BulkSynchronous{kWorkers}, kRate},
      {"backupWorkers, 1 of 8", consistency::BackupWorkers{1}, kRate},
      {"staleSynchronous, 3", consistency::StaleSynchronous{3}, kRate / kWorkers},
      {"asynchronous", consistency::Asynchronous{}, kRate / kWorkers},
  };
}

ClusterResult Race(const Contender& contender, std::uint64_t seed, bool stragglers) {
  ClusterOptions options;
  options.problem = Digits(32);
  options.workers = kWorkers;
  options.batch = kBatch;
  options.seed = seed;
  options.leases = 1 << 20;
  options.seconds = kLongest;
  options.target = kTarget;
  options.evaluate_every = 4 * kWorkers;
  options.table.rule = Sgd();
  options.table.rate = [rate = contender.rate](std::int64_t) { return rate; };
  options.table.initial_scale = 0.1F;
  options.table.seed = seed;
  options.table.model = contender.model;
  options.latency = 0.002;
  options.compute = [stragglers](int worker, std::int64_t, double now) {
    const bool slow = stragglers && static_cast<int>(now / kTurn) % kWorkers == worker;
    return slow ? kSlower * kStep : kStep;
  };
  return Run(options);
}

}  // namespace

StragglerResult StragglerStudy(int seeds, bool without) {
  StragglerResult study;
  nlohmann::json all = {{"workers", kWorkers}, {"step", kStep},
                        {"slower", kSlower},   {"turn", kTurn},
                        {"target", kTarget},   {"batch", kBatch},
                        {"seeds", seeds},      {"runs", nlohmann::json::array()}};
  for (const bool stragglers : {false, true}) {
    if (!stragglers && !without) continue;
    for (const Contender& contender : Contenders()) {
      for (int seed = 1; seed <= seeds; ++seed) {
        const ClusterResult result = Race(contender, static_cast<std::uint64_t>(seed), stragglers);
        nlohmann::json curve = nlohmann::json::array();
        for (const ClusterPoint& point : result.curve) {
          curve.push_back({point.seconds, point.leases * kBatch, point.loss, point.accuracy});
        }
        study.runs.push_back({contender.name, stragglers, seed, result.reached});
        nlohmann::json reached = nullptr;
        if (std::isfinite(result.reached)) reached = result.reached;
        all["runs"].push_back(
            {{"model", contender.name},
             {"stragglers", stragglers},
             {"seed", seed},
             {"reached", reached},
             {"samples", static_cast<std::int64_t>(result.taken.size()) * kBatch},
             {"updates", result.updates},
             {"refused", result.refused},
             {"staleness",
              {{"mean", result.staleness.Mean()}, {"most", result.staleness.Maximum()}}},
             {"waited", result.seconds > 0 ? result.waited / (result.seconds * kWorkers) : 0},
             {"curve", std::move(curve)}});
      }
    }
  }
  study.json = all.dump() + "\n";
  return study;
}

std::vector<std::string> NotSooner(const std::vector<StragglerRun>& runs) {
  std::map<int, double> synchronous;  // by seed
  bool others = false;
  for (const StragglerRun& run : runs) {
    if (run.stragglers && run.model == kSynchronous) synchronous[run.seed] = run.reached;
  }
  std::vector<std::string> wrong;
  for (const StragglerRun& run : runs) {
    if (!run.stragglers || run.model == kSynchronous) continue;
    others = true;
    const auto beside = synchronous.find(run.seed);
    if (beside != synchronous.end() && run.reached < beside->second) continue;
    wrong.push_back(absl::StrCat(run.model, ", seed ", run.seed, ": the target after ", run.reached,
                                 " s, ", kSynchronous, " after ",
                                 beside == synchronous.end() ? kForever : beside->second, " s"));
  }
  if (!others) wrong.emplace_back("no run with a straggler");
  return wrong;
}

}  // namespace starling::techniques
