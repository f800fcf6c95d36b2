// SPDX-License-Identifier: Apache-2.0
// A whole job in one thread and no time at all: the REAL machines of trainer/membership, with a
// clock, a network, storage, a controller and a supervisor that a seed makes up.
//
// Messages are delayed, lost, repeated and reordered; a member's machine hears some things again
// when they are long over (reductions, sync ids, copies, commits of a step or view before), and its
// step loop lags behind it; processes are killed, paused and cut off, half of them in the middle of
// a sync round, a copy or a takeover; coordinators die, and two lead at once; the job is halted and
// resumed. After every event the invariants are checked; in the end the faults stop and the job
// must finish. One seed is one history, for ever: a failure is repeated by its seed.
//
// To add a fault: a kind in simulator_faults.cc. To add a rule: a switch in membership/rules.h and
// a negative control in simulation_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/membership/rules.h"

namespace starling::simulation {

struct Options {
  std::uint64_t seed = 1;
  membership::Rules rules;
  int workers = 3;
  std::int64_t steps = 10;  // of the job
  int faults = 8;           // 0: an undisturbed run
  bool trace = false;       // fill Outcome::trace
};

struct Outcome {
  std::string violation;  // empty: none
  bool finished = false;
  std::int64_t events = 0;
  double seconds = 0;  // simulated
  // What the run had in it, so that a test can see that the faults happened.
  int views = 0;
  int kills = 0;
  int pauses = 0;
  int coordinators = 0;
  int copies = 0;
  int restores = 0;
  int committed = 0;
  int lags = 0;   // times that a step loop fell behind its machine
  int halts = 0;  // of the job, which was wanted again
  std::vector<std::string> trace;
};

Outcome Simulate(const Options& options);

}  // namespace starling::simulation
