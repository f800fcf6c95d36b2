// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/filters.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/kernels/span_math.h"
#include "trainer/parameter_server/table.h"

namespace starling::parameter_server {
namespace {

constexpr std::int64_t kSignatureBytes = 8;

}  // namespace

std::uint64_t SignatureOf(std::span<const std::uint64_t> keys) {
  std::uint64_t signature = HashOfKey(keys.size());
  for (const std::uint64_t key : keys) {
    signature = HashOfKey(signature * 0x9e3779b97f4a7c15ULL + HashOfKey(key));
  }
  return signature;
}

KeyList KeyCacheSender::Encode(std::span<const std::uint64_t> keys, FilterLedger& ledger) {
  KeyList list{SignatureOf(keys), keys.size(), {}};
  const auto [known, added] = sent_.emplace(list.signature, keys.size());
  if (added || known->second != keys.size()) list.keys.assign(keys.begin(), keys.end());
  known->second = keys.size();
  ledger.key_bytes_plain += static_cast<std::int64_t>(keys.size_bytes());
  ledger.key_bytes_sent += static_cast<std::int64_t>(list.keys.size() * 8) + kSignatureBytes;
  return list;
}

absl::StatusOr<std::span<const std::uint64_t>> KeyCacheReceiver::Decode(const KeyList& list) {
  ++now_;
  if (list.keys.empty() && list.count > 0) {
    const auto known = known_.find(list.signature);
    if (known == known_.end() || known->second.keys.size() != list.count) {
      return absl::NotFoundError(
          absl::StrCat("keys ", list.signature, " are not known here; send them in full"));
    }
    known->second.used = now_;
    return known->second.keys;
  }
  if (list.keys.size() != list.count || SignatureOf(list.keys) != list.signature) {
    return absl::DataLossError(
        absl::StrCat("the keys do not have signature ", list.signature, "; send them again"));
  }
  Known& known = known_[list.signature];
  held_ += list.keys.size() - known.keys.size();
  known = {list.keys, now_};
  while (held_ > capacity_ && known_.size() > 1) {
    const auto oldest = std::min_element(
        known_.begin(), known_.end(),
        [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
    held_ -= oldest->second.keys.size();
    known_.erase(oldest);
  }
  return known_.at(list.signature).keys;
}

ValueCodec Bfloat16Codec() {
  ValueCodec codec;
  codec.name = "bfloat16";
  codec.encode = [](std::span<const float> values) {
    std::string bytes(values.size() * 2, '\0');
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto bits = std::bit_cast<std::uint32_t>(values[i]);
      // A NaN stays one: rounding up its bits could make it infinite.
      const std::uint32_t rounded =
          std::isnan(values[i]) ? bits | 0x400000U : bits + 0x7fffU + (bits >> 16 & 1U);
      const auto upper = static_cast<std::uint16_t>(rounded >> 16);
      std::memcpy(bytes.data() + 2 * i, &upper, 2);
    }
    return bytes;
  };
  codec.decode = [](std::string_view bytes) -> absl::StatusOr<std::vector<float>> {
    if (bytes.size() % 2 != 0) {
      return absl::DataLossError("bfloat16 values have an even number of bytes; send them again");
    }
    std::vector<float> values(bytes.size() / 2);
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint16_t upper = 0;
      std::memcpy(&upper, bytes.data() + 2 * i, 2);
      values[i] = std::bit_cast<float>(std::uint32_t{upper} << 16);
    }
    return values;
  };
  return codec;
}

std::string EncodeValues(const ValueCodec& codec, std::span<const float> values,
                         FilterLedger& ledger) {
  std::string bytes = codec.encode(values);
  ledger.value_bytes_plain += static_cast<std::int64_t>(values.size_bytes());
  ledger.value_bytes_sent += static_cast<std::int64_t>(bytes.size());
  return bytes;
}

Kept KktFilter::Filter(std::span<const std::uint64_t> keys, std::span<const float> gradient,
                       std::span<const float> parameters, FilterLedger& ledger) const {
  Kept kept;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (parameters[i] == 0 && std::abs(gradient[i]) <= bound_) continue;
    kept.keys.push_back(keys[i]);
    kept.values.push_back(gradient[i]);
  }
  ledger.rows_kept_back += static_cast<std::int64_t>(keys.size() - kept.keys.size());
  return kept;
}

Kept SmallUpdateFilter::Filter(std::span<const std::uint64_t> keys, std::span<const float> changes,
                               std::span<const float> values, FilterLedger& ledger) {
  Kept kept;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    std::vector<float>& sum = pending_[keys[i]];
    sum.resize(width_);
    kernels::Add(changes.subspan(i * width_, width_), sum);
    const double norm = kernels::SumOfSquares(values.subspan(i * width_, width_));
    if (kernels::SumOfSquares(sum) < double{share_} * double{share_} * norm) {
      ++ledger.rows_kept_back;
      continue;
    }
    kept.keys.push_back(keys[i]);
    kept.values.insert(kept.values.end(), sum.begin(), sum.end());
    pending_.erase(keys[i]);
  }
  return kept;
}

Kept SmallUpdateFilter::Flush() {
  Kept kept;
  for (const auto& [key, sum] : pending_) {
    kept.keys.push_back(key);
    kept.values.insert(kept.values.end(), sum.begin(), sum.end());
  }
  pending_.clear();
  return kept;
}

}  // namespace starling::parameter_server
