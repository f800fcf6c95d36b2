// SPDX-License-Identifier: Apache-2.0
#include "trainer/metric_export/tensorboard_sink.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/macros.h"
#include "trainer/metric_export/event_file.h"

namespace starling::metric_export {
namespace {

constexpr absl::string_view kPrefix = "events.out.tfevents.";
constexpr std::size_t kDigits = 10;  // of the seconds in a file's name
constexpr char kVersion[] = "brain.Event:2";
constexpr char kFolderRemedy[] =
    "; make room there, or make the folder writable for the coordinator's user: training goes on, "
    "and what comes then is written";

absl::Status Failed(const std::string& what, const std::string& path, int error) {
  return absl::ErrnoToStatus(error, absl::StrCat("cannot ", what, " ", path, kFolderRemedy));
}

// The event files of a folder in the order in which TensorBoard reads them; none if it is not
// there.
std::vector<std::string> EventFiles(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (absl::StartsWith(name, kPrefix)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::int64_t SecondsIn(const std::string& name) {
  std::int64_t seconds = 0;
  return absl::SimpleAtoi(name.substr(kPrefix.size(), kDigits), &seconds) ? seconds : 0;
}

tensorboard::Event EventAt(std::int64_t step, absl::Time time) {
  tensorboard::Event event;
  event.set_wall_time(absl::ToDoubleSeconds(time - absl::UnixEpoch()));
  event.set_step(step);
  return event;
}

std::string StartAt(std::int64_t step, absl::Time time) {
  tensorboard::Event start = EventAt(step, time);
  start.mutable_session_log()->set_status(tensorboard::SessionLog::START);
  return RecordOf(start);
}

std::string RecordsOf(const RunRecord::News& news) {
  const Points& points = news.points;
  std::string records;
  if (news.restart_at) records += StartAt(*news.restart_at, points.time);
  tensorboard::Event event = EventAt(points.step, points.time);
  for (const auto& [name, value] : points.values) {
    tensorboard::Summary::Value& scalar = *event.mutable_summary()->add_value();
    scalar.set_tag(name);
    scalar.set_simple_value(static_cast<float>(value));
  }
  if (event.has_summary()) records += RecordOf(event);
  return records;
}

void Take(const tensorboard::Event& event, RunRecord& record) {
  if (event.session_log().status() == tensorboard::SessionLog::START) record.Restart(event.step());
  for (const tensorboard::Summary::Value& scalar : event.summary().value()) {
    record.Take(event.step(), scalar.tag(), scalar.simple_value());
  }
}

}  // namespace

TensorBoardSink::TensorBoardSink(std::string folder, std::string writer)
    : folder_(std::move(folder)), writer_(std::move(writer)) {}

// Its name comes after those of all files that are there, whatever this machine's clock says:
// TensorBoard reads them in the order of their names. Each file begins with a start behind what is
// told, which takes nothing back: of a run's starts TensorBoard heeds all but the first.
absl::Status TensorBoardSink::Begin(absl::Time now) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) return Failed("make the folder", folder_, error.value());
  record_ = {};
  std::int64_t seconds = absl::ToUnixSeconds(now);
  for (const std::string& name : EventFiles(folder_)) {
    RETURN_IF_ERROR(ReadEvents(absl::StrCat(folder_, "/", name),
                               [this](const tensorboard::Event& event) { Take(event, record_); }));
    seconds = std::max(seconds, SecondsIn(name) + 1);
  }
  path_ = absl::StrFormat("%s/%s%010d.%s", folder_, kPrefix, seconds, writer_);
  file_ = net::FileDescriptor(
      ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644));
  if (!file_.valid()) return Failed("make", path_, errno);
  size_ = 0;
  tensorboard::Event first = EventAt(0, now);
  first.set_file_version(kVersion);
  return Append(RecordOf(first) + StartAt(record_.newest() + 1, now));
}

absl::Status TensorBoardSink::Append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int why = errno;
      // Half a record would hide all that comes behind it. Where it cannot be taken back, or where
      // there is nothing else in it, the next points begin another file.
      if (size_ == 0 || ::ftruncate(file_.get(), size_) != 0) file_ = {};
      if (size_ == 0) ::unlink(path_.c_str());
      return Failed("write", path_, why);
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  struct stat status {};
  if (::fstat(file_.get(), &status) == 0) size_ = status.st_size;
  return absl::OkStatus();
}

absl::Status TensorBoardSink::Tell(const Points& points) {
  if (points.values.empty()) return absl::OkStatus();
  struct stat status {};
  // Whoever deletes the files begins anew; what is written into a deleted one nobody sees.
  const bool there = file_.valid() && ::fstat(file_.get(), &status) == 0 && status.st_nlink > 0;
  if (!there) RETURN_IF_ERROR(Begin(points.time));
  const RunRecord::News news = record_.NewsIn(points);
  RETURN_IF_ERROR(Append(RecordsOf(news)));
  record_.Take(news);
  return absl::OkStatus();
}

}  // namespace starling::metric_export
