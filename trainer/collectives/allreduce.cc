// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/allreduce.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "common/status/check.h"
#include "common/status/macros.h"
#include "trainer/collectives/execute.h"
#include "trainer/collectives/schedule.h"
#include "trainer/collectives/shared_memory_allreduce.h"

namespace starling::collectives {
namespace {

double Log2Floor(int n) { return std::bit_width(static_cast<unsigned>(n)) - 1; }
double Log2Ceil(int n) { return std::bit_width(static_cast<unsigned>(n) - 1); }

// Where n is no power of two, arrays are folded before and given back after.
double Folds(int n) { return std::has_single_bit(static_cast<unsigned>(n)) ? 0 : 1; }

Price NaivePrice(int n) {
  return {1, n - 1.0, n + 1.0};  // all are added; and one is copied into scratch memory and back
}
Price RingPrice(int n) { return {2 * (n - 1.0), 2 * (n - 1.0) / n, (n - 1.0) / n}; }
Price HalvingDoublingPrice(int n) {
  const double p = std::bit_floor(static_cast<unsigned>(n));
  return {2 * Log2Floor(n) + 2 * Folds(n), 2 * (p - 1) / p + 2 * Folds(n), (p - 1) / p + Folds(n)};
}
Price RecursiveDoublingPrice(int n) {
  return {Log2Floor(n) + 2 * Folds(n), Log2Floor(n) + 2 * Folds(n), Log2Floor(n) + Folds(n)};
}
Price TreePrice(int n) { return {2 * Log2Ceil(n), 2 * Log2Ceil(n), Log2Ceil(n)}; }

// Of each chunk 256 KiB at a time, if elements have four bytes: what a rank sums is in its
// second-level cache when it is sent on.
constexpr std::size_t kSegmentOfChunk = std::size_t{1} << 16;
constexpr std::size_t kSegmentsAhead = 4;
Schedule RingPlan(Place place, std::size_t length) {
  const auto size = static_cast<std::size_t>(place.size);
  return RingInSegmentsPlan(place, length, size * kSegmentOfChunk, kSegmentsAhead);
}

using Plan = Schedule (*)(Place place, std::size_t length);

// Those that send frames; of equally cheap ones, the first is chosen. The naive one has no plan: it
// keeps what comes apart.
struct Entry {
  Algorithm algorithm;
  Price (*price)(int size);
  Plan plan;
};
constexpr Entry kTable[] = {
    {Algorithm::kRecursiveDoubling, RecursiveDoublingPrice, RecursiveDoublingPlan},
    {Algorithm::kRing, RingPrice, RingPlan},
    {Algorithm::kHalvingDoubling, HalvingDoublingPrice, HalvingDoublingPlan},
    {Algorithm::kNaive, NaivePrice, nullptr},
    {Algorithm::kTree, TreePrice, TreePlan},
};

const Entry& EntryOf(Algorithm algorithm) {
  for (const Entry& entry : kTable) {
    if (entry.algorithm == algorithm) return entry;
  }
  STARLING_CHECK(false, "only algorithms that send frames are in the table");
}

absl::Status NaiveAllreduce(const Communicator& communicator, std::span<std::byte> data,
                            std::size_t element, Combine combine) {
  transport::Mesh& mesh = communicator.mesh;
  const std::size_t bytes = data.size();
  const std::span<std::byte> scratch =
      communicator.workspace.Bytes(static_cast<std::size_t>(communicator.size()) * bytes);
  const auto slot = [&](int rank) {
    return scratch.subspan(static_cast<std::size_t>(rank) * bytes, bytes);
  };

  std::vector<transport::Ticket> sends;
  std::vector<transport::Ticket> receives(static_cast<std::size_t>(communicator.size()), 0);
  for (int peer = 0; peer < communicator.size(); ++peer) {
    if (peer == communicator.rank()) continue;
    receives[static_cast<std::size_t>(peer)] = mesh.PostReceive(peer, communicator.tag, slot(peer));
    sends.push_back(mesh.PostSend(peer, communicator.tag, data));
  }
  std::ranges::copy(data, slot(communicator.rank()).begin());
  for (int peer = 0; peer < communicator.size(); ++peer) {
    if (peer != communicator.rank()) {
      RETURN_IF_ERROR(mesh.Wait(receives[static_cast<std::size_t>(peer)], communicator.deadline));
    }
    if (peer > 0) combine(slot(peer).data(), slot(0).data(), bytes / element);
  }
  for (const transport::Ticket send : sends) {
    RETURN_IF_ERROR(mesh.Wait(send, communicator.deadline));
  }
  std::ranges::copy(slot(0), data.begin());
  return absl::OkStatus();
}

absl::StatusOr<Algorithm> Resolve(Algorithm algorithm, const Communicator& communicator,
                                  std::size_t bytes) {
  if (algorithm != Algorithm::kAuto) return algorithm;
  ASSIGN_OR_RETURN(const transport::Arena* const arena,
                   communicator.mesh.ShareArena(communicator.deadline));
  if (arena != nullptr) return Algorithm::kSharedMemory;
  return Choose(communicator.size(), bytes);
}

absl::Status RunOf(Algorithm algorithm, const Communicator& communicator, std::span<std::byte> data,
                   std::size_t element, Combine combine) {
  if (algorithm == Algorithm::kSharedMemory) {
    return SharedMemoryAllreduce(communicator, data, element, combine);
  }
  const Plan plan = EntryOf(algorithm).plan;
  if (plan == nullptr) return NaiveAllreduce(communicator, data, element, combine);
  const Schedule schedule = plan({communicator.size(), communicator.rank()}, data.size() / element);
  return Execute(communicator, schedule, data, data, element, combine);
}

}  // namespace

Price PriceOf(Algorithm algorithm, int size) {
  return size <= 1 ? Price{} : EntryOf(algorithm).price(size);
}

double Cost(Algorithm algorithm, int size, std::size_t bytes, const LinkCost& link) {
  const Price price = PriceOf(algorithm, size);
  const auto m = static_cast<double>(bytes);
  return price.rounds * link.latency_seconds + price.sent * m * link.seconds_per_byte +
         price.added * m * link.seconds_per_byte_added;
}

Algorithm Choose(int size, std::size_t bytes, const LinkCost& link) {
  const Entry* const cheapest =
      std::min_element(std::begin(kTable), std::end(kTable), [&](const Entry& a, const Entry& b) {
        return Cost(a.algorithm, size, bytes, link) < Cost(b.algorithm, size, bytes, link);
      });
  return cheapest->algorithm;
}

absl::Status Allreduce(Algorithm algorithm, const Communicator& communicator, buffer::View data,
                       ReduceOp op) {
  ASSIGN_OR_RETURN(const Reducer reducer, ReducerOf(op, data.type()));
  ASSIGN_OR_RETURN(const std::span<std::byte> bytes, data.Bytes());
  if (communicator.size() == 1) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Algorithm chosen, Resolve(algorithm, communicator, bytes.size()));
  RETURN_IF_ERROR(RunOf(chosen, communicator, bytes, buffer::SizeOf(data.type()), reducer.combine));
  if (reducer.divide != nullptr) reducer.divide(bytes.data(), data.size(), communicator.size());
  return absl::OkStatus();
}

}  // namespace starling::collectives
