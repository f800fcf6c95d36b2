// SPDX-License-Identifier: Apache-2.0
// The edges of the work of a job: exactly how much is given out, when, and what changes nothing.
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
using ::testing::SizeIs;

pb::TrainingJobSpec Endless(pb::TrainingJobSpec spec) {
  spec.mutable_stop()->set_epochs(1000);
  spec.mutable_dataset()->clear_validation();
  return spec;
}

// How much is given out.

TEST(LeaseSourceTest, AClientHasWorkForATenthOfASecondAtItsPaceAndOneLeaseMore) {
  BegunJob job(1, Endless(Spec()));
  job.Hold(0, {});
  Lease last = 1;
  EXPECT_EQ(job.Told(0).leases_size(), 2) << "its pace is not known";
  for (int i = 0; i < 5; ++i) job.SaveTo(last += 2);
  job.now_ += absl::Milliseconds(200);
  job.Hold(0, {});
  EXPECT_EQ(job.Told(0).leases_size(), 5 + 1) << "50 a second";
  for (const Lease leases : {6, 6, 6, 2}) job.SaveTo(last += leases);
  job.now_ += absl::Milliseconds(200);
  job.Hold(0, {});
  EXPECT_EQ(job.Told(0).leases_size(), 8 + 1) << "100 a second now, 75 by its pace";
}

TEST(LeaseSourceTest, OfWhatIsLeftNobodyHasMoreThanHalfOfItsShare) {
  struct Row {
    int workers;
    Lease done;
    int each;
  };
  for (const Row& row : {Row{2, 6, 2}, {2, 7, 1}, {1, 8, 2}, {1, 9, 1}}) {
    BegunJob job(row.workers);
    job.SaveTo(row.done);
    for (int worker = 0; worker < row.workers; ++worker) {
      EXPECT_THAT(job.Told(worker).leases(), SizeIs(row.each)) << row.workers << " " << row.done;
    }
  }
}

TEST(LeaseSourceTest, WhoHasMoreThanItsShareOfWhatIsLeftKeepsItAndGetsNoMore) {
  BegunJob job(2);
  ASSERT_THAT(job.Told(0).leases(), ElementsAre(2, 3));
  job.Save({1, 4, 5, 6, 7, 8, 9});
  EXPECT_THAT(job.Told(0).leases(), ElementsAre(2, 3));
  EXPECT_THAT(job.Told(1).leases(), ElementsAre(10)) << "the last is for whoever is done first";
}

TEST(LeaseSourceTest, TheFirstValuesStayWithOneClientThoughItGivesThemBack) {
  Job job(2);
  job.Save({});
  job.Hold(0, {kFirstValues});
  job.Hold(0, {});
  EXPECT_THAT(job.Told(0).leases(), ElementsAre(kFirstValues));
  EXPECT_THAT(job.Told(1).leases(), IsEmpty());
}

TEST(LeaseSourceTest, InLockstepWorkersValidateByThemselves) {
  LockstepJob job(1);
  job.SaveTo(1 + 4 * 10);
  job.Steps(10, 10);
  EXPECT_TRUE(job.source_.AllDone());
  EXPECT_EQ(job.Told(0).evaluate(), 0);
}

TEST(LeaseSourceTest, WhereNothingIsLeftNobodyIsToldAnything) {
  BegunJob job(2);
  job.SaveTo(10);
  ASSERT_EQ(job.Told(0).leases_size() + job.Told(1).leases_size(), 1);
  EXPECT_FALSE(job.Update());
}

TEST(LeaseSourceTest, BatchesAreDealtForATenthOfASecondAtThePaceOfAll) {
  BegunJob job(1, Endless(InPortions()));
  EXPECT_FALSE(job.Update()) << "all that is to be dealt is";
  job.Hold(0, {});
  // Two batches, 8 portions, three times in 200 ms: 120 portions a second, 3 batches ahead.
  Lease last = 1;
  for (int i = 0; i < 3; ++i) job.SaveTo(last += 8);
  job.now_ += absl::Milliseconds(200);
  job.Hold(0, {});
  EXPECT_EQ(job.Told(0).leases_size(), 4 * 4);
}

TEST(LeaseSourceTest, OneLeaseThatIsDealtIsToldAsWell) {
  Job job(1, InPortions());
  EXPECT_TRUE(job.Save({}));
  EXPECT_THAT(job.Told(0).leases(), ElementsAre(kFirstValues));
}

TEST(LeaseSourceTest, APortionThatIsGivenBackInLockstepIsDealtAgain) {
  LockstepJob job(1);
  job.SaveTo(9);
  job.Steps(3, 3);
  ASSERT_THAT(job.Given(), ElementsAre(10, 11, 12, 13));
  job.Hold(0, {10, 11, 12, 13});
  job.Hold(0, {10, 11, 12});
  EXPECT_THAT(job.Given(), ElementsAre(10, 11, 12, 13)) << "there is nobody else";
}

// Halted.

TEST(LeaseSourceTest, AHaltedJobThatHasNotBegunGivesNothingOut) {
  for (const bool in_step : {false, true}) {
    Job job(1, in_step ? InPortions() : Spec());
    job.standing_.halted = true;
    job.Save({});
    EXPECT_THAT(job.Told(0).leases(), IsEmpty());
    job.standing_.halted = false;
    job.Update();
    ASSERT_THAT(job.Told(0).leases(), ElementsAre(kFirstValues));
    job.standing_.halted = true;
    job.Update();
    EXPECT_THAT(job.Told(0).leases(), ElementsAre(kFirstValues)) << "no batch is begun";
  }
}

