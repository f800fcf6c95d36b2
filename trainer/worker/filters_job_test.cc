// SPDX-License-Identifier: Apache-2.0
// What is left out of the messages of sparse jobs (parameter_server/filters.h): so many bytes less
// travel, control included, and the model is what it would be without.
#include <cstring>
#include <thread>

#include "trainer/optimizer/server_rules.h"
#include "trainer/sparse/logistic_engine.h"
#include "trainer/testing/sparse_job.h"
#include "trainer/testing/transports.h"
#include "trainer/worker/slot_pipe.h"

namespace starling::worker {
namespace {

using ::testing::Each;
using ::testing::SizeIs;
using transport::testing::Soon;

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
    ServerFlock flock(spec, VisitData(), NewCountEngine, NewJobDir());
    flock.AddServers(servers);
    flock.AddWorkers(1);
    const v1alpha1::Result result = flock.AwaitResult();
    EXPECT_EQ(result.steps(), kLeases);
    ExpectEachSampleCounted(result, kEpochs);
    return flock.TrafficOf(ServerFlock::WorkerUid(0));
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
  ServerFlock flock(HogwildJob(10, 2), VisitData(), NewCountEngine, NewJobDir());
  flock.AddServers(2);
  flock.AddWorkers(2);
  ASSERT_TRUE(flock.AwaitSettled(50));
  flock.Kill(ServerFlock::ServerUid(0));
  ASSERT_TRUE(flock.AwaitSettled(250));
  flock.Restart(ServerFlock::ServerUid(0));
  ASSERT_TRUE(flock.AwaitSettled(500));
  flock.Kill(ServerFlock::ServerUid(1));
  ASSERT_TRUE(flock.AwaitSettled(700));
  flock.Kill(ServerFlock::WorkerUid(0));
  ExpectEachSampleCounted(flock.AwaitResult(), 10);
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
  v1alpha1::Result Trained(const v1alpha1::TrainingJobSpec& spec) {
    data::Datasets datasets = DatasetsOf(samples_);
    if (validated_ > 0) {
      datasets.validation->features.resize(validated_);
      datasets.validation->labels.resize(validated_);
    }
    ServerFlock flock(
        spec, datasets,
        [this](int) { return std::make_unique<sparse::LogisticEngine>(samples_, 0); }, NewJobDir());
    flock.AddServers(2);
    flock.AddWorkers(1);
    v1alpha1::Result result = flock.AwaitResult();
    received_ = flock.TrafficOf(ServerFlock::WorkerUid(0)).payload_received;
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

// One server and one worker's pipe, without a job around them.
class PipeTest : public ::testing::Test {
 protected:
  static constexpr int kRounds = 20;

  // Reads five rows and adds one to each, twenty times; what the server was sent meanwhile.
  parameter_server::ServerCounts CountsWith(std::size_t kept_keys) {
    transport::testing::Members members(transport::testing::Kind::kInproc, 2);
    const auto meshes = members.OpenAll(1);
    const parameter_server::Ranks ranks = {{"server", 0}, {"worker", 0}};
    auto table = std::make_shared<parameter_server::TableSpec>();
    table->kind = parameter_server::TableKind::kSparse;
    table->rule = optimizer::MakeAdd();
    parameter_server::SlotView view;
    view.group.epoch = 1;
    view.group.members.push_back(ranks[0]);
    view.clients = {{ranks[1], 1}};
    const parameter_server::SlotOptions slot{
        table, {0, parameter_server::kHashEnd}, consistency::Asynchronous{}, {}};
    parameter_server::ServerLoop server(ranks[0], {slot}, {}, kept_keys);
    std::thread serving([&] { (void)server.Serve({view}, ranks, *meshes[0]); });
    SlotPipe pipe(ranks[1], 1, {absl::InfiniteDuration(), absl::InfiniteDuration()},
                  /*key_cache=*/true);
    bool ready = false;
    pipe.SetHandlers({nullptr, [&](parameter_server::Clock) { ready = true; }, nullptr});
    pipe.Enter({1, 1, {{ranks[0], ranks[0]}}}, ranks, *meshes[1]);
    EXPECT_TRUE(pipe.Await([&] { return ready; }, Soon()).ok());
    for (int round = 0; round < kRounds; ++round) {
      EXPECT_THAT(Rows(pipe), Each(static_cast<float>(round)));
      Push(pipe, round);
    }
    EXPECT_THAT(Rows(pipe), Each(static_cast<float>(kRounds)));
    pipe.Leave();
    for (const auto& mesh : meshes) mesh->Cancel(absl::AbortedError("the view is over"));
    serving.join();
    return server.counts();
  }

 private:
  std::vector<float> Rows(SlotPipe& pipe) {
    std::vector<float> values;
    parameter_server::Read read;
    read.keys = keys_;
    pipe.Read(0, read, [&](const parameter_server::ReadDone& done) {
      values.resize(done.values->size() / sizeof(float));
      std::memcpy(values.data(), done.values->data(), done.values->size());
    });
    EXPECT_TRUE(pipe.Await([&] { return !values.empty(); }, Soon()).ok());
    EXPECT_THAT(values, SizeIs(keys_.size()));
    return values;
  }
  void Push(SlotPipe& pipe, int round) {
    const std::vector<float> ones(keys_.size(), 1);
    parameter_server::Entry entry;
    entry.clock = round;
    entry.lease = static_cast<parameter_server::Lease>(round) + 2;
    entry.update =
        parameter_server::Encode({parameter_server::UpdateKind::kRows, 0, 0, 0, keys_, ones, {}});
    pipe.Push(0, entry);
    EXPECT_TRUE(pipe.Await([&] { return pipe.unacknowledged(0) == 0; }, Soon()).ok());
  }

  const std::vector<std::uint64_t> keys_ = {3, 9, 27, 81, 243};
};

TEST_F(PipeTest, AServerThatKeepsListsIsToldOnce) {
  const parameter_server::ServerCounts counts = CountsWith(5);
  EXPECT_EQ(counts.pushes, kRounds);
  EXPECT_EQ(counts.reads, kRounds + 1);
}

TEST_F(PipeTest, AListThatAServerDoesNotKeepCostsOneMoreMessageEachTimeAndNothingElse) {
  const parameter_server::ServerCounts counts = CountsWith(4);
  EXPECT_EQ(counts.pushes, 2 * kRounds) << "named, asked for, and listed";
  EXPECT_EQ(counts.reads, 2 * kRounds + 1) << "the first was not named";
}

}  // namespace
}  // namespace starling::worker
