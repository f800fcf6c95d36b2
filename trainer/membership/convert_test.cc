// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/convert.h"

#include "gtest/gtest.h"
#include "starling/v1alpha1/membership.pb.h"

namespace starling::membership {
namespace {

View SomeView() {
  View view;
  view.number = MakeViewNumber(3, 7);
  view.at_boundary = true;
  view.from = MakeViewNumber(3, 6);
  view.members = {{{"server-0", 1},
                   "127.0.0.1:7072",
                   MakeViewNumber(3, 2),
                   "digits-parameter-server-0",
                   "node-a",
                   Role::kServer},
                  {{"uid", 2}, "127.0.0.2:7072", MakeViewNumber(3, 1), "digits-worker-0"}};
  ReplicaGroup restored;
  restored.epoch = MakeViewNumber(3, 7);
  restored.members = {{"uid", 2}, {"server-0", 1}};
  restored.since = {{MakeViewNumber(3, 6), {{"uid", 1}, {"uid2", 0}}}};
  restored.waived = {MakeViewNumber(3, 6)};
  restored.restore = true;
  ReplicaGroup moved;
  moved.epoch = MakeViewNumber(3, 5);
  moved.members = {{"server-0", 1}};
  moved.by_load = true;
  view.groups = {restored, moved};
  return view;
}

Settings SomeSettings() {
  v1alpha1::Settings values;
  values.set_generation(4);
  values.set_halt(true);
  values.mutable_stop()->set_epochs(9);
  return FromProto(values);
}

TEST(Convert, AReportSurvivesTheWire) {
  Report report;
  report.id = {"uid", 2};
  report.highest_incarnation = 3;
  report.fence = MakeViewNumber(3, 7);
  report.installed = SomeView();
  report.candidate = SomeView();
  report.state = StateId{MakeViewNumber(3, 6), 41};
  report.phase = Phase::kAborted;
  report.settled_step = 40;
  report.unreachable = {{"uid2", 0}};
  report.leaving = true;
  report.last_exit = LastExit{1, 9, "tail", 5};
  report.numeric_identity = "haswell";
  report.training.failure = "loss is not a number";
  report.settings_generation = 4;
  report.checkpoint_turn = 8;
  report.stopped = true;
  report.base_step = 12;
  report.stepped = true;
  report.standing = {.kind = Standing::Kind::kWorks,
                     .where = "compute",
                     .since = absl::Milliseconds(2500),
                     .usual = absl::Milliseconds(125),
                     .stretches = 64,
                     .thread = 17};
  Report back = FromProto(ToProto(report));
  back.training.bytes.clear();  // the message itself; the rest was taken from it
  EXPECT_EQ(back, report);
}

TEST(Convert, ADirectiveSurvivesTheWire) {
  Directive directive;
  directive.incarnation = 3;
  directive.view = SomeView();
  directive.released = true;
  directive.superseded = true;
  directive.settings = SomeSettings();
  directive.checkpoint_turn = 8;
  directive.finished = true;
  directive.hung = MemberId{"uid", 2};
  EXPECT_EQ(FromProto(ToProto(directive)), directive);
}

TEST(Convert, AShadowAndItsAnswerSurviveTheWire) {
  Shadow shadow;
  shadow.incarnation = 3;
  shadow.standby = 4;
  shadow.newest_view = MakeViewNumber(3, 7);
  shadow.view = SomeView();
  shadow.settled_step = 41;
  shadow.desired.workers = 4;
  shadow.desired.min_workers = 2;
  shadow.desired.servers = 3;
  shadow.desired.min_servers = 2;
  shadow.desired.pods = {
      {"uid", "digits-worker-0", "worker", 2, "127.0.0.2", PodState::kDraining, "node-a"},
      {"uid2", "digits-worker-1", "worker", 3, "127.0.0.3", PodState::kTerminated, "node-b"}};
  v1alpha1::Settings settings;
  settings.set_generation(4);
  settings.mutable_checkpoint()->mutable_interval()->set_nanos(400'000'000);
  shadow.desired.settings = FromProto(settings);
  shadow.desired.checkpoint_interval_ms = 400;
  shadow.desired.checkpoint_request = "now";
  shadow.desired.trace_request = "a timeline";
  shadow.desired.finished = true;
  EXPECT_EQ(FromProto(ToProto(shadow)), shadow);
  const ShadowReply reply = FromProto(ToProto(ShadowReply{4, 3, 9, true}));
  EXPECT_EQ(reply.standby, 4U);
  EXPECT_EQ(reply.incarnation, 3U);
  EXPECT_EQ(reply.view, 9U);
  EXPECT_TRUE(reply.leads);
}

TEST(Convert, WhatTheControllerSaysOfAStandbyIsTaken) {
  v1alpha1::Grant grant;
  grant.set_incarnation(4);
  grant.set_follows(3);
  EXPECT_EQ(FromProto(grant).follows, 3U);
  v1alpha1::Desired desired;
  EXPECT_FALSE(FromProto(desired).standby);
  desired.mutable_standby()->set_incarnation(4);
  desired.mutable_standby()->set_uid("uid");
  desired.mutable_standby()->set_ip("127.0.0.7");
  EXPECT_EQ(FromProto(desired).standby, (StandbyPod{4, "uid", "127.0.0.7"}));
}

TEST(Convert, SettingsKeepTheirValues) {
  const auto values = ParseSettings(SomeSettings());
  ASSERT_TRUE(values.ok());
  EXPECT_EQ(values->stop().epochs(), 9);
  EXPECT_FALSE(ParseSettings(Settings{})->has_stop());
}

TEST(Convert, SyncIdsAndAgreementsSurviveTheDataPlane) {
  SyncId sync_id;
  sync_id.view = MakeViewNumber(1, 2);
  sync_id.member = {"uid", 0};
  sync_id.state = StateId{MakeViewNumber(1, 1), 5};
  sync_id.agreed = {SomeSettings(), 8};
  sync_id.checkpoint = CheckpointOffer{{MakeViewNumber(1, 1), 4}, {SomeSettings(), 7}};
  const auto back = DecodeSyncId(EncodeSyncId(sync_id));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, sync_id);
  EXPECT_EQ(*DecodeAgreed(EncodeAgreed(sync_id.agreed)), sync_id.agreed);
}

TEST(Convert, OtherBytesAreRefused) {
  EXPECT_FALSE(DecodeSyncId("\xff\xff nonsense").ok());
  EXPECT_FALSE(DecodeSyncId("").ok());
  EXPECT_FALSE(DecodeAgreed("\xff\xff").ok());
}

TEST(Convert, WhatTheSupervisorSaysOfTheEndIsBelievedWithinWhatWasSeen) {
  Summary summary;
  IncidentRecord incident;
  incident.time = absl::FromUnixSeconds(1000);
  incident.detection = absl::Milliseconds(1);
  incident.silence = absl::Milliseconds(80);
  incident.exit = LastExit{0, 9, "", absl::ToUnixNanos(incident.time - absl::Milliseconds(4))};
  summary.incidents = {incident};
  EXPECT_DOUBLE_EQ(ToProto(summary, absl::ZeroDuration()).incidents(0).detection_seconds(), 0.004);
  EXPECT_DOUBLE_EQ(ToProto(summary, absl::Hours(1)).incidents(0).detection_seconds(), 0.001);
}

TEST(Convert, HowMuchIsRepeatedIsUnknownUntilTrainingGoesOn) {
  Summary summary;
  summary.incidents = {IncidentRecord{}};
  EXPECT_FALSE(ToProto(summary, absl::ZeroDuration()).incidents(0).has_repeated_steps());
  summary.incidents[0].recovery = absl::Milliseconds(30);
  EXPECT_TRUE(ToProto(summary, absl::ZeroDuration()).incidents(0).has_repeated_steps());
}

}  // namespace
}  // namespace starling::membership
