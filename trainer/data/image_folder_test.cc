// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/image_folder.h"

#include <cmath>
#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/storage/test_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/data/load_datasets.h"
#include "trainer/testing/data_errors.h"
#include "trainer/testing/test_images.h"

namespace starling::data {
namespace {

using image::Drawn;
using image::JpegOf;
using image::PngOf;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::string Grey(std::uint8_t value, image::Size size = {6, 6}) {
  return PngOf({.size = size,
                .channels = 1,
                .pixels = std::vector<std::uint8_t>(
                    static_cast<std::size_t>(size.width * size.height), value)});
}

class ImageFolderTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& content) {
    std::filesystem::create_directories(
        std::filesystem::path(folder_.path() + "/" + name).parent_path());
    folder_.Write(name, content);
  }

  // Grey images of 1 by 1 in train/, not scaled: image i has the value i.
  v1alpha1::TrainingJobSpec Job() {
    v1alpha1::TrainingJobSpec spec;
    spec.mutable_dataset()->set_normalize(false);
    Fill(*spec.mutable_dataset()->mutable_train(), "train");
    return spec;
  }
  void Fill(v1alpha1::DataSource& source, const std::string& name) {
    source.mutable_image_folder()->set_uri(folder_.path() + "/" + name);
    for (const std::int64_t side : {1, 1, 1}) source.mutable_image_folder()->add_shape(side);
  }
  void SetShape(v1alpha1::TrainingJobSpec& spec, std::int64_t channels, std::int64_t height,
                std::int64_t width) {
    auto& source = *spec.mutable_dataset()->mutable_train()->mutable_image_folder();
    source.clear_shape();
    for (const std::int64_t side : {channels, height, width}) source.add_shape(side);
  }

  storage::TestFolder folder_;
};

struct Samples {
  absl::Status status;
  std::vector<float> features;  // of images, 0 to 255
  std::vector<std::int64_t> labels;
};

Samples ReadAll(const Dataset& set, std::int64_t epoch = 0) {
  Samples samples;
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < set.size(); ++i) ids.push_back(i);
  samples.features.resize(ids.size() * static_cast<std::size_t>(set.SampleSize()));
  samples.labels.resize(ids.size());
  samples.status = Read(set, ids, epoch, samples.features, samples.labels);
  for (float& value : samples.features) value = std::round(255 * value);
  return samples;
}

TEST_F(ImageFolderTest, FoldersAreClassesAndFilesAreNumberedByTheirNames) {
  Write("train/dog/b.png", Grey(4));
  Write("train/dog/a.PNG", Grey(3));
  Write("train/cat/deep/1.png", Grey(1));
  Write("train/cat-big/2.png", Grey(2));
  const auto sets = LoadDatasets(Job());
  ASSERT_TRUE(sets.ok()) << sets.status();
  EXPECT_THAT(sets->train.class_names, ElementsAre("cat", "cat-big", "dog"));
  EXPECT_EQ(sets->train.classes, 3);
  EXPECT_THAT(sets->train.features, IsEmpty()) << "nothing is held in memory";
  const Samples samples = ReadAll(sets->train);
  ASSERT_TRUE(samples.status.ok()) << samples.status;
  EXPECT_THAT(samples.features, ElementsAre(2, 1, 3, 4));
  EXPECT_THAT(samples.labels, ElementsAre(1, 0, 2, 2));
}

TEST_F(ImageFolderTest, WhereNobodyLooksAtClassesImagesLieAnywhere) {
  Write("train/b.png", Grey(4));
  Write("train/one/a.png", Grey(3));
  const Form form{.kind = Form::Kind::kSamples};
  EXPECT_THAT(CheckData(Job(), form), IsEmpty());
  const auto sets = LoadDatasets(Job(), form);
  ASSERT_TRUE(sets.ok()) << sets.status();
  EXPECT_THAT(ReadAll(sets->train).features, ElementsAre(4, 3));
  EXPECT_FALSE(LoadDatasets(Job()).ok()) << "a classification needs two folders";
  std::filesystem::remove_all(folder_.path() + "/train");
  Write("train/notes.txt", "none");
  EXPECT_THAT(std::string(LoadDatasets(Job(), form).status().message()),
              HasSubstr("train: holds no images (.jpg, .jpeg, .png)"));
}

