// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/lease_desk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "starling/v1alpha1/membership.pb.h"
#include "trainer/parameter_server/convert.h"

namespace starling::worker {
namespace {

using membership::MakeViewNumber;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const membership::MemberId kMe{"pod-a", 1};

membership::View ViewOf(membership::ViewNumber number, membership::ViewNumber joined) {
  membership::View view;
  view.number = number;
  view.members = {{{"server", 1}, "s", 0, "server-0", "", membership::Role::kServer},
                  {kMe, "a", joined, "worker-0"}};
  membership::ReplicaGroup& chain = view.groups.emplace_back();
  chain.epoch = number;
  chain.members = {{"server", 1}};
  return view;
}

class LeaseDeskTest : public ::testing::Test {
 protected:
  LeaseDeskTest()
      : desk_({.id = kMe, .numeric_identity = "data=1", .last_exit = {}, .layout = {12, 100, "m"}},
              {.fence = [this](membership::ViewNumber view) { fences_.push_back(view); },
               .stop = [this] { ++stops_; },
               .report = [this] { ++reports_; }}) {}

  membership::Directive Direct(std::uint64_t incarnation, const membership::View& view,
                               const std::vector<parameter_server::Lease>& leases) {
    v1alpha1::ParameterServerDirective part;
    for (const parameter_server::Lease lease : leases) part.add_leases(lease);
    membership::Directive directive;
    directive.incarnation = incarnation;
    directive.view = view;
    directive.parameter_server = part.SerializeAsString();
    desk_.OnDirective(directive);
    return directive;
  }
  v1alpha1::ParameterServerReport Told() const {
    v1alpha1::ParameterServerReport report;
    report.ParseFromString(desk_.MakeReport().parameter_server);
    return report;
  }

