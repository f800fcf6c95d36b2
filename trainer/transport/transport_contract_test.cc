// SPDX-License-Identifier: Apache-2.0
// What every kind of transport promises.
#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "common/tls/channel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/transports.h"
#include "trainer/transport/frame.h"

namespace starling::transport {
namespace {

using ::starling::transport::testing::Kind;
using ::starling::transport::testing::KindName;
using ::starling::transport::testing::Members;
using ::starling::transport::testing::OnEachRank;
using ::starling::transport::testing::SendText;
using ::starling::transport::testing::Soon;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Tag kTag{1, 20};
constexpr absl::Duration kShort = absl::Milliseconds(50);

std::vector<std::byte> Bytes(std::size_t size, int seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] =
        static_cast<std::byte>((i * 31 + static_cast<std::size_t>(seed) * 7 + i / 251) & 255);
  }
  return bytes;
}

net::Deadline InAMoment() { return net::Deadline::After(kShort); }

absl::Status PassFromZeroToOne(Mesh& mesh, std::span<std::byte> data) {
  if (mesh.rank() == 0) return mesh.Send(1, kTag, data, Soon());
  return mesh.rank() == 1 ? mesh.Receive(0, kTag, data, Soon()) : absl::OkStatus();
}

class TransportContract : public ::testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(Kinds, TransportContract,
                         ::testing::Values(Kind::kTcp, Kind::kInproc, Kind::kShm, Kind::kMixed,
                                           Kind::kEncrypted, Kind::kUdp, Kind::kLossyUdp),
                         [](const auto& kind) { return KindName(kind.param); });

TEST_P(TransportContract, CarriesPayloadsOfEverySize) {
  Members members(GetParam(), 2);
  auto meshes = members.OpenAll(1);
  const std::size_t sizes[] = {0, 1, 39, 40, 41, 4055, 4056, 4057, 4096, 65536, 1'000'003};
  OnEachRank(2, [&](int rank) {
    for (const std::size_t size : sizes) {
      const auto mine = Bytes(size, rank);
      std::vector<std::byte> theirs(size);
      const Ticket sent = meshes[rank]->PostSend(1 - rank, kTag, mine);
      EXPECT_EQ(meshes[rank]->Receive(1 - rank, kTag, theirs, Soon()), absl::OkStatus());
      EXPECT_EQ(meshes[rank]->Wait(sent, Soon()), absl::OkStatus());
      EXPECT_EQ(theirs, Bytes(size, 1 - rank)) << size;
    }
  });
}

TEST_P(TransportContract, ManyTransfersBothWaysAtOnceDoNotDeadlock) {
  Members members(GetParam(), 3);
  auto meshes = members.OpenAll(1);
  constexpr std::size_t kSize = 3 << 20;
  OnEachRank(3, [&](int rank) {
    const auto mine = Bytes(kSize, rank);
    std::vector<std::vector<std::byte>> theirs(6, std::vector<std::byte>(kSize));
    for (std::uint32_t i = 0; i < 2; ++i) {
      for (const int peer : {(rank + 1) % 3, (rank + 2) % 3}) {
        (void)meshes[rank]->PostSend(peer, {1, i}, mine);
      }
    }
    for (std::uint32_t i = 0; i < 2; ++i) {
      for (const int peer : {(rank + 1) % 3, (rank + 2) % 3}) {
        (void)meshes[rank]->PostReceive(peer, {1, i}, theirs[i * 3 + peer]);
      }
    }
    EXPECT_EQ(meshes[rank]->WaitAll(Soon()), absl::OkStatus());
    for (std::uint32_t i = 0; i < 2; ++i) {
      for (const int peer : {(rank + 1) % 3, (rank + 2) % 3}) {
        EXPECT_EQ(theirs[i * 3 + peer], Bytes(kSize, peer));
      }
    }
  });
}

