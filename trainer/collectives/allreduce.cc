// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/allreduce.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "common/status/check.h"
#include "common/status/macros.h"
#include "trainer/collectives/execute.h"
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

// Of each chunk 1 MiB at a time, if elements have four bytes. Of that a piece (execute.h) is sent
// on as soon as it is summed, while it is in the second-level cache; the pieces behind it are under
// way meanwhile, so that the next round does not wait for a message's delay.
constexpr std::size_t kSegmentOfChunk = std::size_t{1} << 18;
constexpr std::size_t kSegmentsAhead = 1;
Schedule RingPlan(Place place, std::size_t length) {
  const auto size = static_cast<std::size_t>(place.size);
  return RingInSegmentsPlan(place, length, size * kSegmentOfChunk, kSegmentsAhead);
}

// Seconds that messages take, of an array of `bytes`. Rounds overlap: what one receives goes on in
// the next piece by piece, so a message's delay is hidden behind the pieces that follow the first.
struct Messages {
  const LinkCost& link;
  double bytes;

  // Of the last round: until all of it is there.
  double Last(double sent) const { return link.latency_seconds + sent * link.seconds_per_byte; }
  double FirstPiece(double sent) const {
    return Last(std::min(sent, static_cast<double>(kPieceBytes)));
  }
  // Of another: until the next may begin.
  double Round(double sent) const {
    return std::max(sent * link.seconds_per_byte, FirstPiece(sent));
  }
};

double NaiveSeconds(int n, const Messages& of) {
  return of.Last((n - 1) * of.bytes) + (n - 2) * of.link.seconds_per_message;
}

double RingSeconds(int n, const Messages& of) {
  const double chunk = of.bytes / n;
  const double part = std::min(chunk, static_cast<double>(kSegmentOfChunk * sizeof(float)));
  const double segments = part == 0 ? 1 : chunk / part;
  return (2 * (n - 1) * segments - 1) * of.Round(part) + of.Last(part);
}

// What is folded is half of an array further than what the first round gives away, at worst.
double HalvingDoublingSeconds(int n, const Messages& of) {
  double seconds = of.Last(of.bytes / 2) - of.Round(of.bytes / 2);
  double part = of.bytes;
  for (int round = 0; round < Log2Floor(n); ++round) seconds += 2 * of.Round(part /= 2);
  if (Folds(n) == 0) return seconds;
  const double before = std::min(of.bytes, of.bytes / 2 + static_cast<double>(kPieceBytes));
  return seconds + of.Last(before) + of.Round(of.bytes / 2) - of.Last(of.bytes / 2) +
         of.Last(of.bytes);
}

double RecursiveDoublingSeconds(int n, const Messages& of) {
  const double doubling = (Log2Floor(n) - 1) * of.Round(of.bytes) + of.Last(of.bytes);
  if (Folds(n) == 0) return doubling;
  return of.FirstPiece(of.bytes) + of.Round(of.bytes) + doubling;
}

double TreeSeconds(int n, const Messages& of) {
  return 2 * (Log2Ceil(n) - 1) * of.Round(of.bytes) + of.FirstPiece(of.bytes) + of.Last(of.bytes);
}

using Plan = Schedule (*)(Place place, std::size_t length);

// Of equally cheap ones, the first is chosen. The naive one has no plan: it keeps what comes apart.
struct Entry {
  Algorithm algorithm;
  std::string_view name;
  Price (*price)(int size);
  double (*seconds)(int size, const Messages& of);  // null: not known
  Plan plan;
};
constexpr Entry kTable[] = {
    {Algorithm::kRecursiveDoubling, "RecursiveDoubling", RecursiveDoublingPrice,
     RecursiveDoublingSeconds, RecursiveDoublingPlan},
    {Algorithm::kRing, "Ring", RingPrice, RingSeconds, RingPlan},
    {Algorithm::kHalvingDoubling, "HalvingDoubling", HalvingDoublingPrice, HalvingDoublingSeconds,
     HalvingDoublingPlan},
    {Algorithm::kNaive, "Naive", NaivePrice, NaiveSeconds, nullptr},
    {Algorithm::kTree, "Tree", TreePrice, TreeSeconds, TreePlan},
    {Algorithm::kSharedMemory, "SharedMemory", RingPrice, nullptr, nullptr},
};

const Entry& EntryOf(Algorithm algorithm) {
  for (const Entry& entry : kTable) {
    if (entry.algorithm == algorithm) return entry;
  }
  STARLING_CHECK(false, "every algorithm is in the table");
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
  // The next rank first, so that not all send to rank 0 at the same time.
  for (int i = 1; i < communicator.size(); ++i) {
    const int peer = (communicator.rank() + i) % communicator.size();
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

absl::Status RunOf(Algorithm algorithm, const Communicator& communicator, std::span<std::byte> data,
                   std::size_t element, Combine combine) {
  if (algorithm == Algorithm::kSharedMemory) {
    return SharedMemoryAllreduce(communicator, data, element, combine);
  }
  if (algorithm == Algorithm::kNaive) return NaiveAllreduce(communicator, data, element, combine);
  const Schedule schedule =
      PlanOf(algorithm, {communicator.size(), communicator.rank()}, data.size() / element);
  return Execute(communicator, schedule, data, data, element, combine);
}

}  // namespace

std::string_view NameOf(Algorithm algorithm) { return EntryOf(algorithm).name; }

std::optional<Algorithm> AlgorithmOf(std::uint64_t number) {
  for (const Entry& entry : kTable) {
    if (static_cast<std::uint64_t>(entry.algorithm) == number) return entry.algorithm;
  }
  return std::nullopt;
}

Schedule PlanOf(Algorithm algorithm, Place place, std::size_t length) {
  const Plan plan = EntryOf(algorithm).plan;
  STARLING_CHECK(plan != nullptr, "only a schedule has a plan");
  return plan(place, length);
}

Price PriceOf(Algorithm algorithm, int size) {
  return size <= 1 ? Price{} : EntryOf(algorithm).price(size);
}

double Cost(Algorithm algorithm, int size, std::size_t bytes, const LinkCost& link) {
  if (size <= 1) return 0;
  const Entry& entry = EntryOf(algorithm);
  if (entry.seconds == nullptr) return std::numeric_limits<double>::infinity();
  const auto m = static_cast<double>(bytes);
  return entry.seconds(size, {link, m}) + entry.price(size).added * m * link.seconds_per_byte_added;
}

Algorithm Choose(int size, std::size_t bytes, const LinkCost& link) {
  // What is equal by its formula is rounded this way or that for each size.
  constexpr double kClearly = 0.999;
  const Entry* best = std::begin(kTable);
  for (const Entry& entry : kTable) {
    const double least = Cost(best->algorithm, size, bytes, link);
    if (Cost(entry.algorithm, size, bytes, link) < kClearly * least) best = &entry;
  }
  return best->algorithm;
}

absl::Status Allreduce(Algorithm algorithm, const Communicator& communicator, buffer::View data,
                       ReduceOp op) {
  ASSIGN_OR_RETURN(const Reducer reducer, ReducerOf(op, data.type()));
  ASSIGN_OR_RETURN(const std::span<std::byte> bytes, data.Bytes());
  if (communicator.size() == 1) return absl::OkStatus();
  RETURN_IF_ERROR(
      RunOf(algorithm, communicator, bytes, buffer::SizeOf(data.type()), reducer.combine));
  if (reducer.divide != nullptr) reducer.divide(bytes.data(), data.size(), communicator.size());
  return absl::OkStatus();
}

}  // namespace starling::collectives