TEST(LeaseSourceTest, AHaltedJobWhoseLeasesWaitForNobodyLeavesThoseOfTheDeadOpen) {
  BegunJob job(2);
  ASSERT_THAT(job.Told(0).leases(), ElementsAre(2, 3));
  job.standing_.halted = true;
  job.workers_.erase(job.workers_.begin());
  job.Publish(2);
  EXPECT_THAT(job.Told(0).leases(), ElementsAre(4, 5));
}

TEST(LeaseSourceTest, ASuccessorOfAHaltedJobEndsTheBatchesThatAreBegun) {
  Job job(1, InPortions());
  job.standing_.halted = true;
  job.Save({1});
  EXPECT_THAT(job.Told(0).leases(), IsEmpty());
  job.Hold(0, {3});
  EXPECT_THAT(job.Told(0).leases(), ElementsAre(2, 3, 4, 5));
}

TEST(LeaseSourceTest, ABatchThatIsBegunIsEndedThoughTheStopIsNowBeforeIt) {
  BegunJob job(2, InPortions());
  ASSERT_THAT(job.Told(0).leases(), ElementsAre(2, 3, 6, 7));
  pb::Settings settings;
  settings.mutable_stop()->set_steps(1);
  job.standing_.settings.values = settings.SerializeAsString();
  job.workers_.pop_back();
  job.Publish(2);
  EXPECT_THAT(job.Told(0).leases(), ElementsAre(2, 3, 4, 5, 6, 7, 8, 9));
}

TEST(LeaseSourceTest, AHaltedJobAsksForNoValidationAndGoesOnWithIt) {
  BegunJob job(1);
  job.standing_.halted = true;
  job.SaveTo(11);
  EXPECT_EQ(job.Told(0).evaluate(), 0);
  job.standing_.halted = false;
  EXPECT_TRUE(job.Update());
  EXPECT_EQ(job.Told(0).evaluate(), 1);
}

TEST(LeaseSourceTest, AHaltedJobHasRecoveredWhenItRunsAndNothingIsOutstanding) {
  BegunJob job(1);
  job.standing_.halted = true;
  job.Publish(2);
  EXPECT_FALSE(job.source_.recovered()) << "leases are outstanding";
  job.Publish(3, /*restore=*/true);
  job.workers_.pop_back();
  job.Publish(4);
  EXPECT_FALSE(job.source_.recovered()) << "what is done is not known";
  job.standing_.running = false;
  job.Save({1});
  EXPECT_FALSE(job.source_.recovered());
  job.standing_.running = true;
  job.Update();
  EXPECT_TRUE(job.source_.recovered());
}

// Settings and the end.

TEST(LeaseSourceTest, SettingsThatSayNothingOfTheStopOrCannotBeReadLeaveItAsItIs) {
  for (const std::string& values : {std::string("\xff"), [] {
                                      pb::Settings settings;
                                      settings.set_generation(2);
                                      return settings.SerializeAsString();
                                    }()}) {
    BegunJob job(1);
    job.standing_.settings.values = values;
    job.SaveTo(11);
    EXPECT_TRUE(job.source_.AllDone());
    EXPECT_EQ(job.Told(0).evaluate(), 1);
  }
}

TEST(LeaseSourceTest, WhatAnotherProcessOfAPodHoldsKeepsNobodyWaiting) {
  BegunJob job(2);
  job.SaveTo(11);
  job.Say({"w1", 7}, Job::Held({11}));
  job.Validate(1);
  EXPECT_TRUE(job.Told(0).conclude());
}

TEST(LeaseSourceTest, WhatIsConcludedStaysSoWhileItIsOver) {
  BegunJob job(2);
  job.SaveTo(11);
  job.Validate(1);
  ASSERT_TRUE(job.Told(0).conclude());
  job.standing_.halted = true;
  job.Update();
  EXPECT_TRUE(job.Told(0).conclude());
}

TEST(LeaseSourceTest, AJobThatATurnHasEndedAsksForNoMoreTurnsAndGivesNothingOut) {
  pb::TrainingJobSpec spec = Spec();
  spec.mutable_stop()->set_epochs(2);
  BegunJob job(1, spec);
  job.Hold(0, {2, 3});
  pb::ParameterServerReport said;
  said.mutable_evaluation()->set_turn(1);
  said.mutable_evaluation()->set_ends_training(true);
  job.Say(job.workers_[0], said);
  EXPECT_FALSE(job.source_.Outstanding());
  job.SaveTo(21);
  EXPECT_EQ(job.Told(0).evaluate(), 0);
}

// Rule H5.
TEST(LeaseSourceTest, InLockstepNothingIsOverBeforeTheFirstValuesAreThere) {
  LockstepJob job(1);
  job.Save({});
  job.Hold(0, {});
  job.Steps(0, 0, /*over=*/true);
  job.now_ += absl::Seconds(3);
  job.Update();
  EXPECT_FALSE(job.Told(0).conclude());
  job.Save({1});
  EXPECT_TRUE(job.Told(0).conclude());
}

}  // namespace
}  // namespace starling::parameter_server
