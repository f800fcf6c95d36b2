// SPDX-License-Identifier: Apache-2.0
// How requests are made in annotations of a TrainingJob: what is read of it as it is stored, in
// whatever state, where nothing has a kind for certain, and what is written to it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace starling::spec {

// "" where there is no text.
std::string TextIn(const nlohmann::json& job, const char* pointer);
// An annotation, its first `longest` bytes.
std::string AnnotationIn(const nlohmann::json& job, const char* name, std::size_t longest);
bool HasCondition(const nlohmann::json& job, const char* type);

// A merge patch that gives an annotation of this very job that value; null takes it back.
nlohmann::json AnnotationPatch(const nlohmann::json& job, const char* name,
                               const nlohmann::json& value);
// A time as such annotations have it: no two requests may have the same.
std::string RequestTime(absl::Time now);
// OK for an empty `why`, else FailedPrecondition: the job's name and why.
absl::Status RefusalBecause(const nlohmann::json& job, const std::string& why);

// In the state that its members work: why nobody does; empty: somebody does, or will.
struct Idleness {
  enum class Kind { kWorks, kFinished, kDeleted, kSuspended, kManaged, kContainer };
  Kind kind = Kind::kWorks;
  std::string manager;  // of kManaged
};
Idleness IdlenessOf(const nlohmann::json& job);

}  // namespace starling::spec
