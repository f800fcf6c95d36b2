// SPDX-License-Identifier: Apache-2.0
// One step up to its reduction: read the share of the batch, compute gradients, validate if it is
// due, and sum all of it over the view.
//
// Nothing here changes the state: whether the sum is applied is decided afterwards, by the
// membership machine. In reproducible mode the share is a few of the batch's groups, computed one
// by one; otherwise it is one stretch of the batch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/net/deadline.h"
#include "common/ranges/ranges.h"
#include "trainer/data/batches.h"
#include "trainer/exchange/exchange.h"
#include "trainer/transport/mesh.h"
#include "trainer/worker/stopwatch.h"
#include "trainer/workload/workload.h"

namespace starling::worker {

struct StepRequest {
  int64_t step = 0;                 // that the reduction makes
  bool empty = false;               // no gradients: it only settles the state before
  bool validate = false;            // the state before
  transport::Mesh* mesh = nullptr;  // null when alone
  std::vector<int64_t> control;
  net::Deadline deadline = net::Deadline::Never();
};

struct StepOutcome {
  std::vector<int64_t> control_min;
  std::vector<int64_t> control_max;
  int64_t batch = 0;               // samples of the whole batch; 0 when empty
  workload::Values training = {};  // the metrics' means over the batch
  // The metrics' means over the validation set, of the state before.
  std::optional<workload::Values> validation;
  bool finite = true;  // loss and all gradients are numbers
};

// Confined to the step loop's thread.
class StepComputer {
 public:
  struct Parts {
    workload::Workload& workload;
    data::Batches batches;
    bool reproducible;
    exchange::Exchange& exchange;
    Stopwatch& stopwatch;
  };
  explicit StepComputer(const Parts& parts) : parts_(parts) {}

  const data::Batches& batches() const { return parts_.batches; }
  bool has_validation() const { return parts_.workload.declaration().validation_samples > 0; }

  // After success the workload's gradients hold the sum over the batch, the same bits at every
  // rank. After an error the mesh is dead and the gradients are unspecified.
  absl::StatusOr<StepOutcome> Run(const StepRequest& request);
  // Whether the last Run failed in the workload, not on the way to the peers.
  bool compute_failed() const { return compute_failed_; }

 private:
  struct Layout {
    int rank = 0;
    int size = 1;
    int64_t batch = 0;
    int groups = 1;
    ranges::Range<int> mine;
    int columns = 1;
  };
  Layout LayOut(const StepRequest& request) const;
  absl::Status ComputeMine(const StepRequest& request, const Layout& layout,
                           std::span<double> statistics);
  absl::Status ComputeGroup(int64_t step, data::Range positions, int group,
                            std::span<double> columns);
  int MetricColumns() const;
  absl::Status ValidateMine(const Layout& layout, std::span<double> statistics);

  Parts parts_;
  bool compute_failed_ = false;
};

}  // namespace starling::worker
