// SPDX-License-Identifier: Apache-2.0
#include "trainer/observe/seconds_report.h"

namespace starling::observe {

void SecondsReport::Fill(std::uint64_t incarnation, v1alpha1::TrainingReport& report) {
  sync::MutexLock lock(mutex_);
  if (incarnation > incarnation_) {
    // What was said while nobody had spoken, nobody has counted.
    if (incarnation_ != 0) before_ = last_;
    incarnation_ = incarnation;
  }
  last_ = stopwatch_.Read();
  for (const auto& [activity, seconds] : last_) (*report.mutable_goodput())[activity] = seconds;
  for (const auto& [activity, seconds] : before_) {
    (*report.mutable_goodput_before())[activity] = seconds;
  }
}

}  // namespace starling::observe
