// SPDX-License-Identifier: Apache-2.0
// Pulls a workload's parameters from the servers into its flat buffer: all of them, or the rows of
// a sparse table that the present samples use.
//
// It knows which row lies in which shard. Pushes go through the pipe itself; what a push has to say
// of the last pull (the rows of each shard, the version that was read) is asked here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock/clock.h"
#include "trainer/client/parameter_server_client.h"
#include "trainer/compression/codec.h"
#include "trainer/parameter_server/job_tables.h"

namespace starling::client {

// Confined to the pipe's thread.
class ParameterReader {
 public:
  // Returns whether a pull is still worth waiting for.
  using Wanted = std::function<bool()>;

  // All of them outlive it. `parameters` is the flat buffer; `sparse`: its floats are the rows of a
  // sparse table.
  ParameterReader(ParameterServerClient& pipe, const parameter_server::JobTables& tables,
                  const clock::Clock& clock, std::span<float> parameters, bool sparse);

  // Reads `rows` (ascending; of a dense table all are read, and `rows` is empty) as the consistency
  // model lets a client read them at `clock`, and overwrites them in the flat buffer. They travel
  // by `codec`. UNAVAILABLE when the view has ended, ABORTED when `wanted` says no more, INTERNAL
  // when a server cannot answer such a read in any view; then the buffer is partly overwritten.
  absl::Status Read(parameter_server::Clock clock, std::span<const std::uint64_t> rows,
                    compression::CodecNumber codec, const Wanted& wanted);

  // Of the last Read: the rows that lie in this shard of a sparse table, the version of the shard,
  // and how long it took.
  std::span<const std::uint64_t> rows(std::size_t shard) const { return rows_[shard]; }
  parameter_server::Version version(std::size_t shard) const { return versions_[shard]; }
  // Whether all shards were read at this version.
  bool ReadAt(parameter_server::Version version) const {
    return std::ranges::all_of(versions_, [&](const auto& read) { return read == version; });
  }
  absl::Duration took() const { return took_; }

 private:
  void Ask(std::size_t shard, parameter_server::Clock clock, compression::CodecNumber codec,
           ParameterServerClient::OnRead on_read);
  absl::Status Take(std::size_t shard, const parameter_server::ReadDone& done,
                    compression::CodecNumber codec);

  ParameterServerClient& pipe_;
  const parameter_server::JobTables& tables_;
  const clock::Clock& clock_;
  const std::span<float> parameters_;
  const bool sparse_;
  const bool remembers_;                     // the servers' rule wants to know of reads
  std::vector<std::uint64_t> shard_begins_;  // of the shards' ranges
  std::vector<std::vector<std::uint64_t>> rows_;
  std::vector<parameter_server::Version> versions_;
  absl::Duration took_;
};

}  // namespace starling::client
