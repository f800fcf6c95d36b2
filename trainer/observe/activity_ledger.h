// SPDX-License-Identifier: Apache-2.0
// Where all seconds of a job went: the sum of what its processes report, of those too that have
// ended, and the seconds for which members were wanted that no process stood for (queueing).
//
// The sum outlives the coordinator: the controller has the newest in the job's status and hands it
// to the next one with its grant. Only what a process has not told before is added
// (seconds_report.h), so nothing counts twice. What a process did after its last report, for a
// tenth of a second as reports are sent, is lost with it and counts as recovery.
#pragma once

#include <map>
#include <string>

#include "absl/time/time.h"
#include "trainer/membership/types.h"
#include "trainer/observe/stopwatch.h"

namespace starling::observe {

inline constexpr char kQueueing[] = "queueing";
// Begins the names of parameter servers' activities in the sum.
inline constexpr char kOfServers[] = "server/";

// Thread-compatible.
class ActivityLedger {
 public:
  // What earlier coordinators have counted.
  void Start(const Seconds& counted) { sum_ = before_ = counted; }

  // Of a member process, to this coordinator. `prefix` is that of its role. `before`: of `total`,
  // what it had told earlier coordinators.
  void OnReport(const membership::MemberId& process, const std::string& prefix,
                const Seconds& total, const Seconds& before);
  // Its stream broke, so long after its last report. If it speaks again, what it says counts
  // instead.
  void OnBroken(const membership::MemberId& process, const std::string& prefix,
                absl::Duration since_report);
  // For so long, so many members of a role had no process that reports.
  void OnAbsence(const std::string& prefix, std::int64_t members, absl::Duration duration);

  const Seconds& sum() const { return sum_; }
  // Of the sum, what earlier coordinators have counted.
  const Seconds& before() const { return before_; }

 private:
  Seconds sum_;
  Seconds before_;
  std::map<membership::MemberId, Seconds> told_;  // to this coordinator
  std::map<std::string, double> absent_;  // by prefix, not yet known to be a process's start
};

}  // namespace starling::observe
