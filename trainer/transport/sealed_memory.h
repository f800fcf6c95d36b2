// SPDX-License-Identifier: Apache-2.0
// Memory that processes share by handing over an anonymous file of sealed size.
//
// It has no name: it is gone with the last process that maps it, however that ended, and nobody
// else can open it. All pages are there from the beginning, and the size is sealed: neither a peer
// nor a full machine can make an access fail later. What lies in it, links, arenas and windows
// decide.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "common/net/socket.h"

namespace starling::transport {

// A mapping. Thread-compatible.
class SealedMemory {
 public:
  SealedMemory() = default;
  ~SealedMemory() { Unmap(); }
  SealedMemory(SealedMemory&& other) noexcept { *this = std::move(other); }
  SealedMemory& operator=(SealedMemory&& other) noexcept;

  // What others may do who are handed the file.
  enum class Others { kWrite, kRead };

  // New memory, all zero, and its file; `name` is what /proc/PID/maps shows. RESOURCE_EXHAUSTED
  // when the system's limits leave no room; Linux before 5.1 knows no kRead.
  struct Made;
  static absl::StatusOr<Made> Make(const char* name, std::size_t bytes,
                                   Others others = Others::kWrite);

  // Maps the file that a peer handed over, which was made for such `others`. UNAVAILABLE unless its
  // size is `bytes`, and sealed.
  static absl::StatusOr<SealedMemory> Map(const net::FileDescriptor& file, std::size_t bytes,
                                          Others others = Others::kWrite);

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  SealedMemory(std::byte* data, std::size_t size) : data_(data), size_(size) {}
  static absl::StatusOr<SealedMemory> MapShared(const net::FileDescriptor& file, std::size_t bytes,
                                                int protection, Others others);
  bool Populate(const net::FileDescriptor& file) const;
  void Unmap();

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

struct SealedMemory::Made {
  SealedMemory memory;
  net::FileDescriptor file;
};

}  // namespace starling::transport
