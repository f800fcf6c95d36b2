// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/host_card.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/net/socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/transport/shaper.h"

namespace starling::transport {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kMs = 1'000'000;
// Of the file: behind its mark, the machine and a number.
constexpr std::size_t kLockAt = 16;

class HostCardTest : public ::testing::Test {
 protected:
  HostCardTest() : folder_(absl::StrCat(::testing::TempDir(), "/cards-", ::getpid())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~HostCardTest() override { std::filesystem::remove_all(folder_); }

  std::shared_ptr<HostCard> Open(const std::string& host = "job-worker-0") {
    auto card = HostCard::Open(folder_, host);
    EXPECT_EQ(card.status(), absl::OkStatus());
    return card.ok() ? *std::move(card) : nullptr;
  }
  std::string path() const { return folder_ + "/network-card-of-job-worker-0"; }

  const std::string folder_;
  // A millisecond for 1000 bytes.
  const Shaping network_{.bytes_per_second = 1e6};
};

TEST_F(HostCardTest, MembersOfAHostSendOneAfterAnother) {
  Shaper one(network_, Open()), other(network_, Open());
  EXPECT_EQ(one.Depart(1000, 10 * kMs), 11 * kMs);
  EXPECT_EQ(other.Depart(1000, 10 * kMs), 12 * kMs);
  EXPECT_EQ(one.Depart(1000, 10 * kMs), 13 * kMs);
}

TEST_F(HostCardTest, MembersOfAHostReceiveOneAfterAnother) {
  Shaper one(network_, Open()), other(network_, Open());
  EXPECT_EQ(one.Arrive(10 * kMs, 1000, 0), 10 * kMs);
  EXPECT_EQ(other.Arrive(10 * kMs, 1000, 0), 11 * kMs);
}

TEST_F(HostCardTest, HostsDoNotShare) {
  Shaper one(network_, Open("job-worker-0")), other(network_, Open("job-worker-1"));
  EXPECT_EQ(one.Depart(1000, 10 * kMs), 11 * kMs);
  EXPECT_EQ(other.Depart(1000, 10 * kMs), 11 * kMs);
}

TEST_F(HostCardTest, TellsWhoUsesIt) {
  const auto one = Open(), other = Open();
  one->SitDown("a");
  EXPECT_TRUE(other->Sits("a"));
  EXPECT_FALSE(other->Sits("b"));
  for (int i = 0; i < 1000; ++i) other->SitDown(absl::StrCat("restarted-", i));
  EXPECT_TRUE(one->Sits("restarted-999"));
}

TEST_F(HostCardTest, AMemberThatSitsDownAgainTakesNobodysSeat) {
  const auto card = Open();
  card->SitDown("a");
  for (int i = 0; i < 1000; ++i) card->SitDown("b");
  EXPECT_TRUE(card->Sits("a"));
}

TEST_F(HostCardTest, IsForOneUserAlone) {
  (void)Open();
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(path()).permissions(), perms::owner_read | perms::owner_write);
}

TEST_F(HostCardTest, LeavesNoMemoryBehind) {
  const auto mapped = [this] {
    std::ifstream maps("/proc/self/maps");
    const std::string all(std::istreambuf_iterator<char>(maps), {});
    return all.find(std::filesystem::canonical(path()).string()) != std::string::npos;
  };
  auto card = Open();
  EXPECT_TRUE(mapped());
  card.reset();
  EXPECT_FALSE(mapped());
}

// Whoever dies at any place leaves a card that others can use.
TEST_F(HostCardTest, OutlivesWhoDiesInTheMiddle) {
  const auto card = Open();
  for (int turn = 0; turn < 20; ++turn) {
    auto said = net::SocketPair();
    ASSERT_TRUE(said.ok());
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      (void)::write(said->second.get(), "x", 1);
      for (std::int64_t i = 0;; i += 2) (void)card->Receive(i, 1);
    }
    char byte = 0;
    while (::read(said->first.get(), &byte, 1) < 1) {
    }
    for (int i = 0; i < turn * 100; ++i) card->SitDown("parent");
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    const std::int64_t later = 1'000'000'000'000 * (turn + 1);
    EXPECT_EQ(card->Receive(later, 1), later + 1);
  }
}

