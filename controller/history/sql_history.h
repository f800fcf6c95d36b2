// SPDX-License-Identifier: Apache-2.0
// A History in a SQL database: a row a job, its labels, the pieces of its curves, its logs.
//
// Lists read columns and summaries, whole objects are read for one job alone. To change the tables:
// another migration at the end of the table in sql_schema.cc; those that are there never change.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/sql/sql.h"
#include "controller/history/history.h"

namespace starling::history {

class SqlHistory final : public History {
 public:
  enum class Mode { kReadWrite, kReadOnly };

  // `database` is opened, and its tables are made, when it is first asked for something.
  explicit SqlHistory(std::unique_ptr<sql::Database> database, Mode mode = Mode::kReadWrite)
      : database_(std::move(database)), mode_(mode) {}

  absl::StatusOr<std::vector<std::string>> Record(const std::vector<JobUpdate>& updates) override;
  absl::StatusOr<PastJob> Find(const JobName& job) override;
  absl::StatusOr<std::vector<ListedJob>> List(const ListQuery& query) override;
  absl::StatusOr<std::map<std::string, Points>> Curves(const std::string& uid,
                                                       const std::string& metric) override;
  absl::StatusOr<std::vector<LogTail>> Logs(const std::string& uid) override;
  absl::StatusOr<std::vector<PresentJob>> Present() override;
  absl::StatusOr<std::string> FindUid(const std::string& ns, const std::string& name,
                                      const std::string& beginning) override;
  absl::StatusOr<std::int64_t> NewestVersion() override;
  absl::StatusOr<Space> Trim(const Retention& retention, absl::Time now) override;
  std::int64_t incarnation() const override { return database_->incarnation(); }
  const std::string& name() const override { return database_->name(); }

 private:
  // Makes or checks the tables where that has not been done since the database was opened.
  absl::Status Prepare();
  absl::Status Transact(sql::Access access, const sql::Database::Work& work);
  absl::Status TrimSome(const Retention& retention, absl::Time now, Space& left, bool& more);

  const std::unique_ptr<sql::Database> database_;
  const Mode mode_;
  std::atomic<std::int64_t> prepared_ = 0;  // the incarnation whose tables are as they should be
};

// A History in a file of this machine. Several processes may use it.
std::unique_ptr<History> OpenSqliteHistory(const std::string& path,
                                           SqlHistory::Mode mode = SqlHistory::Mode::kReadWrite);

}  // namespace starling::history
