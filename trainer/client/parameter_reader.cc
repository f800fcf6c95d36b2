// SPDX-License-Identifier: Apache-2.0
#include "trainer/client/parameter_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "trainer/exchange/exchange.h"
#include "trainer/optimizer/optimizer.h"

namespace starling::client {

using parameter_server::Entry;
using parameter_server::EntryKind;
using parameter_server::ReadDone;
using parameter_server::RowRange;
using parameter_server::UpdateKind;

namespace {

// How often a wait looks whether it is still wanted.
constexpr absl::Duration kLook = absl::Milliseconds(20);

bool RuleRemembers(const parameter_server::JobTables& tables) {
  return tables.shards.front().table->rule->remembered() != optimizer::Optimizer::kNothing;
}

}  // namespace

ParameterReader::ParameterReader(ParameterServerClient& pipe,
                                 const parameter_server::JobTables& tables,
                                 const clock::Clock& clock, std::span<float> parameters,
                                 bool sparse)
    : pipe_(pipe),
      tables_(tables),
      clock_(clock),
      parameters_(parameters),
      sparse_(sparse),
      remembers_(RuleRemembers(tables)),
      rows_(tables.parameter_shards),
      versions_(tables.parameter_shards) {
  for (std::size_t i = 0; i < tables.parameter_shards; ++i) {
    shard_begins_.push_back(tables.shards[i].range.begin);
  }
}

void ParameterReader::Ask(std::size_t shard, parameter_server::Clock clock,
                          compression::CodecNumber codec, ParameterServerClient::OnRead on_read) {
  const RowRange& all = tables_.shards[shard].range;
  if (remembers_) {
    Entry entry;
    entry.kind = EntryKind::kRemember;
    entry.update =
        parameter_server::Encode({UpdateKind::kRange, 0, all.begin, all.size(), {}, {}, {}});
    pipe_.Push(shard, std::move(entry));
  }
  parameter_server::Read read;
  read.clock = clock;
  read.remembered = remembers_;
  read.codec = codec;
  if (sparse_) {
    read.keys = rows_[shard];
  } else {
    read.first = all.begin;
    read.rows = all.size();
  }
  pipe_.Read(shard, std::move(read), std::move(on_read));
}

absl::Status ParameterReader::Take(std::size_t shard, const ReadDone& done,
                                   compression::CodecNumber codec) {
  versions_[shard] = done.version;
  RETURN_IF_ERROR(done.status);
  ASSIGN_OR_RETURN(const compression::Codec* decoder, compression::FindCodec(codec));
  // Of no rows there are no bytes.
  const auto bytes = done.values != nullptr ? std::as_bytes(std::span(*done.values))
                                            : std::span<const std::byte>();
  const RowRange& all = tables_.shards[shard].range;
  if (!sparse_) return decoder->Decode(bytes, parameters_.subspan(all.begin, all.size()));
  std::vector<float> values(rows_[shard].size());
  RETURN_IF_ERROR(decoder->Decode(bytes, values));
  for (std::size_t i = 0; i < values.size(); ++i) parameters_[rows_[shard][i]] = values[i];
  return absl::OkStatus();
}

absl::Status ParameterReader::Read(parameter_server::Clock clock,
                                   std::span<const std::uint64_t> rows,
                                   compression::CodecNumber codec, const Wanted& wanted) {
  for (std::vector<std::uint64_t>& of_shard : rows_) of_shard.clear();
  for (const std::uint64_t row : rows) {
    const auto after = std::ranges::upper_bound(shard_begins_, parameter_server::HashOfKey(row));
    rows_[after - shard_begins_.begin() - 1].push_back(row);
  }
  const absl::Time begin = clock_.Now();
  std::size_t missing = tables_.parameter_shards;
  absl::Status failed;
  for (std::size_t shard = 0; shard < tables_.parameter_shards; ++shard) {
    Ask(shard, clock, codec, [&, shard](const ReadDone& done) {
      --missing;
      if (absl::Status taken = Take(shard, done, codec); !taken.ok()) failed = std::move(taken);
    });
  }
  absl::Status status = absl::DeadlineExceededError("");
  while (absl::IsDeadlineExceeded(status) && wanted()) {
    status = pipe_.Await([&] { return missing == 0; }, net::Deadline::After(kLook));
  }
  pipe_.ForgetReads();  // their callbacks point into this call
  took_ = clock_.Now() - begin;
  if (absl::IsDeadlineExceeded(status)) return absl::AbortedError("not wanted any more");
  RETURN_IF_ERROR(status);
  if (failed.ok()) return failed;
  // A restore has made void what this client had remembered: the next view has another answer.
  if (absl::IsNotFound(failed)) return exchange::ViewEnded(failed);
  return absl::InternalError(
      absl::StrCat("the parameters cannot be read from the servers: ", failed.message()));
}

}  // namespace starling::client
