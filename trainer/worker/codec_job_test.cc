// SPDX-License-Identifier: Apache-2.0
// Whole jobs whose updates travel encoded (spec.compression): so many bytes less, and a model that
// is as good. Sparse models are in filters_job_test and kkt_job_test.
#include <algorithm>
#include <cmath>

#include "trainer/kernels/span_math.h"
#include "trainer/testing/visit_job.h"
#include "trainer/testing/waves.h"
#include "trainer/testing/worker_cluster.h"

namespace starling::worker {
namespace {

using ::testing::SizeIs;

void Compress(v1alpha1::TrainingJobSpec& spec, const std::string& codec, bool error_feedback) {
  v1alpha1::Codec& chosen = *spec.mutable_compression()->mutable_codec();
  const auto* field = chosen.GetDescriptor()->FindFieldByCamelcaseName(codec);
  ASSERT_NE(field, nullptr) << codec;
  (void)chosen.GetReflection()->MutableMessage(&chosen, field);
  spec.mutable_compression()->set_error_feedback(error_feedback);
}

// The length of a - b beside that of b.
double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, length = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(double{a[i]} - double{b[i]}, 2);
    length += double{b[i]} * double{b[i]};
  }
  return std::sqrt(difference / length);
}

// Allreduce. --------------------------------------------------------------------------------------

class EncodedAllReduceJobTest : public ClientWorkerTest {
 protected:
  static constexpr std::int64_t kSteps = 200;
  static constexpr double kParameters = 16;

  static v1alpha1::TrainingJobSpec Job(const std::string& codec, bool error_feedback) {
    v1alpha1::TrainingJobSpec spec = TinyJob(kSteps);
    spec.set_reproducible(false);
    spec.mutable_exchange()->mutable_all_reduce()->set_algorithm(
        v1alpha1::ALL_REDUCE_ALGORITHM_RING);
    spec.mutable_experiment()->clear_step_delay();
    Compress(spec, codec, error_feedback);
    return spec;
  }
  struct Outcome {
    std::vector<float> weight;
    double accuracy = 0;
    double sent = 0;  // bytes, by the first of two workers
  };
  static Outcome OutcomeOf(Cluster& cluster, int worker) {
    EXPECT_NE(cluster.AwaitModel(worker), "");
    const v1alpha1::Result result = cluster.TrainingOf(worker).result();
    return {TensorOf(result, "weight"), result.metrics().at("validation/accuracy"),
            static_cast<double>(cluster.TrafficOf(worker).payload_sent)};
  }
  Outcome Trained(const std::string& codec, bool error_feedback) {
    Cluster cluster(Job(codec, error_feedback), NewJobDir());
    cluster.PublishNow({cluster.Add(), cluster.Add()});
    return OutcomeOf(cluster, 0);
  }
};

TEST_F(EncodedAllReduceJobTest, TrainsTheSameModelWithHalfTheBytesOfGradients) {
  const Outcome whole = Trained("identity", false);
  EXPECT_GT(whole.accuracy, 0.5) << "it does learn: one of four classes is 0.25";
  // Of two workers each sends half of its gradients and half of the sums.
  const double saved = kSteps * kParameters * (4 - 2);
  for (const bool feedback : {false, true}) {
    const Outcome half = Trained("float16", feedback);
    EXPECT_NE(half.weight, whole.weight);
    EXPECT_LT(Distance(half.weight, whole.weight), 0.002);
    EXPECT_NEAR(half.accuracy, whole.accuracy, 0.021) << "one of fifty samples";
    EXPECT_NEAR(whole.sent - half.sent, saved, 0.02 * saved);
    RecordProperty("bytes_whole", static_cast<int>(whole.sent));
    RecordProperty("bytes_half", static_cast<int>(half.sent));
  }
  EXPECT_LT(Distance(Trained("bfloat16", true).weight, whole.weight), 0.02);
}

// One dies, and the last of its low bits with it; another joins, and begins with none.
TEST_F(EncodedAllReduceJobTest, WithErrorFeedbackItSurvivesAKillAndTakesAJoiner) {
  v1alpha1::TrainingJobSpec spec = Job("bfloat16", true);
  spec.mutable_experiment()->mutable_step_delay()->set_nanos(1'000'000);
  const std::string folder = NewJobDir();
  Cluster cluster(spec, folder);
  cluster.PublishNow({cluster.Add(), cluster.Add(), cluster.Add()});
  ASSERT_TRUE(cluster.AwaitStep(0, 30));
  cluster.Crash(1);
  cluster.PublishNow({0, 2});
  ASSERT_TRUE(cluster.AwaitStep(0, 70));
  const int joiner = cluster.Add();
  cluster.PublishAtBoundary({0, 2, joiner});
  const Outcome outcome = OutcomeOf(cluster, 0);
  EXPECT_LT(Distance(outcome.weight, Trained("identity", false).weight), 0.02);
  EXPECT_THAT(LinesOf(folder + "/audit/steps.jsonl"), SizeIs(kSteps));
}

