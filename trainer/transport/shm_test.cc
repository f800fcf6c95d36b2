// SPDX-License-Identifier: Apache-2.0
// Shared memory inside one process: rings, segments, what a peer gone bad can do, what is left
// over.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/transports.h"
#include "trainer/transport/frame.h"
#include "trainer/transport/shm_segment.h"
#include "trainer/transport/shm_stream.h"
#include "trainer/transport/stream_mesh.h"
#include "trainer/transport/unix_socket.h"

namespace starling::transport {
namespace {

using ::starling::transport::testing::Kind;
using ::starling::transport::testing::Members;
using ::starling::transport::testing::OnEachRank;
using ::starling::transport::testing::Soon;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr Tag kTag{1, 20};

// A ring in private memory.
struct TestRing {
  explicit TestRing(std::size_t capacity = 256) : data(capacity) {
    ring = {&control, data.data(), data.size()};
  }
  RingControl control;
  std::vector<std::byte> data;
  Ring ring;
};

iovec Piece(std::span<std::byte> bytes) { return {bytes.data(), bytes.size()}; }

std::vector<std::byte> Counting(std::size_t size, int from = 0) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>((i + static_cast<std::size_t>(from)) % 251);
  }
  return bytes;
}

TEST(Ring, CarriesBytesInOrderAcrossItsEndAndNeverBeyondItsRoom) {
  TestRing memory;
  RingWriter writer(memory.ring);
  RingReader reader(memory.ring);
  std::mt19937 random(1);
  std::size_t sent = 0, received = 0;
  const auto all = Counting(100'000);
  while (received < all.size()) {
    auto out = std::vector(
        all.begin() + static_cast<std::ptrdiff_t>(sent),
        all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), sent + random() % 400)));
    const iovec piece = Piece(out);
    sent += writer.Write(std::span(&piece, 1))->bytes;
    ASSERT_LE(sent - received, 256 - kReservedForLast);
    std::vector<std::byte> in(random() % 400);
    const iovec target = Piece(in);
    const std::size_t read = reader.Read(std::span(&target, 1))->bytes;
    ASSERT_TRUE(std::equal(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(read),
                           all.begin() + static_cast<std::ptrdiff_t>(received)));
    received += read;
  }
}

TEST(Ring, FullRingHasRoomForAFarewellOnce) {
  TestRing memory;
  RingWriter writer(memory.ring);
  auto much = Counting(1000);
  const iovec piece = Piece(much);
  EXPECT_EQ(writer.Write(std::span(&piece, 1))->bytes, 256 - kReservedForLast);
  EXPECT_FALSE(writer.Ready());
  EXPECT_EQ(writer.WriteLast(Counting(40)).bytes, 40);
  EXPECT_EQ(writer.WriteLast(Counting(40)).bytes, 0) << "whole or not at all";
}

TEST(Ring, WakesOnlyWhoSleepsAndAWriterOnlyForHalfARing) {
  TestRing memory;
  RingWriter writer(memory.ring);
  RingReader reader(memory.ring);
  auto bytes = Counting(180);
  const iovec piece = Piece(bytes), byte = Piece(std::span(bytes).first(1));
  const std::span<const iovec> all(&piece, 1), one(&byte, 1);
  EXPECT_FALSE(writer.Write(one)->ring);
  reader.Arm();
  EXPECT_TRUE(writer.Write(one)->ring);
  EXPECT_FALSE(writer.Write(one)->ring) << "once is enough";
  EXPECT_EQ(writer.Write(all)->bytes, 180);
  writer.Arm();
  EXPECT_FALSE(reader.Read(one)->ring) << "182 bytes are left";
  EXPECT_TRUE(reader.Read(all)->ring);
}

