// SPDX-License-Identifier: Apache-2.0
#include "controller/rest/job_stream.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "controller/kube/objects.h"
#include "controller/rest/event_text.h"
#include "controller/rest/summary.h"

namespace starling::service {
namespace {

constexpr std::size_t kEventPiece = 48 << 10;

std::string_view WordOf(JobNews::Kind kind) {
  switch (kind) {
    case JobNews::Kind::kAdded:
      return "added";
    case JobNews::Kind::kModified:
      return "modified";
    case JobNews::Kind::kDeleted:
      return "deleted";
    case JobNews::Kind::kBookmark:
      return "bookmark";
  }
  return "";
}

}  // namespace

JobStream::JobStream(JobHub& hub, const clock::Clock& clock, CallLimits::Ticket ticket,
                     JobStreamOptions options)
    : hub_(hub),
      clock_(clock),
      ticket_(std::move(ticket)),
      options_(std::move(options)),
      deadline_(clock.Now() + options_.timeout) {}

void JobStream::Start(std::function<void()> wake) {
  listener_ = hub_.Listen(options_.filter, options_.since, std::move(wake));
  last_said_ = clock_.Now();
}

std::string JobStream::ProgressText(const kube::Json& job) {
  const absl::Time now = clock_.Now();
  if (now - last_progress_ < kProgressEvery) return "";
  const kube::Json progress = ProgressOf(job);
  if (progress.is_null()) return "";
  std::string text = json::Dump(progress);
  if (text == progress_) return "";
  last_progress_ = now;
  progress_ = std::move(text);
  return EventText("progress", progress_);
}

std::string JobStream::TextOf(const JobNews& news) {
  if (news.state == nullptr) return EventText(WordOf(news.kind), "{}", news.version);
  const JobState& state = *news.state;
  const std::string& data = options_.whole ? state.Object() : state.Summary();
  std::string text = EventText(WordOf(news.kind), data, news.version);
  if (!options_.whole) return text;
  if (news.kind != JobNews::Kind::kDeleted) text += ProgressText(state.job());
  job_over_ = news.kind == JobNews::Kind::kDeleted || IsFinished(state.job());
  return text;
}

http::BodyStream::Piece JobStream::Next() {
  Piece piece;
  if (options_.permit != nullptr && options_.permit->ended() != nullptr) {
    piece.bytes = EndText(options_.permit->ended());
    piece.ended = true;
    return piece;
  }
  if (!std::exchange(begun_, true)) piece.bytes = RetryText();
  while (piece.bytes.size() < kEventPiece && !job_over_) {
    const std::optional<JobNews> news = listener_->Next();
    if (!news) break;
    piece.bytes += TextOf(*news);
  }
  const absl::Time now = clock_.Now();
  const char* reason = job_over_          ? "JobFinished"
                       : draining_        ? "Shutdown"
                       : now >= deadline_ ? "Deadline"
                                          : nullptr;
  if (reason != nullptr && (job_over_ || piece.bytes.size() < kEventPiece)) {
    piece.bytes += EndText(reason);
    piece.ended = true;
    return piece;
  }
  if (piece.bytes.empty() && now - last_said_ >= kHeartbeatEvery) piece.bytes = kHeartbeat;
  if (!piece.bytes.empty()) last_said_ = now;
  // With nothing to say: to the next heartbeat, or the end.
  piece.pause = piece.bytes.empty() ? std::min(last_said_ + kHeartbeatEvery, deadline_) - now +
                                          absl::Milliseconds(1)
                                    : absl::ZeroDuration();
  if (options_.permit != nullptr) piece.pause = std::min(piece.pause, kPermitEvery);
  return piece;
}

}  // namespace starling::service
