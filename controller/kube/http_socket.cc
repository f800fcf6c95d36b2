// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/http_socket.h"

#include <fcntl.h>
#include <linux/tcp.h>  // newer than the C library's, and not to be mixed with it
#include <netinet/in.h>
#include <sys/socket.h>

namespace starling::kube {
namespace {

constexpr int kIdleSeconds = 15;
constexpr int kProbeSeconds = 5;
constexpr int kProbes = 3;
constexpr int kUnacknowledgedMilliseconds = 30'000;

void SetOption(int socket, int level, int name, int value) {
  (void)::setsockopt(socket, level, name, &value, sizeof(value));
}

}  // namespace

void PrepareSocket(int socket) {
  ::fcntl(socket, F_SETFD, FD_CLOEXEC);
  SetOption(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  SetOption(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnacknowledgedMilliseconds);
}

std::uint64_t BytesReceived(int socket) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return info.tcpi_bytes_received;
}

}  // namespace starling::kube
