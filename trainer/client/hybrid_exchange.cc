// SPDX-License-Identifier: Apache-2.0
#include "trainer/client/hybrid_exchange.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"

namespace starling::client {

HybridExchange::HybridExchange(Parts parts, ParameterServerExchange& servers)
    : parts_(std::move(parts)),
      servers_(servers),
      workers_(exchange::NewReproducibleExchange(Pack())) {}

// Lays out packed_; the sizes of its buckets.
std::vector<std::size_t> HybridExchange::Pack() {
  std::vector<std::size_t> sizes;
  std::size_t packed = 0;
  for (const engine::Bucket& of_model : parts_.workload.declaration().buckets) {
    Bucket& bucket = buckets_.emplace_back();
    std::size_t begin = static_cast<std::size_t>(of_model.begin);
    const auto take_until = [&](std::size_t end) {
      if (end <= begin) return;
      bucket.pieces.push_back({begin, packed, end - begin});
      packed += end - begin;
    };
    const auto end = static_cast<std::size_t>(of_model.end);
    const std::size_t before = packed;
    for (std::size_t shard = 0; shard < parts_.tables.parameter_shards; ++shard) {
      const parameter_server::RowRange& held = parts_.tables.shards[shard].range;
      if (held.end <= begin || held.begin >= end) continue;
      take_until(static_cast<std::size_t>(held.begin));
      begin = static_cast<std::size_t>(held.end);
    }
    take_until(end);
    if (packed == before) continue;
    bucket.packed = static_cast<int>(sizes.size());
    sizes.push_back(packed - before);
  }
  packed_.resize(packed);
  return sizes;
}

absl::Status HybridExchange::Begin(const exchange::Step& step) {
  ASSIGN_OR_RETURN(gradients_, step.gradients.As<float>());
  step_ = step;
  prepared_ = summing_ = false;
  portion_ = -1;
  refused_ = servers_.refused();
  computed_ = 0;
  finite_ = true;
  cancelled_ = failed_ = absl::OkStatus();
  return absl::OkStatus();
}

// The workers' sum begins here and not before: a step that is not wanted now must leave nothing.
absl::StatusOr<std::int64_t> HybridExchange::Prepare() {
  if (!std::exchange(prepared_, true)) {
    RETURN_IF_ERROR(servers_.Fetch(step_.number - 1, parts_.wanted));
    RETURN_IF_ERROR(BeginSum());
  }
  // Servers are waited for here, between two portions, and not in the middle of computing one: who
  // computes for too long is taken for one that hangs.
  RETURN_IF_ERROR(FinishPortion());
  RETURN_IF_ERROR(servers_.Ready());
  return static_cast<std::int64_t>(step_.number);
}

absl::Status HybridExchange::BeginSum() {
  summing_ = true;
  exchange::Step sum = step_;
  // Who reads nothing says what who reads well says: the others decide.
  const auto before = static_cast<parameter_server::Version>(step_.number) - 1;
  control_.assign(step_.control.begin(), step_.control.end());
  control_.push_back(!prepared_ || servers_.FetchedAt(before) ? 1 : 0);
  sum.control = control_;
  sum.gradients = step_.gradients.size() == 0 ? std::span<float>() : std::span(packed_);
  // The links are one thread's at a time, and pushes use them until Finish.
  sum.overlap = false;
  return workers_->Begin(sum);
}

void HybridExchange::Add(int group, int bucket) {
  if (group != portion_ && failed_.ok()) failed_ = BeginPortion(group);
  const Bucket& mine = buckets_[static_cast<std::size_t>(bucket)];
  for (const Piece& piece : mine.pieces) {
    std::ranges::copy(gradients_.subspan(piece.from, piece.size),
                      packed_.begin() + static_cast<std::ptrdiff_t>(piece.to));
  }
  if (mine.packed >= 0) workers_->Add(group, mine.packed);
  if (failed_.ok()) servers_.Add(0, bucket);
}

absl::Status HybridExchange::BeginPortion(int group) {
  RETURN_IF_ERROR(FinishPortion());
  portion_ = group;
  const auto number = static_cast<std::int64_t>(step_.number);
  const auto size = static_cast<std::size_t>(
      data::Share(parts_.batches.BatchSize(number), group, servers_.portions()).size());
  exchange::Step push = step_;
  push.samples = step_.samples.subspan(computed_, size);
  push.scale = 1 / static_cast<float>(std::max<std::size_t>(1, size));
  push.leases =
      consistency::LeaseRun(parameter_server::LeaseOf(number - 1, group, servers_.portions()));
  computed_ += size;
  return servers_.Begin(push);
}

absl::Status HybridExchange::FinishPortion() {
  if (portion_ < 0) return absl::OkStatus();
  portion_ = -1;
  ASSIGN_OR_RETURN(const exchange::Outcome pushed, servers_.Finish({}, 0));
  finite_ = finite_ && pushed.finite;
  return absl::OkStatus();
}

// Rule H3: what this worker adds to the sum stands for portions that every server has.
absl::Status HybridExchange::Acknowledge() {
  RETURN_IF_ERROR(failed_);
  if (!cancelled_.ok()) servers_.Cancel(cancelled_);
  const absl::Status finished = FinishPortion();
  RETURN_IF_ERROR(cancelled_);
  RETURN_IF_ERROR(finished);
  RETURN_IF_ERROR(servers_.AwaitAll(absl::InfiniteDuration()));
  if (servers_.refused() == refused_) return absl::OkStatus();
  // A portion is one lease: in bulk-synchronous tables it is taken, or skipped as there already.
  return absl::InternalError(
      absl::StrCat("a parameter server refused a portion of step ", step_.number,
                   ", which would be lost there; servers and workers must be of one version"));
}

absl::StatusOr<exchange::Outcome> HybridExchange::Finish(std::span<const double> statistics,
                                                         int columns) {
  absl::Status acknowledged = Acknowledge();
  // A step without samples of its own has not begun its sum: it only settles, or others have all.
  // Where others read, this worker waits at the same place, so that a lease can still come first.
  if (acknowledged.ok() && !summing_) {
    acknowledged = gradients_.empty() ? BeginSum() : Prepare().status();
  }
  if (!summing_) return acknowledged;
  if (!acknowledged.ok()) workers_->Cancel(acknowledged);
  absl::StatusOr<exchange::Outcome> sum = workers_->Finish(statistics, columns);
  RETURN_IF_ERROR(acknowledged);
  RETURN_IF_ERROR(sum.status());
  if (!gradients_.empty()) std::ranges::fill(gradients_, 0.0F);  // what servers apply is theirs
  for (const Bucket& bucket : gradients_.empty() ? std::vector<Bucket>() : buckets_) {
    for (const Piece& piece : bucket.pieces) {
      std::ranges::copy(std::span(packed_).subspan(piece.to, piece.size),
                        gradients_.begin() + static_cast<std::ptrdiff_t>(piece.from));
    }
  }
  sum->finite = sum->finite && finite_;
  sum->of_state_before = sum->min.back() == 1;
  sum->min.pop_back();
  sum->max.pop_back();
  return sum;
}

}  // namespace starling::client
