// SPDX-License-Identifier: Apache-2.0
#include "controller/history/sql_history.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/sqlite/sql_database.h"
#include "common/status/macros.h"
#include "controller/history/sql_points.h"
#include "controller/history/sql_schema.h"
#include "controller/kube/objects.h"

namespace starling::history {
namespace {

using kube::Json;

constexpr std::int64_t kHistoryApplicationId = 1398035016;  // "STRH"
constexpr std::int64_t kPageRows = 256;
constexpr int kOpenings = 3;

constexpr const char* kSelectPage =
    "SELECT uid, ns, ns_uid, created, gone, summary, parts FROM history_jobs "
    "WHERE ($1 = '' OR ns = $1) AND ($2 = '' OR created < $2 OR (created = $2 AND uid > $3)) "
    "AND ($4 = 1 OR gone IS NOT NULL) ORDER BY created DESC, uid LIMIT $5";
constexpr const char* kSelectPageOfLabel =
    "SELECT uid, ns, ns_uid, created, gone, summary, parts FROM history_jobs "
    "WHERE ($1 = '' OR ns = $1) AND ($2 = '' OR created < $2 OR (created = $2 AND uid > $3)) "
    "AND ($4 = 1 OR gone IS NOT NULL) "
    "AND uid IN (SELECT uid FROM history_labels WHERE key = $5 AND value = $6) "
    "ORDER BY created DESC, uid LIMIT $7";

Json Parsed(const std::string& text) {
  Json value = Json::parse(text, nullptr, false);
  return value.is_discarded() ? Json() : value;
}

std::vector<Json> ParsedList(const std::string& text) {
  const Json list = Parsed(text);
  return list.is_array() ? list.get<std::vector<Json>>() : std::vector<Json>();
}

std::optional<absl::Time> TimeAt(const sql::Row& row, std::size_t column) {
  if (row.IsNull(column)) return std::nullopt;
  return absl::FromUnixMillis(row.Int(column));
}

absl::StatusOr<sql::Rows> SelectPage(sql::Transaction& transaction, const ListQuery& query,
                                     const std::pair<std::string, std::string>& after) {
  std::vector<sql::Value> values = {query.ns, after.first, after.second,
                                    static_cast<std::int64_t>(query.present_too)};
  const bool of_label = !query.label.first.empty();
  if (of_label) {
    values.emplace_back(query.label.first);
    values.emplace_back(query.label.second);
  }
  values.emplace_back(kPageRows);
  return transaction.Run(of_label ? kSelectPageOfLabel : kSelectPage, values);
}

bool IsWanted(const ListQuery& query, const sql::Row& row) {
  if (query.visible != nullptr && !query.visible(row.Text(1), row.Text(2))) return false;
  return query.matches == nullptr || query.matches(Parsed(row.Text(6)));
}

}  // namespace

Json ObjectToShow(const PastJob& job) {
  Json object = job.object;
  if (job.gone && object.is_object()) {
    object["metadata"]["annotations"][kDeletedAt] = kube::FormatTimestamp(*job.gone);
  }
  return object;
}

absl::Status SqlHistory::Prepare() {
  // Opening is what makes an incarnation, and the first thing that any transaction does.
  std::int64_t incarnation = 0;
  const sql::Access access = mode_ == Mode::kReadOnly ? sql::Access::kRead : sql::Access::kWrite;
  RETURN_IF_ERROR(database_->Transact(access, [&](sql::Transaction& transaction) -> absl::Status {
    incarnation = database_->incarnation();
    return mode_ == Mode::kReadOnly ? CheckSchema(transaction, name())
                                    : Migrate(transaction, name());
  }));
  prepared_ = incarnation;
  return absl::OkStatus();
}

absl::Status SqlHistory::Transact(sql::Access access, const sql::Database::Work& work) {
  for (int attempt = 0; attempt < kOpenings; ++attempt) {
    if (prepared_ == 0 || prepared_ != database_->incarnation()) RETURN_IF_ERROR(Prepare());
    // Opened anew by this very transaction it may be another database.
    bool another = false;
    const absl::Status status =
        database_->Transact(access, [&](sql::Transaction& transaction) -> absl::Status {
          another = prepared_ != database_->incarnation();
          return another ? absl::OkStatus() : work(transaction);
        });
    if (!another) return status;
  }
  return absl::UnavailableError(absl::StrCat(name(), ": the connection is lost again and again"));
}

absl::StatusOr<PastJob> SqlHistory::Find(const JobName& job) {
  std::optional<PastJob> found;
  RETURN_IF_ERROR(Transact(sql::Access::kRead, [&](sql::Transaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(
        const sql::Rows rows,
        transaction.Run(
            "SELECT ns_uid, object, incidents, events, gone FROM history_jobs WHERE ns = $1 "
            "AND ns_uid = $2 AND name = $3 AND ($4 = '' OR uid = $4) "
            "ORDER BY created DESC, version DESC LIMIT 1",
            {job.ns, job.ns_uid, job.name, job.uid}));
    if (rows.empty()) return absl::OkStatus();
    const sql::Row& row = rows[0];
    found = {.ns_uid = row.Text(0),
             .object = Parsed(row.Text(1)),
             .incidents = ParsedList(row.Text(2)),
             .events = ParsedList(row.Text(3)),
             .gone = TimeAt(row, 4)};
    return absl::OkStatus();
  }));
  if (found) return *std::move(found);
  return absl::NotFoundError(absl::StrCat("job \"", job.name, "\" is not in the history"));
}

absl::StatusOr<std::vector<ListedJob>> SqlHistory::List(const ListQuery& query) {
  std::vector<ListedJob> jobs;
  RETURN_IF_ERROR(Transact(sql::Access::kRead, [&](sql::Transaction& transaction) -> absl::Status {
    jobs.clear();
    auto after = query.after.value_or(std::pair<std::string, std::string>());
    while (true) {
      ASSIGN_OR_RETURN(const sql::Rows rows, SelectPage(transaction, query, after));
      for (const sql::Row& row : rows) {
        if (jobs.size() >= query.limit) return absl::OkStatus();
        after = {row.Text(3), row.Text(0)};
        if (!IsWanted(query, row)) continue;
        jobs.push_back({row.Text(0), row.Text(3), Parsed(row.Text(5)), TimeAt(row, 4)});
      }
      if (rows.size() < static_cast<std::size_t>(kPageRows)) return absl::OkStatus();
    }
  }));
  return jobs;
}

absl::StatusOr<std::map<std::string, Points>> SqlHistory::Curves(const std::string& uid,
                                                                 const std::string& metric) {
  std::map<std::string, Points> curves;
  RETURN_IF_ERROR(Transact(sql::Access::kRead, [&](sql::Transaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(curves, ReadPoints(transaction, uid, metric));
    return absl::OkStatus();
  }));
  return curves;
}

absl::StatusOr<std::vector<LogTail>> SqlHistory::Logs(const std::string& uid) {
  std::vector<LogTail> logs;
  RETURN_IF_ERROR(Transact(sql::Access::kRead, [&](sql::Transaction& transaction) -> absl::Status {
    logs.clear();
    ASSIGN_OR_RETURN(const sql::Rows rows,
                     transaction.Run("SELECT pod, replaced, body FROM history_logs "
                                     "WHERE uid = $1 ORDER BY place",
                                     {uid}));
    for (const sql::Row& row : rows) logs.push_back({row.Text(0), row.Int(1) != 0, row.Text(2)});
    return absl::OkStatus();
  }));
  return logs;
}

absl::StatusOr<std::vector<PresentJob>> SqlHistory::Present() {
  std::vector<PresentJob> jobs;
  RETURN_IF_ERROR(Transact(sql::Access::kRead, [&](sql::Transaction& transaction) -> absl::Status {
    jobs.clear();
    ASSIGN_OR_RETURN(const sql::Rows rows,
                     transaction.Run("SELECT uid, ns, name, logs_taken FROM history_jobs "
                                     "WHERE gone IS NULL ORDER BY uid"));
    for (const sql::Row& row : rows) {
      jobs.push_back({row.Text(0), row.Text(1), row.Text(2), row.Int(3) != 0});
    }
    return absl::OkStatus();
  }));
  return jobs;
}

absl::StatusOr<std::string> SqlHistory::FindUid(const std::string& ns, const std::string& name,
                                                const std::string& beginning) {
  std::string uid;
  RETURN_IF_ERROR(Transact(sql::Access::kRead, [&](sql::Transaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(
        const sql::Rows rows,
        transaction.Run("SELECT uid FROM history_jobs WHERE ns = $1 AND name = $2", {ns, name}));
    for (const sql::Row& row : rows) {
      if (row.Text(0).starts_with(beginning)) uid = row.Text(0);
    }
    return absl::OkStatus();
  }));
  return uid;
}

absl::StatusOr<std::int64_t> SqlHistory::NewestVersion() {
  std::int64_t version = 0;
  RETURN_IF_ERROR(Transact(sql::Access::kRead, [&](sql::Transaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(const sql::Rows rows,
                     transaction.Run("SELECT coalesce(max(version), 0) FROM history_jobs"));
    version = rows.at(0).Int(0);
    return absl::OkStatus();
  }));
  return version;
}

std::unique_ptr<History> OpenSqliteHistory(const std::string& path, SqlHistory::Mode mode) {
  return std::make_unique<SqlHistory>(
      sqlite::OpenSql({.path = path,
                       .what = "history",
                       .read_only = mode == SqlHistory::Mode::kReadOnly,
                       .application_id = kHistoryApplicationId}),
      mode);
}

}  // namespace starling::history
