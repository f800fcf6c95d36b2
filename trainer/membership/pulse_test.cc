// SPDX-License-Identifier: Apache-2.0
// What a thread does and since when: told by another thread of a process that may stand still.
#include "trainer/membership/pulse.h"

#include "gtest/gtest.h"

namespace starling::membership {
namespace {

using Kind = Standing::Kind;

// A thread that has made its first steps, and one that looks ten times a second.
class PulseTest : public testing::Test {
 protected:
  PulseTest() {
    for (int i = 0; i < Pulse::kWarmUp; ++i) Step(absl::Seconds(9));
  }
  void Enter(Kind kind, const char* where) { pulse_.Enter(kind, where, now_); }
  Standing Look() { return pulse_.Look(now_); }
  void Pass(absl::Duration time) {
    for (const absl::Time end = now_ + time; now_ < end;) {
      now_ = std::min(end, now_ + absl::Milliseconds(100));
      (void)Look();
    }
  }
  void Step(absl::Duration length) {
    Enter(Kind::kWorks, "compute");
    Pass(length);
    Enter(Kind::kWaits, "exchange");
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  Pulse pulse_;
};

TEST_F(PulseTest, SaysWhatTheThreadDoesAndSinceWhen) {
  EXPECT_EQ(Look().kind, Kind::kWaits);
  Enter(Kind::kWorks, "input");
  Pass(absl::Milliseconds(250));
  EXPECT_EQ(Look(), (Standing{.kind = Kind::kWorks,
                              .where = "input",
                              .since = absl::Milliseconds(250),
                              .usual = absl::ZeroDuration(),
                              .stretches = Pulse::kWarmUp}));
  pulse_.SetThread(17);
  EXPECT_EQ(Look().thread, 17);
}

TEST_F(PulseTest, WorkAfterWorkIsOneStretchAndWorkAfterAWaitIsAnother) {
  Enter(Kind::kWorks, "input");
  Pass(absl::Seconds(1));
  Enter(Kind::kWorks, "compute");
  Pass(absl::Seconds(2));
  EXPECT_EQ(Look().since, absl::Seconds(3));
  EXPECT_EQ(Look().where, "compute");
  EXPECT_EQ(Look().stretches, Pulse::kWarmUp);
  Enter(Kind::kWaits, "exchange");
  EXPECT_EQ(Look().since, absl::ZeroDuration());
  EXPECT_EQ(Look().stretches, Pulse::kWarmUp + 1);
  EXPECT_EQ(Look().usual, absl::Seconds(3));
  Enter(Kind::kWorks, "input");
  EXPECT_EQ(Look().since, absl::ZeroDuration());
}

TEST_F(PulseTest, EachWaitIsAStretchOfItsOwn) {
  Enter(Kind::kWaits, "exchange");
  Pass(absl::Seconds(2));
  Enter(Kind::kWaits, "view");
  EXPECT_EQ(Look().since, absl::ZeroDuration());
  EXPECT_EQ(Look().where, "view");
  EXPECT_EQ(Look().stretches, Pulse::kWarmUp) << "no work was done";
}

TEST_F(PulseTest, TheTimeSinceTheLastLookBelongsToTheStretchThatEnds) {
  Enter(Kind::kWorks, "compute");
  now_ += absl::Milliseconds(70);
  Enter(Kind::kWaits, "exchange");
  EXPECT_EQ(Look().usual, absl::Milliseconds(70));
  EXPECT_EQ(Look().since, absl::ZeroDuration()) << "and not to the one that begins";
}

TEST_F(PulseTest, WhatIsAnnouncedIsNoMeasureOfWork) {
  Step(absl::Milliseconds(50));
  Enter(Kind::kAnnounced, "validation");
  Pass(absl::Minutes(5));
  EXPECT_EQ(Look().kind, Kind::kAnnounced);
  Enter(Kind::kWorks, "compute");
  EXPECT_EQ(Look().usual, absl::Milliseconds(50));
  EXPECT_EQ(Look().stretches, Pulse::kWarmUp + 1);
}

TEST_F(PulseTest, UsualIsThe99thPercentileOfTheNewestStretches) {
  for (int i = 0; i < 10; ++i) Step(absl::Seconds(9));
  for (int i = 1; i <= 256; ++i) Step(absl::Milliseconds(i));
  EXPECT_EQ(Look().usual, absl::Milliseconds(254)) << "two of 256 are longer";
  EXPECT_EQ(Look().stretches, 266 + Pulse::kWarmUp);
}

TEST_F(PulseTest, OneStretchThatWasLongIsSoonForgottenAmongMany) {
  Step(absl::Seconds(9));
  EXPECT_EQ(Look().usual, absl::Seconds(9));
  for (int i = 0; i < 99; ++i) Step(absl::Milliseconds(50));
  EXPECT_EQ(Look().usual, absl::Milliseconds(50));
}

TEST_F(PulseTest, ShortStretchesCountAndHideNoLongOne) {
  Step(absl::Milliseconds(400));
  for (int i = 0; i < 1000; ++i) Step(absl::Microseconds(900));
  EXPECT_EQ(Look().usual, absl::Milliseconds(400));
  EXPECT_EQ(Look().stretches, 1001 + Pulse::kWarmUp);
}

TEST_F(PulseTest, AViewBeginsWithoutStretchesAndKnowsWhatIsUsual) {
  for (int i = 0; i < 5; ++i) Step(absl::Milliseconds(50));
  pulse_.Begin();
  EXPECT_EQ(Look().stretches, 0);
  EXPECT_EQ(Look().usual, absl::Milliseconds(50));
  for (int i = 0; i < Pulse::kWarmUp; ++i) Step(absl::Seconds(9));
  EXPECT_EQ(Look().usual, absl::Milliseconds(50)) << "its first steps are no measure";
  Step(absl::Seconds(9));
  EXPECT_EQ(Look().usual, absl::Seconds(9));
}

TEST_F(PulseTest, TimeInWhichNobodyCouldLookDoesNotCount) {
  Step(absl::Milliseconds(50));
  Enter(Kind::kWorks, "compute");
  now_ += absl::Minutes(10);  // all of the process was stopped
  EXPECT_EQ(Look().since, Pulse::kBetweenLooks);
  Pass(absl::Milliseconds(500));
  EXPECT_EQ(Look().since, Pulse::kBetweenLooks + absl::Milliseconds(500));
  Enter(Kind::kWaits, "exchange");
  now_ += absl::Minutes(10);
  Enter(Kind::kWorks, "input");
  EXPECT_LT(Look().usual, absl::Seconds(1)) << "nor is it a stretch that others are measured by";
}

TEST_F(PulseTest, AClockThatGoesBackIsNoTime) {
  Enter(Kind::kWorks, "compute");
  now_ -= absl::Seconds(5);
  EXPECT_EQ(Look().since, absl::ZeroDuration());
  Pass(absl::Milliseconds(100));
  EXPECT_EQ(Look().since, absl::Milliseconds(100));
}

}  // namespace
}  // namespace starling::membership
