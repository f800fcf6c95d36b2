// SPDX-License-Identifier: Apache-2.0
// What jobs were, kept beyond their objects: the last object, curves, incidents, events, the end of
// their logs.
//
// Everything that is told may be told again, and several may tell the same: the newest version of
// each job stays. What becomes unreachable tells Unavailable and is asked again later; nothing here
// may stop those who run jobs. To add a store: a sql::Database for SqlHistory, or an implementation
// of this; it must pass tests/contract/history.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "controller/history/record.h"
#include "controller/history/retention.h"

namespace starling::history {

// A job of the past, or one that still is there, as it was last recorded.
struct PastJob {
  std::string ns_uid;
  kube::Json object;
  std::vector<kube::Json> incidents;  // oldest first, more than a status holds
  std::vector<kube::Json> events;     // oldest first
  std::optional<absl::Time> gone;     // nothing: its object was there when it was last looked at
};

// The object, with kDeletedAt where it is known.
kube::Json ObjectToShow(const PastJob& job);

// Which job. The newest of a name, or that of a UID.
struct JobName {
  std::string ns;
  std::string ns_uid;
  std::string name;
  std::string uid;  // empty: any
};

struct ListQuery {
  std::string ns = {};  // empty: all
  // Whether a namespace of this name and UID is the one that there is now. Null: all are.
  std::function<bool(const std::string& ns, const std::string& ns_uid)> visible = nullptr;
  // Of what a selector can ask about (kube::Selector::SelectableParts). Null: all match.
  std::function<bool(const kube::Json& parts)> matches = nullptr;
  // A label that `matches` asks for anyway: it is looked up, not looked for. Empty key: none.
  std::pair<std::string, std::string> label = {};
  // The place behind which the page begins: creation time and UID. Nothing: the newest.
  std::optional<std::pair<std::string, std::string>> after = std::nullopt;
  std::size_t limit = 50;
  bool present_too = false;  // those whose objects are there as well
};

struct ListedJob {
  std::string uid;
  std::string created;
  kube::Json summary;
  std::optional<absl::Time> gone;
};

// Of a job that is not known to be gone.
struct PresentJob {
  std::string uid;
  std::string ns;
  std::string name;
  bool logs_taken = false;
};

// Thread-safe, all implementations. Errors: those of common/sql/sql.h, and FailedPrecondition for a
// schema that a newer version of this program has made.
class History {
 public:
  virtual ~History() = default;

  // The UIDs of those of which it was news: nobody had told this version or a newer one.
  virtual absl::StatusOr<std::vector<std::string>> Record(
      const std::vector<JobUpdate>& updates) = 0;

  // NotFound: it is not known here.
  virtual absl::StatusOr<PastJob> Find(const JobName& job) = 0;
  // Newest first: by creation time, then by UID.
  virtual absl::StatusOr<std::vector<ListedJob>> List(const ListQuery& query) = 0;
  // By metric; of one alone unless `metric` is empty.
  virtual absl::StatusOr<std::map<std::string, Points>> Curves(const std::string& uid,
                                                               const std::string& metric) = 0;
  virtual absl::StatusOr<std::vector<LogTail>> Logs(const std::string& uid) = 0;

  // Those not known to be gone.
  virtual absl::StatusOr<std::vector<PresentJob>> Present() = 0;
  // The whole UID of a job of which its beginning is known; empty: it is not known here.
  virtual absl::StatusOr<std::string> FindUid(const std::string& ns, const std::string& name,
                                              const std::string& beginning) = 0;
  // The newest version of all that is recorded; 0: nothing is.
  virtual absl::StatusOr<std::int64_t> NewestVersion() = 0;

  // Forgets what is beyond the limits. What is left.
  virtual absl::StatusOr<Space> Trim(const Retention& retention, absl::Time now) = 0;

  // Grows when what was recorded may be lost: all that is known must be told again.
  virtual std::int64_t incarnation() const = 0;
  virtual const std::string& name() const = 0;
};

}  // namespace starling::history