TEST_P(TransportContract, AReceiveThatStaysOpenKeepsNothingThatCameAfterIt) {
  Members members(GetParam(), 2);
  auto meshes = members.OpenAll(1);
  OnEachRank(2, [&](int rank) {
    std::array<std::byte, 4> never{}, last{}, got{};
    const Ticket open = meshes[rank]->PostReceive(1 - rank, {0, 99}, never);
    const Ticket late = meshes[rank]->PostReceive(1 - rank, {0, 98}, last);
    const auto mine = Bytes(4, rank);
    for (int round = 0; round < 2000; ++round) {  // far more than are kept in order
      const Ticket sent = meshes[rank]->PostSend(1 - rank, kTag, mine);
      ASSERT_TRUE(meshes[rank]->Receive(1 - rank, kTag, got, Soon()).ok());
      ASSERT_TRUE(meshes[rank]->Wait(sent, Soon()).ok());
    }
    const Ticket sent = meshes[rank]->PostSend(1 - rank, {0, 98}, mine);
    const Ticket both[] = {late, open};
    const auto named = meshes[rank]->WaitAny(both, Soon());
    ASSERT_TRUE(named.ok()) << named.status();
    EXPECT_EQ(*named, late) << "an old ticket is still known";
    EXPECT_TRUE(meshes[rank]->Wait(sent, Soon()).ok());
    const Ticket ours = meshes[rank]->PostSend(1 - rank, {0, 99}, mine);
    EXPECT_TRUE(meshes[rank]->Wait(open, Soon()).ok());
    EXPECT_TRUE(meshes[rank]->Wait(ours, Soon()).ok());
    EXPECT_TRUE(meshes[rank]->WaitAll(Soon()).ok());
  });
}

TEST_P(TransportContract, WhoWaitsForAnyHearsWhoeverSpeaksFirstAndMayGiveUpWithoutHarm) {
  Members members(GetParam(), 3);
  auto meshes = members.OpenAll(1);
  auto from_one = Bytes(100, 0), from_two = Bytes(100, 0);
  const Ticket one = meshes[0]->PostReceive(1, kTag, from_one);
  const Ticket two = meshes[0]->PostReceive(2, kTag, from_two);
  const Ticket both[] = {one, two};
  const auto nobody = meshes[0]->WaitAny(both, InAMoment());
  ASSERT_TRUE(nobody.ok()) << nobody.status();
  EXPECT_EQ(*nobody, std::nullopt);
  ASSERT_TRUE(meshes[2]->Send(0, kTag, Bytes(100, 2), Soon()).ok());
  const auto first = meshes[0]->WaitAny(both, Soon());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*first, two);
  EXPECT_EQ(from_two, Bytes(100, 2));
  ASSERT_TRUE(meshes[1]->Send(0, kTag, Bytes(100, 1), Soon()).ok());
  const auto second = meshes[0]->WaitAny(std::span(both).first(1), Soon());
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(*second, one);
  const Ticket never = meshes[0]->PostReceive(1, kTag, from_one);
  meshes[1]->Cancel(absl::AbortedError("gone"));
  EXPECT_FALSE(meshes[0]->WaitAny(std::span(&never, 1), Soon()).ok());
}

TEST_P(TransportContract, WakeEndsAWaitForAnyAndNothingElse) {
  Members members(GetParam(), 2);
  const auto meshes = members.OpenAll(1);
  std::array<std::byte, 4> in{};
  const Ticket ticket = meshes[0]->PostReceive(1, kTag, in);
  meshes[0]->Wake();  // before the wait
  meshes[0]->Wake();
  EXPECT_EQ(*meshes[0]->WaitAny(std::span(&ticket, 1), Soon()), std::nullopt);
  EXPECT_EQ(*meshes[0]->WaitAny(std::span(&ticket, 1), InAMoment()), std::nullopt);
  for (const bool alone : {false, true}) {  // while it waits, with tickets and without
    const auto one = std::span(&ticket, alone ? 0 : 1);
    std::thread waker([&] { meshes[0]->Wake(); });
    EXPECT_EQ(*meshes[0]->WaitAny(one, Soon()), std::nullopt);
    waker.join();
  }
  meshes[0]->Wake();  // what is waited for by itself does not mind
  ASSERT_TRUE(SendText(*meshes[1], 0, kTag, "here", Soon()).ok());
  EXPECT_TRUE(meshes[0]->Wait(ticket, Soon()).ok());
  std::thread ender([&] { meshes[0]->Cancel(absl::AbortedError("the view is over")); });
  absl::StatusOr<std::optional<Ticket>> ended = std::optional<Ticket>();
  while (ended.ok()) ended = meshes[0]->WaitAny({}, Soon());
  EXPECT_EQ(ended.status().code(), absl::StatusCode::kAborted);
  ender.join();
}

