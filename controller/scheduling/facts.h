// SPDX-License-Identifier: Apache-2.0
// What schedulers and queues are told of a job, and what a decision about the job hears of them.
//
// Both are plain data, so that everything in between is pure. This is all that
// controller/trainingjob and controller/scheduling know of each other.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "controller/resources/names.h"

namespace starling::scheduling {

using Json = nlohmann::json;

// The pods of one role.
struct RoleFacts {
  resources::Role role = resources::Role::kWorker;
  // One of them, as it would be built: its spec is the role's template. Of a job that has a queue.
  Json pod;
  std::int64_t wanted = 0;  // how many the spec asks for, within its own bounds
  std::int64_t least = 0;   // without how many the job cannot train
  std::int64_t live = 0;    // how many have not ended, terminating ones among them
  std::int64_t ready = 0;
};

// As the job's status says it.
enum class Outcome { kNone, kSucceeded, kFailed };

struct JobFacts {
  resources::JobIdentity job;
  Json owner;                                 // kube::ControllerReference of the job
  std::map<std::string, std::string> labels;  // the TrainingJob's
  std::int64_t generation = 1;
  bool suspend = false;  // spec.runPolicy.suspend
  Outcome outcome = Outcome::kNone;
  std::string outcome_message;
  std::vector<RoleFacts> roles;
  // spec.runPolicy.schedulingPolicy; all of it may be left out.
  std::optional<std::int64_t> min_available;  // of the workers, instead of their RoleFacts::least
  std::string queue;
  std::string priority_class;
  std::optional<std::int64_t> timeout_seconds;
};

// What a decision hears.
struct Verdict {
  // No pod may be made, and those that run are to be saved and let go, as with suspend. What was
  // held may go on later, by itself.
  bool hold = false;
  std::string reason;   // of the condition Suspended while held: one CamelCase word
  std::string message;  // a sentence
  // More workers than this have no quota: a bound like maxReplicas.
  std::optional<std::int64_t> worker_limit;
  std::string limit_message;  // what a user can do about it
  // The same for parameter servers.
  std::optional<std::int64_t> server_limit;
  std::string server_limit_message;
  // Something that the user asked for cannot be had; worth a warning event.
  std::string warning;
};

}  // namespace starling::scheduling
