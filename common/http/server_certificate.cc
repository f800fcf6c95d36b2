// SPDX-License-Identifier: Apache-2.0
#include "common/http/server_certificate.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <utility>

#include "common/status/macros.h"

namespace starling::http {
namespace {

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Freed<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;

Bio ReadFrom(std::string_view text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

absl::StatusOr<std::shared_ptr<SSL_CTX>> MakeContext(std::string_view certificate,
                                                     std::string_view key) {
  ERR_clear_error();
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (context == nullptr) return absl::InternalError("OpenSSL makes no TLS context");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET |
                                         SSL_OP_NO_COMPRESSION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  const Bio text = ReadFrom(certificate);
  const Certificate leaf(PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr));
  if (leaf == nullptr || SSL_CTX_use_certificate(context.get(), leaf.get()) != 1) {
    return absl::InvalidArgumentError("the server's certificate is no X.509 certificate in PEM");
  }
  while (X509* next = PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr)) {
    SSL_CTX_add0_chain_cert(context.get(), next);
  }
  ERR_clear_error();  // the end of the text counts as an error
  const Bio key_text = ReadFrom(key);
  const PrivateKey private_key(PEM_read_bio_PrivateKey(key_text.get(), nullptr, nullptr, nullptr));
  if (private_key == nullptr || SSL_CTX_use_PrivateKey(context.get(), private_key.get()) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError(
        "the server's private key cannot be read, or is not that of its certificate");
  }
  return context;
}

}  // namespace

absl::StatusOr<std::shared_ptr<ServerCertificate>> ServerCertificate::Create(
    std::string_view certificate, std::string_view key) {
  ASSIGN_OR_RETURN(auto context, MakeContext(certificate, key));
  return std::shared_ptr<ServerCertificate>(new ServerCertificate(std::move(context)));
}

absl::Status ServerCertificate::Replace(std::string_view certificate, std::string_view key) {
  ASSIGN_OR_RETURN(auto context, MakeContext(certificate, key));
  sync::MutexLock lock(mutex_);
  context_ = std::move(context);
  return absl::OkStatus();
}

std::shared_ptr<SSL_CTX> ServerCertificate::context() const {
  sync::MutexLock lock(mutex_);
  return context_;
}

}  // namespace starling::http