TEST(Ring, MovesAPortionAtATimeAndNoMoreThanItsShareInOneCall) {
  constexpr std::size_t kPortion = 32 << 10, kShare = 256 << 10;
  TestRing memory(1 << 20);
  RingWriter writer(memory.ring);
  RingReader reader(memory.ring);
  auto much = Counting(kShare + 1000), in = std::vector<std::byte>(kShare + 1000);
  const iovec pieces[] = {Piece(std::span(much).first(1000)), Piece(std::span(much).subspan(1000))};
  reader.Arm();
  const auto written = writer.Write(pieces);
  EXPECT_EQ(written->bytes, kShare);
  EXPECT_TRUE(written->ring) << "though it was awake again for all portions but the first";
  EXPECT_EQ(memory.control.written.load(), kShare);
  const iovec all = Piece(in);
  EXPECT_EQ(reader.Read(std::span(&all, 1))->bytes, kShare);
  EXPECT_EQ(memory.control.read.load(), kShare);
  EXPECT_TRUE(std::equal(in.begin(), in.begin() + kShare, much.begin()));
  const iovec rest = Piece(std::span(much).last(1000));
  EXPECT_EQ(writer.Write(std::span(&rest, 1))->bytes, 1000);
  EXPECT_EQ(reader.Read(std::span(&all, 1))->bytes, 1000);
  EXPECT_EQ(reader.Read(std::span(&all, 1))->bytes, 0);
  EXPECT_FALSE(reader.Ready());
  EXPECT_TRUE(std::equal(in.begin(), in.begin() + 1000, much.end() - 1000));
  auto exact = Counting(kPortion);
  const iovec one = Piece(exact);
  reader.Arm();
  EXPECT_TRUE(writer.Write(std::span(&one, 1))->ring);
  EXPECT_TRUE(reader.Ready());
}

TEST(Ring, CountsOfTheOtherEndAreNeverBelieved) {
  for (const std::uint64_t count :
       {std::uint64_t{257}, std::uint64_t{1} << 63, std::uint64_t{1} << 40}) {
    TestRing memory;
    RingReader reader(memory.ring);
    std::vector<std::byte> in(4096, std::byte{9});
    const iovec target = Piece(in);
    memory.control.written = count;
    EXPECT_TRUE(absl::IsInternal(reader.Read(std::span(&target, 1)).status())) << count;
    EXPECT_TRUE(reader.Ready()) << "nobody sleeps on an error";
    EXPECT_THAT(in, Each(std::byte{9}));

    TestRing other;
    RingWriter writer(other.ring);
    other.control.read = count;
    EXPECT_TRUE(absl::IsInternal(writer.Write(std::span(&target, 1)).status())) << count;
    EXPECT_EQ(writer.WriteLast(in).bytes, 0);
    EXPECT_THAT(other.data, Each(std::byte{0}));
  }
}

TEST(Ring, CountsThatMoveBackOnlyHurtWhoMovesThem) {
  TestRing memory;
  RingWriter writer(memory.ring);
  RingReader reader(memory.ring);
  auto bytes = Counting(100);
  const iovec piece = Piece(bytes);
  const std::span<const iovec> all(&piece, 1);
  ASSERT_EQ(writer.Write(all)->bytes, 100);
  ASSERT_EQ(reader.Read(all)->bytes, 100);
  memory.control.written = 50;
  EXPECT_TRUE(absl::IsInternal(reader.Read(all).status()));
  memory.control.read = 0;
  EXPECT_EQ(writer.Write(all)->bytes, 256 - 100 - kReservedForLast);
}

TEST(SealedMemory, IsZeroAndBelongsToWhoeverHoldsItLast) {
  auto made = SealedMemory::Make("starling-test", 8192);
  ASSERT_EQ(made.status(), absl::OkStatus());
  SealedMemory& memory = made->memory;
  EXPECT_EQ(memory.size(), 8192);
  EXPECT_THAT(std::vector<std::byte>(memory.data(), memory.data() + 8192), Each(std::byte{0}));
  memory.data()[8191] = std::byte{7};
  std::byte* const data = memory.data();
  SealedMemory other = std::move(memory);
  EXPECT_EQ(other.data(), data);
  EXPECT_EQ(other.size(), 8192);
  EXPECT_EQ(memory.data(), nullptr);
  auto mapped = SealedMemory::Map(made->file, 8192);
  ASSERT_EQ(mapped.status(), absl::OkStatus());
  EXPECT_EQ(mapped->data()[8191], std::byte{7}) << "the same memory";
  other = *std::move(mapped);
  EXPECT_EQ(other.data()[8191], std::byte{7});
  EXPECT_TRUE(absl::IsUnavailable(SealedMemory::Map(made->file, 8191).status()));
}

