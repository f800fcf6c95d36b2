// SPDX-License-Identifier: Apache-2.0
// When buckets are reduced, and on which thread.
//
// Buckets are reduced in the order of their indices, as many at once as the step says. While more
// are to come and enough bytes wait, a communication thread does it beside the backward pass;
// Finish takes over after the bucket that is under way and does the rest on its own thread. A model
// that fits one bucket never wakes the communication thread, which would cost more than the
// reduction.
#pragma once

#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/ranges/ranges.h"
#include "common/sync/mutex.h"

namespace starling::exchange {

// Thread-safe.
class BucketSchedule {
 public:
  // Reduces consecutive buckets at once. Never called twice at once.
  using Reduce = std::function<absl::Status(ranges::Range<int> buckets)>;

  // `bucket_bytes` in reduction order. The thread starts when it is needed first.
  explicit BucketSchedule(std::vector<std::size_t> bucket_bytes);
  ~BucketSchedule();

  // A step begins: each bucket is ready after `adds` calls of Add. None are to come when
  // `nothing`. `merged`: which are reduced at once; all of them, in order. `overlap`: the
  // communication thread may be used.
  void Begin(int adds, bool nothing, const std::vector<ranges::Range<int>>& merged, bool overlap,
             Reduce reduce);

  // Whether it is ready now. INVALID_ARGUMENT, recorded for Finish, for a bucket that does not
  // exist or has had all.
  bool Add(int bucket);

  // Ends the step's use of the communication thread: after this, Reduce is called by Finish only.
  // FAILED_PRECONDITION naming the buckets that are not ready, or the first error.
  absl::Status TakeOver();

  // Reduces what is left, on this thread.
  absl::Status Finish();

  // The step's first error.
  void Fail(absl::Status status);

 private:
  void Run();
  // Reduces ready buckets while `may_go_on` and nothing failed. The mutex is held, but not while
  // a bucket is reduced.
  void ReduceReady(const std::function<bool()>& may_go_on) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsReady(std::size_t merged) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool WorthWaking() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<std::size_t> bucket_bytes_;
  sync::Mutex mutex_;
  sync::Condition changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool overlap_ ABSL_GUARDED_BY(mutex_) = false;
  bool awake_ ABSL_GUARDED_BY(mutex_) = false;     // the thread was told that there is work
  bool reducing_ ABSL_GUARDED_BY(mutex_) = false;  // somebody reduces a bucket
  int adds_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<int> missing_ ABSL_GUARDED_BY(mutex_);  // Adds, by bucket
  std::vector<ranges::Range<int>> merged_ ABSL_GUARDED_BY(mutex_);
  std::size_t next_ ABSL_GUARDED_BY(mutex_) = 0;  // of merged_, to reduce
  Reduce reduce_ ABSL_GUARDED_BY(mutex_);
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::exchange
