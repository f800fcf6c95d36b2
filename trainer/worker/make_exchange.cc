// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/make_exchange.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "common/log/log.h"
#include "common/status/macros.h"
#include "trainer/client/compressor_options.h"
#include "trainer/compression/codec.h"

namespace starling::worker {
namespace {

using collectives::Algorithm;

// Auto is none of them: then the exchange chooses.
constexpr std::pair<v1alpha1::AllReduceAlgorithm, Algorithm> kAlgorithms[] = {
    {v1alpha1::ALL_REDUCE_ALGORITHM_RING, Algorithm::kRing},
    {v1alpha1::ALL_REDUCE_ALGORITHM_NAIVE, Algorithm::kNaive},
    {v1alpha1::ALL_REDUCE_ALGORITHM_HALVING_DOUBLING, Algorithm::kHalvingDoubling},
    {v1alpha1::ALL_REDUCE_ALGORITHM_RECURSIVE_DOUBLING, Algorithm::kRecursiveDoubling},
    {v1alpha1::ALL_REDUCE_ALGORITHM_TREE, Algorithm::kTree},
};

}  // namespace

absl::StatusOr<std::unique_ptr<exchange::Exchange>> MakeExchange(
    const v1alpha1::TrainingJobSpec& spec, const workload::Declaration& declaration) {
  std::vector<std::size_t> sizes;
  sizes.reserve(declaration.buckets.size());
  for (const engine::Bucket& bucket : declaration.buckets) {
    sizes.push_back(static_cast<std::size_t>(bucket.end - bucket.begin));
  }
  if (spec.exchange().has_none()) return exchange::NewNoExchange(sizes);
  const bool tune = !spec.exchange().all_reduce().has_bucket_bytes();
  if (spec.reproducible()) return exchange::NewReproducibleExchange(sizes, tune);
  exchange::AllReduceOptions options;
  for (const auto& [named, algorithm] : kAlgorithms) {
    if (named == spec.exchange().all_reduce().algorithm()) options.algorithm = algorithm;
  }
  ASSIGN_OR_RETURN(options.codec, compression::MakeCodec(spec.compression().codec()));
  options.tune_buckets = tune;
  options.compressor = client::CompressorOptionsOf(spec, declaration);
  return exchange::NewAllReduceExchange(sizes, options);
}

std::shared_ptr<const transport::Window> PlaceGradients(const v1alpha1::TrainingJobSpec& spec,
                                                        workload::Workload& workload) {
  const v1alpha1::Exchange& exchange = spec.exchange();
  const bool as_they_are =
      spec.compression().codec().kind_case() == v1alpha1::Codec::KIND_NOT_SET ||
      spec.compression().codec().has_identity();
  if (exchange.has_none() || exchange.has_parameter_server() || spec.reproducible() ||
      !as_they_are || exchange.all_reduce().algorithm() > v1alpha1::ALL_REDUCE_ALGORITHM_AUTO) {
    return nullptr;
  }
  auto window = transport::Window::Make(workload.gradients().size_bytes());
  if (!window.ok()) {
    log::Warning("sums of this machine's workers take a copy more",
                 {{"error", window.status().ToString()}});
    return nullptr;
  }
  return workload.PlaceGradients((*window)->floats()) ? *std::move(window) : nullptr;
}

}  // namespace starling::worker