// Whether it holds in a process of its own.
bool HoldsInAChild(const std::function<bool()>& claim) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(claim() ? 0 : 1);
  int status = -1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

TEST_F(HostCardTest, IsIdleAfterWhoeverDiedHoldingItsLock) {
  const auto card = Open();
  EXPECT_EQ(card->Send(0, 1000 * kMs), 1000 * kMs);
  ASSERT_TRUE(HoldsInAChild([this] {
    const net::FileDescriptor file(::open(path().c_str(), O_RDWR | O_CLOEXEC));
    void* const memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    auto* const lock = static_cast<std::byte*>(memory) + kLockAt;
    return ::pthread_mutex_lock(reinterpret_cast<pthread_mutex_t*>(lock)) == 0;
  }));
  EXPECT_EQ(card->Send(0, kMs), kMs);
  EXPECT_EQ(card->Send(0, kMs), 2 * kMs) << "and its lock can be had again";
}

// Times of a machine's clock mean nothing once it was started anew.
TEST_F(HostCardTest, DoesNotBelieveWhatWasThereBeforeTheMachineStarted) {
  Shaper(network_, Open()).Depart(1000, 1'000'000 * kMs);
  EXPECT_EQ(Shaper(network_, Open()).Depart(1000, 0), 1'000'002 * kMs);
  std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(8);
  const std::uint32_t other = ThisMachine() + 1;
  file.write(reinterpret_cast<const char*>(&other), sizeof(other));
  file.close();
  EXPECT_EQ(Shaper(network_, Open()).Depart(1000, 0), kMs);
}

// Who made it died before it was done.
TEST_F(HostCardTest, DoesNotBelieveAFileWithoutItsMark) {
  EXPECT_EQ(Open()->Send(0, 1000 * kMs), 1000 * kMs);
  std::fstream(path(), std::ios::in | std::ios::out | std::ios::binary).write("\0\0\0\0", 4);
  EXPECT_EQ(Open()->Send(0, kMs), kMs);
}

// Whether a process waits for the lock of this file.
bool IsWaitedFor(const std::string& path) {
  struct stat status = {};
  (void)::stat(path.c_str(), &status);
  const std::string file = absl::StrCat(":", status.st_ino, " ");
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    if (line.find("->") != std::string::npos && line.find(file) != std::string::npos) return true;
  }
  return false;
}

