// SPDX-License-Identifier: Apache-2.0
#include "trainer/exchange/side_channel.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "trainer/collectives/communicator.h"
#include "trainer/kernels/span_math.h"

namespace starling::exchange {

SideChannel::SideChannel(transport::Mesh* mesh, const Step& step, std::vector<std::int64_t> control,
                         GroupsOfRank groups_of_rank)
    : mesh_(mesh),
      step_(step.number),
      deadline_(step.deadline),
      groups_of_rank_(std::move(groups_of_rank)),
      control_(std::move(control)),
      others_control_(static_cast<std::size_t>(size())) {
  const transport::Tag tag{step_, collectives::kControlChannel};
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    auto& theirs = others_control_[peer];
    theirs.resize(control_.size());
    tickets_.push_back(mesh_->PostReceive(peer, tag, std::as_writable_bytes(std::span(theirs))));
    tickets_.push_back(mesh_->PostSend(peer, tag, std::as_bytes(std::span(control_))));
  }
}

absl::Status SideChannel::SendStatistics(std::span<const double> rows, int columns) {
  const auto expected =
      static_cast<std::size_t>(groups_of_rank_(rank()).size()) * static_cast<std::size_t>(columns);
  if (rows.size() != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("step ", step_, ": ", rows.size(), " statistics were given, but this rank's ",
                     groups_of_rank_(rank()).size(), " groups have ", columns, " each"));
  }
  rows_.assign(rows.begin(), rows.end());
  columns_ = columns;
  const transport::Tag tag{step_, collectives::kStatisticsChannel};
  for (int peer = 0; peer < size() && columns > 0; ++peer) {
    if (peer == rank()) continue;
    tickets_.push_back(mesh_->PostSend(peer, tag, std::as_bytes(std::span(rows_))));
  }
  return absl::OkStatus();
}

absl::Status SideChannel::Collect(Outcome& outcome) {
  RETURN_IF_ERROR(CollectStatistics(outcome));
  for (const transport::Ticket ticket : tickets_) RETURN_IF_ERROR(mesh_->Wait(ticket, deadline_));
  return CollectControl(outcome);
}

absl::Status SideChannel::CollectControl(Outcome& outcome) {
  outcome.min = control_;
  outcome.max = control_;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    kernels::Minimum(others_control_[peer], outcome.min);
    kernels::Maximum(others_control_[peer], outcome.max);
  }
  return absl::OkStatus();
}

absl::Status SideChannel::CollectStatistics(Outcome& outcome) {
  const auto columns = static_cast<std::size_t>(columns_);
  const transport::Tag tag{step_, collectives::kStatisticsChannel};
  outcome.statistics.assign(columns, 0);
  if (columns == 0) return absl::OkStatus();
  std::vector<std::vector<double>> rows(static_cast<std::size_t>(size()));
  std::vector<transport::Ticket> receives;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) {
      rows[peer] = rows_;
      continue;
    }
    rows[peer].resize(static_cast<std::size_t>(groups_of_rank_(peer).size()) * columns);
    receives.push_back(
        mesh_->PostReceive(peer, tag, std::as_writable_bytes(std::span(rows[peer]))));
  }
  for (const transport::Ticket receive : receives) RETURN_IF_ERROR(mesh_->Wait(receive, deadline_));
  // Ranks hold consecutive groups: rank after rank is group after group.
  for (const std::vector<double>& theirs : rows) {
    for (std::size_t row = 0; row < theirs.size(); row += columns) {
      kernels::Add(std::span(theirs).subspan(row, columns), std::span(outcome.statistics));
    }
  }
  return absl::OkStatus();
}

}  // namespace starling::exchange
