// SPDX-License-Identifier: Apache-2.0
// A process of a test's own: what only a process can suffer (kill -9, a pause, limits) is tested
// with it. It is a fork of the test, made before the test has threads, which it would lack.
#pragma once

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "common/net/socket.h"
#include "common/status/check.h"

namespace starling::testing {

inline void WriteLine(int fd, const std::string& line) {
  const std::string text = line + "\n";
  (void)!::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
}

inline std::string ReadLine(int fd) {
  std::string line;
  for (char c = 0; ::recv(fd, &c, 1, 0) == 1 && c != '\n';) line.push_back(c);
  return line;
}

// A process that runs `body` with its end of a connection to the test, and exits with the result.
// Thread-compatible.
class Child {
 public:
  explicit Child(const std::function<int(int)>& body) {
    int ends[2] = {-1, -1};
    STARLING_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "a pair");
    control_ = net::FileDescriptor(ends[0]);
    net::FileDescriptor theirs(ends[1]);
    pid_ = ::fork();
    STARLING_CHECK(pid_ >= 0, "a process");
    if (pid_ != 0) return;
    control_.Reset();
    ::_exit(body(theirs.get()));
  }
  ~Child() {
    if (pid_ <= 0) return;
    Signal(SIGKILL);
    (void)Wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  std::string Read() const { return ReadLine(control_.get()); }
  void Write(const std::string& line) const { WriteLine(control_.get(), line); }
  void Signal(int signal) const { (void)::kill(pid_, signal); }
  void WaitUntilStopped() const {
    int status = 0;
    STARLING_CHECK(::waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status), "stopped");
  }
  // Exit code; 1000 and the signal of one that was killed.
  int Wait() {
    int status = 0;
    (void)::waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

 private:
  net::FileDescriptor control_;
  pid_t pid_ = 0;
};

}  // namespace starling::testing
