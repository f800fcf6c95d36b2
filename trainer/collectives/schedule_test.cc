// SPDX-License-Identifier: Apache-2.0
// Schedules as data: what they compute, bit for bit, and what they cost, by the formulas of the
// papers. No network is needed for either; that it is carried out so, collectives_test.cc says.
#include "trainer/collectives/schedule.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/simulate_schedule.h"

namespace starling::collectives {
namespace {

using ::testing::Each;
using testing::ElementsSent;
using testing::Simulate;

constexpr int kMostRanks = 17;
using Arrays = std::vector<std::vector<std::int64_t>>;
using PlanOf = std::function<Schedule(Place place)>;

std::vector<std::size_t> LengthsFor(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  return {0, 1, n - 1, n, n + 1, 7 * n + 3, 240};
}

Arrays Numbers(int ranks, std::size_t length) {
  Arrays arrays(static_cast<std::size_t>(ranks), std::vector<std::int64_t>(length));
  for (std::size_t rank = 0; rank < arrays.size(); ++rank) {
    for (std::size_t i = 0; i < length; ++i) {
      arrays[rank][i] = static_cast<std::int64_t>((rank + 1) * 1'000'003 * (i + 7) % 10'007);
    }
  }
  return arrays;
}

std::vector<std::int64_t> Total(const Arrays& arrays) {
  std::vector<std::int64_t> sum(arrays[0].size());
  for (const auto& array : arrays) {
    std::transform(array.begin(), array.end(), sum.begin(), sum.begin(), std::plus<>());
  }
  return sum;
}

std::vector<Schedule> Plans(int ranks, const PlanOf& plan) {
  std::vector<Schedule> plans;
  for (int rank = 0; rank < ranks; ++rank) plans.push_back(plan({ranks, rank}));
  return plans;
}

Arrays Played(int ranks, const PlanOf& plan, Arrays arrays) {
  Simulate<std::int64_t>(Plans(ranks, plan), arrays, arrays, std::plus<>());
  return arrays;
}

Schedule RingOfSevens(Place place, std::size_t length) {
  return RingInSegmentsPlan(place, length, 7, 2);
}

struct Allreducer {
  std::string name;
  Schedule (*plan)(Place, std::size_t);
};
class AllreducePlans : public ::testing::TestWithParam<Allreducer> {};
INSTANTIATE_TEST_SUITE_P(All, AllreducePlans,
                         ::testing::Values(Allreducer{"Ring", RingAllreducePlan},
                                           Allreducer{"RingInSegments", RingOfSevens},
                                           Allreducer{"HalvingDoubling", HalvingDoublingPlan},
                                           Allreducer{"RecursiveDoubling", RecursiveDoublingPlan},
                                           Allreducer{"Tree", TreePlan}),
                         [](const auto& test) { return test.param.name; });

TEST_P(AllreducePlans, GiveEveryRankTheSum) {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
    for (const std::size_t length : LengthsFor(ranks)) {
      const Arrays arrays = Numbers(ranks, length);
      const PlanOf plan = [&](Place place) { return GetParam().plan(place, length); };
      EXPECT_THAT(Played(ranks, plan, arrays), Each(Total(arrays))) << ranks << ", " << length;
    }
  }
}

TEST_P(AllreducePlans, LoseTheSumIfAnyReceiptDoesNotCombine) {
  for (int ranks = 2; ranks <= 5; ++ranks) {
    const Arrays arrays = Numbers(ranks, 60);
    bool dropped = false;
    const PlanOf plan = [&](Place place) {
      Schedule schedule = GetParam().plan(place, 60);
      for (Round& round : schedule) {
        for (Receipt& receipt : round.receipts) {
          if (!dropped && receipt.combine) dropped = !(receipt.combine = false);
        }
      }
      return schedule;
    };
    EXPECT_NE(Played(ranks, plan, arrays)[0], Total(arrays)) << ranks;
    EXPECT_TRUE(dropped);
  }
}

// --- The ledger: bytes and rounds are those of the formulas, exactly.

// In units of the array, of the rank that sends most; `length` is divisible by all that matters.
double MostSent(int ranks, const PlanOf& plan, std::size_t length) {
  std::size_t most = 0;
  for (const Schedule& schedule : Plans(ranks, plan)) {
    most = std::max(most, ElementsSent(schedule));
  }
  return static_cast<double>(most) / static_cast<double>(length);
}

double Log2Floor(int n) { return std::bit_width(static_cast<unsigned>(n)) - 1; }
double Log2Ceil(int n) { return std::bit_width(static_cast<unsigned>(n) - 1); }
bool IsPowerOf2(int n) { return std::has_single_bit(static_cast<unsigned>(n)); }

constexpr std::size_t kDivisible = 16 * 9 * 5 * 7 * 11 * 13 * 17;  // by all up to 17

TEST(Ledger, OfTheRing) {
  for (int n = 1; n <= kMostRanks; ++n) {
    const PlanOf plan = [](Place place) { return RingAllreducePlan(place, kDivisible); };
    for (const Schedule& schedule : Plans(n, plan)) {
      EXPECT_EQ(schedule.size(), 2 * static_cast<std::size_t>(n - 1));
      EXPECT_EQ(ElementsSent(schedule) * static_cast<std::size_t>(n),
                2 * static_cast<std::size_t>(n - 1) * kDivisible);
    }
  }
}

TEST(Ledger, OfTheRingInSegmentsIsTheRingsWithTheRoundsOfEach) {
  constexpr std::size_t kSegments = 3;
  for (int n = 1; n <= kMostRanks; ++n) {
    const PlanOf plan = [](Place place) {
      return RingInSegmentsPlan(place, kDivisible, kDivisible / kSegments, 1);
    };
    for (const Schedule& schedule : Plans(n, plan)) {
      EXPECT_EQ(schedule.size(), kSegments * 2 * static_cast<std::size_t>(n - 1));
      EXPECT_EQ(ElementsSent(schedule) * static_cast<std::size_t>(n),
                2 * static_cast<std::size_t>(n - 1) * kDivisible);
    }
  }
}

// Which rank's value is added to which, as the ring does it: sums of floats have the same bits.
TEST(RingInSegments, AddsInTheOrderOfTheRing) {
  constexpr int kRanks = 5;
  constexpr std::size_t kLength = 103;
  using Texts = std::vector<std::vector<std::string>>;
  const auto played = [](const PlanOf& plan) {
    Texts texts(kRanks);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      texts[rank].assign(kLength, std::to_string(rank));
    }
    Simulate<std::string>(
        Plans(kRanks, plan), texts, texts,
        [](const std::string& a, const std::string& b) { return "(" + a + "+" + b + ")"; });
    return texts;
  };
  EXPECT_EQ(played([](Place place) { return RingOfSevens(place, kLength); }),
            played([](Place place) { return RingAllreducePlan(place, kLength); }));
}

TEST(Ledger, OfHalvingAndDoubling) {
  for (int n = 1; n <= kMostRanks; ++n) {
    const PlanOf plan = [](Place place) { return HalvingDoublingPlan(place, kDivisible); };
    const double p = std::exp2(Log2Floor(n));
    const double fold = IsPowerOf2(n) ? 0 : 1;
    EXPECT_DOUBLE_EQ(MostSent(n, plan, kDivisible), 2 * (p - 1) / p + fold) << n;
    EXPECT_EQ(static_cast<double>(plan({n, 0}).size()), 2 * Log2Floor(n) + 2 * fold) << n;
  }
}

// As computed in the papers' terms for 2 to 8 ranks: of the ring, and of the busiest rank where
// others fold.
TEST(Ledger, OfTwoToEightRanksIsTheTableOfThePapers) {
  const double ring[] = {1, 4 / 3.0, 1.5, 1.6, 5 / 3.0, 12 / 7.0, 1.75};
  const double halving[] = {1, 2, 1.5, 2.5, 2.5, 2.5, 1.75};
  for (int n = 2; n <= 8; ++n) {
    EXPECT_DOUBLE_EQ(
        MostSent(
            n, [](Place place) { return RingAllreducePlan(place, kDivisible); }, kDivisible),
        ring[n - 2]);
    EXPECT_DOUBLE_EQ(
        MostSent(
            n, [](Place place) { return HalvingDoublingPlan(place, kDivisible); }, kDivisible),
        halving[n - 2]);
  }
}

TEST(Ledger, OfRecursiveDoubling) {
  for (int n = 1; n <= kMostRanks; ++n) {
    const PlanOf plan = [](Place place) { return RecursiveDoublingPlan(place, 60); };
    const double fold = IsPowerOf2(n) ? 0 : 1;
    EXPECT_DOUBLE_EQ(MostSent(n, plan, 60), Log2Floor(n) + fold) << n;
    EXPECT_EQ(static_cast<double>(plan({n, 0}).size()), Log2Floor(n) + 2 * fold) << n;
  }
}

TEST(Ledger, OfTheTree) {
  for (int n = 1; n <= kMostRanks; ++n) {
    const Schedule root = TreePlan({n, 0}, 60);
    EXPECT_EQ(static_cast<double>(ElementsSent(root)), 60 * Log2Ceil(n)) << n;
    EXPECT_EQ(static_cast<double>(root.size()), 2 * Log2Ceil(n)) << n;
    std::size_t all = 0;
    for (int rank = 0; rank < n; ++rank) all += ElementsSent(TreePlan({n, rank}, 60));
    EXPECT_EQ(all, 2 * 60 * static_cast<std::size_t>(n - 1)) << "each but the root, up and down";
  }
}

TEST(Ledger, OfTheOthers) {
  for (int n = 1; n <= kMostRanks; ++n) {
    const auto others = static_cast<std::size_t>(n - 1);
    const Parts parts = EvenParts(kDivisible, n);
    const auto rounds = static_cast<std::size_t>(Log2Ceil(n));
    std::size_t gathered = 0, scattered = 0;
    for (int rank = 0; rank < n; ++rank) {
      const Place place{n, rank};
      for (const Schedule& one : {ReduceScatterPlan(place, parts), AllgatherPlan(place, parts),
                                  AllToAllPlan(place, parts)}) {
        EXPECT_EQ(one.size(), others);
        EXPECT_EQ(ElementsSent(one) * static_cast<std::size_t>(n), others * kDivisible);
      }
      for (const Schedule& one :
           {BroadcastPlan(place, 60, 0), ReducePlan(place, 60, 0), GatherPlan(place, parts, 0),
            ScatterPlan(place, parts, 0), BarrierPlan(place)}) {
        EXPECT_EQ(one.size(), rounds);
      }
      EXPECT_EQ(ElementsSent(ReducePlan(place, 60, 0)), rank == 0 ? 0U : 60U);
      EXPECT_EQ(ElementsSent(BarrierPlan(place)), 0U);
      gathered += ElementsSent(GatherPlan(place, parts, n / 2));
      scattered += ElementsSent(ScatterPlan(place, parts, n / 2));
    }
    EXPECT_EQ(gathered, scattered) << "one is the other, backwards";
  }
}

// --- What the others compute.

TEST(ReduceScatterPlan, GivesEachRankItsPartOfTheSum) {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
    for (const std::size_t length : LengthsFor(ranks)) {
      const Arrays arrays = Numbers(ranks, length);
      const Parts parts = EvenParts(length, ranks);
      const Arrays reduced = Played(
          ranks, [&](Place place) { return ReduceScatterPlan(place, parts); }, arrays);
      for (int rank = 0; rank < ranks; ++rank) {
        const auto total = Total(arrays);
        EXPECT_TRUE(std::ranges::equal(parts(rank).Of(std::span(reduced[rank])),
                                       parts(rank).Of(std::span(total))));
      }
    }
  }
}

