// SPDX-License-Identifier: Apache-2.0
#include "trainer/embed/leave_signal.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"

namespace starling::embed {
namespace {

// A handler is told nothing but the signal's number. -1: nobody watches.
std::atomic<int> told = -1;
static_assert(std::atomic<int>::is_always_lock_free, "signal handlers use it");

void OnSignal(int /*signal*/) {
  const int saved = errno;
  const std::uint64_t one = 1;
  if (const int file = told; file >= 0) (void)!write(file, &one, sizeof one);
  errno = saved;
}

void Handle(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
}

// False when `stop` came first, or the time is over.
bool WaitFor(int asked, int stop, absl::Duration timeout) {
  const auto milliseconds = timeout == absl::InfiniteDuration()
                                ? -1
                                : static_cast<int>(absl::ToInt64Milliseconds(timeout));
  std::array<pollfd, 2> files = {{{.fd = asked, .events = POLLIN, .revents = 0},
                                  {.fd = stop, .events = POLLIN, .revents = 0}}};
  while (poll(files.data(), files.size(), milliseconds) < 0 && errno == EINTR) {
  }
  return files[1].revents == 0 && files[0].revents != 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LeaveSignal>> LeaveSignal::Watch(std::function<void()> terminate,
                                                                absl::Duration grace,
                                                                std::function<void()> grace_over) {
  net::FileDescriptor asked(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  net::FileDescriptor stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!asked.valid() || !stop.valid()) {
    return absl::UnavailableError(absl::StrCat("eventfd: ", std::strerror(errno)));
  }
  const int asked_file = asked.get();
  const int stop_file = stop.get();
  std::unique_ptr<LeaveSignal> made(new LeaveSignal(std::move(asked), std::move(stop)));
  made->thread_ =
      std::thread([=, terminate = std::move(terminate), grace_over = std::move(grace_over)] {
        if (!WaitFor(asked_file, stop_file, absl::InfiniteDuration())) return;
        log::Info("asked to leave", {{"signal", SIGTERM}});
        terminate();
        std::array<pollfd, 1> files = {{{.fd = stop_file, .events = POLLIN, .revents = 0}}};
        if (poll(files.data(), 1, static_cast<int>(absl::ToInt64Milliseconds(grace))) == 0) {
          grace_over();
        }
      });
  told = asked_file;
  Handle(&OnSignal);
  return made;
}

LeaveSignal::LeaveSignal(net::FileDescriptor asked, net::FileDescriptor stop)
    : asked_(std::move(asked)), stop_(std::move(stop)) {}

LeaveSignal::~LeaveSignal() {
  ForgetLeaveSignal();
  const std::uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
}

void ForgetLeaveSignal() {
  if (told.exchange(-1) < 0) return;
  struct sigaction present = {};
  sigaction(SIGTERM, nullptr, &present);
  if (present.sa_handler == &OnSignal) Handle(SIG_DFL);
}

}  // namespace starling::embed