TEST_F(ImageFolderTest, JpegAndPngAreReadByWhatTheyHold) {
  Write("train/a/1.jpg", JpegOf(Drawn({40, 30}, 3)));
  Write("train/b/2.jpg", PngOf(Drawn({40, 30}, 3)));
  Write("train/b/3.jpeg", JpegOf(Drawn({40, 30}, 1)));
  auto spec = Job();
  SetShape(spec, 3, 12, 16);
  const auto sets = LoadDatasets(spec);
  ASSERT_TRUE(sets.ok()) << sets.status();
  const Samples samples = ReadAll(sets->train);
  ASSERT_TRUE(samples.status.ok()) << samples.status;
  const std::size_t size = 3 * 12 * 16;
  ASSERT_EQ(samples.features.size(), 3 * size);
  for (std::size_t i = 0; i < size; ++i) {
    EXPECT_NEAR(samples.features[i], samples.features[size + i], 8) << i;
  }
}

TEST_F(ImageFolderTest, WhatIsNoImageOrHiddenIsPassedOver) {
  Write("train/a/1.png", Grey(1));
  Write("train/b/2.png", Grey(2));
  Write("train/README.md", "two images");
  Write("train/a/notes.txt", "one");
  Write("train/a/._1.png", "what other systems leave");
  Write("train/.cache/3.png", Grey(3));
  const auto sets = LoadDatasets(Job());
  ASSERT_TRUE(sets.ok()) << sets.status();
  EXPECT_EQ(sets->train.size(), 2);
}

TEST_F(ImageFolderTest, FoldersThatAreNoneAreToldWithTheRemedy) {
  const std::string field =
      absl::StrCat("spec.dataset.train.imageFolder.uri: ", folder_.path(), "/train:");
  EXPECT_THAT(DataErrorOf(Job()),
              AllOf(HasSubstr(field), HasSubstr("is not there, or holds no images")));
  Write("train/1.png", Grey(1));
  EXPECT_THAT(DataErrorOf(Job()), HasSubstr("move each image into the folder of its class"));
  Write("train/a/1.png", Grey(1));
  EXPECT_THAT(DataErrorOf(Job()),
              HasSubstr("has 1 folders with images; there must be one for each"));
}

TEST_F(ImageFolderTest, AWebServerListsNothing) {
  auto spec = Job();
  spec.mutable_dataset()->mutable_train()->mutable_image_folder()->set_uri("https://127.0.0.1:1/x");
  EXPECT_THAT(DataErrorOf(spec), HasSubstr("a web server does not list what it has"));
}

TEST_F(ImageFolderTest, TheValidationSetsClassesAreThoseOfTheSameNames) {
  Write("train/a/1.png", Grey(1));
  Write("train/b/2.png", Grey(2));
  Write("train/c/3.png", Grey(3));
  Write("test/c/9.png", Grey(9));
  auto spec = Job();
  Fill(*spec.mutable_dataset()->mutable_validation(), "test");
  const auto sets = LoadDatasets(spec);
  ASSERT_TRUE(sets.ok()) << sets.status();
  EXPECT_THAT(ReadAll(*sets->validation).labels, ElementsAre(2));
  Write("test/d/1.png", Grey(1));
  EXPECT_THAT(DataErrorOf(spec),
              HasSubstr("has a folder \"d\", which the training set has not; a class has the same "
                        "name in both"));
}

TEST_F(ImageFolderTest, FeaturesAreScaledAsThoseOfOtherImages) {
  Write("train/a/1.png", Grey(0));
  Write("train/b/2.png", Grey(255));
  auto spec = Job();
  spec.mutable_dataset()->set_normalize(true);
  const auto sets = LoadDatasets(spec);
  ASSERT_TRUE(sets.ok()) << sets.status();
  EXPECT_THAT(sets->normalization->mean, ElementsAre(0.5F));
  EXPECT_THAT(sets->normalization->std, ElementsAre(0.5F));
  EXPECT_THAT(ReadAll(sets->train).features, ElementsAre(-255, 255));
}

