// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "common/bytes/bytes.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/compression/codec.h"
#include "trainer/compression/compressor.h"
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

std::vector<float> Gradient(std::size_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Bytes of floats, by every codec of spec.compression: a matrix with rows of 1024.
void EncodeBy(benchmark::State& state, const compression::CodecKind& kind, bool decodes) {
  constexpr std::size_t kCount = 4 << 20, kWidth = 1024;
  std::vector<float> values = Gradient(kCount);
  const std::unique_ptr<compression::Codec> codec = kind.make({});
  const std::vector<compression::Piece> pieces = {{kCount, kWidth, kWidth}};
  std::vector<std::byte> bytes(codec->MaxBytes(kCount));
  std::size_t size = codec->EncodeIn({pieces}, values, bytes).value_or(0);
  for (auto _ : state) {
    if (decodes) {
      benchmark::DoNotOptimize(codec->Decode(std::span(bytes).first(size), values));
    } else {
      size = codec->EncodeIn({pieces}, values, bytes).value_or(0);
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kCount * sizeof(float)));
  state.counters["times smaller"] =
      static_cast<double>(kCount * sizeof(float)) / static_cast<double>(size);
}

// The same with error feedback around it, as a worker does in each step.
void CompressBy(benchmark::State& state, const compression::CodecKind& kind) {
  constexpr std::size_t kCount = 4 << 20, kWidth = 1024;
  const std::vector<float> values = Gradient(kCount);
  const std::unique_ptr<compression::Codec> codec = kind.make({});
  const std::vector<std::vector<std::int64_t>> shapes = {{kCount / kWidth, kWidth}};
  compression::Compressor compressor(
      *codec, kCount, {.error_feedback = true, .layout = compression::Layout(shapes)});
  std::vector<std::byte> bytes(codec->MaxBytes(kCount));
  for (auto _ : state) {
    benchmark::DoNotOptimize(compressor.Encode(0, {}, values, bytes));
    compressor.Commit(0);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kCount * sizeof(float)));
}

}  // namespace
}  // namespace starling

int main(int count, char** arguments) {
  for (const auto& kind : starling::compression::CodecKinds()) {
    for (const bool decodes : {false, true}) {
      const std::string name = (decodes ? "Decode/" : "Encode/") + std::string(kind.name);
      benchmark::RegisterBenchmark(name.c_str(), [&kind, decodes](benchmark::State& state) {
        starling::EncodeBy(state, kind, decodes);
      });
    }
    benchmark::RegisterBenchmark(
        ("Compress/" + std::string(kind.name)).c_str(),
        [&kind](benchmark::State& state) { starling::CompressBy(state, kind); });
  }
  benchmark::Initialize(&count, arguments);
  if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
