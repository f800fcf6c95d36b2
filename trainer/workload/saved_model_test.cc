// SPDX-License-Identifier: Apache-2.0
// What a model file says of itself, when it is true and when it is forged; that models compute what
// their jobs did is shown in tests/e2e/examples_test.py.
#include "trainer/workload/saved_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <span>

#include "absl/strings/str_cat.h"
#include "common/storage/test_folder.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/testing/test_images.h"
#include "trainer/testing/test_tar.h"

namespace starling::workload {
namespace {

using ::testing::AllOf;
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

Metadata OfNumbers() {
  return {{"starling.workload", "regression"},
          {"starling.model", R"({"mlp": {"hidden": [3]}})"},
          {"starling.inputShape", "4"},
          {"starling.outputs", "2"},
          {"starling.outputNames", R"(["height", "a,b"])"},
          {"starling.loss", "Huber"}};
}

Metadata OfRebuilt() {
  return {{"starling.workload", "autoencoder"},
          {"starling.model", R"({"autoencoder": {"hidden": [3, 1]}})"},
          {"starling.inputShape", "2,2"},
          {"starling.loss", "BinaryCrossEntropy"}};
}

TEST(ReadDescription, OfNumbersAndOfWhatIsRebuilt) {
  const auto numbers = ReadDescription(OfNumbers());
  ASSERT_TRUE(numbers.ok()) << numbers.status();
  EXPECT_EQ(numbers->kind, ModelKind::kRegression);
  EXPECT_EQ(numbers->classes, 2);
  EXPECT_THAT(numbers->names, ElementsAre("height", "a,b"));
  EXPECT_EQ(numbers->config.loss, engine::NumberLoss::kHuber);
  const auto rebuilt = ReadDescription(OfRebuilt());
  ASSERT_TRUE(rebuilt.ok()) << rebuilt.status();
  EXPECT_EQ(rebuilt->kind, ModelKind::kAutoencoder);
  EXPECT_EQ(rebuilt->classes, 4);
  EXPECT_EQ(rebuilt->config.network.parameters[0].name, "encoder.0.weight");
  EXPECT_EQ(rebuilt->config.loss, engine::NumberLoss::kBinaryCrossEntropy);
}

TEST(ReadDescription, GivesTheNetworkBack) {
  const auto images = ReadDescription(OfImages());
  ASSERT_TRUE(images.ok()) << images.status();
  EXPECT_EQ(images->kind, ModelKind::kClassification);
  EXPECT_EQ(images->classes, 3);
  EXPECT_THAT(images->config.network.parameters[0].shape, ElementsAre(3, 4));
  EXPECT_THAT(images->normalization->std, ElementsAre(1, 1, 1, 0.5));
  const auto text = ReadDescription(OfText());
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->kind, ModelKind::kLanguageModel);
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
  for (const Metadata& whole : {OfImages(), OfText(), OfNumbers(), OfRebuilt()}) {
    for (const auto& [key, value] : whole) {
      Metadata without = whole;
      without.erase(key);
      const auto read = ReadDescription(without);
      // Not every job scales its data, and not every table has names.
      if (key == "starling.normalization.mean" || key == "starling.outputNames") continue;
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
    refused(OfNumbers(), "outputs", classes);
  }
  for (const char* names : {"", "height", "[]", R"(["a"])", R"(["a", 1])", R"({"a": "b"})"}) {
    refused(OfNumbers(), "outputNames", names);
  }
  for (const char* loss : {"", "Cubic"}) {
    refused(OfNumbers(), "loss", loss);
    refused(OfRebuilt(), "loss", loss);
  }
  for (const char* scale : {"", "1,2", "1,2,3,nan", "1,2,3,inf", "x"}) {
    refused(OfImages(), "normalization.mean", scale);
  }
  refused(OfImages(), "normalization.std", "1,1,1,0");
  for (const char* context : {"0", "65537", ""}) refused(OfText(), "contextLength", context);
  for (const char* alphabet : {"", "98,97", "1114112"}) refused(OfText(), "alphabet", alphabet);
}

TEST(SavedModel, AFileThatIsNoneIsRefusedByName) {
  const storage::TestFolder folder;
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

// --- What a model is given. Nothing is computed, so that no engine is needed.

class GivenSamples : public ::testing::Test {
 protected:
  // Of grey images of 2 by 2, in three classes that have names.
  static ModelDescription Description() {
    Metadata metadata = OfImages();
    metadata["starling.normalization.mean"] = "0.5";
    metadata["starling.normalization.std"] = "0.25";
    metadata["starling.classNames"] = "cat/dog/owl";
    return *ReadDescription(metadata);
  }

  std::string Write(const std::string& name, const std::string& content) {
    std::filesystem::create_directories(
        std::filesystem::path(folder_.path() + "/" + name).parent_path());
    return folder_.Write(name, content);
  }
  // All of its pixels are `value`.
  static std::string Png(std::uint8_t value) {
    return image::PngOf({.size = {.width = 4, .height = 4},
                         .channels = 1,
                         .pixels = std::vector<std::uint8_t>(16, value)});
  }
  void WriteImage(const std::string& name, std::uint8_t value) { Write(name, Png(value)); }
  absl::StatusOr<SavedModel::Samples> Read(const std::string& name, bool labels = false,
                                           const std::string& labels_name = "") {
    return model_.ReadSamples({.uri = folder_.path() + "/" + name,
                               .field = "--data",
                               .labels = labels,
                               .labels_uri = folder_.path() + "/" + labels_name,
                               .labels_field = "--labels"});
  }
  // The first pixel of each sample.
  static std::vector<float> FirstPixels(const SavedModel::Samples& samples) {
    std::vector<float> firsts;
    std::vector<float> features(4);
    std::int64_t label = 0;
    for (std::int64_t i = 0; i < samples.set.size(); ++i) {
      EXPECT_EQ(data::Read(samples.set, std::span(&i, 1), 0, features, std::span(&label, 1)),
                absl::OkStatus());
      firsts.push_back(features[0]);
    }
    return firsts;
  }
  static std::string Word(std::uint32_t word) {
    return {static_cast<char>(word >> 24), static_cast<char>(word >> 16 & 255),
            static_cast<char>(word >> 8 & 255), static_cast<char>(word & 255)};
  }

  const storage::TestFolder folder_;
  SavedModel model_{Description(), nullptr};
};

TEST_F(GivenSamples, AllImagesOfAFolderByTheirNamesWhereverTheyLie) {
  WriteImage("new/b.png", 255);
  WriteImage("new/a/deeper.PNG", 0);
  Write("new/notes.txt", "no image");
  const auto samples = Read("new");
  ASSERT_EQ(samples.status(), absl::OkStatus());
  EXPECT_THAT(samples->names, ElementsAre("a/deeper.PNG", "b.png"));
  EXPECT_THAT(FirstPixels(*samples), ElementsAre(-2, 2)) << "scaled as what the model learnt from";
}

TEST_F(GivenSamples, OneImage) {
  WriteImage("one.png", 255);
  const auto samples = Read("one.png");
  ASSERT_EQ(samples.status(), absl::OkStatus());
  EXPECT_THAT(samples->names, ElementsAre("one.png"));
  EXPECT_THAT(FirstPixels(*samples), ElementsAre(2));
}

TEST_F(GivenSamples, ImagesOfAnArchiveByTheirNamesWithClassesAndWithout) {
  Write("new.tar", data::TarOf({{"b.png", Png(255)}, {"b.cls", "1"}, {"a/deep.png", Png(0)}}));
  const auto samples = Read("new.tar");
  ASSERT_EQ(samples.status(), absl::OkStatus());
  EXPECT_THAT(samples->names, ElementsAre("b.png", "a/deep.png"));
  EXPECT_THAT(FirstPixels(*samples), ElementsAre(2, -2));
  EXPECT_THAT(std::string(Read("new.tar", /*labels=*/true).status().message()),
              AllOf(StartsWith("--data: "), HasSubstr("a/deep.png has no class; pack")));
}

TEST_F(GivenSamples, ClassesOfAFolderAreThoseOfTheModelByTheirNames) {
  WriteImage("test/owl/1.png", 0);
  WriteImage("test/cat/1.png", 255);
  const auto samples = Read("test", /*labels=*/true);
  ASSERT_EQ(samples.status(), absl::OkStatus());
  std::vector<float> features(8);
  std::vector<std::int64_t> labels(2);
  ASSERT_EQ(data::Read(samples->set, std::vector<std::int64_t>{0, 1}, 0, features, labels),
            absl::OkStatus());
  EXPECT_THAT(labels, ElementsAre(0, 2));
  WriteImage("test/wolf/1.png", 0);
  EXPECT_THAT(std::string(Read("test", true).status().message()),
              AllOf(StartsWith("--data: "), HasSubstr("wolf")));
}

TEST_F(GivenSamples, ImagesAsMnistHasThemWithClassesAndWithout) {
  Write("images-idx3-ubyte",
        Word(0x803) + Word(2) + Word(2) + Word(2) + std::string(4, '\0') + std::string(4, '\xff'));
  Write("labels-idx1-ubyte", Word(0x801) + Word(2) + std::string{2, 1});
  const auto unknown = Read("images-idx3-ubyte");
  ASSERT_EQ(unknown.status(), absl::OkStatus());
  EXPECT_THAT(FirstPixels(*unknown), ElementsAre(-2, 2));
  const auto known = Read("images-idx3-ubyte", true, "labels-idx1-ubyte");
  ASSERT_EQ(known.status(), absl::OkStatus());
  EXPECT_THAT(known->set.labels, ElementsAre(2, 1));
  EXPECT_THAT(std::string(Read("images-idx3-ubyte", true, "none").status().message()),
              StartsWith("--labels: "));
}

TEST_F(GivenSamples, RowsOfATable) {
  Write("new.csv", "0,0,0,1\n1,1,1,0\n");
  const auto samples = Read("new.csv");
  ASSERT_EQ(samples.status(), absl::OkStatus());
  EXPECT_THAT(FirstPixels(*samples), ElementsAre(-2, 2));
}

TEST_F(GivenSamples, WhatDoesNotFitIsRefusedByName) {
  const auto message = [&](const std::string& name, bool labels = false) {
    return std::string(Read(name, labels).status().message());
  };
  EXPECT_THAT(message("none/"), AllOf(StartsWith("--data: "), HasSubstr("holds no images")));
  EXPECT_THAT(message("none.png"), StartsWith("--data: "));
  Write("some.tar", data::TarOf({{"1.txt", "x"}}));
  EXPECT_THAT(message("some.tar"), AllOf(StartsWith("--data: "), HasSubstr("there are no images")));
  Write("wide-ubyte", Word(0x803) + Word(1) + Word(1) + Word(3) + "abc");
  EXPECT_THAT(message("wide-ubyte"),
              HasSubstr("samples have shape [1, 1, 3], but the model learnt from [1, 2, 2]"));
  Write("bad/1.png", "no image at all");
  const auto bad = Read("bad");
  ASSERT_EQ(bad.status(), absl::OkStatus());
  EXPECT_THAT(std::string(model_.Predict(*bad).status().message()),
              AllOf(StartsWith("--data: "), HasSubstr("bad/1.png")));
}

// A network that gives each sample back.
class Identity final : public engine::Engine {
 public:
  std::span<const engine::Tensor> tensors() const override { return {}; }
  std::span<float> parameters() override { return {}; }
  std::span<float> gradients() override { return {}; }
  std::span<const engine::Bucket> buckets() const override { return {}; }
  absl::StatusOr<engine::BatchSums> ComputeGradients(std::span<const float> /*features*/,
                                                     std::span<const std::int64_t> /*labels*/,
                                                     const OnBucket& /*on_bucket*/) override {
    return absl::UnimplementedError("gives scores only");
  }
  absl::StatusOr<engine::BatchSums> Evaluate(std::span<const float> /*features*/,
                                             std::span<const std::int64_t> /*labels*/) override {
    return absl::UnimplementedError("gives scores only");
  }
  absl::StatusOr<engine::BatchSums> EvaluateNumbers(std::span<const float> features,
                                                    std::span<const float> wanted) override {
    engine::BatchSums sums;
    sums.squares.resize(2);
    for (std::size_t i = 0; i < features.size(); ++i) {
      const double off = double{features[i]} - double{wanted[i]};
      sums.squares[i % 2] += off * off;
    }
    return sums;
  }
  absl::StatusOr<std::vector<float>> Scores(std::span<const float> features) override {
    return std::vector<float>(features.begin(), features.end());
  }
};

// `scores` are those of one sample after another.
SavedModel::Evaluation Judge(std::int64_t classes, std::vector<float> scores,
                             std::vector<std::int64_t> labels) {
  ModelDescription description;
  description.classes = classes;
  SavedModel model(std::move(description), std::make_unique<Identity>());
  SavedModel::Samples samples;
  samples.set.shape = {classes};
  samples.set.classes = classes;
  samples.set.features = std::move(scores);
  samples.set.labels = std::move(labels);
  auto found = model.Evaluate(samples);
  EXPECT_EQ(found.status(), absl::OkStatus());
  return *std::move(found);
}

TEST(SavedModel, CountsOfEachClassHowManyThereAreAreToldAndAreRight) {
  const auto found = Judge(3, {5, 0, 0, 0, 5, 0, 0, 6, 0, 7, 0, 0}, {0, 1, 0, 0});
  EXPECT_DOUBLE_EQ(found.metrics.at("samples"), 4);
  EXPECT_DOUBLE_EQ(found.metrics.at("accuracy"), 0.75);
  EXPECT_FALSE(found.metrics.contains("top5Accuracy")) << "of three classes it is always 1";
  const auto counts = [&](std::size_t i) {
    return std::array{found.classes[i].samples, found.classes[i].told, found.classes[i].right};
  };
  ASSERT_EQ(found.classes.size(), 3u);
  EXPECT_THAT(counts(0), ElementsAre(3, 2, 2));
  EXPECT_THAT(counts(1), ElementsAre(1, 2, 1));
  EXPECT_THAT(counts(2), ElementsAre(0, 0, 0));
  const double of_each = std::log(1 + 2 * std::exp(-5.0));
  EXPECT_NEAR(
      found.metrics.at("loss"),
      (2 * of_each + 6 + std::log(1 + 2 * std::exp(-6.0)) + std::log(1 + 2 * std::exp(-7.0))) / 4,
      1e-6);
}

// --- Models of numbers, over a table of the test's own.

class GivenTables : public ::testing::Test {
 protected:
  // Of samples of two numbers that the network gives back.
  SavedModel Model(ModelKind kind) const {
    ModelDescription description;
    description.kind = kind;
    description.classes = 2;
    description.config.network.input = {2};
    if (kind == ModelKind::kRegression) description.names = {"t", "u"};
    return {std::move(description), std::make_unique<Identity>()};
  }
  SavedModel::Source Table(const std::string& content, bool labels,
                           const std::string& label_column = "") const {
    return {.uri = folder_.Write("table.csv", content),
            .field = "--data",
            .labels = labels,
            .label_column = label_column};
  }

  const storage::TestFolder folder_;
};

constexpr char kTable[] = "a,t,b,u\n1,1,2,4\n3,1,4,4\n5,4,6,6\n";

TEST_F(GivenTables, ARegressionIsJudgedByTheColumnsThatItLearntWhoseverOrderTheyHave) {
  SavedModel model = Model(ModelKind::kRegression);
  const auto samples = model.ReadSamples(Table(kTable, true));
  ASSERT_EQ(samples.status(), absl::OkStatus());
  EXPECT_THAT(samples->set.features, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(samples->set.targets, ElementsAre(1, 4, 1, 4, 4, 6));
  const auto found = model.Evaluate(*samples);
  ASSERT_EQ(found.status(), absl::OkStatus());
  // Off by 0, 2, 1 in t, whose variance is 2, and by 2, 0, 0 in u, whose variance is 8 / 9.
  EXPECT_NEAR(found->metrics.at("rmse"), std::sqrt(9.0 / 6), 1e-6);
  EXPECT_NEAR(found->metrics.at("r2"), ((1 - 5.0 / 6) + (1 - 4.0 / (8.0 / 3))) / 2, 1e-6);
  EXPECT_TRUE(found->classes.empty());
  const auto numbers = model.PredictNumbers(*samples);
  EXPECT_THAT(*numbers, ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_F(GivenTables, ColumnsThatAreNamedArePutInTheirOrder) {
  const auto samples = Model(ModelKind::kRegression).ReadSamples(Table(kTable, true, "u,t"));
  ASSERT_EQ(samples.status(), absl::OkStatus());
  EXPECT_THAT(samples->set.targets, ElementsAre(4, 1, 4, 1, 6, 4));
}

TEST_F(GivenTables, WhatIsNotThereIsRefusedByName) {
  const SavedModel model = Model(ModelKind::kRegression);
  const auto message = [&](const std::string& columns) {
    return std::string(model.ReadSamples(Table(kTable, true, columns)).status().message());
  };
  EXPECT_THAT(message("t,x"), AllOf(StartsWith("--data: "), HasSubstr("has no column \"x\"")));
  EXPECT_THAT(message("t,t"), HasSubstr("once more"));
  EXPECT_THAT(message("a,b,t,u"), HasSubstr("names all columns"));
  EXPECT_THAT(message("t"), HasSubstr("[2] needs 2 features a row"));
  EXPECT_THAT(
      std::string(
          model.ReadSamples({.uri = folder_.path() + "/images/", .field = "--data", .labels = true})
              .status()
              .message()),
      HasSubstr("must be a table"));
}

TEST_F(GivenTables, AnAutoencoderTellsHowFarEachSampleIsAndLeavesLabelsOut) {
  SavedModel model = Model(ModelKind::kAutoencoder);
  for (const auto& [table, column] : {std::pair("a,b,label\n1,2,cat\n3,4,dog\n", ""),
                                      {"a,b\n1,2\n3,4\n", ""},
                                      {"a,b,kind\n1,2,cat\n3,4,dog\n", "kind"},
                                      {"1,2,7\n3,4,7\n", "2"}}) {
    const auto samples = model.ReadSamples(Table(table, true, column));
    ASSERT_EQ(samples.status(), absl::OkStatus()) << table;
    EXPECT_THAT(samples->set.features, ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(*model.PredictNumbers(*samples), ElementsAre(0, 0));
  }
}

TEST(SavedModel, TheClassIsAmongTheFiveMostLikely) {
  const std::vector<float> falling = {9, 8, 7, 6, 5, 4};
  const auto judged = [&](std::int64_t label) {
    return Judge(6, falling, {label}).metrics.at("top5Accuracy");
  };
  EXPECT_DOUBLE_EQ(judged(0), 1);
  EXPECT_DOUBLE_EQ(judged(4), 1);
  EXPECT_DOUBLE_EQ(judged(5), 0);
}

TEST(ReadDescription, RefusesNamesThatAreNotThoseOfItsClasses) {
  for (const char* names : {"cat/dog", "cat/dog/owl/wolf", "dog/cat/owl", ""}) {
    Metadata metadata = OfImages();
    metadata["starling.classNames"] = names;
    EXPECT_THAT(std::string(ReadDescription(metadata).status().message()),
                HasSubstr("starling.classNames"))
        << names;
  }
}

}  // namespace
}  // namespace starling::workload
