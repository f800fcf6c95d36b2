// SPDX-License-Identifier: Apache-2.0
// A whole job in one thread and no time at all: the REAL machines of trainer/membership and
// trainer/parameter_server, with a clock, a network, storage, a controller and a supervisor that a
// seed makes up.
//
// Messages are delayed, lost, repeated and reordered; machines hear some things again when they are
// long over (reductions, sync ids, copies, commits, entries of an old view); a worker's step loop
// lags behind its machine; processes are killed, paused and cut off, many of them in the middle of
// a sync round, a copy or a takeover; coordinators die, pause, and two lead at once; the size
// changes. After every event the invariants are checked; in the end the faults stop and the job
// must finish. One seed is one history, for ever: a failure is repeated by its seed.
//
// world.h is what all jobs have in common: time, network, processes, coordinators, the controller
// and the faults. A kind of job is a Job: PeerJob, where workers hold the whole state, ShardJob,
// with parameter servers, and HybridJob, where both hold a part. To add a fault:
// World::RandomFault. To add a rule: a switch in the machines' rules.h and a negative control in
// simulation_test.cc or shard_simulation_test.cc.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/consistency/consistency.h"
#include "trainer/membership/rules.h"
#include "trainer/parameter_server/rules.h"

namespace starling::simulation {

struct Options {
  std::uint64_t seed = 1;
  int workers = 3;
  int faults = 8;  // 0: an undisturbed run
  membership::Rules rules;
  bool trace = false;  // fill Outcome::trace
  // A second coordinator process stands by, is lost and cut off like the others, and the controller
  // is away for whiles.
  bool standby = false;
};

struct PeerOptions : Options {
  std::int64_t steps = 10;  // of the job
};

struct ShardOptions : Options {
  parameter_server::Rules shard_rules;
  consistency::Options model = consistency::StaleSynchronous{1};
  int servers = 3;
  int shards = 2;
  int replication = 2;
  int leases = 25;  // the first values, and portions of whole bulk-synchronous steps
  int fanout = 1;   // clients that push through the first of them; 1: everybody by itself
  // Shards lie where a seed puts them, in an order that nobody would plan, and all at once.
  bool whims = false;
  // Servers report loads that a seed makes up, and that change: shards move while all else goes on.
  bool loads = false;
  // Clients give leases back, begun or not, as they do with those that a shard refused.
  bool returns = false;
  // No client begins a portion before the first values are in every shard, since none is listed. A
  // test turns it off, and must see a portion taken too early.
  bool first_values_first = true;
};

// Workers make every step together; servers hold a part of the model. A step's portions are pushed
// to every shard, bulk-synchronously.
struct HybridOptions : PeerOptions {
  parameter_server::Rules shard_rules;
  int servers = 2;
  int shards = 2;
  int replication = 2;
  int portions = 3;
  int validate_every = 3;  // steps
  bool whims = false;      // as of ShardOptions
  bool loads = false;
  // Rules of docs/design/protocol.md (H1, H3, H4) and docs/design/parameter-server.md that stand
  // in the worker's loop. A test turns one off, and must see harm.
  bool lease_is_portion = true;          // H1; else what it means follows from how many workers are
  bool acknowledged_before_word = true;  // H3
  bool catch_up = true;                  // H4
  bool one_owner = true;                 // what lies on servers is no part of workers' states
  bool validates_state_before = true;    // a validation counts where all have read that state
};

struct Outcome {
  std::string violation;  // empty: none
  bool finished = false;
  double seconds = 0;  // simulated
  // What the run had in it, so that a test can see that the faults happened: "events", "views",
  // "worker kills" and so on.
  std::map<std::string, std::int64_t> counts;
  std::vector<std::string> trace;

  std::int64_t Of(const std::string& what) const {
    const auto found = counts.find(what);
    return found == counts.end() ? 0 : found->second;
  }
};

Outcome Simulate(const PeerOptions& options);
Outcome Simulate(const ShardOptions& options);
Outcome Simulate(const HybridOptions& options);

}  // namespace starling::simulation
