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
                                                     std::size_t bytes) {
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (memory == MAP_FAILED) return NoRoom(bytes, errno);
  return SealedMemory(static_cast<std::byte*>(memory), bytes);
}

absl::StatusOr<SealedMemory::Made> SealedMemory::Make(const char* name, std::size_t bytes) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  net::FileDescriptor file(::memfd_create(name, kFlags | kNoExecSeal));
  if (!file.valid() && errno == EINVAL) file = net::FileDescriptor(::memfd_create(name, kFlags));
  if (!file.valid()) return NoRoom(bytes, errno);
  // Pages that only come with the first access may fail to come, by a signal.
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fallocate(file.get(), 0, 0, static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(file.get(), F_ADD_SEALS, kSizeSeals | F_SEAL_SEAL) != 0) {
    return NoRoom(bytes, errno);
  }
  Made made;
  ASSIGN_OR_RETURN(made.memory, MapShared(file, bytes));
  made.file = std::move(file);
  return made;
}

absl::StatusOr<SealedMemory> SealedMemory::Map(const net::FileDescriptor& file, std::size_t bytes) {
  // Only files of this kind have seals; without them their size could change under the mapping.
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  struct stat status = {};
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals || ::fstat(file.get(), &status) != 0 ||
      static_cast<std::size_t>(status.st_size) != bytes) {
    return absl::UnavailableError("offered memory whose size is wrong or may change");
  }
  return MapShared(file, bytes);
}

}  // namespace starling::transport
