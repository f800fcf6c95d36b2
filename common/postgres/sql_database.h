// SPDX-License-Identifier: Apache-2.0
// A PostgreSQL database as a sql::Database: one connection, which is made anew when it is lost.
//
// Every wait has an end: for the connection, for each statement, for a server that no longer
// answers. To see how errors are judged: the table of SQLSTATE in sql_database.cc.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/sql/sql.h"

namespace starling::postgres {

struct SqlOptions {
  // postgresql://[user@]host[:port][,...]/database[?...], or libpq's "key=value ..." form. What it
  // leaves open comes from libpq's environment (PGPASSWORD, PGPASSFILE, PGSSLMODE, ...): passwords
  // belong there, for everybody sees the arguments of a process.
  std::string url;
  std::string what = "database";  // what errors call it
  absl::Duration connect_timeout = absl::Seconds(5);
  absl::Duration statement_timeout = absl::Seconds(10);
};

// Does not connect yet. InvalidArgument: the URL is none.
absl::StatusOr<std::unique_ptr<sql::Database>> OpenSql(SqlOptions options);

}  // namespace starling::postgres
