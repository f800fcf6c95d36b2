// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "common/bytes/bytes.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/data/batches.h"
#include "trainer/data/load_datasets.h"
#include "trainer/optimizer/optimizer.h"

namespace starling {
namespace {

void SampleIds(benchmark::State& state) {
  const data::Batches batches(/*samples=*/state.range(0), /*batch=*/64, /*seed=*/1);
  std::int64_t step = 0;
  for (auto _ : state) benchmark::DoNotOptimize(batches.SampleIds(++step));
  state.SetItemsProcessed(state.iterations() * 64);
}
BENCHMARK(SampleIds)->Arg(1438)->Arg(1 << 20);

void AuditLine(benchmark::State& state) {
  const data::Batches batches(/*samples=*/1438, /*batch=*/64, /*seed=*/1);
  std::int64_t step = 0;
  for (auto _ : state) benchmark::DoNotOptimize(batches.AuditLine(++step));
}
BENCHMARK(AuditLine);

void ApplyOptimizer(benchmark::State& state, const v1alpha1::Optimizer& spec) {
  const auto optimizer = *optimizer::MakeOptimizer(spec);
  const auto count = static_cast<std::size_t>(state.range(0));
  std::vector<float> parameters(count, 1.0F);
  const std::vector<float> gradient(count, 1e-6F);
  auto shards = optimizer::NewState(*optimizer, count);
  std::int64_t number = 0;
  for (auto _ : state) {
    optimizer::Apply(*optimizer, {.learning_rate = 1e-3, .number = ++number}, parameters, gradient,
                     shards);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

v1alpha1::Optimizer Momentum() {
  v1alpha1::Optimizer spec;
  spec.mutable_sgd()->set_momentum(0.9);
  return spec;
}
v1alpha1::Optimizer AdamW() {
  v1alpha1::Optimizer spec;
  spec.mutable_adam_w();
  return spec;
}
BENCHMARK_CAPTURE(ApplyOptimizer, sgd, v1alpha1::Optimizer())->Arg(17'226)->Arg(4 << 20);
BENCHMARK_CAPTURE(ApplyOptimizer, momentum, Momentum())->Arg(17'226)->Arg(4 << 20);
BENCHMARK_CAPTURE(ApplyOptimizer, adam_w, AdamW())->Arg(17'226)->Arg(4 << 20);

void LoadCsv(benchmark::State& state) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("starling-microbench-" + bytes::RandomUuid() + ".csv");
  {
    std::ofstream file(path);
    for (int row = 0; row < 20'000; ++row) {
      for (int column = 0; column < 64; ++column) file << (row * column) % 17 << ".5,";
      file << row % 10 << "\n";
    }
  }
  v1alpha1::TrainingJobSpec spec;
  spec.mutable_dataset()->mutable_train()->mutable_csv()->set_uri(path);
  for (auto _ : state) {
    const auto sets = data::LoadDatasets(spec);
    if (!sets.ok()) state.SkipWithError("the table was not read");
  }
  state.SetBytesProcessed(state.iterations() *
                          static_cast<std::int64_t>(std::filesystem::file_size(path)));
  std::filesystem::remove(path);
}
BENCHMARK(LoadCsv)->Unit(benchmark::kMillisecond);

void EncodeAndDigestModel(benchmark::State& state) {
  const std::vector<float> weights(static_cast<std::size_t>(state.range(0)), 0.5F);
  const std::vector<checkpoint::TensorView> tensors = {
      checkpoint::MakeView("weights", {state.range(0)}, weights)};
  for (auto _ : state) {
    const auto file = checkpoint::Encode(tensors, {});
    benchmark::DoNotOptimize(bytes::Sha256Hex(*file));
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) *
                          static_cast<std::int64_t>(sizeof(float)));
}
BENCHMARK(EncodeAndDigestModel)->Arg(17'226)->Arg(4 << 20);

}  // namespace
}  // namespace starling

BENCHMARK_MAIN();
