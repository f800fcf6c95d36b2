// SPDX-License-Identifier: Apache-2.0
// Transactions on a database, whichever it is: what SQLite (common/sqlite) and PostgreSQL
// (common/postgres) both understand.
//
// Statements are written once, in the SQL that both have: parameters are $1, $2, ..., and their
// first places in a statement are in that order. To add a database: implement Database and run the
// suites of those who use it (tests/contract) against it.
//
// Errors of all methods:
//   Unavailable         not reachable, busy, or the connection was lost: later it may work
//   Aborted             others wrote at the same time, in spite of several tries
//   ResourceExhausted   no space left
//   PermissionDenied    this user may not
//   FailedPrecondition  there is no such database, or it belongs to another program
//   DataLoss            the database is damaged
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace starling::sql {

// monostate is NULL. Text must be UTF-8 without NUL bytes: PostgreSQL takes no other.
using Value = std::variant<std::monostate, std::int64_t, double, std::string>;

// Readers are total: a value of another type reads as empty, or zero.
class Row {
 public:
  explicit Row(std::vector<Value> values) : values_(std::move(values)) {}

  bool IsNull(std::size_t column) const {
    return std::holds_alternative<std::monostate>(values_.at(column));
  }
  std::int64_t Int(std::size_t column) const;
  double Real(std::size_t column) const;
  const std::string& Text(std::size_t column) const;

 private:
  std::vector<Value> values_;
};
using Rows = std::vector<Row>;

// Confined to the work that it was given to.
class Transaction {
 public:
  virtual ~Transaction() = default;

  // `sql` is a constant: its address may be remembered. One statement.
  virtual absl::StatusOr<Rows> Run(const char* sql, const std::vector<Value>& values) = 0;
  absl::StatusOr<Rows> Run(const char* sql) { return Run(sql, {}); }
};

enum class Access { kRead, kWrite };

// Thread-safe. Opens, and opens anew, when it is asked: a database that is away for a while costs
// its users an error each time, and no restart.
class Database {
 public:
  using Work = std::function<absl::Status(Transaction&)>;

  virtual ~Database() = default;

  // `work` sees one state of the database, and of its writes all or none are kept. It may be run
  // several times, so it must begin anew each time. An error of it is returned as it is. After
  // Unavailable a write may have been kept: only work that may be repeated belongs here.
  virtual absl::Status Transact(Access access, const Work& work) = 0;

  // Grows whenever what was known of the database may be wrong: it was opened, or is another.
  virtual std::int64_t incarnation() const = 0;

  // What it occupies.
  virtual absl::StatusOr<std::int64_t> Bytes() = 0;
  // Gives back the space of what was deleted, where that is not done anyway.
  virtual absl::Status Compact() = 0;

  // For errors and logs; without any password.
  virtual const std::string& name() const = 0;
};

}  // namespace starling::sql
