// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/shm_ring.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"

namespace starling::transport {
namespace {

// The other end starts on a piece while the next is copied; both stay in the cores' own caches.
constexpr std::size_t kPieceBytes = 32 << 10;

// One call moves no more: the thread has other links, and this one's other direction, to serve.
constexpr std::size_t kMostPerCall = 256 << 10;

absl::Status Nonsense(std::uint64_t theirs, std::uint64_t ours) {
  return absl::InternalError(absl::StrCat("broke the rules of the shared memory: its count ",
                                          theirs, " cannot stand beside ours, ", ours));
}

// Lowers the flag if it is raised.
bool TakeFlag(std::atomic<std::uint32_t>& flag) {
  return flag.load() != 0 && flag.exchange(0) != 0;
}

// Calls copy(memory, bytes) for the pieces, `limit` bytes in all and a cache's portion at a time,
// and publish() after each portion; how much was copied, and whether somebody has to be woken.
template <typename Copy, typename PublishCount>
Moved MoveInPortions(std::span<const iovec> pieces, std::size_t limit, const Copy& copy,
                     const PublishCount& publish) {
  Moved moved;
  std::size_t unpublished = 0;
  for (const iovec& piece : pieces) {
    for (std::size_t at = 0; at < piece.iov_len && moved.bytes < limit;) {
      const std::size_t part =
          std::min({piece.iov_len - at, limit - moved.bytes, kPieceBytes - unpublished});
      copy(static_cast<std::byte*>(piece.iov_base) + at, part);
      at += part;
      moved.bytes += part;
      unpublished += part;
      if (unpublished < kPieceBytes) continue;
      moved.ring = publish() || moved.ring;
      unpublished = 0;
    }
  }
  if (unpublished > 0) moved.ring = publish() || moved.ring;
  return moved;
}

}  // namespace

absl::StatusOr<std::size_t> RingWriter::Room() const {
  const std::uint64_t read = ring_.control->read.load();
  const std::uint64_t used = written_ - read;
  if (used > ring_.capacity) return Nonsense(read, written_);
  return ring_.capacity - used;
}

void RingWriter::CopyIn(const std::byte* from, std::size_t bytes) {
  const std::size_t at = written_ & (ring_.capacity - 1);
  const std::size_t first = std::min(bytes, ring_.capacity - at);
  std::memcpy(ring_.data + at, from, first);
  if (first < bytes) std::memcpy(ring_.data, from + first, bytes - first);
  written_ += bytes;
}

bool RingWriter::Publish() {
  ring_.control->written.store(written_);
  return TakeFlag(ring_.control->reader_sleeps);
}

absl::StatusOr<Moved> RingWriter::Write(std::span<const iovec> pieces) {
  ASSIGN_OR_RETURN(const std::size_t room, Room());
  if (room <= kReservedForLast) return Moved{};
  return MoveInPortions(
      pieces, std::min(room - kReservedForLast, kMostPerCall),
      [this](const std::byte* from, std::size_t bytes) { CopyIn(from, bytes); },
      [this] { return Publish(); });
}

Moved RingWriter::WriteLast(std::span<const std::byte> last) {
  const auto room = Room();
  if (!room.ok() || *room < last.size()) return {};
  CopyIn(last.data(), last.size());
  return {last.size(), Publish()};
}

bool RingWriter::Ready() const {
  const auto room = Room();
  return !room.ok() || *room > kReservedForLast;
}

void RingWriter::Arm() { ring_.control->writer_sleeps.store(1); }

absl::StatusOr<std::size_t> RingReader::Available() const {
  const std::uint64_t written = ring_.control->written.load();
  const std::uint64_t available = written - read_;
  if (available > ring_.capacity) return Nonsense(written, read_);
  return available;
}

void RingReader::CopyOut(std::byte* to, std::size_t bytes) {
  const std::size_t at = read_ & (ring_.capacity - 1);
  const std::size_t first = std::min(bytes, ring_.capacity - at);
  std::memcpy(to, ring_.data + at, first);
  if (first < bytes) std::memcpy(to + first, ring_.data, bytes - first);
  read_ += bytes;
}

bool RingReader::Publish() {
  ring_.control->read.store(read_);
  // A writer that is woken for every portion would only be in the way: half a ring is worth it.
  const std::uint64_t left = ring_.control->written.load(std::memory_order_relaxed) - read_;
  return left <= ring_.capacity / 2 && TakeFlag(ring_.control->writer_sleeps);
}

absl::StatusOr<Moved> RingReader::Read(std::span<const iovec> pieces) {
  ASSIGN_OR_RETURN(const std::size_t available, Available());
  if (available == 0) return Moved{};
  return MoveInPortions(
      pieces, std::min(available, kMostPerCall),
      [this](std::byte* to, std::size_t bytes) { CopyOut(to, bytes); },
      [this] { return Publish(); });
}

bool RingReader::Ready() const {
  const auto available = Available();
  return !available.ok() || *available > 0;
}

void RingReader::Arm() { ring_.control->reader_sleeps.store(1); }

}  // namespace starling::transport
