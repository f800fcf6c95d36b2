// SPDX-License-Identifier: Apache-2.0
// Whole jobs in one process whose workers have several threads each: nothing that any thread adds
// is lost or added twice, whoever dies, and the model is as good as that of one thread.
#include "trainer/testing/sparse_job.h"
#include "trainer/worker/worker.h"

namespace starling::worker {
namespace {

using ::testing::AllOf;
using ::testing::Gt;
using ::testing::Lt;
using ::testing::SizeIs;

class HogwildJobTest : public SparseJobTest {};

TEST_F(HogwildJobTest, ThreadsOfSeveralWorkersCountEverySampleOnceAnEpoch) {
  const std::string folder = NewJobDir();
  ServerCluster cluster(HogwildJob(3, 3), NewCountWorkload, folder);
  cluster.AddServers(2);
  cluster.AddWorkers(2);

  const v1alpha1::Result result = cluster.AwaitResult();

  EXPECT_EQ(result.steps(), 3 * kPerEpoch);
  ExpectEachSampleCounted(result, 3);
  EXPECT_THAT(LinesOf(folder + "/audit/steps.jsonl"), SizeIs(3 * kPerEpoch));
  for (int worker = 0; worker < 2; ++worker) {
    EXPECT_THAT(cluster.WorkloadOf<workload::CountWorkload>(worker).threads(), SizeIs(3));
  }
}

TEST_F(HogwildJobTest, ThreadsAreTwoUnlessTheJobSaysOtherwise) {
  v1alpha1::TrainingJobSpec spec = HogwildJob(1, 1);
  spec.mutable_update()->mutable_hogwild()->clear_threads();
  ServerCluster cluster(spec, NewCountWorkload, NewJobDir());
  cluster.AddServers(1);
  cluster.AddWorkers(1);
  ExpectEachSampleCounted(cluster.AwaitResult(), 1);
  EXPECT_THAT(cluster.WorkloadOf<workload::CountWorkload>(0).threads(), SizeIs(2));
}

TEST_F(HogwildJobTest, DeathsLoseAndRepeatNothing) {
  ServerCluster cluster(HogwildJob(10, 2), NewCountWorkload, NewJobDir());
  cluster.AddServers(3);
  cluster.AddWorkers(3);
  ASSERT_TRUE(cluster.AwaitSettled(20));
  cluster.Kill(ServerCluster::WorkerUid(0));
  ASSERT_TRUE(cluster.AwaitSettled(200));
  cluster.Kill(ServerCluster::ServerUid(1));
  ASSERT_TRUE(cluster.AwaitSettled(400));
  cluster.Restart(ServerCluster::WorkerUid(0));
  cluster.Kill(ServerCluster::WorkerUid(2));
  ASSERT_TRUE(cluster.AwaitSettled(600));
  cluster.Restart(ServerCluster::ServerUid(1));

  ExpectEachSampleCounted(cluster.AwaitResult(), 10);
}

class HogwildLossTest : public SparseJobTest {
 protected:
  static v1alpha1::TrainingJobSpec LogisticJob(int threads) {
    v1alpha1::TrainingJobSpec spec = HogwildJob(/*epochs=*/4, threads);
    spec.mutable_dataset()->mutable_validation()->mutable_libsvm()->set_uri("in memory here");
    spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1);
    spec.mutable_validation()->set_every_epochs(1);
    return spec;
  }
  double LossOf(const v1alpha1::TrainingJobSpec& spec, int workers) {
    ServerCluster cluster(spec, Logistic(samples_), NewJobDir());
    cluster.AddServers(2);
    cluster.AddWorkers(workers);
    const v1alpha1::Result result = cluster.AwaitResult();
    EXPECT_EQ(result.steps(), 4 * 5 * kPerEpoch);
    return result.metrics().at("validation/loss");
  }
  const std::shared_ptr<const data::SparseDataset> samples_ = LearnableSamples();
};

TEST_F(HogwildLossTest, TwoThreadsInEachOfTwoWorkersReachTheLossOfOneThread) {
  const double serial = LossOf(LogisticJob(1), 1);
  EXPECT_LT(serial, 0.45) << "it does learn: a coin's loss is 0.69";
  EXPECT_NEAR(LossOf(LogisticJob(2), 2), serial, 0.01 * serial);
}

// The control: one step for each push, not for each sample, is another course.
TEST_F(HogwildLossTest, AsynchronousTakesFewerSteps) {
  v1alpha1::TrainingJobSpec asynchronous = LogisticJob(1);
  asynchronous.mutable_update()->mutable_gradient();
  EXPECT_GT(LossOf(asynchronous, 1), 1.1 * LossOf(LogisticJob(1), 1));
}

TEST_F(HogwildLossTest, TheRateFollowsTheSchedule) {
  v1alpha1::TrainingJobSpec spec = LogisticJob(1);
  v1alpha1::StepSchedule& stairs = *spec.mutable_optimizer()->mutable_schedule()->mutable_step();
  stairs.set_every(1);
  stairs.set_factor(1e-6);
  EXPECT_THAT(LossOf(spec, 1), AllOf(Gt(0.68), Lt(0.693))) << "the first push counts, no other";
}

}  // namespace
}  // namespace starling::worker
