// SPDX-License-Identifier: Apache-2.0
// How long a collective takes on an emulated network of any size: plays what all ranks do, piece by
// piece as Execute carries it out, by a clock that nobody waits for.
//
// The cards are those of the transports (transport::Card), so it is what members of a job on such a
// network would measure, on a machine that does nothing else and takes no time for its own part.
// The same on every machine, however loaded. In a ring of 4,096 ranks are 33 million messages; see
// Emulate for how not to play all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "trainer/collectives/allreduce.h"
#include "trainer/collectives/execute.h"
#include "trainer/collectives/schedule.h"
#include "trainer/transport/shaping.h"

namespace starling::collectives {

// What one rank does, as far as time depends on it: what it sends, in this order, and from whom it
// receives.
struct Script {
  struct Sent {
    std::int32_t peer = 0;
    std::uint32_t receives_before = 0;
    std::uint32_t elements = 0;
  };
  std::vector<Sent> outgoing;
  std::vector<std::int32_t> incoming;
};
Script ScriptOf(const Schedule& schedule, std::size_t piece);
// Of an allreduce of `length` elements of `element` bytes; not of shared memory.
Script ScriptOf(Algorithm algorithm, Place place, std::size_t length, std::size_t element);

// The work-depth model of what was played (Ben-Nun and Hoefler, "Demystifying parallel and
// distributed deep learning", 2019): no network of these cards, however clever the order, is faster
// than the longer of `longest_path` and `busiest_card`.
struct EmulatedTime {
  double seconds = 0;
  double work = 0;  // of all cards, sending
  double longest_path =
      0;  // of messages of which one waits for the other, each with a card of its own
  double busiest_card = 0;  // what one card has to send, or to receive, at least
};

// `shaping.pods_per_host` ranks that follow one another share a card; what they send one another
// takes no time. Rank 3 is pod worker-3 of `shaping.links`. All ranks wait for nothing but
// messages.
//
// Without such links, where all hosts do the same at the same time, as in a ring, or in recursive
// doubling of a power of two of ranks, `ranks` may be those of the first host alone: a peer that is
// beyond them is played by the rank that has its place on this host, and what is sent to it goes
// through the card and comes back. `work` then is that of one host.
EmulatedTime Emulate(const std::vector<Script>& ranks, std::size_t element,
                     const transport::Shaping& shaping);

}  // namespace starling::collectives
