// SPDX-License-Identifier: Apache-2.0
#include "controller/rest/pod_logs.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "controller/rest/event_text.h"

namespace starling::service {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kUidSuffix = 9;  // "-", and 8 characters of the UID
constexpr std::size_t kLogPiece = 48 << 10;
constexpr std::size_t kBytesPerSecond = 1 << 20;
constexpr std::uint64_t kTailBytes = 8 << 20;  // lines further from the end are not looked for
constexpr absl::Duration kLookEvery = absl::Milliseconds(250);
constexpr absl::Duration kLogHeartbeatEvery = absl::Seconds(15);
// A job is finished before its pods have ended, and they write their last lines meanwhile. A pod
// that is killed leaves no record of its end, and those of cleanPodPolicy None stay.
constexpr absl::Duration kPodsEndWithin = absl::Seconds(5);

struct Found {
  fs::file_time_type written;
  PodLog log;
};

bool HasEnded(const std::string& job_folder, const PodLog& log) {
  std::error_code error;
  return fs::exists((fs::path(job_folder) / log.file).replace_filename("exit.json"), error);
}

std::vector<Found> FindAll(const std::string& job_folder) {
  std::vector<Found> all;
  std::error_code error;
  for (const auto& pod : fs::directory_iterator(job_folder + "/pods", error)) {
    const std::string name = pod.path().filename().string();
    const auto written = fs::last_write_time(pod.path() / "log", error);
    if (error || name.size() <= kUidSuffix) continue;
    all.push_back({written, {name.substr(0, name.size() - kUidSuffix), "pods/" + name + "/log"}});
  }
  std::sort(all.begin(), all.end(), [](const Found& a, const Found& b) {
    return std::tie(a.written, a.log.file) < std::tie(b.written, b.log.file);
  });
  return all;
}

std::string ReadAt(const OpenFile& file, std::uint64_t offset, std::size_t size) {
  std::string text(size, '\0');
  const ssize_t got =
      ::pread(file.file.get(), text.data(), text.size(), static_cast<off_t>(offset));
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

}  // namespace

std::vector<PodLog> FindPodLogs(const std::string& job_folder, const LogRequest& request) {
  std::vector<Found> all = FindAll(job_folder);
  std::set<std::string> newer;  // pods of which a newer folder has been seen
  std::vector<PodLog> logs;
  for (auto found = all.rbegin(); found != all.rend(); ++found) {
    const bool replaced = !newer.insert(found->log.pod).second;
    const bool asked = request.pod.empty() || request.pod == found->log.pod;
    if (asked && replaced == request.previous) logs.push_back(std::move(found->log));
  }
  std::reverse(logs.begin(), logs.end());
  return logs;
}

std::vector<history::LogTail> ReadLogTails(const std::string& job_folder) {
  std::vector<history::LogTail> tails;
  for (const bool replaced : {true, false}) {
    LogRequest request;
    request.previous = replaced;
    for (const PodLog& log : FindPodLogs(job_folder, request)) {
      const absl::StatusOr<OpenFile> file = OpenBeneath(job_folder, log.file);
      if (!file.ok()) continue;
      // With a byte more, so that a line that is cut is seen to be.
      const std::uint64_t most = history::kLogTailBytes + 1;
      const std::uint64_t from = file->size > most ? file->size - most : 0;
      std::string text = ReadAt(*file, from, static_cast<std::size_t>(file->size - from));
      if (!text.empty() && text.back() != '\n') text += '\n';
      tails.push_back({log.pod, replaced, std::move(text)});
    }
  }
  return tails;
}

PodLogStream::PodLogStream(std::string job_folder, const clock::Clock& clock, LogRequest request)
    : folder_(std::move(job_folder)),
      clock_(clock),
      request_(std::move(request)),
      deadline_(clock.Now() + request_.timeout),
      last_said_(clock.Now()) {}

// Where the last lines begin.
std::uint64_t PodLogStream::TailOf(const OpenFile& file) const {
  if (!request_.tail) return 0;
  if (*request_.tail == 0) return file.size;
  const std::uint64_t from = file.size > kTailBytes ? file.size - kTailBytes : 0;
  const std::string text = ReadAt(file, from, static_cast<std::size_t>(file.size - from));
  std::int64_t lines = 0;
  for (std::size_t i = text.size(); i > 0; --i) {
    if (text[i - 1] == '\n' && i < text.size() && ++lines == *request_.tail) return from + i;
  }
  return from;
}

std::string PodLogStream::Say(const PodLog& log, std::string_view lines) const {
  if (!request_.events && !request_.pod.empty()) return std::string(lines);
  std::string text;
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    const std::string line(lines.substr(0, end));
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (request_.events) {
      text += EventText("log", json::Dump({{"pod", log.pod}, {"line", line}}));
    } else {
      absl::StrAppend(&text, "[", log.pod, "] ", line, "\n");
    }
  }
  return text;
}

// Adds what is new of one pod to `text`; false: nothing is. `all`: a last line without its end too.
bool PodLogStream::ReadSome(const PodLog& log, bool all, std::string& text) {
  const absl::StatusOr<OpenFile> file = OpenBeneath(folder_, log.file);
  if (!file.ok()) return false;
  Place& place = places_[log.file];
  if (!std::exchange(place.begun, true)) place.offset = TailOf(*file);
  if (place.offset > file->size) place.offset = 0;  // it was begun anew
  std::string fresh = ReadAt(*file, place.offset, kLogPiece);
  const std::size_t end = fresh.rfind('\n');
  if (end == std::string::npos) {
    if (fresh.empty() || (!all && fresh.size() < kLogPiece)) return false;
  } else {
    fresh.resize(end + 1);
  }
  place.offset += fresh.size();
  if (fresh.back() != '\n') fresh += '\n';
  text += Say(log, fresh);
  return true;
}

http::BodyStream::Piece PodLogStream::End(Piece piece, std::string_view reason) const {
  if (request_.events) piece.bytes += EndText(reason);
  piece.ended = true;
  return piece;
}

// Whether nothing more is to come from these pods.
bool PodLogStream::IsOver(const std::vector<PodLog>& logs, absl::Time now) {
  if (!request_.follow) return true;
  if (!request_.over || !request_.over()) return false;
  if (!finished_) finished_ = now;
  return now - *finished_ >= kPodsEndWithin ||
         std::all_of(logs.begin(), logs.end(),
                     [&](const PodLog& log) { return HasEnded(folder_, log); });
}

http::BodyStream::Piece PodLogStream::Next() {
  const absl::Time now = clock_.Now();
  const std::vector<PodLog> logs = FindPodLogs(folder_, request_);
  // Asked before the files are read: what is written until then is read below.
  const bool over = IsOver(logs, now);
  Piece piece;
  bool more = false;
  for (const PodLog& log : logs) {
    if (piece.bytes.size() >= kLogPiece) break;
    more = ReadSome(log, over, piece.bytes) || more;
  }
  if (over && !more) return End(std::move(piece), request_.follow ? "JobFinished" : "Complete");
  if (draining_) return End(std::move(piece), "Shutdown");
  if (now >= deadline_) return End(std::move(piece), "Deadline");
  if (!more && request_.events && now - last_said_ >= kLogHeartbeatEvery) piece.bytes = kHeartbeat;
  if (!piece.bytes.empty()) last_said_ = now;
  piece.pause =
      more ? absl::Seconds(static_cast<double>(piece.bytes.size()) / kBytesPerSecond) : kLookEvery;
  return piece;
}

}  // namespace starling::service
