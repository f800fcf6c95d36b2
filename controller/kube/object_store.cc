// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/object_store.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "common/storage/file_blob_store.h"
#include "controller/kube/selector.h"

namespace starling::kube {
namespace {

constexpr std::int64_t kApplicationId = 1398035020;  // "STRL"
constexpr std::int64_t kSchemaVersion = 1;
constexpr const char* kInMemory = ":memory:";
constexpr absl::Duration kPoll = absl::Milliseconds(15);

constexpr const char* kSchema = R"(
  CREATE TABLE objects(kind TEXT NOT NULL, ns TEXT NOT NULL, name TEXT NOT NULL,
                       body TEXT NOT NULL, PRIMARY KEY(kind, ns, name)) WITHOUT ROWID;
  CREATE TABLE changes(version INTEGER PRIMARY KEY, kind TEXT NOT NULL, ns TEXT NOT NULL,
                       type INTEGER NOT NULL, body TEXT NOT NULL, before TEXT NOT NULL);
  CREATE INDEX changes_by_kind ON changes(kind, version);
  CREATE TABLE counters(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
  INSERT INTO counters VALUES('version', 1), ('compacted', 0);
  PRAGMA application_id = 1398035020;
  PRAGMA user_version = 1;
)";

Json ParseStored(const std::string& text) {
  Json value = Json::parse(text, nullptr, false);
  return value.is_discarded() ? Json() : value;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ObjectStore>> ObjectStore::Open(const std::string& path,
                                                               absl::Duration busy_timeout,
                                                               std::int64_t change_log_limit) {
  const bool shared = path != kInMemory;
  const sqlite::OpenOptions options{.busy_timeout = busy_timeout};
  // The file holds Secrets.
  if (shared) RETURN_IF_ERROR(sqlite::CreatePrivately(path, options.what));
  ASSIGN_OR_RETURN(std::unique_ptr<sqlite::Database> database,
                   sqlite::Database::Open(path, options));
  if (shared) RETURN_IF_ERROR(database->UseWriteAheadLog());
  RETURN_IF_ERROR(Prepare(*database, path));
  return std::unique_ptr<ObjectStore>(
      new ObjectStore(std::move(database), shared, change_log_limit));
}

absl::Status ObjectStore::Prepare(sqlite::Database& database, const std::string& path) {
  RETURN_IF_ERROR(database.Execute("BEGIN IMMEDIATE"));
  const auto check = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::int64_t version, database.Number("PRAGMA user_version"));
    ASSIGN_OR_RETURN(const std::int64_t id, database.Number("PRAGMA application_id"));
    ASSIGN_OR_RETURN(const std::int64_t tables,
                     database.Number("SELECT count(*) FROM sqlite_master"));
    if (id == 0 && tables == 0) {
      // SQLite syncs what is in its files, and knows nothing of who has made the folders.
      if (path != kInMemory) RETURN_IF_ERROR(storage::SyncAbove(path));
      return database.Execute(kSchema);
    }
    if (id != kApplicationId) {
      return absl::DataLossError(
          absl::StrCat("store ", path, ": is some other program's database; move it away"));
    }
    if (version > kSchemaVersion) {
      return absl::FailedPreconditionError(absl::StrCat(
          "store ", path, ": a newer Starling wrote it (format ", version, ", this one knows ",
          kSchemaVersion, "); use that one, or another folder with STARLING_HOME"));
    }
    return absl::OkStatus();
  };
  absl::Status status = check();
  if (status.ok()) status = database.Execute("COMMIT");
  if (!status.ok()) database.Execute("ROLLBACK").IgnoreError();
  return status;
}

absl::Status ObjectStore::Run(const char* begin, const Work& work) {
  RETURN_IF_ERROR(database_->Execute(begin));
  Transaction transaction(*database_, change_log_limit_);
  absl::Status status = work(transaction);
  if (status.ok()) status = database_->Execute("COMMIT");
  if (!status.ok()) database_->Execute("ROLLBACK").IgnoreError();
  return status;
}

absl::Status ObjectStore::Read(const Work& work) {
  sync::MutexLock lock(mutex_);
  return Run("BEGIN", work);
}

absl::Status ObjectStore::Use(Durability durability) {
  if (!shared_ || durability_ == durability) return absl::OkStatus();
  durability_.reset();
  RETURN_IF_ERROR(database_->Execute(durability == Durability::kNow
                                         ? "PRAGMA synchronous = FULL"
                                         : "PRAGMA synchronous = NORMAL"));
  durability_ = durability;
  return absl::OkStatus();
}

absl::Status ObjectStore::Write(const Work& work, Durability durability) {
  std::int64_t version = 0;
  const Work counted = [&](Transaction& transaction) -> absl::Status {
    RETURN_IF_ERROR(work(transaction));
    ASSIGN_OR_RETURN(version, transaction.Version());
    return absl::OkStatus();
  };
  {
    sync::MutexLock lock(mutex_);
    RETURN_IF_ERROR(Use(durability));
    RETURN_IF_ERROR(Run("BEGIN IMMEDIATE", counted));
  }
  sync::MutexLock lock(wake_mutex_);
  committed_ = std::max(committed_, version);
  wake_.NotifyAll();
  return absl::OkStatus();
}

void ObjectStore::AwaitCommit(std::int64_t version, absl::Duration timeout,
                              const std::atomic<bool>& stop) {
  if (shared_) timeout = std::min(timeout, kPoll);
  sync::MutexLock lock(wake_mutex_);
  if (committed_ <= version && !stop) wake_.WaitFor(wake_mutex_, timeout);
}

void ObjectStore::WakeAll() {
  sync::MutexLock lock(wake_mutex_);
  wake_.NotifyAll();
}

absl::StatusOr<std::optional<Json>> ObjectStore::Transaction::Find(const std::string& kind,
                                                                   const ObjectKey& key) {
  ASSIGN_OR_RETURN(
      sqlite::Query query,
      database_.Prepare("SELECT body FROM objects WHERE kind = ? AND ns = ? AND name = ?"));
  query.Bind(kind).Bind(key.ns).Bind(key.name);
  ASSIGN_OR_RETURN(const bool found, query.Step());
  if (!found) return std::optional<Json>();
  return std::optional<Json>(ParseStored(query.Text(0)));
}

absl::StatusOr<std::vector<Json>> ObjectStore::Transaction::List(
    const std::string& kind, const std::string& ns, const std::optional<ObjectKey>& after) {
  ASSIGN_OR_RETURN(sqlite::Query query,
                   database_.Prepare("SELECT body FROM objects WHERE kind = ?1 "
                                     "AND (?2 = '' OR ns = ?2) AND (ns, name) > (?3, ?4) "
                                     "ORDER BY ns, name"));
  query.Bind(kind).Bind(ns).Bind(after ? after->ns : "").Bind(after ? after->name : "");
  std::vector<Json> objects;
  while (true) {
    ASSIGN_OR_RETURN(const bool found, query.Step());
    if (!found) return objects;
    objects.push_back(ParseStored(query.Text(0)));
  }
}

absl::StatusOr<std::int64_t> ObjectStore::Transaction::Version() {
  return database_.Number("SELECT value FROM counters WHERE name = 'version'");
}

absl::StatusOr<std::int64_t> ObjectStore::Transaction::Compacted() {
  return database_.Number("SELECT value FROM counters WHERE name = 'compacted'");
}

absl::StatusOr<bool> ObjectStore::Transaction::ChangedSince(const std::string& kind,
                                                            std::int64_t version) {
  ASSIGN_OR_RETURN(const std::int64_t compacted, Compacted());
  if (version < compacted) return true;
  ASSIGN_OR_RETURN(
      sqlite::Query query,
      database_.Prepare("SELECT 1 FROM changes WHERE kind = ? AND version > ? LIMIT 1"));
  query.Bind(kind).Bind(version);
  return query.Step();
}

absl::StatusOr<std::vector<Change>> ObjectStore::Transaction::ChangesAfter(const std::string& kind,
                                                                           const std::string& ns,
                                                                           std::int64_t version,
                                                                           std::int64_t limit) {
  ASSIGN_OR_RETURN(sqlite::Query query,
                   database_.Prepare("SELECT version, type, body, before FROM changes "
                                     "WHERE kind = ?1 AND (?2 = '' OR ns = ?2) AND version > ?3 "
                                     "ORDER BY version LIMIT ?4"));
  query.Bind(kind).Bind(ns).Bind(version).Bind(limit);
  std::vector<Change> changes;
  while (true) {
    ASSIGN_OR_RETURN(const bool found, query.Step());
    if (!found) return changes;
    changes.push_back({query.Int(0), static_cast<WatchEventType>(query.Int(1)),
                       std::make_shared<const Json>(ParseStored(query.Text(2))),
                       ParseStored(query.Text(3))});
  }
}

absl::StatusOr<std::int64_t> ObjectStore::Transaction::NextVersion() {
  ASSIGN_OR_RETURN(sqlite::Query query,
                   database_.Prepare("UPDATE counters SET value = value + 1 "
                                     "WHERE name = 'version' RETURNING value"));
  ASSIGN_OR_RETURN(const bool found, query.Step());
  if (!found) return absl::DataLossError("the store has no version counter");
  const std::int64_t version = query.Int(0);
  RETURN_IF_ERROR(query.Step().status());
  return version;
}

absl::Status ObjectStore::Transaction::Log(std::int64_t version, const std::string& kind,
                                           WatchEventType type, const Json* before,
                                           const Json& object) {
  ASSIGN_OR_RETURN(sqlite::Query query,
                   database_.Prepare("INSERT INTO changes VALUES(?, ?, ?, ?, ?, ?)"));
  const Json parts = before ? Selector::SelectableParts(*before) : Json();
  query.Bind(version)
      .Bind(kind)
      .Bind(object["metadata"].value("namespace", ""))
      .Bind(static_cast<std::int64_t>(type))
      .Bind(json::Dump(object))
      .Bind(json::Dump(parts));
  RETURN_IF_ERROR(query.Run());
  return version % 64 == 0 ? Trim(version) : absl::OkStatus();
}

absl::Status ObjectStore::Transaction::Trim(std::int64_t version) {
  const std::int64_t newest_forgotten = version - change_log_limit_;
  if (newest_forgotten <= 0) return absl::OkStatus();
  {
    ASSIGN_OR_RETURN(sqlite::Query query,
                     database_.Prepare("DELETE FROM changes WHERE version <= ?"));
    RETURN_IF_ERROR(query.Bind(newest_forgotten).Run());
  }
  ASSIGN_OR_RETURN(sqlite::Query query,
                   database_.Prepare("UPDATE counters SET value = ? WHERE name = 'compacted'"));
  return query.Bind(newest_forgotten).Run();
}

absl::StatusOr<Json> ObjectStore::Transaction::Put(const std::string& kind, const Json* before,
                                                   Json object) {
  ASSIGN_OR_RETURN(const std::int64_t version, NextVersion());
  Json& metadata = object["metadata"];
  metadata["resourceVersion"] = absl::StrCat(version);
  {
    ASSIGN_OR_RETURN(sqlite::Query query,
                     database_.Prepare("INSERT OR REPLACE INTO objects VALUES(?, ?, ?, ?)"));
    query.Bind(kind)
        .Bind(metadata.value("namespace", ""))
        .Bind(metadata.value("name", ""))
        .Bind(json::Dump(object));
    RETURN_IF_ERROR(query.Run());
  }
  const WatchEventType type = before ? WatchEventType::kModified : WatchEventType::kAdded;
  RETURN_IF_ERROR(Log(version, kind, type, before, object));
  return object;
}

absl::StatusOr<Json> ObjectStore::Transaction::Remove(const std::string& kind, Json object) {
  ASSIGN_OR_RETURN(const std::int64_t version, NextVersion());
  const Json before = object;
  Json& metadata = object["metadata"];
  metadata["resourceVersion"] = absl::StrCat(version);
  {
    ASSIGN_OR_RETURN(
        sqlite::Query query,
        database_.Prepare("DELETE FROM objects WHERE kind = ? AND ns = ? AND name = ?"));
    query.Bind(kind).Bind(metadata.value("namespace", "")).Bind(metadata.value("name", ""));
    RETURN_IF_ERROR(query.Run());
  }
  RETURN_IF_ERROR(Log(version, kind, WatchEventType::kDeleted, &before, object));
  return object;
}

}  // namespace starling::kube
