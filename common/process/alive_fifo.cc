// SPDX-License-Identifier: Apache-2.0
#include "common/process/alive_fifo.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace starling::process {

AliveHold::~AliveHold() {
  if (descriptor_ >= 0) close(descriptor_);
}

int AliveHold::Open(const std::string& path, AliveHold& hold) {
  if (mkfifo(path.c_str(), 0600) != 0 && errno != EEXIST) return errno;
  AliveHold opened;
  // For reading too: opening for writing alone would wait for a reader.
  opened.descriptor_ = open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
  if (opened.descriptor_ < 0) return errno;
  struct stat info {};
  if (fstat(opened.descriptor_, &info) != 0) return errno;
  if (!S_ISFIFO(info.st_mode)) return EEXIST;
  hold = std::move(opened);
  return 0;
}

AliveWatch::~AliveWatch() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool AliveWatch::HasWriter() {
  if (descriptor_ < 0) {
    descriptor_ = open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (descriptor_ < 0) return false;
  }
  // An empty FIFO reads as "try again" with a writer, as its end without one.
  char bytes[64];
  ssize_t got;
  do {
    got = read(descriptor_, bytes, sizeof(bytes));
  } while (got > 0 || (got < 0 && errno == EINTR));
  return got < 0 && errno == EAGAIN;
}

void AliveWatch::Check(Time now) {
  if (!watched()) return;
  if (HasWriter()) {
    lonely_since_ = Time::max();
    return;
  }
  if (!lonely()) lonely_since_ = now;
  // The folder may have been moved or made anew: look at the path again.
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
}

}  // namespace starling::process
