// SPDX-License-Identifier: Apache-2.0
// Plain values as bytes and back: little-endian, fixed widths, lengths before what varies.
//
// For state that replicas hand to one another and for headers on the data plane, where a schema
// language would cost more than it gives. A Writer appends; a Reader believes nothing: after the
// first value that is not there it yields zeros and ok() is false, so that a caller checks once, at
// the end. To add a type: one Put and one Get.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace starling::bytes {

static_assert(std::endian::native == std::endian::little, "the encoding is little-endian");

// Thread-compatible.
class Writer {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T>
  void Put(T value) { out_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void PutText(std::string_view text) {
    Put(static_cast<std::uint64_t>(text.size()));
    out_.append(text);
  }
  template <typename T>
  requires std::is_arithmetic_v<T>
  void PutSpan(std::span<const T> values) {
    Put(static_cast<std::uint64_t>(values.size()));
    out_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  }

  const std::string& bytes() const { return out_; }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

// Thread-compatible. Views into bytes that outlive it.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  requires std::is_arithmetic_v<T> T Get() {
    T value{};
    const std::string_view taken = Take(sizeof value);
    if (!taken.empty()) std::memcpy(&value, taken.data(), sizeof value);
    return value;
  }
  std::string_view GetText() { return Take(Get<std::uint64_t>()); }
  template <typename T>
  requires std::is_arithmetic_v<T> std::vector<T> GetVector() {
    const auto count = Get<std::uint64_t>();
    if (count > rest_.size() / sizeof(T)) {
      ok_ = false;
      return {};
    }
    std::vector<T> values(count);
    const std::string_view taken = Take(count * sizeof(T));
    if (!taken.empty()) std::memcpy(values.data(), taken.data(), taken.size());
    return values;
  }
  // How many items follow, each of at least `least` bytes: no more than there can be.
  std::uint64_t GetCount(std::size_t least) {
    const auto count = Get<std::uint64_t>();
    if (count <= rest_.size() / least) return count;
    ok_ = false;
    return 0;
  }

  // Whether everything that was asked for was there.
  bool ok() const { return ok_; }
  // ... and nothing is left.
  bool done() const { return ok_ && rest_.empty(); }

 private:
  std::string_view Take(std::uint64_t count) {
    if (!ok_ || count > rest_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace starling::bytes
