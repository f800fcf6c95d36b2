// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/audit_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"

namespace starling::data {
namespace {

constexpr std::string_view kStepKey = "\"step\":";
constexpr std::size_t kPiece = 1 << 20;         // written at once
constexpr std::int64_t kTailPiece = 64 * 1024;  // read at once from the end

// The step of a whole line, nothing for what is no line of an audit.
std::optional<std::int64_t> StepOf(std::string_view line) {
  const auto key = line.find(kStepKey);
  if (line.empty() || line.front() != '{' || line.back() != '}' || key == std::string_view::npos) {
    return std::nullopt;
  }
  const char* const begin = line.data() + key + kStepKey.size();
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(begin, line.data() + line.size(), step);
  if (error != std::errc() || *end != ',' || step < 1) return std::nullopt;
  return step;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(const std::string& job_dir,
                                                         const Batches& batches) {
  const std::string folder = job_dir + "/audit";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::string path = folder + "/steps.jsonl";
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot open the audit ", path, ": ", std::strerror(errno)));
  }
  std::unique_ptr<AuditLog> log(new AuditLog(file, path, batches));
  const absl::Status status = log->Locked([] { return absl::OkStatus(); });
  // Another process that is just writing leaves a whole line behind: the next call looks again.
  if (!status.ok() && !absl::IsUnavailable(status)) return status;
  return log;
}

AuditLog::AuditLog(int file, std::string path, const Batches& batches)
    : file_(file), path_(std::move(path)), batches_(batches) {}

AuditLog::~AuditLog() { ::close(file_); }

template <typename Action>
absl::Status AuditLog::Locked(const Action& action) {
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return absl::UnavailableError("another process writes the audit");
    return Failed("lock");
  }
  absl::Status status = Recover();
  if (status.ok()) status = action();
  ::flock(file_, LOCK_UN);
  return status;
}

absl::Status AuditLog::AppendUpTo(std::int64_t step) {
  if (step <= last_step_) return absl::OkStatus();
  return Locked([&]() -> absl::Status {
    std::string lines;
    for (std::int64_t next = last_step_ + 1; next <= step; ++next) {
      absl::StrAppend(&lines, batches_.AuditLine(next), "\n");
      if (lines.size() < kPiece && next < step) continue;
      RETURN_IF_ERROR(Append(lines));
      last_step_ = next;
      lines.clear();
    }
    return absl::OkStatus();
  });
}

absl::Status AuditLog::TruncateAfter(std::int64_t step) {
  return Locked([&]() -> absl::Status {
    if (last_step_ <= step) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::string content, ReadRange(0, size_));
    std::size_t kept = 0;
    std::int64_t last = 0;
    while (kept < content.size()) {
      const auto end = content.find('\n', kept);
      const auto found = StepOf(std::string_view(content).substr(kept, end - kept));
      if (!found.has_value() || *found > step) break;
      last = *found;
      kept = end + 1;
    }
    RETURN_IF_ERROR(CutTo(static_cast<std::int64_t>(kept)));
    last_step_ = last;
    return absl::OkStatus();
  });
}

// Finds the last whole line and cuts what stands behind it, if the file is not as we left it.
absl::Status AuditLog::Recover() {
  struct stat info {};
  if (::fstat(file_, &info) != 0) return Failed("look at");
  if (info.st_size == size_) return absl::OkStatus();
  std::int64_t begin = info.st_size;
  std::string tail;
  while (true) {
    // `tail` is the file from `begin` on; the newline that ends its last line is looked for.
    const auto newline = tail.rfind('\n');
    const auto before = newline == std::string::npos || newline == 0
                            ? std::string::npos
                            : tail.rfind('\n', newline - 1);
    const bool whole_line =
        newline != std::string::npos && (before != std::string::npos || begin == 0);
    if (whole_line) {
      const std::size_t start = before == std::string::npos ? 0 : before + 1;
      const auto step = StepOf(std::string_view(tail).substr(start, newline - start));
      if (step.has_value()) {
        last_step_ = *step;
        return CutTo(begin + static_cast<std::int64_t>(newline) + 1);
      }
      tail.resize(start);
    } else if (begin == 0) {
      last_step_ = 0;
      return CutTo(0);
    } else {
      const std::int64_t next = std::max<std::int64_t>(0, begin - kTailPiece);
      ASSIGN_OR_RETURN(const std::string piece, ReadRange(next, begin));
      tail.insert(0, piece);
      begin = next;
    }
  }
}

absl::Status AuditLog::CutTo(std::int64_t size) {
  if (::ftruncate(file_, size) != 0) return Failed("shorten");
  size_ = size;
  return absl::OkStatus();
}

absl::Status AuditLog::Append(const std::string& lines) {
  std::string_view rest = lines;
  while (!rest.empty()) {
    const ssize_t count = ::write(file_, rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      absl::Status failed = Failed("append to");
      RETURN_IF_ERROR(CutTo(size_));
      return failed;
    }
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
  size_ += static_cast<std::int64_t>(lines.size());
  return absl::OkStatus();
}

absl::StatusOr<std::string> AuditLog::ReadRange(std::int64_t begin, std::int64_t end) const {
  std::string content(static_cast<std::size_t>(end - begin), '\0');
  std::size_t done = 0;
  while (done < content.size()) {
    const ssize_t count = ::pread(file_, content.data() + done, content.size() - done,
                                  begin + static_cast<std::int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Failed("read");
    done += static_cast<std::size_t>(count);
  }
  return content;
}

absl::Status AuditLog::Failed(const char* what) const {
  const std::string message =
      absl::StrCat("cannot ", what, " the audit ", path_, ": ", std::strerror(errno));
  return errno == ENOSPC || errno == EDQUOT ? absl::ResourceExhaustedError(message)
                                            : absl::InternalError(message);
}

}  // namespace starling::data