  std::vector<membership::ViewNumber> fences_;
  int stops_ = 0;
  int reports_ = 0;
  LeaseDesk desk_;
};

TEST_F(LeaseDeskTest, TellsOfEachListedLeaseWhetherItIsDoneOrHeld) {
  const auto view = ViewOf(MakeViewNumber(1, 1), 1);
  Direct(1, view, {2, 3, 4});
  EXPECT_EQ(desk_.Take(), std::nullopt) << "of a view that is not installed";
  EXPECT_THAT(Told().held(), IsEmpty());
  desk_.Install(view);
  EXPECT_EQ(desk_.Take(), 2);
  EXPECT_EQ(desk_.Take(), 3);

  desk_.Done(3);

  EXPECT_THAT(Told().done(), ElementsAre(3));
  EXPECT_THAT(Told().held(), ElementsAre(2, 4));
  EXPECT_EQ(Told().layout().parameters(), 12);
}

TEST_F(LeaseDeskTest, ALeaseThatIsListedNoMoreIsDroppedUnlessItIsBegun) {
  const auto view = ViewOf(MakeViewNumber(1, 1), 1);
  Direct(1, view, {2, 3});
  desk_.Install(view);
  EXPECT_EQ(desk_.Take(), 2);

  Direct(1, view, {});

  EXPECT_EQ(desk_.Take(), std::nullopt);
  EXPECT_THAT(Told().held(), ElementsAre(2));
  desk_.Done(2);
  EXPECT_THAT(Told().held(), IsEmpty());
  EXPECT_THAT(Told().done(), ElementsAre(2));
}

TEST_F(LeaseDeskTest, WhatIsDoneIsNotDoneAgainHoweverOldTheListIs) {
  const auto view = ViewOf(MakeViewNumber(1, 1), 1);
  Direct(1, view, {2, 3});
  desk_.Install(view);
  EXPECT_EQ(desk_.Take(), 2);
  desk_.Done(2);
  EXPECT_EQ(desk_.Take(), 3) << "the coordinator has not heard yet";
  Direct(1, view, {3});
  EXPECT_EQ(desk_.Take(), std::nullopt);
  Direct(1, view, {3, 2});
  EXPECT_EQ(desk_.Take(), 2) << "listed anew, it was lost in a restore";
}

TEST_F(LeaseDeskTest, ALeaseOfWhichNothingWasPushedIsTakenAgain) {
  const auto view = ViewOf(MakeViewNumber(1, 1), 1);
  Direct(1, view, {2, 3});
  desk_.Install(view);
  EXPECT_EQ(desk_.Take(), 2);
  desk_.Dropped(2);
  EXPECT_THAT(Told().held(), ElementsAre(2, 3));
  EXPECT_EQ(desk_.Take(), 2);
}

TEST_F(LeaseDeskTest, ARefusedLeaseIsGivenBackAndNotTakenAgain) {
  const auto view = ViewOf(MakeViewNumber(1, 1), 1);
  Direct(1, view, {2, 3});
  desk_.Install(view);
  EXPECT_EQ(desk_.Take(), 2);
  const int reports = reports_;

  desk_.Refused(2);

  EXPECT_GT(reports_, reports) << "others could do it";
  EXPECT_THAT(Told().held(), ElementsAre(2, 3)) << "what was never held is not missed";
  EXPECT_THAT(Told().held(), ElementsAre(3));
  EXPECT_THAT(Told().done(), IsEmpty());
  EXPECT_EQ(desk_.Take(), 3);
  EXPECT_EQ(desk_.Take(), std::nullopt);

  Direct(1, view, {3});
  Direct(1, view, {2, 3});
  EXPECT_THAT(Told().held(), ElementsAre(2, 3)) << "it is given out anew";
  EXPECT_EQ(desk_.Take(), 2);
}

TEST_F(LeaseDeskTest, ARefusedLeaseThatStaysListedIsItsOwnAgain) {
  LeaseDesk::Options options{.id = kMe, .numeric_identity = "", .last_exit = {}, .layout = {}};
  options.give_back_patience = absl::ZeroDuration();
  LeaseDesk desk(options, {.fence = [](auto) {}, .stop = [] {}, .report = [] {}});
  const auto view = ViewOf(MakeViewNumber(1, 1), 1);
  desk.OnDirective(Direct(1, view, {2}));
  desk.Install(view);
  EXPECT_EQ(desk.Take(), 2);
  desk.Refused(2);
  EXPECT_EQ(desk.Take(), 2);
}

// Leases 2 to 5 are the portions of one batch, 6 to 9 of the next.
TEST_F(LeaseDeskTest, ListedNeighboursOfOneBatchAreTakenTogether) {
  using Run = consistency::LeaseRun;
  const auto view = ViewOf(MakeViewNumber(1, 1), 1);
  Direct(1, view, {1, 2, 3, 5, 6, 7});
  desk_.Install(view);
  EXPECT_EQ(desk_.Take(4), Run(1)) << "the first values are no portion";
  EXPECT_EQ(desk_.Take(4), Run(2, 2));
  EXPECT_EQ(desk_.Take(4), Run(5)) << "4 is another's, 6 of another batch";
  EXPECT_EQ(desk_.Take(4), Run(6, 2));
  EXPECT_TRUE(desk_.IsNext(6));

  Direct(1, view, {1, 2, 3, 4, 5, 6, 7});
  EXPECT_FALSE(desk_.IsNext(6)) << "its holder has died; all wait for it";
  desk_.Dropped(Run(6, 2));
  EXPECT_EQ(desk_.Take(4), Run(4));
  EXPECT_EQ(desk_.Take(4), Run(6, 2));
  EXPECT_TRUE(desk_.IsNext(6));
  Direct(1, view, {});
  EXPECT_FALSE(desk_.IsNext(6)) << "training has ended";
  Direct(1, view, {1, 2, 3, 4, 5, 6, 7});

  desk_.Done(Run(6, 2));
  EXPECT_THAT(Told().done(), ElementsAre(6, 7));
  EXPECT_THAT(Told().held(), ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(LeaseDeskTest, WhatWasRefusedTogetherIsTakenOneByOne) {
  using Run = consistency::LeaseRun;
  const auto view = ViewOf(MakeViewNumber(1, 1), 1);
  Direct(1, view, {2, 3, 4});
  desk_.Install(view);
  EXPECT_EQ(desk_.Take(4), Run(2, 3));
  desk_.Refused(Run(2, 3));
  EXPECT_EQ(desk_.Take(4), std::nullopt);
  Direct(1, view, {});
  Direct(1, view, {2, 3, 4, 5});
  for (const parameter_server::Lease lease : {2, 3, 4, 5}) EXPECT_EQ(desk_.Take(4), Run(lease));
}

TEST_F(LeaseDeskTest, WhoStartsOverHasDoneNothing) {
  const auto first = ViewOf(MakeViewNumber(1, 1), MakeViewNumber(1, 1));
  Direct(1, first, {2, 3});
  desk_.Install(first);
  EXPECT_EQ(desk_.Take(), 2);
  desk_.Done(2);
  const auto same = ViewOf(MakeViewNumber(1, 2), MakeViewNumber(1, 1));
  Direct(1, same, {2, 3});
  desk_.Install(same);
  EXPECT_THAT(Told().done(), ElementsAre(2)) << "it is the same client";
  const auto anew = ViewOf(MakeViewNumber(1, 3), MakeViewNumber(1, 3));
  Direct(1, anew, {2, 3});
  desk_.Install(anew);
  EXPECT_THAT(Told().done(), IsEmpty());
  EXPECT_THAT(Told().held(), ElementsAre(2, 3));
}

TEST_F(LeaseDeskTest, ANewerViewEndsThePresentOneAtOnceAndNoneGoesBack) {
  Direct(1, ViewOf(MakeViewNumber(1, 2), 1), {2});
  EXPECT_THAT(fences_, ElementsAre(MakeViewNumber(1, 2)));
  Direct(1, ViewOf(MakeViewNumber(1, 1), 1), {7});
  EXPECT_THAT(fences_, ElementsAre(MakeViewNumber(1, 2)));
  EXPECT_THAT(desk_.Read().leases, ElementsAre(2)) << "orders for an older view";
}

TEST_F(LeaseDeskTest, AReplacedCoordinatorIsNotHeardAndItsViewsAreEnteredByNobody) {
  const auto old = ViewOf(MakeViewNumber(1, 1), 1);
  Direct(1, old, {2});
  desk_.Install(old);
  Direct(2, old, {2, 3});
  EXPECT_THAT(desk_.Read().leases, ElementsAre(2, 3)) << "a successor goes on with the view";
  EXPECT_GE(reports_, 1) << "who hears of a successor tells it at once";
  Direct(1, ViewOf(MakeViewNumber(1, 2), 1), {9});
  EXPECT_THAT(desk_.Read().leases, ElementsAre(2, 3));
  Direct(2, ViewOf(MakeViewNumber(1, 3), 1), {9});
  EXPECT_EQ(desk_.Read().view->number, old.number);
  EXPECT_EQ(desk_.MakeReport().highest_incarnation, 2u);
}

TEST_F(LeaseDeskTest, ReleaseFinishAndTheEndOfGraceEndTheProcess) {
  EXPECT_EQ(desk_.Read().exit, "");
  desk_.Terminate();
  EXPECT_TRUE(desk_.MakeReport().leaving);
  EXPECT_EQ(desk_.Read().exit, "") << "it waits to be released";
  membership::Directive directive;
  directive.incarnation = 1;
  directive.released = true;
  desk_.OnDirective(directive);
  EXPECT_THAT(desk_.Read().exit, ::testing::HasSubstr("released"));
  EXPECT_EQ(stops_, 1);
}

}  // namespace
}  // namespace starling::worker
