// SPDX-License-Identifier: Apache-2.0
#include "controller/manager/home_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace starling::manager {
namespace {

absl::Status Failure(int error, const std::string& path) {
  return absl::ErrnoToStatus(error, absl::StrCat("cannot lock ", path));
}

std::string ReadAll(int descriptor) {
  char text[32] = {};
  const ssize_t size = pread(descriptor, text, sizeof(text) - 1, 0);
  return size > 0 ? std::string(text, static_cast<std::size_t>(size)) : "unknown";
}

}  // namespace

absl::StatusOr<HomeLock> HomeLock::Take(const std::string& home) {
  std::error_code error;
  if (std::filesystem::create_directories(home, error)) {
    std::filesystem::permissions(home, std::filesystem::perms::owner_all, error);
  }
  const std::string path = home + "/controller.lock";
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) return Failure(errno, path);
  HomeLock lock(descriptor);
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return Failure(errno, path);
    return absl::AlreadyExistsError(
        absl::StrCat("another controller (pid ", ReadAll(descriptor), ") runs in ", home,
                     "; use it, end it with `starling down`, or choose another --home"));
  }
  const std::string pid = absl::StrCat(getpid());
  if (ftruncate(descriptor, 0) != 0 ||
      pwrite(descriptor, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return Failure(errno, path);
  }
  return lock;
}

HomeLock::~HomeLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace starling::manager
