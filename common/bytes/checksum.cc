// SPDX-License-Identifier: Apache-2.0
#include "common/bytes/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

namespace starling::bytes {

struct Checksum::State {
  XXH3_state_t xxh;
};

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh); }
Checksum::~Checksum() = default;

void Checksum::Update(std::span<const std::byte> data) {
  XXH3_128bits_update(&state_->xxh, data.data(), data.size());
}

// The most significant byte first, as others print it.
Checksum::Value Checksum::Finish() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_->xxh));
  Value value;
  std::ranges::copy(canonical.digest, value.begin());
  return value;
}

}  // namespace starling::bytes
