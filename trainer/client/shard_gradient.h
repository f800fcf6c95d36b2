// SPDX-License-Identifier: Apache-2.0
// A shard's part of a gradient, as the update that its push carries: a range of it, rows of it, or
// with fully connected layers as the product of their factors (parameter_server/factors.h) where
// that is less to send. K samples of a matrix of M by N are K (M + N) numbers, and every shard that
// holds a part of it gets the M of its rows and all N.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/client/parameter_reader.h"
#include "trainer/compression/compressor.h"
#include "trainer/parameter_server/job_tables.h"
#include "trainer/parameter_server/table.h"
#include "trainer/workload/workload.h"

namespace starling::client {

// How a push's values are encoded: by the codec of this number, which is the compressor's. What
// that loses is pending there under `update`.
struct PushEncoding {
  compression::CodecNumber codec = compression::kIdentity;
  compression::Compressor& compressor;
  std::uint64_t update = 0;
};

// The KKT filter (Li et al. 2014): where the servers' proximal gradient descent would leave a
// weight at 0 (optimizer::StaysZero), 0 is pushed, which leaves it there as well, and is a bit on
// the wire (parameter_server/update.h). What is looked at is the gradient as it arrives.
struct Kkt {
  std::span<const float> weights;  // as they were read, by row
  double l1 = 0;
};

// All of these are of `gradient` times `scale`; null where a number of it is not finite.
parameter_server::UpdatePtr EncodeRange(const parameter_server::RowRange& rows,
                                        std::span<const float> gradient, float scale,
                                        const PushEncoding& encoding);
parameter_server::UpdatePtr EncodeRows(std::span<const std::uint64_t> rows,
                                       std::span<const float> gradient, float scale,
                                       const PushEncoding& encoding,
                                       const std::optional<Kkt>& kkt = std::nullopt);
// `gradient` is the workload's, complete in these rows. As a range where every stretch is shorter
// so. What encoding factors loses is not kept: it is no part of any element.
parameter_server::UpdatePtr EncodeFactored(const parameter_server::RowRange& rows,
                                           std::span<const float> gradient, float scale,
                                           const PushEncoding& encoding,
                                           const workload::Workload& workload);

// A shard's part of `gradient` times `scale`, by the one of these that the job asks for; null where
// a number of it is not finite. What its codec loses is pending in the compressor under `update`.
using ShardEncoder = std::function<parameter_server::UpdatePtr(
    std::size_t shard, std::span<const float> gradient, float scale, std::uint64_t update)>;
// All of them outlive it; `reader` knows which rows were read of a sparse table.
ShardEncoder NewShardEncoder(const v1alpha1::TrainingJobSpec& spec, workload::Workload& workload,
                             const parameter_server::JobTables& tables,
                             const ParameterReader& reader, compression::Compressor& compressor);

}  // namespace starling::client
