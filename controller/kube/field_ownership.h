// SPDX-License-Identifier: Apache-2.0
// Who owns which field of an object, for the embedded store's server-side apply.
//
// Ownership lies in metadata.managedFields in Kubernetes' form: one entry a manager, fieldsV1 being
// a tree of "f:NAME". This store knows no schemas, so a list is one field, owned as a whole. Fields
// are tracked once something has been applied to the object; an object that nobody applies to
// carries no such list.
#pragma once

#include "controller/kube/kube_client.h"

namespace starling::kube {

// The object that `applied` makes of `live` (null: there is none), managedFields included. Aborted,
// naming fields and managers: others own fields that would change, and options.force is not set.
absl::StatusOr<Json> MergeApplied(const ResourceKind& kind, const Json* live, const Json& applied,
                                  const ApplyOptions& options);

// After a write of another sort made `object` of `old`: what changed is the writer's from now on.
void TakeOwnership(const Json& old, Json& object);

}  // namespace starling::kube
