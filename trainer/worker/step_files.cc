// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/step_files.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/log/log.h"

namespace starling::worker {
namespace {

net::FileDescriptor Open(const std::string& path, int flags) {
  if (path.empty()) return {};
  net::FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644));
  if (!file.valid()) {
    log::Warning("cannot write a step file", {{"path", path}, {"why", std::strerror(errno)}});
  }
  return file;
}

}  // namespace

StepFiles::StepFiles(const std::string& progress_path, const std::string& log_path)
    : progress_(Open(progress_path, O_TRUNC)), log_(Open(log_path, O_APPEND)) {}

void StepFiles::Settled(int64_t step) {
  if (!progress_.valid()) return;
  const std::string text = absl::StrCat(step);
  // One write; the number of a process never gets shorter.
  if (pwrite(progress_.get(), text.data(), text.size(), 0) < 0) progress_.Reset();
}

void StepFiles::Completed(int64_t step) {
  if (!log_.valid()) return;
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  const std::string line =
      absl::StrFormat("step %d %d.%06d %d\n", step, now.tv_sec, now.tv_nsec / 1000, getpid());
  if (write(log_.get(), line.data(), line.size()) < 0) log_.Reset();
}

}  // namespace starling::worker
