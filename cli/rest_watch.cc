// SPDX-License-Identifier: Apache-2.0
#include "cli/rest_watch.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/time/clock.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::cli {
namespace {

constexpr absl::Duration kSlice = absl::Milliseconds(100);  // in which Stop() is noticed

constexpr std::pair<std::string_view, kube::WatchEventType> kTypes[] = {
    {"added", kube::WatchEventType::kAdded},
    {"modified", kube::WatchEventType::kModified},
    {"deleted", kube::WatchEventType::kDeleted}};

}  // namespace

// Nothing: of no interest to a watch. One of the same name is told after its predecessor's end: the
// stream itself knows the job by its name alone.
std::optional<kube::WatchEvent> RestWatch::Told(const ServerEvent& event) {
  const auto type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                 [&](const auto& known) { return known.first == event.name; });
  const kube::Json& object = kube::At(event.data, "/object");
  if (type == std::end(kTypes) || !object.is_object()) return std::nullopt;
  if (last_ != nullptr && kube::UidOf(*last_) != kube::UidOf(object)) {
    over_ = true;
    return kube::WatchEvent{kube::WatchEventType::kDeleted, last_};
  }
  last_ = std::make_shared<const kube::Json>(object);
  over_ = type->second == kube::WatchEventType::kDeleted;
  return kube::WatchEvent{type->second, last_};
}

absl::StatusOr<std::optional<kube::WatchEvent>> RestWatch::Take(absl::Duration timeout) {
  const auto event = events_.Next(timeout);
  if (absl::IsNotFound(event.status()) && last_ != nullptr) {
    over_ = true;  // while the connection was away
    return std::optional(kube::WatchEvent{kube::WatchEventType::kDeleted, last_});
  }
  if (absl::IsOutOfRange(event.status())) {
    over_ = true;
    return std::optional<kube::WatchEvent>();
  }
  RETURN_IF_ERROR(event.status());
  if (!*event) return std::optional<kube::WatchEvent>();
  return Told(**event);
}

absl::StatusOr<std::optional<kube::WatchEvent>> RestWatch::Next(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    if (stopped_) return absl::CancelledError("watch: stopped");
    const absl::Duration slice = std::clamp(deadline - absl::Now(), absl::ZeroDuration(), kSlice);
    if (over_) {
      absl::SleepFor(slice);
    } else {
      ASSIGN_OR_RETURN(auto event, Take(slice));
      if (event) return event;
    }
    if (absl::Now() >= deadline) return std::optional<kube::WatchEvent>();
  }
}

}  // namespace starling::cli
