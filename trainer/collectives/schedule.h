// SPDX-License-Identifier: Apache-2.0
// What one rank does in a collective, as data: in each round, which elements it sends to whom, and
// which it receives from whom.
//
// Schedules are pure functions of the number of ranks, the rank and the array. One function carries
// them all out (Execute in execute.h); bytes, rounds and the order of additions follow from the
// data alone, so that tests and the selector reason about a schedule without a network.
//
// M is the array's size, n the number of ranks, p the largest power of two up to n. Where n is no
// power of two, the 2(n-p) first ranks fold: each even one gives its array to the next rank, which
// then takes part for both and gives the result back.
//
// To add an algorithm: a function here and its line in a table of collectives.cc, whose tests then
// hold it to the oracle.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "common/ranges/ranges.h"

namespace starling::collectives {

using Elements = ranges::Range<std::size_t>;

struct Transfer {
  int peer = 0;
  Elements range;  // of this rank's array
};
struct Receipt : Transfer {
  bool combine = false;  // with what is there; else it takes the place of it
};

// What is sent is what the array holds once all earlier rounds are done. What one round receives
// does not overlap, and what comes in place of something comes after that was sent, if it was
// received at all.
struct Round {
  std::vector<Transfer> sends;
  std::vector<Receipt> receipts;
};
using Schedule = std::vector<Round>;

// One rank's view of a collective.
struct Place {
  int size = 1;
  int rank = 0;
};

// Where each rank's part of an array begins and ends; parts follow one another.
using Parts = std::function<Elements(int rank)>;
// ranges::PartOf.
Parts EvenParts(std::size_t length, int size);

// --- Allreduce: every rank ends with the reduction of all.

// 2(n-1) rounds, 2(n-1)/n M bytes sent by each rank (Patarasuk and Yuan 2009). Element e of chunk c
// is reduced in the order of ranks c, c+1, ..., c-1.
Schedule RingAllreducePlan(Place place, std::size_t length);
// The same chunks, bytes and order of additions, a part of each chunk at a time: 2(n-1) rounds for
// each `segment` elements of the array. What is summed of a segment goes on while it is in the
// cache; the sums of `ahead` segments after it are under way meanwhile, so that links do not wait.
Schedule RingInSegmentsPlan(Place place, std::size_t length, std::size_t segment,
                            std::size_t ahead);
// Recursive halving, then recursive doubling (Thakur, Rabenseifner and Gropp, "Optimization of
// collective communication operations in MPICH", 2005): 2 log2 p rounds, and 2 to fold;
// 2(p-1)/p M bytes, and M more by each end of a fold.
Schedule HalvingDoublingPlan(Place place, std::size_t length);
// log2 p rounds, and 2 to fold; M log2 p bytes, and M more by each end of a fold. The least delay
// of all that combine on the way.
Schedule RecursiveDoublingPlan(Place place, std::size_t length);
// A binomial tree up, then down: 2 ceil(log2 n) rounds; rank 0 sends ceil(log2 n) M bytes.
Schedule TreePlan(Place place, std::size_t length);

// --- Parts of it, and others. `parts` are the ranks'.

// Rank r ends with the reduction of its part; the rest of its array is unspecified. n-1 rounds.
Schedule ReduceScatterPlan(Place place, const Parts& parts);
// Rank r begins with its part, all end with all. n-1 rounds.
Schedule AllgatherPlan(Place place, const Parts& parts);
// Binomial trees: ceil(log2 n) rounds. Reduce leaves the arrays of ranks other than the root
// unspecified, as gather does outside their own part.
Schedule BroadcastPlan(Place place, std::size_t length, int root);
Schedule ReducePlan(Place place, std::size_t length, int root);
Schedule GatherPlan(Place place, const Parts& parts, int root);
Schedule ScatterPlan(Place place, const Parts& parts, int root);
// From one array to another, both of n parts: part j of rank i's goes to part i of rank j's. n-1
// rounds, in each of which nobody sends to the same rank as somebody else.
Schedule AllToAllPlan(Place place, const Parts& parts);
// Everybody has heard of everybody in ceil(log2 n) rounds of frames without a payload (Hensgen,
// Finkel and Manber 1988).
Schedule BarrierPlan(Place place);

}  // namespace starling::collectives
