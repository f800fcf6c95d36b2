// SPDX-License-Identifier: Apache-2.0
// For tests of HTTPS servers: a client that believes one authority and says exactly what it is
// told.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <string_view>

namespace starling::http {

class TestTlsClient {
 public:
  // Connects to 127.0.0.1 and shakes hands, unless `handshake` is false: then only bytes are sent.
  TestTlsClient(int port, const std::string& authority, const std::string& name,
                bool handshake = true, int highest_version = TLS1_3_VERSION)
      : context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free),
        socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to peers that have hung up
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval timeout{5, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      return;
    }
    if (handshake) Handshake(authority, name, highest_version);
  }
  ~TestTlsClient() {
    ssl_.reset();
    ::close(socket_);
  }
  TestTlsClient(const TestTlsClient&) = delete;
  TestTlsClient& operator=(const TestTlsClient&) = delete;

  // Whether the server proved to be `name`, by `authority`.
  bool trusted() const { return trusted_; }

  bool Send(std::string_view text) {
    if (ssl_ == nullptr) {
      return ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) ==
             static_cast<ssize_t>(text.size());
    }
    return SSL_write(ssl_.get(), text.data(), static_cast<int>(text.size())) > 0;
  }

  // Everything up to the peer's close, or up to `until` if it is given, or what came in 5 s.
  std::string Receive(std::string_view until = {}) {
    std::string answer;
    char buffer[4096];
    while (until.empty() || answer.find(until) == std::string::npos) {
      const auto count = ssl_ == nullptr ? ::recv(socket_, buffer, sizeof(buffer), 0)
                                         : SSL_read(ssl_.get(), buffer, sizeof(buffer));
      if (count <= 0) break;
      answer.append(buffer, static_cast<std::size_t>(count));
    }
    return answer;
  }

 private:
  void Handshake(const std::string& authority, const std::string& name, int highest_version) {
    BIO* text = BIO_new_mem_buf(authority.data(), static_cast<int>(authority.size()));
    while (X509* root = PEM_read_bio_X509(text, nullptr, nullptr, nullptr)) {
      X509_STORE_add_cert(SSL_CTX_get_cert_store(context_.get()), root);
      X509_free(root);
    }
    BIO_free(text);
    SSL_CTX_set_max_proto_version(context_.get(), highest_version);
    SSL_CTX_set_security_level(context_.get(), 0);
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    ssl_ = {SSL_new(context_.get()), SSL_free};
    SSL_set1_host(ssl_.get(), name.c_str());
    SSL_set_tlsext_host_name(ssl_.get(), name.c_str());
    SSL_set_fd(ssl_.get(), socket_);
    trusted_ = SSL_connect(ssl_.get()) == 1;
  }

  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_{nullptr, SSL_free};
  int socket_;
  bool trusted_ = false;
};

}  // namespace starling::http
