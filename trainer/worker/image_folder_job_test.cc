// SPDX-License-Identifier: Apache-2.0
// Whole jobs whose images are read while they train: whoever reads an image, and whatever dies, the
// model is the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "common/storage/test_folder.h"
#include "trainer/testing/test_images.h"
#include "trainer/testing/test_tar.h"
#include "trainer/testing/worker_cluster.h"

namespace starling::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Ne;

constexpr int64_t kSteps = 120;

class ImageFolderJobTest : public ::testing::Test {
 protected:
  // Four classes of brightness; the images are larger than the samples, and not even.
  ImageFolderJobTest() {
    for (const char* set : {"train", "test"}) {
      for (int label = 0; label < 4; ++label) {
        const std::string folder = absl::StrCat(set, "/class", label);
        std::filesystem::create_directories(images_.path() + "/" + folder);
        for (int i = 0; i < 25; ++i) Write(absl::StrCat(folder, "/", i), label, i);
      }
    }
  }
  void Write(const std::string& name, int label, int i) {
    image::Image image = image::Drawn({12 + i % 5, 10}, 3, static_cast<unsigned>(i % 3));
    for (std::uint8_t& value : image.pixels) {
      value = static_cast<std::uint8_t>(value / 4 + 60 * label);
    }
    if (i % 2 == 0) {
      images_.Write(name + ".jpg", image::JpegOf(image));
    } else {
      images_.Write(name + ".png", image::PngOf(image));
    }
  }

  // The same images in four archives of 25.
  v1alpha1::TrainingJobSpec ArchivesJob() const {
    for (int archive = 0; archive < 4; ++archive) {
      std::vector<std::pair<std::string, std::string>> members;
      for (int i = 0; i < 100; ++i) {
        if (i % 4 != archive) continue;
        const std::string name = absl::StrCat("class", i / 25, "/", i % 25);
        const char* ending = i % 25 % 2 == 0 ? ".jpg" : ".png";
        members.emplace_back(name + ".cls", absl::StrCat(i / 25));
        members.emplace_back(name + ending,
                             storage::TestFolder::Read(images_.path() + "/train/" + name + ending));
      }
      images_.Write(absl::StrCat("train-", archive, ".tar"), data::TarOf(members));
    }
    v1alpha1::TrainingJobSpec spec = Job();
    spec.mutable_dataset()->mutable_train()->Clear();
    auto& source = *spec.mutable_dataset()->mutable_train()->mutable_tar();
    source.set_uri(images_.path() + "/train-{0..3}.tar");
    for (const std::int64_t side : {3, 1, 1}) source.add_shape(side);
    return spec;
  }

  v1alpha1::TrainingJobSpec Job() const {
    v1alpha1::TrainingJobSpec spec = TinyJob(kSteps);
    const auto fill = [this](v1alpha1::DataSource& source, const char* set) {
      source.Clear();
      source.mutable_image_folder()->set_uri(images_.path() + "/" + set);
      for (const std::int64_t side : {3, 1, 1}) source.mutable_image_folder()->add_shape(side);
    };
    fill(*spec.mutable_dataset()->mutable_train(), "train");
    fill(*spec.mutable_dataset()->mutable_validation(), "test");
    spec.mutable_dataset()->mutable_augmentation()->mutable_random_crop();
    spec.mutable_dataset()->mutable_augmentation()->set_flip(true);
    return spec;
  }

  std::string ModelOf(const v1alpha1::TrainingJobSpec& spec, int workers) {
    Cluster cluster(spec, NewJobDir());
    std::vector<int> members;
    for (int i = 0; i < workers; ++i) members.push_back(cluster.Add());
    cluster.PublishNow(members);
    return cluster.AwaitModel(0);
  }
  std::string NewJobDir() {
    const std::string path = absl::StrCat(images_.path(), "/job", ++jobs_);
    std::filesystem::create_directories(path);
    return path;
  }

  storage::TestFolder images_;
  int jobs_ = 0;
};

TEST_F(ImageFolderJobTest, OneModelForOneToFourWorkers) {
  const std::string alone = ModelOf(Job(), 1);
  ASSERT_THAT(alone, Ne(""));
  for (const int workers : {2, 3, 4}) EXPECT_EQ(ModelOf(Job(), workers), alone) << workers;
}

TEST_F(ImageFolderJobTest, TheSameModelThoughWorkersCrashAndJoin) {
  for (const v1alpha1::TrainingJobSpec& spec : {Job(), ArchivesJob()}) {
    const std::string alone = ModelOf(spec, 1);
    ASSERT_THAT(alone, Ne(""));
    Cluster cluster(spec, NewJobDir());
    for (int i = 0; i < 3; ++i) cluster.Add();
    cluster.PublishNow({0, 1, 2});
    ASSERT_TRUE(cluster.AwaitStep(0, kSteps / 4));
    cluster.Crash(1);
    cluster.PublishNow({0, 2});
    ASSERT_TRUE(cluster.AwaitStep(0, kSteps / 2));
    const int joined = cluster.Add();
    cluster.PublishAtBoundary({0, 2, joined});
    EXPECT_EQ(cluster.AwaitModel(0), alone);
  }
}

TEST_F(ImageFolderJobTest, WhatAugmentationDrawsIsPartOfTheModel) {
  v1alpha1::TrainingJobSpec plain = Job();
  plain.mutable_dataset()->clear_augmentation();
  EXPECT_NE(ModelOf(plain, 1), ModelOf(Job(), 1)) << "else the tests above could not fail";
}

TEST_F(ImageFolderJobTest, ABadImageEndsTheJobByName) {
  images_.Write("train/class2/7.png", "not an image");
  v1alpha1::TrainingJobSpec spec = Job();
  spec.mutable_dataset()->set_normalize(false);  // else it would be read for its scale
  Cluster cluster(spec, NewJobDir());
  cluster.Add();
  cluster.Add();
  cluster.PublishNow({0, 1});
  // The one whose share has it tells the coordinator.
  ASSERT_TRUE(cluster.Await([&] {
    for (const int worker : {0, 1}) {
      if (!cluster.TrainingOf(worker).failure().empty()) return true;
    }
    return false;
  }));
  const std::string told = cluster.TrainingOf(0).failure().empty()
                               ? cluster.TrainingOf(1).failure()
                               : cluster.TrainingOf(0).failure();
  EXPECT_THAT(told, HasSubstr("train/class2/7.png is neither a JPEG nor a PNG file"));
}

TEST_F(ImageFolderJobTest, BadImagesThatArePassedOverLeaveOneModel) {
  images_.Write("train/class2/7.png", "not an image");
  images_.Write("train/class0/24.jpg", "nor this one");
  v1alpha1::TrainingJobSpec spec = Job();
  spec.mutable_dataset()->set_on_bad_record(v1alpha1::ON_BAD_RECORD_SKIP);
  spec.mutable_dataset()->set_max_bad_records(2);
  const std::string alone = ModelOf(spec, 1);
  ASSERT_THAT(alone, Ne(""));
  EXPECT_EQ(ModelOf(spec, 3), alone);
}

}  // namespace
}  // namespace starling::worker
