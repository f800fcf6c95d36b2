// SPDX-License-Identifier: Apache-2.0
// Reading and building the parts that all Kubernetes objects share: metadata, owners, conditions.
//
// Readers are total: what is absent or of another type reads as empty, so that a strange object in
// the store never stops a controller.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "controller/kube/kube_client.h"

namespace starling::kube {

std::string NameOf(const Json& object);
std::string NamespaceOf(const Json& object);
std::string UidOf(const Json& object);
std::string ResourceVersionOf(const Json& object);
ObjectKey KeyOf(const Json& object);
std::int64_t GenerationOf(const Json& object);
std::string LabelOf(const Json& object, std::string_view name);
std::string AnnotationOf(const Json& object, std::string_view name);
bool IsBeingDeleted(const Json& object);
std::optional<absl::Time> CreationTimeOf(const Json& object);

// The value at a JSON pointer such as "/status/phase"; a null if there is none.
const Json& At(const Json& object, std::string_view pointer);
std::string StringAt(const Json& object, std::string_view pointer);  // empty: not a string
std::int64_t IntAt(const Json& object, std::string_view pointer, std::int64_t otherwise = 0);
bool BoolAt(const Json& object, std::string_view pointer, bool otherwise = false);

// UID of the owner that controls the object; empty: none.
std::string ControllerUidOf(const Json& object);

// A reference that makes `owner` the controller of whoever carries it.
Json ControllerReference(const Json& owner);

bool HasFinalizer(const Json& object, std::string_view name);

// Times of metadata and conditions have whole seconds, MicroTime (events, leases) microseconds.
std::string FormatTimestamp(absl::Time time);
std::string FormatMicroTimestamp(absl::Time time);
std::optional<absl::Time> ParseTimestamp(std::string_view text);

// metav1.Condition.
struct Condition {
  std::string type;
  std::string status;  // True, False, Unknown
  std::string reason;
  std::string message;
  std::int64_t observed_generation = 0;
};

// The condition of that type in /status/conditions; a null if there is none.
const Json& FindCondition(const Json& object, std::string_view type);
bool IsConditionTrue(const Json& object, std::string_view type);

// Adds or replaces a condition in the list `conditions`; lastTransitionTime moves only when the
// status does. Returns whether anything changed.
bool SetCondition(Json& conditions, const Condition& condition, absl::Time now);

}  // namespace starling::kube
