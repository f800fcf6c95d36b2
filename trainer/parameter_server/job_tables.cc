// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/job_tables.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "api/spec/consistency.h"
#include "common/status/macros.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/optimizer/server_rules.h"

namespace starling::parameter_server {
namespace {

constexpr std::int64_t kShards = 16;  // the schema's defaults, for specs that were not resolved
constexpr std::int64_t kBatch = 64;
constexpr std::int64_t kPortions = 16;  // as many workers can share a batch
constexpr std::int64_t kMostPortions = 1024;
constexpr std::int64_t kMostShards = 1024;
constexpr std::int64_t kDelay = 8;
constexpr std::int64_t kStaleness = 3;
constexpr double kBytesPerSecond = 5e6;

consistency::Priority PriorityOf(v1alpha1::SendPriority priority) {
  switch (priority) {
    case v1alpha1::SEND_PRIORITY_FIFO:
      return consistency::Priority::kFifo;
    case v1alpha1::SEND_PRIORITY_RANDOM:
      return consistency::Priority::kRandom;
    default:
      return consistency::Priority::kRelativeMagnitude;
  }
}

absl::StatusOr<std::shared_ptr<const TableSpec>> Parameters(const v1alpha1::TrainingJobSpec& spec,
                                                            const Layout& layout) {
  auto table = std::make_shared<TableSpec>();
  table->name = "parameters";
  table->rows = static_cast<std::uint64_t>(layout.parameters);
  if (layout.sparse) table->kind = TableKind::kSparse;
  ASSIGN_OR_RETURN(table->rule, optimizer::MakeOptimizer(spec.optimizer()));
  if (spec.update().has_hogwild()) {
    // The workers' threads have taken the steps: what is pushed is the change itself.
    table->combine = Combine::kSum;
    table->rule = optimizer::MakeAdd();
  }
  table->learning_rate = [rule = spec.optimizer()](std::int64_t number) {
    return optimizer::LearningRate(rule, number);
  };
  return table;
}

std::shared_ptr<const TableSpec> Course() {
  auto table = std::make_shared<TableSpec>();
  table->name = "course";
  table->kind = TableKind::kKeyValue;
  return table;
}

// What lies on servers, in order.
absl::StatusOr<std::vector<RowRange>> HeldOf(const Layout& layout) {
  const auto all = static_cast<std::uint64_t>(layout.parameters);
  // Of a sparse table it is the hashes of the rows' numbers that are cut.
  if (layout.sparse) return std::vector<RowRange>{{0, kHashEnd}};
  if (layout.held.empty()) return std::vector<RowRange>{{0, all}};
  std::uint64_t end = 0;
  for (const RowRange& range : layout.held) {
    if (range.begin < end || range.end <= range.begin || range.end > all) {
      return absl::InvalidArgumentError(
          absl::StrCat("a worker says that servers hold the parameters from ", range.begin,
                       " up to ", range.end, " of ", all,
                       ", which are not there or held already: workers of one job must run one "
                       "version of the program"));
    }
    end = range.end;
  }
  return layout.held;
}

std::int64_t ShardsOf(const v1alpha1::TrainingJobSpec& spec, std::int64_t parameters) {
  const v1alpha1::ParameterServer& server = spec.exchange().parameter_server();
  const std::int64_t most = server.has_shards() ? server.shards() : kShards;
  return std::clamp<std::int64_t>(parameters / kSmallestShard, 1, std::max<std::int64_t>(1, most));
}

}  // namespace

absl::StatusOr<JobTables> TablesOf(const v1alpha1::TrainingJobSpec& spec, const Layout& layout) {
  if (layout.parameters <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model has ", layout.parameters,
                     " parameters; a job with parameter servers needs one"));
  }
  ASSIGN_OR_RETURN(const std::vector<RowRange> held, HeldOf(layout));
  std::int64_t parameters = layout.parameters;
  if (!layout.held.empty()) {
    parameters = 0;
    for (const RowRange& range : held) parameters += static_cast<std::int64_t>(range.size());
  }
  const std::int64_t shards = ShardsOf(spec, parameters);
  if (shards + static_cast<std::int64_t>(held.size()) - 1 > kMostShards) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.exchange.parameterServer.shards: ", shards, " parts of ", held.size(),
                     " stretches of the model; at most ", kMostShards, " parts fit"));
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<const TableSpec> table, Parameters(spec, layout));
  JobTables tables;
  ASSIGN_OR_RETURN(tables.codec, compression::CodecNumberOf(spec.compression().codec()));
  ASSIGN_OR_RETURN(tables.codec_of_reads,
                   compression::CodecNumberOfReads(spec.compression().codec()));
  const consistency::Options model = ConsistencyOf(spec);
  for (const RowRange& range : held) {
    // Its share of the shards, and at least one.
    const auto share = static_cast<double>(range.size()) / static_cast<double>(parameters);
    const auto count =
        held.size() == 1
            ? static_cast<std::uint64_t>(shards)
            : static_cast<std::uint64_t>(std::max(1.0, static_cast<double>(shards) * share));
    std::uint64_t begin = range.begin;
    for (std::uint64_t i = 1; i <= count; ++i) {
      // The size times i would overflow for very large models.
      const std::uint64_t end =
          range.begin + range.size() / count * i + range.size() % count * i / count;
      tables.ids.push_back({0, {begin, end}});
      tables.shards.push_back({table, {begin, end}, model, {}});
      begin = end;
    }
  }
  tables.parameter_shards = tables.shards.size();
  const RowRange everything{0, kHashEnd};
  tables.ids.push_back({1, everything});
  tables.shards.push_back({Course(), everything, consistency::Asynchronous{}, {}});
  return tables;
}

