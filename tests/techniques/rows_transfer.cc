// SPDX-License-Identifier: Apache-2.0
// Rows about how gradients come to the store: PS-18, PS-19 and PS-20.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "common/status/check.h"
#include "common/status/macros.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "tests/techniques/cluster.h"
#include "tests/techniques/loops.h"
#include "tests/techniques/rows.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/parameter_server/job_tables.h"
#include "trainer/parameter_server/shard_map.h"
#include "trainer/testing/shard_cluster.h"

namespace starling::techniques {
namespace {

using parameter_server::ClientLoop;
using parameter_server::Entry;

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
  const std::vector<parameter_server::ShardOptions> shards(
      kLayers, ShardOf(Sums(kLayerRows, consistency::Asynchronous{})));
  Loops loops(1, 1, shards, 1, {absl::ZeroDuration(), bytes_per_second});
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

// Servers, of 2, that hold a part of a model of so many parameters.
int HoldersOf(std::int64_t parameters) {
  v1alpha1::TrainingJobSpec spec;
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1);
  const auto tables = parameter_server::TablesOf(spec, {parameters, 1, "model and data"});
  STARLING_CHECK(tables.ok(), tables.status().ToString().c_str());
  std::vector<parameter_server::ShardId> shards = tables->ids;
  shards.resize(tables->parameter_shards);
  std::set<membership::MemberId> holders;
  for (const auto& [shard, chain] :
       parameter_server::Place(shards, {{"server-0", 0}, {"server-1", 0}}, {}, {})) {
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
  parameter_server::ShardState shard(ShardOf(table));
  shard.OnView({ClientOf(0)});
  std::vector<float> local = ValuesOf(shard, kCount);
  std::vector<optimizer::StateVector> state = optimizer::NewState(*shared, kCount);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> gradient(kCount);
  for (std::int64_t step = 1; step <= 50; ++step) {
    for (float& one : gradient) one = normal(random);
    Entry entry = PushOf(gradient, step - 1);
    entry.client = ClientOf(0);
    entry.sequence = step;
    (void)shard.Append(entry);
    optimizer::Apply(*shared, {0.01, step}, local, gradient, state);
  }
  const std::vector<float> served = ValuesOf(shard, kCount);
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
  const parameter_server::ShardOptions shard{table, {0, kM}, consistency::Asynchronous{}, {}};
  Loops loops(1, 1, {shard, shard});
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
    entry.update = parameter_server::Encode({parameter_server::UpdateKind::kFactors,
                                             static_cast<std::uint32_t>(kK),
                                             0,
                                             kM,
                                             {},
                                             factors,
                                             {}});
    (void)client.Push(0, entry);
    RETURN_IF_ERROR(client.Drain(Soon()));
    const double after_factors = sent();
    entry.update =
        parameter_server::Encode({parameter_server::UpdateKind::kRange, 0, 0, kM, {}, product, {}});
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

// A coordinator whose rules have moved a shard by its load is replaced by one that knows nothing
// but what the members tell it.
struct Takeover {
  double elsewhere = 0;        // shards whose chain is another one then
  double by_hashes_alone = 0;  // or would be, were the map a function of the servers' names
  double waits = 0;            // whether it published nothing before it had heard everybody
};
Takeover TakeOver() {
  const auto differing = [](const std::vector<membership::ReplicaGroup>& a,
                            const std::vector<membership::ReplicaGroup>& b) {
    double count = 0;
    for (std::size_t shard = 0; shard < a.size(); ++shard)
      count += a[shard].members != b[shard].members;
    return count;
  };
  v1alpha1::TrainingJobSpec spec = parameter_server::Spec();
  spec.mutable_exchange()->mutable_parameter_server()->set_replication(1);
  parameter_server::Cluster cluster = parameter_server::Cluster::Running(1, 2, spec);
  const std::vector<membership::ReplicaGroup> by_hashes = cluster.coordinator_->view()->groups;
  std::map<membership::MemberId, std::vector<std::size_t>> served;
  for (std::size_t shard = 0; shard < by_hashes.size(); ++shard) {
    served[by_hashes[shard].members.front()].push_back(shard);
  }
  for (const auto& [server, shards] : served) {
    for (const std::size_t shard : shards)
      cluster.loads_[shard] = shards.size() > 1 ? 50'000'000 : 1'000;
  }
  cluster.Advance(absl::Seconds(30));
  const std::vector<membership::ReplicaGroup> before = cluster.coordinator_->view()->groups;
  cluster.NewCoordinator();
  Takeover takeover;
  for (const membership::Pod& pod : cluster.pods_) {
    takeover.waits = cluster.coordinator_->view() == nullptr ? 1 : 0;
    cluster.Connect(pod.name);
    cluster.Obey(cluster[pod.name]);
    cluster.Report(pod.name);
  }
  cluster.Advance(absl::Seconds(5));
  takeover.elsewhere = differing(before, cluster.coordinator_->view()->groups);
  takeover.by_hashes_alone = differing(before, by_hashes);
  return takeover;
}

}  // namespace

void WaitFree(const Setting& setting, Report& report) {
  const absl::Duration layer = absl::Milliseconds(20);
  // A layer's gradient takes as long as its computation.
  const double link = kLayerRows * sizeof(float) / absl::ToDoubleSeconds(layer);
  // All of a wall clock, on cores that others use too: the best of some steps each.
  const auto largest_share = [&](Sending sending) {
    double share = 0;
    for (int i = 0; i < 5; ++i) {
      share = std::max(share, Step(sending, layer, link).sent_before_the_end);
    }
    return share;
  };
  report.Each("share of the gradients on the wire before backpropagation ends",
              largest_share(Sending::kAsMade), Rule::kAtLeast, 0.7);
  report.Control("posted as they are made, but the links are not looked after: that share",
                 largest_share(Sending::kNotLookedAfter), Rule::kAtMost, 0.3);
  report.Control("pushed after it: that share", largest_share(Sending::kAtTheEnd), Rule::kEqual, 0);
  if (!setting.thorough) return;
  // The shortest of ten steps each, in turn. Four layers that are computed and sent one after
  // another take 8 units, overlapped 5.
  Backward as_made = Step(Sending::kAsMade, layer, link);
  Backward late = Step(Sending::kAtTheEnd, layer, link);
  for (int i = 1; i < 10; ++i) {
    as_made.seconds = std::min(as_made.seconds, Step(Sending::kAsMade, layer, link).seconds);
    late.seconds = std::min(late.seconds, Step(Sending::kAtTheEnd, layer, link).seconds);
  }
  report.Each("step time on an emulated network beside pushing at the end, shortest of 10 each",
              as_made.seconds / late.seconds, Rule::kBelow, 0.8);
}

void TwoLevelStore(const Setting& setting, Report& report) {
  // Hosts, not ranks: those of one are no neighbours in the view.
  ThroughGroups(report, {.kind = parameter_server::Topology::Kind::kHostReduce},
                {"host-a", "host-b", "host-b", "host-a"}, "2 hosts of 2 workers");
  report.Each("a large array, twice the smallest shard: servers that hold it, of 2",
              HoldersOf(2 * parameter_server::kSmallestShard), Rule::kEqual, 2);
  report.Each("one float less", HoldersOf(2 * parameter_server::kSmallestShard - 1), Rule::kEqual,
              1);
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
  report.Each("shards that a successor of the coordinator places elsewhere", takeover.elsewhere,
              Rule::kEqual, 0);
  report.Control("were the map a function of the servers' names alone: shards elsewhere",
                 takeover.by_hashes_alone, Rule::kAbove, 0);
}

}  // namespace starling::techniques
