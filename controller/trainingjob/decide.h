// SPDX-License-Identifier: Apache-2.0
// The TrainingJob controller's brain: from all that is seen of a job to all that is done about it.
//
// Pure and total: no clock, no input or output, an answer for every input, equal inputs giving
// equal answers. One policy a file; to add one, write its file, declare it in policies.h and put it
// into the list in decide.cc.
#pragma once

#include <cstdint>

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
  absl::Duration halt_timeout = absl::Seconds(30);      // for a checkpoint before suspension
  absl::Duration drain_timeout = absl::Seconds(60);     // for leaving a view
  absl::Duration finish_timeout = absl::Seconds(10);    // for pods to exit after the job's end
  std::int64_t lease_transition = 1;                    // rises with every controller process
};

Decision Decide(const Observed& observed, const Options& options, absl::Time now);

}  // namespace starling::trainingjob
