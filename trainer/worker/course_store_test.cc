// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/course_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/testing/transports.h"
#include "trainer/testing/visit_job.h"

namespace starling::worker {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr std::int64_t kMany = 50'000;

TEST(CourseRecord, IsReadBackAsItWasWritten) {
  CourseRecord record;
  record.turn = 7;
  record.ends_training = true;
  record.set = 2;
  record.course.step = 123;
  record.course.validation = {0.25, 0.5};
  record.course.best_step = 100;
  record.course.without_gain = 3;
  const absl::StatusOr<CourseRecord> read = DecodeRecord(EncodeRecord(record));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->turn, 7);
  EXPECT_TRUE(read->ends_training);
  EXPECT_EQ(read->set, 2);
  EXPECT_EQ(read->course.step, 123);
  EXPECT_EQ(read->course.validation, record.course.validation);
  EXPECT_EQ(read->course.best_step, 100);
  EXPECT_EQ(read->course.without_gain, 3);
}

TEST(CourseRecord, NoneIsTheBeginningAndADamagedOneIsRefused) {
  const absl::StatusOr<CourseRecord> none = DecodeRecord("");
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->turn, 0);
  const std::string whole = EncodeRecord({});
  const absl::StatusOr<CourseRecord> cut = DecodeRecord(whole.substr(1));
  EXPECT_TRUE(absl::IsDataLoss(cut.status()));
  EXPECT_THAT(cut.status().message(), HasSubstr("damaged"));
}

TEST(CourseStore, WhereNobodyAnswersTheViewCountsAsEnded) {
  transport::testing::Members members(transport::testing::Kind::kInproc, 2);
  const auto meshes = members.OpenAll(1);
  const parameter_server::Ranks ranks = {{"server", 0}, {"worker", 0}};
  client::ParameterServerClient pipe(ranks[1], 1,
                                     {absl::InfiniteDuration(), absl::InfiniteDuration()});
  pipe.Enter({1, 1, {{ranks[0], ranks[0]}}}, ranks, *meshes[1]);
  CourseStore store(pipe, 0, absl::Milliseconds(5));
  EXPECT_TRUE(absl::IsUnavailable(store.Read().status()));
  const absl::Status written = store.Write({}, {}).status();
  EXPECT_TRUE(absl::IsUnavailable(written)) << written;
  EXPECT_THAT(std::string(written.message()), HasSubstr("have not answered for 5ms"));
  pipe.Leave();
}

// More parameters than one piece holds, kept after each validation, and read back at the end.
TEST(CourseStore, KeepsParametersInPieces) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "course_store_test_", getpid());
  std::filesystem::create_directories(folder);
  v1alpha1::TrainingJobSpec spec;
  spec.set_seed(1);
  spec.mutable_dataset()->set_global_batch_size(5000);
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(5000);
  spec.mutable_stop()->set_epochs(3);
  spec.mutable_validation()->set_every_epochs(1);
  spec.mutable_validation()->set_keep_best(true);
  spec.mutable_exchange()->mutable_parameter_server()->set_replication(1);
  data::Datasets datasets;
  for (std::int64_t i = 0; i < kMany; ++i) {
    datasets.train.features.push_back(static_cast<float>(i));
    datasets.train.labels.push_back(0);
  }
  datasets.train.shape = {1};
  datasets.train.classes = 2;
  datasets.validation = datasets.train;
  datasets.digest = "0123456789abcdef0123456789abcdef";

  ServerCluster cluster(
      spec, datasets, [](int) { return std::make_unique<VisitEngine>(kMany); }, folder);
  cluster.AddServers(2);
  cluster.AddWorkers(1);
  const v1alpha1::Result result = cluster.AwaitResult();

  std::ifstream file(result.model().uri().substr(std::string("file://").size()), std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  const std::string bytes = text.str();
  const absl::StatusOr<checkpoint::Decoded> model =
      checkpoint::Decode(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(model.ok()) << model.status();
  // Its validation's loss falls with every visit: the newest parameters are the best.
  EXPECT_THAT(model->Find("visits")->Floats(), Each(3.0F));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace starling::worker