TEST_P(TransportContract, FramesFindTheReceiveOfTheirTagInOrder) {
  Members members(GetParam(), 2);
  auto meshes = members.OpenAll(1);
  OnEachRank(2, [&](int rank) {
    Mesh& mesh = *meshes[rank];
    if (rank == 0) {
      for (const char* text : {"a1", "b1", "a2", "b2"}) {
        const Tag tag{1, text[0] == 'a' ? 20U : 21U};
        EXPECT_EQ(SendText(mesh, 1, tag, text, Soon()), absl::OkStatus());
      }
      return;
    }
    const auto receive = [&](std::uint32_t channel) {
      return mesh.ReceiveMessage(0, {1, channel}, 100, Soon()).value_or("failed");
    };
    EXPECT_EQ(receive(21), "b1");
    EXPECT_EQ(receive(21), "b2");
    EXPECT_EQ(receive(20), "a1");
    EXPECT_EQ(receive(20), "a2");
  });
}

TEST_P(TransportContract, FramesWithoutReceiveStayInTheStreamBeyondTheAllowance) {
  Options options;
  options.max_early_bytes = 1000;
  Members members(GetParam(), 2, options);
  auto meshes = members.OpenAll(1);
  OnEachRank(2, [&](int rank) {
    const std::string large(5000, 'x');
    if (rank == 0) {
      EXPECT_EQ(SendText(*meshes[0], 1, {1, 20}, large, Soon()), absl::OkStatus());
      EXPECT_EQ(SendText(*meshes[0], 1, {1, 21}, "behind", Soon()), absl::OkStatus());
      return;
    }
    std::string first(5000, ' '), second(6, ' ');
    const auto bytes = [](std::string& text) { return std::as_writable_bytes(std::span(text)); };
    const Ticket behind = meshes[1]->PostReceive(0, {1, 21}, bytes(second));
    EXPECT_EQ(meshes[1]->Receive(0, {1, 20}, bytes(first), Soon()), absl::OkStatus());
    EXPECT_EQ(meshes[1]->Wait(behind, Soon()), absl::OkStatus());
    EXPECT_EQ(first, large);
    EXPECT_EQ(second, "behind");
  });
}

TEST_P(TransportContract, MessageAboveTheLimitIsRefused) {
  Members members(GetParam(), 2);
  auto meshes = members.OpenAll(1);
  OnEachRank(2, [&](int rank) {
    if (rank == 0) {
      (void)SendText(*meshes[0], 1, kTag, "eleven chars", Soon());
      return;
    }
    const auto message = meshes[1]->ReceiveMessage(0, kTag, 5, Soon());
    EXPECT_EQ(message.status().code(), absl::StatusCode::kInternal);
    EXPECT_THAT(message.status().message(), HasSubstr("member-0"));
  });
}

