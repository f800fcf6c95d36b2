// SPDX-License-Identifier: Apache-2.0
// A Kubernetes object store in one SQLite file, for one machine and for tests.
//
// It gives the semantics of an API server with etcd behind it, without either: several processes
// may open the same file (the controller and any number of CLIs), each write is one transaction,
// and a process that is killed at any instant leaves a whole store behind. Watches see writes of
// their own process immediately and those of other processes within about 15 ms. It knows no
// schema: what a kind's objects must look like comes as an admission function from the composition
// root.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/clock/clock.h"
#include "controller/kube/kube_client.h"

namespace starling::kube {

// One write of a main resource (never of a status), about to be stored.
struct AdmissionRequest {
  Json& object;            // may be changed: defaults
  const Json* old_object;  // null: a create
};
// Anything but OK refuses the write; its text reaches the writer.
using Admission = std::function<absl::Status(const AdmissionRequest& request)>;

struct EmbeddedOptions {
  std::string path = ":memory:";               // its folder must exist
  std::map<std::string, Admission> admission;  // by kind, such as "TrainingJob"
  std::vector<ResourceKind> optional_kinds;    // those of the optional kinds that it serves
  // Watches may start at most this many changes back; older ones get OutOfRange.
  std::int64_t change_log_limit = 4096;
  absl::Duration busy_timeout = absl::Seconds(10);  // for another process's write to end
};

// `clock` stamps objects and must outlive the client. DataLoss: the file is no store, or damaged;
// PermissionDenied: it belongs to someone else or cannot be written; FailedPrecondition: a newer
// version of Starling wrote it.
absl::StatusOr<std::unique_ptr<KubeClient>> OpenEmbeddedKubeClient(const clock::Clock& clock,
                                                                   EmbeddedOptions options);

}  // namespace starling::kube
