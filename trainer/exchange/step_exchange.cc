// SPDX-License-Identifier: Apache-2.0
#include "trainer/exchange/step_exchange.h"

#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/check.h"
#include "common/status/macros.h"
#include "trainer/kernels/span_math.h"

namespace starling::exchange {
namespace {

std::vector<std::size_t> ToBytes(std::vector<std::size_t> sizes) {
  for (std::size_t& size : sizes) size *= sizeof(float);
  return sizes;
}

int RankOf(const HostStep& step) { return step.mesh == nullptr ? 0 : step.mesh->rank(); }
int SizeOf(const HostStep& step) { return step.mesh == nullptr ? 1 : step.mesh->size(); }

}  // namespace

StepExchange::StepExchange(const std::vector<std::size_t>& bucket_sizes,
                           std::unique_ptr<Reduction> reduction, bool tune)
    : reduction_(std::move(reduction)),
      schedule_(ToBytes(bucket_sizes)),
      tune_(tune),
      tuner_(ToBytes(bucket_sizes)) {
  for (const std::size_t size : bucket_sizes) {
    buckets_.push_back({static_cast<int>(buckets_.size()), {length_, length_ + size}});
    length_ += size;
  }
}

absl::Status StepExchange::Enter(const membership::View& /*view*/, transport::Mesh* mesh) {
  mesh_ = mesh;
  const bool alone = mesh == nullptr || mesh->size() == 1;
  tuner_.Begin(tune_ && !alone);
  const absl::Status entered = reduction_->Enter(alone ? nullptr : mesh);
  if (recorder_ != nullptr) {
    const std::vector<Path> ways = paths();
    transport_ = ways.empty() ? "" : recorder_->Keep(ways.front().transport);
  }
  return entered.ok() ? entered : Judged(entered);
}

Volume StepExchange::volume() const {
  Volume volume = reduction_->volume();
  volume.merged = tuner_.chosen();
  return volume;
}

std::vector<Path> StepExchange::paths() const {
  if (mesh_ == nullptr || mesh_->size() == 1) return {};
  std::optional<Path> path = reduction_->path();
  if (!path) return {};
  std::vector<int> ranks(static_cast<std::size_t>(mesh_->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  path->exchange = "allReduce";
  path->transport = TransportTo(*mesh_, ranks);
  return {*std::move(path)};
}

absl::StatusOr<HostStep> StepExchange::Checked(const Step& step) const {
  HostStep checked{step, {}, mesh_};
  ASSIGN_OR_RETURN(checked.floats, step.gradients.As<float>());
  if (!step.gradients.empty() && step.gradients.size() != length_) {
    return absl::InvalidArgumentError(
        absl::StrCat("step ", step.number, " has ", step.gradients.size(),
                     " gradients, but the buckets make up ", length_));
  }
  if (step.groups < 1) {
    return absl::InvalidArgumentError(absl::StrCat("step ", step.number, " has no group"));
  }
  if (mesh_ != nullptr) RETURN_IF_ERROR(Judged(mesh_->status()));
  return checked;
}

absl::Status StepExchange::Judged(const absl::Status& failed) const {
  if (mesh_ == nullptr || mesh_->status().ok()) return failed;
  return ViewEnded(failed);
}

absl::Status StepExchange::Begin(const Step& step) {
  ASSIGN_OR_RETURN(const HostStep checked, Checked(step));
  {
    sync::MutexLock lock(mutex_);
    STARLING_CHECK(!running_, "every Begin is ended by a Finish");
  }
  step_ = checked;
  const auto groups_of_rank = [this](int rank) {
    return reduction_->Groups(rank, SizeOf(step_), step_.groups);
  };
  const ranges::Range<int> mine = groups_of_rank(RankOf(step_));
  RETURN_IF_ERROR(reduction_->Begin(step_, mine));
  begun_ = std::chrono::steady_clock::now();
  side_channel_.emplace(mesh_, step, Control(step), groups_of_rank);
  schedule_.Begin(mine.size(), step.gradients.empty(), tuner_.merged(),
                  step.overlap && SizeOf(step_) > 1,
                  [this](ranges::Range<int> buckets) { return Reduce(buckets); });
  sync::MutexLock lock(mutex_);
  running_ = true;
  return absl::OkStatus();
}

absl::Status StepExchange::Reduce(ranges::Range<int> buckets) {
  const int index = buckets.begin;
  const auto all = buckets.Of(std::span<const Bucket>(buckets_));
  const Bucket bucket{index, {all.front().range.begin, all.back().range.end}};
  const transport::Tag tag{step_.number,
                           collectives::kFirstBucketChannel + static_cast<std::uint32_t>(index)};
  if (!timeline::IsOn(recorder_)) return reduction_->Reduce(step_, tag, bucket);
  const absl::Time begin = recorder_->Now();
  const std::uint64_t before = reduction_->volume().sent;
  absl::Status reduced = reduction_->Reduce(step_, tag, bucket);
  recorder_->Add({.track = v1alpha1::TraceEvent::EXCHANGE,
                  .name = reduced.ok() ? "reduce" : "reduce, broken off",
                  .begin = begin,
                  .end = recorder_->Now(),
                  .step = static_cast<std::int64_t>(step_.number),
                  .bucket = index,
                  .bytes = reduction_->volume().sent - before,
                  .dense_bytes = bucket.range.size() * sizeof(float),
                  .algorithm = reduction_->WayOf(bucket),
                  .transport = transport_});
  return reduced;
}

void StepExchange::Add(int group, int bucket) {
  const ranges::Range<int> mine = reduction_->Groups(RankOf(step_), SizeOf(step_), step_.groups);
  if (group < mine.begin || group >= mine.end) {
    return schedule_.Fail(absl::InvalidArgumentError(
        absl::StrCat("step ", step_.number, ": group ", group, " is not this rank's")));
  }
  if (!step_.gradients.empty() && bucket >= 0 && bucket < static_cast<int>(buckets_.size())) {
    const absl::Status added = reduction_->Add(step_, group, buckets_[bucket]);
    if (!added.ok()) return schedule_.Fail(added);
  }
  const bool ready = schedule_.Add(bucket);
  if (!ready || !timeline::IsOn(recorder_)) return;
  const absl::Time now = recorder_->Now();
  recorder_->Add(
      {.track = v1alpha1::TraceEvent::EXCHANGE,
       .name = "ready",
       .begin = now,
       .end = now,
       .step = static_cast<std::int64_t>(step_.number),
       .bucket = bucket,
       .dense_bytes = buckets_[static_cast<std::size_t>(bucket)].range.size() * sizeof(float)});
}

absl::StatusOr<Outcome> StepExchange::Finish(std::span<const double> statistics, int columns) {
  {
    sync::MutexLock lock(mutex_);
    STARLING_CHECK(running_, "Finish follows a Begin");
  }
  Outcome outcome;
  absl::Status finished = FinishStep(statistics, columns, outcome);
  if (!finished.ok()) {
    finished = Judged(finished);
    Cancel(finished);
    // The communication thread may be in a bucket, which the cancelled mesh ends.
    (void)schedule_.TakeOver();
  }
  if (step_.mesh != nullptr) step_.mesh->SetOthersIdle(false);
  sync::MutexLock lock(mutex_);
  running_ = false;
  if (!finished.ok()) return finished;
  return outcome;
}

absl::Status StepExchange::FinishStep(std::span<const double> statistics, int columns,
                                      Outcome& outcome) {
  RETURN_IF_ERROR(schedule_.TakeOver());
  // All gradients of this step are computed: until they are summed no thread computes.
  if (step_.mesh != nullptr) step_.mesh->SetOthersIdle(true);
  RETURN_IF_ERROR(side_channel_->SendStatistics(statistics, columns));
  RETURN_IF_ERROR(schedule_.Finish());
  RETURN_IF_ERROR(side_channel_->Collect(outcome));
  outcome.finite = kernels::AllFinite(step_.floats);
  Tune(outcome);
  return absl::OkStatus();
}

std::vector<std::int64_t> StepExchange::Control(const Step& step) const {
  std::vector<std::int64_t> words(step.control.begin(), step.control.end());
  if (tuner_.trying()) words.push_back(took_.count());
  return words;
}

void StepExchange::Tune(Outcome& outcome) {
  if (!tuner_.trying()) return;
  took_ = std::chrono::steady_clock::now() - begun_;
  const std::int64_t slowest = outcome.max.back();
  outcome.min.pop_back();
  outcome.max.pop_back();
  tuner_.Ended(slowest);
}

void StepExchange::Cancel(const absl::Status& reason) {
  sync::MutexLock lock(mutex_);
  if (!running_) return;
  schedule_.Fail(reason);
  if (step_.mesh != nullptr) step_.mesh->Cancel(reason);
}

}  // namespace starling::exchange
