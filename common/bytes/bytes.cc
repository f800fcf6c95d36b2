// SPDX-License-Identifier: Apache-2.0
#include "common/bytes/bytes.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "common/status/check.h"

namespace starling::bytes {

std::string ToHex(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  STARLING_CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1,
                 "SHA-256 is available");
}

Sha256::~Sha256() { EVP_MD_CTX_free(state_->context); }

void Sha256::Update(std::span<const std::byte> data) {
  STARLING_CHECK(EVP_DigestUpdate(state_->context, data.data(), data.size()) == 1,
                 "a digest takes bytes until it is finished");
}

Digest Sha256::Finish() {
  Digest digest;
  unsigned int size = 0;
  STARLING_CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), &size) == 1 && size == 32,
                 "a digest is finished once");
  return digest;
}

Digest Sha256Of(std::span<const std::byte> data) {
  Sha256 sha;
  sha.Update(data);
  return sha.Finish();
}

Digest Hmac(std::string_view key, std::string_view message) {
  Digest digest;
  unsigned int size = 0;
  const auto* result = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                            reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                            digest.data(), &size);
  STARLING_CHECK(result != nullptr && size == 32, "HMAC-SHA-256 is available");
  return digest;
}

bool ConstantTimeEqual(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string RandomBytes(std::size_t count) {
  std::string bytes(count, '\0');
  STARLING_CHECK(
      RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) == 1,
      "the operating system has randomness");
  return bytes;
}

std::string RandomUuid() {
  std::string raw = RandomBytes(16);
  raw[6] = static_cast<char>((raw[6] & 0x0f) | 0x40);
  raw[8] = static_cast<char>((raw[8] & 0x3f) | 0x80);
  std::string text;
  for (const char digit :
       ToHex(std::span(reinterpret_cast<const std::uint8_t*>(raw.data()), raw.size()))) {
    if (const auto at = text.size(); at == 8 || at == 13 || at == 18 || at == 23)
      text.push_back('-');
    text.push_back(digit);
  }
  return text;
}

}  // namespace starling::bytes