// All die, and the job goes on from a checkpoint that holds the residual of whoever wrote it.
TEST_F(EncodedAllReduceJobTest, ACheckpointHoldsTheResidual) {
  v1alpha1::TrainingJobSpec spec = Job("bfloat16", true);
  spec.mutable_experiment()->mutable_step_delay()->set_nanos(1'000'000);
  const std::string folder = NewJobDir();
  {
    Cluster cluster(spec, folder);
    cluster.PublishNow({cluster.Add(), cluster.Add()});
    ASSERT_TRUE(cluster.AwaitStep(0, 20));
    cluster.AskForCheckpoint();
    ASSERT_TRUE(cluster.Await([&] { return cluster.ReportOf(0).checkpoint_turn == 1; }));
    cluster.Crash(0);
    cluster.Crash(1);
  }
  Cluster cluster(spec, folder);
  cluster.SetIncarnation(2);
  cluster.PublishNow({cluster.Add(), cluster.Add()}, /*restore=*/true);
  EXPECT_LT(Distance(OutcomeOf(cluster, 0).weight, Trained("identity", false).weight), 0.02);

  Cluster other(Job("identity", false), folder);
  other.SetIncarnation(3);
  other.PublishNow({other.Add()}, /*restore=*/true);
  ASSERT_TRUE(other.AwaitEnd(0));
  EXPECT_THAT(other.TrainingOf(0).failure(), ::testing::HasSubstr("exchange/residual"))
      << "a job without error feedback cannot go on from it";
}

// Codecs that encode tensors: 2 classes of bytes, those of the bias, which travels as it is, and
// those of the weight's rows.
class TensorCodecJobTest : public ClientWorkerTest,
                           public ::testing::WithParamInterface<const char*> {
 protected:
  static constexpr std::int64_t kSteps = 300, kWide = 200, kLabels = 8;
  static constexpr std::int64_t kNumbers = kWide * kLabels + kLabels;

  static v1alpha1::TrainingJobSpec Job(const std::string& codec) {
    v1alpha1::TrainingJobSpec spec = TinyJob(kSteps);
    spec.set_reproducible(false);
    for (auto* data :
         {spec.mutable_dataset()->mutable_train(), spec.mutable_dataset()->mutable_validation()}) {
      data->mutable_synthetic()->set_shape(0, kWide);
      data->mutable_synthetic()->set_classes(kLabels);
      data->mutable_synthetic()->set_samples(400);
    }
    spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(0.02);
    spec.mutable_optimizer()->mutable_sgd()->set_momentum(0);
    const std::string name = codec.substr(0, codec.find('.'));
    Compress(spec, name, name != "ternGrad" && name != "identity");
    // Of 1,600 numbers a thousandth is one.
    v1alpha1::Codec& chosen = *spec.mutable_compression()->mutable_codec();
    if (chosen.has_deep_gradient_compression()) {
      chosen.mutable_deep_gradient_compression()->set_density(0.02);
    }
    if (chosen.has_entropy_top_k()) chosen.mutable_entropy_top_k()->set_density(0.02);
    if (codec == "int8.sharedScale") chosen.mutable_int8()->set_shared_scale(true);
    if (codec == "ternGrad.sharedScale") chosen.mutable_tern_grad()->set_shared_scale(true);
    return spec;
  }
  static Cluster::MakeWorkload WorkloadOf(const v1alpha1::TrainingJobSpec& spec) {
    return [spec](const std::string& numeric_identity) {
      return std::make_unique<workload::Classification>(
          *data::LoadDatasets(spec), std::make_unique<TinyEngine>(kWide, kLabels, 7),
          numeric_identity);
    };
  }
  struct Outcome {
    double accuracy = 0;
    double sent = 0, dense = 0;
    std::size_t audited = 0;
    v1alpha1::ExchangePath path;
  };
  Outcome OutcomeOf(Cluster& cluster, const std::string& folder) {
    EXPECT_NE(cluster.AwaitModel(0), "");
    const v1alpha1::Progress progress = cluster.TrainingOf(0).progress();
    const auto& metrics = progress.metrics();
    Outcome outcome{cluster.TrainingOf(0).result().metrics().at("validation/accuracy"),
                    metrics.at("exchange/sentBytes"),
                    metrics.at("exchange/denseBytes"),
                    LinesOf(folder + "/audit/steps.jsonl").size(),
                    {}};
    EXPECT_EQ(progress.exchanges_size(), 1);
    if (progress.exchanges_size() == 1) outcome.path = progress.exchanges(0);
    return outcome;
  }
  Outcome Trained(const std::string& codec) {
    v1alpha1::TrainingJobSpec spec = Job(codec);
    spec.mutable_experiment()->clear_step_delay();
    const std::string folder = NewJobDir();
    Cluster cluster(spec, folder, WorkloadOf(spec));
    cluster.PublishNow({cluster.Add(), cluster.Add()});
    return OutcomeOf(cluster, folder);
  }
  // Floats of two ranks' ring.
  static constexpr double kDense = kSteps * kNumbers * 4.0;
};
INSTANTIATE_TEST_SUITE_P(Each, TensorCodecJobTest,
                         ::testing::Values("oneBit", "topK", "ternGrad", "int8", "threshold",
                                           "deepGradientCompression", "sparseBinary", "entropyTopK",
                                           "logarithmic", "int8.sharedScale",
                                           "ternGrad.sharedScale"));

