// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/host_card.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/net/socket.h"
#include "common/status/check.h"
#include "trainer/transport/shaping.h"

namespace starling::transport {
namespace {

constexpr std::size_t kSeats = 256;  // more than pods of a host, and those before them

std::uint64_t SeatOf(const std::string& member) {
  const bytes::Digest digest = bytes::Sha256Of(std::as_bytes(std::span(member)));
  std::uint64_t seat = 0;
  std::memcpy(&seat, digest.data(), sizeof(seat));
  return seat;
}

}  // namespace

struct HostCard::Memory {
  static constexpr std::uint64_t kMagic = 0x3144524143545353;  // "SSTCARD1"

  std::uint64_t magic;
  std::uint32_t machine;  // since whose start it is in use
  std::uint32_t next_seat;
  pthread_mutex_t mutex;
  Card card;
  std::array<std::uint64_t, kSeats> seats;
};

class HostCard::Lock {
 public:
  explicit Lock(Memory& memory) : memory_(memory) {
    const int error = ::pthread_mutex_lock(&memory_.mutex);
    if (error == EOWNERDEAD) {
      memory_.card = Card();
      (void)::pthread_mutex_consistent(&memory_.mutex);
    } else {
      STARLING_CHECK(error == 0, "the lock of an emulated card can be had");
    }
  }
  ~Lock() { (void)::pthread_mutex_unlock(&memory_.mutex); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Memory& memory_;
};

absl::StatusOr<std::shared_ptr<HostCard>> HostCard::Open(const std::string& folder,
                                                         const std::string& host) {
  const std::string path = absl::StrCat(folder, "/network-card-of-", host);
  const net::FileDescriptor file(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  // Whoever comes first makes it what it is.
  if (!file.valid() || ::flock(file.get(), LOCK_EX) != 0) {
    return net::ErrnoStatus(errno, absl::StrCat("cannot open ", path));
  }
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) {
    return net::ErrnoStatus(errno, absl::StrCat("cannot look at ", path));
  }
  if (!S_ISREG(status.st_mode) ||
      (status.st_size != 0 && status.st_size != static_cast<off_t>(sizeof(Memory)))) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is not the card of an emulated host; remove it"));
  }
  if (const int error = ::posix_fallocate(file.get(), 0, sizeof(Memory)); error != 0) {
    return net::ErrnoStatus(error, absl::StrCat("cannot make room in ", path));
  }
  void* const mapped =
      ::mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return net::ErrnoStatus(errno, absl::StrCat("cannot map ", path));
  auto* const memory = static_cast<Memory*>(mapped);
  if (memory->magic != Memory::kMagic || memory->machine != ThisMachine()) {
    std::memset(mapped, 0, sizeof(Memory));
    pthread_mutexattr_t attributes;
    (void)::pthread_mutexattr_init(&attributes);
    (void)::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    (void)::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    (void)::pthread_mutex_init(&memory->mutex, &attributes);
    (void)::pthread_mutexattr_destroy(&attributes);
    memory->machine = ThisMachine();
    memory->magic = Memory::kMagic;
  }
  // The mapping holds on to the file, and so the lock would stay.
  (void)::flock(file.get(), LOCK_UN);
  return std::shared_ptr<HostCard>(new HostCard(memory));
}

HostCard::~HostCard() { (void)::munmap(memory_, sizeof(Memory)); }

std::int64_t HostCard::Send(std::int64_t now, std::int64_t takes) {
  const Lock lock(*memory_);
  return memory_->card.Send(now, takes);
}

std::int64_t HostCard::Receive(std::int64_t begin, std::int64_t takes) {
  const Lock lock(*memory_);
  return memory_->card.Receive(begin, takes);
}

void HostCard::SitDown(const std::string& member) {
  if (Sits(member)) return;
  const Lock lock(*memory_);
  memory_->seats[memory_->next_seat++ % kSeats] = SeatOf(member);
}

bool HostCard::Sits(const std::string& member) {
  const Lock lock(*memory_);
  return std::ranges::find(memory_->seats, SeatOf(member)) != memory_->seats.end();
}

}  // namespace starling::transport
