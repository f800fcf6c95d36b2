// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/shm_segment.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <new>
#include <span>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/check.h"
#include "common/status/macros.h"
#include "trainer/transport/unix_socket.h"

namespace starling::transport {
namespace {

constexpr std::size_t kBudgetBytes = 64 << 20;
constexpr std::size_t kControlBytes = 4096;  // both rings' counts, before their data
static_assert(2 * sizeof(RingControl) <= kControlBytes);

constexpr std::uint32_t kOfferMagic = 0x314d4853;  // "SHM1"
struct OfferBytes {
  std::uint32_t magic = kOfferMagic;
  std::uint32_t has_file = 0;
  std::uint64_t ring_bytes = 0;
};
static_assert(sizeof(OfferBytes) == 16);

std::size_t SegmentBytes(std::size_t ring_bytes) { return kControlBytes + 2 * ring_bytes; }

bool IsRingSize(std::size_t bytes) {
  return std::has_single_bit(bytes) && bytes >= kMinRingBytes && bytes <= kMaxRingBytes;
}

}  // namespace

std::size_t RingBytesFor(std::size_t members) {
  const std::size_t rings = 2 * std::max<std::size_t>(members, 2) - 2;
  return std::clamp(std::bit_floor(kBudgetBytes / rings), kMinRingBytes, kMaxRingBytes);
}

absl::StatusOr<ShmSegment::Made> ShmSegment::Make(std::size_t ring_bytes) {
  STARLING_CHECK(IsRingSize(ring_bytes), "a ring's size is a power of two within the limits");
  Made made;
  ASSIGN_OR_RETURN(SealedMemory::Made memory,
                   SealedMemory::Make("starling-link", SegmentBytes(ring_bytes)));
  made.segment = ShmSegment(std::move(memory.memory), ring_bytes);
  made.file = std::move(memory.file);
  return made;
}

absl::StatusOr<ShmSegment> ShmSegment::Map(const net::FileDescriptor& file,
                                           std::size_t ring_bytes) {
  if (!IsRingSize(ring_bytes)) {
    return absl::UnavailableError(absl::StrCat("offered rings of ", ring_bytes, " bytes"));
  }
  ASSIGN_OR_RETURN(SealedMemory memory, SealedMemory::Map(file, SegmentBytes(ring_bytes)));
  return ShmSegment(std::move(memory), ring_bytes);
}

Ring ShmSegment::ring(int index) const {
  const auto i = static_cast<std::size_t>(index);
  // Fresh memory is zero, which is what the counts begin with.
  auto* const control = std::launder(reinterpret_cast<RingControl*>(memory_.data())) + i;
  return {control, memory_.data() + kControlBytes + i * ring_bytes_, ring_bytes_};
}

absl::Status SendOffer(const net::FileDescriptor& socket, const Offer& offer) {
  const OfferBytes said{kOfferMagic, offer.file.valid() ? 1U : 0U, offer.ring_bytes};
  const auto bytes = std::as_bytes(std::span(&said, 1));
  if (SendWithFile(socket, bytes, offer.file)) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("did not take the shared memory: ", std::generic_category().message(errno)));
}

absl::StatusOr<std::optional<Offer>> ReceiveOffer(const net::FileDescriptor& socket) {
  OfferBytes said;
  Offer offer;
  const ssize_t read =
      ReceiveWithFile(socket, std::as_writable_bytes(std::span(&said, 1)), offer.file);
  if (read < 0 && net::NotNow(errno)) return std::optional<Offer>();
  if (read <= 0) return absl::UnavailableError("closed the connection before it shared its memory");
  if (read != static_cast<ssize_t>(sizeof said) || said.magic != kOfferMagic ||
      (said.has_file != 0) != offer.file.valid()) {
    return absl::UnavailableError("offered no shared memory, but something else");
  }
  offer.ring_bytes = said.ring_bytes;
  return std::optional<Offer>(std::move(offer));
}

}  // namespace starling::transport
