// SPDX-License-Identifier: Apache-2.0
// What an HTTPS server proves itself with; it can be replaced while the server runs.
//
// Connections that are being made take the certificate of that moment; open ones keep theirs. TLS
// 1.2 and 1.3, no renegotiation, no sessions resumed.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/sync/mutex.h"

typedef struct ssl_ctx_st SSL_CTX;

namespace starling::http {

// Thread-safe.
class ServerCertificate {
 public:
  // PEM texts: a leaf (perhaps with what it is signed by after it), and its key. InvalidArgument:
  // they cannot be read or do not belong together.
  static absl::StatusOr<std::shared_ptr<ServerCertificate>> Create(std::string_view certificate,
                                                                   std::string_view key);

  // InvalidArgument as above; the former certificate is then kept.
  absl::Status Replace(std::string_view certificate, std::string_view key);

  // For the server: the context of the next connection.
  std::shared_ptr<SSL_CTX> context() const;

 private:
  explicit ServerCertificate(std::shared_ptr<SSL_CTX> context) : context_(std::move(context)) {}

  mutable sync::Mutex mutex_;
  std::shared_ptr<SSL_CTX> context_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::http
