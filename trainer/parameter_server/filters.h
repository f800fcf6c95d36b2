// SPDX-License-Identifier: Apache-2.0
// Filters (Li et al. 2014): what may be left out of a message without changing what it does, or
// with a stated change. They stand between whoever makes updates and the wire, at both ends, and
// count what they save.
//
//   KeyCacheSender/Receiver  a list of keys that was sent before is named by its signature
//   ValueCodec               values travel in another form; Bfloat16Codec halves them
//   KktFilter                gradients that cannot change anything stay here (exact under L1)
//   SmallUpdateFilter        changes that are small beside their values wait until they have grown
//
// A filter's state belongs to one (view, peer): a new view starts with empty caches. What the last
// two keep back is the client's residual: saved and flushed with it. To add a filter: a class here,
// its line above, a test with its ledger figures.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace starling::parameter_server {

// Payload bytes without filters, and as sent.
struct FilterLedger {
  std::int64_t key_bytes_plain = 0;
  std::int64_t key_bytes_sent = 0;
  std::int64_t value_bytes_plain = 0;
  std::int64_t value_bytes_sent = 0;
  std::int64_t rows_kept_back = 0;
};

using Keys = std::vector<std::uint64_t>;

// How a list of keys goes over the wire: by its signature, with the keys if they may be unknown.
struct KeyList {
  std::uint64_t signature = 0;
  std::uint64_t count = 0;
  Keys keys;  // empty: you have them
};
std::uint64_t SignatureOf(std::span<const std::uint64_t> keys);

// Thread-compatible.
class KeyCacheSender {
 public:
  KeyList Encode(std::span<const std::uint64_t> keys, FilterLedger& ledger);
  // The receiver does not have this one (any more): it is sent in full next time.
  void Forget(std::uint64_t signature) { sent_.erase(signature); }

 private:
  std::map<std::uint64_t, std::uint64_t> sent_;  // signature to count
};

// Thread-compatible. Keeps the most recently used lists, up to `capacity` keys in all.
class KeyCacheReceiver {
 public:
  explicit KeyCacheReceiver(std::size_t capacity = 1 << 24) : capacity_(capacity) {}
  // NOT_FOUND: ask the sender for the keys. DATA_LOSS: keys and signature do not agree. The span
  // lives until the next call.
  absl::StatusOr<std::span<const std::uint64_t>> Decode(const KeyList& list);

 private:
  struct Known {
    Keys keys;
    std::int64_t used = 0;
  };
  const std::size_t capacity_;
  std::size_t held_ = 0;
  std::int64_t now_ = 0;
  std::map<std::uint64_t, Known> known_;
};

// A form in which values travel. Decode(Encode(x)) has x's size.
struct ValueCodec {
  std::string name;
  std::function<std::string(std::span<const float>)> encode;
  std::function<absl::StatusOr<std::vector<float>>(std::string_view)> decode;
};
// The upper 16 bits of each float, rounded to nearest even: relative error at most 2^-8.
ValueCodec Bfloat16Codec();
std::string EncodeValues(const ValueCodec& codec, std::span<const float> values,
                         FilterLedger& ledger);

// Rows that pass a filter, and what they carry.
struct Kept {
  Keys keys;
  std::vector<float> values;
};

// L1-regularised models: a coordinate that is zero stays zero while its gradient is at most `l1`
// (the Karush-Kuhn-Tucker condition), so such gradients need not travel. `slack` below that bound
// they travel all the same, for the next samples may differ. Width 1.
class KktFilter {
 public:
  KktFilter(float l1, float slack) : bound_(l1 - slack) {}
  Kept Filter(std::span<const std::uint64_t> keys, std::span<const float> gradient,
              std::span<const float> parameters, FilterLedger& ledger) const;

 private:
  const float bound_;
};

// Rows of `width` whose change is below `share` of their values' norm are kept back and added to
// their next change. Nothing is lost: what was fed is what passed plus what is pending.
// Thread-compatible.
class SmallUpdateFilter {
 public:
  SmallUpdateFilter(float share, std::uint32_t width) : share_(share), width_(width) {}
  Kept Filter(std::span<const std::uint64_t> keys, std::span<const float> changes,
              std::span<const float> values, FilterLedger& ledger);
  // All that is pending: at a drain, at the end of training, before a snapshot.
  Kept Flush();
  const std::map<std::uint64_t, std::vector<float>>& pending() const { return pending_; }

 private:
  const float share_;
  const std::uint32_t width_;
  std::map<std::uint64_t, std::vector<float>> pending_;
};

}  // namespace starling::parameter_server
