// SPDX-License-Identifier: Apache-2.0
// Who hangs, and who only waits, is slow, or has said that it will take long.
#include "trainer/membership/hang_rule.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace starling::membership {
namespace {

using Kind = Standing::Kind;

// Its steps take 50 ms, and it has made many.
Standing Works(double seconds, double usual = 0.05, std::int64_t stretches = 1000) {
  return {.kind = Kind::kWorks,
          .where = "compute",
          .since = absl::Seconds(seconds),
          .usual = absl::Seconds(usual),
          .stretches = stretches};
}
Standing Of(Kind kind, double seconds) {
  Standing standing = Works(seconds);
  standing.kind = kind;
  return standing;
}
Standing Waits(double seconds) { return Of(Kind::kWaits, seconds); }
Standing Announced(double seconds) { return Of(Kind::kAnnounced, seconds); }

constexpr int kNobody = -1;

struct Case {
  std::string what;
  std::vector<Standing> members;
  int hangs = kNobody;
};

TEST(HangRule, FindsWhoHasNotContributedAndNobodyElse) {
  const std::vector<Case> cases = {
      {"nobody is there", {}, kNobody},
      {"all at work", {Works(0.04), Works(0.03), Works(0.05)}, kNobody},
      {"all wait for one that has just begun", {Waits(0.04), Works(0.05), Waits(0.04)}, kNobody},
      {"slower than ever, but not yet too slow", {Waits(1.9), Works(1.99)}, kNobody},
      {"all wait for one", {Waits(1.95), Works(2.0), Waits(1.95)}, 1},
      {"the one that stands hangs, not those that wait longer", {Waits(60), Works(2.1)}, 1},
      {"nobody waits, but the others go on", {Works(0.02), Works(2.1), Works(0.04)}, 1},
      {"others wait since others hang", {Waits(600), Waits(600)}, kNobody},
      {"its steps are long", {Waits(9), Works(9.9, 2)}, kNobody},
      {"its steps are long, and this is much longer", {Waits(9), Works(10, 2)}, 1},
      {"two stand at once: a slow machine", {Waits(3), Works(3.9), Works(3.8)}, kNobody},
      {"two stand for long: the one that stands longer", {Waits(3), Works(4.1), Works(4)}, 1},
      {"the other has only begun", {Waits(2.1), Works(2.1), Works(0.9)}, 1},
      {"all stand: nothing shows that it is not the machine", {Works(30), Works(30)}, kNobody},
      {"all stand for very long", {Works(39), Works(41)}, 1},
      {"alone", {Works(19)}, kNobody},
      {"alone and for long", {Works(20)}, 0},
      {"a validation takes ten minutes", {Announced(600), Waits(600)}, kNobody},
      {"who validates is no witness", {Announced(600), Works(19)}, kNobody},
      {"who waits beside one that validates is", {Announced(600), Works(2.1), Waits(1)}, 1},
      {"first steps", {Waits(29), Works(29, 0.05, 3)}, kNobody},
      {"even first steps end", {Waits(30), Works(30, 0.05, 3)}, 1},
      {"first steps, and the first of all was very slow", {Waits(49), Works(49, 10, 1)}, kNobody},
  };
  for (const Case& one : cases) {
    const std::optional<std::size_t> who = WhoHangs(one.members, HangRule());
    EXPECT_EQ(who ? static_cast<int>(*who) : kNobody, one.hangs) << one.what;
  }
}

TEST(HangRule, PatienceFollowsItsOwnStepsAndHasAFloor) {
  const HangRule rule;
  EXPECT_EQ(PatienceWith(Works(0, 0.05), rule), rule.floor);
  EXPECT_EQ(PatienceWith(Works(0, 0.4), rule), rule.floor);
  EXPECT_EQ(PatienceWith(Works(0, 0.5), rule), absl::Milliseconds(2500));
  EXPECT_EQ(PatienceWith(Works(0, 60), rule), absl::Minutes(5));
  EXPECT_EQ(PatienceWith(Works(0, 0.05, 0), rule), rule.warm_up);
  EXPECT_EQ(PatienceWith(Works(0, 0.05, rule.warm_up_stretches), rule), rule.floor);
}

TEST(HangRule, OfManyThatStandTogetherEachHasThePatienceOfAll) {
  for (int standing = 1; standing <= 8; ++standing) {
    std::vector<Standing> members(8, Waits(1));
    const double limit = 2.0 * standing;
    for (int i = 0; i < standing; ++i) members[static_cast<std::size_t>(i)] = Works(limit - 0.01);
    EXPECT_FALSE(WhoHangs(members, HangRule())) << standing;
    members[0] = Works(standing == 8 ? 10 * limit + 0.01 : limit + 0.01);
    if (standing == 8) {
      for (Standing& one : members) one.since = members[0].since;
    }
    EXPECT_TRUE(WhoHangs(members, HangRule())) << standing;
  }
}

}  // namespace
}  // namespace starling::membership