TEST_F(HostCardTest, WaitsForWhoeverMakesItsFile) {
  net::FileDescriptor file(::open(path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(file.get(), LOCK_EX), 0);
  ASSERT_EQ(::write(file.get(), "half", 4), 4);
  absl::Status opened;
  std::atomic<bool> done = false;
  std::thread other([&] {
    opened = HostCard::Open(folder_, "job-worker-0").status();
    done = true;
  });
  while (!done && !IsWaitedFor(path())) std::this_thread::yield();
  EXPECT_EQ(::ftruncate(file.get(), 0), 0);
  file.Reset();
  other.join();
  EXPECT_EQ(opened, absl::OkStatus());
}

TEST_F(HostCardTest, SaysThatThereIsNoRoomForIt) {
  EXPECT_TRUE(HoldsInAChild([this] {
    (void)::signal(SIGXFSZ, SIG_IGN);
    const rlimit none{0, 0};
    (void)::setrlimit(RLIMIT_FSIZE, &none);
    const absl::Status opened = HostCard::Open(folder_, "job-worker-0").status();
    return absl::IsUnavailable(opened) &&
           opened.message().find("cannot make room") != absl::string_view::npos;
  }));
}

TEST_F(HostCardTest, SaysThatItCannotBeMapped) {
  EXPECT_TRUE(HoldsInAChild([this] {
    const rlimit none{1, 1};
    (void)::setrlimit(RLIMIT_AS, &none);
    const absl::Status opened = HostCard::Open(folder_, "job-worker-0").status();
    return absl::IsResourceExhausted(opened) &&
           opened.message().find("cannot map") != absl::string_view::npos;
  }));
}

TEST_F(HostCardTest, SaysThatItsFolderIsNotThere) {
  const absl::Status opened = HostCard::Open(folder_ + "/none", "job-worker-0").status();
  EXPECT_EQ(opened.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(opened.message(), AllOf(HasSubstr("cannot open"), HasSubstr("No such file")));
}

TEST_F(HostCardTest, RefusesWhatIsNoCard) {
  std::ofstream(path()) << "something else";
  EXPECT_EQ(HostCard::Open(folder_, "job-worker-0").status().code(),
            absl::StatusCode::kFailedPrecondition);
  std::filesystem::remove(path());
  std::filesystem::create_symlink("/dev/zero", path());
  EXPECT_FALSE(HostCard::Open(folder_, "job-worker-0").ok());
  std::filesystem::remove(path());
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  EXPECT_EQ(HostCard::Open(folder_, "job-worker-0").status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(Shaping, PlacesPodsWhoseNumbersFollowOneAnother) {
  EXPECT_EQ(HostOf("job-worker-0", 4), "job-worker-0");
  EXPECT_EQ(HostOf("job-worker-3", 4), "job-worker-0");
  EXPECT_EQ(HostOf("job-worker-4", 4), "job-worker-1");
  EXPECT_EQ(HostOf("job-worker-3", 2), "job-worker-1");
  EXPECT_EQ(HostOf("job-parameter-server-4", 4), "job-parameter-server-1");
  EXPECT_EQ(HostOf("job-worker-3", 1), "");
  EXPECT_EQ(HostOf("nameless", 4), "");
  EXPECT_EQ(HostOf("job-x", 4), "");
  EXPECT_EQ(HostOf("7", 4), "");
  EXPECT_EQ(HostOf("", 4), "");
}

TEST(Shaping, IsToldInWords) {
  EXPECT_EQ(TextOf({.delay = absl::Microseconds(200), .bytes_per_second = 125e6}),
            "emulated 1 Gbit/s, 0.2 ms");
  EXPECT_EQ(TextOf({.bytes_per_second = 12.5e6, .pods_per_host = 4}),
            "emulated 100 Mbit/s, 4 pods on a card");
  EXPECT_EQ(TextOf({.bytes_per_second = 1e6, .pods_per_host = 2}),
            "emulated 8 Mbit/s, 2 pods on a card");
  EXPECT_EQ(TextOf({.delay = absl::Milliseconds(5)}), "emulated 5 ms");
  EXPECT_EQ(TextOf({.bytes_per_second = 1}), "emulated 8e-06 Mbit/s");
}

TEST(Shaping, NetworksDifferByMachineAndHosts) {
  const Shaping network{.delay = absl::Milliseconds(1), .bytes_per_second = 1e6};
  Shaping slower = network, shared = network, elsewhere = network;
  slower.bytes_per_second = 1e5;
  shared.pods_per_host = 2;
  elsewhere.machine = ThisMachine() + 1;
  EXPECT_EQ(NetworkOf(network), NetworkOf(slower));
  EXPECT_EQ(NetworkOf({}), 0);
  for (const Shaping& other : {shared, elsewhere, Shaping{}}) {
    EXPECT_NE(NetworkOf(network), NetworkOf(other));
  }
}

TEST(Shaping, AMachineIsToldByWhenItWasStarted) {
  const bytes::Digest of_nothing = bytes::Sha256Of({});
  std::uint32_t without = 0;
  std::memcpy(&without, of_nothing.data(), sizeof(without));
  EXPECT_NE(ThisMachine(), without) << "what every machine would be";
}

}  // namespace
}  // namespace starling::transport
