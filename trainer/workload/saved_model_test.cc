// SPDX-License-Identifier: Apache-2.0
// What a model file says of itself, when it is true and when it is forged; that models compute what
// their jobs did is shown in tests/e2e/examples_test.py.
#include "trainer/workload/saved_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/testing/test_files.h"

namespace starling::workload {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Metadata = std::map<std::string, std::string>;

Metadata OfImages() {
  return {{"starling.workload", "classification"},
          {"starling.model", R"({"layers": [{"flatten": {}}, {"dense": {}}]})"},
          {"starling.inputShape", "1,2,2"},
          {"starling.classes", "3"},
          {"starling.normalization.mean", "1,2,3,4"},
          {"starling.normalization.std", "1,1,1,0.5"}};
}

Metadata OfText() {
  return {{"starling.workload", "languageModel"},
          {"starling.model", R"({"transformer": {"blocks": 1, "width": 4, "heads": 2}})"},
          {"starling.contextLength", "5"},
          {"starling.alphabet", "97,98,8364"}};
}

TEST(ReadDescription, GivesTheNetworkBack) {
  const auto images = ReadDescription(OfImages());
  ASSERT_TRUE(images.ok()) << images.status();
  EXPECT_FALSE(images->language);
  EXPECT_EQ(images->classes, 3);
  EXPECT_THAT(images->config.network.parameters[0].shape, ElementsAre(3, 4));
  EXPECT_THAT(images->normalization->std, ElementsAre(1, 1, 1, 0.5));
  const auto text = ReadDescription(OfText());
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_TRUE(text->language);
  EXPECT_EQ(text->config.network.places, 5);
  EXPECT_EQ(text->alphabet.Decode(2), "\xE2\x82\xAC");
}

TEST(ReadDescription, RefusesWhatIsMissingOrCannotBe) {
  const auto refused = [](Metadata metadata, const std::string& name, const std::string& value) {
    metadata["starling." + name] = value;
    const auto read = ReadDescription(metadata);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << name << " " << value;
    EXPECT_THAT(std::string(read.status().message()), HasSubstr("starling.")) << value;
  };
  for (const Metadata& whole : {OfImages(), OfText()}) {
    for (const auto& [key, value] : whole) {
      Metadata without = whole;
      without.erase(key);
      const auto read = ReadDescription(without);
      if (key == "starling.normalization.mean") continue;  // not every job scales its data
      EXPECT_THAT(std::string(read.status().message()), StartsWith("does not say its " + key));
    }
    for (const char* model : {"", "{}", "[1]", R"({"layers": []})", R"({"resnet18": {}})",
                              R"({"layers": [{"dense": {"units": 7}}]})",
                              R"({"layers": [{"dense": {"units": -1}}]})", R"({"unheard": {}})"}) {
      refused(whole, "model", model);
    }
    refused(whole, "workload", "linearRegression");
  }
  for (const char* shape : {"", "0", "-1", "1,,2", "a", "1,1,1,1,1", "65536,65536",
                            "9223372036854775807,9223372036854775807"}) {
    refused(OfImages(), "inputShape", shape);
  }
  for (const char* classes : {"", "0", "-3", "65537", "3.5"}) {
    refused(OfImages(), "classes", classes);
  }
  for (const char* scale : {"", "1,2", "1,2,3,nan", "1,2,3,inf", "x"}) {
    refused(OfImages(), "normalization.mean", scale);
  }
  refused(OfImages(), "normalization.std", "1,1,1,0");
  for (const char* context : {"0", "65537", ""}) refused(OfText(), "contextLength", context);
  for (const char* alphabet : {"", "98,97", "1114112"}) refused(OfText(), "alphabet", alphabet);
}

TEST(SavedModel, AFileThatIsNoneIsRefusedByName) {
  const data::TestFolder folder;
  const auto open = [&](const std::string& content) {
    const auto opened = SavedModel::Open(folder.Write("model", content), "--model");
    EXPECT_FALSE(opened.ok());
    return std::string(opened.status().message());
  };
  EXPECT_THAT(open("no tensors at all"), StartsWith("--model: /"));
  const std::vector<float> values = {1};
  const std::vector<checkpoint::TensorView> tensors = {checkpoint::MakeView("a", {1}, values)};
  EXPECT_THAT(open(*checkpoint::Encode(tensors, {})),
              HasSubstr("model: does not say its starling.workload; give the model file of"));
  Metadata large = OfText();
  large["starling.model"] = R"({"transformer": {"blocks": 8, "width": 2048}})";
  EXPECT_THAT(open(*checkpoint::Encode(tensors, large)), HasSubstr("says a larger network"));
  EXPECT_EQ(SavedModel::Open(folder.path() + "/none", "--model").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace starling::workload