TEST(UnixSocket, NameIsOnesOwnAndHasOneToAHundredAndSevenCharacters) {
  const std::string name = absl::StrCat("starling-test-", getpid());
  EXPECT_TRUE(absl::IsUnavailable(ConnectToName(name).status()));
  {
    const auto listener = ListenAtName(name);
    ASSERT_EQ(listener.status(), absl::OkStatus());
    EXPECT_TRUE(IsUnixSocket(*listener));
    EXPECT_TRUE(absl::IsUnavailable(ListenAtName(name).status())) << "it is taken";
    EXPECT_TRUE(absl::IsUnavailable(ConnectToName(name + "x").status()));
    EXPECT_EQ(ConnectToName(name).status(), absl::OkStatus());
  }
  EXPECT_EQ(ListenAtName(name).status(), absl::OkStatus()) << "it went with its listener";
  const std::string longest = name + std::string(107 - name.size(), 'x');
  EXPECT_EQ(ListenAtName(longest).status(), absl::OkStatus());
  for (const std::string& bad : {std::string(), longest + "x"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ListenAtName(bad).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(ConnectToName(bad).status()));
  }
  const auto tcp = net::Listen(net::Address{"127.0.81.3", 0});
  EXPECT_FALSE(IsUnixSocket(*tcp));
}

TEST(UnixSocket, FileComesAlongOnceAndBytesWithoutOneToo) {
  auto ends = net::SocketPair();
  ASSERT_EQ(ends.status(), absl::OkStatus());
  auto made = SealedMemory::Make("starling-test", 4096);
  const auto bytes = Counting(10, 1);
  std::array<std::byte, 100> in = {};
  net::FileDescriptor file;
  EXPECT_LT(ReceiveWithFile(ends->second, in, file), 0) << "nothing has come";
  ASSERT_TRUE(SendWithFile(ends->first, bytes, {}));
  EXPECT_EQ(ReceiveWithFile(ends->second, in, file), 10);
  EXPECT_FALSE(file.valid());
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), in.begin()));
  ASSERT_TRUE(SendWithFile(ends->first, bytes, made->file));
  EXPECT_EQ(ReceiveWithFile(ends->second, in, file), 10);
  ASSERT_TRUE(file.valid());
  EXPECT_EQ(SealedMemory::Map(file, 4096).status(), absl::OkStatus());
  EXPECT_TRUE(PeerIsSameUser(ends->first));
  ends->second.Reset();
  EXPECT_FALSE(SendWithFile(ends->first, bytes, {}));
}

