// SPDX-License-Identifier: Apache-2.0
// What an API server does to an object between the request and the store, as pure functions.
//
// Metadata that belongs to the server, the division of spec and status, generations, deletion with
// finalizers and grace periods, the few rules of single kinds. To give a kind a rule of its own,
// add it to CheckKind in object_rules.cc.
#pragma once

#include <cstdint>
#include <string>

#include "controller/kube/kube_client.h"

namespace starling::kube {

// "pods \"default/x\"": how errors name an object.
std::string Describe(const ResourceKind& kind, const ObjectKey& key);

// The object to store for a create. The caller has run no admission yet and sets resourceVersion.
absl::StatusOr<Json> PrepareCreate(const ResourceKind& kind, const Json& wanted, absl::Time now);

// The object to store in place of `old`, status and server's metadata kept; the resourceVersion
// and the generation are still old's.
absl::StatusOr<Json> PrepareUpdate(const ResourceKind& kind, const Json& old, const Json& wanted);
Json PrepareStatusUpdate(const Json& old, const Json& wanted);

// What the admission function may not undo, and sizes: the last check before the store.
absl::Status CheckObject(const ResourceKind& kind, const Json* old, const Json& object);

// Whether anything but metadata and status differs.
bool SpecChanged(const Json& old, const Json& object);

// Generation grows with the spec, in kinds that have a status.
void BumpGeneration(const ResourceKind& kind, const Json& old, Json& object);

// InvalidArgument if an object to update does not say which version of it was read.
absl::Status RequireVersion(const ResourceKind& kind, const Json& object);

// Aborted if `uid` or `resource_version`, where given, are not the object's.
absl::Status CheckPreconditions(const ResourceKind& kind, const Json& object,
                                const std::string& uid, const std::string& resource_version);

// The object as a delete leaves it: marked, or ready to be removed (see MayRemove).
Json MarkForDeletion(const ResourceKind& kind, const Json& object, const DeleteOptions& options,
                     absl::Time now);

// Marked, no finalizers left, no grace period to wait for.
bool MayRemove(const Json& object);

Json ScaleOf(const Json& job);
absl::StatusOr<Json> WithScale(const Json& job, const Json& scale);

}  // namespace starling::kube
