// SPDX-License-Identifier: Apache-2.0
// What there is to tell about a job as its status changes: each thing once, in plain sentences.
//
// Pure: told one status after the other, it answers with the lines that are new. What failed is
// told when it is known, what it cost as soon as that is known.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/terminal.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::cli {

struct Line {
  Style style = Style::kPlain;
  std::string text;
};

// Thread-compatible.
class Story {
 public:
  // The incidents of a status that was there before the story began are no news.
  void Begin(const v1alpha1::TrainingJobStatus& status);

  // What is new in `status`. `now` only spaces out lines about progress.
  std::vector<Line> Tell(const v1alpha1::TrainingJobStatus& status, absl::Time now);

  // A line about progress for those without a live one, every few seconds.
  std::vector<Line> TellProgress(const v1alpha1::TrainingJobStatus& status, absl::Time now);

 private:
  struct Reported {
    v1alpha1::Incident incident;
    bool cost = false;
  };

  void TellState(const v1alpha1::TrainingJobStatus& status, std::vector<Line>& lines);
  void TellIncidents(const v1alpha1::TrainingJobStatus& status, std::vector<Line>& lines);
  void TellEpoch(const v1alpha1::TrainingJobStatus& status, absl::Time now,
                 std::vector<Line>& lines);
  void TellWorkers(const v1alpha1::TrainingJobStatus& status, std::vector<Line>& lines);
  void TellServers(const v1alpha1::TrainingJobStatus& status, std::vector<Line>& lines);
  Reported* Find(const v1alpha1::Incident& incident);

  std::string state_;
  std::int64_t epoch_ = 0;
  std::int64_t workers_ = 0;
  std::int64_t servers_ = 0;
  absl::Time last_epoch_ = absl::InfinitePast();
  absl::Time last_progress_ = absl::InfinitePast();
  std::int64_t last_step_ = -1;
  std::vector<Reported> reported_;
};

// "digits-worker-1 was killed by signal 9", and the word for its kind if there is no message.
std::string WhatHappened(const v1alpha1::Incident& incident);
// "noticed after 12 ms, training went on after 31 ms, 1 step repeated"; empty: not known yet.
std::string WhatItCost(const v1alpha1::Incident& incident);

}  // namespace starling::cli
