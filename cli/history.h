// SPDX-License-Identifier: Apache-2.0
// Jobs that a newer job of the same name has replaced: HOME/history/<namespace>/<name>-<uid>/,
// with the object as it was last (job.json) and the trained model.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/home.h"

namespace starling::cli {

// Keeps the object and its model. Doing it again changes nothing. The object kept names the model's
// new place.
absl::Status Archive(const Home& home, const kube::Json& job);

// Oldest first; all namespaces if `ns` is empty. Unreadable entries are left out.
std::vector<kube::Json> ListHistory(const Home& home, std::string_view ns);

}  // namespace starling::cli
