// SPDX-License-Identifier: Apache-2.0
// From what is seen of a job to what other people's schedulers and queues are told, and back.
#pragma once

#include "controller/scheduling/facts.h"
#include "controller/trainingjob/observe.h"

namespace starling::trainingjob {

// Total: a role whose pods cannot be built counts as one without any.
scheduling::JobFacts FactsOf(const JobObjects& objects, const Reading& reading,
                             const resources::Platform& platform);

// What a decision hears of it.
Queueing QueueingOf(const scheduling::Verdict& verdict);

}  // namespace starling::trainingjob
