// SPDX-License-Identifier: Apache-2.0
// Shared memory between real processes: killed, paused, short of memory, or somebody else's.
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/child_process.h"
#include "trainer/testing/transports.h"
#include "trainer/transport/unix_socket.h"

namespace starling::transport {
namespace {

using ::starling::testing::Child;
using ::starling::testing::ReadLine;
using ::starling::testing::WriteLine;
using ::starling::transport::testing::Kind;
using ::starling::transport::testing::OnEachRank;
using ::starling::transport::testing::Soon;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Tag kTag{1, 20};
constexpr std::size_t kLarge = 8 << 20;  // more than a ring

Options OptionsOf(const std::string& member) {
  Options options;
  options.member = member;
  options.job = "job-a";
  options.secret = "secret of the tests";
  return options;
}

absl::StatusOr<std::unique_ptr<Transport>> OpenKind(Kind kind, const Options& options) {
  return kind == Kind::kShm ? OpenShmTransport(options)
                            : OpenMixedTransport(net::Address{"127.0.81.3", 0}, options);
}

// In a child: joins view 1 of "parent" and "child" as rank 1.
absl::StatusOr<std::unique_ptr<Mesh>> JoinParent(Transport& transport, int control) {
  WriteLine(control, transport.address());
  return transport.Open(1, {{"parent", ReadLine(control)}, {"child", transport.address()}}, 1,
                        Soon(), nullptr);
}

// In a child: as rank 1 sends the same large frame for ever. 7 when the mesh ends because rank 0
// is out of reach.
int SendForEver(int control) {
  const auto transport = OpenKind(Kind::kShm, OptionsOf("child"));
  if (!transport.ok()) return 2;
  const auto mesh = JoinParent(**transport, control);
  if (!mesh.ok()) return 3;
  const std::vector<std::byte> large(kLarge, std::byte{42});
  while (true) {
    const absl::Status sent = (*mesh)->Send(0, kTag, large, Soon());
    if (!sent.ok()) return absl::IsUnavailable(sent) ? 7 : 4;
  }
}

// The parent's side of JoinParent.
struct Parent {
  Parent(const Child& child, Kind kind = Kind::kShm) {
    auto opened = OpenKind(kind, OptionsOf("parent"));
    STARLING_CHECK(opened.ok(), opened.status().ToString().c_str());
    transport = *std::move(opened);
    const std::string theirs = child.Read();
    child.Write(transport->address());
    mesh = transport->Open(1, {{"parent", transport->address()}, {"child", theirs}}, 0, Soon(),
                           nullptr);
  }
  absl::Status ReceiveLarge(net::Deadline deadline) {
    buffer.assign(kLarge, std::byte{0});
    return (*mesh)->Receive(1, kTag, buffer, deadline);
  }

  std::unique_ptr<Transport> transport;
  absl::StatusOr<std::unique_ptr<Mesh>> mesh = absl::UnknownError("not opened");
  std::vector<std::byte> buffer;
};

bool AnySegmentMapped() {
  std::ifstream maps("/proc/self/maps");
  const std::string all(std::istreambuf_iterator<char>(maps), {});
  return all.find("memfd:starling-link") != std::string::npos;
}

TEST(ShmProcesses, DeathInTheMiddleOfATransferIsNoticedAtOnceAndLeavesNothing) {
  Child child(SendForEver);
  Parent parent(child);
  ASSERT_EQ(parent.mesh.status(), absl::OkStatus());
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(parent.ReceiveLarge(Soon()), absl::OkStatus());
    EXPECT_EQ(parent.buffer, std::vector<std::byte>(kLarge, std::byte{42}));
  }
  child.Signal(SIGKILL);
  const absl::Time begin = absl::Now();
  absl::Status ended;
  while (ended.ok()) ended = parent.ReceiveLarge(Soon());
  EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable) << ended;
  EXPECT_THAT(ended.message(), HasSubstr("the process is gone"));
  EXPECT_THAT(UnreachableRanks(ended), ElementsAre(1));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20)) << "not by the deadline";
  EXPECT_EQ(child.Wait(), 1000 + SIGKILL);
  EXPECT_FALSE(AnySegmentMapped()) << "a mesh that ended gives its memory back";
}

TEST(ShmProcesses, DeathWakesWhoSleepsInAReceive) {
  Child silent([](int control) {
    const auto transport = OpenKind(Kind::kShm, OptionsOf("child"));
    if (!transport.ok()) return 2;
    const auto mesh = JoinParent(**transport, control);
    if (!mesh.ok()) return 3;
    (void)ReadLine(control);  // for ever
    return 0;
  });
  Parent parent(silent);
  ASSERT_EQ(parent.mesh.status(), absl::OkStatus());
  std::thread killer([&] { silent.Signal(SIGKILL); });
  const absl::Status ended = parent.ReceiveLarge(Soon());
  killer.join();
  EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable) << ended;
  EXPECT_THAT(UnreachableRanks(ended), ElementsAre(1));
}

