// SPDX-License-Identifier: Apache-2.0
// What a push carries and what a read asks for, as bytes that are used where they were received.
//
// An update is a header of 48 bytes, then keys (u64), values (f32, padded to 8 bytes), text. Decode
// gives spans into the received bytes and believes no count that the size does not bear out; it
// copies nothing, so the bytes must be aligned to 8 (what `new` gives is) and outlive the view.
//
//   kRange    rows first .. first + rows of the table, values in order
//   kRows     the named rows (sorted or not, each once), values in order
//   kFactors  as kRange, as products of factors (factors.h), which the server multiplies (Project
//             Adam's offload of fully connected layers: activations and errors travel, not weights)
//   kPairs    key-value: keys are (key, length) in turn, text holds the values one after another
//
// To add a kind: a number, its sizes in SizesFit, its case in the shards that understand it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace starling::parameter_server {

enum class UpdateKind : std::uint32_t {
  kRange = 1,
  kRows = 2,
  kFactors = 3,
  kPairs = 4,
};

struct Update {
  UpdateKind kind = UpdateKind::kRange;
  std::uint32_t rank = 0;   // kFactors: how many pairs
  std::uint64_t first = 0;  // rows are numbered in the table, not in the slot
  std::uint64_t rows = 0;
  std::span<const std::uint64_t> keys;
  std::span<const float> values;
  std::string_view text;
};

inline constexpr std::size_t kUpdateHeaderBytes = 48;

std::string Encode(const Update& update);
std::size_t EncodedBytes(const Update& update);
// INVALID_ARGUMENT for what is no update.
absl::StatusOr<Update> DecodeUpdate(std::string_view bytes);

// Which rows: a range, or the keys if there are any.
struct Selection {
  std::uint64_t first = 0;
  std::uint64_t rows = 0;
  std::span<const std::uint64_t> keys;
};

}  // namespace starling::parameter_server
