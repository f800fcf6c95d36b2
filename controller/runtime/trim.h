// SPDX-License-Identifier: Apache-2.0
// What an informer's copy of an object keeps: as much as decisions read, and no more.
//
// Thousands of jobs are held in memory, each with several pods; most of a pod is of no interest to
// anyone but its kubelet. Pure functions, one a kind. Who reads another field of a cached object
// adds it here: the tables in trim.cc name all that is kept.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "controller/kube/kept_fields.h"
#include "controller/kube/resource_kind.h"

namespace starling::runtime {

using Trim = nlohmann::json (*)(const nlohmann::json& object);

// Keeps identity, owner, labels and annotations of ours, phase, address, conditions, and of the
// containers name, resources and state.
nlohmann::json TrimmedPod(const nlohmann::json& object);
// Keeps taints and conditions, without the heartbeats that change all the time.
nlohmann::json TrimmedNode(const nlohmann::json& object);
// Keeps identity, owner and labels of ours: that it is there, and whose it is.
nlohmann::json TrimmedToMetadata(const nlohmann::json& object);
// The same, with the spec.
nlohmann::json TrimmedToSpec(const nlohmann::json& object);
// The same, with data.
nlohmann::json TrimmedToData(const nlohmann::json& object);

// The one for this kind. Null: objects of this kind are kept whole, as those that are written back.
Trim TrimFor(const kube::ResourceKind& kind);

// What a controller reads of the server's answers about a kind, of which it writes back no object.
// Empty: all of it.
kube::KeptFields FieldsRead(const kube::ResourceKind& kind);

// What of a pod a decision may depend on (InformerOptions::news): that it runs, ends, is being
// deleted, cannot start or has no place; not where it was placed nor how far its start is.
std::string NewsOfPod(const nlohmann::json& pod);

}  // namespace starling::runtime
