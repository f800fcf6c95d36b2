// SPDX-License-Identifier: Apache-2.0
#include "common/tls/channel.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/check.h"
#include "common/status/macros.h"

namespace starling::tls {
namespace {

constexpr char kSuite[] = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kSuiteNumber[] = {0x13, 0x01};
constexpr char kGroups[] = "X25519:P-256";
constexpr std::string_view kIdentity = "starling";
// What is read at once: four records.
constexpr std::size_t kReadBytes = 4 * (Channel::kRecordBytes + Channel::kOverheadBytes);

// Why OpenSSL failed, as it says itself; this thread's errors are forgotten.
std::string Reason() {
  const auto code = ERR_peek_last_error();
  const char* const text = ERR_reason_error_string(code);
  ERR_clear_error();
  return text == nullptr ? "an unknown error" : text;
}

class PskChannel final : public Channel {
 public:
  PskChannel(SSL_CTX* context, Side side, std::string key, std::uint64_t records_per_key);
  ~PskChannel() override { OPENSSL_cleanse(key_.data(), key_.size()); }

  absl::StatusOr<bool> Shake(Source source) override;
  absl::Status Encrypt(std::span<const std::byte> plain) override;
  absl::StatusOr<std::size_t> Decrypt(std::span<std::byte> into, Source source) override;
  bool HasMore() const override { return SSL_has_pending(ssl_.get()) == 1; }
  std::span<const std::byte> outgoing() const override {
    return std::span(outgoing_).subspan(sent_);
  }
  void Sent(std::size_t bytes) override;
  std::uint64_t records_encrypted() const override { return records_encrypted_; }
  std::uint64_t records_decrypted() const override { return records_decrypted_; }

  // OpenSSL's calls while one of ours runs.
  void Append(const char* bytes, std::size_t size);
  // 0 when there are none now, or never again: `failure_` says which.
  std::size_t TakeFromSource(char* bytes, std::size_t size);
  bool failed() const { return !failure_.ok(); }
  SSL_SESSION* NewSession(SSL* ssl) const;

 private:
  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  // After a call that did not succeed: OK when it only wants bytes that have not come. Else the
  // reason, which stays.
  absl::Status Explain(int returned, absl::StatusCode code, std::string_view what);
  absl::Status Fail(absl::Status status);

