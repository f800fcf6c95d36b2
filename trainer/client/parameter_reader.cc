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
  return tables.slots.front().table->rule->remembered() != optimizer::Optimizer::kNothing;
}

}  // namespace

ParameterReader::ParameterReader(SlotPipe& pipe, const parameter_server::JobTables& tables,
                                 const clock::Clock& clock, std::span<float> parameters,
                                 bool sparse)
    : pipe_(pipe),
      tables_(tables),
      clock_(clock),
      parameters_(parameters),
      sparse_(sparse),
      remembers_(RuleRemembers(tables)),
      rows_(tables.parameter_slots),
      versions_(tables.parameter_slots) {
  for (std::size_t i = 0; i < tables.parameter_slots; ++i) {
    slot_begins_.push_back(tables.slots[i].range.begin);
  }
}

void ParameterReader::Ask(std::size_t slot, parameter_server::Clock clock,
                          compression::CodecNumber codec, SlotPipe::OnRead on_read) {
  const RowRange& all = tables_.slots[slot].range;
  if (remembers_) {
    Entry entry;
    entry.kind = EntryKind::kRemember;
    entry.update =
        parameter_server::Encode({UpdateKind::kRange, 0, all.begin, all.size(), {}, {}, {}});
    pipe_.Push(slot, std::move(entry));
  }
  parameter_server::Read read;
  read.clock = clock;
  read.remembered = remembers_;
  read.codec = codec;
  if (sparse_) {
    read.keys = rows_[slot];
  } else {
    read.first = all.begin;
    read.rows = all.size();
  }
  pipe_.Read(slot, std::move(read), std::move(on_read));
}

absl::Status ParameterReader::Take(std::size_t slot, const ReadDone& done,
                                   compression::CodecNumber codec) {
  versions_[slot] = done.version;
  RETURN_IF_ERROR(done.status);
  ASSIGN_OR_RETURN(const compression::Codec* decoder, compression::FindCodec(codec));
  // Of no rows there are no bytes.
  const auto bytes = done.values != nullptr ? std::as_bytes(std::span(*done.values))
                                            : std::span<const std::byte>();
  const RowRange& all = tables_.slots[slot].range;
  if (!sparse_) return decoder->Decode(bytes, parameters_.subspan(all.begin, all.size()));
  std::vector<float> values(rows_[slot].size());
  RETURN_IF_ERROR(decoder->Decode(bytes, values));
  for (std::size_t i = 0; i < values.size(); ++i) parameters_[rows_[slot][i]] = values[i];
  return absl::OkStatus();
}

absl::Status ParameterReader::Read(parameter_server::Clock clock,
                                   std::span<const std::uint64_t> rows,
                                   compression::CodecNumber codec, const Wanted& wanted) {
  for (std::vector<std::uint64_t>& of_slot : rows_) of_slot.clear();
  for (const std::uint64_t row : rows) {
    const auto after = std::ranges::upper_bound(slot_begins_, parameter_server::HashOfKey(row));
    rows_[after - slot_begins_.begin() - 1].push_back(row);
  }
  const absl::Time begin = clock_.Now();
  std::size_t missing = tables_.parameter_slots;
  absl::Status failed;
  for (std::size_t slot = 0; slot < tables_.parameter_slots; ++slot) {
    Ask(slot, clock, codec, [&, slot](const ReadDone& done) {
      --missing;
      if (absl::Status taken = Take(slot, done, codec); !taken.ok()) failed = std::move(taken);
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
