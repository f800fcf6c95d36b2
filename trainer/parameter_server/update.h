// SPDX-License-Identifier: Apache-2.0
// What a push carries: which rows of a table, and a number or a text for each.
//
//   kRange    rows first .. first + rows of the table, values in order
//   kRows     the named rows (sorted or not, each once), values in order
//   kFactors  as kRange, as products of factors (factors.h), which the server multiplies (Project
//             Adam's offload of fully connected layers: activations and errors travel, not weights)
//   kPairs    key-value: keys are (key, length) in turn, text holds the values one after another
//
// It has two forms. An Update has its values as floats: a worker makes one, a shard applies one. An
// EncodedUpdate is what lies between: it travels, goes down the chain, is logged and is saved, its
// values as the bytes that a codec made of them. Encode is called once, by the worker; Decode once
// by each server that applies the update. An encoded update is immutable and shared. Its parts are
// apart, so that what stands on the way (filters.h) adds or leaves out the list of rows without a
// look at the values.
//
// To add a kind: a number, what Decode checks of it, its case in the shards that understand it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/bytes/encoding.h"
#include "trainer/compression/codec.h"

namespace starling::parameter_server {

enum class UpdateKind : std::uint8_t { kRange = 1, kRows = 2, kFactors = 3, kPairs = 4 };

using Keys = std::vector<std::uint64_t>;

struct Update {
  UpdateKind kind = UpdateKind::kRange;
  std::uint32_t rank = 0;   // kFactors: how many pairs
  std::uint64_t first = 0;  // rows are numbered in the table, not in the shard
  std::uint64_t rows = 0;
  std::span<const std::uint64_t> keys;
  std::span<const float> values;
  std::string_view text;
};

struct EncodedUpdate {
  UpdateKind kind = UpdateKind::kRange;
  std::uint32_t rank = 0;
  std::uint64_t first = 0;
  std::uint64_t rows = 0;
  std::shared_ptr<const Keys> keys;  // null: none
  // kRows: a bit for each row, the lowest of the first byte first: the others' values are all 0,
  // and not in the body. Empty: all are there.
  std::string told;
  compression::CodecNumber codec = compression::kIdentity;
  std::uint64_t values = 0;                 // numbers that the body stands for
  std::shared_ptr<const std::string> body;  // the encoded values, or the text; null: nothing

  std::size_t bytes() const;  // all of it, about
  std::string_view text() const { return body ? std::string_view(*body) : std::string_view(); }
};
using UpdatePtr = std::shared_ptr<const EncodedUpdate>;

// `leave_out_zeros`: of kRows, where that is less to send, rows of zeros are a bit each.
UpdatePtr Encode(const Update& update, compression::CodecNumber codec = compression::kIdentity,
                 bool leave_out_zeros = false);
// The same of values that the caller has encoded; `update.values` says how many there are.
UpdatePtr Encoded(const Update& update, compression::CodecNumber codec, std::string body);

// Owns what its update points to. Movable only.
struct DecodedUpdate {
  DecodedUpdate() = default;
  DecodedUpdate(DecodedUpdate&&) = default;
  DecodedUpdate& operator=(DecodedUpdate&&) = default;

  UpdatePtr from;
  std::vector<float> made;  // empty where the body's floats are used as they are
  Update update;
};
// `width`: values of a row. INVALID_ARGUMENT for what is no update; no count is believed.
absl::StatusOr<DecodedUpdate> Decode(UpdatePtr update, std::size_t width);

// All but the body, for heads of messages and for snapshots. What Get gives has `body`.
void Put(const EncodedUpdate& update, bytes::Writer& out);
UpdatePtr GetUpdate(bytes::Reader& in, std::shared_ptr<const std::string> body);

// Which rows: a range, or the keys if there are any.
struct Selection {
  std::uint64_t first = 0;
  std::uint64_t rows = 0;
  std::span<const std::uint64_t> keys;
};

}  // namespace starling::parameter_server
