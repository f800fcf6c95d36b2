// SPDX-License-Identifier: Apache-2.0
// Parameter servers in one thread and no time at all: the REAL machines of trainer/parameter_server
// (chains, clients, the replicated object with its tables and clocks) with a clock, a network,
// storage and, on request, a coordinator that a seed makes up. (Else the coordinator is
// parameter_server::SlotCoordinator, with reports and directives that are late or lost.)
//
// Messages are delayed and, between clients and servers, lost, repeated and reordered; inside a
// chain some come again when their view is over; what a server was asked to load it may have when
// it wants it no more; links inside a chain break; servers and clients are killed, paused and
// suspected while they live; chains are reordered, grow and shrink; all copies of a slot may die,
// and then it is restored from whatever snapshot there is. After every event the invariants are
// checked; in the end the faults stop and all work must get done, every piece of it exactly once in
// every slot.
//
// To add a fault: SlotWorld::RandomFault. To add a rule: a switch in parameter_server/rules.h and a
// negative control in slot_simulation_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/consistency/consistency.h"
#include "trainer/parameter_server/rules.h"
#include "trainer/parameter_server/slot_plan.h"

namespace starling::simulation {

struct SlotOptions {
  std::uint64_t seed = 1;
  parameter_server::Rules rules;
  consistency::Options model = consistency::StaleSynchronous{1};
  int servers = 3;
  int clients = 3;
  int slots = 2;
  int replication = 2;
  int leases = 25;  // the first values, and portions of whole bulk-synchronous steps
  int faults = 10;  // 0: an undisturbed run
  int fanout = 1;   // clients that push through the first of them; 1: everybody by itself
  // Views and leases come from parameter_server::SlotCoordinator, which knows only what is reported
  // to it, and is replaced by others that know nothing; else from
  // a made-up coordinator, which knows everything, and orders chains as it likes.
  bool planned = false;
  membership::Rules plan;
  // The made-up coordinator gives out no portion of a bulk-synchronous step before the first values
  // are in every slot, as LeaseSource does. A test turns it off, and must see a portion taken too
  // early.
  bool first_values_first = true;
  // Servers report loads that a seed makes up, and that change: slots move while all else goes on.
  bool loads = false;
  // Planned clients give leases back, begun or not, as they do with those that a slot refused.
  bool returns = false;
  bool trace = false;
};

struct SlotOutcome {
  std::string violation;  // empty: none
  bool finished = false;
  std::int64_t events = 0;
  double seconds = 0;  // simulated
  // What the run had in it.
  int views = 0;
  int server_kills = 0;
  int client_kills = 0;
  int pauses = 0;
  int broken_links = 0;
  int copies = 0;
  int short_copies = 0;  // of them, those that were only what had come since
  int restores = 0;
  int takeovers = 0;
  int moves = 0;       // of slots, by load
  int late_views = 0;  // of coordinators that had a successor already
  int acknowledged = 0;
  int skipped = 0;  // pushes whose lease was in the ledger
  int reads = 0;
  int refused = 0;     // portions pushed beside others of which a slot had some already
  int returns = 0;     // leases that clients gave back
  int rests = 0;       // of clients without work
  int aggregates = 0;  // taken, of two clients or more, at each server
  int singly = 0;      // pushes that were to be repeated, since an aggregate was not taken
  std::vector<std::string> trace;
};

SlotOutcome SimulateSlots(const SlotOptions& options);

}  // namespace starling::simulation
