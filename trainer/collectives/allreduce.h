// SPDX-License-Identifier: Apache-2.0
// Reductions of equally long arrays over all ranks, the result at every rank.
//
//   RETURN_IF_ERROR(Allreduce(Algorithm::kAuto, communicator, gradients, ReduceOp::kSum));
//
// All ranks call the same function with the same length, type and operation in the same order.
// Every rank gets the same bits. A rank's failure ends the call on every rank with a status, within
// the deadline; the array then holds unspecified numbers, but nobody touches it any more.
//
// To add an algorithm: a value of Algorithm and its line in the table of allreduce.cc: what it
// costs, and its plan (schedule.h) or, where frames are not what it is made of, its function.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "trainer/buffer/buffer.h"
#include "trainer/collectives/communicator.h"
#include "trainer/collectives/reduce_op.h"

namespace starling::collectives {

enum class Algorithm {
  kAuto,
  // Every rank sends its array to every other and reduces all of them in rank order: the oracle of
  // the tests. One message delay, (n-1)M bytes.
  kNaive,
  // See schedule.h.
  kRing,
  kHalvingDoubling,
  kRecursiveDoubling,
  kTree,
  // In memory that all ranks share (transport::Arena): 2(n-1)/n M bytes are taken from the others'
  // areas by each, without frames. The order of reduction, and so the bits, are the ring's.
  // FAILED_PRECONDITION, at all ranks, where they do not share memory.
  kSharedMemory,
};

// A network in the alpha-beta model: a message of m bytes takes latency + m * seconds_per_byte.
// The defaults are those of raw TCP sockets on one machine: a blocking 1-byte ping-pong took 52 us,
// long messages both ways at once about 3 GB/s; and of one core adding arrays in cache.
struct LinkCost {
  double latency_seconds = 25e-6;
  double seconds_per_byte = 1 / 3.0e9;
  double seconds_per_byte_added = 1 / 20.0e9;  // reading and adding, or copying, one array
};

// What is on the slowest rank's way: messages one after another, arrays sent, and arrays added or
// copied. Of an algorithm that sends frames.
struct Price {
  double rounds = 0;
  double sent = 0;
  double added = 0;
};
Price PriceOf(Algorithm algorithm, int size);

// Expected seconds over `size` ranks for arrays of `bytes`.
double Cost(Algorithm algorithm, int size, std::size_t bytes, const LinkCost& link);

// The cheapest that sends frames. A function of its arguments only, so that all ranks choose alike.
Algorithm Choose(int size, std::size_t bytes, const LinkCost& link = {});

// By `algorithm`; kAuto: in shared memory where all ranks have it, else what Choose says.
// INVALID_ARGUMENT for a type that has no arithmetic, UNIMPLEMENTED for a device that is not built.
absl::Status Allreduce(Algorithm algorithm, const Communicator& communicator, buffer::View data,
                       ReduceOp op = ReduceOp::kSum);

}  // namespace starling::collectives
