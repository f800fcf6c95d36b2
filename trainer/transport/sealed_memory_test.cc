// SPDX-License-Identifier: Apache-2.0
// Shared memory where it is refused, and on systems that cannot do all of it.
#include "trainer/transport/sealed_memory.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::transport {
namespace {

using ::testing::HasSubstr;
using Others = SealedMemory::Others;

constexpr std::size_t kBytes = 8192;
constexpr unsigned kNoExecSeal = 0x0008;

// What the system says to a call whose argument has these bits.
struct Refusal {
  int call = 0;
  unsigned argument = 0;
  unsigned mask = 0;
  unsigned bits = 0;
  int error = 0;
};

constexpr Refusal kBefore5_14 = {SYS_madvise, 2, ~0U, MADV_POPULATE_WRITE, EINVAL};
constexpr Refusal kBefore6_3 = {SYS_memfd_create, 1, kNoExecSeal, kNoExecSeal, EINVAL};

// From now on, to this thread.
bool Refuse(const Refusal& refusal) {
  const auto argument = static_cast<unsigned>(offsetof(seccomp_data, args)) + 8 * refusal.argument;
  std::vector<sock_filter> program = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(refusal.call), 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, refusal.mask),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refusal.bits, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(refusal.error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

class RefusedMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    bool can = false;
    std::thread([&] { can = Refuse({SYS_ftruncate, 0, 0, 0, EPERM}); }).join();
    if (!can) GTEST_SKIP() << "this system lets no thread give up calls";
  }

  static absl::StatusOr<SealedMemory::Made> MakeWhere(const std::vector<Refusal>& refusals) {
    absl::StatusOr<SealedMemory::Made> made;
    std::thread([&] {
      for (const Refusal& refusal : refusals) (void)Refuse(refusal);
      made = SealedMemory::Make("starling-test", kBytes);
    }).join();
    return made;
  }

  static void ExpectWhole(const absl::StatusOr<SealedMemory::Made>& made) {
    ASSERT_EQ(made.status(), absl::OkStatus());
    struct stat status = {};
    ASSERT_EQ(::fstat(made->file.get(), &status), 0);
    EXPECT_GE(static_cast<std::size_t>(status.st_blocks) * 512, kBytes) << "all pages are there";
    EXPECT_EQ(SealedMemory::Map(made->file, kBytes).status(), absl::OkStatus());
  }
};

TEST_F(RefusedMemoryTest, IsWholeOnSystemsThatCannotPopulateMappings) {
  ExpectWhole(MakeWhere({kBefore5_14}));
}

TEST_F(RefusedMemoryTest, IsWholeOnSystemsThatCannotForbidExecution) {
  ExpectWhole(MakeWhere({kBefore6_3}));
}

TEST_F(RefusedMemoryTest, SaysWhatTheSystemHasRefused) {
  struct Case {
    std::vector<Refusal> refusals;
    std::string why;
  };
  const std::vector<Case> cases = {
      {{{SYS_memfd_create, 0, 0, 0, EMFILE}}, "Too many open files"},
      {{{SYS_memfd_create, 1, kNoExecSeal, kNoExecSeal, EMFILE}}, "Too many open files"},
      {{{SYS_ftruncate, 0, 0, 0, EFBIG}}, "File too large"},
      {{{SYS_madvise, 2, ~0U, MADV_POPULATE_WRITE, ENOMEM}}, "Cannot allocate memory"},
      {{kBefore5_14, {SYS_fallocate, 0, 0, 0, ENOSPC}}, "No space left on device"},
      {{{SYS_fcntl, 1, ~0U, F_ADD_SEALS, EINVAL}}, "Invalid argument"},
  };
  for (const Case& one : cases) {
    const absl::Status status = MakeWhere(one.refusals).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << one.why;
    EXPECT_THAT(status.message(),
                HasSubstr(absl::StrCat("cannot make 8192 bytes of shared memory: ", one.why)));
  }
}

TEST(SealedMemory, CannotBeExecutedWhereTheSystemKnowsHow) {
  if (!net::FileDescriptor(::memfd_create("starling-test", kNoExecSeal)).valid()) {
    GTEST_SKIP() << "this system does not";
  }
  for (const int before : {0, EINVAL}) {
    errno = before;  // whatever failed before it
    const auto made = SealedMemory::Make("starling-test", kBytes);
    ASSERT_EQ(made.status(), absl::OkStatus());
    struct stat status = {};
    ASSERT_EQ(::fstat(made->file.get(), &status), 0);
    EXPECT_EQ(status.st_mode & 0111U, 0);
  }
}

TEST(SealedMemory, MovedFromIsEmpty) {
  auto made = SealedMemory::Make("starling-test", kBytes);
  ASSERT_EQ(made.status(), absl::OkStatus());
  const SealedMemory to = std::move(made->memory);
  EXPECT_EQ(made->memory.data(), nullptr);
  EXPECT_EQ(made->memory.size(), 0);
}

TEST(SealedMemory, StaysWhenMovedToItself) {
  auto made = SealedMemory::Make("starling-test", kBytes);
  ASSERT_EQ(made.status(), absl::OkStatus());
  std::byte* const data = made->memory.data();
  SealedMemory& same = made->memory;
  made->memory = std::move(same);
  EXPECT_EQ(made->memory.data(), data);
  EXPECT_EQ(made->memory.size(), kBytes);
}

TEST(SealedMemory, IsUnmappedWhenAnotherTakesItsPlace) {
  const auto mappings = [] {
    int count = 0;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find("memfd:starling-replaced") != std::string::npos) ++count;
    }
    return count;
  };
  auto made = SealedMemory::Make("starling-replaced", kBytes);
  auto other = SealedMemory::Make("starling-test", kBytes);
  ASSERT_EQ(made.status(), absl::OkStatus());
  ASSERT_EQ(other.status(), absl::OkStatus());
  EXPECT_EQ(mappings(), 1);
  made->memory = std::move(other->memory);
  EXPECT_EQ(mappings(), 0);
}

TEST(SealedMemory, ThatOthersReadIsNotMappedForWriting) {
  const auto made = SealedMemory::Make("starling-test", kBytes, Others::kRead);
  ASSERT_EQ(made.status(), absl::OkStatus());
  made->memory.data()[0] = std::byte{7};
  EXPECT_EQ(SealedMemory::Map(made->file, kBytes, Others::kWrite).status().code(),
            absl::StatusCode::kResourceExhausted);
  const auto mapped = SealedMemory::Map(made->file, kBytes, Others::kRead);
  ASSERT_EQ(mapped.status(), absl::OkStatus());
  EXPECT_EQ(mapped->data()[0], std::byte{7});
}

TEST(SealedMemory, IsNoOrdinaryFile) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) /
                                     absl::StrCat("starling-ordinary-file-", ::getpid());
  std::ofstream(path) << std::string(kBytes, 'x');
  const net::FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  std::filesystem::remove(path);
  ASSERT_TRUE(file.valid());
  EXPECT_TRUE(absl::IsUnavailable(SealedMemory::Map(file, kBytes).status()));
}

}  // namespace
}  // namespace starling::transport
