// SPDX-License-Identifier: Apache-2.0
// What a HybridExchange promises by itself: two workers and a server that the test can hold still.
// Whole jobs are in trainer/worker/hybrid_job_test.cc.
#include "trainer/client/hybrid_exchange.h"

#include <atomic>
#include <future>
#include <thread>

#include "common/status/macros.h"
#include "common/sync/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/parameter_server/server_loop.h"
#include "trainer/parameter_server/shard_placement.h"
#include "trainer/testing/transports.h"
#include "trainer/transport/group_mesh.h"

namespace starling::client {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using transport::testing::Soon;

constexpr std::int64_t kRows = 8;  // of each of two tensors
constexpr std::int64_t kPortions = 2;

// Two tensors in one bucket; the second lies on the server. All gradients are 1.
class TwoTensors final : public workload::Workload {
 public:
  TwoTensors() : Workload(DeclarationOf()), parameters_(2 * kRows), gradients_(2 * kRows, 1) {}
  std::span<float> parameters() override { return parameters_; }
  std::span<float> gradients() override { return gradients_; }
  absl::StatusOr<workload::Sums> Compute(std::span<const std::int64_t> /*samples*/,
                                         const workload::Client& /*client*/) override {
    return absl::UnimplementedError("the test computes");
  }
  absl::StatusOr<workload::Sums> Evaluate(std::int64_t /*begin*/, std::int64_t /*end*/) override {
    return workload::Sums{};
  }

 private:
  static workload::Declaration DeclarationOf() {
    workload::Declaration declaration;
    declaration.metrics = {"loss"};
    declaration.tensors = {{"ours", {kRows}, 0, kRows}, {"theirs", {kRows}, kRows, kRows}};
    declaration.buckets = {{0, 2 * kRows}};
    declaration.samples = 4;
    return declaration;
  }
  std::vector<float> parameters_;
  std::vector<float> gradients_;
};

v1alpha1::TrainingJobSpec Spec() {
  v1alpha1::TrainingJobSpec spec;
  spec.mutable_dataset()->set_global_batch_size(4);
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(1);
  spec.mutable_exchange()->mutable_parameter_server()->set_samples_per_push(4 / kPortions);
  return spec;
}

parameter_server::JobTables TablesOf(const v1alpha1::TrainingJobSpec& spec) {
  parameter_server::Layout layout{2 * kRows, 4, "f"};
  layout.held = {{kRows, 2 * kRows}};
  return *parameter_server::TablesOf(spec, layout);
}

// Rank 0 is the server, 1 and 2 are workers; portion 0 is worker 1's, portion 1 worker 2's.
class HybridExchangeTest : public ::testing::Test {
 protected:
  struct Worker {
    Worker(HybridExchangeTest& test, int number)
        : servers({.spec = test.spec_,
                   .self = {"worker", number},
                   .workload = workload,
                   .tables = test.tables_,
                   .clock = test.clock_},
                  {.done = [](const ParameterServerExchange::Done&) {},
                   .refused = [](const consistency::LeaseRun&) {},
                   .are_next = [](const consistency::LeaseRun&) { return true; },
                   .started_over = [] {}}),
          exchange({.workload = workload,
                    .batches = test.batches_,
                    .tables = test.tables_,
                    .wanted = [this] { return wanted.load(); }},
                   servers) {}
    TwoTensors workload;
    std::atomic<bool> wanted = true;
    ParameterServerExchange servers;
    HybridExchange exchange;
  };

  HybridExchangeTest() {
    view_.number = 1;
    view_.members.push_back({{"server", 0}, "", 1, "s", "", membership::Role::kServer});
    for (int number : {1, 2}) view_.members.push_back({{"worker", number}, "", 1, "w"});
    for (std::size_t shard = 0; shard < tables_.shards.size(); ++shard) {
      view_.groups.push_back({1, {{"server", 0}}, {}, {}});
    }
    view_.groups.push_back({1, {{"worker", 1}, {"worker", 2}}, {}, {}});
    std::vector<parameter_server::ShardView> shards;
    for (std::size_t shard = 0; shard < tables_.shards.size(); ++shard) {
      shards.push_back(parameter_server::ShardViewOf(view_, shard));
    }
    serving_ = std::thread([this, shards] {
      parameter_server::ServerHooks hooks;
      hooks.tick = [this] {
        const sync::MutexLock lock(mutex_);
        holds_ = held_;
        changed_.NotifyAll();
        while (held_) changed_.Wait(mutex_);
        holds_ = false;
        return true;
      };
      parameter_server::ServerLoop server({"server", 0}, tables_.shards);
      (void)server.Serve(shards, parameter_server::RanksOf(view_), *meshes_[0], hooks);
    });
    for (int number : {1, 2}) {
      transport::Mesh* mesh = meshes_[static_cast<std::size_t>(number)].get();
      groups_.push_back(std::make_unique<transport::GroupMesh>(*mesh, std::vector<int>{1, 2}));
      Worker& worker = *workers_[static_cast<std::size_t>(number - 1)];
      EXPECT_TRUE(worker.servers.Enter(view_, mesh).ok());
      EXPECT_TRUE(worker.exchange.Enter(view_, groups_.back().get()).ok());
    }
    EXPECT_TRUE(workers_[0]->servers.AssignFirstValues().ok());
    EXPECT_TRUE(workers_[0]->servers.AwaitAll(absl::Seconds(10)).ok());
  }
  ~HybridExchangeTest() override {
    HoldServer(false);
    for (auto& worker : workers_) {
      worker->exchange.Leave();
      worker->servers.Leave();
    }
    for (auto& mesh : meshes_) mesh->Cancel(absl::AbortedError("the view is over"));
    serving_.join();
  }
  // Whatever comes from now on it does not look at; returns when that is so.
  void HoldServer(bool held) {
    const sync::MutexLock lock(mutex_);
    held_ = held;
    changed_.NotifyAll();
    while (held_ && !holds_) changed_.Wait(mutex_);
  }

