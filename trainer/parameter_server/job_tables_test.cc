// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/job_tables.h"

#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/membership.pb.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/parameter_server/convert.h"
#include "trainer/parameter_server/work_plan.h"

namespace starling::parameter_server {
namespace {

using ::testing::HasSubstr;

v1alpha1::TrainingJobSpec Spec() {
  v1alpha1::TrainingJobSpec spec;
  spec.mutable_exchange()->mutable_parameter_server()->set_shards(16);
  spec.mutable_dataset()->set_global_batch_size(48);
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(0.5);
  return spec;
}

TEST(JobTables, AModelIsCutIntoEqualShardsThatHoldEveryParameterOnce) {
  const absl::StatusOr<JobTables> tables = TablesOf(Spec(), {100'003, 1000, "f"});
  ASSERT_TRUE(tables.ok()) << tables.status();
  ASSERT_EQ(tables->parameter_shards, 16u);
  ASSERT_EQ(tables->shards.size(), 17u);
  ASSERT_EQ(tables->ids.size(), 17u);
  std::uint64_t next = 0;
  for (std::size_t i = 0; i < tables->parameter_shards; ++i) {
    EXPECT_EQ(tables->ids[i].range, tables->shards[i].range);
    EXPECT_EQ(tables->shards[i].range.begin, next);
    next = tables->shards[i].range.end;
    EXPECT_NEAR(static_cast<double>(tables->shards[i].range.size()), 100'003 / 16.0, 1);
  }
  EXPECT_EQ(next, 100'003u);
  EXPECT_EQ(tables->shards[tables->course_shard()].table->kind, TableKind::kKeyValue);
}

TEST(JobTables, ASmallModelIsNotCutBelow4096Numbers) {
  for (const auto& [parameters, shards] :
       std::map<std::int64_t, std::size_t>{{1, 1}, {4096, 1}, {8191, 1}, {8192, 2}, {70'000, 16}}) {
    const absl::StatusOr<JobTables> tables = TablesOf(Spec(), {parameters, 10, "f"});
    ASSERT_TRUE(tables.ok()) << tables.status();
    EXPECT_EQ(tables->parameter_shards, shards) << parameters;
  }
  EXPECT_EQ(TablesOf(Spec(), {0, 10, "f"}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(JobTables, AJobMayHaveASingleShardAndHasNoFewer) {
  for (const std::int64_t shards : {1, 0}) {
    v1alpha1::TrainingJobSpec spec = Spec();
    spec.mutable_exchange()->mutable_parameter_server()->set_shards(shards);
    const absl::StatusOr<JobTables> tables = TablesOf(spec, {100'000, 10, "f"});
    ASSERT_TRUE(tables.ok()) << tables.status();
    EXPECT_EQ(tables->parameter_shards, 1U) << shards;
  }
}

TEST(JobTables, OnlyWhatServersHoldIsCutIntoShards) {
  for (const std::uint64_t held : {8191, 8192}) {
    Layout layout{100'000, 10, "f"};
    layout.held = {{10, 10 + held}};
    const absl::StatusOr<JobTables> tables = TablesOf(Spec(), layout);
    ASSERT_TRUE(tables.ok()) << tables.status();
    EXPECT_EQ(tables->parameter_shards, held / 4096) << held;
  }
}

TEST(JobTables, WhereServersHoldAPartOfTheModelShardsCoverThatPartAlone) {
  Layout layout{100'000, 1000, "f"};
  layout.held = {{1000, 31'000}, {50'000, 50'010}, {60'000, 100'000}};
  const absl::StatusOr<JobTables> tables = TablesOf(Spec(), layout);
  ASSERT_TRUE(tables.ok()) << tables.status();
  std::vector<RowRange> joined;
  for (std::size_t i = 0; i < tables->parameter_shards; ++i) {
    const RowRange& range = tables->shards[i].range;
    if (!joined.empty() && joined.back().end == range.begin) {
      joined.back().end = range.end;
    } else {
      joined.push_back(range);
    }
  }
  EXPECT_EQ(joined, layout.held);
  EXPECT_EQ(tables->parameter_shards, 6u + 1 + 9) << "16 shards, each stretch by its size";
  EXPECT_EQ(tables->shards[0].table, tables->shards[7].table) << "it is one table";

  v1alpha1::ModelLayout message;
  Put(layout, message);
  EXPECT_EQ(FromProto(message), layout);
}

TEST(JobTables, ALayoutWhoseStretchesAreNotThereIsRefused) {
  for (const std::vector<RowRange>& held : {std::vector<RowRange>{{10, 10}},
                                            {{20, 10}},
                                            {{0, 10}, {5, 20}},
                                            {{5, 20}, {0, 5}},
                                            {{0, 101}},
                                            {{static_cast<std::uint64_t>(-1), 5}}}) {
    Layout layout{100, 10, "f"};
    layout.held = held;
    const absl::Status status = TablesOf(Spec(), layout).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("one version of the program"));
  }
}

TEST(JobTables, TheLearningRateFollowsTheScheduleByUpdateNumber) {
  v1alpha1::TrainingJobSpec spec = Spec();
  spec.mutable_optimizer()->mutable_schedule()->set_warmup_steps(4);
  spec.mutable_optimizer()->mutable_schedule()->mutable_step()->set_every(10);
  const absl::StatusOr<JobTables> tables = TablesOf(spec, {5000, 10, "f"});
  ASSERT_TRUE(tables.ok()) << tables.status();
  const TableSpec& table = *tables->shards[0].table;
  EXPECT_DOUBLE_EQ(table.learning_rate(1), 0.125);
  EXPECT_DOUBLE_EQ(table.learning_rate(5), 0.5);
  EXPECT_NEAR(table.learning_rate(15), 0.05, 1e-12);
}

TEST(JobTables, EveryRuleOfTheJobFileIsMadeWithItsOwnRate) {
  v1alpha1::Optimizer rules[9];
  rules[1].mutable_sgd()->set_momentum(0.9);
  rules[2].mutable_adam();
  rules[3].mutable_adam_w();
  rules[4].mutable_adagrad()->set_learning_rate(0.25);
  rules[5].mutable_ada_revision();
  rules[6].mutable_delay_compensated()->set_adaptive(true);
  rules[7].mutable_ftrl();
  rules[8].mutable_proximal_gradient();
  const double rates[9] = {0.05, 0.05, 0.001, 0.001, 0.25, 0.05, 0.05, 0.1, 0.05};
  const std::size_t states[9] = {0, 1, 2, 2, 1, 3, 1, 2, 0};
  for (int i = 0; i < 9; ++i) {
    v1alpha1::TrainingJobSpec spec = Spec();
    *spec.mutable_optimizer() = rules[i];
    const absl::StatusOr<JobTables> tables = TablesOf(spec, {5000, 10, "f"});
    ASSERT_TRUE(tables.ok()) << tables.status();
    EXPECT_EQ(tables->shards[0].table->rule->state_names().size(), states[i]) << i;
    EXPECT_DOUBLE_EQ(tables->shards[0].table->learning_rate(1), rates[i]) << i;
  }
  v1alpha1::TrainingJobSpec bad = Spec();
  bad.mutable_optimizer()->mutable_sgd()->set_nesterov(true);
  EXPECT_THAT(TablesOf(bad, {5000, 10, "f"}).status().message(), HasSubstr("nesterov"));
}

TEST(JobTables, ConsistencyIsTakenFieldByField) {
  v1alpha1::TrainingJobSpec spec = Spec();
  EXPECT_TRUE(std::holds_alternative<consistency::BulkSynchronous>(ConsistencyOf(spec)));
  v1alpha1::Consistency& chosen =
      *spec.mutable_exchange()->mutable_parameter_server()->mutable_consistency();
  chosen.mutable_bounded_delay()->set_delay(5);
  EXPECT_EQ(std::get<consistency::BoundedDelay>(ConsistencyOf(spec)).delay, 5);
  chosen.mutable_stale_synchronous()->set_staleness(0);
  EXPECT_EQ(std::get<consistency::StaleSynchronous>(ConsistencyOf(spec)).staleness, 0);
  chosen.mutable_stale_synchronous()->clear_staleness();
  EXPECT_EQ(std::get<consistency::StaleSynchronous>(ConsistencyOf(spec)).staleness, 3);
  chosen.mutable_eager_stale_synchronous()->set_priority(v1alpha1::SEND_PRIORITY_FIFO);
  EXPECT_EQ(std::get<consistency::EagerStaleSynchronous>(ConsistencyOf(spec)).priority,
            consistency::Priority::kFifo);
  chosen.mutable_backup_workers()->set_backups(2);
  EXPECT_EQ(std::get<consistency::BackupWorkers>(ConsistencyOf(spec)).backups, 2);
  chosen.mutable_soft_sync()->set_staleness_aware(false);
  EXPECT_FALSE(std::get<consistency::SoftSync>(ConsistencyOf(spec)).staleness_aware);
  chosen.mutable_asynchronous();
  EXPECT_TRUE(std::holds_alternative<consistency::Asynchronous>(ConsistencyOf(spec)));
}

// Its workers' threads take the steps; what they push is the change itself.
TEST(JobTables, WithHogwildServersOfASparseModelAdd) {
  v1alpha1::TrainingJobSpec spec = Spec();
  const auto after_a_push = [&spec] {
    const absl::StatusOr<JobTables> tables = TablesOf(spec, {100'000, 1000, "f", /*sparse=*/true});
    EXPECT_TRUE(tables.ok()) << tables.status();
    const std::unique_ptr<ShardStore> shard = MakeShard(tables->shards[0].table, {0, kHashEnd});
    const std::vector<std::uint64_t> keys = {7};
    const std::vector<float> values = {3};
    Update update;
    update.kind = UpdateKind::kRows;
    update.keys = keys;
    update.values = values;
    const Part part{.update = &update};
    shard->Apply({.learning_rate = 0.5, .number = 1}, std::span(&part, 1));
    float row = 0;
    const std::string bytes = shard->Read({.keys = keys});
    std::memcpy(&row, bytes.data(), sizeof(row));
    return row;
  };
  EXPECT_EQ(after_a_push(), -1.5F) << "down by a gradient";
  spec.mutable_update()->mutable_hogwild();
  EXPECT_EQ(after_a_push(), 3.0F);
}

TEST(JobTables, APushHasAGlobalBatchUnlessTheJobSaysOtherwise) {
  v1alpha1::TrainingJobSpec spec = Spec();
  v1alpha1::ParameterServer& server = *spec.mutable_exchange()->mutable_parameter_server();
  server.mutable_consistency()->mutable_asynchronous();
  EXPECT_EQ(SamplesPerStep(spec), 48);
  server.set_samples_per_push(12);
  EXPECT_EQ(SamplesPerStep(spec), 12);
  spec.mutable_update()->mutable_local_sgd()->set_push_every(5);
  EXPECT_EQ(SamplesPerStep(spec), 60);
  EXPECT_EQ(PortionsOf(spec), 1);
  EXPECT_EQ(StepOfLease(kFirstValues + 1, 1), 0);
  EXPECT_EQ(StepOfLease(kFirstValues + 18, 1), 17);
}

TEST(JobTables, ABulkSynchronousStepIsAGlobalBatchInPortions) {
  v1alpha1::TrainingJobSpec spec = Spec();
  const auto portions = [&] {
    return std::get<consistency::BulkSynchronous>(ConsistencyOf(spec)).portions;
  };
  EXPECT_EQ(SamplesPerStep(spec), 48);
  EXPECT_EQ(portions(), 16);
  for (const auto& [samples, wanted] : {std::pair{48, 1}, {24, 2}, {1, 48}}) {
    spec.mutable_exchange()->mutable_parameter_server()->set_samples_per_push(samples);
    EXPECT_EQ(SamplesPerStep(spec), 48);
    EXPECT_EQ(portions(), wanted);
  }
  spec.mutable_exchange()->mutable_parameter_server()->clear_samples_per_push();
  // Never by how many workers there are, which may change.
  spec.mutable_replica_specs()->mutable_worker()->set_replicas(3);
  spec.mutable_replica_specs()->mutable_worker()->set_max_replicas(40);
  EXPECT_EQ(portions(), 16);
  spec.mutable_dataset()->set_global_batch_size(5);
  EXPECT_EQ(portions(), 5);
  EXPECT_EQ(StepOfLease(kFirstValues + 1, 5), 0);
  EXPECT_EQ(StepOfLease(kFirstValues + 5, 5), 0);
  EXPECT_EQ(StepOfLease(kFirstValues + 6, 5), 1);
  EXPECT_EQ(PortionOfLease(kFirstValues + 8, 5), 2);
}

TEST(WorkPlan, EachClientHasNeighbouringPortionsAsManyAsTheOthers) {
  for (const std::int64_t portions : {1, 5, 16}) {
    for (std::int64_t clients = 1; clients <= 18; ++clients) {
      WorkPlan plan;
      plan.portions = portions;
      std::int64_t before = 0;
      for (std::int64_t portion = 0; portion < portions; ++portion) {
        const std::int64_t rank = plan.RankOf(plan.LastOf(7) + 1 + portion, clients);
        ASSERT_GE(rank, before);
        ASSERT_LT(rank, clients);
        // As data::Share() cuts a batch.
        ASSERT_GE(portion, rank * portions / clients);
        ASSERT_LT(portion, (rank + 1) * portions / clients);
        before = rank;
      }
      EXPECT_EQ(plan.BatchesBelow(plan.LastOf(7)), 6);
      EXPECT_EQ(plan.BatchesBelow(plan.LastOf(7) + 1), 7);
      EXPECT_EQ(plan.BatchesBelow(1), 0);
    }
  }
}

TEST(LeaseLedger, AddingARangeEqualsAddingEachOfIt) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    LeaseLedger ranges, singles;
    std::set<Lease> all;
    for (int i = 0; i < 6; ++i) {
      const Lease first = 1 + random() % 30, end = first + random() % 8;
      ranges.Add(first, end);
      for (Lease lease = first; lease < end; ++lease) {
        singles.Add(lease);
        all.insert(lease);
      }
    }
    ASSERT_EQ(ranges.intervals(), singles.intervals());
    for (Lease lease = 1; lease < 40; ++lease) ASSERT_EQ(ranges.Has(lease), all.contains(lease));
  }
}

TEST(Convert, WhatIsSentArrives) {
  const Layout layout{7, 9, "fingerprint"};
  v1alpha1::ModelLayout layout_message;
  Put(layout, layout_message);
  EXPECT_EQ(FromProto(layout_message), layout);

  for (const ShardReport& report :
       {ShardReport{StateId{5, 17}, true, false, 900}, ShardReport{std::nullopt, false, true, 0}}) {
    v1alpha1::ShardReport message;
    Put(report, message);
    EXPECT_EQ(FromProto(message), report);
  }

  LeaseLedger ledger;
  for (const Lease lease : {1, 2, 3, 7, 9, 10}) ledger.Add(lease);
  v1alpha1::ShardLedger ledger_message;
  Put(ledger, ledger_message);
  EXPECT_EQ(ledger_message.done_size(), 3);
  EXPECT_EQ(FromProto(ledger_message).intervals(), ledger.intervals());
  ledger_message.mutable_done(0)->set_end(0);
  EXPECT_FALSE(FromProto(ledger_message).Has(1)) << "a range that ends before it begins is nothing";
}

TEST(JobTables, ASparseModelIsCutByTheHashesOfItsRows) {
  const absl::StatusOr<JobTables> tables = TablesOf(Spec(), {1 << 20, 1000, "f", /*sparse=*/true});
  ASSERT_TRUE(tables.ok()) << tables.status();
  ASSERT_EQ(tables->parameter_shards, 16u);
  EXPECT_EQ(tables->shards[0].table->kind, TableKind::kSparse);
  EXPECT_EQ(tables->shards[0].range.begin, 0u);
  EXPECT_EQ(tables->shards[15].range.end, kHashEnd);
  for (std::size_t i = 1; i < 16; ++i) {
    EXPECT_EQ(tables->shards[i].range.begin, tables->shards[i - 1].range.end);
  }
}

TEST(JobTables, RowsAreNamedUnlessTheJobSaysOtherwiseAndOnlySparseModelsHaveRows) {
  v1alpha1::TrainingJobSpec spec = Spec();
  EXPECT_FALSE(NamesRows(spec, false)) << "a dense model";
  EXPECT_TRUE(NamesRows(spec, true));
  spec.mutable_compression();
  EXPECT_TRUE(NamesRows(spec, true));
  spec.mutable_compression()->set_key_cache(false);
  EXPECT_FALSE(NamesRows(spec, true));
}

TEST(JobTables, ValuesTravelByTheCodecOfTheJob) {
  v1alpha1::TrainingJobSpec spec = Spec();
  const auto codec = [&] { return TablesOf(spec, {100'000, 1000, "f"})->codec; };
  EXPECT_EQ(codec(), compression::kIdentity);
  spec.mutable_compression()->mutable_codec()->mutable_float16();
  EXPECT_EQ(codec(), *compression::CodecNumberOf("float16"));
  spec.mutable_workload()->mutable_sparse_logistic_regression();
  spec.mutable_compression()->mutable_codec()->mutable_bfloat16();
  EXPECT_EQ(codec(), *compression::CodecNumberOf("bfloat16"));
}

TEST(JobTables, ThePenaltyIsAskedForWithTheKktFilterAlone) {
  v1alpha1::TrainingJobSpec spec = Spec();
  spec.mutable_optimizer()->mutable_proximal_gradient()->set_l1(0.125);
  EXPECT_EQ(KktPenaltyOf(spec, true), std::nullopt);
  spec.mutable_compression()->set_kkt_filter(true);
  EXPECT_EQ(KktPenaltyOf(spec, true), 0.125);
}

TEST(JobTables, TablesSayWhatTheyAreAndHowPushesBecomeOne) {
  v1alpha1::TrainingJobSpec spec = Spec();
  const absl::StatusOr<JobTables> tables = TablesOf(spec, {100'000, 1000, "f"});
  const TableSpec& parameters = *tables->shards[0].table;
  EXPECT_EQ(parameters.name, "parameters");
  EXPECT_EQ(parameters.kind, TableKind::kDense);
  EXPECT_EQ(parameters.rows, 100'000U);
  EXPECT_EQ(parameters.combine, Combine::kMean);
  EXPECT_EQ(tables->shards[tables->course_shard()].table->name, "course");
  spec.mutable_update()->mutable_hogwild();
  EXPECT_EQ(TablesOf(spec, {100'000, 1000, "f"})->shards[0].table->combine, Combine::kSum);
}

// Two stretches of a model, one three times as long as the other.
TEST(JobTables, AShardWeighsAsManyMeansAsItHasNumbersAndTextsNextToNothing) {
  Layout layout{100'000, 1000, "f"};
  layout.held = {{0, 30'000}, {50'000, 60'000}};
  v1alpha1::TrainingJobSpec spec = Spec();
  spec.mutable_exchange()->mutable_parameter_server()->set_shards(2);
  const absl::StatusOr<JobTables> tables = TablesOf(spec, layout);
  ASSERT_TRUE(tables.ok());
  ASSERT_EQ(tables->parameter_shards, 2U);
  const std::map<ShardId, double> weights = WeightsOf(*tables);
  ASSERT_EQ(weights.size(), 3U);
  EXPECT_DOUBLE_EQ(weights.at(tables->ids[0]), 1.5);
  EXPECT_DOUBLE_EQ(weights.at(tables->ids[1]), 0.5);
  EXPECT_DOUBLE_EQ(weights.at(tables->ids[2]), 0.01);
}

TEST(JobTables, ShardsWhoseRowsComeToLifeWeighAsMuchAsTheMean) {
  const absl::StatusOr<JobTables> tables = TablesOf(Spec(), {1 << 20, 1000, "f", /*sparse=*/true});
  const std::map<ShardId, double> weights = WeightsOf(*tables);
  for (std::size_t i = 0; i < tables->parameter_shards; ++i) {
    EXPECT_EQ(weights.at(tables->ids[i]), 1) << i;
  }
  EXPECT_EQ(weights.at(tables->ids[tables->course_shard()]), 0.01);
}

TEST(JobTables, AsManyShardsAreMadeAsAViewCanNameAndNoMore) {
  v1alpha1::TrainingJobSpec spec = Spec();
  for (const std::int64_t shards : {1024, 1025}) {
    spec.mutable_exchange()->mutable_parameter_server()->set_shards(shards);
    EXPECT_EQ(TablesOf(spec, {10'000'000, 10, "f"}).ok(), shards == 1024);
  }
  spec.mutable_exchange()->mutable_parameter_server()->set_shards(1024);
  Layout layout{10'000'000, 10, "f"};
  layout.held = {{0, 5'000'000}, {5'000'000, 10'000'000}};
  EXPECT_FALSE(TablesOf(spec, layout).ok()) << "stretches may need a part more";
  spec.mutable_exchange()->mutable_parameter_server()->set_shards(1023);
  EXPECT_TRUE(TablesOf(spec, layout).ok()) << "and they may follow one another";
}

TEST(JobTables, WhatTheJobFileDoesNotSayOfConsistencyIsTheSchemasDefault) {
  v1alpha1::TrainingJobSpec spec = Spec();
  auto& chosen = *spec.mutable_exchange()->mutable_parameter_server()->mutable_consistency();
  chosen.mutable_eager_stale_synchronous();
  const auto eager = std::get<consistency::EagerStaleSynchronous>(ConsistencyOf(spec));
  EXPECT_EQ(eager.staleness, 3);
  EXPECT_EQ(eager.bytes_per_second, 5e6);
  chosen.mutable_soft_sync();
  EXPECT_EQ(std::get<consistency::SoftSync>(ConsistencyOf(spec)).n, 1);
  EXPECT_TRUE(std::get<consistency::SoftSync>(ConsistencyOf(spec)).staleness_aware);
  chosen.mutable_soft_sync()->set_n(4);
  chosen.mutable_soft_sync()->set_staleness_aware(true);
  EXPECT_EQ(std::get<consistency::SoftSync>(ConsistencyOf(spec)).n, 4);
  EXPECT_TRUE(std::get<consistency::SoftSync>(ConsistencyOf(spec)).staleness_aware);
  chosen.mutable_soft_sync()->set_staleness_aware(false);
  EXPECT_FALSE(std::get<consistency::SoftSync>(ConsistencyOf(spec)).staleness_aware);
}

TEST(JobTables, RowsAreNamedAndGradientsLeftOutOfSparseModelsOnly) {
  v1alpha1::TrainingJobSpec spec = Spec();
  spec.mutable_compression()->set_key_cache(true);
  EXPECT_TRUE(NamesRows(spec, true));
  spec.mutable_compression()->set_kkt_filter(true);
  EXPECT_EQ(KktPenaltyOf(spec, false), std::nullopt);
}

}  // namespace
}  // namespace starling::parameter_server
