// SPDX-License-Identifier: Apache-2.0
// How parameters come to a worker: all of them, or the rows that its leases use.
#include <algorithm>

#include "common/status/macros.h"
#include "trainer/worker/lease_work.h"

namespace starling::worker {
namespace {

using consistency::LeaseRun;
using parameter_server::Entry;
using parameter_server::EntryKind;
using parameter_server::ReadDone;
using parameter_server::RowRange;
using parameter_server::UpdateKind;

// How often a wait looks whether it is still wanted.
constexpr absl::Duration kLook = absl::Milliseconds(20);

}  // namespace

absl::Status LeaseWork::FetchIfDue() {
  if (!downpour_.Fetches(units_)) return absl::OkStatus();
  return FetchRows(
      clock_, [] { return true; }, {}, codec_);
}

absl::Status LeaseWork::FetchFor(const LeaseRun& leases) {
  const auto wanted = [&] { return events_.are_next(leases); };
  if (sparse_ != nullptr) {
    touched_ = TouchedBy(leases);
    return FetchRows(ClockOf(leases), wanted, touched_, codec_);
  }
  if (in_step_) return FetchRows(ClockOf(leases), wanted, {}, codec_);
  return FetchIfDue();
}

std::vector<std::uint64_t> LeaseWork::TouchedBy(const LeaseRun& leases) const {
  const std::vector<std::int64_t> ids =
      parts_.batches.SampleIds(StepOf(leases.first), PositionsOf(leases));
  std::vector<float> features(ids.size() * static_cast<std::size_t>(parts_.train.SampleSize()));
  std::vector<std::int64_t> labels(ids.size());
  data::Gather(parts_.train, ids, features, labels);
  return sparse_->Touched(features);
}

absl::Status LeaseWork::Fetch(parameter_server::Clock clock, const std::function<bool()>& wanted,
                              const data::Dataset* only_for) {
  constexpr compression::CodecNumber kWhole = compression::kIdentity;
  if (sparse_ == nullptr) return FetchRows(clock, wanted, {}, kWhole);
  if (only_for == nullptr) return FetchRows(clock, wanted, sparse_->AllTouched(), kWhole);
  return FetchRows(clock, wanted, sparse_->Touched(only_for->features), kWhole);
}

parameter_server::Read LeaseWork::ReadOf(std::size_t slot, parameter_server::Clock clock) const {
  const RowRange& rows = parts_.tables.slots[slot].range;
  parameter_server::Read read;
  read.clock = clock;
  read.remembered = remembers_;
  if (sparse_ != nullptr) {
    read.keys = rows_[slot];
  } else {
    read.first = rows.begin;
    read.rows = rows.size();
  }
  return read;
}

// What was read becomes the engine's.
absl::Status LeaseWork::Take(std::size_t slot, const ReadDone& done,
                             compression::CodecNumber codec) {
  versions_[slot] = done.version;
  RETURN_IF_ERROR(done.status);
  ASSIGN_OR_RETURN(const compression::Codec* decoder, compression::FindCodec(codec));
  const RowRange& rows = parts_.tables.slots[slot].range;
  // Of no rows there are no bytes.
  const auto bytes = done.values != nullptr ? std::as_bytes(std::span(*done.values))
                                            : std::span<const std::byte>();
  const std::span<float> parameters = parts_.engine.parameters();
  if (sparse_ == nullptr) {
    return decoder->Decode(bytes, parameters.subspan(rows.begin, rows.size()));
  }
  std::vector<float> values(rows_[slot].size());
  RETURN_IF_ERROR(decoder->Decode(bytes, values));
  for (std::size_t i = 0; i < values.size(); ++i) parameters[rows_[slot][i]] = values[i];
  return absl::OkStatus();
}

// `rows`: of a sparse engine; else all are fetched.
absl::Status LeaseWork::FetchRows(parameter_server::Clock clock,
                                  const std::function<bool()>& wanted,
                                  std::span<const std::uint64_t> rows,
                                  compression::CodecNumber codec) {
  parts_.stopwatch.Enter(Activity::kExchange);
  for (std::vector<std::uint64_t>& of_slot : rows_) of_slot.clear();
  for (const std::uint64_t row : rows) {
    const auto after = std::ranges::upper_bound(slot_begins_, parameter_server::HashOfKey(row));
    rows_[after - slot_begins_.begin() - 1].push_back(row);
  }
  const absl::Time begin = parts_.clock.Now();
  std::size_t missing = parts_.tables.parameter_slots;
  absl::Status failed;
  for (std::size_t slot = 0; slot < parts_.tables.parameter_slots; ++slot) {
    if (remembers_) {
      const RowRange& all = parts_.tables.slots[slot].range;
      Entry entry;
      entry.kind = EntryKind::kRemember;
      entry.update =
          parameter_server::Encode({UpdateKind::kRange, 0, all.begin, all.size(), {}, {}, {}});
      parts_.pipe.Push(slot, std::move(entry));
    }
    parameter_server::Read read = ReadOf(slot, clock);
    read.codec = codec;
    parts_.pipe.Read(slot, std::move(read), [&, slot](const ReadDone& done) {
      --missing;
      if (absl::Status taken = Take(slot, done, codec); !taken.ok()) failed = std::move(taken);
    });
  }
  absl::Status status = absl::DeadlineExceededError("");
  while (absl::IsDeadlineExceeded(status) && wanted()) {
    status = parts_.pipe.Await([&] { return missing == 0; }, net::Deadline::After(kLook));
  }
  parts_.pipe.ForgetReads();  // their callbacks point into this call
  fetch_seconds_ = absl::ToDoubleSeconds(parts_.clock.Now() - begin);
  if (absl::IsDeadlineExceeded(status)) return absl::AbortedError("not wanted any more");
  RETURN_IF_ERROR(status);
  // A read that a restore has made void: the next view has another answer.
  return failed.ok() ? absl::OkStatus() : ViewEnded(failed);
}

}  // namespace starling::worker
