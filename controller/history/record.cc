// SPDX-License-Identifier: Apache-2.0
#include "controller/history/record.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "common/json/json.h"
#include "controller/kube/objects.h"
#include "controller/resources/names.h"

namespace starling::history {
namespace {

using kube::Json;

constexpr const char* kReplacement = "\xEF\xBF\xBD";  // U+FFFD

void RemoveNuls(Json& value) {
  if (value.is_string()) {
    auto& text = value.get_ref<std::string&>();
    text = absl::StrReplaceAll(text, {{absl::string_view("\0", 1), kReplacement}});
  } else if (value.is_array()) {
    for (Json& item : value) RemoveNuls(item);
  } else if (value.is_object()) {
    Json clean = Json::object();
    for (auto& [name, item] : value.items()) {
      RemoveNuls(item);
      clean[absl::StrReplaceAll(name, {{absl::string_view("\0", 1), kReplacement}})] =
          std::move(item);
    }
    value = std::move(clean);
  }
}

void DropManagedFields(Json& object) {
  const auto metadata = object.is_object() ? object.find("metadata") : object.end();
  if (metadata != object.end() && metadata->is_object()) metadata->erase("managedFields");
}

using Identity = std::tuple<std::string, std::string, std::string>;

Identity IdentityOfIncident(const Json& incident) {
  return {kube::StringAt(incident, "/time"), kube::StringAt(incident, "/reason"),
          kube::StringAt(incident, "/podUid")};
}

Identity IdentityOfEvent(const Json& event) {
  return {kube::UidOf(event), kube::NamespaceOf(event), kube::NameOf(event)};
}

// What `fresh` says counts; what is new comes behind.
void Merge(const Json& fresh, Identity (*identity)(const Json&), std::vector<Json>& known) {
  const auto same = [&](const Json& other) { return identity(other) == identity(fresh); };
  const auto found = std::find_if(known.begin(), known.end(), same);
  if (found == known.end()) {
    known.push_back(fresh);
  } else {
    *found = fresh;
  }
}

std::string TimeOf(const Json& event) {
  const std::string time = kube::StringAt(event, "/eventTime");
  return time.empty() ? kube::StringAt(event, "/metadata/creationTimestamp") : time;
}

void KeepNewest(std::size_t most, std::vector<Json>& list) {
  if (list.size() > most) {
    list.erase(list.begin(), list.end() - static_cast<std::ptrdiff_t>(most));
  }
}

// The last whole lines within `most` bytes.
std::string TailOf(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  const std::string end = text.substr(text.size() - most);
  const std::size_t line = end.find('\n');
  return line == std::string::npos ? end : end.substr(line + 1);
}

}  // namespace

std::string CleanText(const std::string& text) {
  const bool clean = json::IsUtf8(text) && text.find('\0') == std::string::npos;
  return clean ? text : CleanJson(Json(text)).get<std::string>();
}

Json CleanJson(const Json& value) {
  // Writing puts U+FFFD in the place of what is not UTF-8.
  const std::string text = json::Dump(value);
  Json clean = Json::parse(text, nullptr, false);
  if (text.find("\\u0000") != std::string::npos) RemoveNuls(clean);
  return clean;
}

Record MakeRecord(const Json& job, const std::string& ns_uid, Json (*summarize)(const Json& job)) {
  Record record;
  record.object = CleanJson(job);
  DropManagedFields(record.object);
  const Json& object = record.object;
  record.uid = kube::UidOf(object);
  record.ns = kube::NamespaceOf(object);
  record.ns_uid = ns_uid;
  record.name = kube::NameOf(object);
  if (!absl::SimpleAtoi(kube::ResourceVersionOf(object), &record.version)) record.version = 0;
  record.created = kube::StringAt(object, "/metadata/creationTimestamp");
  record.state = kube::StringAt(object, "/status/state");
  record.summary = summarize(object);
  return record;
}

std::vector<Json> MergeIncidents(std::vector<Json> known, const Json& fresh) {
  if (!fresh.is_array()) return known;
  for (const Json& incident : fresh) Merge(incident, IdentityOfIncident, known);
  KeepNewest(kMostIncidents, known);
  return known;
}

std::vector<Json> MergeEvents(std::vector<Json> known, const std::vector<Json>& fresh) {
  for (const Json& event : fresh) {
    Json kept = CleanJson(event);
    DropManagedFields(kept);
    Merge(kept, IdentityOfEvent, known);
  }
  std::stable_sort(known.begin(), known.end(),
                   [](const Json& a, const Json& b) { return TimeOf(a) < TimeOf(b); });
  KeepNewest(kMostEvents, known);
  return known;
}

bool IsAbout(const Json& event, const Json& job) {
  const Json& regarding = kube::At(event, "/regarding");
  if (kube::StringAt(regarding, "/uid") == kube::UidOf(job)) return true;
  if (kube::StringAt(regarding, "/kind") != "Pod" ||
      kube::NamespaceOf(event) != kube::NamespaceOf(job)) {
    return false;
  }
  // An earlier job of the name had pods of the same names.
  const auto told = kube::ParseTimestamp(TimeOf(event));
  const auto made = kube::CreationTimeOf(job);
  if (told && made && *told < *made) return false;
  const std::string pod = kube::StringAt(regarding, "/name");
  for (const resources::Role role : resources::kEveryRole) {
    const std::string first = resources::PodName(kube::NameOf(job), role, 0);
    if (pod.starts_with(first.substr(0, first.size() - 1))) return true;
  }
  return false;
}

std::vector<LogTail> FitLogs(std::vector<LogTail> logs) {
  std::size_t left = kAllLogsBytes;
  std::vector<LogTail> kept;
  for (auto log = logs.rbegin(); log != logs.rend() && left > 0; ++log) {
    log->text = TailOf(CleanText(log->text), std::min(left, kLogTailBytes));
    left -= std::min(left, log->text.size());
    if (!log->text.empty()) kept.push_back(std::move(*log));
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

}  // namespace starling::history
