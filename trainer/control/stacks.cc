// SPDX-License-Identifier: Apache-2.0
#include "trainer/control/stacks.h"

#include <dirent.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <fstream>
#include <memory>
#include <string_view>

#include "absl/debugging/symbolize.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"

namespace starling::control {
namespace {

// The handler's own frame and the kernel's return from it.
constexpr int kOfTheSignal = 2;

struct Capture {
  std::int64_t thread = 0;
  std::array<void*, kMostFrames + kOfTheSignal> counters = {};
  int count = 0;
  std::atomic<bool> done = false;
};

// What a signal handler writes to: it is given nothing else.
std::atomic<Capture*> wanted =
    nullptr;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

int Signal() { return SIGRTMIN + 3; }
std::int64_t Self() { return syscall(SYS_gettid); }

void OnSignal(int) {
  const int error = errno;
  Capture* capture = wanted.load();
  if (capture != nullptr && capture->thread == Self() && !capture->done) {
    capture->count =
        backtrace(capture->counters.data(), static_cast<int>(capture->counters.size()));
    capture->done = true;
  }
  errno = error;
}

std::string ReadOf(std::int64_t thread, const char* what) {
  std::ifstream file(absl::StrCat("/proc/self/task/", thread, "/", what));
  std::string text;
  std::getline(file, text);
  return text;
}

std::vector<std::int64_t> Threads() {
  std::vector<std::int64_t> threads;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/task"), closedir);
  if (folder == nullptr) return threads;
  while (const dirent* entry = readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    std::int64_t thread = 0;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), thread);
    if (read.ec == std::errc() && thread != Self()) threads.push_back(thread);
  }
  return threads;
}

// "program(function+0x12)" in the words that people know: the function, else file and address.
std::string NameOf(void* counter) {
  std::array<char, 512> name{};
  // The call is before the address that it returns to.
  void* const call = static_cast<char*>(counter) - 1;
  if (absl::Symbolize(call, name.data(), static_cast<int>(name.size()))) return name.data();
  Dl_info info = {};
  if (dladdr(call, &info) == 0 || info.dli_fname == nullptr) {
    return absl::StrFormat("%p", counter);
  }
  const std::string_view path = info.dli_fname;
  const auto offset = static_cast<char*>(counter) - static_cast<char*>(info.dli_fbase);
  return absl::StrCat(std::string(path.substr(path.rfind('/') + 1)), "+0x", absl::Hex(offset));
}

bool Answers(Capture& capture, absl::Duration patience) {
  wanted = &capture;
  if (syscall(SYS_tgkill, getpid(), capture.thread, Signal()) != 0) return false;
  const absl::Time until = absl::Now() + patience;
  while (!capture.done && absl::Now() < until) absl::SleepFor(absl::Milliseconds(1));
  return capture.done;
}

ThreadStack StackOf(std::int64_t thread, absl::Duration patience) {
  ThreadStack stack;
  stack.thread = thread;
  stack.name = ReadOf(thread, "comm");
  const std::string stat = ReadOf(thread, "stat");
  const auto behind = stat.rfind(") ");
  if (behind != std::string::npos) stack.state = stat.substr(behind + 2, 1);
  stack.kernel = ReadOf(thread, "wchan");
  if (stack.kernel == "0") stack.kernel.clear();
  // One that answers too late finds it still there.
  auto* const capture = new Capture;  // NOLINT(cppcoreguidelines-owning-memory): see above
  capture->thread = thread;
  if (!Answers(*capture, patience)) return stack;
  for (int i = kOfTheSignal; i < capture->count; ++i) {
    stack.frames.push_back(NameOf(capture->counters[static_cast<std::size_t>(i)]));
  }
  return stack;
}

}  // namespace

std::vector<ThreadStack> StacksOfOtherThreads(std::int64_t last, absl::Duration patience) {
  absl::InitializeSymbolizer("/proc/self/exe");
  std::array<void*, 1> loaded{};
  backtrace(loaded.data(), 1);  // loads the unwinder, which a signal handler must not
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigaction(Signal(), &action, nullptr);
  std::vector<std::int64_t> threads = Threads();
  std::stable_partition(threads.begin(), threads.end(),
                        [last](std::int64_t thread) { return thread != last; });
  std::vector<ThreadStack> stacks;
  stacks.reserve(threads.size());
  for (const std::int64_t thread : threads) stacks.push_back(StackOf(thread, patience));
  wanted = nullptr;
  return stacks;
}

std::string InOneLine(const ThreadStack& stack, std::size_t most) {
  std::string text =
      stack.frames.empty() ? "does not answer a signal" : absl::StrJoin(stack.frames, " < ");
  if (text.size() <= most) return text;
  text.resize(most);
  return text + "...";
}

}  // namespace starling::control
