// SPDX-License-Identifier: Apache-2.0
#include "tests/techniques/cluster.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "common/status/check.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "tests/techniques/leases.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/data/batches.h"
#include "trainer/optimizer/server_rules.h"
#include "trainer/parameter_server/job_tables.h"

namespace starling::techniques {
namespace {

using parameter_server::Entry;
using parameter_server::EntryKind;
using parameter_server::Lease;
using parameter_server::Outcome;
using parameter_server::ShardState;

enum class Doing { kAway, kReading, kComputing };

struct Worker {
  Doing doing = Doing::kAway;
  Client client;
  Clock clock = 0;
  std::int64_t sequence = 0;
  std::int64_t round = 0;
  std::int64_t life = 0;  // events of an earlier one are void
  Lease lease = 0;
  double since = 0;  // it waits to read
  consistency::Version read = 0;
  std::vector<float> parameters;
};

// A worker's push arrives; those of one moment in the order in which they were begun.
struct Event {
  double at = 0;
  std::int64_t order = 0;
  int worker = 0;
  std::int64_t life = 0;
  auto operator<=>(const Event& other) const {
    return std::tie(at, order) <=> std::tie(other.at, other.order);
  }
  bool operator==(const Event& other) const { return order == other.order; }
};

class Simulation {
 public:
  explicit Simulation(const ClusterOptions& options)
      : options_(options),
        shard_options_(ShardOf(TableOf(options))),
        shard_(shard_options_),
        shadow_(
            consistency::MakeConsistency(shard_options_.consistency, shard_options_.rules.clocks)),
        batches_(options.problem->samples(), options.batch, options.seed),
        leases_(options.problem->samples(), options.batch, options.table.model,
                options.warm_start) {
    AssignFirst(*options.problem, options.seed, shard_);
    std::vector<int> all(static_cast<std::size_t>(options.workers));
    for (int i = 0; i < options.workers; ++i) all[static_cast<std::size_t>(i)] = i;
    Install(all);
  }

  ClusterResult Play() {
    std::size_t change = 0;
    while (!events_.empty() && !Over()) {
      const Event event = *events_.begin();
      if (change < options_.changes.size() && options_.changes[change].at <= event.at) {
        now_ = options_.changes[change].at;
        Install(options_.changes[change++].workers);
        continue;
      }
      events_.erase(events_.begin());
      now_ = event.at;
      Worker& worker = workers_[event.worker];
      if (event.life != worker.life) continue;
      Arrive(event.worker, worker);
      LetRead();
    }
    STARLING_CHECK(Over(), "somebody goes on, or the run would not end as it was asked to");
    result_.seconds = now_;
    result_.staleness = shard_.model().staleness();
    result_.updates = shard_.model().version();
    result_.parameters = ValuesOf(shard_, options_.problem->parameters());
    for (const auto& [index, worker] : workers_) result_.rounds.push_back(worker.round);
    return std::move(result_);
  }

 private:
  static TableOptions TableOf(const ClusterOptions& options) {
    TableOptions table = options.table;
    table.parameters = options.problem->parameters();
    return table;
  }

  bool Over() const {
    return static_cast<std::int64_t>(result_.taken.size()) >= options_.leases ||
           now_ >= options_.seconds || result_.reached != kForever;
  }
  void Schedule(int index, double after) {
    events_.insert({now_ + after, next_order_++, index, workers_[index].life});
  }

