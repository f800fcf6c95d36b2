// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/sealed_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"

namespace starling::transport {
namespace {

// Newer than the system's headers; kernels that lack it say EINVAL.
constexpr unsigned kNoExecSeal = 0x0008;
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

// From this size on memory that others only read, which arrays lie in, gets large pages if the
// system has some: sums walk through it faster. Half a page is wasted on average.
constexpr std::size_t kFewestBytesInLargePages = 8 << 20;

absl::Status NoRoom(std::size_t bytes, int error) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "cannot make ", bytes, " bytes of shared memory: ", std::generic_category().message(error),
      "; raise the limits on memory, file size and open files, or connect by tcp"));
}

}  // namespace

SealedMemory& SealedMemory::operator=(SealedMemory&& other) noexcept {
  if (this == &other) return *this;
  Unmap();
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

void SealedMemory::Unmap() {
  if (data_ != nullptr) (void)::munmap(data_, size_);
  data_ = nullptr;
}

absl::StatusOr<SealedMemory> SealedMemory::MapShared(const net::FileDescriptor& file,
                                                     std::size_t bytes, int protection,
                                                     Others others) {
  void* const memory = ::mmap(nullptr, bytes, protection, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return NoRoom(bytes, errno);
  SealedMemory mapped(static_cast<std::byte*>(memory), bytes);
  if (others == Others::kRead && bytes >= kFewestBytesInLargePages) {
    (void)::madvise(memory, bytes, MADV_HUGEPAGE);
  }
  return mapped;
}

// Pages that only come with the first access may fail to come, by a signal. Who allocates them
// through the file gets small ones, whatever the mapping asked for.
bool SealedMemory::Populate(const net::FileDescriptor& file) const {
  if (::madvise(data_, size_, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;  // Linux before 5.14
  return ::fallocate(file.get(), 0, 0, static_cast<off_t>(size_)) == 0;
}

absl::StatusOr<SealedMemory::Made> SealedMemory::Make(const char* name, std::size_t bytes,
                                                      Others others) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  net::FileDescriptor file(::memfd_create(name, kFlags | kNoExecSeal));
  if (!file.valid() && errno == EINVAL) file = net::FileDescriptor(::memfd_create(name, kFlags));
  if (!file.valid()) return NoRoom(bytes, errno);
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return NoRoom(bytes, errno);
  Made made;
  ASSIGN_OR_RETURN(made.memory, MapShared(file, bytes, PROT_READ | PROT_WRITE, others));
  // The mapping that is there stays writable.
  const int seals = kSizeSeals | F_SEAL_SEAL | (others == Others::kRead ? F_SEAL_FUTURE_WRITE : 0);
  if (!made.memory.Populate(file) || ::fcntl(file.get(), F_ADD_SEALS, seals) != 0) {
    return NoRoom(bytes, errno);
  }
  made.file = std::move(file);
  return made;
}

absl::StatusOr<SealedMemory> SealedMemory::Map(const net::FileDescriptor& file, std::size_t bytes,
                                               Others others) {
  // Only files of this kind have seals; without them their size could change under the mapping.
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  struct stat status = {};
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals || ::fstat(file.get(), &status) != 0 ||
      static_cast<std::size_t>(status.st_size) != bytes) {
    return absl::UnavailableError("offered memory whose size is wrong or may change");
  }
  const bool writes = others == Others::kWrite;
  ASSIGN_OR_RETURN(SealedMemory mapped,
                   MapShared(file, bytes, writes ? PROT_READ | PROT_WRITE : PROT_READ, others));
  // Entries of the page table at once, rather than each by a fault; they come either way.
  (void)::madvise(mapped.data_, bytes, writes ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
  return mapped;
}

}  // namespace starling::transport
