// SPDX-License-Identifier: Apache-2.0
// What is read of a TrainingJob as it is stored, in whatever state, by those who write to its
// annotations: nothing that is there has a kind for certain.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace starling::spec {

// "" where there is no text.
std::string TextIn(const nlohmann::json& job, const char* pointer);
// An annotation, its first `longest` bytes.
std::string AnnotationIn(const nlohmann::json& job, const char* name, std::size_t longest);
bool HasCondition(const nlohmann::json& job, const char* type);

// In the state that its members work: why nobody does; empty: somebody does, or will.
struct Idleness {
  enum class Kind { kWorks, kFinished, kDeleted, kSuspended, kManaged, kContainer };
  Kind kind = Kind::kWorks;
  std::string manager;  // of kManaged
};
Idleness IdlenessOf(const nlohmann::json& job);

}  // namespace starling::spec
