// SPDX-License-Identifier: Apache-2.0
// The tables of the embedded store: objects, and the log of their changes that watches read.
//
// It knows versions and transactions, nothing of what objects mean. One row of `objects` per
// object; one row of `changes` per version, the newest few thousand.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/sqlite/sqlite.h"
#include "common/sync/mutex.h"
#include "controller/kube/kube_client.h"

namespace starling::kube {

struct Change {
  std::int64_t version = 0;
  WatchEventType type = WatchEventType::kAdded;
  std::shared_ptr<const Json> object;
  Json before;  // the selectable parts of the object before; null: it was not there
};

// Thread-safe. What runs inside Read or Write must not call them again.
class ObjectStore {
 public:
  static absl::StatusOr<std::unique_ptr<ObjectStore>> Open(const std::string& path,
                                                           absl::Duration busy_timeout,
                                                           std::int64_t change_log_limit);

  // What a transaction can do.
  class Transaction {
   public:
    absl::StatusOr<std::optional<Json>> Find(const std::string& kind, const ObjectKey& key);
    // By namespace and name; all namespaces if `ns` is empty; those after `after`, if given.
    absl::StatusOr<std::vector<Json>> List(const std::string& kind, const std::string& ns,
                                           const std::optional<ObjectKey>& after);
    absl::StatusOr<std::int64_t> Version();    // of the last change of anything
    absl::StatusOr<std::int64_t> Compacted();  // changes up to this version are forgotten
    // Whether an object of that kind was changed after `version`.
    absl::StatusOr<bool> ChangedSince(const std::string& kind, std::int64_t version);
    // The next changes of that kind after `version`, at most `limit`.
    absl::StatusOr<std::vector<Change>> ChangesAfter(const std::string& kind, const std::string& ns,
                                                     std::int64_t version, std::int64_t limit);

    // Writes only. Each gives the object the next version and logs the change. `before` is null
    // for a new object.
    absl::StatusOr<Json> Put(const std::string& kind, const Json* before, Json object);
    absl::StatusOr<Json> Remove(const std::string& kind, Json object);

   private:
    friend class ObjectStore;
    Transaction(sqlite::Database& database, std::int64_t change_log_limit)
        : database_(database), change_log_limit_(change_log_limit) {}
    absl::StatusOr<std::int64_t> NextVersion();
    absl::Status Log(std::int64_t version, const std::string& kind, WatchEventType type,
                     const Json* before, const Json& object);
    absl::Status Trim(std::int64_t version);

    sqlite::Database& database_;
    const std::int64_t change_log_limit_;
  };

  using Work = std::function<absl::Status(Transaction&)>;
  // `work` sees one state of the store, and of its writes all or none are kept.
  absl::Status Read(const Work& work);

  // A commit outlives any death of a process. Whether it also outlives a power cut that comes at
  // once: kNow is worth a sync of the disk, and takes along all that was committed before.
  enum class Durability { kSoon, kNow };
  absl::Status Write(const Work& work, Durability durability);

  // Waits until this process has committed something after `version` or `stop` is set (followed by
  // WakeAll), at most for `timeout`, and no longer than is good for seeing other processes'
  // commits.
  void AwaitCommit(std::int64_t version, absl::Duration timeout, const std::atomic<bool>& stop);
  void WakeAll();

 private:
  ObjectStore(std::unique_ptr<sqlite::Database> database, bool shared,
              std::int64_t change_log_limit)
      : shared_(shared), change_log_limit_(change_log_limit), database_(std::move(database)) {}

  static absl::Status Prepare(sqlite::Database& database, const std::string& path);
  absl::Status Run(const char* begin, const Work& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Use(Durability durability) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const bool shared_;  // other processes may write too
  const std::int64_t change_log_limit_;
  sync::Mutex mutex_;
  std::unique_ptr<sqlite::Database> database_ ABSL_GUARDED_BY(mutex_);
  std::optional<Durability> durability_ ABSL_GUARDED_BY(mutex_);  // as SQLite was last told
  sync::Mutex wake_mutex_;
  sync::Condition wake_;
  std::int64_t committed_ ABSL_GUARDED_BY(wake_mutex_) = 0;
};

}  // namespace starling::kube