TEST(Segment, RingsShrinkSoThatLargeViewsStayAffordable) {
  EXPECT_EQ(RingBytesFor(2), kMaxRingBytes);
  EXPECT_EQ(RingBytesFor(8), kMaxRingBytes);
  EXPECT_EQ(RingBytesFor(0), kMaxRingBytes);
  EXPECT_EQ(RingBytesFor(33), kMaxRingBytes) << "64 rings of one MiB";
  EXPECT_EQ(RingBytesFor(34), kMaxRingBytes / 2);
  EXPECT_EQ(RingBytesFor(256), 128 << 10);
  EXPECT_EQ(RingBytesFor(100'000), kMinRingBytes);
}

TEST(Segment, CanNeitherShrinkNorGrow) {
  const auto made = ShmSegment::Make(kMinRingBytes);
  ASSERT_EQ(made.status(), absl::OkStatus());
  EXPECT_NE(::ftruncate(made->file.get(), 0), 0);
  EXPECT_NE(::ftruncate(made->file.get(), 1 << 30), 0);
  EXPECT_EQ(ShmSegment::Map(made->file, kMinRingBytes).status(), absl::OkStatus());
}

TEST(Segment, OfAnotherSizeOrWithoutSealsIsRefused) {
  const auto made = ShmSegment::Make(kMinRingBytes);
  ASSERT_EQ(made.status(), absl::OkStatus());
  for (const std::size_t size :
       {std::size_t{0}, kMinRingBytes / 2, kMinRingBytes * 2, kMinRingBytes + 1, ~std::size_t{0}}) {
    EXPECT_TRUE(absl::IsUnavailable(ShmSegment::Map(made->file, size).status())) << size;
  }
  const net::FileDescriptor unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), 4096 + 2 * kMinRingBytes), 0);
  EXPECT_TRUE(absl::IsUnavailable(ShmSegment::Map(unsealed, kMinRingBytes).status()));
  ASSERT_EQ(::fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_EQ(ShmSegment::Map(unsealed, kMinRingBytes).status(), absl::OkStatus())
      << "the seals were what was missing";
  const net::FileDescriptor plain(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(absl::IsUnavailable(ShmSegment::Map(plain, kMinRingBytes).status()));
}

struct Pair {
  Pair() {
    auto ends = net::SocketPair();
    EXPECT_EQ(ends.status(), absl::OkStatus());
    ours = std::move(ends->first);
    theirs = std::move(ends->second);
  }
  absl::StatusOr<std::unique_ptr<Stream>> Accept(WithoutMemory without = WithoutMemory::kFail) {
    if (fitting == nullptr) {
      fitting = FitSharedMemory(std::move(ours), /*dialer=*/false, 2, without);
    }
    return fitting->Step();
  }
  net::FileDescriptor ours, theirs;
  std::unique_ptr<Fitting> fitting;  // of ours
};

TEST(SharedMemory, AcceptorWaitsForTheOfferAndThenCarriesBytes) {
  Pair pair;
  const auto early = pair.Accept();
  ASSERT_EQ(early.status(), absl::OkStatus());
  EXPECT_EQ(*early, nullptr);
  const auto dialer =
      FitSharedMemory(std::move(pair.theirs), /*dialer=*/true, 2, WithoutMemory::kFail)->Step();
  const auto acceptor = pair.Accept();
  ASSERT_EQ(dialer.status(), absl::OkStatus());
  ASSERT_EQ(acceptor.status(), absl::OkStatus());
  auto sent = Counting(1000);
  std::vector<std::byte> received(1000);
  const iovec from = Piece(sent), to = Piece(received);
  EXPECT_EQ((*dialer)->Write(std::span(&from, 1)).value_or(0), 1000);
  EXPECT_EQ((*acceptor)->Read(std::span(&to, 1)).value_or(0), 1000);
  EXPECT_EQ(received, sent);
}

TEST(SharedMemory, OfferThatIsNoneIsAnErrorOfThePeer) {
  Pair nonsense, closed, plain, wrong;
  (void)!::send(nonsense.theirs.get(), "sixteen letters!", 16, MSG_NOSIGNAL);
  closed.theirs.Reset();
  ASSERT_EQ(SendOffer(plain.theirs, {}), absl::OkStatus());
  auto made = ShmSegment::Make(kMinRingBytes);
  ASSERT_EQ(SendOffer(wrong.theirs, {kMaxRingBytes, std::move(made->file)}), absl::OkStatus());
  for (Pair* pair : {&nonsense, &closed, &plain, &wrong}) {
    EXPECT_EQ(pair->Accept().status().code(), absl::StatusCode::kUnavailable);
  }
}

TEST(SharedMemory, OfferWithoutMemoryUsesTheSocketWhereThatIsAllowed) {
  Pair pair;
  ASSERT_EQ(SendOffer(pair.theirs, {}), absl::OkStatus());
  const auto stream = pair.Accept(WithoutMemory::kUseSocket);
  ASSERT_EQ(stream.status(), absl::OkStatus());
  EXPECT_FALSE((*stream)->shares_cores());
}

// A mesh of two over shared memory whose other end is the test's bare hands.
struct HalfMesh {
  explicit HalfMesh(const Options& options = {}) {
    auto made = ShmSegment::Make(kMinRingBytes);
    auto theirs = ShmSegment::Map(made->file, kMinRingBytes);
    EXPECT_EQ(theirs.status(), absl::OkStatus());
    memory = *std::move(theirs);
    std::vector<std::unique_ptr<Stream>> streams(2);
    streams[1] = std::make_unique<ShmStream>(std::move(pair.ours), std::move(made->segment), true);
    mesh = std::make_unique<StreamMesh>(
        5, std::vector<Peer>{{"member-0", "here"}, {"member-1", "there"}}, 0, std::move(streams),
        options, ledger);
  }

  Ledger ledger;
  Pair pair;
  ShmSegment memory;
  std::unique_ptr<StreamMesh> mesh;
};

TEST(ShmMesh, PeerWithImpossibleCountsEndsTheMeshAndIsNamed) {
  for (const bool sending : {false, true}) {
    HalfMesh half;
    std::vector<std::byte> buffer(1 << 20);
    half.memory.ring(0).control->read = 12345678;
    half.memory.ring(1).control->written = 12345678;
    const auto ended = sending ? half.mesh->Send(1, kTag, buffer, Soon())
                               : half.mesh->Receive(1, kTag, buffer, Soon());
    EXPECT_EQ(ended.code(), absl::StatusCode::kInternal) << ended;
    EXPECT_THAT(ended.message(), HasSubstr("member-1"));
  }
}

TEST(ShmMesh, HeaderThatChangesAfterItWasCheckedChangesNothing) {
  HalfMesh half;
  RingWriter writer(half.memory.ring(1));
  FrameHeader header;
  header.channel = kTag.channel;
  header.step = kTag.step;
  header.view = 5;
  header.length = 8;
  auto bytes = Encode(header);
  const iovec piece = Piece(bytes);
  ASSERT_EQ(writer.Write(std::span(&piece, 1))->bytes, kHeaderBytes);
  std::vector<std::byte> buffer(8);
  const Ticket ticket = half.mesh->PostReceive(1, kTag, buffer);
  ASSERT_EQ(*half.mesh->WaitAny(std::span(&ticket, 1), net::Deadline::After(absl::Milliseconds(1))),
            std::nullopt)
      << "the header was read";
  const std::uint64_t huge = ~std::uint64_t{0};
  std::memcpy(half.memory.ring(1).data + offsetof(FrameHeader, length), &huge, 8);
  auto payload = Counting(8);
  const iovec rest = Piece(payload);
  ASSERT_EQ(writer.Write(std::span(&rest, 1))->bytes, 8);
  (void)!::send(half.pair.theirs.get(), "x", 1, MSG_NOSIGNAL);
  EXPECT_EQ(half.mesh->Wait(ticket, Soon()), absl::OkStatus());
  EXPECT_EQ(buffer, Counting(8));
}

TEST(ShmMesh, WhoSpinsNoticesADeathToo) {
  Options options;
  options.spin = {absl::Hours(1), SpinRule::kAlways};
  HalfMesh half(options);
  half.pair.theirs.Reset();
  std::vector<std::byte> buffer(8);
  const absl::Time begin = absl::Now();
  const auto ended = half.mesh->Receive(1, kTag, buffer, Soon());
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20)) << "not only when time was up";
  EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable) << ended;
  EXPECT_THAT(ended.message(), HasSubstr("the process is gone"));
}

