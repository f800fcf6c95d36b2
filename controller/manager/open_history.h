// SPDX-License-Identifier: Apache-2.0
// Where past jobs are kept, as the command line says: PostgreSQL, a file, or nowhere.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "controller/history/history.h"
#include "controller/manager/options.h"

namespace starling::manager {

// Talks to nobody yet. InvalidArgument: the URL is none.
absl::StatusOr<std::unique_ptr<history::History>> OpenHistory(const HistoryOptions& options);

// What is wrong with a URL of PostgreSQL; empty: nothing.
std::string CheckHistoryUrl(const std::string& url);

}  // namespace starling::manager
