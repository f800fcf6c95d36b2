// SPDX-License-Identifier: Apache-2.0
// A step that never ends: the worker or server in it says so itself, and where it is led by a real
// coordinator the others go on without it. A failpoint stands for the user's code that hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/testing/server_cluster.h"
#include "trainer/testing/tiny_engine.h"
#include "trainer/testing/worker_cluster.h"
#include "trainer/worker/failing_workload.h"

namespace starling::worker {
namespace {

using membership::Standing;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int64_t kForever = 10'000'000;

// Whoever comes to it waits until the test is over.
class Gate {
 public:
  void Wait() {
    const sync::MutexLock lock(mutex_);
    reached_ = true;
    while (!open_) changed_.Wait(mutex_);
  }
  bool reached() {
    const sync::MutexLock lock(mutex_);
    return reached_;
  }
  void Open() {
    const sync::MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }

 private:
  sync::Mutex mutex_;
  sync::Condition changed_;
  bool reached_ = false;
  bool open_ = false;
};

class HangJob : public ::testing::Test {
 protected:
  HangJob() : folder_(absl::StrCat(::testing::TempDir(), "hang_job_test_", getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~HangJob() override { std::filesystem::remove_all(folder_); }

  // One worker stops at this place, others nowhere.
  std::unique_ptr<workload::Workload> Make(const v1alpha1::TrainingJobSpec& spec, int worker,
                                           const std::string& place, int passes) {
    inner_.push_back(std::make_unique<workload::Classification>(
        *data::LoadDatasets(spec),
        std::make_unique<TinyEngine>(3, 4, static_cast<uint64_t>(spec.seed())), "tiny"));
    std::optional<control::Failpoint> point;
    if (worker == who_ || who_ < 0) point = control::Failpoint{.name = place, .passes = passes};
    failpoints_.push_back(std::make_unique<control::Failpoints>(point, [this] { gate_.Wait(); }));
    return std::make_unique<FailingWorkload>(*inner_.back(), *failpoints_.back());
  }

  const std::string folder_;
  int who_ = 1;  // -1: all
  Gate gate_;
  std::vector<std::unique_ptr<workload::Workload>> inner_;
  std::vector<std::unique_ptr<control::Failpoints>> failpoints_;
};

// With allreduce.

class LockstepHangs : public HangJob {
 protected:
  // Two workers, of which the second has stopped there.
  void Stop(const std::string& place, int passes) {
    v1alpha1::TrainingJobSpec spec = TinyJob(kForever);
    spec.set_reproducible(false);
    cluster_ = std::make_unique<Cluster>(spec, folder_, [=, this](const std::string&) {
      return Make(spec, static_cast<int>(inner_.size()), place, passes);
    });
    cluster_->Add();
    cluster_->Add();
    cluster_->PublishNow({0, 1});
    ASSERT_TRUE(cluster_->Await([&] { return gate_.reached(); }));
  }
  bool AwaitStanding(int worker, Standing::Kind kind, const std::string& where) {
    return cluster_->Await([&] {
      const Standing standing = cluster_->ReportOf(worker).standing;
      return standing.kind == kind && standing.where == where &&
             standing.since > absl::Milliseconds(500);
    });
  }
  ~LockstepHangs() override { gate_.Open(); }

  std::unique_ptr<Cluster> cluster_;
};

TEST_F(LockstepHangs, InItsArithmeticItSaysSoAndTheOtherSaysThatItWaits) {
  Stop("compute", 20);
  EXPECT_TRUE(AwaitStanding(1, Standing::Kind::kWorks, "compute"));
  EXPECT_TRUE(AwaitStanding(0, Standing::Kind::kWaits, "exchange"));
  const std::vector<Standing> told = {cluster_->ReportOf(0).standing,
                                      cluster_->ReportOf(1).standing};
  EXPECT_GE(told[1].stretches, membership::HangRule().warm_up_stretches);
  EXPECT_LT(told[1].usual, absl::Milliseconds(400));
  EXPECT_NE(told[1].thread, 0);
  membership::HangRule rule;
  rule.floor = absl::Milliseconds(400);
  EXPECT_EQ(membership::WhoHangs(told, rule), 1U);
}

TEST_F(LockstepHangs, InItsLoaderItSaysSo) {
  Stop("input", 20);
  EXPECT_TRUE(AwaitStanding(1, Standing::Kind::kWorks, "input"));
}

TEST_F(LockstepHangs, AValidationIsAnnounced) {
  Stop("validation", 1);
  EXPECT_TRUE(AwaitStanding(1, Standing::Kind::kAnnounced, "validation"));
  EXPECT_TRUE(AwaitStanding(0, Standing::Kind::kWaits, "exchange"));
}

// With parameter servers, led by their coordinator.

v1alpha1::TrainingJobSpec ServerJob() {
  v1alpha1::TrainingJobSpec spec = TinyJob(kForever);
  spec.set_reproducible(false);
  spec.mutable_exchange()->mutable_parameter_server()->set_replication(2);
  spec.mutable_exchange()
      ->mutable_parameter_server()
      ->mutable_consistency()
      ->mutable_asynchronous();
  return spec;
}

class ServersHang : public HangJob {
 protected:
  void Begin(const v1alpha1::TrainingJobSpec& spec, const std::string& place, int passes) {
    cluster_ =
        std::make_unique<ServerCluster>(spec, ServerCluster::MakeWorkload([=, this](int worker) {
                                          return Make(spec, worker, place, passes);
                                        }),
                                        folder_);
    cluster_->AddServers(2);
    cluster_->AddWorkers(2);
  }
  ~ServersHang() override { gate_.Open(); }
  // It is over, and they have gone on by so many steps.
  void ExpectOneIncident(const std::string& reason, const std::string& pod) {
    ASSERT_TRUE(cluster_->Await([&] { return cluster_->Hung(pod); }));
    const std::int64_t settled = cluster_->coordinator().settled();
    EXPECT_TRUE(cluster_->AwaitSettled(settled + 40));
    const auto incidents = cluster_->Summary().incidents;
    ASSERT_THAT(incidents, SizeIs(1));
    EXPECT_EQ(incidents[0].reason, reason);
    EXPECT_EQ(incidents[0].pod, pod);
    EXPECT_LT(incidents[0].detection, absl::Seconds(5));
  }

  std::unique_ptr<ServerCluster> cluster_;
};

TEST_F(ServersHang, AWorkerThatHangsWithItsLeasesIsReplaced) {
  Begin(ServerJob(), "compute", 20);
  ASSERT_TRUE(cluster_->Await([&] { return gate_.reached(); }));
  ExpectOneIncident("WorkerHung", ServerCluster::WorkerUid(1));
  EXPECT_THAT(cluster_->Summary().incidents[0].message, HasSubstr("\"compute\""));
}

TEST_F(ServersHang, AServerThatHangsIsReplacedAndWhoWaitsForItIsNot) {
  Begin(ServerJob(), "", 0);
  ASSERT_TRUE(cluster_->AwaitSettled(40));
  cluster_->DoAt(ServerCluster::ServerUid(0), {"apply", 20}, [this] { gate_.Wait(); });
  ASSERT_TRUE(cluster_->Await([&] { return gate_.reached(); }));
  ExpectOneIncident("ParameterServerHung", ServerCluster::ServerUid(0));
  EXPECT_THAT(cluster_->Summary().incidents[0].message, HasSubstr("\"serving\""));
}

TEST_F(ServersHang, ALongValidationIsNone) {
  who_ = -1;  // one makes it, whichever that is
  Begin(ServerJob(), "validation", 1);
  ASSERT_TRUE(cluster_->Await([&] { return gate_.reached(); }));
  cluster_->AwaitFor(absl::Seconds(4));
  EXPECT_THAT(cluster_->Summary().incidents, SizeIs(0));
  for (const int worker : {0, 1}) EXPECT_FALSE(cluster_->Hung(ServerCluster::WorkerUid(worker)));
}

}  // namespace
}  // namespace starling::worker
