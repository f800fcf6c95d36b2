// SPDX-License-Identifier: Apache-2.0
#include "controller/manager/open_history.h"

#include <utility>

#include "common/postgres/sql_database.h"
#include "common/status/macros.h"
#include "controller/history/no_history.h"
#include "controller/history/sql_history.h"

namespace starling::manager {

absl::StatusOr<std::unique_ptr<history::History>> OpenHistory(const HistoryOptions& options) {
  if (!options.url.empty()) {
    ASSIGN_OR_RETURN(auto database, postgres::OpenSql({.url = options.url, .what = "history"}));
    return std::make_unique<history::SqlHistory>(std::move(database));
  }
  if (!options.file.empty()) return history::OpenSqliteHistory(options.file);
  return std::make_unique<history::NoHistory>();
}

std::string CheckHistoryUrl(const std::string& url) {
  const auto database = postgres::OpenSql({.url = url});
  return database.ok() ? "" : std::string(database.status().message());
}

}  // namespace starling::manager