TEST_P(TensorCodecJobTest, LearnsAsWellWithFewerBytesOverAllReduce) {
  const Outcome whole = Trained("identity"), coded = Trained(GetParam());
  EXPECT_EQ(whole.dense, kDense);
  EXPECT_EQ(whole.sent, kDense);
  EXPECT_EQ(coded.dense, kDense);
  for (const Outcome& one : {whole, coded}) {
    EXPECT_EQ(one.path.exchange(), "allReduce");
    EXPECT_NE(one.path.transport(), "");
    EXPECT_NE(one.path.reason(), "");
  }
  const bool in_levels = std::string_view(GetParam()).ends_with(".sharedScale");
  EXPECT_THAT(coded.path.algorithm(), in_levels ? ::testing::AnyOf("InLevels", "InLevels")
                                                : ::testing::AnyOf("ByOwners", "ToAll"));
  EXPECT_THAT(whole.path.algorithm(), ::testing::Not(::testing::AnyOf("", "ByOwners", "ToAll")));
  EXPECT_GT(whole.accuracy, 0.5) << "one of eight classes is 0.125";
  EXPECT_GT(coded.accuracy, whole.accuracy - 0.06);
  EXPECT_LT(coded.sent, 0.3 * coded.dense);
  if (std::string(GetParam()) == "oneBit") {
    // A share and a sum: half of the bias, and four rows of the weight, which are 7 words each.
    EXPECT_EQ(coded.sent, kSteps * 2 * ((16 + 4 * 4) + (16 + 4 * (8 + 4 * 7))));
  }
  if (in_levels) {
    // The same numbers: 8 bits there and 9 back, or 2 and 3; and the scales of four pieces.
    const bool bytes = std::string_view(GetParam()).starts_with("int8");
    const std::int64_t weight = bytes ? 800 + 900 : 200 + 300;
    EXPECT_EQ(coded.sent, kSteps * (2 * (16 + 4 * 4) + 2 * (16 + 4) + weight + 4 * 4));
  }
  RecordProperty("accuracy", std::to_string(coded.accuracy));
  RecordProperty("sent", std::to_string(coded.sent / coded.dense));
}

// One dies, and what it had kept with it; another joins, and begins with nothing kept.
TEST_P(TensorCodecJobTest, SurvivesAKillAndTakesAJoiner) {
  const std::string folder = NewJobDir();
  Cluster cluster(Job(GetParam()), folder, WorkloadOf(Job(GetParam())));
  cluster.PublishNow({cluster.Add(), cluster.Add(), cluster.Add()});
  ASSERT_TRUE(cluster.AwaitStep(0, 30));
  cluster.Crash(1);
  cluster.PublishNow({0, 2});
  ASSERT_TRUE(cluster.AwaitStep(0, 70));
  const int joiner = cluster.Add();
  cluster.PublishAtBoundary({0, 2, joiner});
  const Outcome outcome = OutcomeOf(cluster, folder);
  EXPECT_EQ(outcome.audited, static_cast<std::size_t>(kSteps));
  EXPECT_GT(outcome.accuracy, Trained("identity").accuracy - 0.06);
}

// Servers. ----------------------------------------------------------------------------------------

// Uses of samples, each a gradient that half precision takes for 0.
class ShrunkVisits final : public engine::Engine {
 public:
  static constexpr float kShrink = 0x1p-23F;  // of 1/16, the mean of a batch: 2^-27

