// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/lease_queue.h"

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

class LeaseQueueTest : public ::testing::Test {
 protected:
  // As a worker hears it that has installed the view.
  void Direct(const membership::View& view, const std::vector<parameter_server::Lease>& leases) {
    v1alpha1::ParameterServerDirective part;
    for (const parameter_server::Lease lease : leases) part.add_leases(lease);
    membership::Directive directive;
    directive.view = view;
    directive.parameter_server = part.SerializeAsString();
    queue_.OnDirective(directive, view.number);
  }
  // In a report of this view.
  v1alpha1::ParameterServerReport Told(const membership::View& view) const {
    membership::Report report;
    report.installed = view;
    queue_.Fill(report);
    v1alpha1::ParameterServerReport part;
    part.ParseFromString(report.parameter_server);
    return part;
  }

  LeaseQueue queue_{{.id = kMe, .layout = {12, 100, "m"}}};
};

TEST_F(LeaseQueueTest, TellsOfEachListedLeaseWhetherItIsDoneOrHeld) {
  const auto view = ViewOf(MakeViewNumber(1, 1), 1);
  Direct(view, {2, 3, 4});
  EXPECT_EQ(queue_.Take(), std::nullopt) << "of a view that is not installed";
  EXPECT_THAT(Told(view).held(), IsEmpty());
  queue_.Enter(view);
  EXPECT_EQ(queue_.Take(), 2);
  EXPECT_EQ(queue_.Take(), 3);

  queue_.Done(3);

  EXPECT_THAT(Told(view).done(), ElementsAre(3));
  EXPECT_THAT(Told(view).held(), ElementsAre(2, 4));
  EXPECT_EQ(Told(view).layout().parameters(), 12);
}

TEST_F(LeaseQueueTest, ALeaseThatIsListedNoMoreIsDroppedUnlessItIsBegun) {
  const auto view = ViewOf(MakeViewNumber(1, 1), 1);
  Direct(view, {2, 3});
  queue_.Enter(view);
  EXPECT_EQ(queue_.Take(), 2);

  Direct(view, {});

  EXPECT_EQ(queue_.Take(), std::nullopt);
  EXPECT_THAT(Told(view).held(), ElementsAre(2));
  queue_.Done(2);
  EXPECT_THAT(Told(view).held(), IsEmpty());
  EXPECT_THAT(Told(view).done(), ElementsAre(2));
}

TEST_F(LeaseQueueTest, WhatIsDoneIsNotDoneAgainHoweverOldTheListIs) {
  const auto view = ViewOf(MakeViewNumber(1, 1), 1);
  Direct(view, {2, 3});
  queue_.Enter(view);
  EXPECT_EQ(queue_.Take(), 2);
  queue_.Done(2);
  EXPECT_EQ(queue_.Take(), 3) << "the coordinator has not heard yet";
  Direct(view, {3});
  EXPECT_EQ(queue_.Take(), std::nullopt);
  Direct(view, {3, 2});
  EXPECT_EQ(queue_.Take(), 2) << "listed anew, it was lost in a restore";
}

TEST_F(LeaseQueueTest, ALeaseOfWhichNothingWasPushedIsTakenAgain) {
  const auto view = ViewOf(MakeViewNumber(1, 1), 1);
  Direct(view, {2, 3});
  queue_.Enter(view);
  EXPECT_EQ(queue_.Take(), 2);
  queue_.Dropped(2);
  EXPECT_THAT(Told(view).held(), ElementsAre(2, 3));
  EXPECT_EQ(queue_.Take(), 2);
}

TEST_F(LeaseQueueTest, ARefusedLeaseIsGivenBackAndNotTakenAgain) {
  const auto view = ViewOf(MakeViewNumber(1, 1), 1);
  Direct(view, {2, 3});
  queue_.Enter(view);
  EXPECT_EQ(queue_.Take(), 2);
  queue_.Refused(2);

  EXPECT_THAT(Told(view).held(), ElementsAre(2, 3)) << "what was never held is not missed";
  EXPECT_THAT(Told(view).held(), ElementsAre(3));
  EXPECT_THAT(Told(view).done(), IsEmpty());
  EXPECT_EQ(queue_.Take(), 3);
  EXPECT_EQ(queue_.Take(), std::nullopt);

  Direct(view, {3});
  Direct(view, {2, 3});
  EXPECT_THAT(Told(view).held(), ElementsAre(2, 3)) << "it is given out anew";
  EXPECT_EQ(queue_.Take(), 2);
}

TEST_F(LeaseQueueTest, ARefusedLeaseThatStaysListedIsItsOwnAgain) {
  LeaseQueue queue({.id = kMe, .layout = {}, .give_back_timeout = absl::ZeroDuration()});
  const auto view = ViewOf(MakeViewNumber(1, 1), 1);
  v1alpha1::ParameterServerDirective part;
  part.add_leases(2);
  membership::Directive directive;
  directive.view = view;
  directive.parameter_server = part.SerializeAsString();
  queue.OnDirective(directive, view.number);
  queue.Enter(view);
  EXPECT_EQ(queue.Take(), 2);
  queue.Refused(2);
  EXPECT_EQ(queue.Take(), 2);
}

