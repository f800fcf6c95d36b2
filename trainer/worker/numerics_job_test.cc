// SPDX-License-Identifier: Apache-2.0
// Whole jobs with spec.numerics: what one worker's narrow numbers do to all of them.
#include <limits>

#include "trainer/testing/visit_job.h"
#include "trainer/testing/worker_cluster.h"

namespace starling::worker {
namespace {

using ::testing::HasSubstr;

// At its n-th computation the first of its gradients is infinite.
class Overflowing final : public workload::Workload {
 public:
  Overflowing(std::unique_ptr<workload::Workload> workload, int at)
      : Workload(workload->declaration()), workload_(std::move(workload)), at_(at) {}

  std::span<float> parameters() override { return workload_->parameters(); }
  std::span<float> gradients() override { return workload_->gradients(); }
  absl::StatusOr<workload::Sums> Compute(std::span<const std::int64_t> samples,
                                         const workload::Client& client) override {
    workload::Client mine = client;
    const bool now = --at_ == 0;
    mine.push = [&](std::int64_t bucket) {
      if (now && bucket == 0) gradients()[0] = std::numeric_limits<float>::infinity();
      client.push(bucket);
    };
    return workload_->Compute(samples, mine);
  }
  absl::StatusOr<workload::Sums> Evaluate(std::int64_t begin, std::int64_t end) override {
    return workload_->Evaluate(begin, end);
  }

 private:
  const std::unique_ptr<workload::Workload> workload_;
  int at_;
};

class MixedPrecisionJobTest : public ClientWorkerTest {
 protected:
  static constexpr std::int64_t kSteps = 80;
  static constexpr int kOverflow = 20;

  static v1alpha1::TrainingJobSpec Job(bool mixed = true) {
    v1alpha1::TrainingJobSpec spec = TinyJob(kSteps);
    spec.set_reproducible(false);
    if (!mixed) return spec;
    spec.mutable_numerics()->mutable_mixed_precision()->set_loss_scale(1024);
    spec.mutable_numerics()->mutable_mixed_precision()->set_grow_every(2000);
    return spec;
  }
  // Its second worker's gradients overflow once.
  static Cluster::MakeWorkload SecondOverflows(const v1alpha1::TrainingJobSpec& spec) {
    return [spec, made = 0](const std::string& identity) mutable {
      auto plain = std::make_unique<workload::Classification>(
          *data::LoadDatasets(spec),
          std::make_unique<TinyEngine>(3, 4, static_cast<std::uint64_t>(spec.seed())), identity);
      return std::make_unique<Overflowing>(std::move(plain), made++ == 1 ? kOverflow : -1);
    };
  }
  static double Told(Cluster& cluster, int worker, const std::string& name) {
    const v1alpha1::TrainingReport training = cluster.TrainingOf(worker);
    const auto& metrics = training.progress().metrics();
    const auto found = metrics.find(name);
    return found == metrics.end() ? -1 : found->second;
  }
};

TEST_F(MixedPrecisionJobTest, AnInfinityOfOneWorkerMakesAllSkipThatStep) {
  const v1alpha1::TrainingJobSpec spec = Job();
  Cluster cluster(spec, NewJobDir(), SecondOverflows(spec));
  cluster.PublishNow({cluster.Add(), cluster.Add(), cluster.Add()});
  const std::string model = cluster.AwaitModel(0);
  ASSERT_NE(model, "") << cluster.TrainingOf(0).failure();
  for (const int worker : {0, 1, 2}) {
    // Workers hold the same bits, or their next reduction would be refused; each of them knows.
    ASSERT_TRUE(cluster.AwaitStep(worker, kSteps));
    EXPECT_EQ(Told(cluster, worker, "numerics/skippedSteps"), 1) << worker;
    EXPECT_EQ(Told(cluster, worker, "numerics/lossScale"), 512) << worker;
  }
  for (const float value : TensorOf(cluster.TrainingOf(0).result(), "bias")) {
    EXPECT_TRUE(std::isfinite(value));
  }
}

// One that joins later, and a life that goes on from a checkpoint, have the scale as it was.
TEST_F(MixedPrecisionJobTest, TheScaleGoesToJoinersAndIntoCheckpoints) {
  v1alpha1::TrainingJobSpec spec = Job();
  spec.mutable_stop()->set_steps(1000);  // so that it lasts until the joiner is there
  const std::string folder = NewJobDir();
  {
    Cluster cluster(spec, folder, SecondOverflows(spec));
    cluster.PublishNow({cluster.Add(), cluster.Add()});
    ASSERT_TRUE(cluster.AwaitStep(0, kOverflow + 5));
    const int joiner = cluster.Add();
    cluster.PublishAtBoundary({0, 1, joiner});
    ASSERT_TRUE(cluster.AwaitStep(joiner, kOverflow + 10));
    EXPECT_EQ(Told(cluster, joiner, "numerics/skippedSteps"), 1);
    EXPECT_EQ(Told(cluster, joiner, "numerics/lossScale"), 512);
    cluster.AskForCheckpoint();
    ASSERT_TRUE(cluster.Await([&] { return cluster.ReportOf(0).checkpoint_turn == 1; }));
    for (const int worker : {0, 1, joiner}) cluster.Crash(worker);
  }
  Cluster cluster(spec, folder);
  cluster.SetIncarnation(2);
  cluster.PublishNow({cluster.Add()}, /*restore=*/true);
  ASSERT_NE(cluster.AwaitModel(0), "") << cluster.TrainingOf(0).failure();
  EXPECT_EQ(Told(cluster, 0, "numerics/skippedSteps"), 1);
  EXPECT_EQ(Told(cluster, 0, "numerics/lossScale"), 512);
}

// Without the rule nothing may be skipped: the job says so, at every worker.
TEST_F(MixedPrecisionJobTest, WithoutItAnInfinityEndsTheJob) {
  const v1alpha1::TrainingJobSpec spec = Job(/*mixed=*/false);
  Cluster cluster(spec, NewJobDir(), SecondOverflows(spec));
  cluster.PublishNow({cluster.Add(), cluster.Add()});
  ASSERT_TRUE(cluster.AwaitEnd(0));
  EXPECT_THAT(cluster.TrainingOf(0).failure(), HasSubstr("step 20: "));
}

TEST_F(MixedPrecisionJobTest, AScaleThatCannotBeHalvedEndsTheJob) {
  v1alpha1::TrainingJobSpec spec = Job();
  spec.mutable_numerics()->mutable_mixed_precision()->set_loss_scale(1);
  Cluster cluster(spec, NewJobDir(), SecondOverflows(spec));
  cluster.PublishNow({cluster.Add(), cluster.Add()});
  ASSERT_TRUE(cluster.AwaitEnd(0));
  EXPECT_THAT(cluster.TrainingOf(0).failure(), HasSubstr("step 20: "));
}

}  // namespace
}  // namespace starling::worker