  void Install(const std::vector<int>& present) {
    ++view_;
    for (auto& [index, worker] : workers_) {
      if (worker.doing == Doing::kAway) continue;
      if (std::find(present.begin(), present.end(), index) != present.end()) continue;
      worker = {Doing::kAway, {}, 0, 0, worker.round, worker.life + 1, 0, 0, 0, {}};
    }
    std::vector<Client> clients;
    std::vector<int> fresh;
    for (const int index : present) {
      Worker& worker = workers_[index];
      if (worker.doing == Doing::kAway) {
        worker.client = ClientOf(index, view_);
        fresh.push_back(index);
      }
      clients.push_back(worker.client);
    }
    Tell(shadow_->OnView(clients));
    shard_.OnView(clients);
    if (options_.source_hears_of_deaths) told_.clear();
    for (const Client& client : clients) told_.insert(client);
    leases_.OnView(view_, {told_.begin(), told_.end()}, shard_.ledger(), now_);
    for (const int index : fresh) {
      workers_[index].clock = shard_.StartOf(workers_[index].client);
      workers_[index].doing = Doing::kReading;
      workers_[index].since = now_;
    }
    LetRead();
  }

  void LetRead() {
    for (auto& [index, worker] : workers_) {
      if (worker.doing != Doing::kReading) continue;
      const Lease lease = leases_.FirstOf(worker.client);
      if (lease == 0 || !shard_.MayRead(worker.client, worker.clock, worker.sequence)) continue;
      result_.waited += now_ - worker.since;
      Fetch(index, worker);
      worker.doing = Doing::kComputing;
      worker.lease = lease;
      Schedule(index, 2 * options_.latency + options_.compute(index, worker.round, now_));
    }
  }
  void Fetch(int index, Worker& worker) {
    const std::size_t parameters = options_.problem->parameters();
    if (shard_options_.table->rule->remembered() != optimizer::Optimizer::kNothing) {
      Entry entry;
      entry.kind = EntryKind::kRemember;
      entry.client = worker.client;
      entry.sequence = ++worker.sequence;
      entry.update =
          Encoded(worker.parameters.empty() ? std::vector<float>(parameters) : worker.parameters);
      (void)shard_.Append(entry);
    }
    worker.parameters = ValuesOf(shard_, parameters);
    worker.read = shard_.model().version();
    if (options_.on_read) options_.on_read(index, worker.clock, worker.parameters);
  }

  void Arrive(int index, Worker& worker) {
    const std::vector<std::int64_t> ids =
        options_.pinned ? options_.pinned(index, worker.round)
                        : batches_.SampleIds(LeaseFeed::NumberOf(worker.lease));
    std::vector<float> gradient(options_.problem->parameters());
    options_.problem->Gradient(worker.parameters, ids, gradient);
    if (options_.make_update) options_.make_update(index, worker.clock, gradient);
    ++worker.round;
    Push(worker, gradient, static_cast<double>(ids.size()));
    worker.doing = Doing::kReading;
    worker.since = now_;
  }

  void Push(Worker& worker, std::span<const float> update, double weight) {
    Entry entry;
    entry.client = worker.client;
    entry.sequence = ++worker.sequence;
    entry.lease = worker.lease;
    entry.clock = worker.clock;
    entry.read = worker.read;
    entry.weight = weight;
    entry.update = Encoded(update);
    const consistency::Verdict verdict = shadow_->OnPush({worker.client,
                                                          worker.clock,
                                                          true,
                                                          worker.read,
                                                          weight,
                                                          shard_.index() + 1,
                                                          {},
                                                          entry.lease,
                                                          1});
    if (shard_.Append(entry) == Outcome::kRefused) {
      ++result_.refused;
      worker.clock = shard_.StartOf(worker.client);
      leases_.OnReturned(worker.client, worker.lease, now_);
    } else {
      ++worker.clock;
      result_.taken.push_back(LeaseFeed::NumberOf(worker.lease));
      leases_.OnDone(worker.client, worker.lease, now_);
    }
    worker.lease = 0;
    Tell(verdict.ready);
    const auto& clocks = shard_.model().clocks();
    result_.spread = std::max(result_.spread, clocks.highest() - clocks.Minimum().value_or(0));
    Evaluate();
  }
  void Tell(const std::vector<consistency::Batch>& batches) {
    if (!options_.on_update) return;
    for (const consistency::Batch& batch : batches) options_.on_update(batch);
  }
  void Evaluate() {
    const auto taken = static_cast<std::int64_t>(result_.taken.size());
    if (options_.evaluate_every == 0 || taken / options_.evaluate_every == evaluated_) return;
    evaluated_ = taken / options_.evaluate_every;
    const std::vector<float> parameters = ValuesOf(shard_, options_.problem->parameters());
    const double accuracy = options_.problem->Accuracy(parameters);
    result_.curve.push_back({now_, taken, options_.problem->Loss(parameters), accuracy});
    if (accuracy >= options_.target) result_.reached = now_;
  }

