// SPDX-License-Identifier: Apache-2.0
#include "trainer/workload/initial_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/bytes/bytes.h"
#include "common/storage/test_folder.h"
#include "trainer/checkpoint/safetensors.h"

namespace starling::workload {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::vector<engine::Tensor> kTensors = {{"bias", {2}, 0, 2}, {"weight", {2, 1}, 2, 2}};

constexpr char kField[] = "spec.workload.classification.initialModel.uri";

class InitialModelFile : public ::testing::Test {
 protected:
  absl::StatusOr<std::string> Read(const std::vector<checkpoint::TensorView>& saved) {
    return ReadFile(*checkpoint::Encode(saved, {}));
  }
  absl::StatusOr<std::string> ReadFile(const std::string& content) {
    return ReadInitialModel({folder_.Write("model.safetensors", content), kField}, kTensors,
                            parameters_);
  }

  const storage::TestFolder folder_;
  const std::vector<float> bias_ = {1, 2};
  const std::vector<float> weight_ = {3, 4};
  std::vector<float> parameters_ = std::vector<float>(4);
};

TEST_F(InitialModelFile, FillsTheTensorsByNameAndLeavesOutWhatTheModelDoesNotHave) {
  const std::vector<std::int64_t> batches = {7};
  const std::vector<checkpoint::TensorView> saved = {
      checkpoint::MakeView("weight", {2, 1}, weight_),
      checkpoint::MakeView("num_batches_tracked", {1}, batches),
      checkpoint::MakeView("bias", {2}, bias_)};

  const auto digest = Read(saved);

  ASSERT_TRUE(digest.ok()) << digest.status();
  EXPECT_THAT(parameters_, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(*digest, bytes::Sha256Hex(*checkpoint::Encode(saved, {})));
}

TEST_F(InitialModelFile, SaysWhatDoesNotFitAndWhere) {
  const auto bias = checkpoint::MakeView("bias", {2}, bias_);
  const std::vector<std::int64_t> whole = {3, 4};
  const auto refused = [&](const std::vector<checkpoint::TensorView>& saved) {
    const auto read = Read(saved);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(read.status().message()), StartsWith(std::string(kField)));
    return std::string(read.status().message());
  };
  EXPECT_THAT(refused({bias}), HasSubstr("has no tensor weight"));
  EXPECT_THAT(refused({bias, checkpoint::MakeView("weight", {1, 2}, weight_)}),
              HasSubstr("has weight of shape [1, 2], but the model's is [2, 1]"));
  EXPECT_THAT(refused({bias, checkpoint::MakeView("weight", {2, 1}, whole)}),
              HasSubstr("has weight as I64; save it as 32-bit floats"));
}

TEST_F(InitialModelFile, RefusesWhatIsNoFileOfTensors) {
  const auto forged = ReadFile("such is no model, however long it is");
  EXPECT_THAT(std::string(forged.status().message()), HasSubstr("is no safetensors file"));
  const auto missing = ReadInitialModel({folder_.path() + "/none", kField}, kTensors, parameters_);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), StartsWith(std::string(kField)));
}

}  // namespace
}  // namespace starling::workload
