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

namespace starling::kube {

// One run of a prepared statement; resets it when it ends. Confined to its Database's user.
class Query {
 public:
  Query(sqlite3* connection, sqlite3_stmt* statement, std::string path);
  ~Query();
  Query(Query&& other) noexcept;
  Query(const Query&) = delete;

  // Parameters, in order.
  Query& Bind(std::string_view text);
  Query& Bind(std::int64_t number);

  // To the next row; false: there is none.
  absl::StatusOr<bool> Step();
  // For statements without rows.
  absl::Status Run();

  std::string Text(int column) const;
  std::int64_t Int(int column) const;

 private:
  sqlite3* connection_;
  sqlite3_stmt* statement_;
  std::string path_;
  int bound_ = 0;
};

// Thread-compatible.
class Database {
 public:
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path,
                                                        absl::Duration busy_timeout);
  ~Database();

  absl::Status Execute(const char* sql);
  // `sql` is a constant: its address is remembered.
  absl::StatusOr<Query> Prepare(const char* sql);
  absl::StatusOr<std::int64_t> Number(const char* sql);

 private:
  Database(sqlite3* connection, std::string path)
      : connection_(connection), path_(std::move(path)) {}

  sqlite3* connection_;
  std::string path_;
  std::map<const char*, sqlite3_stmt*> statements_;
};

}  // namespace starling::kube
