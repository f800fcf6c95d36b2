// SPDX-License-Identifier: Apache-2.0
// The manifest of a checkpoint: what belongs to it, with size and digest, and the digest of itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/checkpoint/checkpoint_store.h"

namespace starling::checkpoint {

inline constexpr char kManifestName[] = "manifest.json";
inline constexpr std::size_t kManifestLimit = 16 << 20;

struct Shard {
  std::string file;
  std::size_t size = 0;
  std::string sha256;
};

struct Manifest {
  StateId id;
  std::vector<Shard> shards;
  std::map<std::string, std::string> attributes;
};

std::string ToText(const Manifest& manifest);

// DATA_LOSS unless `text` is, byte for byte, what ToText wrote.
absl::StatusOr<Manifest> ParseManifest(std::string_view text);

}  // namespace starling::checkpoint
