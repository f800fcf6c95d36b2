// SPDX-License-Identifier: Apache-2.0
#include "common/sqlite/sql_database.h"

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/log/log.h"
#include "common/sqlite/sqlite.h"
#include "common/status/macros.h"
#include "common/sync/mutex.h"

namespace starling::sqlite {
namespace {

// Pages that one Compact() gives back: some megabytes, so that it does not hold others up.
constexpr const char* kGiveBack = "PRAGMA incremental_vacuum(2000)";

sql::Value ValueOf(const Query& query, int column) {
  switch (query.TypeOf(column)) {
    case Query::Type::kNull:
      return std::monostate();
    case Query::Type::kInt:
      return query.Int(column);
    case Query::Type::kReal:
      return query.Real(column);
    case Query::Type::kText:
      return query.Text(column);
  }
  return std::monostate();
}

void Bind(Query& query, const sql::Value& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) {
    query.Bind(*number);
  } else if (const auto* real = std::get_if<double>(&value)) {
    query.Bind(*real);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    query.Bind(*text);
  } else {
    query.BindNull();
  }
}

class SqliteTransaction final : public sql::Transaction {
 public:
  explicit SqliteTransaction(Database& database) : database_(database) {}

  absl::StatusOr<sql::Rows> Run(const char* sql, const std::vector<sql::Value>& values) override {
    ASSIGN_OR_RETURN(Query query, database_.Prepare(sql));
    for (const sql::Value& value : values) Bind(query, value);
    sql::Rows rows;
    while (true) {
      ASSIGN_OR_RETURN(const bool found, query.Step());
      if (!found) return rows;
      std::vector<sql::Value> row;
      for (int i = 0; i < query.columns(); ++i) row.push_back(ValueOf(query, i));
      rows.emplace_back(std::move(row));
    }
  }

 private:
  Database& database_;
};

class SqlDatabase final : public sql::Database {
 public:
  explicit SqlDatabase(SqlOptions options)
      : options_(std::move(options)), name_(absl::StrCat(options_.what, " ", options_.path)) {}

  absl::Status Transact(sql::Access access, const Work& work) override {
    sync::MutexLock lock(mutex_);
    absl::Status status = Open();
    if (status.ok()) {
      status = Run(access == sql::Access::kRead ? "BEGIN" : "BEGIN IMMEDIATE", work);
    }
    return Judged(status);
  }

  std::int64_t incarnation() const override { return incarnation_; }
  const std::string& name() const override { return name_; }

  absl::StatusOr<std::int64_t> Bytes() override {
    sync::MutexLock lock(mutex_);
    RETURN_IF_ERROR(Judged(Open()));
    ASSIGN_OR_RETURN(const std::int64_t pages, database_->Number("PRAGMA page_count"));
    ASSIGN_OR_RETURN(const std::int64_t free, database_->Number("PRAGMA freelist_count"));
    ASSIGN_OR_RETURN(const std::int64_t size, database_->Number("PRAGMA page_size"));
    return (pages - free) * size;
  }

  absl::Status Compact() override {
    sync::MutexLock lock(mutex_);
    RETURN_IF_ERROR(Judged(Open()));
    return Judged(database_->Execute(kGiveBack));
  }

 private:
  absl::Status Open() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (database_ != nullptr) return absl::OkStatus();
    if (!options_.read_only) {
      RETURN_IF_ERROR(CreatePrivately(options_.path, options_.what));
    } else if (std::error_code error; !std::filesystem::exists(options_.path, error)) {
      return absl::NotFoundError(absl::StrCat("there is no ", name_));
    }
    ASSIGN_OR_RETURN(std::unique_ptr<sqlite::Database> database,
                     sqlite::Database::Open(options_.path, {.what = options_.what,
                                                            .busy_timeout = options_.busy_timeout,
                                                            .read_only = options_.read_only}));
    RETURN_IF_ERROR(Claim(*database));
    database_ = std::move(database);
    ++incarnation_;
    return absl::OkStatus();
  }

  // Whether the file is ours; a new one becomes ours. Another process may be claiming the same new
  // file: what it has written is looked at in one transaction, for between two its mark and its
  // tables may appear, and a file with tables but without the mark is not ours.
  absl::Status Claim(sqlite::Database& database) const {
    std::int64_t id = 0;
    std::int64_t tables = 0;
    const auto look = [&]() -> absl::Status {
      ASSIGN_OR_RETURN(id, database.Number("PRAGMA application_id"));
      ASSIGN_OR_RETURN(tables, database.Number("SELECT count(*) FROM sqlite_master"));
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(Within(database, "BEGIN", look));
    const bool fresh = id == 0 && tables == 0;
    if (!fresh && id != options_.application_id) {
      return absl::FailedPreconditionError(
          absl::StrCat(name_, ": is some other program's database; move it away"));
    }
    if (options_.read_only) return absl::OkStatus();
    // Before anything is in the file, or it cannot be had later.
    if (fresh) RETURN_IF_ERROR(database.Execute("PRAGMA auto_vacuum = INCREMENTAL"));
    RETURN_IF_ERROR(database.UseWriteAheadLog());
    if (!fresh) return absl::OkStatus();
    const std::string mark = absl::StrCat("PRAGMA application_id = ", options_.application_id);
    return database.Execute(mark.c_str());
  }

  absl::Status Run(const char* begin, const Work& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    SqliteTransaction transaction(*database_);
    return Within(*database_, begin, [&] { return work(transaction); });
  }

  // Does `work` in a transaction that `begin` begins; what fails leaves nothing.
  static absl::Status Within(sqlite::Database& database, const char* begin,
                             absl::FunctionRef<absl::Status()> work) {
    RETURN_IF_ERROR(database.Execute(begin));
    absl::Status status = work();
    if (status.ok()) status = database.Execute("COMMIT");
    if (!status.ok()) database.Execute("ROLLBACK").IgnoreError();
    return status;
  }

  // After DataLoss the file is moved aside, so that the next transaction begins another.
  absl::Status Judged(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!absl::IsDataLoss(status) || options_.read_only) return status;
    database_.reset();
    const std::string aside =
        absl::StrCat(options_.path, ".damaged-",
                     absl::FormatTime("%Y%m%dT%H%M%S", absl::Now(), absl::UTCTimeZone()));
    for (const char* suffix : {"", "-wal", "-shm"}) {
      std::rename((options_.path + suffix).c_str(), (aside + suffix).c_str());
    }
    log::Error("a damaged database was moved aside, and another is begun",
               {{"what", options_.what}, {"moved_to", aside}, {"error", status.ToString()}});
    return absl::DataLossError(
        absl::StrCat(name_, ": was damaged; it was moved to ", aside, ", and another is begun"));
  }

  const SqlOptions options_;
  const std::string name_;
  std::atomic<std::int64_t> incarnation_ = 0;
  sync::Mutex mutex_;
  std::unique_ptr<sqlite::Database> database_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<sql::Database> OpenSql(SqlOptions options) {
  return std::make_unique<SqlDatabase>(std::move(options));
}

}  // namespace starling::sqlite
