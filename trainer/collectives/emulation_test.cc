// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/emulation.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace starling::collectives {
namespace {

constexpr Algorithm kScheduled[] = {Algorithm::kNaive, Algorithm::kRing,
                                    Algorithm::kHalvingDoubling, Algorithm::kRecursiveDoubling,
                                    Algorithm::kTree};

EmulatedTime TimeOf(Algorithm algorithm, int ranks, std::size_t bytes,
                    const transport::Shaping& network) {
  std::vector<Script> scripts;
  for (int rank = 0; rank < ranks; ++rank) {
    scripts.push_back(ScriptOf(algorithm, {ranks, rank}, bytes / sizeof(float), sizeof(float)));
  }
  return Emulate(scripts, sizeof(float), network);
}

const transport::Shaping kGigabit{.delay = absl::Milliseconds(1), .bytes_per_second = 125e6};

TEST(Emulation, PlaysTheScheduleThatIsCarriedOut) {
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kHalvingDoubling,
                                    Algorithm::kRecursiveDoubling, Algorithm::kTree}) {
    for (const int ranks : {2, 3, 6, 8}) {
      for (int rank = 0; rank < ranks; ++rank) {
        const Place place{ranks, rank};
        const Schedule schedule = PlanOf(algorithm, place, 300'001);
        const Pieces pieces = CutIntoPieces(schedule, 65'536, /*in_place=*/true);
        const Script script = ScriptOf(algorithm, place, 300'001, sizeof(float));
        ASSERT_EQ(script.outgoing.size(), pieces.outgoing.size());
        for (std::size_t i = 0; i < pieces.outgoing.size(); ++i) {
          EXPECT_EQ(script.outgoing[i].peer, pieces.outgoing[i].peer);
          EXPECT_EQ(script.outgoing[i].elements, pieces.outgoing[i].range.size());
          EXPECT_EQ(script.outgoing[i].receives_before, pieces.outgoing[i].receives_before);
        }
        ASSERT_EQ(script.incoming.size(), pieces.incoming.size());
        for (std::size_t i = 0; i < pieces.incoming.size(); ++i) {
          EXPECT_EQ(script.incoming[i], pieces.incoming[i].peer);
        }
      }
    }
  }
}

// 2(n-1) messages one after another, of which each has a header of 40 bytes.
TEST(Emulation, TakesWhatTheFormulaSaysOfRings) {
  for (const int ranks : {2, 5, 64, 500}) {
    const std::size_t chunk = 1000;
    const double message = 1e-3 + (4.0 * static_cast<double>(chunk) + 40) / 125e6;
    const double seconds =
        TimeOf(Algorithm::kRing, ranks, 4 * chunk * static_cast<std::size_t>(ranks), kGigabit)
            .seconds;
    EXPECT_NEAR(seconds, 2 * (ranks - 1) * message, 1e-6 * seconds) << ranks;
  }
}

TEST(Emulation, TakesTheLogarithmOfManyRanksForRecursiveDoubling) {
  const double message = 1e-3 + (4.0 * 1000 + 40) / 125e6;
  const double seconds = TimeOf(Algorithm::kRecursiveDoubling, 1024, 4000, kGigabit).seconds;
  EXPECT_NEAR(seconds, 10 * message, 1e-6);
}

// A ring goes through each link, so it is as slow as the slowest; recursive doubling of four goes
// through four of six.
TEST(Emulation, HasLinksOfTheirOwn) {
  transport::Shaping network = kGigabit;
  network.links = {{.from = "worker-0", .to = "worker-3", .delay = absl::Milliseconds(11)}};
  const auto slower = [&](Algorithm algorithm) {
    return TimeOf(algorithm, 4, 4000, network).seconds -
           TimeOf(algorithm, 4, 4000, kGigabit).seconds;
  };
  EXPECT_NEAR(slower(Algorithm::kRing), 2 * 0.010, 1e-6)
      << "of six messages one after another, on the longest path two go by it";
  EXPECT_NEAR(slower(Algorithm::kRecursiveDoubling), 0, 1e-9);

  network.links = {{.from = "worker-0", .to = "worker-1", .bytes_per_second = 12.5e6}};
  const EmulatedTime slow = TimeOf(Algorithm::kNaive, 2, 1 << 20, network);
  EXPECT_NEAR(slow.seconds, 1e-3 + (1 << 20) / 12.5e6, 1e-4);
  EXPECT_LE(slow.longest_path, slow.seconds + 1e-9);
}

// Each host sends and receives through one card what four ranks exchange with others.
TEST(Emulation, SharesTheCardOfAHost) {
  transport::Shaping hosts = kGigabit;
  hosts.pods_per_host = 4;
  const std::size_t bytes = 8 << 20;
  const double apart = TimeOf(Algorithm::kRecursiveDoubling, 8, bytes, kGigabit).seconds;
  const double shared = TimeOf(Algorithm::kRecursiveDoubling, 8, bytes, hosts).seconds;
  // Two of three rounds are inside; in the third all four send at once.
  EXPECT_NEAR(shared, 4 * static_cast<double>(bytes) / 125e6, 0.02 * shared);
  EXPECT_NEAR(apart, 3 * static_cast<double>(bytes) / 125e6, 0.02 * apart);
  // A ring leaves each host once, so that it does not mind.
  EXPECT_LE(TimeOf(Algorithm::kRing, 8, bytes, hosts).seconds,
            TimeOf(Algorithm::kRing, 8, bytes, kGigabit).seconds);
}

TEST(Emulation, TakesNoTimeInsideAHost) {
  transport::Shaping hosts = kGigabit;
  hosts.pods_per_host = 4;
  const EmulatedTime time = TimeOf(Algorithm::kRing, 4, 8 << 20, hosts);
  EXPECT_EQ(time.seconds, 0);
  EXPECT_EQ(time.work, 0);
}

// A ring in order leaves each card alone, and is as fast as that allows.
TEST(Emulation, IsNeverFasterThanItsBounds) {
  for (const int per_host : {1, 4}) {
    transport::Shaping network = kGigabit;
    network.pods_per_host = per_host;
    for (const Algorithm algorithm : kScheduled) {
      for (const int ranks : {2, 3, 7, 16}) {
        for (const std::size_t bytes : {64, 100'000, 3'000'000}) {
          const EmulatedTime time = TimeOf(algorithm, ranks, bytes, network);
          const double rounding = 1e-6;
          EXPECT_GE(time.seconds + rounding, time.longest_path);
          EXPECT_GE(time.seconds + rounding, time.busiest_card);
          EXPECT_LE(time.work, ranks * time.busiest_card + rounding);
        }
      }
    }
  }
  const EmulatedTime ring = TimeOf(Algorithm::kRing, 16, 64 << 20, kGigabit);
  EXPECT_LT(ring.seconds, 1.05 * ring.busiest_card);
  const EmulatedTime doubling = TimeOf(Algorithm::kRecursiveDoubling, 16, 64, kGigabit);
  EXPECT_NEAR(doubling.seconds, doubling.longest_path, 1e-9);
}

// One host is played in the place of all that do the same.
TEST(Emulation, TakesAsLongWhereOneHostPlaysForAll) {
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kRecursiveDoubling}) {
    for (const int per_host : {1, 4}) {
      for (const int ranks : {4, 16, 64}) {
        for (const std::size_t bytes : {64 << 10, 4 << 20}) {
          transport::Shaping network = kGigabit;
          network.pods_per_host = per_host;
          std::vector<Script> host;
          for (int rank = 0; rank < per_host; ++rank) {
            host.push_back(ScriptOf(algorithm, {ranks, rank}, bytes / 4, 4));
          }
          const EmulatedTime all = TimeOf(algorithm, ranks, bytes, network);
          const EmulatedTime one = Emulate(host, 4, network);
          EXPECT_NEAR(one.seconds, all.seconds, 1e-6 + 1e-3 * all.seconds)
              << NameOf(algorithm) << ", " << ranks << " by " << per_host << ", " << bytes;
          EXPECT_NEAR(one.work * ranks / per_host, all.work, 1e-6 + 1e-3 * all.work);
        }
      }
    }
  }
}

TEST(Emulation, TellsTheWorkOfAllCards) {
  // Each of n ranks sends 2(n-1)/n arrays, in frames with a header each.
  const EmulatedTime time = TimeOf(Algorithm::kRing, 4, 4'000'000, kGigabit);
  EXPECT_NEAR(time.work, 4 * 1.5 * 4e6 / 125e6, 1e-3 * time.work);
}

TEST(EmulationDeathTest, EndsTheProgramWhereSomebodyWaitsForEver) {
  const std::vector<Script> scripts = {{{}, {1}}, {{}, {}}};
  EXPECT_DEATH(Emulate(scripts, 4, kGigabit), "waits for ever");
}

}  // namespace
}  // namespace starling::collectives
