// SPDX-License-Identifier: Apache-2.0
// SQLite with statuses instead of numbers: one connection and its prepared statements.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

struct sqlite3;
struct sqlite3_stmt;

namespace starling::sqlite {

// One run of a prepared statement; resets it when it ends. Confined to its Database's user.
class Query {
 public:
  Query(sqlite3* connection, sqlite3_stmt* statement, std::string name);
  ~Query();
  Query(Query&& other) noexcept;
  Query(const Query&) = delete;

  // Parameters, in order.
  Query& Bind(std::string_view text);
  Query& Bind(std::int64_t number);
  Query& Bind(double number);
  Query& BindNull();

  // To the next row; false: there is none.
  absl::StatusOr<bool> Step();
  // For statements without rows.
  absl::Status Run();

  int columns() const;
  enum class Type { kNull, kInt, kReal, kText };
  Type TypeOf(int column) const;
  std::string Text(int column) const;
  std::int64_t Int(int column) const;
  double Real(int column) const;

 private:
  sqlite3* connection_;
  sqlite3_stmt* statement_;
  std::string name_;  // of the database, in errors
  int bound_ = 0;
};

struct OpenOptions {
  std::string what = "store";  // what errors call it
  absl::Duration busy_timeout = absl::Seconds(5);
  bool read_only = false;  // of a file that is there
};

// Thread-compatible.
class Database {
 public:
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path,
                                                        const OpenOptions& options);
  ~Database();

  // Commits outlive power cuts; with `PRAGMA synchronous = NORMAL` the last ones may be undone by
  // one, and outlive any death of a process. Waits for other connections as long as the busy
  // timeout says.
  absl::Status UseWriteAheadLog();

  absl::Status Execute(const char* sql);
  // `sql` is a constant: its address is remembered.
  absl::StatusOr<Query> Prepare(const char* sql);
  absl::StatusOr<std::int64_t> Number(const char* sql);

 private:
  Database(sqlite3* connection, std::string name, absl::Duration busy_timeout)
      : connection_(connection), name_(std::move(name)), busy_timeout_(busy_timeout) {}

  sqlite3* connection_;
  const std::string name_;  // in errors
  const absl::Duration busy_timeout_;
  std::map<const char*, sqlite3_stmt*> statements_;
};

// Makes the file, for its owner alone, where there is none; one of another owner is refused.
absl::Status CreatePrivately(const std::string& path, const std::string& what);

}  // namespace starling::sqlite
