// SPDX-License-Identifier: Apache-2.0
// What becomes of records that cannot be read (dataset.onBadRecord): the first is the job's
// failure, or each is named in the log and passed over, up to a bound.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/sync/mutex.h"

namespace starling::v1alpha1 {
class Dataset;
}  // namespace starling::v1alpha1

namespace starling::data {

// Thread-safe. Of one data set.
class BadRecords {
 public:
  // `dataset`: the job's; null: nothing is passed over. `file` stands before what the log says of a
  // record.
  explicit BadRecords(const v1alpha1::Dataset* dataset, std::string file = "");

  // OK: record `number` is passed over. Else `error`, which says where it is and what is wrong. A
  // record that was told before counts once.
  absl::Status Pass(std::int64_t number, const absl::Status& error);

  bool Known(std::int64_t number) const;

  // The end of such an error's message: what else a job may do about `records`, such as "images".
  // Empty where there is no job.
  std::string Remedy(std::string_view records) const;

 private:
  const bool of_job_;
  const bool skip_;
  const std::int64_t most_;
  const std::string file_;
  mutable sync::Mutex mutex_;
  std::set<std::int64_t> known_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::data