TEST(ShmMesh, RingingWithoutReasonDoesNoHarm) {
  HalfMesh half;
  const std::vector<char> rings(100'000, 'x');
  EXPECT_GT(::send(half.pair.theirs.get(), rings.data(), rings.size(), MSG_DONTWAIT), 0);
  std::vector<std::byte> buffer(8);
  EXPECT_EQ(
      half.mesh->Receive(1, kTag, buffer, net::Deadline::After(absl::Milliseconds(20))).code(),
      absl::StatusCode::kDeadlineExceeded);
}

TEST(ShmMesh, NoWakeUpIsLostInManySleepsOfBothEnds) {
  for (const absl::Duration spin : {absl::ZeroDuration(), absl::Microseconds(20)}) {
    Options options;
    options.spin = {spin, SpinRule::kAlways};
    Members members(Kind::kShm, 2, options);
    auto meshes = members.OpenAll(1);
    OnEachRank(2, [&](int rank) {
      std::mt19937 sizes(7);  // the same at both ends
      std::vector<std::byte> mine(600'000), theirs(600'000);
      for (int i = 0; i < 2000; ++i) {
        const std::size_t size = i % 50 == 0 ? sizes() % mine.size() : sizes() % 5000;
        const Ticket sent = meshes[rank]->PostSend(1 - rank, kTag, std::span(mine).first(size));
        const auto in = std::span(theirs).first(size);
        ASSERT_EQ(meshes[rank]->Receive(1 - rank, kTag, in, Soon()), absl::OkStatus());
        ASSERT_EQ(meshes[rank]->Wait(sent, Soon()), absl::OkStatus());
      }
    });
  }
}

// Inodes of the segments that this process has mapped.
std::multiset<std::string> MappedSegments() {
  std::multiset<std::string> inodes;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:starling-link") == std::string::npos) continue;
    std::istringstream words(line);
    std::string range, rights, offset, device, inode;
    words >> range >> rights >> offset >> device >> inode;
    inodes.insert(inode);
  }
  return inodes;
}

