// SPDX-License-Identifier: Apache-2.0
// Whole jobs whose workers push through one of their group: each sample is used once an epoch,
// whoever sums up dies or sleeps, and servers get fewer pushes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "trainer/testing/visit_job.h"

namespace starling::worker {
namespace {

using ::testing::Each;
using ::testing::Ge;
using ::testing::Le;

v1alpha1::TrainingJobSpec TreeJob(std::int64_t epochs, std::int64_t fanout = 2) {
  v1alpha1::TrainingJobSpec spec = VisitJob(epochs);
  spec.mutable_exchange()
      ->mutable_parameter_server()
      ->mutable_topology()
      ->mutable_tree()
      ->set_fanout(fanout);
  return spec;
}

class TreeJobTest : public ClientWorkerTest {
 protected:
  // Messages to heads, by all servers.
  static double PushesOf(ServerCluster& cluster, int servers) {
    double pushes = 0;
    for (int server = 0; server < servers; ++server) {
      std::stringstream metrics(cluster.MetricsOf(ServerCluster::ServerUid(server)));
      for (std::string line; std::getline(metrics, line);) {
        if (line.starts_with("starling_server_pushes_total ")) {
          pushes += std::stod(line.substr(line.rfind(' ')));
        }
      }
    }
    return pushes;
  }
};

class EveryModelInATree : public TreeJobTest, public ::testing::WithParamInterface<const char*> {
 protected:
  static v1alpha1::TrainingJobSpec Job(std::int64_t epochs, const std::string& name) {
    v1alpha1::TrainingJobSpec spec = TreeJob(epochs);
    v1alpha1::Consistency& model = ModelOf(spec);
    if (name == "BoundedDelay") model.mutable_bounded_delay()->set_delay(3);
    if (name == "StaleSynchronous") model.mutable_stale_synchronous()->set_staleness(1);
    return spec;
  }
};

TEST_P(EveryModelInATree, EverySampleIsUsedOnceAnEpochWhoeverSumsUpDies) {
  ServerCluster cluster(Job(10, GetParam()), VisitData(), NewVisitEngine, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(4);
  ASSERT_TRUE(cluster.AwaitSettled(50));
  cluster.Kill(ServerCluster::WorkerUid(0));  // sums up for itself and worker 1
  ASSERT_TRUE(cluster.AwaitSettled(200));
  cluster.Kill(ServerCluster::WorkerUid(1));  // now the first
  cluster.Restart(ServerCluster::WorkerUid(0));
  ASSERT_TRUE(cluster.AwaitSettled(400));
  cluster.Kill(ServerCluster::ServerUid(0));

  EXPECT_THAT(VisitsOf(cluster.AwaitResult()), Each(10.0F));
}

INSTANTIATE_TEST_SUITE_P(TreeJob, EveryModelInATree,
                         ::testing::Values("Asynchronous", "BoundedDelay", "StaleSynchronous"),
                         [](const auto& one) { return std::string(one.param); });

TEST_F(TreeJobTest, BulkSynchronousServersGetOnePushOfEachGroup) {
  const auto pushes = [&](bool tree) {
    v1alpha1::TrainingJobSpec spec = tree ? TreeJob(4) : VisitJob(4);
    spec.mutable_exchange()->mutable_parameter_server()->set_shards(1);
    ModelOf(spec).mutable_bulk_synchronous();
    ServerCluster cluster(spec, VisitData(), NewVisitEngine, NewJobDir());
    cluster.AddServers(1);
    cluster.AddWorkers(4);
    EXPECT_THAT(VisitsOf(cluster.AwaitResult()), Each(4.0F));
    return PushesOf(cluster, 1);
  };
  const double flat = pushes(false), tree = pushes(true);
  EXPECT_GE(flat, 4 * 4 * kPerEpoch * 9 / 10);  // each worker's portions of each batch
  EXPECT_LT(tree, 0.75 * flat);
}

TEST_F(TreeJobTest, OneOfANodesWorkersPushesForAll) {
  v1alpha1::TrainingJobSpec spec = VisitJob(3);
  spec.mutable_exchange()->mutable_parameter_server()->mutable_topology()->mutable_host_reduce();
  ServerCluster cluster(spec, VisitData(), NewVisitEngine, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(3);
  ASSERT_TRUE(cluster.AwaitSettled(50));
  cluster.Kill(ServerCluster::WorkerUid(0));
  EXPECT_THAT(VisitsOf(cluster.AwaitResult()), Each(3.0F));
}

TEST_F(TreeJobTest, SoftSyncCountsWhatIsSummedUp) {
  v1alpha1::TrainingJobSpec spec = TreeJob(5);
  ModelOf(spec).mutable_soft_sync()->set_n(1);
  ModelOf(spec).mutable_soft_sync()->set_staleness_aware(false);
  ServerCluster cluster(spec, VisitData(), NewVisitEngine, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(4);
  ASSERT_TRUE(cluster.AwaitSettled(50));
  cluster.Kill(ServerCluster::WorkerUid(2));  // the other group's first
  const std::vector<float> visits = VisitsOf(cluster.AwaitResult());
  EXPECT_THAT(visits, Each(Le(5.0F + 1e-3F)));
  EXPECT_THAT(visits, Each(Ge(5.0F / 5 - 1e-3F)));
}

// Who sums up is held in the middle of a lease: the other pushes by itself before long.
TEST_F(TreeJobTest, NobodyWaitsLongForAnAggregatorThatSleeps) {
  std::atomic<bool> open = false;
  std::atomic<bool> held = false;
  const auto make = [&](int worker) -> std::unique_ptr<engine::Engine> {
    if (worker != 0) return NewVisitEngine(worker);
    return std::make_unique<VisitEngine>(kSamples, [&](std::size_t call) {
      if (call != 3) return;
      held = true;
      held.notify_all();
      open.wait(false);
    });
  };
  ServerCluster cluster(TreeJob(4), VisitData(), make, NewJobDir());
  cluster.AddServers(1);
  cluster.AddWorkers(2);
  EXPECT_TRUE(cluster.Await([&] { return held.load(); }));
  const bool went_on =
      cluster.Await([&] { return cluster.EngineOf<VisitEngine>(1).calls().size() > 40; });
  open = true;
  open.notify_all();
  EXPECT_TRUE(went_on);
  EXPECT_THAT(VisitsOf(cluster.AwaitResult()), Each(4.0F));
}

}  // namespace
}  // namespace starling::worker
