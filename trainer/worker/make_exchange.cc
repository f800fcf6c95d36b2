// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/make_exchange.h"

#include <cstddef>
#include <vector>

#include "common/status/macros.h"
#include "trainer/client/compressor_options.h"
#include "trainer/compression/codec.h"

namespace starling::worker {

absl::StatusOr<std::unique_ptr<exchange::Exchange>> MakeExchange(
    const v1alpha1::TrainingJobSpec& spec, const workload::Declaration& declaration) {
  std::vector<std::size_t> sizes;
  sizes.reserve(declaration.buckets.size());
  for (const engine::Bucket& bucket : declaration.buckets) {
    sizes.push_back(static_cast<std::size_t>(bucket.end - bucket.begin));
  }
  if (spec.exchange().has_none()) return exchange::NewNoExchange(sizes);
  if (spec.reproducible()) return exchange::NewReproducibleExchange(sizes);
  exchange::AllReduceOptions options;
  switch (spec.exchange().all_reduce().algorithm()) {
    case v1alpha1::ALL_REDUCE_ALGORITHM_RING:
      options.algorithm = collectives::Algorithm::kRing;
      break;
    case v1alpha1::ALL_REDUCE_ALGORITHM_NAIVE:
      options.algorithm = collectives::Algorithm::kNaive;
      break;
    default:
      break;
  }
  ASSIGN_OR_RETURN(options.codec, compression::MakeCodec(spec.compression().codec()));
  options.compressor = client::CompressorOptionsOf(spec, declaration);
  return exchange::NewAllReduceExchange(sizes, options);
}

}  // namespace starling::worker