  const ClusterOptions& options_;
  const parameter_server::ShardOptions shard_options_;
  ShardState shard_;
  std::unique_ptr<consistency::Consistency> shadow_;
  const data::Batches batches_;
  std::map<int, Worker> workers_;
  std::set<Event> events_;
  LeaseFeed leases_;
  std::set<Client> told_;  // whom the source of leases counts with
  membership::ViewNumber view_ = 0;
  double now_ = 0;
  std::int64_t next_order_ = 0;
  std::int64_t evaluated_ = 0;
  ClusterResult result_;
};

}  // namespace

parameter_server::ShardOptions ShardOf(const TableOptions& options) {
  auto table = std::make_shared<parameter_server::TableSpec>();
  table->name = "parameters";
  table->kind = parameter_server::TableKind::kDense;
  table->rows = options.parameters;
  table->combine = options.combine;
  table->rule = options.rule;
  table->learning_rate = options.rate;
  table->initial_scale = options.initial_scale;
  table->seed = options.seed;
  parameter_server::ShardOptions shard;
  shard.table = std::move(table);
  shard.range = {0, options.parameters};
  shard.consistency = options.model;
  shard.rules.clocks = options.clocks;
  return shard;
}

std::shared_ptr<const optimizer::Optimizer> Sgd(double momentum) {
  v1alpha1::Optimizer spec;
  spec.mutable_sgd()->set_learning_rate(1);
  spec.mutable_sgd()->set_momentum(momentum);
  auto rule = optimizer::MakeOptimizer(spec);
  STARLING_CHECK(rule.ok(), rule.status().ToString().c_str());
  return *std::move(rule);
}

parameter_server::UpdatePtr Encoded(std::span<const float> values) {
  return parameter_server::Encode(
      {parameter_server::UpdateKind::kRange, 0, 0, values.size(), {}, values, {}});
}

parameter_server::Entry PushOf(std::span<const float> values, Clock clock,
                               parameter_server::Lease lease) {
  parameter_server::Entry entry;
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

std::vector<float> ValuesOf(const ShardState& shard, std::size_t parameters) {
  const absl::StatusOr<std::string> bytes = shard.Read({0, parameters, {}});
  STARLING_CHECK(bytes.ok(), bytes.status().ToString().c_str());
  std::vector<float> values(parameters);
  std::memcpy(values.data(), bytes->data(), bytes->size());
  return values;
}

void AssignFirst(const Problem& problem, std::uint64_t seed, ShardState& shard) {
  const std::vector<float> first = problem.First(seed);
  if (first.empty()) return;
  Entry entry = PushOf(first, 0, parameter_server::kFirstValues);
  entry.kind = EntryKind::kAssign;
  entry.client = {{"founder", 0}, 1};
  entry.sequence = 1;
  shard.OnView({entry.client});
  STARLING_CHECK(shard.Append(entry) == Outcome::kTaken, "nobody has assigned anything");
}

std::vector<float> TensorOf(const ShardState& shard, const std::string& name) {
  const std::string snapshot = shard.Save();
  const auto decoded = checkpoint::Decode(std::as_bytes(std::span(snapshot)));
  STARLING_CHECK(decoded.ok(), decoded.status().ToString().c_str());
  const checkpoint::TensorView* tensor = decoded->Find(name);
  STARLING_CHECK(tensor != nullptr, name.c_str());
  return {tensor->Floats().begin(), tensor->Floats().end()};
}

ClusterResult Run(const ClusterOptions& options) { return Simulation(options).Play(); }

}  // namespace starling::techniques
