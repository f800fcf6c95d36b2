// SPDX-License-Identifier: Apache-2.0
// Whole jobs in one process whose workers have several threads each: nothing that any thread adds
// is lost or added twice, whoever dies, and the model is as good as that of one thread.
#include <random>

#include "trainer/sparse/count_engine.h"
#include "trainer/sparse/logistic_engine.h"
#include "trainer/worker/client_worker.h"
#include "trainer/worker/visit_job.h"

namespace starling::worker {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Gt;
using ::testing::Lt;
using ::testing::SizeIs;

v1alpha1::TrainingJobSpec HogwildJob(std::int64_t epochs, int threads) {
  v1alpha1::TrainingJobSpec spec = VisitJob(epochs);
  spec.mutable_workload()->mutable_sparse_logistic_regression();
  ModelOf(spec).mutable_hogwild()->set_threads(threads);
  return spec;
}

class HogwildJobTest : public ClientWorkerTest {
 protected:
  static std::unique_ptr<engine::Engine> NewCountEngine(int /*worker*/) {
    return std::make_unique<sparse::CountEngine>(kSamples);
  }
  // Whole numbers, exactly: each sample's own parameter, and the one that all share.
  static void ExpectEachSampleCounted(const v1alpha1::Result& result, std::int64_t epochs) {
    std::vector<float> counts = TensorOf(result, "counts");
    ASSERT_THAT(counts, SizeIs(kSamples + 1));
    EXPECT_EQ(counts.back(), static_cast<float>(epochs * kSamples));
    counts.pop_back();
    EXPECT_THAT(counts, Each(static_cast<float>(epochs)));
  }
};

TEST_F(HogwildJobTest, ThreadsOfSeveralWorkersCountEverySampleOnceAnEpoch) {
  const std::string folder = NewJobDir();
  ServerFlock flock(HogwildJob(3, 3), VisitData(), NewCountEngine, folder);
  flock.AddServers(2);
  flock.AddWorkers(2);

  const v1alpha1::Result result = flock.AwaitResult();

  EXPECT_EQ(result.steps(), 3 * kPerEpoch);
  ExpectEachSampleCounted(result, 3);
  EXPECT_THAT(LinesOf(folder + "/audit/steps.jsonl"), SizeIs(3 * kPerEpoch));
  for (int worker = 0; worker < 2; ++worker) {
    EXPECT_THAT(flock.EngineOf<sparse::CountEngine>(worker).threads(), SizeIs(3));
  }
}

TEST_F(HogwildJobTest, ThreadsAreTwoUnlessTheJobSaysOtherwise) {
  v1alpha1::TrainingJobSpec spec = HogwildJob(1, 1);
  ModelOf(spec).mutable_hogwild()->clear_threads();
  ServerFlock flock(spec, VisitData(), NewCountEngine, NewJobDir());
  flock.AddServers(1);
  flock.AddWorkers(1);
  ExpectEachSampleCounted(flock.AwaitResult(), 1);
  EXPECT_THAT(flock.EngineOf<sparse::CountEngine>(0).threads(), SizeIs(2));
}

TEST_F(HogwildJobTest, DeathsLoseAndRepeatNothing) {
  ServerFlock flock(HogwildJob(10, 2), VisitData(), NewCountEngine, NewJobDir());
  flock.AddServers(3);
  flock.AddWorkers(3);
  ASSERT_TRUE(flock.AwaitSettled(20));
  flock.Kill(ServerFlock::WorkerUid(0));
  ASSERT_TRUE(flock.AwaitSettled(200));
  flock.Kill(ServerFlock::ServerUid(1));
  ASSERT_TRUE(flock.AwaitSettled(400));
  flock.Restart(ServerFlock::WorkerUid(0));
  flock.Kill(ServerFlock::WorkerUid(2));
  ASSERT_TRUE(flock.AwaitSettled(600));
  flock.Restart(ServerFlock::ServerUid(1));

  ExpectEachSampleCounted(flock.AwaitResult(), 10);
}

// Samples of ten features of two thousand, told apart by weights that are to be learned.
std::shared_ptr<const data::SparseDataset> SparseSamples() {
  constexpr std::uint64_t kFeatures = 2000;
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> truth(kFeatures);
  for (float& value : truth) value = normal(random);
  auto samples = std::make_shared<data::SparseDataset>();
  samples->hashed = kFeatures;
  for (std::int64_t i = 0; i < 5 * kSamples; ++i) {
    std::set<std::uint64_t> features;
    while (features.size() < 10) features.insert(random() % kFeatures);
    double score = 0;
    for (const std::uint64_t feature : features) {
      samples->features.push_back(feature);
      samples->values.push_back(normal(random));
      score += double{truth[feature]} * double{samples->values.back()};
    }
    samples->offsets.push_back(samples->features.size());
    samples->labels.push_back(score > 0 ? 1 : -1);
  }
  return samples;
}

data::Datasets DatasetsOf(const std::shared_ptr<const data::SparseDataset>& samples) {
  data::Datasets datasets;
  datasets.sparse = samples;
  datasets.digest = "0123456789abcdef0123456789abcdef";
  datasets.train.shape = {1};
  datasets.train.classes = 2;
  for (std::int64_t i = 0; i < samples->size(); ++i) {
    datasets.train.features.push_back(static_cast<float>(i));
    datasets.train.labels.push_back(samples->labels[static_cast<std::size_t>(i)] > 0 ? 1 : 0);
  }
  datasets.validation = datasets.train;
  return datasets;
}

class HogwildLossTest : public HogwildJobTest {
 protected:
  static v1alpha1::TrainingJobSpec LogisticJob(int threads) {
    v1alpha1::TrainingJobSpec spec = HogwildJob(/*epochs=*/4, threads);
    spec.mutable_dataset()->mutable_validation()->mutable_libsvm()->set_uri("in memory here");
    spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1);
    spec.mutable_validation()->set_every_epochs(1);
    return spec;
  }
  double LossOf(const v1alpha1::TrainingJobSpec& spec, int workers) {
    ServerFlock flock(
        spec, DatasetsOf(samples_),
        [this](int) { return std::make_unique<sparse::LogisticEngine>(samples_, 0); }, NewJobDir());
    flock.AddServers(2);
    flock.AddWorkers(workers);
    const v1alpha1::Result result = flock.AwaitResult();
    EXPECT_EQ(result.steps(), 4 * 5 * kPerEpoch);
    return result.metrics().at("validation/loss");
  }
  const std::shared_ptr<const data::SparseDataset> samples_ = SparseSamples();
};

TEST_F(HogwildLossTest, TwoThreadsInEachOfTwoWorkersReachTheLossOfOneThread) {
  const double serial = LossOf(LogisticJob(1), 1);
  EXPECT_LT(serial, 0.45) << "it does learn: a coin's loss is 0.69";
  EXPECT_NEAR(LossOf(LogisticJob(2), 2), serial, 0.01 * serial);
}

// The control: one step for each push, not for each sample, is another course.
TEST_F(HogwildLossTest, AsynchronousTakesFewerSteps) {
  v1alpha1::TrainingJobSpec asynchronous = LogisticJob(1);
  ModelOf(asynchronous).mutable_asynchronous();
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
