// SPDX-License-Identifier: Apache-2.0
// Jobs whose objects are no more: HOME/history.db, which the controller writes
// (controller/history), and HOME/history/<namespace>/<name>-<uid>/, where a job that a newer one of
// its name replaced is put aside with its object (job.json) and its trained model.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/home.h"
#include "cli/session.h"
#include "controller/history/history.h"

namespace starling::cli {

// Puts the object and its model aside. Doing it again changes nothing. The object kept names the
// model's new place.
absl::Status Archive(const Home& home, const kube::Json& job);

// Those put aside, oldest first; all namespaces if `ns` is empty. Unreadable entries are left out.
std::vector<kube::Json> ListArchive(const Home& home, std::string_view ns);

// All past jobs, oldest first; all namespaces if `ns` is empty. FailedPrecondition: they are kept
// elsewhere, with what to do.
absl::StatusOr<std::vector<kube::Json>> ListPast(Session& session, const std::string& ns);

// A past job with all that is known of it.
struct PastStory {
  history::PastJob job;
  std::map<std::string, history::Points> curves;
};
// The newest of the name, or that of the UID. NotFound: there is none.
absl::StatusOr<PastStory> FindPast(Session& session, const kube::ObjectKey& key,
                                   const std::string& uid);

}  // namespace starling::cli
