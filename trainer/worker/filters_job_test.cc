// SPDX-License-Identifier: Apache-2.0
// What is left out of the messages of sparse jobs (parameter_server/filters.h): so many bytes less
// travel, control included, and the model is what it would be without.
#include "trainer/testing/sparse_job.h"

namespace starling::worker {
namespace {

using ::testing::SizeIs;

class FiltersJobTest : public SparseJobTest {
 protected:
  // Ten epochs of four leases, each of 400 samples: it reads and pushes 401 rows.
  static constexpr std::int64_t kEpochs = 10, kLeases = 40, kRows = 401;

  static v1alpha1::TrainingJobSpec LargeLeases() {
    v1alpha1::TrainingJobSpec spec = HogwildJob(kEpochs, 1);
    spec.mutable_dataset()->set_global_batch_size(400);
    spec.mutable_exchange()->mutable_parameter_server()->set_replication(1);
    return spec;
  }
  // What the worker sent and received, when every sample has been counted once an epoch.
  transport::Traffic TrafficOf(const v1alpha1::TrainingJobSpec& spec, int servers) {
    ServerCluster cluster(spec, NewCountWorkload, NewJobDir());
    cluster.AddServers(servers);
    cluster.AddWorkers(1);
    const v1alpha1::Result result = cluster.AwaitResult();
    EXPECT_EQ(result.steps(), kLeases);
    ExpectEachSampleCounted(result, kEpochs);
    return cluster.TrafficOf(ServerCluster::WorkerUid(0));
  }
  static double Sent(const transport::Traffic& traffic) {
    return static_cast<double>(traffic.payload_sent);
  }
  static double Received(const transport::Traffic& traffic) {
    return static_cast<double>(traffic.payload_received);
  }
};

TEST_F(FiltersJobTest, APushCostsItsRowsEightBytesEachLess) {
  v1alpha1::TrainingJobSpec plain = LargeLeases();
  plain.mutable_compression()->set_key_cache(false);
  const double without = Sent(TrafficOf(plain, 1)), with = Sent(TrafficOf(LargeLeases(), 1));
  RecordProperty("bytes_without", static_cast<int>(without));
  RecordProperty("bytes_with", static_cast<int>(with));
  // Rests and wakings differ from run to run.
  EXPECT_NEAR(without - with, kLeases * kRows * 8, 0.1 * kLeases * kRows * 8);
  EXPECT_GE(with, kLeases * kRows * (8 + 4)) << "each key once, and the values";
}

// Head and tail are different servers: what one was told the other does not know.
TEST_F(FiltersJobTest, WithTwoReplicasBothEndsOfAChainAreTold) {
  v1alpha1::TrainingJobSpec spec = LargeLeases();
  spec.mutable_exchange()->mutable_parameter_server()->set_replication(2);
  EXPECT_GE(Sent(TrafficOf(spec, 2)), kLeases * kRows * (8 + 8 + 4));
}

TEST_F(FiltersJobTest, NarrowValuesTakeHalfTheBytesAndServersAddWhole) {
  v1alpha1::TrainingJobSpec narrow = LargeLeases();
  narrow.mutable_compression()->mutable_codec()->mutable_bfloat16();
  const transport::Traffic wide = TrafficOf(LargeLeases(), 1), half = TrafficOf(narrow, 1);
  constexpr double kSaved = kLeases * kRows * 2;
  EXPECT_NEAR(Sent(wide) - Sent(half), kSaved, 0.3 * kSaved);
  EXPECT_NEAR(Received(wide) - Received(half), kSaved, 0.3 * kSaved);
}

// Each kill leaves chains of one server, whose head and tail know the same lists, and takes those
// that the dead one knew with it.
TEST_F(FiltersJobTest, ServersThatDieTakeTheirListsWithThemAndNothingElse) {
  ServerCluster cluster(HogwildJob(10, 2), NewCountWorkload, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(2);
  ASSERT_TRUE(cluster.AwaitSettled(50));
  cluster.Kill(ServerCluster::ServerUid(0));
  ASSERT_TRUE(cluster.AwaitSettled(250));
  cluster.Restart(ServerCluster::ServerUid(0));
  ASSERT_TRUE(cluster.AwaitSettled(500));
  cluster.Kill(ServerCluster::ServerUid(1));
  ASSERT_TRUE(cluster.AwaitSettled(700));
  cluster.Kill(ServerCluster::WorkerUid(0));
  ExpectEachSampleCounted(cluster.AwaitResult(), 10);
}

class FilteredModelTest : public FiltersJobTest {
 protected:
  // One worker, so that bits do not depend on who is first.
  v1alpha1::TrainingJobSpec LogisticJob(bool bulk) {
    v1alpha1::TrainingJobSpec spec = VisitJob(2);
    spec.mutable_workload()->mutable_sparse_logistic_regression();
    spec.mutable_dataset()->mutable_validation()->mutable_libsvm()->set_uri("in memory here");
    spec.mutable_exchange()->mutable_parameter_server()->set_replication(1);
    spec.mutable_optimizer()->mutable_adagrad()->set_learning_rate(0.1);
    spec.mutable_validation()->set_every_epochs(1);
    if (bulk) {
      ModelOf(spec).mutable_bulk_synchronous();
    } else {
      ModelOf(spec).mutable_asynchronous();
    }
    return spec;
  }
  // The first `count` of the samples; 0: all.
  static std::shared_ptr<const data::SparseDataset> First(const data::SparseDataset& samples,
                                                          std::size_t count) {
    auto first = std::make_shared<data::SparseDataset>(samples);
    if (count == 0) return first;
    first->offsets.resize(count + 1);
    first->features.resize(first->offsets.back());
    first->values.resize(first->offsets.back());
    first->labels.resize(count);
    return first;
  }
  v1alpha1::Result Trained(const v1alpha1::TrainingJobSpec& spec) {
    const auto validation = First(*samples_, validated_);
    ServerCluster cluster(
        spec,
        [&](int) {
          return std::make_unique<workload::SparseLogisticRegression>(samples_, validation, 0);
        },
        NewJobDir());
    cluster.AddServers(2);
    cluster.AddWorkers(1);
    v1alpha1::Result result = cluster.AwaitResult();
    received_ = cluster.TrafficOf(ServerCluster::WorkerUid(0)).payload_received;
    return result;
  }
  const std::shared_ptr<const data::SparseDataset> samples_ = LearnableSamples();
  std::size_t validated_ = 0;   // samples; 0: all
  std::uint64_t received_ = 0;  // by the worker of the job that was trained last
};

TEST_F(FilteredModelTest, IsTheSameToTheBitWhetherRowsAreNamedOrListed) {
  for (const bool bulk : {true, false}) {
    v1alpha1::TrainingJobSpec spec = LogisticJob(bulk);
    const std::vector<float> named = TensorOf(Trained(spec), "weight");
    spec.mutable_compression()->set_key_cache(false);
    EXPECT_THAT(named, SizeIs(2000));
    EXPECT_EQ(named, TensorOf(Trained(spec), "weight")) << (bulk ? "bulk" : "asynchronous");
  }
}

TEST_F(FilteredModelTest, IsAnotherWithNarrowValuesAndAsGood) {
  const v1alpha1::Result wide = Trained(LogisticJob(false));
  const double loss = wide.metrics().at("validation/loss");
  EXPECT_LT(loss, 0.6) << "it does learn: a coin's loss is 0.69";
  for (const bool float16 : {false, true}) {
    for (const bool feedback : {false, true}) {
      v1alpha1::TrainingJobSpec spec = LogisticJob(false);
      v1alpha1::Codec& codec = *spec.mutable_compression()->mutable_codec();
      float16 ? (void)codec.mutable_float16() : (void)codec.mutable_bfloat16();
      spec.mutable_compression()->set_error_feedback(feedback);
      const v1alpha1::Result narrow = Trained(spec);
      EXPECT_NE(TensorOf(narrow, "weight"), TensorOf(wide, "weight"));
      EXPECT_NEAR(narrow.metrics().at("validation/loss"), loss, 0.01 * loss);
    }
  }
}

// With patience a validation may end training, and its parameters are kept: then all are read.
TEST_F(FilteredModelTest, AValidationReadsWhatItsSamplesUseUnlessItsParametersMayBeKept) {
  constexpr std::int64_t kValidated = 5, kUsed = 50;  // of 2000
  validated_ = kValidated;
  v1alpha1::TrainingJobSpec spec = LogisticJob(false);
  spec.mutable_stop()->set_epochs(10);
  const v1alpha1::Result few = Trained(spec);
  const double received = static_cast<double>(received_);
  spec.mutable_validation()->set_patience(1000);
  const v1alpha1::Result all = Trained(spec);
  const double saved = 10 * (2000 - kUsed) * sizeof(float);
  EXPECT_NEAR(static_cast<double>(received_) - received, saved, 0.2 * saved);
  EXPECT_EQ(few.metrics().at("validation/loss"), all.metrics().at("validation/loss"));
  EXPECT_EQ(TensorOf(few, "weight"), TensorOf(all, "weight"));
}

}  // namespace
}  // namespace starling::worker
