// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/shm_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/check.h"
#include "common/status/macros.h"

namespace starling::transport {
namespace {

constexpr std::size_t kBudgetBytes = 64 << 20;
constexpr std::size_t kControlBytes = 4096;  // both rings' counts, before their data
static_assert(2 * sizeof(RingControl) <= kControlBytes);

// Newer than the system's headers; kernels that lack it say EINVAL.
constexpr unsigned kNoExecSeal = 0x0008;
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

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

absl::Status NoRoom(std::size_t bytes, int error) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "cannot make ", bytes, " bytes of shared memory: ", std::generic_category().message(error),
      "; raise the limits on memory, file size and open files, or connect by tcp"));
}

absl::StatusOr<std::byte*> MapShared(const net::FileDescriptor& file, std::size_t bytes) {
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (memory == MAP_FAILED) return NoRoom(bytes, errno);
  return static_cast<std::byte*>(memory);
}

absl::Status CheckFile(const net::FileDescriptor& file, std::size_t ring_bytes) {
  if (!IsRingSize(ring_bytes)) {
    return absl::UnavailableError(absl::StrCat("offered rings of ", ring_bytes, " bytes"));
  }
  // Only files of this kind have seals; without them their size could change under the mapping.
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  struct stat status = {};
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals || ::fstat(file.get(), &status) != 0 ||
      static_cast<std::size_t>(status.st_size) != SegmentBytes(ring_bytes)) {
    return absl::UnavailableError("offered memory whose size is wrong or may change");
  }
  return absl::OkStatus();
}

}  // namespace

std::size_t RingBytesFor(std::size_t members) {
  const std::size_t rings = 2 * std::max<std::size_t>(members, 2) - 2;
  return std::clamp(std::bit_floor(kBudgetBytes / rings), kMinRingBytes, kMaxRingBytes);
}

ShmSegment& ShmSegment::operator=(ShmSegment&& other) noexcept {
  if (this == &other) return *this;
  Unmap();
  memory_ = std::exchange(other.memory_, nullptr);
  ring_bytes_ = std::exchange(other.ring_bytes_, 0);
  return *this;
}

void ShmSegment::Unmap() {
  if (memory_ != nullptr) (void)::munmap(memory_, SegmentBytes(ring_bytes_));
  memory_ = nullptr;
}

absl::StatusOr<ShmSegment::Made> ShmSegment::Make(std::size_t ring_bytes) {
  STARLING_CHECK(IsRingSize(ring_bytes), "a ring's size is a power of two within the limits");
  const std::size_t bytes = SegmentBytes(ring_bytes);
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  net::FileDescriptor file(::memfd_create("starling-link", kFlags | kNoExecSeal));
  if (!file.valid() && errno == EINVAL) {
    file = net::FileDescriptor(::memfd_create("starling-link", kFlags));
  }
  if (!file.valid()) return NoRoom(bytes, errno);
  // Pages that only come with the first access may fail to come, by a signal.
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fallocate(file.get(), 0, 0, static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(file.get(), F_ADD_SEALS, kSizeSeals | F_SEAL_SEAL) != 0) {
    return NoRoom(bytes, errno);
  }
  Made made;
  ASSIGN_OR_RETURN(made.segment.memory_, MapShared(file, bytes));
  made.segment.ring_bytes_ = ring_bytes;
  made.file = std::move(file);
  return made;
}

absl::StatusOr<ShmSegment> ShmSegment::Map(const net::FileDescriptor& file,
                                           std::size_t ring_bytes) {
  RETURN_IF_ERROR(CheckFile(file, ring_bytes));
  ShmSegment segment;
  ASSIGN_OR_RETURN(segment.memory_, MapShared(file, SegmentBytes(ring_bytes)));
  segment.ring_bytes_ = ring_bytes;
  return segment;
}

Ring ShmSegment::ring(int index) const {
  const auto i = static_cast<std::size_t>(index);
  // Fresh memory is zero, which is what the counts begin with.
  auto* const control = std::launder(reinterpret_cast<RingControl*>(memory_)) + i;
  return {control, memory_ + kControlBytes + i * ring_bytes_, ring_bytes_};
}

absl::Status SendOffer(const net::FileDescriptor& socket, const Offer& offer) {
  OfferBytes said{kOfferMagic, offer.file.valid() ? 1U : 0U, offer.ring_bytes};
  iovec piece{&said, sizeof said};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (offer.file.valid()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_LEN(sizeof(int));
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int file = offer.file.get();
    std::memcpy(CMSG_DATA(header), &file, sizeof file);
  }
  const ssize_t sent = ::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent == static_cast<ssize_t>(sizeof said)) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("did not take the shared memory: ",
                   sent < 0 ? std::generic_category().message(errno) : "the socket is full"));
}

absl::StatusOr<std::optional<Offer>> ReceiveOffer(const net::FileDescriptor& socket) {
  OfferBytes said;
  iovec piece{&said, sizeof said};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  // Room for exactly one descriptor: more are closed by the system.
  message.msg_controllen = CMSG_LEN(sizeof(int));
  const ssize_t read = ::recvmsg(socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (read < 0 && (errno == EAGAIN || errno == EINTR)) return std::optional<Offer>();
  Offer offer;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (read >= 0 && header != nullptr && header->cmsg_level == SOL_SOCKET &&
      header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof(int))) {
    int file = -1;
    std::memcpy(&file, CMSG_DATA(header), sizeof file);
    offer.file = net::FileDescriptor(file);
  }
  if (read <= 0) return absl::UnavailableError("closed the connection before it shared its memory");
  if (read != static_cast<ssize_t>(sizeof said) || said.magic != kOfferMagic ||
      (said.has_file != 0) != offer.file.valid()) {
    return absl::UnavailableError("offered no shared memory, but something else");
  }
  offer.ring_bytes = said.ring_bytes;
  return std::optional<Offer>(std::move(offer));
}

}  // namespace starling::transport
