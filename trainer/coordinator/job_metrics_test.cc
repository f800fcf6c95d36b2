// SPDX-License-Identifier: Apache-2.0
#include "trainer/coordinator/job_metrics.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string RoleOf(const std::string& pod_uid) {
  return pod_uid[0] == 's' ? "parameter-server" : "worker";
}

class JobMetricsTest : public ::testing::Test {
 protected:
  std::string Show() {
    shown_.Show(summary_, training_, RoleOf);
    return registry_.Serialize();
  }
  void Lose(const char* pod, int second) {
    membership::IncidentRecord incident;
    incident.time = absl::FromUnixSeconds(second);
    incident.reason = "WorkerLost";
    incident.pod = pod;
    summary_.incidents.push_back(incident);
  }

  metrics::Registry registry_;
  JobMetrics shown_{registry_};
  membership::Summary summary_;
  v1alpha1::TrainingReport training_;
};

TEST_F(JobMetricsTest, MembersAreCountedByRoleAndOnlyWhoTakesPart) {
  membership::Desired desired;
  desired.workers = 3;
  desired.servers = 2;
  desired.checkpoint_interval_ms = 1500;
  shown_.Want(desired);
  for (const char* uid : {"w0", "w1", "s0"}) {
    membership::MemberState member;
    member.id = {uid, 0};
    member.connected = true;
    member.in_view = uid[1] == '0';
    summary_.members.push_back(member);
  }
  const std::string text = Show();
  EXPECT_THAT(text, HasSubstr("starling_job_members{role=\"worker\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("starling_job_members{role=\"parameter-server\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("starling_job_members_wanted{role=\"worker\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("starling_job_members_wanted{role=\"parameter-server\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("starling_job_checkpoint_interval_seconds 1.5\n"));
  summary_.members.clear();
  EXPECT_THAT(Show(), HasSubstr("starling_job_members{role=\"parameter-server\"} 0\n"))
      << "who has gone is not counted on";
}

TEST_F(JobMetricsTest, IncidentsViewsAndRecoveriesAreCountedOnceEach) {
  summary_.newest_view = 1;
  EXPECT_THAT(Show(), HasSubstr("starling_job_views_total{cause=\"planned\"} 1\n"));
  EXPECT_THAT(Show(), HasSubstr("starling_job_incidents_total{reason=\"WorkerLost\"} 0\n"));
  Lose("a", 5);
  Lose("b", 5);
  summary_.newest_view = 2;
  Show();
  summary_.incidents[0].recovery = absl::Seconds(0.2);
  summary_.incidents[0].repeated_steps = 1;
  Show();
  const std::string text = Show();
  EXPECT_THAT(text, HasSubstr("starling_job_incidents_total{reason=\"WorkerLost\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("starling_job_views_total{cause=\"loss\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("starling_job_views_total{cause=\"planned\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("starling_job_recovery_seconds_count 1\n"));
  EXPECT_THAT(text, HasSubstr("starling_job_repeated_steps_total 1\n"));
}

TEST_F(JobMetricsTest, StepsThatSeveralLossesCostTogetherAreCountedOnce) {
  Lose("a", 5);
  Lose("b", 5);
  Lose("", 6);
  summary_.incidents[0].repeated_steps = 9;
  summary_.incidents[1].repeated_steps = 12;
  summary_.incidents[2].repeated_steps = 11;
  summary_.incidents[2].resumed_step = 67;
  for (membership::IncidentRecord& incident : summary_.incidents) {
    incident.recovery = absl::Seconds(0.2);
  }
  Show();
  const std::string text = Show();
  EXPECT_THAT(text, HasSubstr("starling_job_repeated_steps_total 12\n"));
  EXPECT_THAT(text, HasSubstr("starling_job_recovery_seconds_count 2\n"));
}

TEST_F(JobMetricsTest, TrainingIsShownAsFarAsItIsKnown) {
  EXPECT_THAT(Show(), Not(HasSubstr("starling_job_metric")));
  training_.mutable_progress()->set_loss(0.25);
  (*training_.mutable_progress()->mutable_metrics())["validation/accuracy"] = 0.9;
  training_.mutable_checkpoint()->mutable_time()->set_seconds(1234);
  const std::string text = Show();
  EXPECT_THAT(text, HasSubstr("starling_job_loss 0.25\n"));
  EXPECT_THAT(text, HasSubstr("starling_job_metric{name=\"validation/accuracy\"} 0.9\n"));
  EXPECT_THAT(text, HasSubstr("starling_job_last_checkpoint_timestamp_seconds 1234\n"));
}

TEST_F(JobMetricsTest, SecondsAreTheseOfThisCoordinatorAndNeverFall) {
  observe::ActivityLedger seconds;
  seconds.Start({{"compute", 100}, {"server/idle", 7}});
  seconds.OnReport({"w", 0}, "", {{"compute", 5}, {"exchange", 2}}, {});
  seconds.OnReport({"s", 0}, observe::kOfServers, {{"idle", 3}}, {});
  shown_.ShowSeconds(seconds);
  std::string text = registry_.Serialize();
  const std::string name = "starling_job_activity_seconds_total";
  EXPECT_THAT(text, HasSubstr(name + "{activity=\"compute\",role=\"worker\"} 5\n"));
  EXPECT_THAT(text, HasSubstr(name + "{activity=\"idle\",role=\"parameter-server\"} 3\n"));
  seconds.OnReport({"w", 0}, "", {{"compute", 6}, {"exchange", 1}}, {});
  shown_.ShowSeconds(seconds);
  text = registry_.Serialize();
  EXPECT_THAT(text, HasSubstr(name + "{activity=\"exchange\",role=\"worker\"} 2\n"));
}

}  // namespace
}  // namespace starling::coordinator
