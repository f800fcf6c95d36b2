// SPDX-License-Identifier: Apache-2.0
// `run` and `submit` apply a file: create the job, go on with it, or start a new one in its place.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "cli/job_source.h"
#include "cli/session.h"

namespace starling::cli {

enum class ApplyStep {
  kCreate,     // there is none of that name
  kGoOn,       // unfinished, and the file says what it said: resume it if it is suspended
  kStartAnew,  // finished: into the history with it, then create
  kReplace,    // unfinished and different, and the user has said --replace
  kRefuse,     // unfinished and different
  kAwaitGone,  // on its way out: wait, then look again
};

bool IsFinished(const kube::Json& job);

// Pure. `existing` is null if there is none.
ApplyStep DecideApply(const kube::Json* existing, const kube::Json& wanted, bool replace);

struct Applied {
  kube::Json job;  // as stored
  ApplyStep step;  // what was done in the end
};

// Does it. InvalidArgument, naming --replace, for kRefuse; DeadlineExceeded if an old job does not
// go away; `tend` is called while waiting (it keeps a controller alive).
absl::StatusOr<Applied> Apply(Session& session, const LoadedJob& wanted, bool replace,
                              const std::function<absl::Status()>& tend);

// The same in a cluster: server-side apply, as `kubectl apply --server-side` does it. `what`
// becomes created, configured or unchanged. With `replace` the job of that name is stopped first.
absl::StatusOr<kube::Json> ApplyToCluster(Session& session, const LoadedJob& wanted, bool replace,
                                          std::string& what);

// Waits until the object with that UID and all its pods are gone, at most `timeout`.
absl::Status AwaitGone(Session& session, const kube::Json& job, absl::Duration timeout,
                       const std::function<absl::Status()>& tend);

}  // namespace starling::cli
