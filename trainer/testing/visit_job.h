// SPDX-License-Identifier: Apache-2.0
// For tests: a job whose model says which samples were used, and how often.
//
// Every sample has parameters of its own; each use adds 1 to them (divided by the number of pushes
// that make one step). So whatever was killed meanwhile, the model itself tells whether a sample
// was lost or used twice.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/testing/server_cluster.h"

namespace starling::worker {

// Gradients that tell which samples were used: sample i's parameters go up by 1 / batch each time
// that it is used with learning rate 1. It keeps what it saw. Confined to one thread, but for
// calls().
class VisitEngine final : public engine::Engine {
 public:
  static constexpr std::int64_t kWidth = 6;  // parameters a sample

  struct Call {
    std::vector<float> parameters;  // of the first of each sample's
    std::vector<std::int64_t> samples;
  };

  // `before` is told the number of each call, from 0, before it is made: it may wait.
  explicit VisitEngine(std::int64_t samples, std::function<void(std::size_t)> before = nullptr)
      : before_(std::move(before)),
        tensors_{{"visits", {samples, kWidth}, 0, samples * kWidth}},
        buckets_{{0, samples * kWidth / 2}, {samples * kWidth / 2, samples * kWidth}},
        parameters_(static_cast<std::size_t>(samples * kWidth)),
        gradients_(parameters_.size()) {}

  std::span<const engine::Tensor> tensors() const override { return tensors_; }
  std::span<float> parameters() override { return parameters_; }
  std::span<float> gradients() override { return gradients_; }
  std::span<const engine::Bucket> buckets() const override { return buckets_; }

  absl::StatusOr<engine::BatchSums> ComputeGradients(std::span<const float> features,
                                                     std::span<const std::int64_t> labels,
                                                     const OnBucket& on_bucket) override {
    if (before_) before_(calls().size());
    std::ranges::fill(gradients_, 0.0F);
    Call call;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const auto sample = static_cast<std::size_t>(features[i]);
      call.samples.push_back(static_cast<std::int64_t>(sample));
      for (std::size_t k = 0; k < kWidth; ++k) gradients_[sample * kWidth + k] -= 1;
    }
    for (std::size_t i = 0; i < parameters_.size(); i += kWidth) {
      call.parameters.push_back(parameters_[i]);
    }
    {
      const sync::MutexLock lock(mutex_);
      calls_.push_back(std::move(call));
    }
    on_bucket(0);
    on_bucket(1);
    return engine::BatchSums{.loss = static_cast<double>(labels.size()), .correct = 0};
  }
  absl::StatusOr<engine::BatchSums> Evaluate(std::span<const float> /*features*/,
                                             std::span<const std::int64_t> labels) override {
    engine::BatchSums sums;
    for (const float value : parameters_) sums.loss -= static_cast<double>(value);
    sums.correct = static_cast<std::int64_t>(labels.size());
    return sums;
  }
  std::vector<Call> calls() const {
    const sync::MutexLock lock(mutex_);
    return calls_;
  }

 private:
  const std::function<void(std::size_t)> before_;
  const std::vector<engine::Tensor> tensors_;
  const std::vector<engine::Bucket> buckets_;
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  mutable sync::Mutex mutex_;
  std::vector<Call> calls_ ABSL_GUARDED_BY(mutex_);
};

inline constexpr std::int64_t kSamples = 1600;
inline constexpr std::int64_t kBatch = 16;
inline constexpr std::int64_t kPerEpoch = kSamples / kBatch;

inline v1alpha1::TrainingJobSpec VisitJob(std::int64_t epochs) {
  v1alpha1::TrainingJobSpec spec;
  spec.set_seed(7);
  spec.mutable_dataset()->set_global_batch_size(kBatch);
  spec.mutable_dataset()->set_audit_use(true);
  // The mean of a batch is 1 / kBatch for each of its samples.
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(kBatch);
  spec.mutable_stop()->set_epochs(epochs);
  spec.mutable_checkpoint()->set_keep(3);
  v1alpha1::ParameterServer& server = *spec.mutable_exchange()->mutable_parameter_server();
  server.set_replication(2);
  server.mutable_consistency()->mutable_asynchronous();
  return spec;
}

inline v1alpha1::Consistency& ModelOf(v1alpha1::TrainingJobSpec& spec) {
  return *spec.mutable_exchange()->mutable_parameter_server()->mutable_consistency();
}

inline data::Datasets VisitData() {
  data::Datasets datasets;
  for (std::int64_t i = 0; i < kSamples; ++i) {
    datasets.train.features.push_back(static_cast<float>(i));
    datasets.train.labels.push_back(0);
  }
  datasets.train.shape = {1};
  datasets.train.classes = 2;
  datasets.digest = "0123456789abcdef0123456789abcdef";
  return datasets;
}

inline std::unique_ptr<engine::Engine> NewVisitEngine(int /*worker*/) {
  return std::make_unique<VisitEngine>(kSamples);
}

// Three workers and three servers, of which some die and come back on the way; a job of ten epochs.
inline v1alpha1::Result TrainThroughDeaths(ServerCluster& cluster) {
  cluster.AddServers(3);
  cluster.AddWorkers(3);
  EXPECT_TRUE(cluster.AwaitSettled(50));
  cluster.Kill(ServerCluster::WorkerUid(1));
  EXPECT_TRUE(cluster.AwaitSettled(250));
  cluster.Kill(ServerCluster::ServerUid(1));
  cluster.Restart(ServerCluster::WorkerUid(1));
  EXPECT_TRUE(cluster.AwaitSettled(450));
  cluster.Kill(ServerCluster::WorkerUid(0));
  return cluster.AwaitResult();
}

class ClientWorkerTest : public ::testing::Test {
 protected:
  std::string NewJobDir() {
    std::string path =
        absl::StrCat(::testing::TempDir(), "client_worker_test_", getpid(), "_", folders_.size());
    std::filesystem::create_directories(path);
    folders_.push_back(path);
    return path;
  }
  ~ClientWorkerTest() override {
    for (const std::string& folder : folders_) std::filesystem::remove_all(folder);
  }

  // A tensor of the model that training ended with.
  static std::vector<float> TensorOf(const v1alpha1::Result& result, const std::string& name) {
    std::ifstream file(result.model().uri().substr(std::string("file://").size()),
                       std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    const std::string bytes = text.str();
    const absl::StatusOr<checkpoint::Decoded> model =
        checkpoint::Decode(std::as_bytes(std::span(bytes)));
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return {};
    const auto values = model->Find(name)->Floats();
    return {values.begin(), values.end()};
  }
  // How often each sample was used, as the model says.
  static std::vector<float> VisitsOf(const v1alpha1::Result& result) {
    const std::vector<float> values = TensorOf(result, "visits");
    std::vector<float> visits;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i % VisitEngine::kWidth == 0) visits.push_back(values[i]);
      EXPECT_EQ(values[i], visits.back());
    }
    return visits;
  }
  static std::vector<std::string> LinesOf(const std::string& path) {
    std::ifstream file(path);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  std::vector<std::string> folders_;
};

}  // namespace starling::worker
