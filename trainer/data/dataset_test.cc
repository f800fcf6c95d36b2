// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/dataset.h"

#include <array>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::data {
namespace {

using testing::ElementsAre;

// Sample i of pass e has the features 10 e + i and i, and the class i.
class Numbers final : public SampleReader {
 public:
  explicit Numbers(std::string digest = "numbers") : digest_(std::move(digest)) {}

  std::int64_t size() const override { return 3; }
  absl::Status Read(std::span<const std::int64_t> ids, std::int64_t epoch,
                    std::span<float> features, std::span<std::int64_t> labels) override {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] >= size()) return absl::InvalidArgumentError("no such sample");
      features[2 * i] = static_cast<float>(10 * epoch + ids[i]);
      features[2 * i + 1] = static_cast<float>(ids[i]);
      labels[i] = ids[i];
    }
    return absl::OkStatus();
  }
  std::string Digest() const override { return digest_; }

 private:
  const std::string digest_;
};

Dataset ThatIsRead(const std::string& digest = "numbers") {
  Dataset set;
  set.shape = {2};
  set.classes = 3;
  set.reader = std::make_shared<Numbers>(digest);
  return set;
}

struct Samples {
  std::array<float, 4> features = {};
  std::array<std::int64_t, 2> labels = {};
};

TEST(Dataset, SamplesThatAreReadAreThoseOfTheEpochAndScaled) {
  Dataset set = ThatIsRead();
  EXPECT_EQ(set.size(), 3);
  Samples samples;
  const std::array<std::int64_t, 2> ids = {2, 0};
  ASSERT_TRUE(Read(set, ids, 4, samples.features, samples.labels).ok());
  EXPECT_THAT(samples.features, ElementsAre(42, 2, 40, 0));
  EXPECT_THAT(samples.labels, ElementsAre(2, 0));
  set.scale = Normalization{{2}, {4}};
  ASSERT_TRUE(Read(set, ids, 4, samples.features, samples.labels).ok());
  EXPECT_THAT(samples.features, ElementsAre(10, 0, 9.5, -0.5));
}

TEST(Dataset, SamplesInMemoryAreReadAlike) {
  Dataset set{.features = {1, 2, 3, 4}, .labels = {5, 6}, .shape = {2}, .classes = 7};
  Samples samples;
  ASSERT_TRUE(
      Read(set, std::array<std::int64_t, 2>{1, 0}, 9, samples.features, samples.labels).ok());
  EXPECT_THAT(samples.features, ElementsAre(3, 4, 1, 2));
  EXPECT_THAT(samples.labels, ElementsAre(6, 5));
}

TEST(Dataset, AReadersErrorIsTheCallersToTell) {
  Samples samples;
  const absl::Status status =
      Read(ThatIsRead(), std::array<std::int64_t, 2>{0, 3}, 1, samples.features, samples.labels);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

TEST(Dataset, TheDigestIsOfWhatTheReaderReads) {
  EXPECT_EQ(DigestOf(ThatIsRead("a")), DigestOf(ThatIsRead("a")));
  EXPECT_NE(DigestOf(ThatIsRead("a")), DigestOf(ThatIsRead("b")));
}

}  // namespace
}  // namespace starling::data
