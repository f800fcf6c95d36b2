// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace starling::membership {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Heard = Session::Heard;

const MemberId kMe{"pod-a", 1};

Directive Of(std::uint64_t incarnation) {
  Directive directive;
  directive.incarnation = incarnation;
  return directive;
}

View Numbered(ViewNumber number) {
  View view;
  view.number = number;
  return view;
}

class SessionTest : public ::testing::Test {
 protected:
  Session session_{{.id = kMe, .numeric_identity = "cpu", .last_exit = LastExit{3, 0, "", 0}}};
};

TEST_F(SessionTest, AReplacedCoordinatorIsNotHeard) {
  EXPECT_EQ(session_.OnDirective(Of(2)), Heard::kSuccessor);
  EXPECT_EQ(session_.OnDirective(Of(2)), Heard::kKnown);
  Directive stale = Of(1);
  stale.released = true;
  EXPECT_EQ(session_.OnDirective(stale), Heard::kStale);
  EXPECT_THAT(session_.exit(), IsEmpty());
  EXPECT_EQ(session_.highest_incarnation(), 2u);
}

TEST_F(SessionTest, ACheckpointProvesALaterCoordinatorToo) {
  session_.RefuseBelow(3);
  session_.RefuseBelow(2);
  EXPECT_EQ(session_.OnDirective(Of(2)), Heard::kStale);
  EXPECT_EQ(session_.OnDirective(Of(3)), Heard::kKnown);
}

TEST_F(SessionTest, ViewsOnlyGoUpAndNoneOfAReplacedCoordinatorIsEntered) {
  session_.OnDirective(Of(2));
  EXPECT_FALSE(session_.MayEnter(Numbered(MakeViewNumber(1, 9))));
  const View view = Numbered(MakeViewNumber(2, 4));
  EXPECT_TRUE(session_.MayEnter(view));
  session_.Enter(view);
  EXPECT_FALSE(session_.MayEnter(view));
  EXPECT_FALSE(session_.MayEnter(Numbered(MakeViewNumber(2, 3))));
  EXPECT_TRUE(session_.MayEnter(Numbered(MakeViewNumber(2, 5))));
  EXPECT_TRUE(session_.MayEnter(Numbered(MakeViewNumber(3, 1))));
  EXPECT_EQ(session_.fence(), view.number);
  EXPECT_EQ(session_.view()->number, view.number);
}

TEST_F(SessionTest, WhereViewNumbersHaveNoIncarnationAllAboveTheFenceMayBeEntered) {
  Session session({.id = kMe, .rules = {.incarnation_in_view_number = false}});
  session.OnDirective(Of(2));
  EXPECT_TRUE(session.MayEnter(Numbered(1)));
  session.Enter(Numbered(1));
  EXPECT_FALSE(session.MayEnter(Numbered(1)));
}

TEST_F(SessionTest, EachWayToEndNamesItsReasonAndTheFirstStays) {
  const auto why = [](const auto& set) {
    Session session({.id = kMe});
    Directive directive = Of(1);
    set(directive);
    session.OnDirective(directive);
    return session.exit();
  };
  EXPECT_THAT(why([](Directive& one) { one.finished = true; }), HasSubstr("finished"));
  EXPECT_THAT(why([](Directive& one) { one.superseded = true; }), HasSubstr("newer process"));
  EXPECT_THAT(why([](Directive& one) { one.released = true; }), HasSubstr("released"));
  EXPECT_THAT(why([](Directive&) {}), IsEmpty());

  session_.End("the grace period is over");
  Directive finished = Of(1);
  finished.finished = true;
  session_.OnDirective(finished);
  EXPECT_THAT(session_.exit(), HasSubstr("grace"));
}

TEST_F(SessionTest, WhoeverWasAskedToStopLeavesOnce) {
  EXPECT_FALSE(session_.leaving());
  EXPECT_TRUE(session_.Leave());
  EXPECT_FALSE(session_.Leave());
  EXPECT_TRUE(session_.MakeReport().leaving);
}

TEST_F(SessionTest, AReportSaysWhoHasInstalledWhatAndWhoCouldNotBeReached) {
  session_.OnDirective(Of(2));
  const View view = Numbered(MakeViewNumber(2, 1));
  session_.Enter(view);
  session_.SetUnreachable({{"pod-b", 0}});
  Report report = session_.MakeReport();
  EXPECT_EQ(report.id, kMe);
  EXPECT_EQ(report.numeric_identity, "cpu");
  EXPECT_EQ(report.last_exit->exit_code, 3);
  EXPECT_EQ(report.highest_incarnation, 2u);
  EXPECT_EQ(report.fence, view.number);
  EXPECT_EQ(report.installed, view);
  EXPECT_THAT(report.unreachable, ElementsAre(MemberId{"pod-b", 0}));

  session_.Enter(Numbered(MakeViewNumber(2, 2)));
  EXPECT_THAT(session_.MakeReport().unreachable, IsEmpty()) << "that was in the view before";
}

}  // namespace
}  // namespace starling::membership
