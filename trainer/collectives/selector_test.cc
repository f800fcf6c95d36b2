// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/selector.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/collectives/emulation.h"
#include "trainer/testing/transports.h"

namespace starling::collectives {
namespace {

using ::starling::transport::testing::Kind;
using ::starling::transport::testing::Members;
using ::starling::transport::testing::OnEachRank;
using ::starling::transport::testing::Soon;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

constexpr transport::Tag kTag{0, kSelectionChannel};
constexpr Algorithm kInFrames[] = {Algorithm::kNaive, Algorithm::kRing, Algorithm::kHalvingDoubling,
                                   Algorithm::kRecursiveDoubling, Algorithm::kTree};
using Meshes = std::vector<std::unique_ptr<transport::Mesh>>;

// --- Costs and choices.

TEST(Choose, TakesFewRoundsForFewBytesAndFewBytesForMany) {
  for (int ranks = 3; ranks <= 17; ++ranks) {
    const Price few = PriceOf(Choose(ranks, 1024, {}), ranks);
    const Price many = PriceOf(Choose(ranks, 64 << 20, {}), ranks);
    EXPECT_LT(few.rounds, many.rounds) << ranks;
    EXPECT_DOUBLE_EQ(many.sent, 2 * (ranks - 1.0) / ranks) << "the least that there is";
  }
  EXPECT_EQ(Choose(7, 64 << 20, {}), Algorithm::kRing) << "folding sends more";
}

TEST(Choose, TakesNoMoreRoundsWhereMessagesAreSlow) {
  const LinkCost slow{.latency_seconds = 5e-3};
  for (int ranks = 2; ranks <= 17; ++ranks) {
    for (std::size_t bytes = 64; bytes < (64 << 20); bytes *= 2) {
      EXPECT_LE(PriceOf(Choose(ranks, bytes, slow), ranks).rounds,
                PriceOf(Choose(ranks, bytes, {}), ranks).rounds);
    }
  }
}

TEST(Choose, IsTheCheapestOfAll) {
  const LinkCost link;
  for (int ranks = 1; ranks <= 17; ++ranks) {
    for (const std::size_t bytes : {1000, 100'000, 10'000'000}) {
      for (const Algorithm other : kInFrames) {
        EXPECT_LE(Cost(Choose(ranks, bytes, link), ranks, bytes, link),
                  1.005 * Cost(other, ranks, bytes, link));
      }
    }
  }
}

// What no round can overlap, arrays of one piece: messages one after another, and bytes.
TEST(Cost, OfAnArrayOfOnePieceIsTheAlphaBetaFormula) {
  const LinkCost link{.latency_seconds = 1e-3,
                      .seconds_per_byte = 1e-8,
                      .seconds_per_byte_added = 0,
                      .seconds_per_message = 0};
  constexpr std::size_t kBytes = 200'000;
  for (int ranks = 2; ranks <= 17; ++ranks) {
    for (const Algorithm algorithm : kInFrames) {
      const Price price = PriceOf(algorithm, ranks);
      EXPECT_NEAR(Cost(algorithm, ranks, kBytes, link), price.rounds * 1e-3 + price.sent * 2e-3,
                  1e-12)
          << NameOf(algorithm) << ", " << ranks;
    }
  }
}

TEST(Cost, OfManyPiecesHidesDelaysBehindBytes) {
  const LinkCost link{.latency_seconds = 1e-3,
                      .seconds_per_byte = 1e-8,
                      .seconds_per_byte_added = 0,
                      .seconds_per_message = 0};
  for (const int ranks : {2, 4, 8}) {
    for (const Algorithm algorithm :
         {Algorithm::kRing, Algorithm::kHalvingDoubling, Algorithm::kRecursiveDoubling}) {
      const double sent = PriceOf(algorithm, ranks).sent * (64 << 20) * 1e-8;
      const double cost = Cost(algorithm, ranks, 64 << 20, link);
      EXPECT_GE(cost, sent + 1e-3);
      EXPECT_LE(cost, sent + 1.1e-3) << NameOf(algorithm) << ", " << ranks;
    }
  }
}

TEST(SelectBy, ChoosesForEverySizeWhatIsCheapest) {
  const LinkCost links[] = {{}, {.latency_seconds = 5e-3}, {.seconds_per_byte = 1e-7}};
  for (const LinkCost& link : links) {
    for (int ranks = 2; ranks <= 17; ++ranks) {
      const Selection selection = SelectBy(link, ranks);
      EXPECT_LE(selection.classes.size(), 6U);
      for (std::size_t bytes = 1; bytes < (std::size_t{1} << 34); bytes += bytes / 3 + 1) {
        EXPECT_EQ(selection.Of(bytes), Choose(ranks, bytes, link)) << ranks << ", " << bytes;
      }
      for (std::size_t i = 0; i + 1 < selection.classes.size(); ++i) {
        const std::uint64_t edge = selection.classes[i].most_bytes;
        EXPECT_NE(selection.Of(edge), selection.Of(edge + 1)) << "classes meet where they differ";
      }
    }
  }
}

// --- The choice beside the fastest of all, on emulated networks.

constexpr std::size_t kSizes[] = {64,        4 << 10,   16 << 10,  32 << 10, 64 << 10,
                                  128 << 10, 256 << 10, 512 << 10, 1 << 20,  2 << 20};
const transport::Shaping kNetworks[] = {
    {absl::Milliseconds(1), 125e6}, {absl::Milliseconds(5), 125e6}, {absl::Milliseconds(2), 25e6}};

double Played(Algorithm algorithm, int ranks, std::size_t bytes,
              const transport::Shaping& network) {
  std::vector<Script> all;
  for (int rank = 0; rank < ranks; ++rank) {
    all.push_back(ScriptOf(algorithm, {ranks, rank}, bytes / sizeof(float), sizeof(float)));
  }
  return Emulate(all, sizeof(float), network).seconds;
}

LinkCost FiguresOf(const transport::Shaping& network) {
  return {.latency_seconds = absl::ToDoubleSeconds(network.delay),
          .seconds_per_byte = 1 / network.bytes_per_second,
          .seconds_per_byte_added = 0,
          .seconds_per_message = 0};
}

// Of 210 points: where the choice by these figures takes at most a tenth longer than the fastest.
double ShareWithinATenth(const std::function<LinkCost(LinkCost)>& figures) {
  int good = 0, points = 0;
  for (const transport::Shaping& network : kNetworks) {
    for (int ranks = 2; ranks <= 8; ++ranks) {
      const Selection selection = SelectBy(figures(FiguresOf(network)), ranks);
      for (const std::size_t bytes : kSizes) {
        double fastest = std::numeric_limits<double>::infinity();
        for (const Algorithm algorithm : kInFrames) {
          fastest = std::min(fastest, Played(algorithm, ranks, bytes, network));
        }
        const double chosen = Played(selection.Of(bytes), ranks, bytes, network);
        good += chosen <= 1.1 * fastest ? 1 : 0;
        ++points;
      }
    }
  }
  EXPECT_EQ(points, 210);
  return static_cast<double>(good) / points;
}

TEST(SelectBy, IsWithinATenthOfTheFastestAtNearlyAllPoints) {
  EXPECT_GE(ShareWithinATenth([](LinkCost link) { return link; }), 0.95);
}

TEST(SelectBy, StaysSoWhereFiguresAreAQuarterOff) {
  for (const double off : {0.8, 1.25}) {
    EXPECT_GE(ShareWithinATenth([&](LinkCost link) {
                link.latency_seconds *= off;
                return link;
              }),
              0.95);
    EXPECT_GE(ShareWithinATenth([&](LinkCost link) {
                link.seconds_per_byte *= off;
                return link;
              }),
              0.95);
  }
}

TEST(SelectBy, PicksWorseByWrongFigures) {
  EXPECT_LT(ShareWithinATenth([](LinkCost link) {
              link.latency_seconds /= 1000;
              link.seconds_per_byte *= 100;
              return link;
            }),
            0.5);
  // Those of one machine, which are right for no other network.
  EXPECT_LT(ShareWithinATenth([](LinkCost) { return LinkCost(); }), 0.9);
}

// The formulas beside what is played.
TEST(Cost, IsWhatAnEmulatedNetworkTakes) {
  const transport::Shaping network{absl::Milliseconds(1), 125e6};
  const LinkCost link = FiguresOf(network);
  for (const int ranks : {2, 4, 8}) {
    for (const std::size_t bytes : {64, 64 << 10, 256 << 10}) {
      for (const Algorithm algorithm : kInFrames) {
        const double played = Played(algorithm, ranks, bytes, network);
        EXPECT_NEAR(Cost(algorithm, ranks, bytes, link), played, 0.02 * played)
            << NameOf(algorithm) << ", " << ranks << ", " << bytes;
      }
    }
  }
}

TEST(SelectBy, IsToldInWords) {
  Selection selection = Always(Algorithm::kTree);
  EXPECT_EQ(AlgorithmsOf(selection), "Tree");
  selection = {.classes = {{8192, Algorithm::kRecursiveDoubling}, {9000, Algorithm::kRing}},
               .link = {.latency_seconds = 52e-6, .seconds_per_byte = 8e-9},
               .links = 6};
  EXPECT_EQ(AlgorithmsOf(selection), "RecursiveDoubling up to 8192 bytes, Ring beyond");
  EXPECT_EQ(MeasuredOf(selection),
            "a message takes 52 us and 125 MB/s on the slowest of 6 measured links");
}

TEST(Algorithm, IsKnownByItsNumberAndItsName) {
  for (const Algorithm algorithm : kInFrames) {
    EXPECT_EQ(AlgorithmOf(static_cast<std::uint64_t>(algorithm)), algorithm);
  }
  EXPECT_EQ(AlgorithmOf(0), std::nullopt);
  EXPECT_EQ(AlgorithmOf(99), std::nullopt);
  EXPECT_EQ(NameOf(Algorithm::kHalvingDoubling), "HalvingDoubling");
}

// --- Who measures what.

TEST(PartnerIn, LetsEveryRankMeetEveryOtherOnce) {
  EXPECT_EQ(PartnerIn(0, {1, 0}), -1);
  for (int size = 2; size <= 17; ++size) {
    const int rounds = size - 1 + size % 2;
    std::vector<std::set<int>> met(static_cast<std::size_t>(size));
    for (int round = 0; round < rounds; ++round) {
      for (int rank = 0; rank < size; ++rank) {
        const int partner = PartnerIn(round, {size, rank});
        if (partner < 0) continue;
        ASSERT_NE(partner, rank);
        EXPECT_EQ(PartnerIn(round, {size, partner}), rank) << "both mean each other";
        EXPECT_TRUE(met[static_cast<std::size_t>(rank)].insert(partner).second);
      }
    }
    for (const auto& one : met) EXPECT_EQ(one.size(), static_cast<std::size_t>(size - 1)) << size;
  }
}

// --- Links, and what is agreed on.

transport::Options Emulated(absl::Duration delay, double bytes_per_second) {
  transport::Options options;
  options.shaping = {.delay = delay, .bytes_per_second = bytes_per_second};
  return options;
}

std::vector<Selection> AgreeAll(const Meshes& meshes, const Effort& effort = {}) {
  std::vector<Selection> selections(meshes.size());
  OnEachRank(static_cast<int>(meshes.size()), [&](int rank) {
    Workspace workspace;
    auto agreed = AgreeOnSelection({*meshes[rank], kTag, Soon(), workspace}, effort);
    ASSERT_EQ(agreed.status(), absl::OkStatus());
    selections[rank] = *std::move(agreed);
  });
  return selections;
}

// So slow that a machine's own noise is little beside it: threads of a busy one stood still for 12
// ms. The way to and fro would be 80 ms.
TEST(MeasureLinks, FindsTheDelayAndTheBandwidthOfAnEmulatedNetwork) {
  Members members(Kind::kInproc, 4, Emulated(absl::Milliseconds(40), 1e6));
  for (const Selection& selection : AgreeAll(members.OpenAll(1))) {
    EXPECT_THAT(selection.link.latency_seconds, AllOf(Ge(40e-3), Le(75e-3)));
    EXPECT_THAT(1 / selection.link.seconds_per_byte, AllOf(Ge(0.4e6), Le(2e6)));
    EXPECT_EQ(selection.links, 6);
  }
}

TEST(AgreeOnSelection, GivesAllRanksTheSameForAnyNumberOfThem) {
  for (const int ranks : {1, 2, 3, 5, 8, 11}) {
    Members members(Kind::kInproc, ranks);
    const std::vector<Selection> selections = AgreeAll(members.OpenAll(1));
    for (const Selection& one : selections) {
      EXPECT_EQ(one.classes, selections[0].classes) << ranks;
      EXPECT_EQ(one.link.latency_seconds, selections[0].link.latency_seconds);
      EXPECT_EQ(one.links, selections[0].links);
    }
  }
}

TEST(AgreeOnSelection, GoesByTheSlowestOfAllLinks) {
  // Cards differ: that of rank 2 is fifty times as slow as the others'.
  transport::Options slow = Emulated(absl::Milliseconds(1), 1e6);
  slow.member = "member-2";
  Members members(Kind::kInproc, 2, Emulated(absl::Milliseconds(1), 50e6));
  members.Add(slow);
  for (const Selection& selection : AgreeAll(members.OpenAll(1))) {
    EXPECT_LE(1 / selection.link.seconds_per_byte, 3e6);
  }
}

TEST(AgreeOnSelection, TakesSharedMemoryWhereThereIsSomeAndMeasuresNothing) {
  Members members(Kind::kShm, 3);
  const Meshes meshes = members.OpenAll(1);
  for (const Selection& selection : AgreeAll(meshes)) {
    EXPECT_EQ(selection.Of(1), Algorithm::kSharedMemory);
    EXPECT_EQ(selection.Of(1 << 30), Algorithm::kSharedMemory);
    EXPECT_EQ(selection.links, 0);
  }
  EXPECT_LT(meshes[0]->traffic(1).payload_sent, 100U);
}

TEST(AgreeOnSelection, SendsLittle) {
  constexpr int kRanks = 12;
  constexpr std::uint64_t kMostOfALink = (std::uint64_t{3} << 20) + (256 << 10);
  Members members(Kind::kInproc, kRanks);
  const Meshes meshes = members.OpenAll(1);
  AgreeAll(meshes);
  for (int rank = 0; rank < kRanks; ++rank) {
    std::uint64_t all = 0;
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer == rank) continue;
      const std::uint64_t sent = meshes[rank]->traffic(peer).payload_sent;
      EXPECT_LE(sent, kMostOfALink);
      all += sent;
    }
    EXPECT_LE(all, kMostLinks * kMostOfALink);
  }
}

TEST(AgreeOnSelection, SendsNoArrayLargerThanAnyThatWillBeSummed) {
  Members members(Kind::kInproc, 2);
  const Meshes meshes = members.OpenAll(1);
  AgreeAll(meshes, {.largest = 60'000});
  EXPECT_LT(meshes[0]->traffic(1).payload_sent, 4 * 60'000U + (16 << 10) + 4096);
}

TEST(AgreeOnSelection, BeginsNoLinkWhenItsTimeIsOver) {
  Members members(Kind::kInproc, 4, Emulated(absl::Milliseconds(20), 1e6));
  for (const Selection& selection : AgreeAll(members.OpenAll(1), {.most = absl::Milliseconds(1)})) {
    EXPECT_EQ(selection.links, 2) << "one of each pair of the first round";
    EXPECT_GE(selection.link.latency_seconds, 20e-3);
  }
}

TEST(AgreeOnSelection, IsMadeAnewInEachView) {
  Members members(Kind::kInproc, 3, Emulated(absl::Microseconds(100), 50e6));
  const std::vector<Selection> before = AgreeAll(members.OpenAll(1));
  // One more joins, over a slow network.
  transport::Options slow = Emulated(absl::Milliseconds(40), 50e6);
  slow.member = "member-3";
  members.Add(slow);
  const std::vector<Selection> after = AgreeAll(members.OpenAll(2));
  EXPECT_LT(before[0].link.latency_seconds, 20e-3);
  EXPECT_GE(after[0].link.latency_seconds, 20e-3) << "half of a delay that one way has";
  EXPECT_NE(before[0].classes, after[0].classes);
}

TEST(AgreeOnSelection, ARankThatDiesEndsItAtTheOthers) {
  Members members(Kind::kInproc, 3);
  Meshes meshes = members.OpenAll(1);
  std::vector<absl::Status> ended(3);
  OnEachRank(3, [&](int rank) {
    if (rank == 1) return meshes[1].reset();
    Workspace workspace;
    ended[rank] = AgreeOnSelection({*meshes[rank], kTag, Soon(), workspace}).status();
  });
  EXPECT_FALSE(ended[0].ok());
  EXPECT_FALSE(ended[2].ok());
}

TEST(AgreeOnSelection, RefusesToMeasureWithoutEnd) {
  Members members(Kind::kInproc, 2);
  const Meshes meshes = members.OpenAll(1);
  OnEachRank(2, [&](int rank) {
    Workspace workspace;
    if (rank == 0) {
      const std::uint64_t order[2] = {std::uint64_t{1} << 40, 1};
      (void)meshes[0]->Send(1, kTag, std::as_bytes(std::span(order)), Soon());
      return;
    }
    const absl::Status ended = MeasureLinks({*meshes[1], kTag, Soon(), workspace}).status();
    EXPECT_EQ(ended.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(ended.message(), HasSubstr("another version"));
  });
}

}  // namespace
}  // namespace starling::collectives
