// SPDX-License-Identifier: Apache-2.0
// Rows in which nobody waits: PS-2, PS-5, PS-10 and PS-14.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/status/check.h"
#include "tests/techniques/cluster.h"
#include "tests/techniques/lesson.h"
#include "tests/techniques/loops.h"
#include "tests/techniques/rows.h"
#include "trainer/consistency/downpour.h"
#include "trainer/data/batches.h"
#include "trainer/kernels/span_math.h"
#include "trainer/optimizer/server_rules.h"

namespace starling::techniques {
namespace {

// Workers that begin one after another, as they do when each has its own pace.
auto Staggered(int workers) {
  return [=](int worker, std::int64_t round, double) {
    return round == 0 ? 0.01 * (1 + static_cast<double>(worker) / workers) : 0.01;
  };
}

ClusterOptions DownpourOf(const Lesson& lesson, std::uint64_t seed, std::int64_t warm_start) {
  ClusterOptions options =
      ClusterOf(lesson, seed, consistency::Asynchronous{}, lesson.adagrad_rate);
  options.table.rule = optimizer::MakeAdagrad({});
  options.warm_start = warm_start;
  return options;
}

// The mean loss over the first 200 updates.
double EarlyLoss(std::uint64_t seed, std::int64_t warm_start) {
  ClusterOptions options = DownpourOf(DigitsLesson(), seed, warm_start);
  options.workers = 8;
  options.table.rate = [](std::int64_t) { return 0.1; };
  options.leases = 200;
  options.evaluate_every = 5;
  double sum = 0;
  const ClusterResult result = Run(options);
  for (const ClusterPoint& point : result.curve) sum += point.loss;
  return sum / static_cast<double>(result.curve.size());
}

// Units that any but the first of 8 workers computes while the warm start lasts.
double DoneByOthers(std::uint64_t seed, std::int64_t warm_start, std::int64_t leases) {
  ClusterOptions options = DownpourOf(DigitsLesson(), seed, warm_start);
  options.workers = 8;
  options.leases = leases;
  double others = 0;
  options.make_update = [&](int worker, Clock, std::vector<float>&) { others += worker != 0; };
  (void)Run(options);
  return others;
}

// Adagrad's accumulators beside a recomputation from everything that was pushed.
double AccumulatorsMissed(std::uint64_t seed) {
  TableOptions table;
  const std::shared_ptr<const Problem> problem = Digits(0);
  table.parameters = problem->parameters();
  table.rule = optimizer::MakeAdagrad({});
  table.rate = [](std::int64_t) { return 0.05; };
  table.model = consistency::Asynchronous{};
  parameter_server::ShardState shard(ShardOf(table));
  shard.OnView({ClientOf(0)});
  const data::Batches batches(problem->samples(), 16, seed);
  std::vector<float> squares(table.parameters), gradient(table.parameters);
  for (std::int64_t step = 1; step <= 50; ++step) {
    problem->Gradient(ValuesOf(shard, table.parameters), batches.SampleIds(step), gradient);
    parameter_server::Entry entry;
    entry.client = ClientOf(0);
    entry.sequence = step;
    entry.update = Encoded(gradient);
    (void)shard.Append(entry);
    for (std::size_t i = 0; i < squares.size(); ++i) squares[i] += gradient[i] * gradient[i];
  }
  const std::vector<float> kept = TensorOf(shard, "state.squares");
  double largest = 0;
  for (std::size_t i = 0; i < squares.size(); ++i) {
    largest = std::max(largest, std::abs(double{kept[i]} - double{squares[i]}) /
                                    std::max(1e-12, double{squares[i]}));
  }
  return largest;
}

// Bytes on a worker's links for 20 steps, pushing and fetching every so many.
double BytesOf(std::int64_t every) {
  constexpr std::uint64_t kRows = 1000;
  TableOptions table;
  table.parameters = kRows;
  table.rule = optimizer::MakeAdd();
  table.model = consistency::Asynchronous{};
  Loops loops(1, 1, {ShardOf(table)});
  double bytes = 0;
  loops.InView(1, {0}, {0}, [&](int, parameter_server::ClientLoop& client) -> absl::Status {
    const transport::Traffic before = loops.WorkerTraffic(0);
    const consistency::Downpour downpour{.fetch_every = every, .push_every = every};
    const std::vector<float> ones(kRows, 1);
    std::int64_t clock = 0;
    for (std::int64_t step = 0; step < 20; ++step) {
      if (downpour.Fetches(step)) {
        parameter_server::Read read;
        read.clock = clock;
        read.rows = kRows;
        absl::Status status = client.Pull(0, read, Soon()).status();
        if (!status.ok()) return status;
      }
      if ((step + 1) % downpour.push_every != 0) continue;
      parameter_server::Entry entry;
      entry.clock = clock++;
      entry.update = Encoded(ones);
      (void)client.Push(0, entry);
      absl::Status status = client.Drain(Soon());
      if (!status.ok()) return status;
    }
    const transport::Traffic after = loops.WorkerTraffic(0);
    bytes = static_cast<double>(after.payload_sent - before.payload_sent + after.payload_received -
                                before.payload_received);
    return absl::OkStatus();
  });
  return bytes;
}

// What quadratics do at a rate: the loss at the end beside that at the start.
double LossRatio(std::uint64_t seed, const consistency::Options& model, double rate) {
  ClusterOptions options = DigitsCluster(seed, model, rate);
  options.problem = LeastSquares();
  options.table.initial_scale = 0;
  options.workers = 8;
  options.batch = 64;
  options.leases = 1600;
  const double begin =
      options.problem->Loss(std::vector<float>(options.problem->parameters(), 0.0F));
  const double ratio = options.problem->Loss(Run(options).parameters) / begin;
  return std::isfinite(ratio) ? ratio : 1e30;
}

// One push that was computed from what was read before another push came between.
double CompensationMissed(bool remember) {
  constexpr std::size_t kCount = 64;
  TableOptions table;
  table.parameters = kCount;
  table.rule = optimizer::MakeDelayCompensated({1.0, false, 0.95, 1e-7});
  table.rate = [](std::int64_t) { return 0.1; };
  table.initial_scale = 1;
  table.seed = 3;
  table.model = consistency::Asynchronous{};
  parameter_server::ShardState shard(ShardOf(table));
  shard.OnView({ClientOf(0), ClientOf(1)});
  const std::vector<float> read = ValuesOf(shard, kCount);
  const auto append = [&](int worker, std::int64_t sequence, parameter_server::EntryKind kind,
                          std::span<const float> values) {
    parameter_server::Entry entry;
    entry.kind = kind;
    entry.client = ClientOf(worker);
    entry.sequence = sequence;
    entry.update = Encoded(values);
    (void)shard.Append(entry);
  };
  if (remember) append(0, 1, parameter_server::EntryKind::kRemember, read);
  std::vector<float> other(kCount), gradient(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    other[i] = 0.01F * static_cast<float>(i);
    // Of the loss -log(3 - w): its second derivative is the square of its gradient.
    gradient[i] = 1 / (3 - read[i]);
  }
  append(1, 1, parameter_server::EntryKind::kPush, other);
  const std::vector<float> now = ValuesOf(shard, kCount);
  append(0, remember ? 2 : 1, parameter_server::EntryKind::kPush, gradient);
  const std::vector<float> after = ValuesOf(shard, kCount);
  double largest = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const double expansion =  // of the gradient at `now`, around `read`
        double{gradient[i]} +
        double{gradient[i]} * double{gradient[i]} * (double{now[i]} - double{read[i]});
    const double wanted = double{now[i]} - 0.1 * expansion;
    largest = std::max(largest, std::abs(wanted - double{after[i]}));
  }
  return largest;
}

double MemoryFactor(int readers) {
  TableOptions table;
  table.parameters = 5000;
  table.rule = optimizer::MakeDelayCompensated({0.04, false, 0.95, 1e-7});
  table.model = consistency::Asynchronous{};
  parameter_server::ShardState shard(ShardOf(table));
  std::vector<Client> clients;
  clients.reserve(static_cast<std::size_t>(readers));
  for (int i = 0; i < readers; ++i) clients.push_back(ClientOf(i));
  shard.OnView(clients);
  for (const Client& client : clients) {
    parameter_server::Entry entry;
    entry.kind = parameter_server::EntryKind::kRemember;
    entry.client = client;
    entry.sequence = 1;
    entry.update = Encoded(std::vector<float>(table.parameters));
    (void)shard.Append(entry);
  }
  return static_cast<double>(shard.bytes()) / (4.0 * static_cast<double>(table.parameters));
}

}  // namespace