  std::string key_;
  const std::uint64_t records_per_key_;
  std::unique_ptr<SSL, Free> ssl_;
  const Source* source_ = nullptr;  // of the call that runs
  absl::Status failure_;
  std::vector<std::byte> outgoing_;
  std::size_t sent_ = 0;  // of those
  bool shaken_ = false;
  std::uint64_t records_encrypted_ = 0;
  std::uint64_t records_of_key_ = 0;
  std::uint64_t records_decrypted_ = 0;
};

// --- What OpenSSL reads from and writes to.

PskChannel* Owner(BIO* bio) { return static_cast<PskChannel*>(BIO_get_data(bio)); }

int WriteToChannel(BIO* bio, const char* bytes, std::size_t size, std::size_t* written) {
  Owner(bio)->Append(bytes, size);
  *written = size;
  return 1;
}

int ReadFromChannel(BIO* bio, char* bytes, std::size_t size, std::size_t* read) {
  BIO_clear_retry_flags(bio);
  *read = Owner(bio)->TakeFromSource(bytes, size);
  if (*read > 0) return 1;
  if (!Owner(bio)->failed()) BIO_set_retry_read(bio);
  return 0;
}

// NOLINTNEXTLINE(google-runtime-int): OpenSSL's types
long ControlChannel(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

const BIO_METHOD* MakeMethod() {
  BIO_METHOD* const method =
      BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "starling channel");
  STARLING_CHECK(method != nullptr && BIO_meth_set_write_ex(method, WriteToChannel) == 1 &&
                     BIO_meth_set_read_ex(method, ReadFromChannel) == 1 &&
                     BIO_meth_set_ctrl(method, ControlChannel) == 1,
                 "there is memory for a method");
  return method;
}

BIO* NewBio(PskChannel* channel) {
  static const BIO_METHOD* const kMethod = MakeMethod();
  BIO* const bio = BIO_new(kMethod);
  STARLING_CHECK(bio != nullptr, "there is memory for a BIO");
  BIO_set_data(bio, channel);
  BIO_set_init(bio, 1);
  return bio;
}

// --- The key: offered by the client, looked up by the server. Both ends know who the other must
// be, so it has always the same name.

int OfferKey(SSL* ssl, const EVP_MD*, const unsigned char** name, std::size_t* size,
             SSL_SESSION** session) {
  *session = static_cast<PskChannel*>(SSL_get_app_data(ssl))->NewSession(ssl);
  *name = reinterpret_cast<const unsigned char*>(kIdentity.data());
  *size = kIdentity.size();
  return 1;
}

int FindKey(SSL* ssl, const unsigned char* name, std::size_t size, SSL_SESSION** session) {
  const bool known = std::string_view(reinterpret_cast<const char*>(name), size) == kIdentity;
  *session = known ? static_cast<PskChannel*>(SSL_get_app_data(ssl))->NewSession(ssl) : nullptr;
  return 1;
}

std::shared_ptr<SSL_CTX> NewContext() {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_method()), SSL_CTX_free);
  STARLING_CHECK(context != nullptr &&
                     SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) == 1 &&
                     SSL_CTX_set_max_proto_version(context.get(), TLS1_3_VERSION) == 1 &&
                     SSL_CTX_set_ciphersuites(context.get(), kSuite) == 1 &&
                     SSL_CTX_set1_groups_list(context.get(), kGroups) == 1 &&
                     SSL_CTX_set_num_tickets(context.get(), 0) == 1,
                 "OpenSSL has TLS 1.3");
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_default_read_buffer_len(context.get(), kReadBytes);
  SSL_CTX_set_psk_use_session_callback(context.get(), OfferKey);
  SSL_CTX_set_psk_find_session_callback(context.get(), FindKey);
  return context;
}

// --- The channel.

PskChannel::PskChannel(SSL_CTX* context, Side side, std::string key, std::uint64_t records_per_key)
    : key_(std::move(key)), records_per_key_(records_per_key), ssl_(SSL_new(context)) {
  STARLING_CHECK(ssl_ != nullptr, "there is memory for a connection");
  STARLING_CHECK(!key_.empty(), "a channel has a key");
  BIO* const bio = NewBio(this);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_app_data(ssl_.get(), this);
  if (side == Side::kClient) {
    // A server that shows a certificate instead of the key is believed by nobody.
    SSL_set_verify(ssl_.get(), SSL_VERIFY_PEER, nullptr);
    SSL_set_connect_state(ssl_.get());
  } else {
    SSL_set_accept_state(ssl_.get());
  }
}

SSL_SESSION* PskChannel::NewSession(SSL* ssl) const {
  SSL_SESSION* const session = SSL_SESSION_new();
  STARLING_CHECK(
      session != nullptr &&
          SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key_.data()),
                                      key_.size()) == 1 &&
          SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, kSuiteNumber)) == 1 &&
          SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1,
      "a key makes a session");
  return session;
}

void PskChannel::Append(const char* bytes, std::size_t size) {
  const auto* const begin = reinterpret_cast<const std::byte*>(bytes);
  outgoing_.insert(outgoing_.end(), begin, begin + size);
}

std::size_t PskChannel::TakeFromSource(char* bytes, std::size_t size) {
  // A write never reads.
  if (source_ == nullptr) return 0;
  auto taken = (*source_)(std::span(reinterpret_cast<std::byte*>(bytes), size));
  if (taken.ok()) return *taken;
  failure_ = taken.status();
  return 0;
}

