// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/host_card.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/net/socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/transport/shaper.h"

namespace starling::transport {
namespace {

constexpr std::int64_t kMs = 1'000'000;

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

TEST_F(HostCardTest, RefusesWhatIsNoCard) {
  std::ofstream(path()) << "something else";
  EXPECT_EQ(HostCard::Open(folder_, "job-worker-0").status().code(),
            absl::StatusCode::kFailedPrecondition);
  std::filesystem::remove(path());
  std::filesystem::create_symlink("/dev/zero", path());
  EXPECT_FALSE(HostCard::Open(folder_, "job-worker-0").ok());
  EXPECT_FALSE(HostCard::Open(folder_ + "/none", "job-worker-0").ok());
}

TEST(Shaping, PlacesPodsWhoseNumbersFollowOneAnother) {
  EXPECT_EQ(HostOf("job-worker-0", 4), "job-worker-0");
  EXPECT_EQ(HostOf("job-worker-3", 4), "job-worker-0");
  EXPECT_EQ(HostOf("job-worker-4", 4), "job-worker-1");
  EXPECT_EQ(HostOf("job-parameter-server-4", 4), "job-parameter-server-1");
  EXPECT_EQ(HostOf("job-worker-3", 1), "");
  EXPECT_EQ(HostOf("nameless", 4), "");
  EXPECT_EQ(HostOf("job-x", 4), "");
  EXPECT_EQ(HostOf("", 4), "");
}

TEST(Shaping, IsToldInWords) {
  EXPECT_EQ(TextOf({.delay = absl::Microseconds(200), .bytes_per_second = 125e6}),
            "emulated 1 Gbit/s, 0.2 ms");
  EXPECT_EQ(TextOf({.bytes_per_second = 12.5e6, .pods_per_host = 4}),
            "emulated 100 Mbit/s, 4 pods on a card");
  EXPECT_EQ(TextOf({.delay = absl::Milliseconds(5)}), "emulated 5 ms");
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

}  // namespace
}  // namespace starling::transport
