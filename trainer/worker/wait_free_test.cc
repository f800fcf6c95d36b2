// SPDX-License-Identifier: Apache-2.0
// Shards that are larger than what a link takes at once travel while backward still runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "trainer/testing/visit_job.h"

namespace starling::worker {
namespace {

constexpr std::int64_t kBuckets = 128;
constexpr std::int64_t kBucket = 32 << 10;  // parameters: 128 KB
constexpr std::int64_t kShards = 4;         // of 4 MB
constexpr std::chrono::microseconds kBucketTime{1000};

// Backward takes its time for each bucket; all are reported as they are made, or in the end. Keeps
// what share of each lease's gradient the links had taken when the last bucket was made. Confined
// to one thread, but for shares().
class SlowBackward final : public engine::Engine {
 public:
  SlowBackward(bool as_made, std::function<std::uint64_t()> sent)
      : as_made_(as_made),
        sent_(std::move(sent)),
        tensors_{{"layers", {kBuckets, kBucket}, 0, kBuckets * kBucket}},
        parameters_(static_cast<std::size_t>(kBuckets * kBucket)),
        gradients_(parameters_.size(), 1.0F) {
    for (std::int64_t i = 0; i < kBuckets; ++i)
      buckets_.push_back({i * kBucket, (i + 1) * kBucket});
  }

  std::span<const engine::Tensor> tensors() const override { return tensors_; }
  std::span<float> parameters() override { return parameters_; }
  std::span<float> gradients() override { return gradients_; }
  std::span<const engine::Bucket> buckets() const override { return buckets_; }

  absl::StatusOr<engine::BatchSums> ComputeGradients(std::span<const float> /*features*/,
                                                     std::span<const std::int64_t> labels,
                                                     const OnBucket& on_bucket) override {
    const std::uint64_t before = sent_();
    for (std::int64_t i = 0; i < kBuckets; ++i) {
      const auto made = std::chrono::steady_clock::now() + kBucketTime;
      while (std::chrono::steady_clock::now() < made) {
      }
      if (i + 1 == kBuckets) Keep(sent_() - before);
      if (as_made_) on_bucket(i);
    }
    for (std::int64_t i = 0; !as_made_ && i < kBuckets; ++i) on_bucket(i);
    return engine::BatchSums{.loss = static_cast<double>(labels.size()), .correct = 0};
  }
  absl::StatusOr<engine::BatchSums> Evaluate(std::span<const float> /*features*/,
                                             std::span<const std::int64_t> /*labels*/) override {
    return engine::BatchSums{};
  }
  std::vector<double> shares() const {
    const sync::MutexLock lock(mutex_);
    return shares_;
  }

 private:
  void Keep(std::uint64_t bytes) {
    const sync::MutexLock lock(mutex_);
    shares_.push_back(static_cast<double>(bytes) /
                      static_cast<double>(gradients_.size() * sizeof(float)));
  }

  const bool as_made_;
  const std::function<std::uint64_t()> sent_;
  const std::vector<engine::Tensor> tensors_;
  std::vector<engine::Bucket> buckets_;
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  mutable sync::Mutex mutex_;
  std::vector<double> shares_ ABSL_GUARDED_BY(mutex_);
};

class WaitFreeTest : public ClientWorkerTest {
 protected:
  // Of each lease of a job of its own.
  std::vector<double> SharesOf(bool as_made) {
    v1alpha1::TrainingJobSpec spec = VisitJob(1);
    spec.mutable_stop()->set_steps(6);
    spec.mutable_exchange()->mutable_parameter_server()->set_shards(kShards);
    spec.mutable_exchange()->mutable_parameter_server()->set_replication(1);
    ServerCluster* of = nullptr;
    ServerCluster cluster(
        spec, VisitData(),
        [&](int worker) {
          return std::make_unique<SlowBackward>(as_made,
                                                [&of, worker] { return of->SentBy(worker); });
        },
        NewJobDir());
    of = &cluster;
    cluster.AddServers(2);
    cluster.AddWorkers(1);
    EXPECT_EQ(cluster.AwaitResult().steps(), 6);
    const std::vector<double> shares = cluster.EngineOf<SlowBackward>(0).shares();
    RecordProperty("shares", absl::StrJoin(shares, " "));
    return shares;
  }
};

// The lease that the machine's other load has slowed least: what the worker itself does not do, no
// idle machine does for it.
TEST_F(WaitFreeTest, MostOfTheGradientHasLeftWhenItsLastBucketIsMade) {
  const std::vector<double> shares = SharesOf(true);
  ASSERT_EQ(shares.size(), 6u);
  EXPECT_GE(*std::ranges::max_element(shares), 0.5);
}

TEST_F(WaitFreeTest, NothingHasLeftWhereAllIsReportedInTheEnd) {
  const std::vector<double> shares = SharesOf(false);
  ASSERT_EQ(shares.size(), 6u);
  EXPECT_LT(*std::ranges::max_element(shares), 0.05);
}

}  // namespace
}  // namespace starling::worker
