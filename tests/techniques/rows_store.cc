// SPDX-License-Identifier: Apache-2.0
// Rows about the store itself: PS-1, PS-18, PS-19, PS-20 and PS-22.
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
#include "starling/v1alpha1/training_job.pb.h"
#include "tests/techniques/flock.h"
#include "tests/techniques/loops.h"
#include "tests/techniques/rounds.h"
#include "tests/techniques/rows.h"
#include "trainer/optimizer/server_rules.h"
#include "trainer/parameter_server/shard_map.h"
#include "trainer/parameter_server/slot_fleet.h"
#include "trainer/simulation/slot_simulation.h"

namespace starling::techniques {
namespace {

using parameter_server::ClientLoop;
using parameter_server::Entry;

Entry PushOf(std::span<const float> values, Clock clock, parameter_server::Lease lease = 0) {
  Entry entry;
  entry.clock = clock;
  entry.lease = lease;
  entry.update = Encoded(values);
  return entry;
}

TableOptions Sums(std::size_t parameters, const consistency::Options& model) {
  TableOptions table;
  table.parameters = parameters;
  table.rule = optimizer::MakeAdd();
  table.combine = parameter_server::Combine::kSum;
  table.model = model;
  return table;
}

absl::StatusOr<std::vector<float>> Pulled(ClientLoop& client, std::size_t slot, std::uint64_t rows,
                                          Clock clock) {
  parameter_server::Read read;
  read.clock = clock;
  read.rows = rows;
  ASSIGN_OR_RETURN(const parameter_server::ReadDone done, client.Pull(slot, read, Soon()));
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
  parameter_server::SlotState slot(
      {table, {0, parameter_server::kHashEnd}, consistency::Asynchronous{}, {}});
  slot.OnView({ClientOf(0), ClientOf(1)});
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
    entry.update = std::make_shared<const std::string>(
        parameter_server::Encode({parameter_server::UpdateKind::kRows, 0, 0, 0, list, values, {}}));
    (void)slot.Append(entry);
    const absl::StatusOr<std::string> bytes = slot.Read({0, 0, list});
    STARLING_CHECK(bytes.ok(), bytes.status().ToString().c_str());
    for (std::size_t i = 0; i < list.size(); ++i) {
      std::array<float, 2> read;
      std::memcpy(read.data(), bytes->data() + i * sizeof(read), sizeof(read));
      differing += read != oracle[list[i]] ? 1 : 0;
    }
  }
  return differing;
}

// Tasks that begin while one older than their number less `delay` is not finished.
std::int64_t EarlyTasks(std::uint64_t seed, std::int64_t delay, bool bound) {
  FlockOptions options;
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
  std::int64_t next = 4, early = 0;
  options.make_update = [&](int worker, Clock, std::vector<float>&) { tasks[worker] = next++; };
  options.on_read = [&](int worker, Clock, std::span<const float>) {
    for (const auto& [other, task] : tasks) early += task < tasks[worker] - delay ? 1 : 0;
  };
  (void)Run(options);
  return early;
}

struct KillOutcome {
  double wrong = 0;  // elements that are not the sum of all that was acknowledged
  double acknowledged = 0;
};

// Two servers; one dies in the middle of the pushes. Without a replica it comes back empty.
KillOutcome KillOneOfTwo(std::uint64_t seed, int replication) {
  constexpr std::size_t kSlots = 4;
  constexpr std::uint64_t kRows = 64;
  constexpr std::int64_t kPushes = 40;
  const std::vector<parameter_server::SlotOptions> slots(
      kSlots, SlotOf(Sums(kRows, consistency::Asynchronous{})));
  Loops loops(2, 1, slots, replication);
  const auto kill_after = static_cast<std::int64_t>(5 + seed % 25);
  KillOutcome outcome;
  const std::vector<float> ones(kRows, 1);
  std::int64_t made = 0;
  (void)loops.InView(1, {0, 1}, {0}, [&](int, ClientLoop& client) {
    for (; made < kPushes; ++made) {
      if (made == kill_after) loops.Kill(0);
      for (std::size_t slot = 0; slot < kSlots; ++slot) {
        (void)client.Push(slot, PushOf(ones, made, static_cast<parameter_server::Lease>(made + 1)));
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
  // Without a replica the slots of the dead server have nobody to go on from; nobody waits for
  // that.
  const net::Deadline patience =
      net::Deadline::After(replication == 1 ? absl::Milliseconds(300) : absl::Seconds(60));
  outcome.wrong = 0;
  const auto results = loops.InView(2, left, {0}, [&](int, ClientLoop& client) -> absl::Status {
    RETURN_IF_ERROR(client.Drain(patience));
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      ASSIGN_OR_RETURN(const std::vector<float> values, Pulled(client, slot, kRows, made));
      for (const float value : values) {
        outcome.wrong += value == static_cast<float>(made) ? 0 : 1;
      }
    }
    return absl::OkStatus();
  });
  if (!results[0].ok()) outcome.wrong = static_cast<double>(kSlots * kRows);
  return outcome;
}

// --- PS-18

// The layers' gradients come last layer first, in parts; each layer is larger than what a link
// takes at once. Share of the bytes that were on the wire when the first layer's gradient was
// ready, and the seconds of a step.
enum class Sending { kAsMade, kNotLookedAfter, kAtTheEnd };
struct Backward {
  double sent_before_the_end = 0;
  double seconds = 0;
};
constexpr std::uint64_t kLayerRows = 256 << 10;  // 1 MB
Backward Step(Sending sending, absl::Duration layer_time, double bytes_per_second) {
  constexpr std::size_t kLayers = 4;
  constexpr int kParts = 16;
  const std::vector<parameter_server::SlotOptions> slots(
      kLayers, SlotOf(Sums(kLayerRows, consistency::Asynchronous{})));
  Loops loops(1, 1, slots, 1, {absl::ZeroDuration(), bytes_per_second});
  Backward backward;
  (void)loops.InView(1, {0}, {0}, [&](int, ClientLoop& client) {
    const auto now = [] { return std::chrono::steady_clock::now(); };
    const std::vector<float> ones(kLayerRows, 1);
    const auto begin = now();
    const auto sent_at_begin = loops.WorkerTraffic(0).payload_sent;
    for (std::size_t layer = kLayers; layer-- > 0;) {
      for (int part = 0; part < kParts; ++part) {
        const auto ready = now() + absl::ToChronoNanoseconds(layer_time / kParts);
        while (now() < ready) {
        }
        if (sending == Sending::kAsMade) (void)client.Poll();
      }
      if (layer == 0) {
        backward.sent_before_the_end =
            static_cast<double>(loops.WorkerTraffic(0).payload_sent - sent_at_begin) /
            static_cast<double>(kLayers * kLayerRows * sizeof(float));
      }
      if (sending != Sending::kAtTheEnd) (void)client.Push(layer, PushOf(ones, 0));
    }
    if (sending == Sending::kAtTheEnd) {
      for (std::size_t layer = kLayers; layer-- > 0;) (void)client.Push(layer, PushOf(ones, 0));
    }
    absl::Status status = client.Drain(Soon());
    backward.seconds = std::chrono::duration<double>(now() - begin).count();
    return status;
  });
  return backward;
}

// --- PS-19

int SlotsOfAnArray(std::uint64_t floats) {
  parameter_server::TableSpec table;
  table.kind = parameter_server::TableKind::kArray;
  table.rows = floats;
  const std::vector<parameter_server::SlotId> slots = parameter_server::Cut({table}, {});
  std::set<membership::MemberId> holders;
  for (const auto& [slot, chain] :
       parameter_server::Place(slots, {{"server-0", 0}, {"server-1", 0}}, {}, {})) {
    holders.insert(chain.front());
  }
  return static_cast<int>(holders.size());
}

// The same gradients through a server and through the rule itself: parameters that differ.
std::int64_t UpdaterDiffers(std::uint64_t seed, const v1alpha1::Optimizer& spec) {
  constexpr std::size_t kCount = 500;
  auto rule = optimizer::MakeOptimizer(spec);
  STARLING_CHECK(rule.ok(), rule.status().ToString().c_str());
  const std::shared_ptr<const optimizer::Optimizer> shared = *std::move(rule);
  TableOptions table;
  table.parameters = kCount;
  table.rule = shared;
  table.rate = [](std::int64_t) { return 0.01; };
  table.initial_scale = 1;
  table.model = consistency::Asynchronous{};
  parameter_server::SlotState slot(SlotOf(table));
  slot.OnView({ClientOf(0)});
  std::vector<float> local = ValuesOf(slot, kCount);
  std::vector<optimizer::StateSlot> state = optimizer::NewState(*shared, kCount);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> gradient(kCount);
  for (std::int64_t step = 1; step <= 50; ++step) {
    for (float& one : gradient) one = normal(random);
    Entry entry = PushOf(gradient, step - 1);
    entry.client = ClientOf(0);
    entry.sequence = step;
    (void)slot.Append(entry);
    optimizer::Apply(*shared, {0.01, step}, local, gradient, state);
  }
  const std::vector<float> served = ValuesOf(slot, kCount);
  std::int64_t differing = 0;
  for (std::size_t i = 0; i < kCount; ++i) differing += served[i] != local[i] ? 1 : 0;
  return differing;
}

// --- PS-20

struct Offload {
  double up = 0, down = 0;  // payload beside the formula
  double dense_up = 0;      // beside the factors'
  double difference = 0;
};
Offload FullyConnected(std::uint64_t seed) {
  constexpr std::uint64_t kM = 1000, kN = 800, kK = 32;
  auto table = std::make_shared<parameter_server::TableSpec>();
  table->name = "layer";
  table->kind = parameter_server::TableKind::kDense;
  table->rows = kM;
  table->width = kN;
  table->rule = Sgd();
  table->learning_rate = [](std::int64_t) { return 0.1; };
  const parameter_server::SlotOptions slot{table, {0, kM}, consistency::Asynchronous{}, {}};
  Loops loops(1, 1, {slot, slot});
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 0.1F);
  std::vector<float> factors(kK * (kM + kN));
  for (float& one : factors) one = normal(random);
  std::vector<float> product(kM * kN);
  for (std::uint64_t k = 0; k < kK; ++k) {
    for (std::uint64_t m = 0; m < kM; ++m) {
      const float u = factors[k * kM + m];
      for (std::uint64_t n = 0; n < kN; ++n) {
        product[m * kN + n] += u * factors[kK * kM + k * kN + n];
      }
    }
  }
  Offload offload;
  const auto sent = [&] { return static_cast<double>(loops.WorkerTraffic(0).payload_sent); };
  (void)loops.InView(1, {0}, {0}, [&](int, ClientLoop& client) -> absl::Status {
    const double begin = sent();
    Entry entry;
    entry.update = std::make_shared<const std::string>(
        parameter_server::Encode({parameter_server::UpdateKind::kFactors,
                                  static_cast<std::uint32_t>(kK),
                                  0,
                                  kM,
                                  {},
                                  factors,
                                  {}}));
    (void)client.Push(0, entry);
    RETURN_IF_ERROR(client.Drain(Soon()));
    const double after_factors = sent();
    entry.update = std::make_shared<const std::string>(parameter_server::Encode(
        {parameter_server::UpdateKind::kRange, 0, 0, kM, {}, product, {}}));
    (void)client.Push(1, entry);
    RETURN_IF_ERROR(client.Drain(Soon()));
    offload.up = (after_factors - begin) / static_cast<double>(4 * kK * (kM + kN));
    offload.dense_up = (sent() - after_factors) / static_cast<double>(4 * kK * (kM + kN));
    parameter_server::Read read;
    read.clock = 1;
    read.rows = kM;
    const auto received = loops.WorkerTraffic(0).payload_received;
    ASSIGN_OR_RETURN(const parameter_server::ReadDone by_factors, client.Pull(0, read, Soon()));
    offload.down = static_cast<double>(loops.WorkerTraffic(0).payload_received - received) /
                   static_cast<double>(4 * kM * kN);
    ASSIGN_OR_RETURN(const parameter_server::ReadDone densely, client.Pull(1, read, Soon()));
    std::vector<float> a(kM * kN), b(kM * kN);
    std::memcpy(a.data(), by_factors.values->data(), by_factors.values->size());
    std::memcpy(b.data(), densely.values->data(), densely.values->size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      offload.difference = std::max(offload.difference, std::abs(double{a[i]} - double{b[i]}));
    }
    return absl::OkStatus();
  });
  return offload;
}

// A coordinator whose rules have moved a slot by its load is replaced by one that knows nothing but
// what the members tell it.
struct Takeover {
  double elsewhere = 0;        // slots whose chain is another one then
  double by_hashes_alone = 0;  // or would be, were the map a function of the servers' names
  double waits = 0;            // whether it published nothing before it had heard everybody
};
Takeover TakeOver() {
  const auto differing = [](const std::vector<parameter_server::SlotPart>& a,
                            const std::vector<parameter_server::SlotPart>& b) {
    double count = 0;
    for (std::size_t slot = 0; slot < a.size(); ++slot) count += a[slot].chain != b[slot].chain;
    return count;
  };
  v1alpha1::TrainingJobSpec spec = parameter_server::Spec();
  spec.mutable_exchange()->mutable_parameter_server()->set_replication(1);
  parameter_server::Fleet fleet = parameter_server::Fleet::Running(1, 2, spec);
  const std::vector<parameter_server::SlotPart> by_hashes = fleet.coordinator_->view()->slots;
  std::map<membership::MemberId, std::vector<std::size_t>> served;
  for (std::size_t slot = 0; slot < by_hashes.size(); ++slot) {
    served[by_hashes[slot].chain.front()].push_back(slot);
  }
  for (const auto& [server, slots] : served) {
    for (const std::size_t slot : slots) fleet.loads_[slot] = slots.size() > 1 ? 50'000'000 : 1'000;
  }
  fleet.Advance(absl::Seconds(30));
  const std::vector<parameter_server::SlotPart> before = fleet.coordinator_->view()->slots;
  fleet.NewCoordinator();
  Takeover takeover;
  for (const membership::Pod& pod : fleet.pods_) {
    takeover.waits = fleet.coordinator_->view() == nullptr ? 1 : 0;
    fleet.Connect(pod.name);
    fleet.Obey(fleet[pod.name]);
    fleet.Report(pod.name);
  }
  fleet.Advance(absl::Seconds(5));
  takeover.elsewhere = differing(before, fleet.coordinator_->view()->slots);
  takeover.by_hashes_alone = differing(before, by_hashes);
  return takeover;
}

// --- PS-22

// Servers 1, 2, 1 and workers 2, 4, 1 over real links, all pushing whole numbers: wrong elements.
double ResizedSums() {
  constexpr std::size_t kSlots = 4;
  constexpr std::uint64_t kRows = 64;
  Loops loops(2, 4,
              std::vector<parameter_server::SlotOptions>(
                  kSlots, SlotOf(Sums(kRows, consistency::StaleSynchronous{1 << 20}))),
              2);
  std::atomic<std::int64_t> pushes{0};
  std::atomic<std::int64_t> wrong{0};
  const std::vector<float> ones(kRows, 1);
  const auto push_some = [&](int, ClientLoop& client) -> absl::Status {
    for (int i = 0; i < 10; ++i) {
      for (std::size_t slot = 0; slot < kSlots; ++slot) (void)client.Push(slot, PushOf(ones, 0));
      ++pushes;
    }
    return client.Drain(Soon());
  };
  (void)loops.InView(1, {0}, {0, 1}, push_some);
  (void)loops.InView(2, {0, 1}, {0, 1, 2, 3}, push_some);
  (void)loops.InView(3, {1}, {3}, [&](int worker, ClientLoop& client) -> absl::Status {
    RETURN_IF_ERROR(push_some(worker, client));
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      ASSIGN_OR_RETURN(const std::vector<float> values, Pulled(client, slot, kRows, 0));
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
    simulation::SlotOptions options;
    options.seed = seed * 100000 + static_cast<std::uint64_t>(i);
    options.servers = 2 + i % 3;
    options.clients = 2 + i / 3 % 2;
    options.replication = 1 + i % 3;
    options.planned = lease_dedupe;
    options.rules.lease_dedupe = lease_dedupe;
    const simulation::SlotOutcome outcome = simulation::SimulateSlots(options);
    sum.violations += outcome.violation.empty() ? 0 : 1;
    sum.kills += outcome.server_kills;
    sum.takeovers += outcome.takeovers;
    if (!lease_dedupe && sum.violations > 0) break;
  }
  return sum;
}

FlockOptions ElasticRun(std::uint64_t seed) {
  FlockOptions options;
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

// The geometric mean over epochs 3 to 20, in which losses still fall, of a run's loss divided by
// another's after as many leases.
double LossBeside(const FlockResult& run, const FlockResult& other) {
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
  for (const std::int64_t delay : {0, 1, 4, 1 << 30}) {
    report.Each(absl::StrCat("delay ", delay == 1 << 30 ? "unbounded" : absl::StrCat(delay),
                             ": tasks that begin too early"),
                static_cast<double>(EarlyTasks(setting.seed, delay, true)), Rule::kEqual, 0);
  }
  report.Control("delay 1, bound off: tasks that begin too early",
                 static_cast<double>(EarlyTasks(setting.seed, 1, false)), Rule::kAbove, 0);
  NameRows(setting, report);
  const KillOutcome kept = KillOneOfTwo(setting.seed, 2);
  report.Each("one of two servers killed, replication 2: elements that lack an acknowledged push",
              kept.wrong, Rule::kEqual, 0);
  report.Tell("pushes acknowledged before the kill", kept.acknowledged);
  report.Control("the same with replication 1 and no snapshot: elements lost or not to be had",
                 KillOneOfTwo(setting.seed, 1).wrong, Rule::kAbove, 0);
}

void WaitFree(const Setting& setting, Report& report) {
  const absl::Duration layer = absl::Milliseconds(20);
  // A layer's gradient takes as long as its computation.
  const double link = kLayerRows * sizeof(float) / absl::ToDoubleSeconds(layer);
  const Backward as_made = Step(Sending::kAsMade, layer, link);
  report.Each("share of the gradients on the wire before backpropagation ends",
              as_made.sent_before_the_end, Rule::kAtLeast, 0.7);
  report.Control("posted as they are made, but the links are not looked after: that share",
                 Step(Sending::kNotLookedAfter, layer, link).sent_before_the_end, Rule::kAtMost,
                 0.3);
  const Backward late = Step(Sending::kAtTheEnd, layer, link);
  report.Control("pushed after it: that share", late.sent_before_the_end, Rule::kEqual, 0);
  if (!setting.thorough) return;
  report.Mean("step time on an emulated network beside pushing at the end",
              as_made.seconds / late.seconds, Rule::kBelow, 0.8);
}

void TwoLevelStore(const Setting& setting, Report& report) {
  ThroughGroups(report, "2 hosts of 2 workers");
  report.Each("an array of 1,000,001 floats: servers that hold it, of 2", SlotsOfAnArray(1'000'001),
              Rule::kEqual, 2);
  report.Each("one of 999,999", SlotsOfAnArray(999'999), Rule::kEqual, 1);
  v1alpha1::Optimizer momentum, adam;
  momentum.mutable_sgd()->set_learning_rate(0.01);
  momentum.mutable_sgd()->set_momentum(0.9);
  adam.mutable_adam()->set_learning_rate(0.01);
  report.Each("SGD with momentum at the server: parameters that differ from the local rule's",
              static_cast<double>(UpdaterDiffers(setting.seed, momentum)), Rule::kEqual, 0);
  report.Each("Adam at the server: parameters that differ from the local rule's",
              static_cast<double>(UpdaterDiffers(setting.seed, adam)), Rule::kEqual, 0);
}

void FactorOffload(const Setting& setting, Report& report) {
  const Offload offload = FullyConnected(setting.seed);
  report.Each("bytes up beside 4 K (M + N), M = 1000, N = 800, K = 32", offload.up, Rule::kAtMost,
              1.01);
  report.Each("and at least", offload.up, Rule::kAtLeast, 1);
  report.Each("bytes down beside 4 M N", offload.down, Rule::kAtMost, 1.01);
  report.Each("weights beside the dense push: largest difference", offload.difference,
              Rule::kAtMost, 1e-6);
  report.Control("the dense push: bytes up beside 4 K (M + N)", offload.dense_up, Rule::kAbove,
                 1.01);
  report.Each("bytes up beside the dense push's", offload.up / offload.dense_up, Rule::kAtMost,
              1.01 * 32 * (1000 + 800) / (1000 * 800));
  const Takeover takeover = TakeOver();
  report.Each("a successor publishes no map before it has heard the members", takeover.waits,
              Rule::kEqual, 1);
  report.Each("slots that a successor of the coordinator places elsewhere", takeover.elsewhere,
              Rule::kEqual, 0);
  report.Control("were the map a function of the servers' names alone: slots elsewhere",
                 takeover.by_hashes_alone, Rule::kAbove, 0);
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

  FlockOptions elastic = ElasticRun(setting.seed);
  elastic.changes = {{3, {0, 1, 2, 3}}, {8, {2}}};
  std::map<int, std::int64_t> begun, done;
  elastic.on_read = [&](int worker, Clock, std::span<const float>) { ++begun[worker]; };
  elastic.make_update = [&](int worker, Clock, std::vector<float>&) { ++done[worker]; };
  const FlockResult result = Run(elastic);
  std::vector<std::int64_t> taken = result.taken;
  std::sort(taken.begin(), taken.end());
  std::int64_t not_once = 0;
  for (std::size_t i = 0; i < taken.size(); ++i) {
    not_once += taken[i] == static_cast<std::int64_t>(i) + 1 ? 0 : 1;
  }
  report.Each("workers 2, 4, 1, three killed at work: leases not done exactly once",
              static_cast<double>(not_once), Rule::kEqual, 0);
  std::int64_t most = 0, lost = 0;
  for (const int killed : {0, 1, 3}) {
    most = std::max(most, begun[killed] - done[killed]);
    lost += begun[killed] - done[killed];
  }
  report.Each("steps that one SIGKILL repeats, at most", static_cast<double>(most), Rule::kAtMost,
              1);
  report.Each("steps that the three repeat", static_cast<double>(lost), Rule::kAtLeast, 1);
  const FlockResult still = Run(ElasticRun(setting.seed));
  report.Mean("loss in mid-run beside a run that is not resized", LossBeside(result, still),
              Rule::kAtMost, 1.02);
  FlockOptions slower = ElasticRun(setting.seed);
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
