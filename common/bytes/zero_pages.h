// SPDX-License-Identifier: Apache-2.0
// Much memory, all zeros, that costs nothing until it is touched: whole pages from the operating
// system, large ones where it has them.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace starling::bytes {

class ZeroPages {
 public:
  ZeroPages() = default;
  explicit ZeroPages(std::size_t size);
  ~ZeroPages();
  ZeroPages(ZeroPages&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  ZeroPages& operator=(ZeroPages&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  // They begin at a page.
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace starling::bytes
