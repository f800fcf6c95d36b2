// SPDX-License-Identifier: Apache-2.0
// How long training takes, by consistency model, while one worker after another is ten times as
// slow as the rest: the experiment behind backup workers (Chen et al. 2016) and stale synchronous
// parallel (Ho et al. 2013), in made-up time and with real gradients.
#pragma once

#include <string>

namespace starling::techniques {

// JSON: for each model and seed the accuracy over time and when the target was reached.
std::string StragglerStudy(int seeds);

}  // namespace starling::techniques
