// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/libsvm_source.h"

#include <algorithm>

#include "common/storage/test_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kHashed = 1 << 20;

SparseDataset Parsed(std::string_view text) {
  const absl::StatusOr<SparseDataset> set = ParseLibsvm(text, kHashed, /*whole=*/true);
  EXPECT_TRUE(set.ok()) << set.status();
  return set.ok() ? *set : SparseDataset();
}

TEST(Libsvm, ALineIsALabelAndPairs) {
  const SparseDataset set = Parsed("+1 3:0.5 7:-2\n-1 1:1e-1\n");
  EXPECT_THAT(set.labels, ElementsAre(1, -1));
  EXPECT_THAT(set.offsets, ElementsAre(0, 2, 3));
  EXPECT_THAT(set.FeaturesOf(1), ElementsAre(HashedFeature(1, kHashed)));
  EXPECT_THAT(set.ValuesOf(1), ElementsAre(0.1F));
}

TEST(Libsvm, LabelsAreKeptAsTheyAre) {
  EXPECT_THAT(Parsed("2 1:1\n0 1:1\n-3.5 1:1\n1\n").labels, ElementsAre(2, 0, -3.5F, 1));
}

TEST(Libsvm, CommentsEmptyLinesBlanksAndTheLastLinesEndMayBeThereOrNot) {
  const SparseDataset set = Parsed("# a set\n\n  1\t4:1  5:2 # second\r\n-1 9:3");
  EXPECT_THAT(set.labels, ElementsAre(1, -1));
  EXPECT_EQ(set.features.size(), 3U);
}

TEST(Libsvm, OfAFileThatIsOnlyBegunTheCutLineIsNotRead) {
  const auto set = ParseLibsvm("1 4:1\n-1 5:2", kHashed, /*whole=*/false);
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(set->size(), 1);
}

TEST(Libsvm, LinesThatCannotBeReadArePassedOverUpToABound) {
  v1alpha1::Dataset dataset;
  dataset.set_on_bad_record(v1alpha1::ON_BAD_RECORD_SKIP);
  dataset.set_max_bad_records(2);
  BadRecords two(&dataset);
  const std::string text = "1 1:1\nx 1:1\n1 2:2 1:1\n-1 3:3\n";
  const auto set = ParseLibsvm(text, kHashed, true, &two);
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_THAT(set->labels, ElementsAre(1, -1));
  EXPECT_THAT(set->values, ElementsAre(1, 3));
  dataset.set_max_bad_records(1);
  BadRecords one(&dataset);
  EXPECT_THAT(std::string(ParseLibsvm(text, kHashed, true, &one).status().message()),
              testing::AllOf(HasSubstr("line 3: "), HasSubstr("more bad records than the 1")));
}

TEST(Libsvm, FeaturesThatMeetInOneWeightAddTheirValues) {
  const absl::StatusOr<SparseDataset> set = ParseLibsvm("1 1:1 2:10 3:100\n", 1, true);
  ASSERT_TRUE(set.ok());
  EXPECT_THAT(set->features, ElementsAre(0));
  EXPECT_THAT(set->values, ElementsAre(111));
}

TEST(Libsvm, FeaturesOfASampleAscend) {
  const SparseDataset set = Parsed("1 1:1 2:1 3:1 4:1 5:1 6:1 7:1 8:1\n");
  EXPECT_TRUE(std::is_sorted(set.features.begin(), set.features.end()));
  EXPECT_EQ(set.features.size(), 8U);
}

struct WrongLine {
  const char* text;
  const char* message;
};
class WrongLines : public testing::TestWithParam<WrongLine> {};
INSTANTIATE_TEST_SUITE_P(
    Libsvm, WrongLines,
    testing::Values(WrongLine{"1 1:1\nspam 1:1\n", "line 2: the label \"spam\""},
                    WrongLine{"1 1:1 2\n", "line 1: \"2\" is not number:value"},
                    WrongLine{"1 a:1\n", "\"a:1\" is not number:value"},
                    WrongLine{"1 1:\n", "\"1:\" is not number:value"},
                    WrongLine{"1 1:1x\n", "\"1:1x\" is not number:value"},
                    WrongLine{"1 1:nan\n", "\"1:nan\" is not number:value"},
                    WrongLine{"1 1:inf\n", "\"1:inf\" is not number:value"},
                    WrongLine{"1 1.5:1\n", "\"1.5:1\" is not number:value"},
                    WrongLine{"1 99999999999999999999:1\n", "is not number:value"},
                    WrongLine{"1 -4:1\n", "feature -4 is negative"},
                    WrongLine{"nan 1:1\n", "the label \"nan\""},
                    WrongLine{"1 5:1 5:2\n", "feature 5 follows 5"},
                    WrongLine{"1 5:1 4:2\n", "feature 4 follows 5"}));

TEST_P(WrongLines, AreNamedWithWhatToDo) {
  const absl::StatusOr<SparseDataset> set = ParseLibsvm(GetParam().text, kHashed, true);
  ASSERT_EQ(set.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(set.status().message()), HasSubstr(GetParam().message));
}

TEST(Libsvm, AFilesErrorNamesFieldFileAndLine) {
  const storage::TestFolder folder;
  v1alpha1::LibsvmSource source;
  source.set_uri(folder.Write("a.svm", "1 1:1\n1 x\n"));
  LoadOptions options;
  options.path = "spec.dataset.train.libsvm";
  const auto set = LoadLibsvm(source, kHashed, options);
  EXPECT_THAT(std::string(set.status().message()),
              HasSubstr("spec.dataset.train.libsvm.uri: " + source.uri() + ": line 2: "));
}

TEST(Libsvm, AFileWithoutSamplesIsRefused) {
  const storage::TestFolder folder;
  v1alpha1::LibsvmSource source;
  source.set_uri(folder.Write("a.svm", "# nothing\n"));
  EXPECT_EQ(LoadLibsvm(source, kHashed, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Libsvm, ADigestTellsSetsApart) {
  EXPECT_EQ(DigestOf(Parsed("1 1:1\n")), DigestOf(Parsed("1 1:1\n")));
  EXPECT_NE(DigestOf(Parsed("1 1:1\n")), DigestOf(Parsed("1 1:2\n")));
  EXPECT_NE(DigestOf(Parsed("1 1:1\n")), DigestOf(Parsed("-1 1:1\n")));
}

}  // namespace
}  // namespace starling::data
