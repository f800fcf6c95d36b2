// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/http_watch.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/macros.h"
#include "controller/kube/http_path.h"
#include "controller/kube/http_status.h"
#include "controller/kube/messages.h"
#include "controller/kube/objects.h"

namespace starling::kube {
namespace {

constexpr absl::Duration kFirstBackOff = absl::Milliseconds(50);
constexpr absl::Duration kLongestBackOff = absl::Seconds(5);
// A server that sends something is there: the next wait is below a second.
constexpr int kFailuresAfterData = 3;
constexpr std::size_t kLongestEvent = 16U << 20U;

// Asking again might help.
bool IsPassing(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
         absl::IsDeadlineExceeded(status);
}

// Nothing for a type that is newer than we are.
absl::StatusOr<std::optional<WatchEvent>> ParseEvent(std::string_view line) {
  auto event = ParseServerJson(line);
  if (!event.ok() || !At(*event, "/object").is_object()) {
    return absl::UnavailableError("watch: an event that cannot be understood");
  }
  const std::string type = StringAt(*event, "/type");
  Json& object = (*event)["object"];
  if (type == "ERROR") return StatusOfObject(object);
  const std::optional<WatchEventType> known = EventTypeOf(type);
  if (!known.has_value()) return std::optional<WatchEvent>();
  if (ResourceVersionOf(object).empty()) {
    return absl::UnavailableError("watch: an object without a version");
  }
  object["metadata"].erase("managedFields");
  return std::optional<WatchEvent>({*known, std::make_shared<const Json>(std::move(object))});
}

}  // namespace

absl::Status EventReader<Json>::Take(std::string_view piece, std::vector<WatchEvent>& events) {
  while (true) {
    const std::size_t end = piece.find('\n');
    line_.append(piece.substr(0, end));
    if (line_.size() > kLongestEvent) {
      return absl::UnavailableError("watch: an event of more than 16 MiB");
    }
    if (end == std::string_view::npos) return absl::OkStatus();
    piece.remove_prefix(end + 1);
    const std::string line = std::exchange(line_, "");
    if (line.empty()) continue;
    ASSIGN_OR_RETURN(std::optional<WatchEvent> event, ParseEvent(line));
    if (event.has_value()) events.push_back(*std::move(event));
  }
}

EventReader<Message>::EventReader(const ResourceKind& kind) : kind_(kind), frames_(kLongestEvent) {}

absl::Status EventReader<Message>::Take(std::string_view piece, std::vector<MessageEvent>& events) {
  frames_.Add(piece);
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<std::string> frame, frames_.Next());
    if (!frame.has_value()) return absl::OkStatus();
    ASSIGN_OR_RETURN(std::optional<MessageEvent> event, DecodeEvent(kind_, *frame));
    if (event.has_value()) events.push_back(*std::move(event));
  }
}

template <typename Object>
HttpWatch<Object>::HttpWatch(http::HttpClient& http, const ResourceKind& kind, std::string ns,
                             Selection selection, std::string version,
                             const HttpWatchOptions& options)
    : http_(http),
      kind_(kind),
      ns_(std::move(ns)),
      selection_(std::move(selection)),
      options_(options),
      version_(std::move(version)),
      reader_(kind) {}

template <typename Object>
std::shared_ptr<http::HttpStream> HttpWatch<Object>::Open() {
  const auto seconds = std::max<std::int64_t>(1, absl::ToInt64Seconds(options_.request));
  http::Request request;
  request.method = "GET";
  request.target =
      absl::StrCat(CollectionPath(kind_, ns_), Query({{"watch", "true"},
                                                      {"allowWatchBookmarks", "true"},
                                                      {"timeoutSeconds", absl::StrCat(seconds)},
                                                      {"resourceVersion", version_},
                                                      {"labelSelector", selection_.labels},
                                                      {"fieldSelector", selection_.fields}}));
  request.headers = {{"Accept", EventReader<Object>::accept()}};
  reader_.Clear();
  return http_.Stream(std::move(request), absl::Seconds(seconds) + options_.grace);
}

template <typename Object>
absl::Status HttpWatch<Object>::Start(std::vector<std::shared_ptr<const Object>> present) {
  for (auto& object : present) events_.push_back({WatchEventType::kAdded, std::move(object)});
  const absl::Time deadline = absl::Now() + http_.options().timeout;
  while (true) {
    std::shared_ptr<http::HttpStream> stream = Open();
    absl::Status status = stream->AwaitHead(deadline - absl::Now());
    if (status.ok()) {
      sync::MutexLock lock(mutex_);
      stream_ = std::move(stream);
      return absl::OkStatus();
    }
    TryLater();
    if (!IsPassing(status) || next_try_ >= deadline) return status;
    RETURN_IF_ERROR(Await(next_try_));
  }
}

