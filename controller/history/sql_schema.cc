// SPDX-License-Identifier: Apache-2.0
#include "controller/history/sql_schema.h"

#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"

namespace starling::history {
namespace {

using Migration = std::vector<const char*>;

// Times are milliseconds since 1970, in UTC. Sizes count bytes of text.
const std::vector<Migration>& Migrations() {
  static const auto& migrations = *new std::vector<Migration>{
      {
          R"(CREATE TABLE history_jobs(
             uid TEXT PRIMARY KEY, ns TEXT NOT NULL, ns_uid TEXT NOT NULL, name TEXT NOT NULL,
             version BIGINT NOT NULL, created TEXT NOT NULL, state TEXT NOT NULL,
             gone BIGINT, logs_taken BIGINT NOT NULL, summary TEXT NOT NULL, parts TEXT NOT NULL,
             object JSONB NOT NULL, incidents TEXT NOT NULL, events TEXT NOT NULL,
             own_bytes BIGINT NOT NULL, bytes BIGINT NOT NULL))",
          "CREATE INDEX history_jobs_newest ON history_jobs(created, uid)",
          "CREATE INDEX history_jobs_name ON history_jobs(ns, name, created)",
          "CREATE INDEX history_jobs_gone ON history_jobs(gone, uid, bytes)",
          "CREATE INDEX history_jobs_version ON history_jobs(version)",
          R"(CREATE TABLE history_labels(uid TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
             PRIMARY KEY(uid, key)))",
          "CREATE INDEX history_labels_value ON history_labels(key, value, uid)",
          R"(CREATE TABLE history_points(uid TEXT NOT NULL, metric TEXT NOT NULL,
             piece BIGINT NOT NULL, body TEXT NOT NULL, PRIMARY KEY(uid, metric, piece)))",
          R"(CREATE TABLE history_logs(uid TEXT NOT NULL, place BIGINT NOT NULL, pod TEXT NOT NULL,
             replaced BIGINT NOT NULL, body TEXT NOT NULL, PRIMARY KEY(uid, place)))",
      },
  };
  return migrations;
}

absl::Status TooNew(const std::string& name, std::int64_t version) {
  return absl::FailedPreconditionError(absl::StrCat(
      name, ": a newer Starling wrote it (schema ", version, ", this one knows ",
      Migrations().size(), "); use that one, or give this one another place with --history-url"));
}

}  // namespace

absl::Status Migrate(sql::Transaction& transaction, const std::string& name) {
  RETURN_IF_ERROR(
      transaction.Run("CREATE TABLE IF NOT EXISTS history_schema(version BIGINT NOT NULL)")
          .status());
  RETURN_IF_ERROR(transaction
                      .Run("INSERT INTO history_schema(version) SELECT 0 "
                           "WHERE NOT EXISTS (SELECT 1 FROM history_schema)")
                      .status());
  // A write, so that of several who come at once the others wait here.
  ASSIGN_OR_RETURN(
      const sql::Rows rows,
      transaction.Run("UPDATE history_schema SET version = version RETURNING version"));
  const std::int64_t version = rows.at(0).Int(0);
  const auto known = static_cast<std::int64_t>(Migrations().size());
  if (version > known) return TooNew(name, version);
  for (std::int64_t i = version; i < known; ++i) {
    for (const char* statement : Migrations()[static_cast<std::size_t>(i)]) {
      RETURN_IF_ERROR(transaction.Run(statement).status());
    }
  }
  if (version == known) return absl::OkStatus();
  return transaction.Run("UPDATE history_schema SET version = $1", {known}).status();
}

absl::Status CheckSchema(sql::Transaction& transaction, const std::string& name) {
  const absl::StatusOr<sql::Rows> rows = transaction.Run("SELECT version FROM history_schema");
  if (!rows.ok() || rows->empty()) {
    return absl::NotFoundError(absl::StrCat(name, ": nothing has been recorded yet"));
  }
  const std::int64_t version = rows->at(0).Int(0);
  const auto known = static_cast<std::int64_t>(Migrations().size());
  if (version > known) return TooNew(name, version);
  if (version == known) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(name,
                   ": an older Starling wrote it; the controller brings it up to date: "
                   "starling up"));
}

}  // namespace starling::history