// Arrays whose parts `has` names hold `whole`, the others -1.
Arrays Holding(int ranks, const std::vector<std::int64_t>& whole, const Parts& parts,
               const std::function<bool(int rank, int part)>& has) {
  Arrays arrays(static_cast<std::size_t>(ranks), std::vector<std::int64_t>(whole.size(), -1));
  for (int rank = 0; rank < ranks; ++rank) {
    for (int part = 0; part < ranks; ++part) {
      const Elements range = parts(part);
      for (std::size_t i = range.begin; has(rank, part) && i < range.end; ++i) {
        arrays[static_cast<std::size_t>(rank)][i] = whole[i];
      }
    }
  }
  return arrays;
}

// Parts of 0, 1, 2, 0, 1, 2 ... elements.
Parts UnevenParts() {
  return [](int rank) {
    std::size_t begin = 0;
    for (int earlier = 0; earlier < rank; ++earlier) begin += static_cast<std::size_t>(earlier % 3);
    return Elements{begin, begin + static_cast<std::size_t>(rank % 3)};
  };
}

TEST(AllgatherPlan, GivesAllPartsToAll) {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
    for (const Parts& parts : {EvenParts(100, ranks), UnevenParts()}) {
      const auto whole = Numbers(1, parts(ranks - 1).end)[0];
      const Arrays own =
          Holding(ranks, whole, parts, [](int rank, int part) { return rank == part; });
      EXPECT_THAT(Played(
                      ranks, [&](Place place) { return AllgatherPlan(place, parts); }, own),
                  Each(whole));
    }
  }
}