template <typename Object>
void HttpWatch<Object>::Stop() {
  std::shared_ptr<http::HttpStream> stream;
  {
    sync::MutexLock lock(mutex_);
    stopped_ = true;
    stream = stream_;
    woken_.NotifyAll();
  }
  if (stream) stream->Stop();
}

// Cancelled if it is stopped meanwhile.
template <typename Object>
absl::Status HttpWatch<Object>::Await(absl::Time deadline) {
  sync::MutexLock lock(mutex_);
  while (!stopped_) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return absl::OkStatus();
    woken_.WaitFor(mutex_, left);
  }
  return absl::CancelledError("watch: stopped");
}

template <typename Object>
void HttpWatch<Object>::TryLater() {
  const absl::Duration wait =
      std::min(kFirstBackOff * (1 << std::min(failures_, 10)), kLongestBackOff);
  next_try_ = absl::Now() + wait * (0.75 + 0.5 * http::HttpClient::Jitter());
  ++failures_;
}

// What a stream's end means to the reader; OK: nothing, there will be another stream.
template <typename Object>
absl::Status HttpWatch<Object>::Broken(const absl::Status& status) {
  std::shared_ptr<http::HttpStream> old;
  {
    sync::MutexLock lock(mutex_);
    if (stopped_) return absl::CancelledError("watch: stopped");
    old = std::exchange(stream_, nullptr);
  }
  const absl::Time now = absl::Now();
  failing_since_ = std::min(failing_since_, now);
  TryLater();
  if (!IsPassing(status)) return status;
  if (now - failing_since_ < options_.patience) return absl::OkStatus();
  failing_since_ = now;  // patient anew, if the reader is
  return status;
}

template <typename Object>
absl::Status HttpWatch<Object>::Take(std::string_view piece) {
  std::vector<Event> events;
  absl::Status status = reader_.Take(piece, events);
  for (Event& event : events) {
    version_ = ResourceVersionOf(*event.object);
    failures_ = 0;
    failing_since_ = absl::InfiniteFuture();
    events_.push_back(std::move(event));
  }
  return status;
}

// Waits until `deadline` for some text and takes it; opens a stream where there is none. Whether
// there was any: an event may come in many pieces, and who will not wait still wants all that came.
template <typename Object>
absl::StatusOr<bool> HttpWatch<Object>::TakeStream(absl::Time deadline) {
  std::shared_ptr<http::HttpStream> stream;
  {
    sync::MutexLock lock(mutex_);
    if (stopped_) return absl::CancelledError("watch: stopped");
    stream = stream_;
  }
  if (!stream) {
    RETURN_IF_ERROR(Await(std::min(deadline, next_try_)));
    if (absl::Now() < next_try_) return false;
    stream = Open();
    sync::MutexLock lock(mutex_);
    if (stopped_) return absl::CancelledError("watch: stopped");
    stream_ = stream;
  }
  const auto piece = stream->Next(std::max(deadline - absl::Now(), absl::ZeroDuration()));
  if (stream->ended()) {
    // The server has ended the request in good order; if it did so at once, slower next time.
    const int failures = failures_;
    absl::Status status = Broken(absl::UnavailableError("watch: ended by the server"));
    if (failures == 0) next_try_ = absl::InfinitePast();
    if (absl::IsCancelled(status)) return status;
    failing_since_ = absl::InfiniteFuture();
    return false;
  }
  if (!piece.ok()) {
    RETURN_IF_ERROR(Broken(piece.status()));
    return false;
  }
  if (!*piece) return false;
  failures_ = std::min(failures_, kFailuresAfterData);
  const absl::Status taken = Take(**piece);
  if (!taken.ok()) RETURN_IF_ERROR(Broken(taken));
  return taken.ok();
}

template <typename Object>
absl::StatusOr<std::optional<EventOf<Object>>> HttpWatch<Object>::Next(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    {
      sync::MutexLock lock(mutex_);
      if (stopped_) return absl::CancelledError("watch: stopped");
    }
    if (!events_.empty()) {
      Event event = std::move(events_.front());
      events_.pop_front();
      return std::optional<Event>(std::move(event));
    }
    ASSIGN_OR_RETURN(const bool taken, TakeStream(deadline));
    if (!taken && events_.empty() && absl::Now() >= deadline) return std::optional<Event>();
  }
}

template class HttpWatch<Json>;
template class HttpWatch<Message>;

}  // namespace starling::kube
