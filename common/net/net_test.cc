// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <fstream>
#include <optional>
#include <string>

#include "common/net/address.h"
#include "common/net/deadline.h"
#include "common/net/socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::net {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kSoon = absl::Seconds(10);

bool Readable(int fd, Deadline deadline) {
  pollfd wait{fd, POLLIN, 0};
  return ::poll(&wait, 1, deadline.PollTimeout()) == 1;
}

TEST(Address, ReadsAndWritesBothFamilies) {
  for (const std::string text : {"127.0.0.1:7072", "[::1]:80", "0.0.0.0:0"}) {
    const auto address = ParseAddress(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(ToString(*address), text);
  }
}

TEST(Address, RefusesEverythingElseAndNamesIt) {
  for (const std::string text :
       {"", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:-1", "127.0.0.1:1x",
        "localhost:1", "::1:80", "[127.0.0.1]:80", "1.2.3:4", "[::1:80", "127.0.0.1 :80"}) {
    const auto address = ParseAddress(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_THAT(address.status().message(), HasSubstr("\"" + text + "\""));
  }
}

TEST(Deadline, ExpiresOnlyWhenItsTimeHasPassed) {
  EXPECT_TRUE(Deadline::After(absl::ZeroDuration()).Expired());
  EXPECT_TRUE(Deadline::After(-absl::Seconds(1)).Expired());
  EXPECT_FALSE(Deadline::After(kSoon).Expired());
  EXPECT_FALSE(Deadline::After(absl::InfiniteDuration()).Expired());
  EXPECT_FALSE(Deadline::Never().Expired());
  EXPECT_EQ(Deadline::Never().PollTimeout(), -1);
  EXPECT_GT(Deadline::After(kSoon).PollTimeout(), 9'000);
}

TEST(Socket, ConnectsFromTheGivenSourceAddress) {
  const auto listener = Listen({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto socket =
      Connect(*LocalAddress(*listener), Deadline::After(kSoon), Address{"127.0.77.1", 0});
  ASSERT_TRUE(socket.ok()) << socket.status();

  ASSERT_TRUE(Readable(listener->get(), Deadline::After(kSoon)));
  const auto accepted = Accept(*listener);
  ASSERT_TRUE(accepted.ok() && accepted->valid());
  EXPECT_EQ(LocalAddress(*socket)->host, "127.0.77.1");
}

std::string CongestionControlOf(const FileDescriptor& socket) {
  char name[16] = {};  // the kernel's limit
  socklen_t size = sizeof name - 1;
  EXPECT_EQ(::getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name, &size), 0);
  return name;
}

TEST(Socket, SendsUnpacedToWhoIsOnTheSameMachine) {
  for (const std::string host : {"127.0.0.1", "::1"}) {
    const auto listener = Listen({host, 0});
    if (host == "::1" && !listener.ok()) continue;  // a machine without IPv6
    ASSERT_TRUE(listener.ok()) << listener.status();
    const std::optional<Address> source =
        host == "::1" ? std::nullopt : std::optional(Address{"127.0.77.1", 0});
    const auto socket = Connect(*LocalAddress(*listener), Deadline::After(kSoon), source);
    ASSERT_TRUE(socket.ok()) << socket.status();
    std::string others;
    std::ifstream("/proc/sys/net/ipv4/tcp_congestion_control") >> others;
    EXPECT_EQ(CongestionControlOf(*socket), others);

    SendUnpacedOnOneMachine(*socket);

    EXPECT_EQ(CongestionControlOf(*socket), "reno") << host;
  }
  const auto pair = SocketPair();
  ASSERT_TRUE(pair.ok());
  SendUnpacedOnOneMachine(pair->first);  // what has no such control stays as it is
}

TEST(Socket, DescriptorsAreCloseOnExecAndNonblocking) {
  const auto listener = Listen({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto socket = Connect(*LocalAddress(*listener), Deadline::After(kSoon));
  ASSERT_TRUE(socket.ok()) << socket.status();
  for (const int fd : {listener->get(), socket->get()}) {
    EXPECT_TRUE(::fcntl(fd, F_GETFD) & FD_CLOEXEC);
    EXPECT_TRUE(::fcntl(fd, F_GETFL) & O_NONBLOCK);
  }
}

TEST(Socket, SecondListenerOnOnePortIsAnErrorThatNamesTheAddress) {
  const auto first = Listen({"127.0.0.1", 0});
  ASSERT_TRUE(first.ok()) << first.status();
  const Address address = *LocalAddress(*first);

  const auto second = Listen(address);

  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr(ToString(address)));
}

TEST(Socket, RefusedConnectionNamesTheAddress) {
  Address address;
  {
    const auto listener = Listen({"127.0.0.1", 0});
    ASSERT_TRUE(listener.ok());
    address = *LocalAddress(*listener);
  }
  const auto socket = Connect(address, Deadline::After(kSoon));
  ASSERT_FALSE(socket.ok());
  EXPECT_EQ(socket.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(socket.status().message(), HasSubstr(ToString(address)));
}

TEST(Socket, AcceptWithNobodyWaitingReturnsAtOnce) {
  const auto listener = Listen({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok());
  const auto accepted = Accept(*listener);
  ASSERT_TRUE(accepted.ok()) << accepted.status();
  EXPECT_FALSE(accepted->valid());
}

TEST(EventFd, IsReadableFromSignalToDrain) {
  EventFd event;
  EXPECT_FALSE(Readable(event.get(), Deadline::After(absl::ZeroDuration())));
  event.Signal();
  event.Signal();
  EXPECT_TRUE(Readable(event.get(), Deadline::After(kSoon)));
  event.Drain();
  EXPECT_FALSE(Readable(event.get(), Deadline::After(absl::ZeroDuration())));
}

}  // namespace
}  // namespace starling::net