TEST(ShmProcesses, PeerPausedInACopyWakesIntoADeadViewOnly) {
  Child child(SendForEver);
  Parent parent(child);
  ASSERT_EQ(parent.mesh.status(), absl::OkStatus());
  ASSERT_EQ(parent.ReceiveLarge(Soon()), absl::OkStatus());
  child.Signal(SIGSTOP);
  child.WaitUntilStopped();
  absl::Status ended;
  while (ended.ok()) ended = parent.ReceiveLarge(net::Deadline::After(absl::Milliseconds(50)));
  EXPECT_EQ(ended.code(), absl::StatusCode::kDeadlineExceeded) << ended;
  EXPECT_THAT(UnreachableRanks(ended), ElementsAre(1));

  // The next view, without it: one byte of the paused process's frames (42) in it would be seen.
  auto other = OpenKind(Kind::kShm, OptionsOf("other"));
  ASSERT_EQ(other.status(), absl::OkStatus());
  const std::vector<Peer> members = {{"parent", parent.transport->address()},
                                     {"other", (*other)->address()}};
  Transport* const transports[] = {parent.transport.get(), other->get()};
  OnEachRank(2, [&](int rank) {
    const auto mesh = transports[rank]->Open(2, members, rank, Soon(), nullptr);
    ASSERT_EQ(mesh.status(), absl::OkStatus());
    for (int round = 0; round < 20; ++round) {
      if (round == 5 && rank == 0) {
        child.Signal(SIGCONT);
        EXPECT_EQ(child.Wait(), 7) << "it learns that its view is over";
      }
      const std::vector<std::byte> mine(kLarge / 8, static_cast<std::byte>(100 + round));
      std::vector<std::byte> theirs(mine.size());
      const Ticket sent = (*mesh)->PostSend(1 - rank, kTag, mine);
      ASSERT_EQ((*mesh)->Receive(1 - rank, kTag, theirs, Soon()), absl::OkStatus());
      ASSERT_EQ((*mesh)->Wait(sent, Soon()), absl::OkStatus());
      EXPECT_EQ(theirs, mine);
    }
  });
}

// As memory or file sizes are limited: no new shared memory at all.
void ForbidSharedMemory() {
  (void)::signal(SIGXFSZ, SIG_IGN);
  const rlimit none = {4096, 4096};
  (void)::setrlimit(RLIMIT_FSIZE, &none);
}

TEST(ShmProcesses, LackOfMemoryIsOnesOwnTroubleAndSaysWhatToDo) {
  Child child([](int control) {
    const auto transport = OpenKind(Kind::kShm, OptionsOf("child"));
    if (!transport.ok()) return 2;
    ForbidSharedMemory();
    const auto mesh = JoinParent(**transport, control);
    if (!absl::IsResourceExhausted(mesh.status())) return 3;
    if (!UnreachableRanks(mesh.status()).empty()) return 4;
    const std::string message(mesh.status().message());
    return message.find("or connect by tcp") != std::string::npos ? 0 : 5;
  });
  Parent parent(child);
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_EQ(parent.mesh.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(UnreachableRanks(parent.mesh.status()), ElementsAre(1));
}

TEST(ShmProcesses, MixedKindGoesOnWithoutSharedMemory) {
  Child child([](int control) {
    const auto transport = OpenKind(Kind::kMixed, OptionsOf("child"));
    if (!transport.ok()) return 2;
    ForbidSharedMemory();
    const auto mesh = JoinParent(**transport, control);
    if (!mesh.ok()) return 3;
    const std::vector<std::byte> large(kLarge, std::byte{42});
    return (*mesh)->Send(0, kTag, large, Soon()).ok() ? 0 : 4;
  });
  Parent parent(child, Kind::kMixed);
  ASSERT_EQ(parent.mesh.status(), absl::OkStatus());
  EXPECT_FALSE(AnySegmentMapped());
  EXPECT_EQ(parent.ReceiveLarge(Soon()), absl::OkStatus());
  EXPECT_EQ(child.Wait(), 0);
}

TEST(ShmProcesses, OtherUsersAreTurnedAwayBeforeTheySayAnything) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  Child stranger([](int control) {
    if (::setresuid(65534, 65534, 65534) != 0) return 2;
    const std::string name = ReadLine(control);
    if (!absl::IsPermissionDenied(ConnectToName(name).status())) return 3;
    // Nor does the listener wait for one that does not care.
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, name.size());
    const net::FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) return 4;
    char byte = 0;
    return ::recv(socket.get(), &byte, 1, 0) == 0 ? 0 : 5;
  });
  Options patient = OptionsOf("parent");
  patient.handshake_timeout = absl::Hours(1);
  const auto transport = OpenShmTransport(patient);
  ASSERT_EQ(transport.status(), absl::OkStatus());
  stranger.Write((*transport)->address().substr(4));
  EXPECT_EQ(stranger.Wait(), 0);
}

TEST(ShmProcesses, AnotherNetworkNamespaceIsAnotherMachine) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root makes network namespaces";
  const auto try_to_connect = [](bool apart) {
    return [apart](int control) {
      const std::string name = ReadLine(control);
      if (apart && ::unshare(CLONE_NEWNET) != 0) return 2;
      return ConnectToName(name).ok() ? 1 : 0;
    };
  };
  Child beside(try_to_connect(false));
  Child apart(try_to_connect(true));
  const auto transport = OpenShmTransport(OptionsOf("parent"));
  ASSERT_EQ(transport.status(), absl::OkStatus());
  for (Child* child : {&beside, &apart}) child->Write((*transport)->address().substr(4));
  EXPECT_EQ(beside.Wait(), 1);
  EXPECT_EQ(apart.Wait(), 0);
}

}  // namespace
}  // namespace starling::transport
