// SPDX-License-Identifier: Apache-2.0
// No signal reaches this thread for as long as one of these lives: a handler of this process must
// not run in a child that begins with its handlers and its memory, or a copy of it.
//
// Standard library only, so that the static supervisor can use it too.
#pragma once

#include <pthread.h>

#include <csignal>

namespace starling::process {

class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace starling::process
