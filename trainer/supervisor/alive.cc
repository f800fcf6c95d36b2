// SPDX-License-Identifier: Apache-2.0
#include "trainer/supervisor/alive.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace starling::supervisor {

AliveFifo::~AliveFifo() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool AliveFifo::HasWriter() {
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

void AliveFifo::Check(SteadyTime now) {
  if (!watched()) return;
  if (HasWriter()) {
    lonely_since_ = SteadyTime::max();
    return;
  }
  if (!lonely()) lonely_since_ = now;
  // The folder may have been moved or made anew: look at the path again.
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
}

}  // namespace starling::supervisor
