// SPDX-License-Identifier: Apache-2.0
// A client that says exactly what it is told, byte for byte. For tests.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>

namespace starling::http {

// Confined to one thread.
class RawClient {
 public:
  explicit RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ =
        ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~RawClient() { ::close(socket_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }

  bool Send(std::string_view text) {
    while (!text.empty()) {
      const auto sent = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  // Everything up to the peer's close, or up to `until` if it is given, or what came in 5 s.
  std::string Receive(std::string_view until = {}) {
    std::string answer;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (until.empty() || answer.find(until) == std::string::npos) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      pollfd poll{socket_, POLLIN, 0};
      if (left.count() <= 0 || ::poll(&poll, 1, static_cast<int>(left.count())) <= 0) {
        return answer + "<timeout>";
      }
      char buffer[4096];
      const auto count = ::recv(socket_, buffer, sizeof(buffer), 0);
      if (count <= 0) return answer;
      answer.append(buffer, static_cast<std::size_t>(count));
    }
    return answer;
  }

 private:
  int socket_;
  bool connected_ = false;
};

}  // namespace starling::http
