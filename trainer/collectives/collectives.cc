// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/collectives.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "trainer/collectives/execute.h"
#include "trainer/collectives/schedule.h"

namespace starling::collectives {
namespace {

Place PlaceOf(const Communicator& communicator) {
  return {communicator.size(), communicator.rank()};
}

absl::Status CheckRoot(const Communicator& communicator, int root) {
  if (root >= 0 && root < communicator.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("root ", root, " is none of the ", communicator.size(), " ranks of this group"));
}

absl::Status InPlace(const Communicator& communicator, const Schedule& schedule, buffer::View data,
                     Combine combine = nullptr) {
  ASSIGN_OR_RETURN(const std::span<std::byte> bytes, data.Bytes());
  return Execute(communicator, schedule, bytes, bytes, buffer::SizeOf(data.type()), combine);
}

// Of an average: what this rank keeps of it.
absl::Status DividePart(const Reducer& reducer, buffer::View data, const Elements& range,
                        int size) {
  if (reducer.divide == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::span<std::byte> bytes, data.Bytes());
  reducer.divide(bytes.data() + range.begin * buffer::SizeOf(data.type()), range.size(), size);
  return absl::OkStatus();
}

}  // namespace

absl::Status ReduceScatter(const Communicator& communicator, buffer::View data, ReduceOp op) {
  ASSIGN_OR_RETURN(const Reducer reducer, ReducerOf(op, data.type()));
  const Parts parts = EvenParts(data.size(), communicator.size());
  RETURN_IF_ERROR(InPlace(communicator, ReduceScatterPlan(PlaceOf(communicator), parts), data,
                          reducer.combine));
  return DividePart(reducer, data, parts(communicator.rank()), communicator.size());
}

absl::Status Allgather(const Communicator& communicator, buffer::View data) {
  const Parts parts = EvenParts(data.size(), communicator.size());
  return InPlace(communicator, AllgatherPlan(PlaceOf(communicator), parts), data);
}

absl::Status AllgatherV(const Communicator& communicator, buffer::View data,
                        std::span<const std::size_t> counts) {
  std::vector<std::size_t> ends(counts.size());
  std::partial_sum(counts.begin(), counts.end(), ends.begin());
  const std::size_t total = ends.empty() ? 0 : ends.back();
  if (counts.size() != static_cast<std::size_t>(communicator.size()) || total != data.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(counts.size(), " counts of ", total, " elements do not make up the parts of ",
                     communicator.size(), " ranks in an array of ", data.size()));
  }
  const Parts parts = [&](int rank) {
    const auto i = static_cast<std::size_t>(rank);
    return Elements{ends[i] - counts[i], ends[i]};
  };
  return InPlace(communicator, AllgatherPlan(PlaceOf(communicator), parts), data);
}

absl::Status Broadcast(const Communicator& communicator, buffer::View data, int root) {
  RETURN_IF_ERROR(CheckRoot(communicator, root));
  return InPlace(communicator, BroadcastPlan(PlaceOf(communicator), data.size(), root), data);
}

absl::Status Reduce(const Communicator& communicator, buffer::View data, ReduceOp op, int root) {
  RETURN_IF_ERROR(CheckRoot(communicator, root));
  ASSIGN_OR_RETURN(const Reducer reducer, ReducerOf(op, data.type()));
  RETURN_IF_ERROR(InPlace(communicator, ReducePlan(PlaceOf(communicator), data.size(), root), data,
                          reducer.combine));
  if (communicator.rank() != root) return absl::OkStatus();
  return DividePart(reducer, data, {0, data.size()}, communicator.size());
}

absl::Status Gather(const Communicator& communicator, buffer::View data, int root) {
  RETURN_IF_ERROR(CheckRoot(communicator, root));
  const Parts parts = EvenParts(data.size(), communicator.size());
  return InPlace(communicator, GatherPlan(PlaceOf(communicator), parts, root), data);
}

absl::Status Scatter(const Communicator& communicator, buffer::View data, int root) {
  RETURN_IF_ERROR(CheckRoot(communicator, root));
  const Parts parts = EvenParts(data.size(), communicator.size());
  return InPlace(communicator, ScatterPlan(PlaceOf(communicator), parts, root), data);
}

absl::Status AllToAll(const Communicator& communicator, buffer::ConstView from, buffer::View to) {
  const auto size = static_cast<std::size_t>(communicator.size());
  if (from.size() != to.size() || from.type() != to.type() || from.size() % size != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("all-to-all from ", from.size(), " ", std::string(buffer::NameOf(from.type())),
                     " to ", to.size(), " ", std::string(buffer::NameOf(to.type())),
                     ": both must be of one type and length, a multiple of the ", size, " ranks"));
  }
  ASSIGN_OR_RETURN(const std::span<const std::byte> sent, from.Bytes());
  ASSIGN_OR_RETURN(const std::span<std::byte> received, to.Bytes());
  const Parts parts = EvenParts(from.size(), communicator.size());
  const std::size_t element = buffer::SizeOf(from.type());
  const Elements own = parts(communicator.rank());
  std::ranges::copy(sent.subspan(own.begin * element, own.size() * element),
                    received.begin() + static_cast<std::ptrdiff_t>(own.begin * element));
  return Execute(communicator, AllToAllPlan(PlaceOf(communicator), parts), sent, received, element,
                 nullptr);
}

absl::Status Barrier(const Communicator& communicator) {
  return Execute(communicator, BarrierPlan(PlaceOf(communicator)), {}, {}, 1, nullptr);
}

}  // namespace starling::collectives
