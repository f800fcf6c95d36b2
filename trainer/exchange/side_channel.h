// SPDX-License-Identifier: Apache-2.0
// What travels beside the gradients of a step: the control word and the statistics.
//
// Both are a few hundred bytes that every rank sends to every other as soon as it has them, so they
// cost no delay of their own: they arrive while gradients are computed or reduced.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/ranges/ranges.h"
#include "trainer/collectives/grouped_reduce.h"
#include "trainer/exchange/exchange.h"

namespace starling::exchange {

// One step's. Confined to whoever may use the mesh.
class SideChannel {
 public:
  // The groups that a rank contributes.
  using GroupsOfRank = std::function<ranges::Range<int>(int rank)>;

  // Sends the control word, which may have more words than the step's. `mesh` may be null.
  SideChannel(transport::Mesh* mesh, const Step& step, std::vector<std::int64_t> control,
              GroupsOfRank groups_of_rank);

  // Sends the rows of this rank's groups. INVALID_ARGUMENT unless there is one row for each.
  absl::Status SendStatistics(std::span<const double> rows, int columns);

  // Waits for the others' words and rows.
  absl::Status Collect(Outcome& outcome);

 private:
  absl::Status CollectControl(Outcome& outcome);
  absl::Status CollectStatistics(Outcome& outcome);
  int rank() const { return mesh_ == nullptr ? 0 : mesh_->rank(); }
  int size() const { return mesh_ == nullptr ? 1 : mesh_->size(); }

  transport::Mesh* const mesh_;
  const std::uint64_t step_;
  const net::Deadline deadline_;
  const GroupsOfRank groups_of_rank_;
  std::vector<std::int64_t> control_;
  std::vector<std::vector<std::int64_t>> others_control_;  // by rank
  std::vector<double> rows_;
  int columns_ = 0;
  std::vector<transport::Ticket> tickets_;
};

}  // namespace starling::exchange