void Downpour(const Setting& setting, Report& report) {
  const Lesson lesson = LessonOf(setting);
  JudgeBelowSynchronous(lesson, DownpourOf(lesson, setting.seed, 200), "",
                        setting.thorough ? 1.0 : 2.5, report);
  const double every_step = BytesOf(1);
  report.Each("bytes of fetching and pushing every 5 steps, beside every step",
              every_step / BytesOf(5), Rule::kEqual, 5);
  report.Each("Adagrad's accumulators beside the push log: largest relative difference",
              AccumulatorsMissed(setting.seed), Rule::kEqual, 0);
  report.Each("8 workers, the first 100 units a warm start: of them done by others than the first",
              DoneByOthers(setting.seed, 100, 100), Rule::kEqual, 0);
  report.Control("no warm start: of them done by others", DoneByOthers(setting.seed, 0, 100),
                 Rule::kAbove, 50);
  const double warm = EarlyLoss(setting.seed, 100);
  report.Tell("8 workers, mean loss of the first 200 updates, warm start", warm);
  report.ControlOfMean("8 workers at once, no warm start: that loss beside it",
                       EarlyLoss(setting.seed, 0) / warm, Rule::kAbove, 1);
}

void Asynchronous(const Setting& setting, Report& report) {
  for (const int workers : {4, 8}) {
    ClusterOptions options = DigitsCluster(setting.seed, consistency::Asynchronous{}, 0.05);
    options.workers = workers;
    options.compute = Staggered(workers);
    options.leases = 1000;
    const ClusterResult result = Run(options);
    report.Each("mean staleness less n - 1, n = " + std::to_string(workers),
                std::abs(result.staleness.Mean() - (workers - 1)), Rule::kAtMost, 0.5);
  }
  ClusterOptions straggler = DigitsCluster(setting.seed, consistency::Asynchronous{}, 0.05);
  straggler.compute = [](int worker, std::int64_t, double) { return worker == 0 ? 0.1 : 0.01; };
  straggler.leases = 1000;
  const ClusterResult result = Run(straggler);
  report.Each("share of time blocked, one worker 10 times slower",
              result.waited / (result.seconds * 4), Rule::kBelow, 0.01);
  const Lesson lesson = LessonOf(setting);
  JudgeBelowSynchronous(
      lesson,
      ClusterOf(lesson, setting.seed, consistency::Asynchronous{}, lesson.rate / std::sqrt(4)),
      ", n = 4, rate / sqrt(n)", setting.thorough ? 1.5 : 2.5, report);
  constexpr double kRate = 0.01;
  report.Each("quadratic, rate r: loss at the end beside the start",
              LossRatio(setting.seed, consistency::Asynchronous{}, kRate), Rule::kBelow, 1);
  report.Each("quadratic, rate 8 r, synchronous",
              LossRatio(setting.seed, consistency::BulkSynchronous{8}, 8 * kRate), Rule::kBelow, 1);
  report.Control("quadratic, rate 8 r, asynchronous: it diverges",
                 LossRatio(setting.seed, consistency::Asynchronous{}, 8 * kRate), Rule::kAbove,
                 1000);
}

