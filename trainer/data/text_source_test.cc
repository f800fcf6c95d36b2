// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/text_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/storage/test_folder.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/data/load_datasets.h"

namespace starling::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Of one, two, three and four bytes.
constexpr char kEveryLength[] = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x90\xA6";

class TextTest : public ::testing::Test {
 protected:
  v1alpha1::TrainingJobSpec SpecOf(const std::string& text, std::int64_t context = 2) {
    v1alpha1::TrainingJobSpec spec;
    v1alpha1::LanguageModel& model = *spec.mutable_workload()->mutable_language_model();
    model.mutable_model()->mutable_transformer();
    model.set_context_length(context);
    spec.mutable_dataset()->mutable_train()->mutable_text()->set_uri(folder_.Write("train", text));
    return spec;
  }
  static v1alpha1::TextSource& Train(v1alpha1::TrainingJobSpec& spec) {
    return *spec.mutable_dataset()->mutable_train()->mutable_text();
  }
  static v1alpha1::TextSource& Validation(v1alpha1::TrainingJobSpec& spec) {
    return *spec.mutable_dataset()->mutable_validation()->mutable_text();
  }
  static absl::StatusOr<Datasets> Load(const v1alpha1::TrainingJobSpec& spec) {
    return LoadDatasets(spec, {.kind = Form::Kind::kText});
  }
  static std::string TextOf(const Text& text) {
    std::string all;
    for (const std::uint16_t symbol : text.symbols) all += text.alphabet.Decode(symbol);
    return all;
  }

  const storage::TestFolder folder_;
};

TEST_F(TextTest, SamplesAreStretchesAndWantEachNextSymbol) {
  const auto sets = Load(SpecOf("abcabc"));
  ASSERT_TRUE(sets.ok()) << sets.status();
  const Text& text = *sets->text_train;
  EXPECT_EQ(text.alphabet.size(), 3);
  EXPECT_EQ(text.size(), 2) << "the last one has no symbol after it";
  std::vector<float> given(4);
  std::vector<std::int64_t> wanted(4);
  Gather(text, std::vector<std::int64_t>{1, 0}, given, wanted);
  EXPECT_THAT(given, ElementsAre(2, 0, 0, 1));
  EXPECT_THAT(wanted, ElementsAre(0, 1, 1, 2));
}

TEST_F(TextTest, CharactersOfAnyLengthComeBackAndBytesToo) {
  for (const bool bytes : {false, true}) {
    v1alpha1::TrainingJobSpec spec = SpecOf(kEveryLength);
    if (bytes) {
      spec.mutable_workload()->mutable_language_model()->set_symbols(v1alpha1::TEXT_SYMBOLS_BYTES);
    }
    const auto sets = Load(spec);
    ASSERT_TRUE(sets.ok()) << sets.status();
    EXPECT_EQ(TextOf(*sets->text_train), kEveryLength);
    EXPECT_EQ(sets->text_train->alphabet.size(), bytes ? 256 : 4);
    EXPECT_EQ(sets->text_train->symbols.size(), bytes ? 10U : 4U);
    const auto again = Alphabet::FromText(sets->text_train->alphabet.ToText());
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->ToText(), sets->text_train->alphabet.ToText());
  }
}

// Wherever the share falls within a character.
TEST_F(TextTest, PartsThatMeetHaveNothingInCommonAndLeaveNothingOut) {
  std::string text;
  for (int i = 0; i < 4; ++i) text += kEveryLength;
  for (double share = 0.15; share < 0.75; share += 0.01) {
    v1alpha1::TrainingJobSpec spec = SpecOf(text);
    Train(spec).set_end(share);
    Validation(spec).set_uri(Train(spec).uri());
    Validation(spec).set_begin(share);
    const auto sets = Load(spec);
    ASSERT_TRUE(sets.ok()) << sets.status();
    EXPECT_EQ(TextOf(*sets->text_train) + TextOf(*sets->text_validation), text) << share;
  }
}

TEST_F(TextTest, TheDigestIsThatOfTextSymbolsAndContext) {
  const auto digest = [](const v1alpha1::TrainingJobSpec& spec) { return Load(spec)->digest; };
  const v1alpha1::TrainingJobSpec one = SpecOf("to be or not");
  const std::string of_one = digest(one);
  EXPECT_EQ(of_one, digest(SpecOf("to be or not")));
  EXPECT_NE(of_one, digest(SpecOf("to be or nut")));
  EXPECT_NE(of_one, digest(SpecOf("to be or not", 3)));
  v1alpha1::TrainingJobSpec bytes = SpecOf("to be or not");
  bytes.mutable_workload()->mutable_language_model()->set_symbols(v1alpha1::TEXT_SYMBOLS_BYTES);
  EXPECT_NE(of_one, digest(bytes));
}

TEST_F(TextTest, SaysWhereATextIsNone) {
  const auto refused = [&](const v1alpha1::TrainingJobSpec& spec) {
    const auto sets = Load(spec);
    EXPECT_EQ(sets.status().code(), absl::StatusCode::kInvalidArgument) << sets.status();
    const auto problems = CheckData(spec, {.kind = Form::Kind::kText});
    EXPECT_EQ(problems.size(), 1U);
    if (!problems.empty()) {
      EXPECT_EQ(problems[0].path + ": " + problems[0].message, sets.status().message());
    }
    return std::string(sets.status().message());
  };
  EXPECT_THAT(refused(SpecOf("good\nb\xC3(d\nmore")),
              AllOf(StartsWith("spec.dataset.train.text.uri: /"),
                    HasSubstr("train: line 2 is no UTF-8; convert the file, or write symbols")));
  EXPECT_THAT(refused(SpecOf("short", 5)), HasSubstr("has 5 symbols between begin and end, and a "
                                                     "sample takes 6"));
  v1alpha1::TrainingJobSpec spec = SpecOf("known\nletters");
  Validation(spec).set_uri(folder_.Write("validation", "own\nletters\nare\xC3\xA9"));
  EXPECT_THAT(refused(spec), AllOf(StartsWith("spec.dataset.validation.text.uri: "),
                                   HasSubstr("line 3: the character"), HasSubstr("U+0061")));
  spec.mutable_dataset()->mutable_validation()->mutable_csv();
  EXPECT_THAT(refused(spec), StartsWith("spec.dataset.validation: must be text"));
}

TEST_F(TextTest, CheckingNamesTheLayerThatDoesNotFitTheText) {
  v1alpha1::TrainingJobSpec spec = SpecOf("abcabc");
  v1alpha1::Model& model = *spec.mutable_workload()->mutable_language_model()->mutable_model();
  model.clear_kind();
  model.add_layers()->mutable_embedding()->set_width(4);
  model.add_layers()->mutable_dense()->set_units(4);
  const auto problems = CheckData(spec, {.kind = Form::Kind::kText});
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].path, "spec.workload.languageModel.model.layers");
  EXPECT_THAT(problems[0].message,
              HasSubstr("gives [2, 4], and must give one number for each of the 3 symbols"));
}

TEST(Alphabet, ListsThatAreNoneAreRefused) {
  for (const char* text : {"", "a", "1,", "2,1", "1,1", "-1", "1114112", "1,,2"}) {
    EXPECT_EQ(Alphabet::FromText(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_TRUE(Alphabet::FromText("bytes")->bytes());
}

}  // namespace
}  // namespace starling::data
