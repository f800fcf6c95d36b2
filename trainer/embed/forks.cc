// SPDX-License-Identifier: Apache-2.0
#include "trainer/embed/forks.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "common/net/address.h"
#include "common/net/ports.h"
#include "trainer/embed/leave_signal.h"

namespace starling::embed {
namespace {

// fork() asks for nothing but a function.
std::string& MemberAddress() {
  static auto* const address = new std::string();
  return *address;
}

constexpr std::array kListening = {net::kMemberPort, net::kDataPort, net::kMetricsPort};

// One end of a socket; no host: it has none.
net::Address EndOf(int file, int (*ask)(int, sockaddr*, socklen_t*)) {
  net::SocketAddress found;
  found.size = sizeof found.storage;
  if (ask(file, found.get(), &found.size) != 0) return {};
  const auto address = net::FromSocketAddress(found);
  if (!address.ok()) return {};
  // gRPC listens to an IPv4 address on an IPv6 socket.
  constexpr std::string_view kMapped = "::ffff:";
  const bool mapped = address->host.starts_with(kMapped);
  return {.host = mapped ? address->host.substr(kMapped.size()) : address->host,
          .port = address->port};
}

bool IsMembers(int file, const std::string& address) {
  if (EndOf(file, &getpeername).port == net::kDataPort) return true;  // this member has dialled
  const net::Address here = EndOf(file, &getsockname);
  return here.host == address && std::ranges::find(kListening, here.port) != kListening.end();
}

std::vector<int> OpenFiles() {
  std::vector<int> files;
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return files;
  while (const dirent* const entry = readdir(folder)) {
    const int file = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && file != dirfd(folder)) files.push_back(file);
  }
  closedir(folder);
  return files;
}

void InChild() {
  ForgetLeaveSignal();
  if (!MemberAddress().empty()) CloseMemberSockets(MemberAddress());
}

}  // namespace

int CloseMemberSockets(const std::string& address) {
  int closed = 0;
  for (const int file : OpenFiles()) {
    if (IsMembers(file, address) && close(file) == 0) ++closed;
  }
  return closed;
}

void CloseInForks(const std::string& address) {
  static const int registered = pthread_atfork(nullptr, nullptr, &InChild);
  (void)registered;
  MemberAddress() = address;
}

}  // namespace starling::embed
