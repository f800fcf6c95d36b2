// SPDX-License-Identifier: Apache-2.0
// What is told of jobs becomes rows, and goes again.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/json/json.h"
#include "common/status/macros.h"
#include "controller/history/sql_history.h"
#include "controller/history/sql_points.h"
#include "controller/kube/objects.h"
#include "controller/kube/selector.h"

namespace starling::history {
namespace {

using kube::Json;

// Jobs that one transaction of Trim() looks at.
constexpr std::int64_t kTrimmedAtOnce = 500;

std::vector<Json> ListIn(const std::string& text) {
  const Json list = Json::parse(text, nullptr, false);
  return list.is_array() ? list.get<std::vector<Json>>() : std::vector<Json>();
}

std::int64_t SizeOf(const std::string& text) { return static_cast<std::int64_t>(text.size()); }

// What there was of a job before its newest version came.
struct Before {
  std::string parts;
  std::vector<Json> incidents;
  std::int64_t grown = 0;  // minus what the record took
};

// Takes the job for this version: of several who record it one goes on, and holds the row. Nothing:
// this version, or a newer one, is there.
absl::StatusOr<std::optional<Before>> Claim(sql::Transaction& transaction, const Record& record) {
  ASSIGN_OR_RETURN(
      const sql::Rows rows,
      transaction.Run(
          "INSERT INTO history_jobs(uid, ns, ns_uid, name, version, created, state, gone, "
          "logs_taken, summary, parts, object, incidents, events, own_bytes, bytes) "
          "VALUES($1, $2, $3, $4, $5, $6, '', NULL, 0, '{}', '', '{}', '[]', '[]', 0, 0) "
          "ON CONFLICT(uid) DO UPDATE SET version = excluded.version, gone = NULL "
          "WHERE history_jobs.version < excluded.version "
          "RETURNING parts, incidents, own_bytes",
          {record.uid, record.ns, record.ns_uid, record.name, record.version, record.created}));
  if (rows.empty()) return std::optional<Before>();
  return std::optional<Before>({rows[0].Text(0), ListIn(rows[0].Text(1)), -rows[0].Int(2)});
}

absl::Status WriteLabels(sql::Transaction& transaction, const Record& record) {
  RETURN_IF_ERROR(
      transaction.Run("DELETE FROM history_labels WHERE uid = $1", {record.uid}).status());
  for (const auto& [key, value] : kube::At(record.object, "/metadata/labels").items()) {
    if (!value.is_string()) continue;
    RETURN_IF_ERROR(transaction
                        .Run("INSERT INTO history_labels(uid, key, value) VALUES($1, $2, $3)",
                             {record.uid, key, value.get<std::string>()})
                        .status());
  }
  return absl::OkStatus();
}

absl::Status WriteRecord(sql::Transaction& transaction, const JobUpdate& update,
                         const Before& before) {
  const Record& record = update.record;
  const std::string parts = json::Dump(kube::Selector::SelectableParts(record.object));
  const std::string object = json::Dump(record.object);
  const std::string summary = json::Dump(record.summary);
  const std::string incidents =
      json::Dump(MergeIncidents(before.incidents, kube::At(record.object, "/status/incidents")));
  if (parts != before.parts) RETURN_IF_ERROR(WriteLabels(transaction, record));
  ASSIGN_OR_RETURN(const std::int64_t points, AppendPoints(transaction, record.uid, update.points));
  const std::int64_t own = SizeOf(parts) + SizeOf(object) + SizeOf(summary) + SizeOf(incidents);
  return transaction
      .Run(
          "UPDATE history_jobs SET state = $1, summary = $2, parts = $3, object = $4, "
          "incidents = $5, own_bytes = $6, bytes = bytes + $7 WHERE uid = $8",
          {record.state, summary, parts, object, incidents, own, before.grown + own + points,
           record.uid})
      .status();
}

absl::Status WriteEvents(sql::Transaction& transaction, const JobUpdate& update) {
  if (update.events.empty()) return absl::OkStatus();
  const std::string& uid = update.record.uid;
  ASSIGN_OR_RETURN(const sql::Rows rows,
                   transaction.Run("SELECT events FROM history_jobs WHERE uid = $1", {uid}));
  if (rows.empty()) return absl::OkStatus();
  const std::string events = json::Dump(MergeEvents(ListIn(rows[0].Text(0)), update.events));
  if (events == rows[0].Text(0)) return absl::OkStatus();
  return transaction
      .Run("UPDATE history_jobs SET events = $1, bytes = bytes + $2 WHERE uid = $3",
           {events, SizeOf(events) - SizeOf(rows[0].Text(0)), uid})
      .status();
}

absl::Status WriteLogs(sql::Transaction& transaction, const JobUpdate& update) {
  const std::string& uid = update.record.uid;
  std::int64_t grown = 0;
  if (!update.logs.empty()) {
    ASSIGN_OR_RETURN(
        const sql::Rows removed,
        transaction.Run("DELETE FROM history_logs WHERE uid = $1 RETURNING body", {uid}));
    for (const sql::Row& row : removed) grown -= SizeOf(row.Text(0));
  }
  std::int64_t place = 0;
  for (const LogTail& log : FitLogs(update.logs)) {
    grown += SizeOf(log.text);
    RETURN_IF_ERROR(transaction
                        .Run("INSERT INTO history_logs(uid, place, pod, replaced, body) "
                             "VALUES($1, $2, $3, $4, $5)",
                             {uid, place++, CleanText(log.pod),
                              static_cast<std::int64_t>(log.replaced), log.text})
                        .status());
  }
  if (grown == 0 && !update.logs_taken) return absl::OkStatus();
  return transaction
      .Run(
          "UPDATE history_jobs SET bytes = bytes + $1, "
          "logs_taken = CASE WHEN $2 = 1 THEN 1 ELSE logs_taken END WHERE uid = $3",
          {grown, static_cast<std::int64_t>(update.logs_taken), uid})
      .status();
}

absl::Status RecordOne(sql::Transaction& transaction, const JobUpdate& update,
                       std::vector<std::string>& news) {
  if (!update.record.object.is_null()) {
    ASSIGN_OR_RETURN(const auto before, Claim(transaction, update.record));
    if (before) RETURN_IF_ERROR(WriteRecord(transaction, update, *before));
    if (before) news.push_back(update.record.uid);
  }
  RETURN_IF_ERROR(WriteEvents(transaction, update));
  RETURN_IF_ERROR(WriteLogs(transaction, update));
  if (!update.gone) return absl::OkStatus();
  // Who notices first says when.
  return transaction
      .Run("UPDATE history_jobs SET gone = $1 WHERE uid = $2 AND gone IS NULL",
           {absl::ToUnixMillis(*update.gone), update.record.uid})
      .status();
}

absl::Status Forget(sql::Transaction& transaction, const std::string& uid) {
  for (const char* statement :
       {"DELETE FROM history_labels WHERE uid = $1", "DELETE FROM history_points WHERE uid = $1",
        "DELETE FROM history_logs WHERE uid = $1", "DELETE FROM history_jobs WHERE uid = $1"}) {
    RETURN_IF_ERROR(transaction.Run(statement, {uid}).status());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> SqlHistory::Record(const std::vector<JobUpdate>& updates) {
  std::vector<std::string> news;
  if (updates.empty()) return news;
  // In one order, so that several who record the same jobs do not wait for one another in a ring.
  std::vector<const JobUpdate*> ordered;
  for (const JobUpdate& update : updates) ordered.push_back(&update);
  std::stable_sort(ordered.begin(), ordered.end(), [](const JobUpdate* a, const JobUpdate* b) {
    return a->record.uid < b->record.uid;
  });
  const auto record = [&](sql::Transaction& transaction) -> absl::Status {
    news.clear();
    for (const JobUpdate* update : ordered) {
      RETURN_IF_ERROR(RecordOne(transaction, *update, news));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(Transact(sql::Access::kWrite, record));
  return news;
}

absl::Status SqlHistory::TrimSome(const Retention& retention, absl::Time now, Space& left,
                                  bool& more) {
  return Transact(sql::Access::kWrite, [&](sql::Transaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(const sql::Rows totals,
                     transaction.Run("SELECT count(*), coalesce(sum(bytes), 0) FROM history_jobs"));
    left = {totals.at(0).Int(0), totals.at(0).Int(1)};
    ASSIGN_OR_RETURN(const sql::Rows rows,
                     transaction.Run("SELECT uid, gone, bytes FROM history_jobs "
                                     "WHERE gone IS NOT NULL ORDER BY gone, uid LIMIT $1",
                                     {kTrimmedAtOnce}));
    std::vector<Forgettable> oldest;
    for (const sql::Row& row : rows) {
      oldest.push_back({row.Text(0), absl::FromUnixMillis(row.Int(1)), row.Int(2)});
    }
    const std::size_t chosen = ChooseForgotten(oldest, left, retention, now);
    for (std::size_t i = 0; i < chosen; ++i) {
      RETURN_IF_ERROR(Forget(transaction, oldest[i].uid));
      left.jobs -= 1;
      left.bytes -= oldest[i].bytes;
    }
    more = chosen == static_cast<std::size_t>(kTrimmedAtOnce);
    return absl::OkStatus();
  });
}

absl::StatusOr<Space> SqlHistory::Trim(const Retention& retention, absl::Time now) {
  Space left;
  bool more = true;
  while (more) RETURN_IF_ERROR(TrimSome(retention, now, left, more));
  RETURN_IF_ERROR(database_->Compact());
  return left;
}

}  // namespace starling::history
