// SPDX-License-Identifier: Apache-2.0
#include "trainer/supervisor/install.h"

#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>

namespace starling::supervisor {
namespace {

constexpr std::chrono::milliseconds kAskAgain{200};
constexpr mode_t kExecutable = 0755;
constexpr char kPackage[] = "/opt/starling/python";  // in our image

std::string Failure(const char* what, const std::string& path) {
  return std::string(what) + " " + path + ": " + std::strerror(errno);
}

// Everything that `in` holds. Returns whether it got there.
bool CopyAll(int in, int out) {
  for (;;) {
    const ssize_t sent = sendfile(out, in, nullptr, std::size_t{1} << 24);
    if (sent == 0) return true;
    if (sent < 0 && errno != EINTR) return false;
  }
}

// PID 1 has no default action for signals: without this the pod could not be ended while it waits.
void EndOnSignal() {
  struct sigaction action {};
  action.sa_handler = [](int signal) { _exit(128 + signal); };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace

std::string ParseInstallOptions(const std::vector<std::string>& arguments,
                                InstallOptions& options) {
  for (std::size_t i = 0; i < arguments.size(); i += 2) {
    const std::string& name = arguments[i];
    const bool known = name == "--install" || name == "--await-name" || name == "--package";
    if (!known) return "unknown flag " + name + " beside --install";
    if (i + 1 == arguments.size() || arguments[i + 1].empty()) return name + " needs a value";
    if (name == "--install") {
      options.path = arguments[i + 1];
    } else if (name == "--package") {
      options.package = arguments[i + 1];
    } else {
      options.await_names.push_back(arguments[i + 1]);
    }
  }
  return {};
}

std::string InstallFile(const std::string& from, const std::string& path) {
  const std::string temporary = path + ".new";
  const int in = open(from.c_str(), O_RDONLY | O_CLOEXEC);
  if (in < 0) return Failure("cannot read", from);
  const int out = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kExecutable);
  std::string problem = out < 0 ? Failure("cannot write", temporary) : std::string();
  if (problem.empty() && !CopyAll(in, out)) problem = Failure("cannot write", temporary);
  // Not as the umask has it: the container may run as any user.
  if (problem.empty() && fchmod(out, kExecutable) != 0)
    problem = Failure("cannot chmod", temporary);
  if (out >= 0 && close(out) != 0 && problem.empty()) problem = Failure("cannot write", temporary);
  close(in);
  if (problem.empty() && rename(temporary.c_str(), path.c_str()) != 0) {
    problem = Failure("cannot rename to", path);
  }
  return problem;
}

std::string InstallFolder(const std::string& from, const std::string& to) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::create_directories(to, error);
  if (!error) {
    constexpr auto kHow = fs::copy_options::recursive | fs::copy_options::overwrite_existing;
    fs::copy(from, to, kHow, error);
  }
  if (error) return "cannot copy " + from + " to " + to + ": " + error.message();
  fs::permissions(to, fs::perms(kExecutable), error);
  for (fs::recursive_directory_iterator file(to, error), end; !error && file != end;
       file.increment(error)) {
    fs::permissions(file->path(), fs::perms(kExecutable), error);
  }
  return error ? "cannot chmod " + to + ": " + error.message() : std::string();
}

void AwaitName(const std::string& name, const std::function<bool(const std::string&)>& resolves,
               const std::function<void()>& pause) {
  while (!resolves(name)) pause();
}

bool Resolves(const std::string& name) {
  addrinfo* found = nullptr;
  const bool resolved = getaddrinfo(name.c_str(), nullptr, nullptr, &found) == 0;
  if (resolved) freeaddrinfo(found);
  return resolved;
}

int Install(const InstallOptions& options) {
  EndOnSignal();
  std::string problem = InstallFile("/proc/self/exe", options.path);
  if (problem.empty() && !options.package.empty()) {
    problem = InstallFolder(kPackage, options.package);
  }
  if (!problem.empty()) {
    std::fprintf(stderr, "starling-supervisor: %s\n", problem.c_str());
    return 1;
  }
  for (const std::string& name : options.await_names) {
    std::fprintf(stderr, "starling-supervisor: waiting for %s to have an address\n", name.c_str());
    AwaitName(name, &Resolves, [] { std::this_thread::sleep_for(kAskAgain); });
  }
  return 0;
}

}  // namespace starling::supervisor
