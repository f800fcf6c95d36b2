// SPDX-License-Identifier: Apache-2.0
// A server that answers as a test tells it to, byte by byte: broken, hostile, slow. For tests.
#pragma once

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/net/address.h"
#include "common/net/socket.h"
#include "common/sync/mutex.h"

namespace starling::http {

// A self-signed certificate and its key, made for a test. Thread-compatible.
class TestCertificate {
 public:
  // For the IP address; valid from now for `seconds`, which may be negative: it has expired.
  TestCertificate(const std::string& ip, long seconds) {
    key_.reset(EVP_EC_gen("P-256"));
    certificate_.reset(X509_new());
    X509* x = certificate_.get();
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -7200);
    X509_gmtime_adj(X509_getm_notAfter(x), seconds);
    X509_NAME* name = X509_get_subject_name(x);
    const auto* text = reinterpret_cast<const unsigned char*>("test");
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, text, -1, -1, 0);
    X509_set_issuer_name(x, name);
    X509_set_pubkey(x, key_.get());
    X509_EXTENSION* names =
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, ("IP:" + ip).c_str());
    X509_add_ext(x, names, -1);
    X509_EXTENSION_free(names);
    X509_sign(x, key_.get(), EVP_sha256());
  }

  std::string Pem() const {
    const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new(BIO_s_mem()), BIO_free);
    PEM_write_bio_X509(bio.get(), certificate_.get());
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio.get(), &data);
    return {data, static_cast<std::size_t>(size)};
  }
  X509* certificate() const { return certificate_.get(); }
  EVP_PKEY* key() const { return key_.get(); }

 private:
  std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key_{nullptr, EVP_PKEY_free};
  std::unique_ptr<X509, decltype(&X509_free)> certificate_{nullptr, X509_free};
};

// One request of a client and the way back to it. Confined to its connection's thread.
class Conversation {
 public:
  Conversation(int socket, SSL* tls, const std::atomic<bool>& ending)
      : socket_(socket), tls_(tls), ending_(ending) {}

  std::string request;  // head and body

  void Say(const std::string& bytes) {
    if (tls_ != nullptr) {
      SSL_write(tls_, bytes.data(), static_cast<int>(bytes.size()));
    } else {
      (void)::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
  }
  void Answer(int status, const std::string& body, const std::string& type = "application/json",
              const std::string& headers = "") {
    Say(absl::StrCat("HTTP/1.1 ", status, " X\r\nContent-Type: ", type,
                     "\r\nContent-Length: ", body.size(), "\r\n", headers, "\r\n", body));
  }
  void Chunk(const std::string& text) {
    Say(absl::StrCat(absl::Hex(text.size()), "\r\n", text, "\r\n"));
  }
  // Until the client has gone or the server ends.
  void AwaitTheirEnd() {
    pollfd waiting{socket_, POLLRDHUP, 0};
    while (!ending_ && ::poll(&waiting, 1, 20) == 0) {
    }
  }
  // A pause between bytes, which is what some tests are about. False: the client has gone.
  bool Pause(int milliseconds) {
    pollfd waiting{socket_, POLLRDHUP, 0};
    return !ending_ && ::poll(&waiting, 1, milliseconds) == 0;
  }

  // One whole request, or false at the end.
  bool Read() {
    request.clear();
    std::size_t wanted = std::string::npos;
    while (request.size() < wanted) {
      char buffer[4096];
      const auto got = tls_ != nullptr ? SSL_read(tls_, buffer, sizeof(buffer))
                                       : ::recv(socket_, buffer, sizeof(buffer), 0);
      if (got <= 0) return false;
      request.append(buffer, static_cast<std::size_t>(got));
      const std::size_t head = request.find("\r\n\r\n");
      if (head == std::string::npos) continue;
      const std::size_t length = request.find("Content-Length: ");
      wanted = head + 4 + (length < head ? std::stoul(request.substr(length + 16)) : 0);
    }
    return true;
  }

 private:
  const int socket_;
  SSL* const tls_;
  const std::atomic<bool>& ending_;
};

// Thread-safe. A handler that returns false closes its connection.
class ScriptedServer {
 public:
  using Handler = std::function<bool(Conversation& conversation, int request_number)>;

  explicit ScriptedServer(Handler handler, const TestCertificate* certificate = nullptr)
      : handler_(std::move(handler)), listener_(*net::Listen(*net::ParseAddress("127.0.0.1:0"))) {
    if (certificate != nullptr) {
      context_.reset(SSL_CTX_new(TLS_server_method()));
      SSL_CTX_use_certificate(context_.get(), certificate->certificate());
      SSL_CTX_use_PrivateKey(context_.get(), certificate->key());
    }
    acceptor_ = std::thread([this] { Serve(); });
  }
  ~ScriptedServer() {
    ending_ = true;
    acceptor_.join();
    {
      sync::MutexLock lock(mutex_);
      for (const net::FileDescriptor& socket : sockets_) ::shutdown(socket.get(), SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
  }

  std::string url() const {
    const auto address = net::LocalAddress(listener_);
    return absl::StrCat(context_ ? "https" : "http", "://", net::ToString(*address));
  }
  int requests() const { return requests_; }
  int connections() {
    sync::MutexLock lock(mutex_);
    return static_cast<int>(sockets_.size());
  }

 private:
  // OpenSSL writes to clients that have gone.
  static void HoldSigpipe() {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  }

  void Serve() {
    HoldSigpipe();  // and so do the threads it starts
    while (!ending_) {
      pollfd waiting{listener_.get(), POLLIN, 0};
      if (::poll(&waiting, 1, 20) <= 0) continue;
      const int socket = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (socket < 0) continue;
      {
        sync::MutexLock lock(mutex_);
        sockets_.emplace_back(socket);
      }
      threads_.emplace_back([this, socket] { Converse(socket); });
    }
  }

  void Converse(int socket) {
    const std::unique_ptr<SSL, decltype(&SSL_free)> tls(
        context_ ? SSL_new(context_.get()) : nullptr, SSL_free);
    if (tls) {
      SSL_set_fd(tls.get(), socket);
      if (SSL_accept(tls.get()) != 1) {
        ::shutdown(socket, SHUT_RDWR);
        return;
      }
    }
    Conversation conversation(socket, tls.get(), ending_);
    while (conversation.Read()) {
      if (!handler_(conversation, requests_++)) break;
    }
    ::shutdown(socket, SHUT_RDWR);
  }

  const Handler handler_;
  const net::FileDescriptor listener_;
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_{nullptr, SSL_CTX_free};
  std::atomic<bool> ending_ = false;
  std::atomic<int> requests_ = 0;
  sync::Mutex mutex_;
  std::vector<net::FileDescriptor> sockets_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace starling::http