void SoftSync(const Setting& setting, Report& report) {
  constexpr int kWorkers = 16;
  for (const std::int64_t n : {1, 2, 4}) {
    ClusterOptions options = DigitsCluster(setting.seed, consistency::SoftSync{n, true}, 0.1);
    options.workers = kWorkers;
    options.compute = Staggered(kWorkers);
    options.leases = 2000;
    const ClusterResult result = Run(options);
    const std::string of = ", " + std::to_string(n) + "-softsync of 16";
    report.Each("mean staleness beside n" + of,
                std::abs(result.staleness.Mean() / static_cast<double>(n) - 1), Rule::kAtMost,
                0.25);
    report.Each("largest staleness beside n" + of,
                static_cast<double>(result.staleness.Maximum()) / static_cast<double>(n),
                Rule::kAtMost, 2);
  }
  const Lesson lesson = LessonOf(setting);
  const auto accuracy = [&](const consistency::Options& model) {
    ClusterOptions options = ClusterOf(lesson, setting.seed, model, lesson.many.rate);
    options.workers = lesson.many.workers;
    options.batch = lesson.many.batch;
    options.leases = lesson.samples / options.batch;
    options.compute = Staggered(options.workers);
    return AccuracyOf(options);
  };
  const std::string of = lesson.name + ": 4-softsync of " + std::to_string(lesson.many.workers) +
                         ", rate " + absl::StrCat(lesson.many.rate);
  const double synchronous = accuracy(consistency::BulkSynchronous{lesson.many.workers});
  report.Mean(lesson.name + ": accuracy of synchronous SGD, rate " + absl::StrCat(lesson.many.rate),
              synchronous, Rule::kAtLeast, lesson.learned);
  const double most = setting.thorough ? 0.5 : 2;  // points
  report.Mean(of + " divided by the staleness: points below synchronous SGD",
              synchronous - accuracy(consistency::SoftSync{4, true}), Rule::kAtMost, most);
  report.ControlOfMean(of + ", constant: points below synchronous SGD",
                       synchronous - accuracy(consistency::SoftSync{4, false}), Rule::kAbove, most);
  ThroughGroups(report, {.kind = parameter_server::Topology::Kind::kTree, .fanout = 2}, {},
                "1 root and 2 aggregators of 2 workers");
}

