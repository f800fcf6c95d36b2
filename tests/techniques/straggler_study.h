// SPDX-License-Identifier: Apache-2.0
// How long training takes, by consistency model, while one worker after another is ten times as
// slow as the rest: the experiment behind backup workers (Chen et al. 2016) and stale synchronous
// parallel (Ho et al. 2013), in made-up time and with real gradients.
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace starling::techniques {

// When a model's accuracy reached the target; infinity: it did not.
struct StragglerRun {
  std::string model;
  bool stragglers = false;
  int seed = 0;
  double reached = std::numeric_limits<double>::infinity();
};

struct StragglerResult {
  std::string json;  // for each run the accuracy over time, and when the target was reached
  std::vector<StragglerRun> runs;
};

// `without`: the runs without a straggler, too.
StragglerResult StragglerStudy(int seeds, bool without = true);

// What is wrong with them: with the rotating straggler every model that does not wait for everybody
// must reach the target sooner than bulkSynchronous does, with each seed.
std::vector<std::string> NotSooner(const std::vector<StragglerRun>& runs);

}  // namespace starling::techniques
