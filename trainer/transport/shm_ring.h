// SPDX-License-Identifier: Apache-2.0
// A ring of bytes between two processes that do not trust one another's arithmetic.
//
// Whoever writes owns the count of bytes ever written, whoever reads that of bytes ever read; each
// keeps its own in private memory and only publishes it. The other's count is read once a call and
// checked: whatever stands there, no copy leaves the ring. What is read is copied out before
// anybody looks at it, so that it cannot change under a check.
//
// An end that is about to sleep raises its flag; the other end, having moved bytes, lowers it and
// rings (see ShmStream). Counts and flags are sequentially consistent: of one end that raises its
// flag and then reads the other's count, and another that raises its count and then reads the flag,
// one sees the other, so that no ring is missed.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace starling::transport {

// In shared memory, zero at first. Each cache line is mostly written by one end.
struct RingControl {
  alignas(64) std::atomic<std::uint64_t> written{0};
  std::atomic<std::uint32_t> writer_sleeps{0};
  alignas(64) std::atomic<std::uint64_t> read{0};
  std::atomic<std::uint32_t> reader_sleeps{0};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free);

// One ring's memory. `capacity` is a power of two.
struct Ring {
  RingControl* control = nullptr;
  std::byte* data = nullptr;
  std::size_t capacity = 0;
};

// Room that only the last write may use, lest a full ring keep a farewell out.
inline constexpr std::size_t kReservedForLast = 64;

// What one call moved, and whether the other end sleeps and has to be woken.
struct Moved {
  std::size_t bytes = 0;
  bool ring = false;
};

// The writing end. Thread-compatible.
class RingWriter {
 public:
  explicit RingWriter(const Ring& ring) : ring_(ring) {}

  // INTERNAL when the reader's count makes no sense.
  absl::StatusOr<Moved> Write(std::span<const iovec> pieces);
  // All of `last` or nothing.
  Moved WriteLast(std::span<const std::byte> last);

  // Whether a Write would do something, be it fail.
  bool Ready() const;
  void Arm();
  void Disarm() { ring_.control->writer_sleeps.store(0, std::memory_order_relaxed); }

 private:
  absl::StatusOr<std::size_t> Room() const;
  void CopyIn(const std::byte* from, std::size_t bytes);
  bool Publish();

  const Ring ring_;
  std::uint64_t written_ = 0;
};

// The reading end. Thread-compatible.
class RingReader {
 public:
  explicit RingReader(const Ring& ring) : ring_(ring) {}

  // INTERNAL when the writer's count makes no sense.
  absl::StatusOr<Moved> Read(std::span<const iovec> pieces);

  // Whether a Read would do something, be it fail.
  bool Ready() const;
  void Arm();
  void Disarm() { ring_.control->reader_sleeps.store(0, std::memory_order_relaxed); }

 private:
  absl::StatusOr<std::size_t> Available() const;
  void CopyOut(std::byte* to, std::size_t bytes);
  bool Publish();

  const Ring ring_;
  std::uint64_t read_ = 0;
};

}  // namespace starling::transport
