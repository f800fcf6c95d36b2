// SPDX-License-Identifier: Apache-2.0
// Which algorithm sums an array of a given size: chosen once for each view, by the links that it
// has.
//
//   ASSIGN_OR_RETURN(const Selection selection, AgreeOnSelection(communicator));   // all ranks
//   RETURN_IF_ERROR(Allreduce(selection.Of(bytes), communicator, gradients));
//
// Where all ranks share memory, they use it. Else pairs of ranks measure their links, rank 0 takes
// the slowest figures, since the slowest link is what all others wait for, and chooses by the cost
// of each algorithm (allreduce.h). What it tells the others is not the figures but the choice: a
// table by size, in which every rank looks up. So ranks cannot differ in what they choose, even
// where they round differently or know other costs; they would wait for one another for ever.
//
// Each rank measures at most kMostLinks of its links, one at a time and all ranks at the same time,
// as they are used in a sum. All of them wait meanwhile, so an Effort bounds it: arrays larger than
// any that will be summed are not sent, and no rank begins with a link when the time is over. The
// first one of each pair is always measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/collectives/allreduce.h"
#include "trainer/collectives/communicator.h"
#include "trainer/collectives/schedule.h"

namespace starling::collectives {

// Arrays of at most so many bytes, and more than those of the class before.
struct SizeClass {
  std::uint64_t most_bytes = 0;
  Algorithm algorithm = Algorithm::kRing;

  friend bool operator==(const SizeClass&, const SizeClass&) = default;
};

struct Selection {
  // By size; the last one holds whatever is larger.
  std::vector<SizeClass> classes = {{0, Algorithm::kRing}};
  // Figures of the slowest link, by which it was chosen, and how many links were measured: 0 where
  // nothing was to be chosen.
  LinkCost link = {};
  std::int64_t links = 0;

  Algorithm Of(std::size_t bytes) const;
};

// One for all sizes.
Selection Always(Algorithm algorithm);
// The cheapest for each size.
Selection SelectBy(const LinkCost& link, int size);

// For people: "RecursiveDoubling up to 8192 bytes, HalvingDoubling beyond".
std::string AlgorithmsOf(const Selection& selection);
// "a message takes 52 us and 2.9 GB/s on the slowest of 6 links"
std::string MeasuredOf(const Selection& selection);

// How much may be measured in a view.
struct Effort {
  std::size_t largest = std::size_t{1} << 20;      // bytes of the largest array; more than 1 MiB is
                                                   // never sent
  absl::Duration most = absl::InfiniteDuration();  // begins no link later
};
// All ranks call it at the same place among their transfers; all get the same.
absl::StatusOr<Selection> AgreeOnSelection(const Communicator& communicator,
                                           const Effort& effort = {});

// The parts of it, for tests and benchmarks.

inline constexpr int kMostLinks = 8;
// Whom this rank measures a link with in a round, or -1: nobody. Over all size - 1 rounds (of an
// odd size: size rounds) each rank meets every other once.
int PartnerIn(int round, Place place);
// What this rank has found of the links that it was to measure; zeros where it has measured none.
struct Measured {
  LinkCost slowest = {0, 0, 0, 0};
  std::int64_t links = 0;
};
// All ranks call it.
absl::StatusOr<Measured> MeasureLinks(const Communicator& communicator, const Effort& effort = {});

}  // namespace starling::collectives
