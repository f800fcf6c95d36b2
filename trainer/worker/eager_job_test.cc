// SPDX-License-Identifier: Apache-2.0
// What a job's worker really sends under eagerStaleSynchronous: bytes of its link, by the wall
// clock. The budget is held over any stretch of time, the most useful shard goes first
// (trainer/consistency/eager_sender_test.cc), and no machine is too busy for this test: who is
// slower sends less.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <limits>
#include <thread>

#include "trainer/testing/visit_job.h"

namespace starling::worker {
namespace {

constexpr double kBudget = 200e3;  // bytes a second
constexpr double kPush = VisitEngine::kWidth * kSamples * sizeof(float);
constexpr double kShard = kPush / 2;
// A shard that is larger than what may be saved up goes alone, and is paid off afterwards. Heads of
// messages and requests to read are not in the budget.
constexpr double kSavedUp = 0.04 * kBudget;
constexpr double kHeads = 4e3;

class EagerJobTest : public ClientWorkerTest {
 protected:
  // The most that one worker has sent in any stretch of a job of fourteen leases, beyond what the
  // budget gives in it. It computes its second gradient when its bytes are being counted: without a
  // budget all fourteen are sent in less time than a busy machine may need to begin with that.
  double MostBeyondTheBudget(const std::function<void(v1alpha1::Consistency&)>& choose) {
    v1alpha1::TrainingJobSpec spec = VisitJob(1);
    spec.mutable_stop()->set_steps(14);
    spec.mutable_exchange()->mutable_parameter_server()->set_replication(1);
    spec.mutable_exchange()->mutable_parameter_server()->set_shards(2);
    choose(ModelOf(spec));
    std::latch counted(1);
    ServerCluster cluster(
        spec, VisitData(),
        [&counted](int /*worker*/) {
          return std::make_unique<VisitEngine>(kSamples, [&counted](std::size_t call) {
            if (call > 0) counted.wait();
          });
        },
        NewJobDir());
    cluster.AddServers(1);
    cluster.AddWorkers(1);
    EXPECT_TRUE(cluster.AwaitSettled(1)) << "the first values know no budget";
    std::atomic<bool> over = false;
    double most = 0;
    std::thread meter([&] {
      using Clock = std::chrono::steady_clock;
      const Clock::time_point begin = Clock::now();
      const auto given = [&](Clock::time_point now) {
        return kBudget * std::chrono::duration<double>(now - begin).count();
      };
      double least = std::numeric_limits<double>::infinity();
      for (bool last = false; !last;) {
        last = over;  // what was sent up to the end counts
        const double before = given(Clock::now());
        const auto sent = static_cast<double>(cluster.SentBy(0));
        most = std::max(most, sent - given(Clock::now()) - least);
        least = std::min(least, sent - before);
        if (!counted.try_wait()) counted.count_down();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    EXPECT_EQ(cluster.AwaitResult().steps(), 14);
    over = true;
    meter.join();
    RecordProperty("most", std::to_string(most));
    return most;
  }
};

TEST_F(EagerJobTest, NoStretchOfTimeHasMoreThanTheBudget) {
  EXPECT_LE(MostBeyondTheBudget([](v1alpha1::Consistency& model) {
              model.mutable_eager_stale_synchronous()->set_staleness(1);
              model.mutable_eager_stale_synchronous()->set_bytes_per_second(kBudget);
            }),
            kSavedUp + kShard + kHeads);
}

TEST_F(EagerJobTest, WithoutOneMoreIsSent) {
  EXPECT_GT(MostBeyondTheBudget([](v1alpha1::Consistency& model) {
              model.mutable_stale_synchronous()->set_staleness(1);
            }),
            kSavedUp + kShard + kHeads);
}

}  // namespace
}  // namespace starling::worker
