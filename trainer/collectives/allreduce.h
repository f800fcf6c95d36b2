// SPDX-License-Identifier: Apache-2.0
// Reductions of equally long arrays over all ranks, the result at every rank.
//
//   RETURN_IF_ERROR(Allreduce(Algorithm::kRing, communicator, gradients, ReduceOp::kSum));
//
// Which algorithm is fastest for a size, and how all ranks agree on it, says selector.h.
//
// All ranks call the same function with the same length, type and operation in the same order.
// Every rank gets the same bits. A rank's failure ends the call on every rank with a status, within
// the deadline; the array then holds unspecified numbers, but nobody touches it any more.
//
// To add an algorithm: a value of Algorithm and its line in the table of allreduce.cc: its name,
// what it costs, and its plan (schedule.h) or, where frames are not what it is made of, its
// function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "trainer/buffer/buffer.h"
#include "trainer/collectives/communicator.h"
#include "trainer/collectives/reduce_op.h"
#include "trainer/collectives/schedule.h"

namespace starling::collectives {

// Numbers travel (selector.h): they stay what they are.
enum class Algorithm : std::uint8_t {
  // Every rank sends its array to every other and reduces all of them in rank order: the oracle of
  // the tests. One message delay, (n-1)M bytes.
  kNaive = 1,
  // See schedule.h.
  kRing = 2,
  kHalvingDoubling = 3,
  kRecursiveDoubling = 4,
  kTree = 5,
  // In memory that all ranks share (transport::Arena): 2(n-1)/n M bytes are taken by each from the
  // others' windows or areas, without frames. The order of reduction, and so the bits, are the
  // ring's. FAILED_PRECONDITION, at all ranks, where they do not share memory.
  kSharedMemory = 6,
};

// As in the job file: "Ring".
std::string_view NameOf(Algorithm algorithm);
// Nothing for a number of none.
std::optional<Algorithm> AlgorithmOf(std::uint64_t number);

// A network in the alpha-beta model: a message of m bytes takes latency + m * seconds_per_byte, and
// each further message at the same time seconds_per_message more. The defaults are those of raw TCP
// sockets on one machine: a blocking 1-byte ping-pong took 52 us, long messages both ways at once
// about 3 GB/s; and of one core adding arrays in cache.
struct LinkCost {
  double latency_seconds = 25e-6;
  double seconds_per_byte = 1 / 3.0e9;
  double seconds_per_byte_added = 1 / 20.0e9;  // reading and adding, or copying, one array
  double seconds_per_message = 5e-6;
};

// Of an algorithm that is a schedule, which the naive one and shared memory are not.
Schedule PlanOf(Algorithm algorithm, Place place, std::size_t length);

// What is on the slowest rank's way: messages one after another, arrays sent, and arrays added or
// copied.
struct Price {
  double rounds = 0;
  double sent = 0;
  double added = 0;
};
Price PriceOf(Algorithm algorithm, int size);

// Expected seconds over `size` ranks for arrays of `bytes`. Infinite where that is not known: of
// what sends no frames.
double Cost(Algorithm algorithm, int size, std::size_t bytes, const LinkCost& link);

// The cheapest; of those that hardly differ, the first in the table.
Algorithm Choose(int size, std::size_t bytes, const LinkCost& link);

// INVALID_ARGUMENT for a type that has no arithmetic, UNIMPLEMENTED for a device that is not built.
absl::Status Allreduce(Algorithm algorithm, const Communicator& communicator, buffer::View data,
                       ReduceOp op = ReduceOp::kSum);

}  // namespace starling::collectives