std::map<ShardId, double> WeightsOf(const JobTables& tables) {
  constexpr double kOfTexts = 0.01;
  const auto bytes = [](const ShardOptions& shard) {
    return static_cast<double>(shard.range.size() * shard.table->width);
  };
  const auto dense = [](const ShardOptions& shard) {
    return shard.table->kind == TableKind::kDense;
  };
  double sum = 0;
  int count = 0;
  for (const ShardOptions& shard : tables.shards) {
    sum += dense(shard) ? bytes(shard) : 0;
    count += dense(shard) ? 1 : 0;
  }
  std::map<ShardId, double> weights;
  for (std::size_t i = 0; i < tables.shards.size(); ++i) {
    const ShardOptions& shard = tables.shards[i];
    double& weight = weights[tables.ids[i]];
    weight = shard.table->kind == TableKind::kKeyValue ? kOfTexts : 1;
    if (dense(shard)) weight = bytes(shard) * count / sum;
  }
  return weights;
}

std::int64_t SamplesPerStep(const v1alpha1::TrainingJobSpec& spec) {
  const v1alpha1::ParameterServer& server = spec.exchange().parameter_server();
  const v1alpha1::Dataset& dataset = spec.dataset();
  const std::int64_t batch = dataset.has_global_batch_size() ? dataset.global_batch_size() : kBatch;
  if (spec::WorksInStep(spec)) return batch;
  const std::int64_t units = std::max<std::int64_t>(1, spec.update().local_sgd().push_every());
  return (server.has_samples_per_push() ? server.samples_per_push() : batch) * units;
}

std::int64_t PortionsOf(const v1alpha1::TrainingJobSpec& spec) {
  const v1alpha1::ParameterServer& server = spec.exchange().parameter_server();
  if (!spec::WorksInStep(spec)) return 1;
  const std::int64_t batch = SamplesPerStep(spec);
  if (!server.has_samples_per_push()) return std::min(batch, kPortions);
  const std::int64_t samples = std::clamp<std::int64_t>(server.samples_per_push(), 1, batch);
  return std::min((batch + samples - 1) / samples, kMostPortions);
}

consistency::Options ConsistencyOf(const v1alpha1::TrainingJobSpec& spec) {
  using v1alpha1::Consistency;
  const Consistency& chosen = spec.exchange().parameter_server().consistency();
  switch (spec::ConsistencyKind(spec)) {
    case Consistency::KIND_NOT_SET:
    case Consistency::kBulkSynchronous:
      return consistency::BulkSynchronous{PortionsOf(spec)};
    case Consistency::kAsynchronous:
      return consistency::Asynchronous{};
    case Consistency::kBoundedDelay: {
      const v1alpha1::BoundedDelay& bounded = chosen.bounded_delay();
      return consistency::BoundedDelay{bounded.has_delay() ? bounded.delay() : kDelay};
    }
    case Consistency::kStaleSynchronous: {
      const v1alpha1::StaleSynchronous& stale = chosen.stale_synchronous();
      return consistency::StaleSynchronous{stale.has_staleness() ? stale.staleness() : kStaleness};
    }
    case Consistency::kEagerStaleSynchronous: {
      const v1alpha1::EagerStaleSynchronous& eager = chosen.eager_stale_synchronous();
      return consistency::EagerStaleSynchronous{
          eager.has_staleness() ? eager.staleness() : kStaleness,
          eager.has_bytes_per_second() ? eager.bytes_per_second() : kBytesPerSecond,
          PriorityOf(eager.priority())};
    }
    case Consistency::kBackupWorkers: {
      const v1alpha1::BackupWorkers& backup = chosen.backup_workers();
      return consistency::BackupWorkers{backup.has_backups() ? backup.backups() : 1};
    }
    case Consistency::kSoftSync: {
      const v1alpha1::SoftSync& soft = chosen.soft_sync();
      return consistency::SoftSync{soft.has_n() ? soft.n() : 1,
                                   !soft.has_staleness_aware() || soft.staleness_aware()};
    }
  }
  return consistency::Asynchronous{};
}

bool NamesRows(const v1alpha1::TrainingJobSpec& spec, bool sparse) {
  const v1alpha1::Compression& compression = spec.compression();
  return sparse && (!compression.has_key_cache() || compression.key_cache());
}

std::optional<double> KktPenaltyOf(const v1alpha1::TrainingJobSpec& spec, bool sparse) {
  if (!sparse || !spec.compression().kkt_filter()) return std::nullopt;
  return spec.optimizer().proximal_gradient().l1();
}

}  // namespace starling::parameter_server