  // This worker's step, up to where its gradients are made.
  absl::Status Begin(int worker, std::uint64_t number) {
    Worker& mine = *workers_[static_cast<std::size_t>(worker)];
    RETURN_IF_ERROR(mine.exchange.Begin({.number = number,
                                         .gradients = mine.workload.gradients(),
                                         .control = control_,
                                         .groups = kPortions,
                                         .deadline = Soon(),
                                         .samples = samples_}));
    return mine.exchange.Prepare().status();
  }
  std::future<absl::StatusOr<exchange::Outcome>> Finish(int worker) {
    return std::async(std::launch::async, [this, worker] {
      Worker& mine = *workers_[static_cast<std::size_t>(worker)];
      mine.exchange.Add(worker, 0);
      const double loss = 1;
      return mine.exchange.Finish({&loss, 1}, 1);
    });
  }

  const std::vector<std::int64_t> control_ = {7};
  const std::vector<std::int64_t> samples_ = {0, 1};  // of a portion
  const v1alpha1::TrainingJobSpec spec_ = Spec();
  const parameter_server::JobTables tables_ = TablesOf(spec_);
  const data::Batches batches_{4, 4, 7};
  const clock::SystemClock clock_;
  transport::testing::Members members_{transport::testing::Kind::kInproc, 3};
  std::vector<std::unique_ptr<transport::Mesh>> meshes_ = members_.OpenAll(1);
  membership::View view_;
  std::vector<std::unique_ptr<transport::GroupMesh>> groups_;
  std::vector<std::unique_ptr<Worker>> workers_ = [this] {
    std::vector<std::unique_ptr<Worker>> workers;
    for (int number : {1, 2}) workers.push_back(std::make_unique<Worker>(*this, number));
    return workers;
  }();
  sync::Mutex mutex_;
  sync::Condition changed_;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  bool holds_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread serving_;
};

// Rule H3.
TEST_F(HybridExchangeTest, NobodyCompletesAStepBeforeTheServersHaveAcknowledgedIt) {
  ASSERT_EQ(Begin(0, 1), absl::OkStatus());
  ASSERT_EQ(Begin(1, 1), absl::OkStatus());
  HoldServer(true);
  auto first = Finish(0), second = Finish(1);
  EXPECT_EQ(first.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  EXPECT_EQ(second.wait_for(std::chrono::milliseconds(1)), std::future_status::timeout);
  HoldServer(false);
  for (auto* step : {&first, &second}) {
    const absl::StatusOr<exchange::Outcome> outcome = step->get();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_THAT(outcome->min, ElementsAre(7));
    EXPECT_THAT(outcome->statistics, ElementsAre(2)) << "both losses";
    EXPECT_TRUE(outcome->finite);
  }
  for (const auto& worker : workers_) {
    const std::span<const float> sum = worker->workload.gradients();
    EXPECT_THAT(sum.first(kRows), Each(2)) << "of both portions";
    EXPECT_THAT(sum.last(kRows), Each(0)) << "what servers apply is theirs";
  }
  ASSERT_TRUE(workers_[1]->servers.Fetch(1, [] { return true; }).ok());
  // The mean gradient of a portion is half of its sum of two samples.
  EXPECT_THAT(std::span(workers_[1]->workload.parameters()).last(kRows), Each(-0.5F));
}

// A view that ends when the servers have a step and the workers have not.
TEST_F(HybridExchangeTest, TellsWhetherServersAreAheadOfAStepThatIsMadeAgain) {
  const auto make = [this](std::uint64_t number) {
    EXPECT_EQ(Begin(0, number), absl::OkStatus());
    EXPECT_EQ(Begin(1, number), absl::OkStatus());
    auto first = Finish(0), second = Finish(1);
    const std::vector<absl::StatusOr<exchange::Outcome>> outcomes = {first.get(), second.get()};
    std::vector<bool> before;
    for (const auto& outcome : outcomes) {
      EXPECT_EQ(outcome.status(), absl::OkStatus());
      if (!outcome.ok()) continue;
      EXPECT_THAT(outcome->min, ElementsAre(7));
      EXPECT_THAT(outcome->max, ElementsAre(7));
      before.push_back(outcome->of_state_before);
    }
    return before;
  };
  EXPECT_THAT(make(1), ElementsAre(true, true));
  EXPECT_THAT(make(1), ElementsAre(false, false)) << "the servers have it";
  EXPECT_THAT(make(2), ElementsAre(true, true));
}

TEST_F(HybridExchangeTest, AStepThatIsNotWantedNowLeavesNothingBehind) {
  workers_[0]->wanted = false;
  // Nobody has made step 1, so its results cannot be read: something else comes first.
  const absl::Status aborted = Begin(0, 2);
  EXPECT_EQ(aborted.code(), absl::StatusCode::kAborted);
  workers_[0]->exchange.Cancel(aborted);
  EXPECT_EQ(workers_[0]->exchange.Finish({}, 1).status(), aborted);
  workers_[0]->wanted = true;

  ASSERT_EQ(Begin(0, 1), absl::OkStatus());
  ASSERT_EQ(Begin(1, 1), absl::OkStatus());
  auto first = Finish(0), second = Finish(1);
  EXPECT_EQ(first.get().status(), absl::OkStatus());
  EXPECT_EQ(second.get().status(), absl::OkStatus());
}

}  // namespace
}  // namespace starling::client
