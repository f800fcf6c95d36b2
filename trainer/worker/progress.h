// SPDX-License-Identifier: Apache-2.0
// What a worker makes known of training, whatever way its work comes: progress and result on the
// board, metrics, the files for supervisor and benchmarks, the audit of used samples, and how long
// it took to go on after a view. It also keeps the settings that this is told against: when
// training stops, and how many checkpoints are kept.
//
// To tell something more: a call here, made by the loop (training_loop.h) or by a source of work.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/clock/clock.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/data/audit_log.h"
#include "trainer/data/batches.h"
#include "trainer/exchange/exchange.h"
#include "trainer/membership/types.h"
#include "trainer/worker/course.h"
#include "trainer/worker/step_files.h"
#include "trainer/worker/training_board.h"
#include "trainer/worker/worker_metrics.h"

namespace starling::worker {

// Confined to the loop's thread.
class Progress {
 public:
  struct Parts {
    const v1alpha1::TrainingJobSpec& spec;
    std::string job_dir;
    const data::Batches& batches;  // one step each
    Names names;                   // of metrics
    TrainingBoard& board;
    StepFiles& step_files;
    WorkerMetrics& metrics;
    const clock::Clock& clock;
    std::function<void()> report;  // now
  };
  explicit Progress(Parts parts);

  // Settings that cannot be read are left aside, with a warning.
  void TakeSettings(const membership::Settings& settings);
  const v1alpha1::Stop& stop() const { return stop_; }
  std::int64_t keep() const { return keep_; }  // checkpoints
  // Steps after which training ends if nothing ends it sooner.
  std::int64_t Total() const { return TotalSteps(stop_, parts_.batches); }

  // A view has ended for this worker; only the first call since a step was made counts.
  void ViewEnded();
  // The view's work begins after `step`. `undone`: what the audit says of later steps is not true
  // any more. `first`: this worker is the one that writes the audit.
  void ViewBegins(const membership::View& view, std::int64_t step, bool undone, bool first);
  // This worker's part of a step is done: so many samples, with this loss, if it is known.
  void Completed(std::int64_t step, std::int64_t samples, std::optional<double> loss);
  // What this worker has sent since it began.
  void Exchanged(const exchange::Volume& volume) { volume_ = volume; }
  // What is to be told of the numbers that are computed in, by the names of metrics.
  void Computed(std::vector<std::pair<std::string, double>> numbers) {
    numbers_ = std::move(numbers);
  }
  // How updates travel in the present view.
  void TravelBy(std::vector<exchange::Path> paths);
  // The steps up to `step` are settled. `course` is what is known of training: its step is 0 where
  // no metrics are known yet.
  void Settled(std::int64_t step, const Course& course);
  // The same step as before, with what is known of training by now.
  void Tell(const Course& course);

  // Since the first view's work began.
  double Seconds() const;
  // Training has ended so.
  void Conclude(const v1alpha1::Result& result);

 private:
  void WriteAudit();

  const Parts parts_;
  v1alpha1::Stop stop_;  // in force
  std::int64_t keep_ = 1;
  std::int64_t settled_ = 0;
  std::int64_t workers_ = 0;  // in the view
  exchange::Volume volume_;
  std::vector<std::pair<std::string, double>> numbers_;
  std::vector<exchange::Path> paths_;
  bool audits_ = false;
  std::unique_ptr<data::AuditLog> audit_;
  std::optional<std::int64_t> undone_after_;  // what the audit says of later steps is to go
  bool audit_failing_ = false;
  absl::Time started_ = absl::InfinitePast();     // of the first view's work
  absl::Time view_ended_ = absl::InfinitePast();  // set while no step was made since
  absl::Time last_done_ = absl::InfinitePast();
};

}  // namespace starling::worker