void DelayCompensation(const Setting& setting, Report& report) {
  report.Each("one delayed step beside the first-order expansion: largest difference",
              CompensationMissed(true), Rule::kBelow, 1e-6);
  report.Control("the reader's copy is not kept: largest difference", CompensationMissed(false),
                 Rule::kAbove, 1e-6);
  const auto delayed = [&](const Lesson& lesson, std::shared_ptr<const optimizer::Optimizer> rule,
                           int workers, double rate) {
    ClusterOptions options = ClusterOf(lesson, setting.seed, consistency::Asynchronous{}, rate);
    options.table.rule = std::move(rule);
    options.workers = workers;
    options.compute = Staggered(workers);
    return options;
  };
  const auto compensated = [](double lambda, bool adaptive) {
    return std::shared_ptr<const optimizer::Optimizer>(
        optimizer::MakeDelayCompensated({lambda, adaptive, 0.95, 1e-7}));
  };
  const auto alone = [&](std::shared_ptr<const optimizer::Optimizer> rule) {
    ClusterOptions options = delayed(DigitsLesson(), std::move(rule), 1, 0.1);
    options.leases = 300;
    return Run(options).parameters;
  };
  const std::vector<float> asgd = alone(Sgd());
  const std::vector<float> dcasgd = alone(compensated(0.04, false));
  report.Each("staleness 0: parameters that differ from ASGD",
              static_cast<double>(std::inner_product(
                  asgd.begin(), asgd.end(), dcasgd.begin(), std::int64_t{0}, std::plus<>(),
                  [](float a, float b) { return std::int64_t{a != b}; })),
              Rule::kEqual, 0);
  report.Each("memory of 5 readers beside M(1 + n)", MemoryFactor(5), Rule::kEqual, 6);
  const Lesson lesson = LessonOf(setting);
  const auto late = [&](std::shared_ptr<const optimizer::Optimizer> rule) {
    return AccuracyOf(delayed(lesson, std::move(rule), 9, lesson.late_rate));
  };
  const std::string of = lesson.name + ": staleness 8, ";
  const double plain = late(Sgd());
  report.Tell(of + "ASGD: accuracy", plain);
  report.Tell(of + "DC-ASGD with constant lambda: points gained",
              late(compensated(0.04, false)) - plain);
  const double least = !setting.thorough ? -2.5 : lesson.name == kMnist ? 0.3 : -0.5;
  report.Mean(of + "DC-ASGD with adaptive lambda: points gained",
              late(compensated(2.0, true)) - plain, Rule::kAtLeast, least);
}

}  // namespace starling::techniques
