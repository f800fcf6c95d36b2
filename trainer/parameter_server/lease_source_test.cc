// SPDX-License-Identifier: Apache-2.0
// The work of a job by itself; shard_coordinator_work_test.cc has it beside the coordinator.
#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/lease_job.h"

namespace starling::parameter_server {
namespace {

namespace pb = v1alpha1;
using lease_testing::BegunJob;
using lease_testing::InPortions;
using lease_testing::Job;
using lease_testing::LockstepJob;
using lease_testing::Spec;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(LeaseSourceTest, NothingIsGivenOutBeforeTheLedgersAreKnown) {
  Job job(2);
  EXPECT_FALSE(job.source_.informed());
  EXPECT_THAT(job.Told(0).leases(), IsEmpty());
  job.Save({});
  EXPECT_TRUE(job.source_.informed());
  EXPECT_THAT(job.Told(0).leases(), ElementsAre(kFirstValues));
  EXPECT_THAT(job.Told(1).leases(), IsEmpty());
}

TEST(LeaseSourceTest, WhatAReportSaidBeforeTheFirstViewCountsInIt) {
  LeaseSource source({}, Spec());
  BegunJob job(1);  // only for its view
  pb::ParameterServerReport said;
  LeaseLedger ledger;
  for (Lease lease = 1; lease <= 4; ++lease) ledger.Add(lease);
  Put(ledger, *said.add_ledgers());
  membership::Report report;
  report.id = {"s", 0};
  report.installed = job.view_;
  source.OnReport(report, said);
  EXPECT_FALSE(source.Update(job.standing_, job.now_));
  source.Begin(1, 40);
  source.OnView(job.view_);
  EXPECT_TRUE(source.Update(job.standing_, job.now_));
  EXPECT_EQ(source.settled(), 3);
}

TEST(LeaseSourceTest, ALedgerOfNoViewOrOfNoShardCountsForNothing) {
  Job job(1);
  job.Hear({"s", 0}, Job::Ledger({}), std::nullopt);
  job.Update();
  EXPECT_FALSE(job.source_.informed());
  for (const std::int64_t shard : {-1, 1}) {
    pb::ParameterServerReport said = Job::Ledger({});
    said.mutable_ledgers(0)->set_shard(shard);
    job.Say({"s", 0}, said);
    EXPECT_FALSE(job.source_.informed()) << shard;
  }
}

TEST(LeaseSourceTest, WhatAClientHasDoneCountsBeforeLedgersSaySo) {
  BegunJob job(2);
  ASSERT_THAT(job.Told(0).leases(), ElementsAre(2, 3));
  EXPECT_TRUE(job.Hold(0, {3}, {2}));
  EXPECT_EQ(job.source_.settled(), 1);
  EXPECT_THAT(job.Told(0).leases(), ElementsAre(3, 6));
  job.Say({"s", 0}, Job::Held({7}, {3}));
  EXPECT_EQ(job.source_.settled(), 1) << "a server works off nothing";
  EXPECT_THAT(job.Told(0).leases(), ElementsAre(3, 6));
}

TEST(LeaseSourceTest, AReportThatSaysNothingNewChangesNoDirective) {
  BegunJob job(2);
  job.Hold(0, {2, 3});
  EXPECT_FALSE(job.Hold(0, {2, 3}));
  EXPECT_FALSE(job.Save({1}));
  EXPECT_THAT(job.Told(0).leases(), ElementsAre(2, 3));
  job.now_ += absl::Seconds(1);
  EXPECT_FALSE(job.Hold(0, {2, 3})) << "nor after some time";
}

// As after a takeover: the predecessor gave it out.
TEST(LeaseSourceTest, WhatIsHeldOrDoneUnexpectedlyChangesDirectives) {
  BegunJob job(1);
  job.standing_.paused = true;
  ASSERT_THAT(job.Told(0).leases(), ElementsAre(2, 3));
  EXPECT_TRUE(job.Hold(0, {2, 3, 6}));
  EXPECT_THAT(job.Told(0).leases(), ElementsAre(2, 3, 6));
  EXPECT_TRUE(job.Save({1, 3}));
  EXPECT_THAT(job.Told(0).leases(), ElementsAre(2, 6));
  job.Hear({"s", 0}, Job::Ledger({1, 3, 6}), job.view_);
  job.Hear(job.workers_[0], Job::Held({2, 6, 8}), job.view_);
  EXPECT_TRUE(job.Update()) << "one less and one more";
  EXPECT_THAT(job.Told(0).leases(), ElementsAre(2, 8));
  job.Hold(0, {2, 8});
  EXPECT_TRUE(job.Hold(0, {8, 9})) << "one given back and one more";
  EXPECT_THAT(job.Told(0).leases(), ElementsAre(8, 9));
}

// Rule S11: what is not heard of is given back only by the client that held it in this view.
TEST(LeaseSourceTest, OnlyWhatAClientHeldInTheNewestViewIsGivenBack) {
  const auto left = [](const std::function<void(BegunJob&)>& what) {
    BegunJob job(2);
    job.Hold(0, {2, 3});
    what(job);
    const pb::ParameterServerDirective told = job.Told(0);
    return std::vector<Lease>(told.leases().begin(), told.leases().end());
  };
  EXPECT_THAT(left([](BegunJob& job) { job.Hold(0, {3}); }), ElementsAre(3, 6));
  EXPECT_THAT(left([](BegunJob& job) {
                job.Publish(2);
                job.Hold(0, {3});
              }),
              ElementsAre(2, 3))
      << "held in an earlier view";
  EXPECT_THAT(left([](BegunJob& job) {
                const View earlier = job.view_;
                job.Publish(2);
                job.Hear(job.workers_[0], Job::Held({3}), earlier);
                job.Update();
              }),
              ElementsAre(2, 3))
      << "given back in an earlier view";
  EXPECT_THAT(left([](BegunJob& job) {
                job.Say({"w0", 7}, Job::Held({2, 3}));
                job.Hold(0, {3});
              }),
              ElementsAre(2, 3))
      << "held by another process of its pod";
}

TEST(LeaseSourceTest, WhoLeavesIsGivenNothingMoreAndDoesNotValidate) {
  BegunJob job(2);
  job.leaving_ = job.workers_[0];
  job.Save({1, 2, 3, 4, 5});
  const auto held = job.Told(0).leases_size();
  job.Save({1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_LE(job.Told(0).leases_size(), held);
  EXPECT_THAT(job.Told(1).leases(), Not(IsEmpty()));
  job.SaveTo(11);
  EXPECT_EQ(job.Told(0).evaluate(), 0);
  EXPECT_EQ(job.Told(1).evaluate(), 1);
}

TEST(LeaseSourceTest, APausedJobGivesNothingOutAndKeepsWhatIsHeld) {
  BegunJob job(1);
  const pb::ParameterServerDirective before = job.Told(0);
  ASSERT_THAT(before.leases(), Not(IsEmpty()));
  job.standing_.paused = true;
  job.Save({1, 2});
  EXPECT_EQ(job.Told(0).leases_size(), before.leases_size() - 1);
  job.standing_.paused = false;
  EXPECT_TRUE(job.Update());
  EXPECT_EQ(job.Told(0).leases_size(), before.leases_size());
}

TEST(LeaseSourceTest, WorkersAreToldWhatIsSettledNotMoreOftenThanNeeded) {
  BegunJob job(1);
  job.now_ += absl::Seconds(1);
  job.SaveTo(3);
  EXPECT_EQ(job.Told(0).settled(), 2);
  job.now_ += absl::Milliseconds(10);
  job.SaveTo(5);
  EXPECT_EQ(job.source_.settled(), 4);
  EXPECT_EQ(job.Told(0).settled(), 2);
  job.now_ += absl::Milliseconds(40);
  EXPECT_TRUE(job.Update()) << "it is due";
  EXPECT_EQ(job.Told(0).settled(), 4);
  job.SaveTo(11);
  EXPECT_EQ(job.Told(0).settled(), 10) << "the end is told immediately";
}

TEST(LeaseSourceTest, TheEndWaitsForWhoHoldsSomethingButNotForEver) {
  for (const bool holds : {false, true}) {
    BegunJob job(2);
    if (holds) job.Hold(1, {11});
    job.SaveTo(11);
    EXPECT_EQ(job.Told(0).evaluate(), 1);
    EXPECT_FALSE(job.Told(0).conclude());
    job.Validate(1);
    EXPECT_EQ(job.Told(0).conclude(), !holds);
    job.now_ += absl::Milliseconds(1900);
    job.Update();
    EXPECT_EQ(job.Told(0).conclude(), !holds);
    job.now_ += absl::Milliseconds(100);
    EXPECT_EQ(job.Update(), holds);
    EXPECT_TRUE(job.Told(0).conclude());
    EXPECT_FALSE(job.Told(1).conclude()) << "one is enough";
  }
}

TEST(LeaseSourceTest, WhatAClientHeldBeforeItJoinedAnewKeepsNobodyWaiting) {
  for (const bool anew : {false, true}) {
    BegunJob job(2);
    job.Hold(1, {11});
    job.SaveTo(11);
    job.Validate(1);
    EXPECT_FALSE(job.Told(0).conclude());
    if (anew) job.joined_ = 2;
    job.Publish(2);
    EXPECT_EQ(job.Told(0).conclude(), anew);
  }
}

TEST(LeaseSourceTest, ATurnThatEndsTrainingTakesAllLeasesAwayAtOnce) {
  pb::TrainingJobSpec spec = Spec();
  spec.mutable_stop()->set_epochs(2);
  BegunJob job(2, spec);
  job.Hold(1, {4});
  pb::ParameterServerReport said;
  said.mutable_evaluation()->set_turn(1);
  said.mutable_evaluation()->set_ends_training(true);
  EXPECT_TRUE(job.Say(job.workers_[0], said));
  EXPECT_THAT(job.Told(0).leases(), IsEmpty());
  EXPECT_THAT(job.Told(1).leases(), IsEmpty());
  EXPECT_FALSE(job.Told(0).conclude()) << "a worker still holds one";
  EXPECT_FALSE(job.Say(job.workers_[0], said)) << "it is said again";
  job.Hold(1, {});
  EXPECT_TRUE(job.Told(0).conclude());
}

TEST(LeaseSourceTest, WhatIsGivenOutBeyondAnEarlierStopIsTakenAwayAtTheEnd) {
  BegunJob job(2);
  ASSERT_THAT(job.Told(1).leases(), ElementsAre(4, 5));
  pb::Settings settings;
  settings.mutable_stop()->set_steps(1);
  job.standing_.settings.values = settings.SerializeAsString();
  job.Save({1, 2});
  EXPECT_EQ(job.Told(0).evaluate(), 1);
  EXPECT_THAT(job.Told(1).leases(), ElementsAre(4, 5)) << "it is not over";
  job.Validate(1);
  EXPECT_TRUE(job.Told(0).conclude());
  EXPECT_THAT(job.Told(1).leases(), IsEmpty());
}

TEST(LeaseSourceTest, WhoHasLeftDoesNotCountInHowFarAheadIsDealt) {
  pb::TrainingJobSpec spec = InPortions();
  spec.mutable_stop()->set_epochs(1000);
  spec.mutable_dataset()->clear_validation();
  BegunJob job(2, spec);
  const auto ahead = [&] { return job.Told(0).leases_size() + job.Told(1).leases_size(); };
  EXPECT_EQ(ahead(), 2 * 4) << "two batches";
  Lease last = 1;
  for (int i = 0; i < 60; ++i) {
    job.now_ += absl::Milliseconds(10);
    job.SaveTo(last += 8);
    job.Hold(1, {});
  }
  EXPECT_GT(ahead(), 4 * 4) << "ten batches would be done in a tenth of a second";
  job.workers_.pop_back();
  job.Publish(2);
  job.SaveTo(last += 400);
  EXPECT_EQ(job.Told(0).leases_size(), 2 * 4);
}

TEST(LeaseSourceTest, WhatARestoreCostIsHeardThoughAnotherViewComesBeforeTheLedgers) {
  for (const bool looked_at : {false, true}) {
    for (const bool again : {false, true}) {
      BegunJob job(1);
      job.SaveTo(5);
      job.Adopt(2, /*restore=*/true);
      if (looked_at) job.Update();
      job.Publish(3, again);
      job.SaveTo(3);
      EXPECT_EQ(job.source_.repeated(), 2) << looked_at << again;
    }
  }
  BegunJob job(1);
  job.Publish(2);
  EXPECT_EQ(job.source_.repeated(), 0) << "nothing was restored";
}

TEST(LeaseSourceTest, WhatARestoreCostIsHeardOnceAndRoundedUpToBatches) {
  BegunJob job(1, InPortions());
  job.SaveTo(1 + 4 * 3);
  EXPECT_EQ(job.source_.settled(), 3);
  job.Publish(2, /*restore=*/true);
  EXPECT_FALSE(job.source_.informed());
  EXPECT_EQ(job.source_.repeated(), 0);
  job.SaveTo(1 + 4 + 1);
  EXPECT_EQ(job.source_.repeated(), 2) << "7 portions are missing";
  EXPECT_EQ(job.source_.settled(), 1);
  job.Update();
  EXPECT_EQ(job.source_.repeated(), 0);
}

TEST(LeaseSourceTest, ALossIsMadeGoodByABatchInTheNewViewOrWhereNothingIsLeft) {
  BegunJob job(2);
  EXPECT_TRUE(job.source_.recovered());
  job.Publish(2);
  EXPECT_FALSE(job.source_.recovered());
  job.standing_.running = false;
  job.SaveTo(2);
  EXPECT_FALSE(job.source_.progressed()) << "it may have been done in the view before";
  job.standing_.running = true;
  job.SaveTo(3);
  EXPECT_TRUE(job.source_.progressed());
  EXPECT_TRUE(job.source_.recovered());

  job.SaveTo(11);
  job.Publish(3);
  EXPECT_FALSE(job.source_.recovered()) << "the validation is not made";
  job.Validate(1);
  EXPECT_TRUE(job.source_.recovered());
  EXPECT_FALSE(job.source_.progressed());
}

TEST(LeaseSourceTest, WhatARestoreBringsBackIsNotDoneInItsView) {
  BegunJob job(1);
  job.SaveTo(5);
  job.Publish(2, /*restore=*/true);
  job.SaveTo(3);
  EXPECT_FALSE(job.source_.progressed());
  EXPECT_FALSE(job.source_.recovered());
  job.SaveTo(4);
  EXPECT_TRUE(job.source_.progressed());
  EXPECT_TRUE(job.source_.recovered());
}

TEST(LeaseSourceTest, AWarmStartIsOneClientsAlone) {
  pb::TrainingJobSpec spec = Spec();
  spec.mutable_update()->mutable_local_sgd()->set_warm_start(2);
  BegunJob job(2, spec);
  EXPECT_THAT(job.Told(0).leases(), ElementsAre(2));
  EXPECT_THAT(job.Told(1).leases(), IsEmpty());
  job.SaveTo(3);
  EXPECT_THAT(job.Told(0).leases(), Not(IsEmpty()));
  EXPECT_THAT(job.Told(1).leases(), Not(IsEmpty()));
}

TEST(LeaseSourceTest, InLockstepTheFirstValuesAreOneWorkersAndStepsWaitForThem) {
  LockstepJob job(2);
  EXPECT_FALSE(job.Told(0).begun());
  job.Save({});
  EXPECT_THAT(job.Told(0).leases(), ElementsAre(kFirstValues));
  EXPECT_THAT(job.Told(1).leases(), IsEmpty());
  EXPECT_FALSE(job.Told(1).begun()) << "what would be read is not there yet";
  job.Save({kFirstValues});
  EXPECT_TRUE(job.Told(0).begun());
  EXPECT_TRUE(job.Told(1).begun());
  EXPECT_THAT(job.Given(), IsEmpty()) << "steps are no leases";
}

TEST(LeaseSourceTest, AfterARestoreNothingHasBegunBeforeTheLedgersSaySo) {
  LockstepJob job(2);
  job.Save({kFirstValues});
  ASSERT_TRUE(job.Told(0).begun());
  job.Publish(2, /*restore=*/true);
  job.Hold(0, {}, {kFirstValues});
  EXPECT_FALSE(job.Told(0).begun()) << "it may have been told that before";
  job.Save({kFirstValues});
  EXPECT_TRUE(job.Told(0).begun());
}

// Rule H4.
TEST(LeaseSourceTest, InLockstepOnlyWhatLedgersLackOfStepsThatWorkersHaveIsGivenOut) {
  LockstepJob job(2);
  job.SaveTo(9);  // two steps
  job.Steps(0, 3);
  EXPECT_THAT(job.Given(), IsEmpty()) << "the third is there; its ledgers are on their way";
  job.Publish(2, /*restore=*/true);
  job.Steps(3, 3);
  EXPECT_THAT(job.Given(), IsEmpty()) << "before the ledgers are known anew";
  job.Save({1, 2, 3, 4, 5, 7});
  EXPECT_THAT(job.Given(), ElementsAre(6, 8, 9, 10, 11, 12, 13));
  EXPECT_THAT(job.Told(0).leases(), Not(IsEmpty()));
  EXPECT_THAT(job.Told(1).leases(), Not(IsEmpty()));
  job.SaveTo(13);
  EXPECT_THAT(job.Given(), IsEmpty());
  job.Steps(2, 2);
  EXPECT_THAT(job.Given(), IsEmpty()) << "workers that were restored make the step again";
}

// Rule H5.
TEST(LeaseSourceTest, InLockstepTheEndWaitsForTheLedgers) {
  LockstepJob job(1);
  job.SaveTo(9);
  job.Steps(2, 2);
  EXPECT_FALSE(job.Told(0).conclude()) << "more steps may come";
  job.Steps(3, 3, /*over=*/true);
  EXPECT_FALSE(job.Told(0).conclude());
  EXPECT_THAT(job.Given(), ElementsAre(10, 11, 12, 13));
  EXPECT_EQ(job.Told(0).evaluate(), 0) << "workers validate by themselves";
  job.SaveTo(13);
  job.now_ += absl::Seconds(3);
  job.Update();
  EXPECT_TRUE(job.Told(0).conclude());
  job.Publish(2, /*restore=*/true);
  EXPECT_FALSE(job.Told(0).conclude()) << "before the ledgers are known anew";
  job.SaveTo(9);
  EXPECT_FALSE(job.Told(0).conclude()) << "a server was restored after the last step";
  EXPECT_THAT(job.Given(), ElementsAre(10, 11, 12, 13));
}

}  // namespace
}  // namespace starling::parameter_server
