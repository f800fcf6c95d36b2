// SPDX-License-Identifier: Apache-2.0
// The sum in shared memory, where ranks die, pause, are late, disagree or have no memory. That it
// is right otherwise, allreduce_test.cc says.
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
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

// Sums up an array of `length` that rank r has filled with r + 1: in an arena if there is one.
absl::Status SumOnes(transport::Mesh& mesh, std::vector<float>& data, std::size_t length,
                     net::Deadline deadline = Soon(),
                     std::optional<Algorithm> algorithm = std::nullopt) {
  Workspace workspace;
  data.assign(length, static_cast<float>(mesh.rank() + 1));
  if (!algorithm) {
    const auto arena = mesh.ShareArena(deadline);
    if (!arena.ok()) return arena.status();
    algorithm = *arena == nullptr ? Algorithm::kRing : Algorithm::kSharedMemory;
  }
  return Allreduce(*algorithm, {mesh, kTag, deadline, workspace}, data);
}

// A matcher a float would take longer than the sums.
bool AllAre(float value, const std::vector<float>& data) {
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

transport::Options OptionsOf(const std::string& member) {
  transport::Options options;
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

// In a child: sums up in view after view, until each ends, and tells the test how it did.
int SumForEver(const std::string& member, int control) {
  const auto transport =
      transport::OpenMixedTransport(net::Address{"127.0.81.5", 0}, OptionsOf(member));
  if (!transport.ok()) return 2;
  WriteLine(control, (*transport)->address());
  std::vector<float> data;
  while (true) {
    const std::string line = ReadLine(control);
    if (line.empty()) return 0;
    const auto mesh = Join(**transport, line);
    if (!mesh.ok()) return 3;
    std::mt19937 random(7);  // the same at every rank
    absl::Status ended;
    for (int call = 0; ended.ok(); ++call) {
      const std::size_t magnitude = std::size_t{1} << random() % 21;
      const std::size_t length = random() % magnitude;
      ended = SumOnes(**mesh, data, length);
      if (!ended.ok()) break;
      if (!AllAre(SumOfRanks((*mesh)->size()), data)) return 4;
      if (call == 20) WriteLine(control, "warm");
    }
    if ((*mesh)->status().ok()) return 5;
    data.assign(data.size(), 0);  // still ours
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
  explicit Cluster(int size) {
    for (int i = 0; i < size; ++i) {
      const std::string name = absl::StrCat("member-", i);
      children_.push_back(
          std::make_unique<Child>([name](int control) { return SumForEver(name, control); }));
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
    for (int round = 0; round < 4; ++round) {
      Cluster cluster(ranks);
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

TEST(SharedMemoryProcesses, ARankPausedInASumWakesIntoADeadViewOnly) {
  Cluster cluster(3);
  ASSERT_NO_FATAL_FAILURE(cluster.OpenView());
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

TEST(SharedMemoryProcesses, WithoutMemoryForAnArenaTheySumUpInFrames) {
  const auto body = [](const std::string& member, bool limited) {
    return [=](int control) {
      const auto transport =
          transport::OpenMixedTransport(net::Address{"127.0.81.5", 0}, OptionsOf(member));
      if (!transport.ok()) return 2;
      WriteLine(control, (*transport)->address());
      const auto mesh = Join(**transport, ReadLine(control));
      if (!mesh.ok()) return 3;
      if (limited) {  // as where memory or the sizes of files are
        (void)::signal(SIGXFSZ, SIG_IGN);
        const rlimit none = {4096, 4096};
        (void)::setrlimit(RLIMIT_FSIZE, &none);
      }
      const auto arena = (*mesh)->ShareArena(Soon());
      if (!arena.ok() || *arena != nullptr) return 4;
      std::vector<float> data;
      if (!SumOnes(**mesh, data, 100'000).ok() || data[99'999] != 3) return 5;
      return 0;
    };
  };
  Child first(body("a", true));
  Child second(body("b", false));
  const std::string peers = absl::StrCat("a=", first.Read(), " b=", second.Read());
  first.Write("1 0 " + peers);
  second.Write("1 1 " + peers);
  EXPECT_EQ(first.Wait(), 0);
  EXPECT_EQ(second.Wait(), 0);
}

}  // namespace
}  // namespace starling::collectives
