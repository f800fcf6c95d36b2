// SPDX-License-Identifier: Apache-2.0
// Sums of equally long arrays over all ranks, the result at every rank.
//
// All ranks call the same function with the same length in the same order. Every rank gets the same
// bits. A rank's failure ends the call on every rank with a status, within the deadline; the array
// then holds unspecified numbers, but nobody touches it any more.
//
// To add an algorithm: a function here, a value of Algorithm, its cost in Cost(), a line in the
// list of allreduce_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "trainer/collectives/communicator.h"

namespace starling::collectives {

// Every rank sends its array to every other and adds all of them in rank order. One message delay,
// (n-1)M bytes sent by each: the oracle of the tests, and the fastest for a few bytes.
absl::Status NaiveAllreduce(const Communicator& communicator, std::span<float> data);

// Around a ring: reduce-scatter, then allgather (Patarasuk and Yuan, "Bandwidth optimal all-reduce
// algorithms for clusters of workstations", 2009). 2(n-1) message delays; each rank sends
// 2(n-1)/n M bytes, the minimum. Element e of chunk c is summed in the order of ranks c, c+1, ...,
// c-1 (modulo n), at one rank, and copied. Chunk c is [c*length/n, (c+1)*length/n), maybe empty.
absl::Status RingAllreduce(const Communicator& communicator, std::span<float> data);

// In memory that all ranks share (transport::Arena): 2(n-1)/n M bytes are taken from the others'
// areas by each, without frames. The order of addition, and so the bits, are the ring's.
// FAILED_PRECONDITION, at all ranks, where they do not share memory. Only called on a mesh whose
// ranks all call it at the same place among their transfers.
absl::Status SharedMemoryAllreduce(const Communicator& communicator, std::span<float> data);

enum class Algorithm { kAuto, kNaive, kRing, kSharedMemory };

// A network in the alpha-beta model: a message of m bytes takes latency + m * seconds_per_byte.
// The defaults are those of raw TCP sockets on one machine: a blocking 1-byte ping-pong took 52 us,
// long messages both ways at once about 3 GB/s; and of one core adding arrays in cache.
struct LinkCost {
  double latency_seconds = 25e-6;
  double seconds_per_byte = 1 / 3.0e9;
  double seconds_per_byte_added = 1 / 20.0e9;  // reading and adding, or copying, one array
};

// Expected seconds of `algorithm`, which sends frames, over `size` ranks for arrays of `bytes`.
double Cost(Algorithm algorithm, int size, std::size_t bytes, const LinkCost& link);

// The cheapest that sends frames. A function of its arguments only, so that all ranks choose alike.
Algorithm Choose(int size, std::size_t bytes, const LinkCost& link = {});

// By `algorithm`; kAuto: in shared memory where all ranks have it, else what Choose says.
absl::Status Allreduce(Algorithm algorithm, const Communicator& communicator,
                       std::span<float> data);

}  // namespace starling::collectives