TEST_F(ImageFolderTest, TheDigestIsOfNamesAndWhatIsMeasured) {
  const auto digest = [this] {
    auto spec = Job();
    spec.mutable_dataset()->set_normalize(true);
    return LoadDatasets(spec)->digest;
  };
  Write("train/a/1.png", Grey(1));
  Write("train/b/2.png", Grey(2));
  const std::string first = digest();
  EXPECT_EQ(first, digest());
  Write("train/b/2.png", Grey(3));
  const std::string other_content = digest();
  EXPECT_NE(first, other_content);
  std::filesystem::rename(folder_.path() + "/train/b/2.png", folder_.path() + "/train/b/3.png");
  EXPECT_NE(other_content, digest());
}

TEST_F(ImageFolderTest, ABadImageIsToldByName) {
  Write("train/a/1.png", Grey(1));
  Write("train/a/2.jpg", "no image at all");
  Write("train/b/3.png", Grey(3).substr(0, 40));
  const auto sets = LoadDatasets(Job());
  ASSERT_TRUE(sets.ok()) << sets.status();
  const std::string words(ReadAll(sets->train).status.message());
  EXPECT_EQ(words, absl::StrCat("spec.dataset.train.imageFolder.uri: ", folder_.path(),
                                "/train/a/2.jpg is neither a JPEG nor a PNG file; repair or remove "
                                "it (dataset.onBadRecord: Skip passes over such images)"));
}

TEST_F(ImageFolderTest, TheNextImageStandsInForABadOne) {
  Write("train/a/1.png", Grey(1));
  Write("train/a/2.png", "bad");
  Write("train/a/3.png", "bad");
  Write("train/b/4.png", Grey(4));
  Write("train/b/5.png", "bad");
  auto spec = Job();
  spec.mutable_dataset()->set_on_bad_record(v1alpha1::ON_BAD_RECORD_SKIP);
  spec.mutable_dataset()->set_max_bad_records(3);
  const auto sets = LoadDatasets(spec);
  ASSERT_TRUE(sets.ok()) << sets.status();
  for (int pass = 0; pass < 3; ++pass) {
    const Samples samples = ReadAll(sets->train);
    ASSERT_TRUE(samples.status.ok()) << samples.status;
    EXPECT_THAT(samples.features, ElementsAre(1, 4, 4, 4, 1));
    EXPECT_THAT(samples.labels, ElementsAre(0, 1, 1, 1, 0));
  }
  spec.mutable_dataset()->set_max_bad_records(2);
  const absl::Status status = ReadAll(LoadDatasets(spec)->train).status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("there are more bad records than the 2 of dataset.maxBadRecords"));
}

TEST_F(ImageFolderTest, AFolderWithoutASingleGoodImageEnds) {
  for (int i = 0; i < 4; ++i) Write(absl::StrCat("train/", i, "/1.png"), "bad");
  auto spec = Job();
  spec.mutable_dataset()->set_on_bad_record(v1alpha1::ON_BAD_RECORD_SKIP);
  EXPECT_THAT(std::string(ReadAll(LoadDatasets(spec)->train).status.message()),
              HasSubstr("none of its images can be read"));
}

TEST_F(ImageFolderTest, AFileThatIsGoneIsNoBadRecord) {
  Write("train/a/1.png", Grey(1));
  Write("train/b/2.png", Grey(2));
  auto spec = Job();
  spec.mutable_dataset()->set_on_bad_record(v1alpha1::ON_BAD_RECORD_SKIP);
  const auto sets = LoadDatasets(spec);
  std::filesystem::remove(folder_.path() + "/train/b/2.png");
  const absl::Status status = ReadAll(sets->train).status;
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("train/b/2.png"));
}

