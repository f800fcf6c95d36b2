// SPDX-License-Identifier: Apache-2.0
#include "trainer/embed/forks.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
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

// Links in shared memory, and what listens for them, are sockets with a name of the transport's and
// no file (trainer/transport/mixed_transport.cc).
bool IsNamed(const net::SocketAddress& address) {
  constexpr std::string_view kOurs("\0starling-", 10);
  sockaddr_un name;
  if (address.storage.ss_family != AF_UNIX || address.size > sizeof name) return false;
  std::memcpy(&name, &address.storage, address.size);
  const std::size_t length = address.size - offsetof(sockaddr_un, sun_path);
  return std::string_view(name.sun_path, length).starts_with(kOurs);
}

// One end of a socket; no host: it has none.
net::Address EndOf(const net::SocketAddress& found) {
  const auto address = net::FromSocketAddress(found);
  if (!address.ok()) return {};
  // gRPC listens to an IPv4 address on an IPv6 socket.
  constexpr std::string_view kMapped = "::ffff:";
  const bool mapped = address->host.starts_with(kMapped);
  return {.host = mapped ? address->host.substr(kMapped.size()) : address->host,
          .port = address->port};
}

net::SocketAddress Ask(int file, int (*question)(int, sockaddr*, socklen_t*)) {
  net::SocketAddress found;
  found.size = sizeof found.storage;
  if (question(file, found.get(), &found.size) != 0) return {};
  return found;
}

bool IsMembers(int file, const std::string& address) {
  const net::SocketAddress there = Ask(file, &getpeername);
  const net::SocketAddress own = Ask(file, &getsockname);
  if (IsNamed(there) || IsNamed(own)) return true;
  if (EndOf(there).port == net::kDataPort) return true;  // this member has dialled
  const net::Address here = EndOf(own);
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