std::size_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST(ShmTransport, EachViewHasMemoryOfItsOwnAndNothingIsLeftOver) {
  Members members(Kind::kShm, 3);
  const std::size_t descriptors = OpenDescriptors();
  ASSERT_THAT(MappedSegments(), IsEmpty());
  {
    auto first = members.OpenAll(1);
    auto second = members.OpenAll(2);
    const auto all = MappedSegments();
    EXPECT_THAT(all, SizeIs(12)) << "two views, three pairs, two ends";
    EXPECT_THAT(std::set<std::string>(all.begin(), all.end()), SizeIs(6)) << "no pair shares one";
    EXPECT_GT(OpenDescriptors(), descriptors) << "so that the check below can fail";
  }
  for (std::uint64_t view = 3; view < 100; ++view) {
    auto meshes = members.OpenAll(view);
    (void)meshes[0]->PostSend(1, kTag, Counting(10));
    if (view % 2 == 0) meshes[1]->Cancel(absl::AbortedError("a newer view came"));
  }
  // A few views that do not come about.
  for (std::uint64_t view = 100; view < 105; ++view) {
    EXPECT_FALSE(members.Open(view, 2, net::Deadline::After(absl::Milliseconds(5))).ok());
  }
  for (int rank = 0; rank < 3; ++rank) members[rank].Fence(1000);
  EXPECT_THAT(MappedSegments(), IsEmpty());
  const net::Deadline deadline = Soon();
  while (OpenDescriptors() > descriptors && !deadline.Expired()) std::this_thread::yield();
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

TEST(MixedTransport, SharesMemoryWithThoseBesideItAndUsesTcpForOthers) {
  Options options;
  options.member = "tcp-only";
  Members mixed(Kind::kMixed, 2);
  options.job = "job-a";
  options.secret = "secret of the tests";
  auto other = OpenTcpTransport(net::Address{"127.0.81.2", 0}, options);
  ASSERT_EQ(other.status(), absl::OkStatus());
  for (const std::size_t place : {0, 2}) {
    std::vector<Peer> members = mixed.peers();
    members.insert(members.begin() + static_cast<std::ptrdiff_t>(place),
                   {"tcp-only", (*other)->address()});
    std::vector<std::unique_ptr<Mesh>> meshes(3);
    OnEachRank(3, [&](int rank) {
      Transport& transport = members[rank].member == "tcp-only"   ? **other
                             : members[rank].member == "member-0" ? mixed[0]
                                                                  : mixed[1];
      auto mesh = transport.Open(1 + place, members, rank, Soon(), nullptr);
      ASSERT_EQ(mesh.status(), absl::OkStatus());
      meshes[rank] = *std::move(mesh);
    });
    EXPECT_THAT(MappedSegments(), SizeIs(2)) << "both ends of the one pair";
    OnEachRank(3, [&](int rank) {
      for (int peer = 0; peer < 3; ++peer) {
        if (peer != rank) (void)meshes[rank]->PostSend(peer, kTag, Counting(100'000, rank));
      }
    });
  }
}

}  // namespace
}  // namespace starling::transport
