// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/bad_records.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/status/to_absl.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::data {
namespace {

constexpr std::int64_t kMost = 100;  // by default

}  // namespace

BadRecords::BadRecords(const v1alpha1::Dataset* dataset, std::string file)
    : of_job_(dataset != nullptr),
      skip_(dataset != nullptr && dataset->on_bad_record() == v1alpha1::ON_BAD_RECORD_SKIP),
      most_(skip_ && dataset->has_max_bad_records() ? dataset->max_bad_records() : kMost),
      file_(std::move(file)) {}

absl::Status BadRecords::Pass(std::int64_t number, const absl::Status& error) {
  if (!skip_) return error;
  const sync::MutexLock lock(mutex_);
  if (!known_.insert(number).second) return absl::OkStatus();
  if (static_cast<std::int64_t>(known_.size()) > most_) {
    return absl::Status(
        error.code(), absl::StrCat(error.message(), "; there are more bad records than the ", most_,
                                   " of dataset.maxBadRecords"));
  }
  log::Warning("a bad record is passed over", {{"record", absl::StrCat(file_, error.message())}});
  return absl::OkStatus();
}

bool BadRecords::Known(std::int64_t number) const {
  const sync::MutexLock lock(mutex_);
  return known_.contains(number);
}

std::string BadRecords::Remedy(std::string_view records) const {
  if (!of_job_) return "";
  return absl::StrCat(" (dataset.onBadRecord: Skip passes over such ", ToAbsl(records), ")");
}

}  // namespace starling::data
