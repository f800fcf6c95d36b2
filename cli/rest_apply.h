// SPDX-License-Identifier: Apache-2.0
// submit over REST: a job file is applied without an API server that knows who owns which field.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "cli/job_source.h"
#include "cli/session.h"

namespace starling::cli {

// The merge patch (RFC 7386) that turns `now` into what `wanted` says: what `before` said and
// `wanted` no longer says is taken back, what others have written beside both stays. Pure.
kube::Json ThreeWayPatch(const kube::Json& before, const kube::Json& now, const kube::Json& wanted);

// Creates the job, or patches the one of that name: `before` is what its annotation keeps of the
// file that was applied last. `replace` deletes the one that is there first. `what` becomes
// created, configured or unchanged.
absl::StatusOr<kube::Json> ApplyOverRest(Session& session, const LoadedJob& wanted, bool replace,
                                         std::string& what);

}  // namespace starling::cli
