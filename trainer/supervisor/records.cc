// SPDX-License-Identifier: Apache-2.0
#include "trainer/supervisor/records.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

namespace starling::supervisor {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kNanosPerSecond = 1'000'000'000;

// Log lines may hold any bytes.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string FormatTime(std::int64_t unix_nanos) {
  const std::time_t seconds = unix_nanos / kNanosPerSecond;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[64];
  const std::size_t length = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
  char fraction[16];
  std::snprintf(fraction, sizeof(fraction), ".%06dZ",
                static_cast<int>(unix_nanos % kNanosPerSecond / 1000));
  return std::string(text, length) + fraction;
}

bool WriteAll(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

std::string ToJson(const ExitRecord& record) {
  return Dump({{"exitCode", record.exit_code},
               {"signal", record.signal},
               {"reason", record.reason},
               {"message", record.message},
               {"startedAt", FormatTime(record.started_at_nanos)},
               {"finishedAt", FormatTime(record.finished_at_nanos)},
               {"restarts", record.restarts}});
}

std::string ToShortJson(ExitRecord record, std::size_t most) {
  for (;;) {
    std::string json = ToJson(record);
    if (json.size() <= most || record.message.empty()) return json;
    // What is cut is the oldest; escaping makes it hard to say how much.
    record.message.erase(0, std::min(record.message.size(), json.size() - most));
  }
}

std::string LastExitJson(const process::ExitStatus& status, const std::string& log_tail,
                         std::int64_t unix_nanos) {
  return Dump({{"exitCode", status.ShellCode()},
               {"signal", status.signal},
               {"logTail", log_tail},
               {"unixNanos", unix_nanos}});
}

std::int64_t UnixNanosNow() {
  std::timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::int64_t>(now.tv_sec) * kNanosPerSecond + now.tv_nsec;
}

bool WriteFileAtomically(const std::string& path, std::string_view text, bool sync) {
  const std::string temporary = path + ".new";
  const int descriptor =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor < 0) return false;
  bool whole = WriteAll(descriptor, text);
  if (whole && sync) whole = fsync(descriptor) == 0;
  close(descriptor);
  if (whole) whole = rename(temporary.c_str(), path.c_str()) == 0;
  if (!whole) unlink(temporary.c_str());
  return whole;
}

}  // namespace starling::supervisor
