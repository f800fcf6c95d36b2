// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/event_recorder.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::runtime {
namespace {

using kube::Json;

constexpr std::size_t kLongestNote = 1024;
constexpr std::size_t kMostKnown = 1024;
constexpr std::size_t kMostWaiting = 4096;
// A repetition after this long is a new event, as its Event may have been deleted by then.
constexpr absl::Duration kSeriesEnds = absl::Minutes(6);

// At most `limit` bytes, cut between characters of UTF-8.
std::string Cut(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return std::string(text);
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0U) == 0x80U) --limit;
  return std::string(text.substr(0, limit));
}

// A name that no other event has: the object's, and 16 hexadecimal digits.
std::string EventName(const std::string& regarding) {
  return absl::StrCat(
      Cut(regarding, 200), ".",
      bytes::ToHex(bytes::Sha256Of(bytes::View(bytes::RandomBytes(16)))).substr(0, 16));
}

absl::Time LastSeen(const Json& event) {
  for (const char* field :
       {"/series/lastObservedTime", "/eventTime", "/metadata/creationTimestamp"}) {
    if (const auto time = kube::ParseTimestamp(kube::StringAt(event, field))) return *time;
  }
  return absl::InfinitePast();
}

}  // namespace

EventRecorder::EventRecorder(kube::KubeClient& client, const clock::Clock& clock,
                             std::string controller, std::string instance, EventWrites writes)
    : client_(client),
      clock_(clock),
      controller_(std::move(controller)),
      instance_(std::move(instance)),
      writes_(writes) {}

void EventRecorder::Record(const Json& regarding, EventType type, std::string_view reason,
                           std::string_view action, std::string_view note) {
  Waiting waiting{.identity = "",
                  .key = kube::KeyOf(regarding),
                  .api_version = kube::StringAt(regarding, "/apiVersion"),
                  .kind = kube::StringAt(regarding, "/kind"),
                  .uid = kube::UidOf(regarding),
                  .resource_version = kube::ResourceVersionOf(regarding),
                  .warning = type == EventType::kWarning,
                  .reason = Cut(reason, 128),
                  .action = Cut(action, 128),
                  .note = Cut(note, kLongestNote),
                  .time = clock_.WallNow()};
  waiting.identity = absl::StrCat(waiting.uid, "\n", waiting.warning, "\n", waiting.reason, "\n",
                                  waiting.action, "\n", waiting.note);
  if (writes_ == EventWrites::kAtOnce) return Write(waiting);
  sync::MutexLock lock(mutex_);
  if (queue_.size() < kMostWaiting) {
    queue_.push_back(std::move(waiting));
  } else {
    ++dropped_;
  }
}

Json EventRecorder::Make(const Waiting& waiting) const {
  return {{"metadata", {{"name", EventName(waiting.key.name)}, {"namespace", waiting.key.ns}}},
          {"eventTime", kube::FormatMicroTimestamp(waiting.time)},
          {"regarding",
           {{"apiVersion", waiting.api_version},
            {"kind", waiting.kind},
            {"namespace", waiting.key.ns},
            {"name", waiting.key.name},
            {"uid", waiting.uid},
            {"resourceVersion", waiting.resource_version}}},
          {"type", waiting.warning ? "Warning" : "Normal"},
          {"reason", waiting.reason},
          {"action", waiting.action},
          {"note", waiting.note},
          {"reportingController", controller_},
          {"reportingInstance", Cut(instance_, 128)}};
}

void EventRecorder::Flush() {
  while (true) {
    Waiting next;
    {
      sync::MutexLock lock(mutex_);
      if (dropped_ > 0) log::Warning("events were dropped", {{"count", dropped_}});
      dropped_ = 0;
      if (closed_ || queue_.empty()) return;
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    Write(next);
  }
}

void EventRecorder::Close() {
  sync::MutexLock lock(mutex_);
  closed_ = true;
}

void EventRecorder::Write(const Waiting& waiting) {
  sync::MutexLock lock(writing_);
  const auto known = known_.find(waiting.identity);
  absl::Status status = absl::NotFoundError("new");
  if (known != known_.end() && clock_.WallNow() - known->second.last < kSeriesEnds) {
    status = Repeat(known->second);
  }
  if (absl::IsNotFound(status)) status = RecordNew(waiting);
  if (status.ok()) return;
  log::Warning("event was not recorded",
               {{"reason", waiting.reason}, {"error", status.ToString()}});
}

absl::Status EventRecorder::Repeat(Known& known) {
  known.last = clock_.WallNow();
  ++known.count;
  const Json series = {
      {"series",
       {{"count", known.count}, {"lastObservedTime", kube::FormatMicroTimestamp(known.last)}}}};
  return client_.Patch(kube::kEvent, known.key, series).status();
}

absl::Status EventRecorder::RecordNew(const Waiting& waiting) {
  const std::string& identity = waiting.identity;
  ASSIGN_OR_RETURN(const Json created, client_.Create(kube::kEvent, Make(waiting)));
  const auto old = known_.find(identity);
  if (old != known_.end()) {
    by_age_.erase(old->second.age);
    known_.erase(old);
  }
  by_age_.push_back(identity);
  known_[identity] = {kube::KeyOf(created), 1, clock_.WallNow(), std::prev(by_age_.end())};
  if (by_age_.size() > kMostKnown) {
    known_.erase(by_age_.front());
    by_age_.pop_front();
  }
  return absl::OkStatus();
}

absl::StatusOr<int> DeleteOldEvents(kube::KubeClient& client, const clock::Clock& clock,
                                    absl::Duration age) {
  ASSIGN_OR_RETURN(const kube::ObjectList events, client.List(kube::kEvent, "", {}));
  int deleted = 0;
  for (const Json& event : events.items) {
    if (clock.WallNow() - LastSeen(event) < age) continue;
    const auto result = client.Delete(kube::kEvent, kube::KeyOf(event), {});
    if (absl::IsNotFound(result.status())) continue;
    RETURN_IF_ERROR(result.status());
    ++deleted;
  }
  return deleted;
}

}  // namespace starling::runtime