TEST_P(TransportContract, RanksThatDisagreeAboutASizeGetAnError) {
  Members members(GetParam(), 2);
  auto meshes = members.OpenAll(1);
  OnEachRank(2, [&](int rank) {
    std::vector<std::byte> buffer(rank == 0 ? 8 : 12);
    if (rank == 0) {
      (void)meshes[0]->Send(1, kTag, buffer, Soon());
      return;
    }
    const auto received = meshes[1]->Receive(0, kTag, buffer, Soon());
    EXPECT_EQ(received.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(received.message(), HasSubstr("disagree"));
  });
}

TEST_P(TransportContract, DeadlineNamesThePeerAndEndsTheMeshOnAllRanks) {
  Members members(GetParam(), 3);
  auto meshes = members.OpenAll(1);
  std::vector<absl::Status> ended(3);
  OnEachRank(3, [&](int rank) {
    std::vector<std::byte> buffer(8);
    if (rank == 2) return;  // neither sends nor closes
    ended[rank] = rank == 0 ? meshes[0]->Receive(2, kTag, buffer, InAMoment())
                            : meshes[1]->Receive(0, kTag, buffer, Soon());
  });
  EXPECT_EQ(ended[0].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(ended[0].message(), HasSubstr("rank 2 (member-2"));
  EXPECT_THAT(UnreachableRanks(ended[0]), ElementsAre(2));
  // Rank 1 hears from rank 0 whom it lost.
  EXPECT_EQ(ended[1].code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(UnreachableRanks(ended[1]), ElementsAre(2));
  // And every later call says the same.
  EXPECT_EQ(SendText(*meshes[0], 1, kTag, "x", Soon()), ended[0]);
  EXPECT_EQ(meshes[0]->WaitAll(Soon()), ended[0]);
  EXPECT_EQ(meshes[0]->status(), ended[0]);
}

TEST_P(TransportContract, CancelEndsAWaitingCallAndTheNeighbours) {
  Members members(GetParam(), 2);
  auto meshes = members.OpenAll(1);
  std::vector<absl::Status> ended(2);
  std::thread canceller([&] {
    // Rank 1 is known to wait once rank 0 got its byte.
    std::vector<std::byte> one(1);
    ended[0] = meshes[0]->Receive(1, kTag, one, Soon());
    meshes[1]->Cancel(absl::AbortedError("view 2 was published"));
    if (ended[0].ok()) ended[0] = meshes[0]->Receive(1, kTag, one, Soon());
  });
  std::vector<std::byte> buffer(8);
  (void)meshes[1]->PostSend(0, kTag, std::span(buffer).first(1));
  ended[1] = meshes[1]->Receive(0, kTag, buffer, Soon());
  canceller.join();

  EXPECT_EQ(ended[1], absl::AbortedError("view 2 was published"));
  EXPECT_THAT(UnreachableRanks(ended[1]), IsEmpty());
  EXPECT_EQ(ended[0].code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(UnreachableRanks(ended[0]), IsEmpty()) << "who halts in order can be reached";
}

TEST_P(TransportContract, CancelBetweenCallsEndsTheNeighboursToo) {
  Members members(GetParam(), 2);
  auto meshes = members.OpenAll(1);
  meshes[0]->Cancel(absl::AbortedError("halt"));
  meshes[0]->Cancel(absl::AbortedError("the first reason stays"));
  std::vector<std::byte> buffer(8);
  EXPECT_FALSE(meshes[1]->Receive(0, kTag, buffer, Soon()).ok());
  EXPECT_EQ(meshes[0]->Receive(1, kTag, buffer, Soon()), absl::AbortedError("halt"));
}

TEST_P(TransportContract, BuffersAreNotTouchedAfterAFailure) {
  Members members(GetParam(), 2);
  auto meshes = members.OpenAll(1);
  std::vector<std::byte> buffer(64);
  (void)meshes[0]->PostReceive(1, kTag, buffer);
  EXPECT_FALSE(meshes[0]->Receive(1, {1, 99}, buffer, InAMoment()).ok());
  buffer.assign(64, std::byte{7});

  (void)meshes[1]->Send(0, kTag, Bytes(64, 1), InAMoment());
  EXPECT_FALSE(meshes[0]->WaitAll(InAMoment()).ok());

  EXPECT_EQ(buffer, std::vector<std::byte>(64, std::byte{7}));
}

TEST_P(TransportContract, DeathInTheMiddleOfATransferEndsItOnEveryRank) {
  Members members(GetParam(), 3);
  auto meshes = members.OpenAll(1);
  std::vector<absl::Status> ended(3);
  OnEachRank(3, [&](int rank) {
    std::vector<std::byte> large(64 << 20);
    if (rank == 0) {
      (void)meshes[0]->PostSend(1, kTag, large);  // more than any socket takes: half of it leaves
      meshes[0].reset();
      return;
    }
    ended[rank] = rank == 1 ? meshes[1]->Receive(0, kTag, large, Soon())
                            : meshes[2]->Receive(1, kTag, large, Soon());
  });
  for (const int rank : {1, 2}) {
    EXPECT_EQ(ended[rank].code(), absl::StatusCode::kUnavailable) << ended[rank];
    EXPECT_THAT(UnreachableRanks(ended[rank]), ElementsAre(0)) << ended[rank];
  }
}

TEST_P(TransportContract, LeavingInOrderDisturbsNobodyAndLosesNothing) {
  Members members(GetParam(), 3);
  auto meshes = members.OpenAll(1);
  const auto last = Bytes(100'000, 0);
  OnEachRank(3, [&](int rank) {
    std::vector<std::byte> buffer(last.size());
    if (rank == 0) {
      EXPECT_EQ(meshes[0]->Send(1, kTag, last, Soon()), absl::OkStatus());
      meshes[0].reset();
    } else if (rank == 1) {
      EXPECT_EQ(meshes[1]->Receive(0, kTag, buffer, Soon()), absl::OkStatus());
      EXPECT_EQ(buffer, last);
      EXPECT_EQ(meshes[1]->Send(2, kTag, last, Soon()), absl::OkStatus());
    } else {
      // Waits for rank 1 while rank 0 leaves.
      EXPECT_EQ(meshes[2]->Receive(1, kTag, buffer, Soon()), absl::OkStatus());
      const auto gone = meshes[2]->Receive(0, kTag, buffer, Soon());
      EXPECT_EQ(gone.code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(gone.message(), HasSubstr("has left"));
    }
  });
}

TEST_P(TransportContract, LedgerCountsExactlyWhatTravelled) {
  Members members(GetParam(), 3);
  auto meshes = members.OpenAll(1);
  const std::size_t sizes[] = {0, 1, 70'000, 5};
  OnEachRank(3, [&](int rank) {
    std::vector<std::byte> buffer(70'000);
    for (const std::size_t size : sizes) {
      const auto part = std::span(buffer).first(size);
      EXPECT_EQ(PassFromZeroToOne(*meshes[rank], part), absl::OkStatus());
    }
  });
  // A frame and its header share records of 16 KiB.
  const std::size_t records = GetParam() == Kind::kEncrypted ? 1 + 1 + 5 + 1 : 0;
  const std::size_t headers = 4 * kHeaderBytes + records * tls::Channel::kOverheadBytes;
  const Traffic sent{70'006, headers, 0, 0};
  const Traffic received{0, 0, 70'006, headers};
  EXPECT_EQ(meshes[0]->traffic(1), sent);
  EXPECT_EQ(meshes[1]->traffic(0), received);
  EXPECT_EQ(meshes[0]->traffic(2), Traffic{});
  EXPECT_EQ(members[0].ledger().Read().at("member-1"), sent);
  EXPECT_EQ(members[1].ledger().Total(), received);
}

TEST_P(TransportContract, EightRanksExchangeWithAll) {
  Members members(GetParam(), 8);
  auto meshes = members.OpenAll(1);
  OnEachRank(8, [&](int rank) {
    std::vector<int> values(8, -1);
    values[rank] = rank;
    const auto at = [&](int i) { return std::as_writable_bytes(std::span(values).subspan(i, 1)); };
    for (int peer = 0; peer < 8; ++peer) {
      if (peer == rank) continue;
      (void)meshes[rank]->PostSend(peer, kTag, at(rank));
      (void)meshes[rank]->PostReceive(peer, kTag, at(peer));
    }
    EXPECT_EQ(meshes[rank]->WaitAll(Soon()), absl::OkStatus());
    EXPECT_THAT(values, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  });
}

TEST_P(TransportContract, EmulatedNetworkDelaysAndLimits) {
  Options options;
  options.shaping.delay = absl::Milliseconds(30);
  options.shaping.bytes_per_second = 10e6;
  Members members(GetParam(), 2, options);
  auto meshes = members.OpenAll(1);
  const absl::Time begin = absl::Now();
  OnEachRank(2, [&](int rank) {
    std::vector<std::byte> buffer(500'000);  // 50 ms
    EXPECT_EQ(PassFromZeroToOne(*meshes[rank], buffer), absl::OkStatus());
  });
  EXPECT_GE(absl::Now() - begin, absl::Milliseconds(79));
}

TEST_P(TransportContract, MeshOutlivesItsTransport) {
  Members members(GetParam(), 2);
  auto meshes = members.OpenAll(1);
  members.Kill(0);
  members.Kill(1);
  OnEachRank(2, [&](int rank) {
    std::vector<std::byte> buffer(8);
    EXPECT_EQ(PassFromZeroToOne(*meshes[rank], buffer), absl::OkStatus());
  });
}

// --- Arenas: kinds that carry bytes in memory have them, the others say so at every rank.

bool HasArenas(Kind kind) { return kind == Kind::kShm || kind == Kind::kMixed; }

TEST_P(TransportContract, AllRanksShareAnArenaOrNone) {
  Members members(GetParam(), 3);
  auto meshes = members.OpenAll(1);
  OnEachRank(3, [&](int rank) {
    const auto arena = meshes[rank]->ShareArena(Soon());
    ASSERT_EQ(arena.status(), absl::OkStatus());
    ASSERT_EQ(*arena != nullptr, HasArenas(GetParam()));
    for (std::uint64_t round = 1; *arena != nullptr && round <= 200; ++round) {
      const auto content = static_cast<std::byte>(round * 3 + static_cast<std::uint64_t>(rank));
      (*arena)->Area(rank)[Arena::kAreaBytes - round] = content;
      (*arena)->Raise(1, round);
      EXPECT_EQ((*arena)->Own(1), round);
      ASSERT_EQ((*arena)->Await(1, round, Patience::kArrival, Soon()), absl::OkStatus());
      for (int other = 0; other < 3; ++other) {
        EXPECT_EQ((*arena)->Area(other)[Arena::kAreaBytes - round],
                  static_cast<std::byte>(round * 3 + static_cast<std::uint64_t>(other)));
      }
    }
    EXPECT_EQ(*meshes[rank]->ShareArena(Soon()), *arena) << "the same in every call";
    // Frames go on beside it.
    const auto mine = Bytes(100'000, rank);
    std::vector<std::byte> theirs(mine.size());
    (void)meshes[rank]->PostSend((rank + 1) % 3, kTag, mine);
    EXPECT_EQ(meshes[rank]->Receive((rank + 2) % 3, kTag, theirs, Soon()), absl::OkStatus());
    EXPECT_EQ(theirs, Bytes(100'000, (rank + 2) % 3));
    EXPECT_EQ(meshes[rank]->WaitAll(Soon()), absl::OkStatus());
  });
}

TEST_P(TransportContract, DeathEndsTheWaitInAnArenaAndNamesTheDead) {
  if (!HasArenas(GetParam())) return;
  Members members(GetParam(), 3);
  auto meshes = members.OpenAll(1);
  OnEachRank(3, [&](int rank) {
    Arena* const arena = *meshes[rank]->ShareArena(Soon());
    arena->Raise(1, 1);
    (void)arena->Await(1, 1, Patience::kWork, Soon());  // rank 1 dies once all have come this far
    if (rank == 1) {
      std::vector<std::byte> never(1000);
      (void)meshes[1]->PostReceive(0, kTag, never);
      return meshes[1].reset();  // with a transfer pending: as if its process had died
    }
    arena->Raise(0, 1);
    const absl::Status ended = arena->Await(0, 1, Patience::kWork, Soon());
    EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable) << ended;
    EXPECT_THAT(UnreachableRanks(ended), ElementsAre(1)) << ended;
    EXPECT_FALSE(arena->Await(0, 1, Patience::kWork, Soon()).ok()) << "nor does a later call work";
  });
}

}  // namespace
}  // namespace starling::transport
