// SPDX-License-Identifier: Apache-2.0
// What is kept of a job: a pure model, from the objects that say it.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "controller/history/curves.h"
#include "controller/kube/kube_client.h"

namespace starling::history {

inline constexpr std::size_t kMostIncidents = 200;  // the newest; a status has the newest 20
inline constexpr std::size_t kMostEvents = 200;
inline constexpr std::size_t kLogTailBytes = 256 << 10;  // of a pod
inline constexpr std::size_t kAllLogsBytes = 4 << 20;    // of a job

// An annotation of a past job's object, for those who read it: when it was seen to be gone.
inline constexpr char kDeletedAt[] = "starling.dev/deleted-at";

// A job as it was at one version.
struct Record {
  std::string uid;
  std::string ns;
  // Of the namespace: one that is made anew under an old name inherits nothing. Empty on one
  // machine, where namespaces are names alone.
  std::string ns_uid;
  std::string name;
  std::int64_t version = 0;  // resourceVersion; one that is no number is the oldest
  std::string created;       // RFC 3339, whole seconds: its order is that of time
  std::string state;
  kube::Json object;   // whole, without managedFields
  kube::Json summary;  // about a kilobyte: what lists show
};

// The end of what a pod has written.
struct LogTail {
  std::string pod;
  bool replaced = false;  // another pod of this name came after it
  std::string text;       // whole lines

  friend bool operator==(const LogTail&, const LogTail&) = default;
};

// News of a job. All of it may be told again, by anybody, in any order: the newest version stays.
struct JobUpdate {
  Record record;
  std::map<std::string, Points> points;  // since the update before, steps ascending
  std::vector<kube::Json> events;        // of the job and its pods
  std::vector<LogTail> logs;             // empty: nothing new; else in the place of what was kept
  bool logs_taken = false;               // no more logs will come
  std::optional<absl::Time> gone;        // when it was noticed that the object is there no more
};

// `summarize` gives the summary.
Record MakeRecord(const kube::Json& job, const std::string& ns_uid,
                  kube::Json (*summarize)(const kube::Json& job));

// `known` with those of `fresh`: an incident that is known, by time, reason and pod's UID, gets
// what has become known of it since. The newest kMostIncidents, oldest first.
std::vector<kube::Json> MergeIncidents(std::vector<kube::Json> known, const kube::Json& fresh);

// The same of events, by their UIDs; a count that grew is another state of the same event.
std::vector<kube::Json> MergeEvents(std::vector<kube::Json> known,
                                    const std::vector<kube::Json>& fresh);

// Whether an event is of the job itself or of one of its pods.
bool IsAbout(const kube::Json& event, const kube::Json& job);

// Valid UTF-8 without NUL bytes, which no database would take otherwise.
std::string CleanText(const std::string& text);
kube::Json CleanJson(const kube::Json& value);

// The newest of the tails that fit in kAllLogsBytes, each within kLogTailBytes and clean.
std::vector<LogTail> FitLogs(std::vector<LogTail> logs);

}  // namespace starling::history