// Leases 2 to 5 are the portions of one batch, 6 to 9 of the next.
TEST_F(LeaseQueueTest, ListedNeighboursOfOneBatchAreTakenTogether) {
  using Run = consistency::LeaseRun;
  const auto view = ViewOf(MakeViewNumber(1, 1), 1);
  Direct(view, {1, 2, 3, 5, 6, 7});
  queue_.Enter(view);
  EXPECT_EQ(queue_.Take(4), Run(1)) << "the first values are no portion";
  EXPECT_EQ(queue_.Take(4), Run(2, 2));
  EXPECT_EQ(queue_.Take(4), Run(5)) << "4 is another's, 6 of another batch";
  EXPECT_EQ(queue_.Take(4), Run(6, 2));
  EXPECT_TRUE(queue_.IsNext(6));

  Direct(view, {1, 2, 3, 4, 5, 6, 7});
  EXPECT_FALSE(queue_.IsNext(6)) << "its holder has died; all wait for it";
  queue_.Dropped(Run(6, 2));
  EXPECT_EQ(queue_.Take(4), Run(4));
  EXPECT_EQ(queue_.Take(4), Run(6, 2));
  EXPECT_TRUE(queue_.IsNext(6));
  Direct(view, {});
  EXPECT_FALSE(queue_.IsNext(6)) << "training has ended";
  Direct(view, {1, 2, 3, 4, 5, 6, 7});

  queue_.Done(Run(6, 2));
  EXPECT_THAT(Told(view).done(), ElementsAre(6, 7));
  EXPECT_THAT(Told(view).held(), ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(LeaseQueueTest, WhatWasRefusedTogetherIsTakenOneByOne) {
  using Run = consistency::LeaseRun;
  const auto view = ViewOf(MakeViewNumber(1, 1), 1);
  Direct(view, {2, 3, 4});
  queue_.Enter(view);
  EXPECT_EQ(queue_.Take(4), Run(2, 3));
  queue_.Refused(Run(2, 3));
  EXPECT_EQ(queue_.Take(4), std::nullopt);
  Direct(view, {});
  Direct(view, {2, 3, 4, 5});
  for (const parameter_server::Lease lease : {2, 3, 4, 5}) EXPECT_EQ(queue_.Take(4), Run(lease));
}

TEST_F(LeaseQueueTest, WhoStartsOverHasDoneNothing) {
  const auto first = ViewOf(MakeViewNumber(1, 1), MakeViewNumber(1, 1));
  Direct(first, {2, 3});
  queue_.Enter(first);
  EXPECT_EQ(queue_.Take(), 2);
  queue_.Done(2);
  const auto same = ViewOf(MakeViewNumber(1, 2), MakeViewNumber(1, 1));
  Direct(same, {2, 3});
  queue_.Enter(same);
  EXPECT_THAT(Told(same).done(), ElementsAre(2)) << "it is the same client";
  const auto anew = ViewOf(MakeViewNumber(1, 3), MakeViewNumber(1, 3));
  Direct(anew, {2, 3});
  queue_.Enter(anew);
  EXPECT_THAT(Told(anew).done(), IsEmpty());
  EXPECT_THAT(Told(anew).held(), ElementsAre(2, 3));
}

TEST_F(LeaseQueueTest, OrdersForAnotherViewThanTheInstalledOneAreNoOrders) {
  const auto first = ViewOf(MakeViewNumber(1, 1), 1);
  const auto second = ViewOf(MakeViewNumber(1, 2), 1);
  Direct(second, {2});
  queue_.Enter(second);
  membership::Directive late;
  late.view = first;
  queue_.OnDirective(late, second.number);
  EXPECT_THAT(queue_.Read().leases, ElementsAre(2)) << "it is of an older view";
  queue_.OnDirective(late, first.number);
  EXPECT_THAT(queue_.Read().leases, ElementsAre(2)) << "views only go up";
  queue_.OnDirective({}, second.number);
  EXPECT_THAT(queue_.Read().leases, ElementsAre(2)) << "it names no view";
}

// The loop may still work in a view when the machine has installed the next one.
TEST_F(LeaseQueueTest, AReportOfAnotherViewTellsOfNoLease) {
  const auto first = ViewOf(MakeViewNumber(1, 1), 1);
  const auto second = ViewOf(MakeViewNumber(1, 2), 1);
  Direct(first, {2, 3});
  queue_.Enter(first);
  EXPECT_EQ(queue_.Take(), 2);
  queue_.Done(2);
  EXPECT_THAT(Told(first).done(), ElementsAre(2));
  EXPECT_THAT(Told(second).done(), IsEmpty());
  EXPECT_THAT(Told(second).held(), IsEmpty());
  Direct(second, {2, 3});
  EXPECT_THAT(Told(second).held(), IsEmpty()) << "it is not entered yet";
  EXPECT_EQ(queue_.Take(), std::nullopt);
  queue_.Enter(second);
  EXPECT_THAT(Told(second).done(), ElementsAre(2));
  EXPECT_THAT(Told(second).held(), ElementsAre(3));
}

}  // namespace
}  // namespace starling::worker
