// SPDX-License-Identifier: Apache-2.0
// What a collective works over: the mesh of a view, a tag, a deadline, and scratch memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/net/deadline.h"
#include "trainer/transport/mesh.h"

namespace starling::collectives {

// Channels of trainer/transport's tags: every use of a mesh within a step has its own.
inline constexpr std::uint32_t kControlChannel = 0;
inline constexpr std::uint32_t kStatisticsChannel = 1;
inline constexpr std::uint32_t kSyncChannel = 2;       // sync round and copies of the state
inline constexpr std::uint32_t kSelectionChannel = 3;  // links are measured, and a choice told
inline constexpr std::uint32_t kFirstFreeChannel = 16;
inline constexpr std::uint32_t kFirstBucketChannel = 1024;  // and one more per bucket

// Memory that calls reuse: the first touch of fresh pages costs more than sending them.
// Thread-compatible.
class Workspace {
 public:
  // Unspecified content, valid until the next call of the same. Bytes begin at a multiple of 8.
  std::span<float> Floats(std::size_t count) { return Of(floats_, count); }
  std::span<std::byte> Bytes(std::size_t count) { return Of(bytes_, count); }

 private:
  template <typename T>
  static std::span<T> Of(std::vector<T>& memory, std::size_t count) {
    if (memory.size() < count) memory.resize(count);
    return std::span(memory).first(count);
  }

  std::vector<float> floats_;
  std::vector<std::byte> bytes_;
};

struct Communicator {
  transport::Mesh& mesh;
  transport::Tag tag;
  net::Deadline deadline;
  Workspace& workspace;

  int rank() const { return mesh.rank(); }
  int size() const { return mesh.size(); }
};

}  // namespace starling::collectives