void PskChannel::Sent(std::size_t bytes) {
  sent_ += bytes;
  STARLING_CHECK(sent_ <= outgoing_.size(), "only what is outgoing is sent");
  if (sent_ < outgoing_.size()) return;
  outgoing_.clear();
  sent_ = 0;
}

absl::Status PskChannel::Fail(absl::Status status) {
  if (failure_.ok()) failure_ = std::move(status);
  return failure_;
}

absl::Status PskChannel::Explain(int returned, absl::StatusCode code, std::string_view what) {
  const int error = SSL_get_error(ssl_.get(), returned);
  if (error == SSL_ERROR_WANT_READ) return absl::OkStatus();
  if (error == SSL_ERROR_ZERO_RETURN) {
    return Fail(absl::UnavailableError("the other end closed the encrypted connection"));
  }
  return Fail(absl::Status(code, absl::StrCat(std::string(what), ": ", Reason())));
}

absl::StatusOr<bool> PskChannel::Shake(Source source) {
  RETURN_IF_ERROR(failure_);
  if (shaken_) return true;
  source_ = &source;
  ERR_clear_error();
  const int returned = SSL_do_handshake(ssl_.get());
  source_ = nullptr;
  if (returned != 1) {
    RETURN_IF_ERROR(
        Explain(returned, absl::StatusCode::kUnauthenticated, "the TLS handshake failed"));
    return false;
  }
  if (SSL_session_reused(ssl_.get()) != 1) {
    return Fail(absl::UnauthenticatedError("the TLS handshake failed: it went without the key"));
  }
  // From here on as much is read as there is: before, not a byte more than the handshake has.
  SSL_set_read_ahead(ssl_.get(), 1);
  shaken_ = true;
  return true;
}

absl::Status PskChannel::Encrypt(std::span<const std::byte> plain) {
  RETURN_IF_ERROR(failure_);
  STARLING_CHECK(shaken_, "only what is shaken encrypts");
  for (; !plain.empty(); plain = plain.subspan(std::min(kRecordBytes, plain.size()))) {
    const auto record = plain.first(std::min(kRecordBytes, plain.size()));
    ERR_clear_error();
    if (records_of_key_ == records_per_key_) {
      // Goes out in front of the next record.
      (void)SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);
      records_of_key_ = 0;
    }
    std::size_t written = 0;
    const int returned = SSL_write_ex(ssl_.get(), record.data(), record.size(), &written);
    if (returned != 1 || written != record.size()) {
      RETURN_IF_ERROR(Explain(returned, absl::StatusCode::kInternal, "cannot encrypt"));
      return Fail(absl::InternalError("cannot encrypt: TLS waits for the other end"));
    }
    ++records_encrypted_;
    ++records_of_key_;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::size_t> PskChannel::Decrypt(std::span<std::byte> into, Source source) {
  RETURN_IF_ERROR(failure_);
  STARLING_CHECK(shaken_, "only what is shaken decrypts");
  if (into.empty()) return 0;
  source_ = &source;
  ERR_clear_error();
  std::size_t read = 0;
  const int returned = SSL_read_ex(ssl_.get(), into.data(), into.size(), &read);
  source_ = nullptr;
  if (returned != 1) {
    RETURN_IF_ERROR(
        Explain(returned, absl::StatusCode::kInternal, "the encrypted connection is broken"));
    return 0;
  }
  if (SSL_pending(ssl_.get()) == 0) ++records_decrypted_;
  return read;
}

}  // namespace

Channels::Channels(std::uint64_t records_per_key)
    : context_(NewContext()), records_per_key_(records_per_key) {
  STARLING_CHECK(records_per_key >= 1, "a key encrypts something");
}

std::unique_ptr<Channel> Channels::Make(Channel::Side side, std::string key) const {
  return std::make_unique<PskChannel>(context_.get(), side, std::move(key), records_per_key_);
}

}  // namespace starling::tls
