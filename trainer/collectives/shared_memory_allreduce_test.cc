// SPDX-License-Identifier: Apache-2.0
// The sum in shared memory, where ranks die, pause, are late, disagree or have no memory. That it
// is right otherwise, allreduce_test.cc says.
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/collectives/allreduce.h"
#include "trainer/testing/child_process.h"
#include "trainer/testing/transports.h"
#include "trainer/transport/window.h"

namespace starling::collectives {
namespace {

using ::starling::testing::Child;
using ::starling::testing::ReadLine;
using ::starling::testing::WriteLine;
using ::starling::transport::testing::Kind;
using ::starling::transport::testing::Members;
using ::starling::transport::testing::OnEachRank;
using ::starling::transport::testing::Soon;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr transport::Tag kTag{1, kFirstBucketChannel};

absl::Status Sum(Algorithm algorithm, transport::Mesh& mesh, std::span<float> data,
                 net::Deadline deadline = Soon()) {
  Workspace workspace;
  return Allreduce(algorithm, {mesh, kTag, deadline, workspace}, data);
}

// Sums up an array of `length` that rank r has filled with r + 1: in an arena if there is one.
absl::Status SumOnes(transport::Mesh& mesh, std::span<float> data, net::Deadline deadline = Soon(),
                     std::optional<Algorithm> algorithm = std::nullopt) {
  std::ranges::fill(data, static_cast<float>(mesh.rank() + 1));
  if (!algorithm) {
    const auto arena = mesh.ShareArena(deadline);
    if (!arena.ok()) return arena.status();
    algorithm = *arena == nullptr ? Algorithm::kRing : Algorithm::kSharedMemory;
  }
  return Sum(*algorithm, mesh, data, deadline);
}

absl::Status SumOnes(transport::Mesh& mesh, std::vector<float>& data, std::size_t length,
                     net::Deadline deadline = Soon(),
                     std::optional<Algorithm> algorithm = std::nullopt) {
  data.resize(length);
  return SumOnes(mesh, std::span(data), deadline, algorithm);
}

// A matcher a float would take longer than the sums.
bool AllAre(float value, std::span<const float> data) {
  return std::all_of(data.begin(), data.end(), [=](float one) { return one == value; });
}

float SumOfRanks(int ranks) { return static_cast<float>(ranks * (ranks + 1) / 2); }

// --- Who shares an arena.

std::vector<bool> WhoShares(const std::vector<std::unique_ptr<transport::Mesh>>& meshes) {
  std::vector<char> shares(meshes.size());
  OnEachRank(static_cast<int>(meshes.size()), [&](int rank) {
    const auto arena = meshes[rank]->ShareArena(Soon());
    ASSERT_EQ(arena.status(), absl::OkStatus());
    shares[rank] = *arena != nullptr ? 1 : 0;
    std::vector<float> data;
    ASSERT_EQ(SumOnes(*meshes[rank], data, 1000), absl::OkStatus());
    EXPECT_TRUE(AllAre(SumOfRanks(static_cast<int>(meshes.size())), data));
  });
  return {shares.begin(), shares.end()};
}

TEST(ShareArena, RanksOfOneMachineDoAndOthersSumUpInFrames) {
  for (const Kind kind : {Kind::kShm, Kind::kMixed, Kind::kTcp, Kind::kInproc}) {
    Members members(kind, 3);
    const bool near = kind == Kind::kShm || kind == Kind::kMixed;
    EXPECT_THAT(WhoShares(members.OpenAll(1)), Each(near)) << static_cast<int>(kind);
  }
}

TEST(ShareArena, AnEmulatedNetworkIsNotGoneAround) {
  transport::Options options;
  options.shaping.delay = absl::Milliseconds(1);
  Members members(Kind::kShm, 2, options);
  EXPECT_THAT(WhoShares(members.OpenAll(1)), Each(false));
}

TEST(ShareArena, OneRankElsewhereIsEnoughForNobodyToDoSo) {
  const auto options = [](const std::string& member) {
    transport::Options mine;
    mine.member = member;
    mine.job = "job-a";
    mine.secret = "secret of the tests";
    return mine;
  };
  const net::Address address{"127.0.81.1", 0};
  std::vector<std::unique_ptr<transport::Transport>> transports;
  transports.push_back(*transport::OpenMixedTransport(address, options("a")));
  transports.push_back(*transport::OpenMixedTransport(address, options("b")));
  transports.push_back(*transport::OpenTcpTransport(address, options("c")));
  std::vector<transport::Peer> peers;
  for (std::size_t i = 0; i < 3; ++i) {
    peers.push_back({std::string(1, static_cast<char>('a' + i)), transports[i]->address()});
  }
  std::vector<std::unique_ptr<transport::Mesh>> meshes(3);
  OnEachRank(3, [&](int rank) {
    auto mesh = transports[rank]->Open(1, peers, rank, Soon(), nullptr);
    ASSERT_EQ(mesh.status(), absl::OkStatus());
    meshes[rank] = *std::move(mesh);
  });
  EXPECT_TRUE(meshes[0]->SharesMemory(1));
  EXPECT_FALSE(meshes[0]->SharesMemory(2));
  EXPECT_THAT(WhoShares(meshes), Each(false));
}

TEST(ShareArena, WhoAsksForSharedMemoryWhereThereIsNoneIsToldSo) {
  Members members(Kind::kTcp, 2);
  const auto meshes = members.OpenAll(1);
  OnEachRank(2, [&](int rank) {
    std::vector<float> data;
    EXPECT_EQ(SumOnes(*meshes[rank], data, 10, Soon(), Algorithm::kSharedMemory).code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(SumOnes(*meshes[rank], data, 10), absl::OkStatus()) << "the mesh goes on";
  });
}

// --- Calls.

TEST(SharedMemoryAllreduce, CallsOfAllLengthsFollowOneAnother) {
  for (const int ranks : {2, 3, 5}) {
    Members members(Kind::kShm, ranks);
    const auto meshes = members.OpenAll(1);
    OnEachRank(ranks, [&](int rank) {
      std::mt19937 random(static_cast<unsigned>(ranks));  // the same at every rank
      std::vector<float> data;
      for (int call = 0; call < 300; ++call) {
        const std::size_t magnitude = std::size_t{1} << random() % 19;
        const std::size_t length = random() % magnitude;
        ASSERT_EQ(SumOnes(*meshes[rank], data, length), absl::OkStatus());
        ASSERT_TRUE(AllAre(SumOfRanks(ranks), data)) << "call " << call << " of " << length;
      }
    });
  }
}

TEST(SharedMemoryAllreduce, GoesOnBesideFramesOfOtherChannels) {
  Members members(Kind::kShm, 2);
  const auto meshes = members.OpenAll(1);
  OnEachRank(2, [&](int rank) {
    // More than a link holds: the peer's sum has to go on although it is sent meanwhile.
    const std::vector<std::byte> mine(5 << 20, static_cast<std::byte>(rank));
    std::vector<std::byte> theirs(mine.size());
    (void)meshes[rank]->PostSend(1 - rank, {1, kFirstFreeChannel}, mine);
    (void)meshes[rank]->PostReceive(1 - rank, {1, kFirstFreeChannel}, theirs);
    std::vector<float> data;
    ASSERT_EQ(SumOnes(*meshes[rank], data, 1'000'003), absl::OkStatus());
    EXPECT_TRUE(AllAre(3, data));
    ASSERT_EQ(meshes[rank]->WaitAll(Soon()), absl::OkStatus());
    EXPECT_EQ(theirs, std::vector<std::byte>(mine.size(), static_cast<std::byte>(1 - rank)));
  });
}

TEST(SharedMemoryAllreduce, WhoWaitsForALateRankSleeps) {
  Members members(Kind::kShm, 2);
  const auto meshes = members.OpenAll(1);
  OnEachRank(2, [&](int rank) {
    std::vector<float> data;
    ASSERT_EQ(SumOnes(*meshes[rank], data, 1000), absl::OkStatus());
    timespec begin = {}, end = {};
    (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(400));
    ASSERT_EQ(SumOnes(*meshes[rank], data, 1000), absl::OkStatus());
    (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    EXPECT_TRUE(AllAre(3, data));
    const double used = static_cast<double>(end.tv_sec - begin.tv_sec) +
                        static_cast<double>(end.tv_nsec - begin.tv_nsec) / 1e9;
    EXPECT_LT(used, 0.1) << "of 0.4 seconds";
  });
}

// --- Windows.

constexpr std::size_t kWindowBytes = 4 << 20;

// Ranks of shared memory; those in `with` have a window each.
struct WindowedRanks {
  WindowedRanks(int size, unsigned with, std::size_t bytes = kWindowBytes)
      : members(Kind::kShm, 0) {
    for (int rank = 0; rank < size; ++rank) {
      transport::Options options;
      options.member = absl::StrCat("member-", rank);
      if ((with >> rank & 1) != 0) options.window = *transport::Window::Make(bytes);
      windows.push_back(options.window);
      members.Add(options);
    }
    meshes = members.OpenAll(1);
  }

  // An array of `length` at `place` of the rank's window, else in `other`.
  std::span<float> ArrayOf(int rank, std::size_t length, std::size_t place,
                           std::vector<float>& other) {
    other.assign(length, 0);
    if (windows[rank] == nullptr) return other;
    return windows[rank]->floats().subspan(place, length);
  }

  Members members;
  std::vector<std::shared_ptr<const transport::Window>> windows;
  std::vector<std::unique_ptr<transport::Mesh>> meshes;
};

TEST(Windows, SumsHaveTheRingsBitsWhoeverHasOne) {
  constexpr std::size_t kLengths[] = {0, 1, 4095, 4096, 5000, 65'536, 1'000'003};
  for (const int ranks : {2, 3, 5}) {
    for (const unsigned with : {0b11111U, 0b00001U, 0b10110U}) {
      WindowedRanks group(ranks, with);
      OnEachRank(ranks, [&](int rank) {
        std::mt19937 random(static_cast<unsigned>(rank));
        std::normal_distribution<float> normal;
        for (const std::size_t length : kLengths) {
          std::vector<float> ring(length), other;
          std::ranges::generate(ring, [&] { return normal(random); });
          const std::span<float> array = group.ArrayOf(rank, length, 3 + length % 7, other);
          std::ranges::copy(ring, array.begin());
          ASSERT_EQ(Sum(Algorithm::kRing, *group.meshes[rank], ring), absl::OkStatus());
          ASSERT_EQ(Sum(Algorithm::kSharedMemory, *group.meshes[rank], array), absl::OkStatus());
          EXPECT_TRUE(std::ranges::equal(ring, array)) << ranks << " ranks, " << length;
        }
      });
    }
  }
}

// Above 12 MiB sums are taken past the caches.
TEST(Windows, LargeArraysHaveTheirSums) {
  constexpr std::size_t kLength = 3'300'001;
  for (const int ranks : {2, 3}) {
    WindowedRanks group(ranks, 0b111, 16 << 20);
    OnEachRank(ranks, [&](int rank) {
      std::vector<float> other;
      const std::span<float> array = group.ArrayOf(rank, kLength, 5, other);
      const auto of_place = [](std::size_t i) { return static_cast<float>(i % 8191); };
      for (std::size_t i = 0; i < kLength; ++i) array[i] = of_place(i) + static_cast<float>(rank);
      ASSERT_EQ(Sum(Algorithm::kSharedMemory, *group.meshes[rank], array), absl::OkStatus());
      const auto more = static_cast<float>(ranks * (ranks - 1) / 2);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < kLength; ++i) {
        wrong += array[i] == static_cast<float>(ranks) * of_place(i) + more ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0U);
    });
  }
}

// Each fills its array anew as soon as its call has returned: were others still at reading it, they
// would add what belongs to the next call.
TEST(Windows, ACallReturnsWhenNobodyReadsItsArrayAnyMore) {
  constexpr std::size_t kLength = 300'000;
  WindowedRanks group(3, 0b111);
  OnEachRank(3, [&](int rank) {
    std::vector<float> other;
    const std::span<float> array = group.ArrayOf(rank, kLength, 0, other);
    for (int call = 0; call < 200; ++call) {
      std::ranges::fill(array, static_cast<float>(rank + call));
      ASSERT_EQ(Sum(Algorithm::kSharedMemory, *group.meshes[rank], array), absl::OkStatus());
      const auto sum = static_cast<float>(3 + 3 * call);
      ASSERT_TRUE(std::ranges::all_of(array, [&](float one) { return one == sum; })) << call;
    }
  });
}

TEST(Windows, AreReadByOthersAndWrittenByNobodyElse) {
  WindowedRanks group(2, 0b11);
  OnEachRank(2, [&](int rank) {
    const std::span<std::byte> mine = group.windows[rank]->memory();
    mine[77] = static_cast<std::byte>(rank + 1);
    const auto arena = group.meshes[rank]->ShareArena(Soon());
    ASSERT_EQ(arena.status(), absl::OkStatus());
    EXPECT_EQ((*arena)->WindowOf(rank).data(), mine.data());
    std::vector<float> all;
    ASSERT_EQ(SumOnes(*group.meshes[rank], all, 1), absl::OkStatus());
    const std::span<const std::byte> theirs = (*arena)->WindowOf(1 - rank);
    ASSERT_EQ(theirs.size(), kWindowBytes);
    EXPECT_EQ(theirs[77], static_cast<std::byte>(2 - rank));
    void* const page = const_cast<std::byte*>(theirs.data());
    EXPECT_NE(::mprotect(page, 4096, PROT_READ | PROT_WRITE), 0) << "it cannot be made writable";
    ASSERT_EQ(SumOnes(*group.meshes[rank], all, 1), absl::OkStatus());
  });
  // Nor by who was handed the file.
  const int file = group.windows[0]->file().get();
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), MAP_FAILED);
  EXPECT_LT(::pwrite(file, "x", 1, 0), 0);
  EXPECT_NE(::ftruncate(file, 0), 0);
  EXPECT_NE(::ftruncate(file, 2 * kWindowBytes), 0);
}

TEST(Windows, AChildOfAForkHasNone) {
  const auto window = *transport::Window::Make(kWindowBytes);
  const pid_t child = ::fork();
  if (child == 0) {
    (void)::signal(SIGSEGV, SIG_DFL);
    window->memory()[0] = std::byte{1};
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "it would share the memory";
  EXPECT_EQ(window->memory()[0], std::byte{0});
}

TEST(Windows, AnArrayOutsideOfTheWindowIsSummedByCopies) {
  WindowedRanks group(2, 0b11);
  OnEachRank(2, [&](int rank) {
    std::vector<float> array(100'000, 1);
    ASSERT_EQ(Sum(Algorithm::kSharedMemory, *group.meshes[rank], array), absl::OkStatus());
    EXPECT_TRUE(AllAre(2, array));
  });
}

// Rank 1 of two, played by the test: what it shows of an array of kActedBytes, and when.
constexpr std::size_t kActedBytes = 16 << 10;
constexpr int kOffered = 0, kAdded = 1, kTaken = 2;
void Act(transport::Arena& arena, std::uint64_t place, const std::vector<int>& raises) {
  const std::uint64_t note[] = {kActedBytes / sizeof(float), place};
  constexpr std::size_t kNoteAt = transport::Arena::kAreaBytes / 4 - 64;
  std::memcpy(arena.Area(1).data() + kNoteAt, note, sizeof(note));
  for (const int which : raises) arena.Raise(which, 1);
}

// Rank 0's call may take `patience`, from when both have the arena.
absl::Status SumWithActor(const std::function<void(transport::Arena&)>& act,
                          absl::Duration patience = absl::Seconds(20)) {
  WindowedRanks group(2, 0b11);
  absl::Status ended;
  std::barrier both_have_it(2);
  OnEachRank(2, [&](int rank) {
    const auto arena = group.meshes[rank]->ShareArena(Soon());
    both_have_it.arrive_and_wait();
    ASSERT_EQ(arena.status(), absl::OkStatus());
    if (rank == 1) return act(**arena);
    std::vector<float> other;
    const auto array = group.ArrayOf(0, kActedBytes / sizeof(float), 0, other);
    ended = Sum(Algorithm::kSharedMemory, *group.meshes[0], array, net::Deadline::After(patience));
  });
  return ended;
}

TEST(Windows, ARankThatDoesAllItHasToIsAPartner) {
  EXPECT_EQ(SumWithActor([](auto& arena) {
              Act(arena, 0, {kOffered, kAdded, kTaken});
            }),
            absl::OkStatus());
}

TEST(Windows, ForgedPlacesAreRefusedAndNotRead) {
  const std::uint64_t places[] = {kWindowBytes, kWindowBytes - kActedBytes + 1,
                                  ~std::uint64_t{0} - kActedBytes, ~std::uint64_t{1}};
  for (const std::uint64_t place : places) {
    const absl::Status ended = SumWithActor([&](auto& arena) {
      Act(arena, place, {kOffered, kAdded, kTaken});
    });
    EXPECT_EQ(ended.code(), absl::StatusCode::kInternal) << place;
    EXPECT_THAT(ended.message(),
                HasSubstr("rank 1 shows an array that does not lie in its window"));
  }
}

TEST(Windows, ARankThatHasNotTakenIsWaitedFor) {
  const absl::Status ended = SumWithActor(
      [](auto& arena) {
        Act(arena, 0, {kOffered, kAdded});
      },
      absl::Milliseconds(50));
  EXPECT_EQ(ended.code(), absl::StatusCode::kDeadlineExceeded) << ended;
}

// As one that was paused and wakes: the other has raised all counters and given up since, and what
// was read of its window may be what it computes now.
TEST(Windows, WhatWasReadOfARankThatGaveUpIsNoSum) {
  const auto act = [](auto& arena) {
    arena.GiveUp();
    Act(arena, 0, {kOffered, kAdded, kTaken});
  };
  // The other does not leave, as it would, so there is nobody to name.
  EXPECT_EQ(SumWithActor(act, absl::Milliseconds(50)).code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(Windows, WhoEndsACallBeforeItsTimeGivesUp) {
  WindowedRanks group(2, 0b11);
  std::barrier both_have_it(2);
  OnEachRank(2, [&](int rank) {
    const auto arena = group.meshes[rank]->ShareArena(Soon());
    const bool gave_up = arena.ok() && (*arena)->AnyGaveUp();
    both_have_it.arrive_and_wait();
    ASSERT_EQ(arena.status(), absl::OkStatus());
    EXPECT_FALSE(gave_up);
    if (rank == 1) return;
    std::vector<float> other;
    const auto array = group.ArrayOf(0, 100'000, 0, other);
    EXPECT_FALSE(Sum(Algorithm::kSharedMemory, *group.meshes[0], array,
                     net::Deadline::After(absl::Milliseconds(20)))
                     .ok());
    EXPECT_TRUE((*arena)->AnyGaveUp());
  });
}

// --- What goes wrong.

TEST(SharedMemoryAllreduce, LengthsThatDifferAreAnErrorNotACorruption) {
  for (const std::size_t odd_length : {0, 12, 1'000'000}) {
    Members members(Kind::kShm, 3);
    const auto meshes = members.OpenAll(1);
    std::vector<absl::Status> ended(3);
    OnEachRank(3, [&](int rank) {
      std::vector<float> data;
      ended[rank] = SumOnes(*meshes[rank], data, rank == 1 ? odd_length : 10);
      EXPECT_FALSE(ended[rank].ok()) << rank;
      EXPECT_FALSE(meshes[rank]->status().ok()) << "nobody uses this mesh again";
    });
    // Who finds out says so; others may only hear that it gave up.
    EXPECT_THAT(ended,
                Contains(::testing::Property(&absl::Status::code, absl::StatusCode::kInternal)));
  }
}

TEST(SharedMemoryAllreduce, ASilentRankIsNamedAtTheDeadline) {
  Members members(Kind::kShm, 3);
  const auto meshes = members.OpenAll(1);
  std::vector<absl::Status> ended(3);
  OnEachRank(3, [&](int rank) {
    std::vector<float> data;
    ASSERT_EQ(SumOnes(*meshes[rank], data, 1000), absl::OkStatus());
    if (rank == 1) return;
    ended[rank] = SumOnes(*meshes[rank], data, 1000, net::Deadline::After(absl::Milliseconds(50)));
    data.assign(data.size(), 0);  // nobody else touches it any more: sanitizers would see
  });
  EXPECT_FALSE(ended[0].ok());
  EXPECT_FALSE(ended[2].ok());
  // Whose deadline is first says so; the other may hear that it gave up for it lost rank 1.
  EXPECT_THAT(transport::UnreachableRanks(ended[0]), Contains(1)) << ended[0];
  EXPECT_THAT(transport::UnreachableRanks(ended[2]), Contains(1)) << ended[2];
}

TEST(SharedMemoryAllreduce, CancelEndsTheWait) {
  Members members(Kind::kShm, 2);
  const auto meshes = members.OpenAll(1);
  OnEachRank(2, [&](int rank) {
    std::vector<float> data;
    ASSERT_EQ(SumOnes(*meshes[rank], data, 1000), absl::OkStatus());
  });
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    meshes[0]->Cancel(absl::CancelledError("a newer view was published"));
  });
  std::vector<float> data;
  EXPECT_EQ(SumOnes(*meshes[0], data, 1000).code(), absl::StatusCode::kCancelled);
  other.join();
}

TEST(SharedMemoryAllreduce, WhoLeavesInOrderIsNotWaitedFor) {
  Members members(Kind::kShm, 2);
  auto meshes = members.OpenAll(1);
  OnEachRank(2, [&](int rank) {
    std::vector<float> data;
    ASSERT_EQ(SumOnes(*meshes[rank], data, 1000), absl::OkStatus());
    if (rank == 1) return meshes[1].reset();
    const absl::Status ended = SumOnes(*meshes[0], data, 1000);
    EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable) << ended;
    EXPECT_THAT(ended.message(), HasSubstr("has left view 1"));
  });
}

// --- Processes.

transport::Options OptionsOf(const std::string& member,
                             std::shared_ptr<const transport::Window> window = nullptr) {
  transport::Options options;
  options.window = std::move(window);
  options.member = member;
  options.job = "job-a";
  options.secret = "secret of the tests";
  return options;
}

// Joins the view that the test's next line describes, "NUMBER RANK MEMBER=ADDRESS ...".
absl::StatusOr<std::unique_ptr<transport::Mesh>> Join(transport::Transport& transport,
                                                      const std::string& line) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
  std::uint64_t view = 0;
  int rank = 0;
  if (words.size() < 3 || !absl::SimpleAtoi(words[0], &view) ||
      !absl::SimpleAtoi(words[1], &rank)) {
    return absl::InvalidArgumentError(line);
  }
  std::vector<transport::Peer> peers;
  for (std::size_t i = 2; i < words.size(); ++i) {
    const std::vector<std::string> parts = absl::StrSplit(words[i], absl::MaxSplits('=', 1));
    peers.push_back({parts[0], parts[1]});
  }
  return transport.Open(view, peers, rank, Soon(), nullptr);
}

// In a child: sums up in view after view, until each ends, and tells the test how it did. Its
// arrays lie in a window if it is `windowed`.
int SumForEver(const std::string& member, bool windowed, int control) {
  constexpr std::size_t kMost = 1 << 20;
  std::shared_ptr<transport::Window> window;
  if (windowed) window = *transport::Window::Make(kMost * sizeof(float));
  const auto transport =
      transport::OpenMixedTransport(net::Address{"127.0.81.5", 0}, OptionsOf(member, window));
  if (!transport.ok()) return 2;
  WriteLine(control, (*transport)->address());
  std::vector<float> heap(windowed ? 0 : kMost);
  const std::span<float> memory = windowed ? window->floats() : std::span(heap);
  while (true) {
    const std::string line = ReadLine(control);
    if (line.empty()) return 0;
    const auto mesh = Join(**transport, line);
    if (!mesh.ok()) return 3;
    std::mt19937 random(7);  // the same at every rank
    absl::Status ended;
    for (int call = 0; ended.ok(); ++call) {
      const std::size_t magnitude = std::size_t{1} << random() % 21;
      const std::span<float> data = memory.first(random() % magnitude);
      ended = SumOnes(**mesh, data);
      if (!ended.ok()) break;
      if (!AllAre(SumOfRanks((*mesh)->size()), data)) return 4;
      if (call == 20) WriteLine(control, "warm");
    }
    if ((*mesh)->status().ok()) return 5;
    std::ranges::fill(memory, 0.0F);  // still ours
    WriteLine(control,
              absl::StrCat("lost ", absl::StrJoin(transport::UnreachableRanks(ended), ",")));
  }
}

bool AnyArenaIsMapped() {
  std::ifstream maps("/proc/self/maps");
  const std::string all(std::istreambuf_iterator<char>(maps), {});
  return all.find("starling-arena") != std::string::npos;
}

// The members of a job, processes all; the test is none of them.
class Cluster {
 public:
  // Those in `windowed` have windows.
  Cluster(int size, unsigned windowed) {
    for (int i = 0; i < size; ++i) {
      const std::string name = absl::StrCat("member-", i);
      const bool has = (windowed >> i & 1) != 0;
      children_.push_back(std::make_unique<Child>(
          [name, has](int control) { return SumForEver(name, has, control); }));
      names_.push_back(absl::StrCat(name, "=", children_.back()->Read()));
    }
  }
  int size() const { return static_cast<int>(children_.size()); }
  Child& operator[](int rank) { return *children_[static_cast<std::size_t>(rank)]; }

  // A view of all that are left; returns when their sums are under way.
  void OpenView() {
    ++view_;
    for (int rank = 0; rank < size(); ++rank) {
      (*this)[rank].Write(absl::StrCat(view_, " ", rank, " ", absl::StrJoin(names_, " ")));
    }
    for (int rank = 0; rank < size(); ++rank) ASSERT_EQ((*this)[rank].Read(), "warm") << rank;
  }
  void Forget(int rank) {
    children_.erase(children_.begin() + rank);
    names_.erase(names_.begin() + rank);
  }

 private:
  std::vector<std::unique_ptr<Child>> children_;
  std::vector<std::string> names_;
  int view_ = 0;
};

TEST(SharedMemoryProcesses, ADeathAtAnyInstantEndsTheSumEverywhereAndTheNextViewIsClean) {
  std::mt19937 random(11);
  for (int ranks = 2; ranks <= 5; ++ranks) {
    for (const unsigned windowed : {0U, ~0U, ~0U, 0b01010U}) {
      Cluster cluster(ranks, windowed);
      while (cluster.size() > 1) {
        ASSERT_NO_FATAL_FAILURE(cluster.OpenView());
        const int victim = static_cast<int>(random() % static_cast<unsigned>(cluster.size()));
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
        cluster[victim].Signal(SIGKILL);
        EXPECT_EQ(cluster[victim].Wait(), 1000 + SIGKILL);
        const std::string lost = absl::StrCat("lost ", victim);
        for (int rank = 0; rank < cluster.size(); ++rank) {
          if (rank == victim) continue;
          EXPECT_EQ(cluster[rank].Read(), lost) << "rank " << rank;
        }
        cluster.Forget(victim);
      }
    }
  }
  EXPECT_FALSE(AnyArenaIsMapped());
}

void PauseOne(unsigned windowed, int microseconds) {
  Cluster cluster(3, windowed);
  ASSERT_NO_FATAL_FAILURE(cluster.OpenView());
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
  cluster[1].Signal(SIGSTOP);
  cluster[1].WaitUntilStopped();
  // What the coordinator does with a silent member: the others go on without it.
  cluster[2].Signal(SIGKILL);
  EXPECT_EQ(cluster[2].Wait(), 1000 + SIGKILL);
  EXPECT_EQ(cluster[0].Read(), "lost 2");
  cluster[1].Signal(SIGCONT);
  EXPECT_THAT(cluster[1].Read(), HasSubstr("lost"));
  cluster.Forget(2);
  ASSERT_NO_FATAL_FAILURE(cluster.OpenView());
}

// Who survives fills its array with zeros as soon as the view has ended: with a window, the paused
// rank may read them, and must not take them for a sum (it would end by itself, with 4).
TEST(SharedMemoryProcesses, ARankPausedInASumWakesIntoADeadViewOnly) {
  for (int round = 0; round < 12; ++round) {
    ASSERT_NO_FATAL_FAILURE(PauseOne(round % 3 == 0 ? 0U : ~0U, 311 * round)) << round;
  }
}

// Of this process, as where memory or the sizes of files are limited.
void LimitFiles() {
  (void)::signal(SIGXFSZ, SIG_IGN);
  const rlimit none = {4096, 4096};
  (void)::setrlimit(RLIMIT_FSIZE, &none);
}

// Two processes open a view of both; of `body` each gets its name, and whether it is the one that
// is limited, and returns what it does in a child: 0 when all went well.
using BodyOf = std::function<std::function<int(int control)>(const std::string& member, bool)>;
void RunLimitedAndOther(const BodyOf& body) {
  Child first(body("a", true));
  Child second(body("b", false));
  const std::string peers = absl::StrCat("a=", first.Read(), " b=", second.Read());
  first.Write("1 0 " + peers);
  second.Write("1 1 " + peers);
  EXPECT_EQ(first.Wait(), 0);
  EXPECT_EQ(second.Wait(), 0);
}

// One rank has no address space left for the other's window: both work by copies.
TEST(SharedMemoryProcesses, AWindowThatARankCannotMapIsUsedByNobody) {
  RunLimitedAndOther([](const std::string& member, bool limited) {
    return [=](int control) {
      constexpr std::size_t kBytes = 512 << 20;
      const auto window = transport::Window::Make(limited ? 1 << 20 : kBytes);
      if (!window.ok()) return 2;
      const auto transport =
          transport::OpenMixedTransport(net::Address{"127.0.81.5", 0}, OptionsOf(member, *window));
      if (!transport.ok()) return 3;
      WriteLine(control, (*transport)->address());
      const auto mesh = Join(**transport, ReadLine(control));
      if (!mesh.ok()) return 4;
      if (limited) {
        std::ifstream statm("/proc/self/statm");
        rlim_t pages = 0;
        statm >> pages;
        const rlim_t room = pages * 4096 + kBytes / 2;
        const rlimit most = {room, room};
        (void)::setrlimit(RLIMIT_AS, &most);
      }
      const auto arena = (*mesh)->ShareArena(Soon());
      if (!arena.ok() || *arena == nullptr) return 5;
      const bool usable = !(*arena)->WindowOf((*mesh)->rank()).empty();
      if (usable != limited) return 6;  // the small one of the limited rank is mapped by the other
      const std::span<float> array = (*window)->floats().first(100'000);
      if (!SumOnes(**mesh, array).ok() || !AllAre(3, array)) return 7;
      return 0;
    };
  });
}

TEST(SharedMemoryProcesses, WhereThereIsNoRoomForAWindowThatIsSaid) {
  Child limited([](int) {
    LimitFiles();
    return transport::Window::Make(kWindowBytes).status().code() ==
                   absl::StatusCode::kResourceExhausted
               ? 0
               : 1;
  });
  EXPECT_EQ(limited.Wait(), 0);
}

TEST(SharedMemoryProcesses, WithoutMemoryForAnArenaTheySumUpInFrames) {
  RunLimitedAndOther([](const std::string& member, bool limited) {
    return [=](int control) {
      const auto transport =
          transport::OpenMixedTransport(net::Address{"127.0.81.5", 0}, OptionsOf(member));
      if (!transport.ok()) return 2;
      WriteLine(control, (*transport)->address());
      const auto mesh = Join(**transport, ReadLine(control));
      if (!mesh.ok()) return 3;
      if (limited) LimitFiles();
      const auto arena = (*mesh)->ShareArena(Soon());
      if (!arena.ok() || *arena != nullptr) return 4;
      std::vector<float> data;
      if (!SumOnes(**mesh, data, 100'000).ok() || data[99'999] != 3) return 5;
      return 0;
    };
  });
}

}  // namespace
}  // namespace starling::collectives
