// SPDX-License-Identifier: Apache-2.0
#include "cli/event_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::cli {
namespace {

constexpr std::size_t kLongestLine = 4U << 20U;
constexpr absl::Duration kLongestRetry = absl::Minutes(1);
constexpr absl::Duration kFirstBackOff = absl::Milliseconds(100);
constexpr absl::Duration kLongestBackOff = absl::Seconds(10);
constexpr absl::Duration kLifetime = absl::Hours(2);  // the server ends a stream after one

bool IsPassing(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
         absl::IsDeadlineExceeded(status) || absl::IsOutOfRange(status);
}

// After these the job, or what there is of a log, has been told.
bool IsFinal(const ServerEvent& event) {
  if (event.name != "end") return false;
  const std::string reason = kube::StringAt(event.data, "/reason");
  return reason == "JobFinished" || reason == "Complete";
}

}  // namespace

absl::Status EventText::TakeLine(std::string_view line, std::deque<ServerEvent>& events) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (line.empty()) {
    ServerEvent event = std::exchange(event_, {});
    const std::string data = std::exchange(data_, "");
    if (data.empty()) return absl::OkStatus();
    auto parsed = json::Parse(data);
    if (!parsed.ok()) {
      return absl::UnavailableError(
          absl::StrCat("the stream's event is no JSON: ", std::string(parsed.status().message())));
    }
    event.data = *std::move(parsed);
    events.push_back(std::move(event));
    return absl::OkStatus();
  }
  const std::size_t colon = line.find(':');
  const std::string_view name = line.substr(0, colon);
  std::string_view value = colon == std::string_view::npos ? "" : line.substr(colon + 1);
  if (!value.empty() && value.front() == ' ') value.remove_prefix(1);
  std::int64_t milliseconds = 0;
  if (name == "event") {
    event_.name = value;
  } else if (name == "id") {
    event_.id = value;
  } else if (name == "data") {
    if (!data_.empty()) data_ += '\n';
    data_ += value;
  } else if (name == "retry" &&
             absl::SimpleAtoi(absl::string_view(value.data(), value.size()), &milliseconds)) {
    retry_ = std::clamp(absl::Milliseconds(milliseconds), absl::ZeroDuration(), kLongestRetry);
  }
  return absl::OkStatus();
}

absl::Status EventText::Take(std::string_view text, std::deque<ServerEvent>& events) {
  while (true) {
    const std::size_t end = text.find('\n');
    line_.append(text.substr(0, end));
    if (line_.size() + data_.size() > kLongestLine) {
      return absl::UnavailableError("the stream has an event of more than 4 MiB");
    }
    if (end == std::string_view::npos) return absl::OkStatus();
    const std::string line = std::exchange(line_, "");
    RETURN_IF_ERROR(TakeLine(line, events));
    text.remove_prefix(end + 1);
  }
}

EventStream::EventStream(http::HttpClient& http, std::string target, std::string last_id,
                         absl::Duration patience)
    : http_(http),
      target_(std::move(target)),
      patience_(patience),
      last_id_(std::move(last_id)),
      heard_(absl::Now()) {}

void EventStream::Open() {
  http::Request request{"GET", target_, "", {{"Accept", "text/event-stream"}}};
  if (!last_id_.empty()) request.headers.emplace_back("Last-Event-ID", last_id_);
  text_ = {};
  stream_ = http_.Stream(std::move(request), kLifetime);
  opened_ = absl::Now();
  ++connections_;
}

absl::Status EventStream::Start() {
  Open();
  return stream_->AwaitHead(http_.options().timeout);
}

// What the end of a connection means to the reader; OK: nothing, there will be another one.
absl::Status EventStream::Broken(const absl::Status& status) {
  stream_.reset();
  if (!IsPassing(status)) return status;
  const absl::Time now = absl::Now();
  if (now - heard_ > patience_) {
    heard_ = now;  // patient anew, if the reader is
    return absl::UnavailableError(status.message());
  }
  const absl::Duration back_off =
      std::min(kFirstBackOff * (1 << std::min(failures_, 10)), kLongestBackOff);
  const absl::Duration wait = std::max(back_off, retry_.value_or(absl::ZeroDuration()));
  next_try_ = now + wait * (0.75 + 0.5 * http::HttpClient::Jitter());
  ++failures_;
  return absl::OkStatus();
}

absl::Status EventStream::Read(absl::Duration timeout) {
  if (stream_ == nullptr) {
    const absl::Duration wait = std::min(timeout, next_try_ - absl::Now());
    if (wait > absl::ZeroDuration()) absl::SleepFor(wait);
    if (absl::Now() < next_try_) return absl::OkStatus();
    Open();
  }
  const auto piece = stream_->Next(timeout);
  if (!piece.ok()) return Broken(piece.status());
  const absl::Time now = absl::Now();
  if (!*piece) {
    if (now - std::max(heard_, opened_) < kSilence) return absl::OkStatus();
    return Broken(absl::UnavailableError("the stream is silent"));
  }
  heard_ = now;
  failures_ = 0;
  const absl::Status taken = text_.Take(**piece, events_);
  if (text_.retry()) retry_ = text_.retry();
  return taken.ok() ? taken : Broken(taken);
}

absl::StatusOr<std::optional<ServerEvent>> EventStream::Next(absl::Duration timeout) {
  if (events_.empty() && !over_) RETURN_IF_ERROR(Read(timeout));
  if (events_.empty()) {
    if (over_) return absl::OutOfRangeError("the stream has ended");
    return std::optional<ServerEvent>();
  }
  ServerEvent event = std::move(events_.front());
  events_.pop_front();
  if (!event.id.empty()) last_id_ = event.id;
  if (IsFinal(event)) over_ = true;
  return std::optional<ServerEvent>(std::move(event));
}

}  // namespace starling::cli
