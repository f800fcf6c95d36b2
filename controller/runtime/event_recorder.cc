// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/event_recorder.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "controller/kube/messages.h"
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
  return absl::StrCat(Cut(regarding, 200), ".", absl::BytesToHexString(bytes::RandomBytes(8)));
}

absl::Time LastSeen(const kubernetes::Event& event) {
  if (event.series().has_last_observed_time()) {
    return kube::ToTime(event.series().last_observed_time());
  }
  if (event.event_time().has_seconds()) return kube::ToTime(event.event_time());
  return event.metadata().has_creation_timestamp()
             ? kube::ToTime(event.metadata().creation_timestamp())
             : absl::InfinitePast();
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

kubernetes::Event EventRecorder::Make(const Waiting& waiting) const {
  kubernetes::Event event;
  event.mutable_metadata()->set_name(EventName(waiting.key.name));
  event.mutable_metadata()->set_ns(waiting.key.ns);
  kube::SetTime(event.mutable_event_time(), waiting.time);
  kubernetes::ObjectReference& regarding = *event.mutable_regarding();
  regarding.set_api_version(waiting.api_version);
  regarding.set_kind(waiting.kind);
  regarding.set_ns(waiting.key.ns);
  regarding.set_name(waiting.key.name);
  regarding.set_uid(waiting.uid);
  regarding.set_resource_version(waiting.resource_version);
  event.set_type(waiting.warning ? "Warning" : "Normal");
  event.set_reason(waiting.reason);
  event.set_action(waiting.action);
  event.set_note(waiting.note);
  event.set_reporting_controller(controller_);
  event.set_reporting_instance(Cut(instance_, 128));
  return event;
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
  ASSIGN_OR_RETURN(const kube::MessagePtr created,
                   client_.CreateMessage(kube::kEvent, Make(waiting)));
  const auto old = known_.find(identity);
  if (old != known_.end()) {
    by_age_.erase(old->second.age);
    known_.erase(old);
  }
  by_age_.push_back(identity);
  known_[identity] = {kube::KeyOf(*created), 1, clock_.WallNow(), std::prev(by_age_.end())};
  if (by_age_.size() > kMostKnown) {
    known_.erase(by_age_.front());
    by_age_.pop_front();
  }
  return absl::OkStatus();
}

absl::StatusOr<int> DeleteOldEvents(kube::KubeClient& client, const clock::Clock& clock,
                                    absl::Duration age) {
  ASSIGN_OR_RETURN(const auto events, kube::ReadAll<kubernetes::Event>(client, "", {}));
  int deleted = 0;
  for (const auto& event : events) {
    if (clock.WallNow() - LastSeen(*event) < age) continue;
    const auto result = client.DeleteMessage(kube::kEvent, kube::KeyOf(*event), {});
    if (absl::IsNotFound(result.status())) continue;
    RETURN_IF_ERROR(result.status());
    ++deleted;
  }
  return deleted;
}

}  // namespace starling::runtime
