// SPDX-License-Identifier: Apache-2.0
// The TrainingJob controller's brain: from all that is seen of a job to all that is done about it.
//
// Pure and total: no clock, no input or output, an answer for every input, equal inputs giving
// equal answers. One policy a file; to add one, write its file, declare it in policies.h and put it
// into the list in decide.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/time/time.h"
#include "controller/trainingjob/decision.h"
#include "controller/trainingjob/observed.h"

namespace starling::trainingjob {

// Times that differ between a laptop, a cluster and a test.
struct Options {
  absl::Duration coordinator_silence = absl::Seconds(2);  // then it is replaced
  absl::Duration coordinator_start = absl::Seconds(15);   // the same, before its first report
  absl::Duration worker_silence = absl::Seconds(5);       // as the coordinator reports it
  absl::Duration worker_start = absl::Seconds(60);
  absl::Duration progress_interval = absl::Seconds(1);  // of status writes that bring only progress
  absl::Duration round_settle;     // a round of own containers that is over sooner never "ran"
  absl::Duration counts_interval;  // the same of writes that bring only counts of pods
  absl::Duration progress_jitter;  // added to it: up to so much, by job
  absl::Duration halt_timeout = absl::Seconds(30);     // for a checkpoint before suspension
  absl::Duration drain_timeout = absl::Seconds(60);    // for leaving a view
  absl::Duration finish_timeout = absl::Seconds(10);   // for pods to exit after the job's end
  absl::Duration problem_grace = absl::Seconds(2);     // before a pod that does not run is told of
  absl::Duration stuck_grace = absl::Seconds(30);      // beyond a terminating pod's own grace
  bool budgets = false;                                // jobs get a PodDisruptionBudget
  bool endpoints = false;                              // their pods' names are published
  absl::Duration endpoints_settle = absl::Seconds(1);  // so long for more pods to be told with it
  bool avoid_nodes = false;  // pods are kept away from nodes where others failed
  absl::Duration silent_node_avoidance = absl::Minutes(2);
  absl::Duration failing_node_avoidance = absl::Minutes(10);
  std::int64_t failing_node_limit = 3;  // failures within that time
  std::size_t create_width = 1;         // so many pods are made at a time
  std::int64_t lease_transition = 1;    // rises with every controller process
  // A job's first status may be delayed by so much while other jobs are handled, if its pods hold
  // the same facts; zero: it is written immediately.
  absl::Duration first_status_wait;
  // After writes of its own a job is looked at again, though nobody tells of a change.
  absl::Duration look_again = absl::InfiniteDuration();
};

// Of spec.runPolicy.managedBy: a job that names anybody else is left alone.
inline constexpr std::string_view kManager = "starling.dev/controller";

// For a real cluster, whose API server is not a metrics store and whose nodes may fail one by one.
Options ClusterOptions();

// So long after the last of so many refusals in a row the API server is asked again.
absl::Duration RetryDelay(int attempts);

Decision Decide(const Observed& observed, const Options& options, absl::Time now);

}  // namespace starling::trainingjob