  std::span<const engine::Tensor> tensors() const override { return inner_.tensors(); }
  std::span<float> parameters() override { return inner_.parameters(); }
  std::span<float> gradients() override { return inner_.gradients(); }
  std::span<const engine::Bucket> buckets() const override { return inner_.buckets(); }
  absl::StatusOr<engine::BatchSums> ComputeGradients(std::span<const float> features,
                                                     std::span<const std::int64_t> labels,
                                                     const OnBucket& on_bucket) override {
    return inner_.ComputeGradients(features, labels, [&](std::int64_t bucket) {
      if (bucket == 0) kernels::Scale(kShrink, inner_.gradients());
      on_bucket(bucket);
    });
  }
  absl::StatusOr<engine::BatchSums> Evaluate(std::span<const float> features,
                                             std::span<const std::int64_t> labels) override {
    return inner_.Evaluate(features, labels);
  }

 private:
  VisitEngine inner_{kSamples};
};

constexpr std::int64_t kInputs = 512, kClasses = 32, kRows = 400;

class EncodedServersJobTest : public ClientWorkerTest {
 protected:
  static constexpr std::int64_t kPush = 4, kPushes = 2 * kRows / kPush;  // in two epochs
  static constexpr double kParameters = kInputs * kClasses + kClasses;

  static v1alpha1::TrainingJobSpec Job(const std::string& codec, bool error_feedback) {
    v1alpha1::TrainingJobSpec spec = VisitJob(2);
    spec.mutable_dataset()->set_global_batch_size(kPush);
    spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(0.05);
    spec.mutable_exchange()->mutable_parameter_server()->set_replication(1);
    spec.mutable_exchange()->mutable_parameter_server()->set_shards(4);
    Compress(spec, codec, error_feedback);
    return spec;
  }
  struct Outcome {
    std::vector<float> weight;
    double sent = 0, received = 0;  // bytes, by the worker
  };
  static std::unique_ptr<engine::Engine> NewEngine(int /*worker*/) {
    return std::make_unique<TinyEngine>(kInputs, kClasses, 7);
  }
  // One worker, so that nobody's order matters.
  Outcome Trained(const v1alpha1::TrainingJobSpec& spec) {
    ServerCluster cluster(spec, Waves(kInputs, kClasses, kRows), NewEngine, NewJobDir());
    cluster.AddServers(2);
    cluster.AddWorkers(1);
    const v1alpha1::Result result = cluster.AwaitResult();
    EXPECT_EQ(result.steps(), kPushes);
    const transport::Traffic traffic = cluster.TrafficOf(ServerCluster::WorkerUid(0));
    return {TensorOf(result, "weight"), static_cast<double>(traffic.payload_sent),
            static_cast<double>(traffic.payload_received)};
  }
};

TEST_F(EncodedServersJobTest, TrainADenseModelAsWellWithHalfTheBytesBothWays) {
  const Outcome whole = Trained(Job("identity", false));
  const double saved = kPushes * kParameters * (4 - 2);
  for (const bool feedback : {false, true}) {
    const Outcome half = Trained(Job("float16", feedback));
    EXPECT_NE(half.weight, whole.weight);
    EXPECT_LT(Distance(half.weight, whole.weight), 1e-3);
    // First values travel whole, and so does the model at the end.
    EXPECT_NEAR(whole.sent - half.sent, saved, 0.02 * saved);
    EXPECT_NEAR(whole.received - half.received, saved, 0.02 * saved);
    RecordProperty("bytes_sent_whole", static_cast<int>(whole.sent));
    RecordProperty("bytes_sent_half", static_cast<int>(half.sent));
  }
  EXPECT_LT(Distance(Trained(Job("bfloat16", true)).weight, whole.weight), 0.01);
}

// What goes down a chain is what was received; a promoted server has decoded the same numbers.
TEST_F(EncodedServersJobTest, SurviveTheHeadsOfTheirChainsAndTheirWorkers) {
  v1alpha1::TrainingJobSpec spec = Job("float16", true);
  const Outcome undisturbed = Trained(spec);
  spec.mutable_exchange()->mutable_parameter_server()->set_replication(2);
  const std::string folder = NewJobDir();
  ServerCluster cluster(spec, Waves(kInputs, kClasses, kRows), NewEngine, folder);
  cluster.AddServers(2);
  cluster.AddWorkers(2);
  ASSERT_TRUE(cluster.AwaitSettled(kPushes / 4));
  cluster.Kill(ServerCluster::ServerUid(0));
  ASSERT_TRUE(cluster.AwaitSettled(kPushes / 2));
  cluster.Kill(ServerCluster::WorkerUid(1));
  const v1alpha1::Result result = cluster.AwaitResult();
  EXPECT_EQ(result.steps(), kPushes);
  EXPECT_THAT(LinesOf(folder + "/audit/steps.jsonl"), SizeIs(kPushes));
  EXPECT_LT(Distance(TensorOf(result, "weight"), undisturbed.weight), 0.1)
      << "two workers' updates come in another order";
}