TEST_F(ImageFolderTest, AugmentationIsOfTrainingAloneAndTheSameForEverybody) {
  for (const char* set : {"train", "test"}) {
    Write(absl::StrCat(set, "/a/1.png"), PngOf(Drawn({40, 30}, 3, 1)));
    Write(absl::StrCat(set, "/b/2.png"), PngOf(Drawn({40, 30}, 3, 2)));
  }
  auto spec = Job();
  SetShape(spec, 3, 8, 8);
  *spec.mutable_dataset()->mutable_validation() = spec.dataset().train();
  spec.mutable_dataset()->mutable_validation()->mutable_image_folder()->set_uri(folder_.path() +
                                                                                "/test");
  spec.mutable_dataset()->mutable_augmentation()->mutable_random_crop();
  spec.mutable_dataset()->mutable_augmentation()->set_flip(true);
  const Datasets mine = *LoadDatasets(spec);
  const Datasets yours = *LoadDatasets(spec);
  EXPECT_EQ(ReadAll(mine.train, 3).features, ReadAll(yours.train, 3).features);
  EXPECT_NE(ReadAll(mine.train, 3).features, ReadAll(mine.train, 4).features);
  EXPECT_EQ(ReadAll(mine.train, 0).features, ReadAll(*mine.validation, 0).features);
  EXPECT_EQ(ReadAll(*mine.validation, 1).features, ReadAll(*mine.validation, 2).features);
}

TEST_F(ImageFolderTest, AMirroredImageIsTheSameFromTheOtherSide) {
  Write("train/a/1.png", PngOf({.size = {3, 1}, .channels = 1, .pixels = {10, 20, 30}}));
  Write("train/b/2.png", PngOf({.size = {3, 1}, .channels = 1, .pixels = {10, 20, 30}}));
  auto spec = Job();
  SetShape(spec, 1, 1, 3);
  spec.mutable_dataset()->mutable_augmentation()->set_flip(true);
  const auto sets = LoadDatasets(spec);
  std::map<std::vector<float>, int> seen;
  for (std::int64_t epoch = 1; epoch <= 40; ++epoch) {
    const auto features = ReadAll(sets->train, epoch).features;
    ++seen[{features.begin(), features.begin() + 3}];
  }
  ASSERT_THAT(seen, SizeIs(2)) << "also when it comes out of the cache";
  EXPECT_GT((seen[{10, 20, 30}]), 8);
  EXPECT_GT((seen[{30, 20, 10}]), 8);
}

TEST_F(ImageFolderTest, WhatIsKeptIsBoundedAndReadNoMore) {
  for (int i = 0; i < 8; ++i) Write(absl::StrCat("train/", i % 2, "/", i, ".png"), Grey(1));
  auto spec = Job();
  spec.mutable_dataset()->mutable_train()->mutable_image_folder()->set_cache_bytes(3);
  const auto sets = LoadDatasets(spec);
  ASSERT_TRUE(ReadAll(sets->train).status.ok());
  int kept = 0;
  for (std::int64_t id = 0; id < 8; ++id) {
    const std::string name = absl::StrCat("/train/", id / 4, "/", id % 4 * 2 + id / 4, ".png");
    std::filesystem::rename(folder_.path() + name, folder_.path() + "/hidden");
    float feature = 0;
    std::int64_t label = 0;
    kept +=
        Read(sets->train, std::span(&id, 1), 0, std::span(&feature, 1), std::span(&label, 1)).ok();
    std::filesystem::rename(folder_.path() + "/hidden", folder_.path() + name);
  }
  EXPECT_EQ(kept, 3) << "a byte each";
}

TEST(ImageIndex, AMillionNamesTakeLittleMoreThanTheirLetters) {
  std::vector<std::string> names;
  for (int i = 0; i < 1000; ++i)
    names.push_back(absl::StrCat("class", i / 500, "/", 1000 + i, ".jpg"));
  const auto index = ImageIndex::Of(names, {});
  ASSERT_TRUE(index.ok());
  for (std::int64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(index->NameOf(i), names[static_cast<std::size_t>(i)]);
    EXPECT_EQ(index->LabelOf(i), i / 500);
  }
}

}  // namespace
}  // namespace starling::data