TEST(RootedPlans, ServeAnyRoot) {
  constexpr std::size_t kLength = 100;
  const auto whole = Numbers(1, kLength)[0];
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
    const Parts parts = EvenParts(kLength, ranks);
    const Arrays arrays = Numbers(ranks, kLength);
    for (int root = 0; root < ranks; ++root) {
      const auto at_root = [&](int rank, int) { return rank == root; };
      const auto own = [](int rank, int part) { return rank == part; };
      const Arrays sent = Holding(ranks, whole, parts, at_root);
      EXPECT_THAT(
          Played(
              ranks, [&](Place place) { return BroadcastPlan(place, kLength, root); }, sent),
          Each(whole));
      EXPECT_EQ(Played(
                    ranks, [&](Place place) { return ReducePlan(place, kLength, root); },
                    arrays)[static_cast<std::size_t>(root)],
                Total(arrays));
      EXPECT_EQ(Played(
                    ranks, [&](Place place) { return GatherPlan(place, parts, root); },
                    Holding(ranks, whole, parts, own))[static_cast<std::size_t>(root)],
                whole);
      const Arrays scattered = Played(
          ranks, [&](Place place) { return ScatterPlan(place, parts, root); }, sent);
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_TRUE(std::ranges::equal(parts(rank).Of(std::span(scattered[rank])),
                                       parts(rank).Of(std::span(whole))));
      }
    }
  }
}

