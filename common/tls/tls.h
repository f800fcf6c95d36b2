// SPDX-License-Identifier: Apache-2.0
// Keys and certificates for programs that prove to each other who they are: P-256 keys, a
// certificate authority of one's own, leaves that it signs.
//
// Everything passes as PEM text, as files and Secrets hold it. What is wanted is made from a seed
// where two makers must agree without speaking (Key::Derive), else at random. Which names a leaf
// has and what is done with them is the caller's affair. All of it is OpenSSL's; its types stay in
// the .cc file. To add a kind of certificate: a member of LeafRequest, an extension in tls.cc.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

typedef struct evp_pkey_st EVP_PKEY;

namespace starling::tls {

// `length` bytes that only a holder of `seed` can compute, different for each `purpose`
// (HKDF-SHA-256, RFC 5869). The seed must have the entropy of a key: 32 random bytes.
std::string DeriveBytes(std::string_view seed, std::string_view purpose, std::size_t length);

// A private P-256 key; copies share it. Thread-safe, as it does not change.
class Key {
 public:
  static Key Generate();
  // Always the same key for the same seed and purpose.
  static Key Derive(std::string_view seed, std::string_view purpose);
  // InvalidArgument: no private P-256 key in PEM.
  static absl::StatusOr<Key> FromPem(std::string_view pem);

  std::string ToPem() const;  // PKCS #8, not encrypted
  EVP_PKEY* get() const { return key_.get(); }

 private:
  explicit Key(std::shared_ptr<EVP_PKEY> key) : key_(std::move(key)) {}
  std::shared_ptr<EVP_PKEY> key_;
};

// When a certificate is good. Both ends are cut to whole seconds.
struct Validity {
  absl::Time from;
  absl::Time until;
};

// From a day before `now`, so that clocks may differ, for `length`.
Validity ValidFrom(absl::Time now, absl::Duration length);

// What a program proves itself with, and whom it believes: PEM texts.
struct Identity {
  std::string certificate;  // its leaf
  std::string key;          // the leaf's
  std::string authority;    // certificates of those whose leaves it accepts, one after another
};

enum class Usage { kServer, kClient, kBoth };

struct LeafRequest {
  std::vector<std::string> dns_names;  // at least one; the first is the common name too
  Usage usage = Usage::kBoth;
  Validity validity;
};

// The DNS name in the leaf of a program that plays a role in a group: <role>.<group>.starling.
std::string PeerName(std::string_view role, std::string_view group);

// Signs leaves. Thread-safe, as it does not change.
class Authority {
 public:
  // With a new self-signed certificate. `name` is its subject, at most 64 characters. Two
  // authorities of equal key and name accept each other's leaves, whatever their validity.
  static absl::StatusOr<Authority> Create(Key key, std::string_view name, Validity validity);
  // One that was made before. InvalidArgument: the two do not belong together.
  static absl::StatusOr<Authority> FromPem(std::string_view certificate, std::string_view key);

  const std::string& certificate() const { return certificate_; }
  const Key& key() const { return key_; }
  // A leaf with a new key of its own. InvalidArgument: no name, or one that is no DNS name.
  absl::StatusOr<Identity> Issue(const LeafRequest& request) const;

 private:
  Authority(Key key, std::string certificate)
      : key_(std::move(key)), certificate_(std::move(certificate)) {}
  Key key_;
  std::string certificate_;
};

// What a certificate says; the first one, if `pem` has several. InvalidArgument: it is none.
struct CertificateFacts {
  std::string common_name;
  std::vector<std::string> dns_names;
  Validity validity;
  bool authority = false;
};
absl::StatusOr<CertificateFacts> ReadCertificate(std::string_view pem);

// Whether `identity`'s leaf belongs to its key, is signed by its authority and good at `now`. The
// error says which of them fails.
absl::Status Verify(const Identity& identity, absl::Time now);

// The files tls.crt, tls.key and ca.crt of `folder`, as a kubernetes.io/tls Secret has them.
// NotFound names the file; what they hold is checked but for its time.
absl::StatusOr<Identity> ReadIdentity(const std::string& folder);

}  // namespace starling::tls
