// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/arena.h"

#include <new>

namespace starling::transport {

// Every counter has a cache line of its own, so that one that is polled is not taken away by
// another that is raised.
struct Arena::Counters {
  struct alignas(64) Line {
    std::atomic<std::uint64_t> value{0};
  };
  Line counter[kCounters];
  alignas(64) std::atomic<std::uint32_t> sleeps{0};
  std::atomic<bool> gave_up{false};
};

namespace {

constexpr std::size_t kPage = 4096;

std::size_t BytesFor(int size) {
  static_assert(Arena::kMostRanks <= 64);
  // 256 bytes of counters a rank, and an area.
  return 4 * kPage + static_cast<std::size_t>(size) * Arena::kAreaBytes;
}

}  // namespace

absl::StatusOr<SealedMemory::Made> Arena::MakeMemory(int size) {
  return SealedMemory::Make("starling-arena", BytesFor(size));
}

absl::StatusOr<SealedMemory> Arena::MapMemory(const net::FileDescriptor& file, int size) {
  return SealedMemory::Map(file, BytesFor(size));
}

Arena::Counters& Arena::Of(int rank) const {
  static_assert(kMostRanks * sizeof(Counters) <= 4 * kPage);
  // Fresh memory is zero, which is what counters begin with.
  return std::launder(reinterpret_cast<Counters*>(memory_.data()))[rank];
}

std::span<std::byte> Arena::Area(int rank) const {
  return {memory_.data() + 4 * kPage + static_cast<std::size_t>(rank) * kAreaBytes, kAreaBytes};
}

void Arena::UseWindows(std::span<const std::byte> own, std::vector<SealedMemory> others) {
  mapped_ = std::move(others);
  for (std::size_t rank = 0; rank < mapped_.size(); ++rank) {
    windows_[rank] = {mapped_[rank].data(), mapped_[rank].size()};
  }
  windows_[static_cast<std::size_t>(rank_)] = own;
}

// The fences keep what follows GiveUp behind it, and what comes before AnyGaveUp before it: who has
// read what was written after GiveUp sees that it was called.
void Arena::GiveUp() {
  Of(rank_).gave_up.store(true, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool Arena::AnyGaveUp() const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int rank = 0; rank < size_; ++rank) {
    if (Of(rank).gave_up.load(std::memory_order_relaxed)) return true;
  }
  return false;
}

std::uint64_t Arena::Own(int which) const {
  return Of(rank_).counter[which].value.load(std::memory_order_relaxed);
}

// Sequentially consistent, as Arm is: of one rank that raises a counter and then looks for
// sleepers, and one that says that it sleeps and then looks at the counter, one sees the other.
void Arena::Raise(int which, std::uint64_t value) {
  Of(rank_).counter[which].value.store(value);
  for (int rank = 0; rank < size_; ++rank) {
    std::atomic<std::uint32_t>& sleeps = Of(rank).sleeps;
    if (rank != rank_ && sleeps.load() != 0 && sleeps.exchange(0) != 0) owner_.RingBell(rank);
  }
}

void Arena::Arm() { Of(rank_).sleeps.store(1); }
void Arena::Disarm() { Of(rank_).sleeps.store(0, std::memory_order_relaxed); }

absl::Status Arena::Await(int which, std::uint64_t value, Patience patience,
                          net::Deadline deadline) {
  int next = 0;  // ranks before it have been seen there
  const auto laggard = [&] {
    for (; next < size_; ++next) {
      if (next == rank_) continue;
      if (Of(next).counter[which].value.load() < value) return next;
    }
    return -1;
  };
  return owner_.AwaitRanks(laggard, patience, deadline);
}

}  // namespace starling::transport
