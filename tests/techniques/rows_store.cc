// SPDX-License-Identifier: Apache-2.0
// Rows about the store itself: PS-1 and PS-22.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/status/check.h"
#include "common/status/macros.h"
#include "tests/techniques/cluster.h"
#include "tests/techniques/loops.h"
#include "tests/techniques/rounds.h"
#include "tests/techniques/rows.h"
#include "trainer/optimizer/server_rules.h"
#include "trainer/simulation/simulation.h"

namespace starling::techniques {
namespace {

using parameter_server::ClientLoop;
using parameter_server::Entry;

absl::StatusOr<std::vector<float>> Pulled(ClientLoop& client, std::size_t shard, std::uint64_t rows,
                                          Clock clock) {
  parameter_server::Read read;
  read.clock = clock;
  read.rows = rows;
  ASSIGN_OR_RETURN(const parameter_server::ReadDone done, client.Pull(shard, read, Soon()));
  std::vector<float> values(rows);
  std::memcpy(values.data(), done.values->data(), done.values->size());
  return values;
}

// --- PS-1

// Random pushes of whole numbers to a sparse table and to a map: rows that differ.
std::int64_t SparseTraceDiffers(std::uint64_t seed) {
  auto table = std::make_shared<parameter_server::TableSpec>();
  table->name = "sparse";
  table->kind = parameter_server::TableKind::kSparse;
  table->width = 2;
  table->rule = optimizer::MakeAdd();
  parameter_server::ShardState shard(
      {table, {0, parameter_server::kHashEnd}, consistency::Asynchronous{}, {}});
  shard.OnView({ClientOf(0), ClientOf(1)});
  std::mt19937_64 random(seed);
  std::map<std::uint64_t, std::array<float, 2>> oracle;
  std::int64_t differing = 0, sequence = 0;
  for (int round = 0; round < 300; ++round) {
    std::set<std::uint64_t> keys;
    while (keys.size() < 8) keys.insert(random() % 200 * 0x123456789ULL);
    const std::vector<std::uint64_t> list(keys.begin(), keys.end());
    std::vector<float> values;
    for (const std::uint64_t key : list) {
      for (std::size_t i = 0; i < 2; ++i) {
        values.push_back(static_cast<float>(random() % 9) - 4);
        oracle[key][i] += values.back();
      }
    }
    Entry entry;
    entry.client = ClientOf(0);
    entry.sequence = ++sequence;
    entry.update =
        parameter_server::Encode({parameter_server::UpdateKind::kRows, 0, 0, 0, list, values, {}});
    (void)shard.Append(entry);
    const absl::StatusOr<std::string> bytes = shard.Read({0, 0, list});
    STARLING_CHECK(bytes.ok(), bytes.status().ToString().c_str());
    for (std::size_t i = 0; i < list.size(); ++i) {
      std::array<float, 2> read;
      std::memcpy(read.data(), bytes->data() + i * sizeof(read), sizeof(read));
      differing += read != oracle[list[i]] ? 1 : 0;
    }
  }
  return differing;
}

struct Tasks {
  std::int64_t early = 0;  // that begin while one older than their number less `delay` is open
  double waited = 0;       // seconds, by all workers
};
Tasks PlayTasks(std::uint64_t seed, std::int64_t delay, bool bound) {
  ClusterOptions options;
  options.problem = WholeNumbers();
  options.seed = seed;
  options.table = Sums(0, consistency::BoundedDelay{delay});
  options.table.clocks.bound = bound;
  options.leases = 400;
  std::mt19937_64 random(seed);
  options.compute = [&random](int, std::int64_t, double) {
    return 0.01 + 0.001 * static_cast<double>(random() % 40);
  };
  // The oracle's own numbers: a client's next task is numbered when the one before is finished.
  std::map<int, std::int64_t> tasks = {{0, 0}, {1, 1}, {2, 2}, {3, 3}};
  std::int64_t next = 4;
  Tasks seen;
  options.make_update = [&](int worker, Clock, std::vector<float>&) { tasks[worker] = next++; };
  options.on_read = [&](int worker, Clock, std::span<const float>) {
    for (const auto& [other, task] : tasks) seen.early += task < tasks[worker] - delay ? 1 : 0;
  };
  seen.waited = Run(options).waited;
  return seen;
}

struct KillOutcome {
  double wrong = 0;  // elements that are not the sum of all that was acknowledged
  double acknowledged = 0;
};

// Two servers; one dies in the middle of the pushes. Without a replica it comes back empty.
KillOutcome KillOneOfTwo(std::uint64_t seed, int replication) {
  constexpr std::size_t kShards = 4;
  constexpr std::uint64_t kRows = 64;
  constexpr std::int64_t kPushes = 40;
  const std::vector<parameter_server::ShardOptions> shards(
      kShards, ShardOf(Sums(kRows, consistency::Asynchronous{})));
  Loops loops(2, 1, shards, replication);
  const auto kill_after = static_cast<std::int64_t>(5 + seed % 25);
  KillOutcome outcome;
  const std::vector<float> ones(kRows, 1);
  std::int64_t made = 0;
  (void)loops.InView(1, {0, 1}, {0}, [&](int, ClientLoop& client) {
    for (; made < kPushes; ++made) {
      if (made == kill_after) loops.Kill(0);
      for (std::size_t shard = 0; shard < kShards; ++shard) {
        (void)client.Push(shard,
                          PushOf(ones, made, static_cast<parameter_server::Lease>(made + 1)));
      }
      if (absl::Status status = client.Drain(Soon()); !status.ok()) {
        ++made;  // it is sent again in the next view
        return status;
      }
      ++outcome.acknowledged;
    }
    return absl::OkStatus();
  });
  std::vector<int> left = {1};
  if (replication == 1) {
    loops.Forget(0);
    left = {0, 1};
  }
  // Without a replica the shards of the dead server have nobody to go on from; nobody waits for
  // that.
  const net::Deadline patience =
      net::Deadline::After(replication == 1 ? absl::Milliseconds(300) : absl::Seconds(60));
  outcome.wrong = 0;
  const auto results = loops.InView(2, left, {0}, [&](int, ClientLoop& client) -> absl::Status {
    RETURN_IF_ERROR(client.Drain(patience));
    for (std::size_t shard = 0; shard < kShards; ++shard) {
      ASSIGN_OR_RETURN(const std::vector<float> values, Pulled(client, shard, kRows, made));
      for (const float value : values) {
        outcome.wrong += value == static_cast<float>(made) ? 0 : 1;
      }
    }
    return absl::OkStatus();
  });
  if (!results[0].ok()) outcome.wrong = static_cast<double>(kShards * kRows);
  return outcome;
}

// --- PS-22

// Servers 1, 2, 1 and workers 2, 4, 1 over real links, all pushing whole numbers: wrong elements.
double ResizedSums() {
  constexpr std::size_t kShards = 4;
  constexpr std::uint64_t kRows = 64;
  Loops loops(2, 4,
              std::vector<parameter_server::ShardOptions>(
                  kShards, ShardOf(Sums(kRows, consistency::StaleSynchronous{1 << 20}))),
              2);
  std::atomic<std::int64_t> pushes{0};
  std::atomic<std::int64_t> wrong{0};
  const std::vector<float> ones(kRows, 1);
  const auto push_some = [&](int, ClientLoop& client) -> absl::Status {
    for (int i = 0; i < 10; ++i) {
      for (std::size_t shard = 0; shard < kShards; ++shard)
        (void)client.Push(shard, PushOf(ones, 0));
      ++pushes;
    }
    return client.Drain(Soon());
  };
  (void)loops.InView(1, {0}, {0, 1}, push_some);
  (void)loops.InView(2, {0, 1}, {0, 1, 2, 3}, push_some);
  (void)loops.InView(3, {1}, {3}, [&](int worker, ClientLoop& client) -> absl::Status {
    RETURN_IF_ERROR(push_some(worker, client));
    for (std::size_t shard = 0; shard < kShards; ++shard) {
      ASSIGN_OR_RETURN(const std::vector<float> values, Pulled(client, shard, kRows, 0));
      for (const float value : values) {
        wrong += value == static_cast<float>(pushes.load()) ? 0 : 1;
      }
    }
    return absl::OkStatus();
  });
  return pushes == 70 ? static_cast<double>(wrong.load()) : 1e9;
}

struct Histories {
  double violations = 0, kills = 0, takeovers = 0;
};
Histories PlayHistories(std::uint64_t seed, int count, bool lease_dedupe) {
  Histories sum;
  for (int i = 0; i < count; ++i) {
    simulation::ShardOptions options;
    options.seed = seed * 100000 + static_cast<std::uint64_t>(i);
    options.servers = 2 + i % 3;
    options.workers = 2 + i / 3 % 2;
    options.replication = 1 + i % 3;
    options.shard_rules.lease_dedupe = lease_dedupe;
    const simulation::Outcome outcome = simulation::Simulate(options);
    sum.violations += outcome.violation.empty() ? 0 : 1;
    sum.kills += static_cast<double>(outcome.Of("server kills"));
    sum.takeovers += static_cast<double>(outcome.Of("coordinators") - 1);
    if (!lease_dedupe && sum.violations > 0) break;
  }
  return sum;
}

ClusterOptions ElasticRun(std::uint64_t seed) {
  ClusterOptions options;
  options.problem = Digits(32);
  options.seed = seed;
  options.workers = 2;
  options.table.rule = Sgd();
  options.table.rate = [](std::int64_t) { return 0.05; };
  options.table.initial_scale = 0.1F;
  options.table.seed = seed;
  options.table.model = consistency::StaleSynchronous{3};
  options.leases = 40 * 90;  // epochs of 90 leases
  options.evaluate_every = 90;
  options.compute = [](int worker, std::int64_t round, double) {
    return 0.01 + 0.001 * static_cast<double>((worker * 5 + round) % 7);
  };
  return options;
}

// Workers 2, 4, 1: of four three are killed, each with a lease begun.
ClusterOptions ResizedRun(std::uint64_t seed) {
  ClusterOptions options = ElasticRun(seed);
  options.changes = {{3, {0, 1, 2, 3}}, {8, {2}}};
  return options;
}

// Of the first so many leases that were done: those that are missing, or there more often.
double NotDoneOnce(const ClusterResult& result) {
  std::vector<std::int64_t> taken = result.taken;
  std::sort(taken.begin(), taken.end());
  double wrong = 0;
  for (std::size_t i = 0; i < taken.size(); ++i) {
    wrong += taken[i] != static_cast<std::int64_t>(i) + 1;
  }
  return wrong;
}

// The geometric mean over epochs 3 to 20, in which losses still fall, of a run's loss divided by
// another's after as many leases.
double LossBeside(const ClusterResult& run, const ClusterResult& other) {
  double sum = 0;
  for (std::size_t epoch = 3; epoch <= 20; ++epoch) {
    sum += std::log(run.curve[epoch - 1].loss / other.curve[epoch - 1].loss);
  }
  return std::exp(sum / 18);
}

}  // namespace

void ParameterServer(const Setting& setting, Report& report) {
  report.Each("random whole-number pushes beside a map, 300 rounds: rows that differ",
              static_cast<double>(SparseTraceDiffers(setting.seed)), Rule::kEqual, 0);
  for (const std::int64_t delay : {0, 1, 4}) {
    report.Each(absl::StrCat("delay ", delay, ": tasks that begin too early"),
                static_cast<double>(PlayTasks(setting.seed, delay, true).early), Rule::kEqual, 0);
  }
  report.Control("delay 1, bound off: tasks that begin too early",
                 static_cast<double>(PlayTasks(setting.seed, 1, false).early), Rule::kAbove, 0);
  report.Each("delay unbounded: seconds that anybody waits",
              PlayTasks(setting.seed, 1 << 30, true).waited, Rule::kEqual, 0);
  report.Control("delay 4: seconds that they wait", PlayTasks(setting.seed, 4, true).waited,
                 Rule::kAbove, 0);
  NameRows(setting, report);
  LeaveOutWhatCannotChange(setting, report);
  const KillOutcome kept = KillOneOfTwo(setting.seed, 2);
  report.Each("one of two servers killed, replication 2: elements that lack an acknowledged push",
              kept.wrong, Rule::kEqual, 0);
  report.Tell("pushes acknowledged before the kill", kept.acknowledged);
  report.Control("the same with replication 1 and no snapshot: elements lost or not to be had",
                 KillOneOfTwo(setting.seed, 1).wrong, Rule::kAbove, 0);
}

void ElasticMembership(const Setting& setting, Report& report) {
  Rounds rounds;
  rounds.problem = WholeNumbers();
  rounds.seed = setting.seed;
  rounds.shares = [](std::int64_t) { return std::vector<int>{8, 8}; };
  const std::vector<float> fixed = Synchronous(rounds);
  rounds.shares = [](std::int64_t step) {
    return step < 30   ? std::vector<int>{8, 8}
           : step < 70 ? std::vector<int>{4, 4, 4, 4}
                       : std::vector<int>{16};
  };
  const std::vector<float> resized = Synchronous(rounds);
  std::int64_t differing = 0;
  for (std::size_t i = 0; i < fixed.size(); ++i) differing += fixed[i] != resized[i] ? 1 : 0;
  report.Each("global batch fixed, workers 2, 4, 1, whole numbers: parameters that differ",
              static_cast<double>(differing), Rule::kEqual, 0);
  report.Each("servers 1, 2, 1 and workers 2, 4, 1 over links: elements that are not the sum",
              ResizedSums(), Rule::kEqual, 0);

  const ClusterResult result = Run(ResizedRun(setting.seed));
  report.Each("workers 2, 4, 1, three killed at work: leases not done exactly once",
              NotDoneOnce(result), Rule::kEqual, 0);
  ClusterOptions deaf = ResizedRun(setting.seed);
  deaf.source_hears_of_deaths = false;
  report.Control("the coordinator does not hear of the deaths: leases not done exactly once",
                 NotDoneOnce(Run(deaf)), Rule::kAbove, 0);
  const ClusterResult still = Run(ElasticRun(setting.seed));
  report.Mean("loss in mid-run beside a run that is not resized", LossBeside(result, still),
              Rule::kAtMost, 1.02);
  ClusterOptions slower = ElasticRun(setting.seed);
  slower.table.rate = [](std::int64_t) { return 0.025; };
  report.ControlOfMean("at half the rate", LossBeside(Run(slower), still), Rule::kAbove, 1.02);
  const Histories histories = PlayHistories(setting.seed, setting.thorough ? 400 : 30, true);
  report.Each("made-up histories of kills, joins and successors: broken invariants",
              histories.violations, Rule::kEqual, 0);
  report.Tell("servers killed in them", histories.kills);
  report.Tell("coordinators that took over in them", histories.takeovers);
  report.Control("a lease in the ledger is applied again: histories that break an invariant",
                 PlayHistories(1, 2000, false).violations, Rule::kAbove, 0);
}

}  // namespace starling::techniques
