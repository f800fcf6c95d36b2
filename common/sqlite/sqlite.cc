// SPDX-License-Identifier: Apache-2.0
#include "common/sqlite/sqlite.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/macros.h"

namespace starling::sqlite {
namespace {

// What went wrong, on which file, and what to do about it.
absl::Status ToStatus(sqlite3* connection, int code, const std::string& name) {
  const std::string what =
      absl::StrCat(name, ": ", connection ? sqlite3_errmsg(connection) : "out of memory");
  switch (code & 0xff) {
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(absl::StrCat(what, "; make room on the disk"));
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return absl::PermissionDeniedError(
          absl::StrCat(what, "; make the file and its folder writable"));
    case SQLITE_CANTOPEN:
      return absl::PermissionDeniedError(
          absl::StrCat(what, "; its folder must exist and be writable"));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(absl::StrCat(
          what,
          "; move the file (and those beside it that end in -wal and -shm) away to start anew"));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(absl::StrCat(what, "; another process is writing to it"));
    case SQLITE_IOERR:
      return absl::UnavailableError(absl::StrCat(what, "; look at the disk and at its free space"));
    case SQLITE_TOOBIG:
      return absl::InvalidArgumentError(what);
    default:
      return absl::InternalError(absl::StrCat(what, " (SQLite error ", code, ")"));
  }
}

}  // namespace

Query::Query(sqlite3* connection, sqlite3_stmt* statement, std::string name)
    : connection_(connection), statement_(statement), name_(std::move(name)) {}

Query::Query(Query&& other) noexcept
    : connection_(other.connection_),
      statement_(std::exchange(other.statement_, nullptr)),
      name_(std::move(other.name_)),
      bound_(other.bound_) {}

Query::~Query() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

Query& Query::Bind(std::string_view text) {
  sqlite3_bind_text64(statement_, ++bound_, text.data(), text.size(), SQLITE_TRANSIENT,
                      SQLITE_UTF8);
  return *this;
}

Query& Query::Bind(std::int64_t number) {
  sqlite3_bind_int64(statement_, ++bound_, number);
  return *this;
}

Query& Query::Bind(double number) {
  sqlite3_bind_double(statement_, ++bound_, number);
  return *this;
}

Query& Query::BindNull() {
  sqlite3_bind_null(statement_, ++bound_);
  return *this;
}

absl::StatusOr<bool> Query::Step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return ToStatus(connection_, code, name_);
}

absl::Status Query::Run() { return Step().status(); }

int Query::columns() const { return sqlite3_column_count(statement_); }

Query::Type Query::TypeOf(int column) const {
  switch (sqlite3_column_type(statement_, column)) {
    case SQLITE_INTEGER:
      return Type::kInt;
    case SQLITE_FLOAT:
      return Type::kReal;
    case SQLITE_NULL:
      return Type::kNull;
    default:
      return Type::kText;
  }
}

std::string Query::Text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  if (text == nullptr) return "";
  return {text, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}

std::int64_t Query::Int(int column) const { return sqlite3_column_int64(statement_, column); }

double Query::Real(int column) const { return sqlite3_column_double(statement_, column); }

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path,
                                                         const OpenOptions& options) {
  const int access =
      options.read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  const std::string name = absl::StrCat(options.what, " ", path);
  sqlite3* connection = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &connection, access | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<Database> database(new Database(connection, name, options.busy_timeout));
  if (code != SQLITE_OK) return ToStatus(connection, code, name);
  sqlite3_busy_timeout(connection,
                       static_cast<int>(absl::ToInt64Milliseconds(options.busy_timeout)));
  return database;
}

// SQLite does not apply the busy timeout to the switch to write-ahead logging, so we retry.
absl::Status Database::UseWriteAheadLog() {
  const absl::Time deadline = absl::Now() + busy_timeout_;
  while (true) {
    const absl::Status status = Execute("PRAGMA journal_mode = WAL");
    if (!absl::IsUnavailable(status) || absl::Now() > deadline) return status;
    absl::SleepFor(absl::Milliseconds(2));
  }
}

Database::~Database() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(connection_);
}

absl::Status Database::Execute(const char* sql) {
  const int code = sqlite3_exec(connection_, sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : ToStatus(connection_, code, name_);
}

absl::StatusOr<Query> Database::Prepare(const char* sql) {
  sqlite3_stmt*& statement = statements_[sql];
  if (statement == nullptr) {
    const int code =
        sqlite3_prepare_v3(connection_, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    if (code != SQLITE_OK) {
      statements_.erase(sql);
      return ToStatus(connection_, code, name_);
    }
  }
  return Query(connection_, statement, name_);
}

absl::StatusOr<std::int64_t> Database::Number(const char* sql) {
  ASSIGN_OR_RETURN(Query query, Prepare(sql));
  ASSIGN_OR_RETURN(const bool found, query.Step());
  return found ? query.Int(0) : 0;
}

absl::Status CreatePrivately(const std::string& path, const std::string& what) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) {
    return absl::PermissionDeniedError(absl::StrCat(what, " ", path, ": ", std::strerror(errno),
                                                    "; its folder must exist and be writable"));
  }
  struct stat status {};
  const int known = ::fstat(file, &status);
  ::close(file);
  if (known == 0 && status.st_uid != ::geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat(what, " ", path, ": belongs to user ",
                                                    status.st_uid, ", not to user ", ::geteuid(),
                                                    "; choose another folder with STARLING_HOME"));
  }
  return absl::OkStatus();
}

}  // namespace starling::sqlite