// Factors travel encoded as well; sums over a group are encoded as their parts are.
TEST_F(EncodedServersJobTest, GoWithActivationsAndWithTrees) {
  v1alpha1::TrainingJobSpec factored = Job("float16", false);
  const Outcome plain = Trained(factored);
  factored.mutable_update()->mutable_activations();
  const Outcome products = Trained(factored);
  EXPECT_LT(products.sent, plain.sent);
  EXPECT_LT(Distance(products.weight, plain.weight), 0.01);

  double sent[2] = {};
  for (const bool half : {false, true}) {
    v1alpha1::TrainingJobSpec spec = Job(half ? "float16" : "identity", false);
    spec.mutable_exchange()
        ->mutable_parameter_server()
        ->mutable_topology()
        ->mutable_tree()
        ->set_fanout(2);
    ModelOf(spec).mutable_bulk_synchronous();
    spec.mutable_dataset()->set_global_batch_size(80);
    ServerCluster cluster(spec, Waves(kInputs, kClasses, kRows), NewEngine, NewJobDir());
    cluster.AddServers(2);
    cluster.AddWorkers(2);
    EXPECT_EQ(cluster.AwaitResult().steps(), 10);
    for (const int worker : {0, 1})
      sent[half ? 1 : 0] += static_cast<double>(cluster.SentBy(worker));
  }
  EXPECT_LT(sent[1], 0.75 * sent[0]);
}

// Codecs that encode tensors: pushes are encoded, what is read is not.
TEST_F(EncodedServersJobTest, LearnByCodecsThatEncodeTensors) {
  const Outcome whole = Trained(Job("identity", false));
  const std::vector<float> first = [] {
    TinyEngine engine(kInputs, kClasses, 7);
    return std::vector<float>(engine.parameters().begin() + kClasses, engine.parameters().end());
  }();
  const double way = Distance(first, whole.weight);
  for (const char* codec :
       {"oneBit", "topK", "ternGrad", "int8", "threshold", "deepGradientCompression",
        "sparseBinary", "entropyTopK", "logarithmic"}) {
    v1alpha1::TrainingJobSpec spec = Job(codec, std::string(codec) != "ternGrad");
    v1alpha1::Codec& chosen = *spec.mutable_compression()->mutable_codec();
    if (chosen.has_deep_gradient_compression()) {
      chosen.mutable_deep_gradient_compression()->set_density(0.05);
      chosen.mutable_deep_gradient_compression()->set_momentum(0);
    }
    if (chosen.has_entropy_top_k()) {
      chosen.mutable_entropy_top_k()->set_density(0.05);
      chosen.mutable_entropy_top_k()->set_momentum(0);
    }
    const Outcome coded = Trained(spec);
    EXPECT_LT(Distance(coded.weight, whole.weight), 0.5 * way) << codec;
    EXPECT_LT(coded.sent, 0.4 * whole.sent) << codec;
    EXPECT_NEAR(coded.received, whole.received, 0.02 * whole.received) << codec;
  }
}

// The control: gradients too small for half precision. Without error feedback they are lost, and
// the model stays where it was; with it they arrive when they have added up.
TEST_F(EncodedServersJobTest, WhatIsTooSmallForTheFormatArrivesWithErrorFeedbackAlone) {
  const auto counted = [&](bool feedback) {
    v1alpha1::TrainingJobSpec spec = VisitJob(8);
    // Each sample is used eight times: eight times 2^-27 is 2^-24, the smallest float16.
    spec.mutable_exchange()->mutable_parameter_server()->set_replication(1);
    Compress(spec, "float16", feedback);
    ServerCluster cluster(
        spec, VisitData(), [](int) { return std::make_unique<ShrunkVisits>(); }, NewJobDir());
    cluster.AddServers(1);
    cluster.AddWorkers(1);
    const std::vector<float> visits = VisitsOf(cluster.AwaitResult());
    double sum = 0;
    for (const float one : visits) sum += double{one};
    return sum / static_cast<double>(visits.size());
  };
  EXPECT_EQ(counted(false), 0);
  EXPECT_GT(counted(true), 0);
}

}  // namespace
}  // namespace starling::worker