TEST(AllToAllPlan, TransposesParts) {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    const Parts parts = EvenParts(2 * n, ranks);
    const Arrays from = Numbers(ranks, 2 * n);
    Arrays to(n, std::vector<std::int64_t>(2 * n, -1));
    Simulate<std::int64_t>(Plans(ranks, [&](Place place) { return AllToAllPlan(place, parts); }),
                           from, to, std::plus<>());
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        if (i == j) continue;  // nothing travels
        EXPECT_EQ(to[j][2 * i], from[i][2 * j]);
        EXPECT_EQ(to[j][2 * i + 1], from[i][2 * j + 1]);
      }
    }
  }
}

// Who has heard, directly or through others, of whom.
TEST(BarrierPlan, LetsEverybodyHearOfEverybody) {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
    const auto plans = Plans(ranks, BarrierPlan);
    std::vector<std::uint32_t> heard(static_cast<std::size_t>(ranks));
    for (std::size_t rank = 0; rank < heard.size(); ++rank) heard[rank] = 1U << rank;
    for (std::size_t round = 0; round < plans[0].size(); ++round) {
      const auto before = heard;
      for (std::size_t rank = 0; rank < heard.size(); ++rank) {
        for (const Receipt& receipt : plans[rank][round].receipts) {
          heard[rank] |= before[static_cast<std::size_t>(receipt.peer)];
        }
      }
    }
    EXPECT_THAT(heard, Each((1U << ranks) - 1)) << ranks;
  }
}

}  // namespace
}  // namespace starling::collectives
