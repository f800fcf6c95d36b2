// SPDX-License-Identifier: Apache-2.0
// Bytes and their digests: hexadecimal text, SHA-256, keyed hashes, random bytes.
//
// Digests identify checkpoints and models, keyed hashes authenticate peers. All of it is OpenSSL's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace starling::bytes {

using Digest = std::array<std::uint8_t, 32>;

inline std::span<const std::byte> View(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Lower-case hexadecimal, two characters a byte.
std::string ToHex(std::span<const std::uint8_t> bytes);

// SHA-256 in pieces. Thread-compatible.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void Update(std::span<const std::byte> data);
  Digest Finish();  // once

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Digest Sha256Of(std::span<const std::byte> data);
inline std::string Sha256Hex(std::string_view text) { return ToHex(Sha256Of(View(text))); }

// HMAC-SHA-256 (RFC 2104).
Digest Hmac(std::string_view key, std::string_view message);

// In time that does not depend on where they differ.
bool ConstantTimeEqual(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b);

// `count` bytes of the operating system's cryptographic randomness.
std::string RandomBytes(std::size_t count);

// A random (version 4) UUID in its usual text form.
std::string RandomUuid();

}  // namespace starling::bytes
