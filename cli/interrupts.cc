// SPDX-License-Identifier: Apache-2.0
#include "cli/interrupts.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

namespace starling::cli {
namespace {

sigset_t Caught() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGINT);
  ::sigaddset(&set, SIGTERM);
  struct sigaction hangup {};
  // Under nohup a hang-up stays ignored.
  if (::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) {
    ::sigaddset(&set, SIGHUP);
  }
  return set;
}

}  // namespace

SignalInterrupts::SignalInterrupts() {
  const sigset_t set = Caught();
  // A script that starts us in the background has SIGINT ignored, and an ignored one never arrives.
  ::signal(SIGINT, SIG_DFL);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  descriptor_ = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

SignalInterrupts::~SignalInterrupts() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int SignalInterrupts::count() const {
  signalfd_siginfo info{};
  while (::read(descriptor_, &info, sizeof info) == sizeof info) ++count_;
  return count_;
}

void SignalInterrupts::Wait(absl::Duration timeout) const {
  pollfd waiting{descriptor_, POLLIN, 0};
  ::poll(&waiting, 1,
         static_cast<int>(std::max<std::int64_t>(0, absl::ToInt64Milliseconds(timeout))));
}

}  // namespace starling::cli
