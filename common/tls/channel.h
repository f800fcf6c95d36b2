// SPDX-License-Identifier: Apache-2.0
// One end of a TLS 1.3 connection between two programs that share a key, as a machine over bytes:
// it neither waits nor has a socket, its owner carries what it says to the other end.
//
// Each end proves that it holds the key (an external pre-shared key, RFC 8446, 2.2), and both agree
// on new ones over an elliptic curve: who learns the key later can read nothing that was recorded.
// There are no certificates, no tickets and no early data, and there is one cipher suite, so
// nothing can be negotiated away. A key is replaced before it has encrypted more than is safe
// (5.5).
//
// OpenSSL's, whose types stay in the .cc file. To offer another suite: kSuite in channel.cc; both
// ends must know it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

typedef struct ssl_ctx_st SSL_CTX;

namespace starling::tls {

// Confined to one thread at a time. After an error every call returns it, and what is still
// outgoing tells the other end why.
class Channel {
 public:
  enum class Side { kClient, kServer };

  // Brings bytes that the other end's channel made, in order; how many (0: none now).
  using Source = absl::FunctionRef<absl::StatusOr<std::size_t>(std::span<std::byte>)>;

  // What one record holds at most, and what it adds: header, kind and seal.
  static constexpr std::size_t kRecordBytes = 16 << 10;
  static constexpr std::size_t kOverheadBytes = 5 + 1 + 16;

  virtual ~Channel() = default;

  // Goes on with the handshake: true when it is done here (the other end may still need what is
  // outgoing). UNAUTHENTICATED when the other end does not hold the key, or speaks no TLS; the
  // source's own errors as they are.
  virtual absl::StatusOr<bool> Shake(Source source) = 0;

  // Only when shaken. Adds records to what is outgoing: one for each kRecordBytes.
  virtual absl::Status Encrypt(std::span<const std::byte> plain) = 0;

  // Only when shaken. At most one record's bytes (0: the source has too few). INTERNAL when what
  // came is not what the other end sent: it was changed, left out, repeated or made up.
  virtual absl::StatusOr<std::size_t> Decrypt(std::span<std::byte> into, Source source) = 0;
  // Whether bytes were taken from the source that are not decrypted yet.
  virtual bool HasMore() const = 0;

  // For the other end; `Sent` counts from its front.
  virtual std::span<const std::byte> outgoing() const = 0;
  virtual void Sent(std::size_t bytes) = 0;

  // Whole records that carried the owners' bytes.
  virtual std::uint64_t records_encrypted() const = 0;
  virtual std::uint64_t records_decrypted() const = 0;
};

// What channels have in common. Thread-safe.
class Channels {
 public:
  // AES-GCM may encrypt 2^24.5 full records with one key.
  static constexpr std::uint64_t kRecordsPerKey = std::uint64_t{1} << 23;

  explicit Channels(std::uint64_t records_per_key = kRecordsPerKey);

  // `key` must have the entropy of a key: 32 random bytes, or what is derived from such.
  std::unique_ptr<Channel> Make(Channel::Side side, std::string key) const;

 private:
  const std::shared_ptr<SSL_CTX> context_;
  const std::uint64_t records_per_key_;
};

}  // namespace starling::tls
