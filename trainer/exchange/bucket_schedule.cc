// SPDX-License-Identifier: Apache-2.0
#include "trainer/exchange/bucket_schedule.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"

namespace starling::exchange {
namespace {

// Fewer ready bytes are not worth the wake-up (about 22 us) of the communication thread.
constexpr std::size_t kWorthWaking = 256 * 1024;

}  // namespace

BucketSchedule::BucketSchedule(std::vector<std::size_t> bucket_bytes)
    : bucket_bytes_(std::move(bucket_bytes)) {}

BucketSchedule::~BucketSchedule() {
  std::thread thread;
  {
    sync::MutexLock lock(mutex_);
    stopping_ = true;
    thread = std::move(thread_);
    changed_.NotifyAll();
  }
  if (thread.joinable()) thread.join();
}

void BucketSchedule::Begin(int adds, bool nothing, const std::vector<ranges::Range<int>>& merged,
                           bool overlap, Reduce reduce) {
  sync::MutexLock lock(mutex_);
  adds_ = adds;
  overlap_ = overlap;
  awake_ = false;
  merged_ = merged;
  next_ = nothing ? merged_.size() : 0;
  missing_.assign(bucket_bytes_.size(), nothing ? 0 : adds);
  reduce_ = std::move(reduce);
  error_ = absl::OkStatus();
}

bool BucketSchedule::Add(int bucket) {
  sync::MutexLock lock(mutex_);
  if (bucket < 0 || bucket >= static_cast<int>(missing_.size()) || missing_[bucket] == 0) {
    if (error_.ok()) {
      error_ = absl::InvalidArgumentError(
          absl::StrCat("bucket ", bucket, " was added once too often, or is none of this step's ",
                       missing_.size()));
    }
    return false;
  }
  const bool ready = --missing_[bucket] == 0;
  if (!overlap_ || awake_ || !WorthWaking()) return ready;
  awake_ = true;
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  changed_.NotifyAll();
  return ready;
}

bool BucketSchedule::IsReady(std::size_t merged) const {
  return merged < merged_.size() && std::ranges::all_of(merged_[merged].Of(std::span(missing_)),
                                                        [](int missing) { return missing == 0; });
}

bool BucketSchedule::WorthWaking() const {
  std::size_t bytes = 0;
  std::size_t merged = next_;
  while (IsReady(merged)) {
    const auto ready = merged_[merged++].Of(std::span(bucket_bytes_));
    bytes = std::accumulate(ready.begin(), ready.end(), bytes);
  }
  return bytes >= kWorthWaking && merged < merged_.size();
}

void BucketSchedule::ReduceReady(const std::function<bool()>& may_go_on) {
  while (!reducing_ && error_.ok() && IsReady(next_) && may_go_on()) {
    reducing_ = true;
    const ranges::Range<int> buckets = merged_[next_++];
    const Reduce reduce = reduce_;
    mutex_.Unlock();
    absl::Status reduced = reduce(buckets);
    mutex_.Lock();
    reducing_ = false;
    if (error_.ok()) error_ = std::move(reduced);
    changed_.NotifyAll();
  }
}

void BucketSchedule::Run() {
  sync::MutexLock lock(mutex_);
  while (!stopping_) {
    ReduceReady([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return overlap_ && !stopping_; });
    awake_ = false;
    while (!stopping_ && !awake_) changed_.Wait(mutex_);
  }
}

absl::Status BucketSchedule::TakeOver() {
  sync::MutexLock lock(mutex_);
  overlap_ = false;
  std::string names;
  for (std::size_t bucket = 0; bucket < missing_.size(); ++bucket) {
    if (missing_[bucket] > 0) absl::StrAppend(&names, names.empty() ? "" : ", ", bucket);
  }
  if (error_.ok() && !names.empty()) {
    error_ = absl::FailedPreconditionError(
        absl::StrCat("the step ends, but these buckets were not added (", adds_,
                     " times each): ", names, "; parameters without a gradient need zeros"));
  }
  while (reducing_) changed_.Wait(mutex_);
  return error_;
}

absl::Status BucketSchedule::Finish() {
  sync::MutexLock lock(mutex_);
  ReduceReady([] { return true; });
  return error_;
}

void BucketSchedule::Fail(absl::Status status) {
  sync::MutexLock lock(mutex_);
  if (error_.ok()) error_ = std::move(status);
}

}  // namespace starling::exchange
