// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/load_datasets.h"

#include <zlib.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/storage/test_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using v1alpha1::TrainingJobSpec;

std::string Word(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

// `count` images of 2 by 2 whose pixels count up, and their labels 0, 1, 2, 0, ...
std::string Images(std::uint32_t count) {
  std::string file = Word(0x803) + Word(count) + Word(2) + Word(2);
  for (std::uint32_t i = 0; i < count * 4; ++i) file += static_cast<char>(i);
  return file;
}
std::string Labels(std::uint32_t count) {
  std::string file = Word(0x801) + Word(count);
  for (std::uint32_t i = 0; i < count; ++i) file += static_cast<char>(i % 3);
  return file;
}

void WriteGzip(const std::string& path, std::string_view content) {
  gzFile file = ::gzopen(path.c_str(), "wb");
  ::gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
  ::gzclose(file);
}

class LoadDatasetsTest : public ::testing::Test {
 protected:
  TrainingJobSpec Csv(std::string_view train) {
    TrainingJobSpec spec;
    spec.mutable_dataset()->set_normalize(false);
    spec.mutable_dataset()->mutable_train()->mutable_csv()->set_uri(
        folder_.Write("train.csv", train));
    return spec;
  }
  void AddValidation(TrainingJobSpec& spec, std::string_view content) {
    spec.mutable_dataset()->mutable_validation()->mutable_csv()->set_uri(
        folder_.Write("validation.csv", content));
  }
  static v1alpha1::CsvSource& TrainCsv(TrainingJobSpec& spec) {
    return *spec.mutable_dataset()->mutable_train()->mutable_csv();
  }
  TrainingJobSpec Idx(std::string_view images, std::string_view labels) {
    TrainingJobSpec spec;
    spec.mutable_dataset()->set_normalize(false);
    auto& idx = *spec.mutable_dataset()->mutable_train()->mutable_idx();
    idx.set_images_uri(folder_.Write("images", images));
    idx.set_labels_uri(folder_.Write("labels", labels));
    return spec;
  }

  // The one problem of `spec`, by the check before the start and by loading alike.
  FieldProblem ProblemOf(const TrainingJobSpec& spec) {
    const auto problems = CheckData(spec);
    EXPECT_THAT(problems, SizeIs(1));
    const auto loaded = LoadDatasets(spec);
    EXPECT_FALSE(loaded.ok());
    if (problems.empty()) return {};
    EXPECT_EQ(std::string(loaded.status().message()),
              absl::StrCat(problems[0].path, ": ", problems[0].message));
    return problems[0];
  }

  Datasets MustLoad(const TrainingJobSpec& spec) {
    EXPECT_THAT(CheckData(spec), IsEmpty());
    auto loaded = LoadDatasets(spec);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? *std::move(loaded) : Datasets{};
  }

  storage::TestFolder folder_;
};

TEST_F(LoadDatasetsTest, ATableWithAHeaderUsesItsColumnLabel) {
  const Datasets sets = MustLoad(Csv("a,label,b\n1,0,2\n3,2,4.5\n"));
  EXPECT_THAT(sets.train.features, ElementsAre(1, 2, 3, 4.5));
  EXPECT_THAT(sets.train.labels, ElementsAre(0, 2));
  EXPECT_THAT(sets.train.shape, ElementsAre(2));
  EXPECT_EQ(sets.train.classes, 3);
  EXPECT_FALSE(sets.validation.has_value());
  EXPECT_FALSE(sets.normalization.has_value());
}

TEST_F(LoadDatasetsTest, RowsThatCannotBeReadArePassedOverUpToABound) {
  TrainingJobSpec spec = Csv("a,b,label\n1,2,0\n3,x,1\n5,6\n7,8,-1\n9,10,2\n");
  spec.mutable_dataset()->set_on_bad_record(v1alpha1::ON_BAD_RECORD_SKIP);
  spec.mutable_dataset()->set_max_bad_records(3);
  const Datasets sets = MustLoad(spec);
  EXPECT_THAT(sets.train.features, ElementsAre(1, 2, 9, 10));
  EXPECT_THAT(sets.train.labels, ElementsAre(0, 2));
  spec.mutable_dataset()->set_max_bad_records(2);
  const FieldProblem problem = ProblemOf(spec);
  EXPECT_THAT(problem.message, HasSubstr("train.csv: line 5, column 3"));
  EXPECT_THAT(problem.message,
              HasSubstr("there are more bad records than the 2 of dataset.maxBadRecords"));
}

TEST_F(LoadDatasetsTest, ATableOfBadRowsAloneIsNoDataSet) {
  TrainingJobSpec spec = Csv("a,label\nx,0\ny,1\n");
  spec.mutable_dataset()->set_on_bad_record(v1alpha1::ON_BAD_RECORD_SKIP);
  EXPECT_THAT(ProblemOf(spec).message, HasSubstr("none of its rows can be read"));
}

TEST_F(LoadDatasetsTest, WithoutAHeaderTheLastColumnIsTheLabel) {
  const Datasets sets = MustLoad(Csv("1e1, -2 ,1\n+3,.5,0\n"));
  EXPECT_THAT(sets.train.features, ElementsAre(10, -2, 3, 0.5));
  EXPECT_THAT(sets.train.labels, ElementsAre(1, 0));
}

TEST_F(LoadDatasetsTest, TheLabelColumnIsFoundByNameOrNumber) {
  TrainingJobSpec spec = Csv("class;x;y\n1;5;6\n0;7;8\n");
  TrainCsv(spec).set_delimiter(";");
  TrainCsv(spec).set_label_column("class");
  EXPECT_THAT(MustLoad(spec).train.labels, ElementsAre(1, 0));
  TrainCsv(spec).set_label_column("0");
  EXPECT_THAT(MustLoad(spec).train.labels, ElementsAre(1, 0));
  TrainCsv(spec).set_label_column("2");
  EXPECT_THAT(MustLoad(spec).train.labels, ElementsAre(6, 8));
}

TEST_F(LoadDatasetsTest, AHeaderOfNumbersAndNoHeaderAreBelieved) {
  TrainingJobSpec spec = Csv("0,1\n5,1\n6,0\n");
  EXPECT_EQ(MustLoad(spec).train.size(), 3);
  TrainCsv(spec).set_header(v1alpha1::CSV_HEADER_PRESENT);
  EXPECT_EQ(MustLoad(spec).train.size(), 2);
  spec = Csv("a,label\n1,0\n");
  TrainCsv(spec).set_header(v1alpha1::CSV_HEADER_ABSENT);
  EXPECT_THAT(ProblemOf(spec).message, HasSubstr("line 1, column 1: \"a\" is not a number"));
}

TEST_F(LoadDatasetsTest, AShapeAndAClassCountMayBeGiven) {
  TrainingJobSpec spec = Csv("1,2,3,4,0\n");
  for (const int side : {1, 2, 2}) TrainCsv(spec).add_shape(side);
  TrainCsv(spec).set_classes(7);
  const Datasets sets = MustLoad(spec);
  EXPECT_THAT(sets.train.shape, ElementsAre(1, 2, 2));
  EXPECT_EQ(sets.train.classes, 7);
}

TEST_F(LoadDatasetsTest, ValidationTakesTheTrainingSetsClassesAndScale) {
  TrainingJobSpec spec = Csv("a,b,label\n0,5,0\n2,5,1\n");
  AddValidation(spec, "a,b,label\n4,6,1\n");
  spec.mutable_dataset()->set_normalize(true);
  const Datasets sets = MustLoad(spec);
  EXPECT_THAT(sets.normalization->mean, ElementsAre(1, 5));
  EXPECT_THAT(sets.normalization->std, ElementsAre(1, 1));  // b never varies
  EXPECT_THAT(sets.train.features, ElementsAre(-1, 0, 1, 0));
  EXPECT_THAT(sets.validation->features, ElementsAre(3, 1));
  EXPECT_EQ(sets.validation->classes, 2);
}

TEST_F(LoadDatasetsTest, ScaledFeaturesHaveMeanZeroAndVarianceOne) {
  std::string table;
  for (int i = 0; i < 500; ++i) absl::StrAppend(&table, 1000 + i % 17, ",", i % 2, "\n");
  TrainingJobSpec spec = Csv(table);
  spec.mutable_dataset()->clear_normalize();
  const Datasets sets = MustLoad(spec);
  double sum = 0;
  double squares = 0;
  for (const float value : sets.train.features) {
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / 500, 0, 1e-5);
  EXPECT_NEAR(squares / 500, 1, 1e-5);
}

TEST_F(LoadDatasetsTest, TheDigestTellsDataApart) {
  const std::string digest = MustLoad(Csv("1,0\n2,1\n")).digest;
  EXPECT_THAT(digest, SizeIs(64));
  EXPECT_EQ(MustLoad(Csv("1.0,0\n2,1\n")).digest, digest);
  EXPECT_NE(MustLoad(Csv("1,0\n3,1\n")).digest, digest);
  EXPECT_NE(MustLoad(Csv("1,0\n2,0\n")).digest, digest);
}

struct BadTable {
  const char* name;
  std::string content;
  const char* path;
  const char* message;
};

class BadTables : public LoadDatasetsTest, public ::testing::WithParamInterface<BadTable> {};

TEST_P(BadTables, AreRefusedWithFieldPlaceAndRemedy) {
  const FieldProblem problem = ProblemOf(Csv(GetParam().content));
  EXPECT_EQ(problem.path, std::string("spec.dataset.train.csv") + GetParam().path);
  EXPECT_THAT(problem.message, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    LoadDatasets, BadTables,
    ::testing::Values(
        BadTable{"Empty", "", ".uri", "the file is empty"},
        BadTable{"OnlyNewlines", "\n\n", ".uri", "holds no rows"},
        BadTable{"OnlyAHeader", "a,label\n", ".uri", "no row of data"},
        BadTable{"ShortRow", "1,2,0\n1,0\n", ".uri", "line 2 has 2 cells, but the first row has 3"},
        BadTable{"LongRow", "1,2,0\n\n1,2,3,0\n", ".uri", "line 3 has 4 cells"},
        BadTable{"Text", "1,2,0\n1,x,0\n", ".uri", "line 2, column 2: \"x\" is not a number"},
        BadTable{"TextUnderAName", "a,b,label\n1,,0\n", ".uri",
                 "line 2, column 2 (\"b\"): \"\" is not a number"},
        BadTable{"NotFinite", "1,0\nnan,0\n", ".uri", "is not a finite"},
        BadTable{"TooLarge", "1,0\n1e39,0\n", ".uri", "is not a finite 32-bit number"},
        BadTable{"FractionalLabel", "1,0\n1,0.5\n", ".uri", "line 2, column 2: label \"0.5\""},
        BadTable{"TextLabel", "a,label\n1,cat\n", ".uri", "label \"cat\" is not an integer"},
        BadTable{"NegativeLabel", "1,0\n1,-1\n", ".uri", "label -1 is out of range"},
        BadTable{"HugeLabel", "1,0\n1,65536\n", ".uri", "it must be 0 to 65535"},
        BadTable{"HugestLabel", "1,0\n1,1e300\n", ".uri", "is not an integer"},
        BadTable{"OneColumn", "1\n2\n", ".uri", "is the delimiter right?"},
        BadTable{"Binary",
                 "\x7f"
                 "ELF\x01,\x02\n\x03,1\n",
                 ".uri", "\"\\x03\" is not a number"},
        BadTable{"OpenQuote", "1,0\n\"1,0\n", ".uri", "a quote is opened"},
        BadTable{"TwoLabels", "label,label\n1,0\n", ".labelColumn", "2 columns called \"label\""}),
    [](const auto& table) { return table.param.name; });

TEST_F(LoadDatasetsTest, FilesThatCannotBeReadAreRefusedWithTheirPath) {
  TrainingJobSpec spec = Csv("1,0\n");
  TrainCsv(spec).set_uri(folder_.path() + "/none.csv");
  FieldProblem problem = ProblemOf(spec);
  EXPECT_EQ(problem.path, "spec.dataset.train.csv.uri");
  EXPECT_THAT(problem.message, HasSubstr("none.csv: there is no such file"));
  TrainCsv(spec).set_uri(folder_.path());
  EXPECT_THAT(ProblemOf(spec).message, HasSubstr("not a regular file"));
  TrainCsv(spec).set_uri("gs://bucket/x.csv");
  EXPECT_THAT(ProblemOf(spec).message, HasSubstr("scheme gs"));
  TrainCsv(spec).set_uri("file://" + folder_.path() + "/train.csv");
  EXPECT_EQ(MustLoad(spec).train.size(), 1);
}

TEST_F(LoadDatasetsTest, SettingsThatDoNotFitTheTableNameTheirOwnField) {
  TrainingJobSpec spec = Csv("a,b,label\n1,2,5\n");
  TrainCsv(spec).add_shape(3);
  FieldProblem problem = ProblemOf(spec);
  EXPECT_EQ(problem.path, "spec.dataset.train.csv.shape");
  EXPECT_THAT(problem.message, HasSubstr("[3] needs 3 features a row"));
  TrainCsv(spec).clear_shape();
  TrainCsv(spec).set_label_column("labl");
  problem = ProblemOf(spec);
  EXPECT_EQ(problem.path, "spec.dataset.train.csv.labelColumn");
  EXPECT_THAT(problem.message, HasSubstr("its 3 columns are \"a\", \"b\", \"label\""));
  TrainCsv(spec).set_label_column("3");
  EXPECT_EQ(ProblemOf(spec).path, "spec.dataset.train.csv.labelColumn");
  TrainCsv(spec).clear_label_column();
  TrainCsv(spec).set_classes(5);
  EXPECT_THAT(ProblemOf(spec).message, HasSubstr("with the 5 classes that the job file gives"));
  TrainCsv(spec).clear_classes();
  TrainCsv(spec).set_delimiter("ab");
  EXPECT_EQ(ProblemOf(spec).path, "spec.dataset.train.csv.delimiter");
}

TEST_F(LoadDatasetsTest, AValidationSetMustFitTheTrainingSet) {
  TrainingJobSpec spec = Csv("1,2,0\n1,2,1\n");
  AddValidation(spec, "1,2,1\n1,2,2\n");
  FieldProblem problem = ProblemOf(spec);
  EXPECT_EQ(problem.path, "spec.dataset.validation.csv.uri");
  EXPECT_THAT(problem.message,
              HasSubstr("line 2, column 3: label 2 is out of range; with the 2 classes of the"));
  AddValidation(spec, "1,2,3,1\n");
  EXPECT_THAT(ProblemOf(spec).message, HasSubstr("have shape [3], but those of the training set"));
  AddValidation(spec, "1,2,1\n");
  spec.mutable_dataset()->mutable_validation()->mutable_csv()->set_classes(9);
  EXPECT_EQ(ProblemOf(spec).path, "spec.dataset.validation.csv.classes");
}

TEST_F(LoadDatasetsTest, BothSetsProblemsAreSaidAtOnce) {
  TrainingJobSpec spec = Csv("");
  AddValidation(spec, "x,y\n1,\n");
  const auto problems = CheckData(spec);
  ASSERT_THAT(problems, SizeIs(2));
  EXPECT_EQ(problems[0].path, "spec.dataset.train.csv.uri");
  EXPECT_EQ(problems[1].path, "spec.dataset.validation.csv.uri");
}

TEST_F(LoadDatasetsTest, ALargeFileIsCheckedByItsBeginningAlone) {
  std::string table;
  while (table.size() < (32 << 20)) table += "0.25,0.5,0.75,1.25,3\n0.25,0.5,0.75,1.25,2\n";
  TrainingJobSpec spec = Csv("x,y,z,w,label\n" + table + "1,2,3,oops,0\n");
  AddValidation(spec, "1,2,3,4,3\n");
  EXPECT_THAT(CheckData(spec), IsEmpty()) << "the last row was read";
  spec = Csv("x,y,z,w,label\n1,2,3,oops,0\n" + table);
  EXPECT_THAT(CheckData(spec), SizeIs(1));
}

TEST_F(LoadDatasetsTest, IdxImagesBecomeNumbersFromZeroToOne) {
  const Datasets sets = MustLoad(Idx(Images(5), Labels(5)));
  EXPECT_THAT(sets.train.shape, ElementsAre(1, 2, 2));
  EXPECT_EQ(sets.train.size(), 5);
  EXPECT_EQ(sets.train.classes, 3);
  EXPECT_THAT(sets.train.labels, ElementsAre(0, 1, 2, 0, 1));
  EXPECT_FLOAT_EQ(sets.train.features[19], 19.0F / 255.0F);
}

TEST_F(LoadDatasetsTest, GzipAndPlainFilesAreTheSame) {
  TrainingJobSpec spec = Idx(Images(5), Labels(5));
  const std::string digest = MustLoad(spec).digest;
  WriteGzip(spec.dataset().train().idx().images_uri(), Images(5));
  WriteGzip(spec.dataset().train().idx().labels_uri(), Labels(5));
  EXPECT_EQ(MustLoad(spec).digest, digest);
}

TEST_F(LoadDatasetsTest, OffsetAndCountCutOneFileIntoTwoSets) {
  TrainingJobSpec spec = Idx(Images(10), Labels(10));
  *spec.mutable_dataset()->mutable_validation() = spec.dataset().train();
  spec.mutable_dataset()->mutable_train()->mutable_idx()->set_count(8);
  spec.mutable_dataset()->mutable_validation()->mutable_idx()->set_offset(8);
  const Datasets sets = MustLoad(spec);
  EXPECT_EQ(sets.train.size(), 8);
  EXPECT_THAT(sets.validation->labels, ElementsAre(2, 0));
  EXPECT_FLOAT_EQ(sets.validation->features[0], 32.0F / 255.0F);
  spec.mutable_dataset()->mutable_validation()->mutable_idx()->set_count(3);
  EXPECT_EQ(ProblemOf(spec).path, "spec.dataset.validation.idx.count");
  spec.mutable_dataset()->mutable_validation()->mutable_idx()->set_offset(10);
  EXPECT_EQ(ProblemOf(spec).path, "spec.dataset.validation.idx.offset");
}

TEST_F(LoadDatasetsTest, ImagesAreScaledByOneMeanAndDeviation) {
  TrainingJobSpec spec = Idx(Images(10), Labels(10));
  spec.mutable_dataset()->set_normalize(true);
  EXPECT_THAT(MustLoad(spec).normalization->mean, ElementsAre(FloatNear(19.5F / 255.0F, 1e-6F)));
}

TEST_F(LoadDatasetsTest, BadIdxFilesAreRefusedWithTheirField) {
  const std::string images = Images(5);
  const std::string labels = Labels(5);
  struct Case {
    std::string images, labels, path, message;
  };
  const Case cases[] = {
      {labels, images, ".imagesUri", "seem to be swapped"},
      {"MZ" + images, labels, ".imagesUri", "instead of 0x00000803"},
      {images, Labels(4), ".imagesUri", "has 5 images, but labelsUri has 4 labels"},
      {images.substr(0, images.size() - 1), labels, ".imagesUri", "is truncated"},
      {images, labels.substr(0, labels.size() - 1), ".labelsUri", "is truncated"},
      {images.substr(0, 9), labels, ".imagesUri", "is truncated"},
      {images + "x", labels, ".imagesUri", "goes on after the data"},
      {images, labels + "x", ".labelsUri", "goes on after the data"},
      {Word(0x803) + Word(0) + Word(2) + Word(2), Word(0x801) + Word(0), ".imagesUri",
       "holds no images"},
      {Word(0x803) + Word(5) + Word(0) + Word(2), labels, ".imagesUri", "is not possible"},
      {Word(0x803) + Word(0xffffffff) + Word(0xffffffff) + Word(0xffffffff),
       Word(0x801) + Word(0xffffffff), ".imagesUri", "is not possible"},
      {Word(0x803) + Word(1'000'000) + Word(28) + Word(28), Word(0x801) + Word(1'000'000),
       ".imagesUri", "is truncated: its header promises 784000000"},
  };
  for (const Case& bad : cases) {
    const FieldProblem problem = ProblemOf(Idx(bad.images, bad.labels));
    EXPECT_EQ(problem.path, "spec.dataset.train.idx" + bad.path);
    EXPECT_THAT(problem.message, HasSubstr(bad.message));
  }
}

TEST_F(LoadDatasetsTest, DamagedAndTruncatedGzipIsRefused) {
  TrainingJobSpec spec = Idx(Images(500), Labels(500));
  const std::string path = spec.dataset().train().idx().images_uri();
  WriteGzip(path, Images(500));
  const std::string whole = storage::TestFolder::Read(path);
  for (const std::size_t size : {whole.size() - 1, whole.size() - 9, whole.size() / 2}) {
    folder_.Write("images", whole.substr(0, size));
    EXPECT_THAT(ProblemOf(spec).message, HasSubstr("is truncated")) << size;
  }
  std::string flipped = whole;
  flipped[flipped.size() - 6] = static_cast<char>(flipped[flipped.size() - 6] ^ 1);
  folder_.Write("images", flipped);
  EXPECT_THAT(ProblemOf(spec).message, HasSubstr("is damaged"));
}

TEST_F(LoadDatasetsTest, LabelsOutOfRangeNameTheirSample) {
  TrainingJobSpec spec = Idx(Images(5), Labels(5));
  spec.mutable_dataset()->mutable_train()->mutable_idx()->set_classes(2);
  const FieldProblem problem = ProblemOf(spec);
  EXPECT_EQ(problem.path, "spec.dataset.train.idx.labelsUri");
  EXPECT_THAT(problem.message, HasSubstr("sample 2: label 2 is out of range"));
}

TEST_F(LoadDatasetsTest, SyntheticSetsComeFromTheSeedAndCanBeLearnt) {
  TrainingJobSpec spec;
  spec.mutable_dataset()->set_normalize(false);
  auto& train = *spec.mutable_dataset()->mutable_train()->mutable_synthetic();
  train.set_samples(300);
  train.set_classes(3);
  train.add_shape(8);
  *spec.mutable_dataset()->mutable_validation()->mutable_synthetic() = train;
  const Datasets sets = MustLoad(spec);
  EXPECT_EQ(MustLoad(spec).digest, sets.digest);
  EXPECT_NE(sets.train.features, sets.validation->features);
  // Each sample of the validation set is nearest to the mean of its own class in the training set.
  std::vector<double> means(3 * 8);
  for (int i = 0; i < 300; ++i) {
    for (int k = 0; k < 8; ++k)
      means[sets.train.labels[i] * 8 + k] += sets.train.features[i * 8 + k] / 100;
  }
  int right = 0;
  for (int i = 0; i < 300; ++i) {
    std::vector<double> distances(3);
    for (int c = 0; c < 3; ++c) {
      for (int k = 0; k < 8; ++k) {
        distances[c] += std::pow(sets.validation->features[i * 8 + k] - means[c * 8 + k], 2);
      }
    }
    const auto nearest = std::min_element(distances.begin(), distances.end()) - distances.begin();
    right += nearest == sets.validation->labels[i];
  }
  EXPECT_GT(right, 240);
  spec.set_seed(2);
  EXPECT_NE(MustLoad(spec).digest, sets.digest);
}

TEST_F(LoadDatasetsTest, LeNetNeedsImagesOfItsSize) {
  TrainingJobSpec spec = Idx(Images(5), Labels(5));
  spec.mutable_workload()->mutable_classification()->mutable_model()->mutable_lenet5();
  const auto problems = CheckData(spec);
  ASSERT_THAT(problems, SizeIs(1));
  EXPECT_EQ(problems[0].path, "spec.workload.classification.model.lenet5");
  EXPECT_THAT(problems[0].message, HasSubstr("has shape [1, 2, 2]"));
}

TEST_F(LoadDatasetsTest, LayersMustFitTheSamplesAsTheyAreInTheFiles) {
  TrainingJobSpec spec = Idx(Images(5), Labels(5));
  v1alpha1::Model& model = *spec.mutable_workload()->mutable_classification()->mutable_model();
  model.add_layers()->mutable_dense();
  const auto problems = CheckData(spec);
  ASSERT_THAT(problems, SizeIs(1));
  EXPECT_EQ(problems[0].path, "spec.workload.classification.model.layers[0].dense");
  EXPECT_THAT(problems[0].message, HasSubstr("is given [1, 2, 2]; put flatten"));
}

TEST(Gather, CopiesTheSamplesThatItIsGiven) {
  const Dataset set{
      .features = {1, 2, 3, 4, 5, 6}, .labels = {7, 8, 9}, .shape = {2}, .classes = 10};
  const std::vector<std::int64_t> ids = {2, 0};
  std::vector<float> features(4);
  std::vector<std::int64_t> labels(2);
  Gather(set, ids, features, labels);
  EXPECT_THAT(features, ElementsAre(5, 6, 1, 2));
  EXPECT_THAT(labels, ElementsAre(9, 7));
}

v1alpha1::TrainingJobSpec SparseSpec(const storage::TestFolder& folder, std::string_view train,
                                     std::string_view validation) {
  v1alpha1::TrainingJobSpec spec;
  spec.mutable_dataset()->mutable_train()->mutable_libsvm()->set_uri(
      folder.Write("train.libsvm", train));
  spec.mutable_dataset()->mutable_validation()->mutable_libsvm()->set_uri(
      folder.Write("validation.libsvm", validation));
  return spec;
}

Form Sparse(std::int64_t hashed = 1000) {
  return {.kind = Form::Kind::kSparse, .hashed = hashed, .hashed_field = "spec.the.field"};
}

TEST(LoadDatasets, SparseSetsAreReadApart) {
  const storage::TestFolder folder;
  const auto sets = LoadDatasets(SparseSpec(folder, "1 1:1\n-1 2:3 4:1\n", "1 7:1\n"), Sparse());
  ASSERT_TRUE(sets.ok()) << sets.status();
  ASSERT_NE(sets->sparse_train, nullptr);
  ASSERT_NE(sets->sparse_validation, nullptr);
  EXPECT_EQ(sets->sparse_train->labels, (std::vector<float>{1, -1}));
  EXPECT_EQ(sets->sparse_train->FeaturesOf(1).size(), 2U);
  EXPECT_EQ(sets->sparse_validation->labels, (std::vector<float>{1}));
  EXPECT_EQ(sets->sparse_validation->FeaturesOf(0)[0], HashedFeature(7, 1000));
  const auto moved = LoadDatasets(SparseSpec(folder, "1 1:1\n", "-1 2:3 4:1\n1 7:1\n"), Sparse());
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_NE(moved->digest, sets->digest) << "the same samples, but one is not trained on";
}

TEST(LoadDatasets, SeveralColumnsOfNumbersAreReadInTheOrderOfTheirNames) {
  const storage::TestFolder folder;
  v1alpha1::TrainingJobSpec spec;
  v1alpha1::CsvSource& csv = *spec.mutable_dataset()->mutable_train()->mutable_csv();
  csv.set_uri(folder.Write("train.csv", "price,a,size,b\n2.5,1,7,2\n-1e3,3,8,4\n"));
  csv.add_label_columns("size");
  csv.add_label_columns("0");
  spec.mutable_dataset()->set_normalize(false);
  const Form numbers{.kind = Form::Kind::kNumbers};
  const auto sets = LoadDatasets(spec, numbers);
  ASSERT_TRUE(sets.ok()) << sets.status();
  EXPECT_EQ(sets->train.size(), 2);
  EXPECT_EQ(sets->train.outputs, 2);
  EXPECT_THAT(sets->train.targets, ElementsAre(7, 2.5, 8, -1000));
  EXPECT_THAT(sets->train.features, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(sets->train.target_names, ElementsAre("size", "price"));
  std::vector<float> features(2), targets(2);
  const std::vector<std::int64_t> second = {1};
  GatherTargets(sets->train, second, features, targets);
  EXPECT_THAT(targets, ElementsAre(8, -1000));
  EXPECT_THAT(features, ElementsAre(3, 4));
  const auto problem = [&](const std::string& column) {
    csv.set_label_columns(1, column);
    const auto problems = CheckData(spec, numbers);
    return problems.empty() ? "" : problems[0].path + ": " + problems[0].message;
  };
  EXPECT_EQ(problem("price"), "");
  EXPECT_THAT(problem("size"), HasSubstr("labelColumns[1]: names the column \"size\" once more"));
  EXPECT_THAT(problem("4"), HasSubstr("labelColumns[1]: "));
  *spec.mutable_dataset()->mutable_validation() = spec.dataset().train();
  spec.mutable_dataset()
      ->mutable_validation()
      ->mutable_csv()
      ->mutable_label_columns()
      ->RemoveLast();
  csv.set_label_columns(1, "price");
  EXPECT_FALSE(LoadDatasets(spec, numbers).ok()) << "the sets do not fit together";
}

TEST(LoadDatasets, OfSamplesWithoutLabelsAColumnOfThemIsLeftOut) {
  const storage::TestFolder folder;
  v1alpha1::TrainingJobSpec spec;
  v1alpha1::CsvSource& csv = *spec.mutable_dataset()->mutable_train()->mutable_csv();
  spec.mutable_dataset()->set_normalize(false);
  const auto features = [&](const std::string& table) {
    csv.set_uri(folder.Write("train.csv", table));
    const auto sets = LoadDatasets(spec, {.kind = Form::Kind::kSamples});
    EXPECT_TRUE(sets.ok()) << sets.status();
    return sets.ok() ? sets->train.features : std::vector<float>();
  };
  EXPECT_THAT(features("a,b\n1,2\n"), ElementsAre(1, 2));
  EXPECT_THAT(features("a,label\n1,cat\n"), ElementsAre(1));
  csv.set_label_column("b");
  EXPECT_THAT(features("a,b\n1,cat\n"), ElementsAre(1));
}

TEST(LoadDatasets, WhereFeaturesAreSharesOneThatIsNoneIsNamedByPlaceAndRemedy) {
  const storage::TestFolder folder;
  const Form form{.kind = Form::Kind::kSamples, .shares = true};
  TrainingJobSpec spec;
  spec.mutable_dataset()->set_normalize(false);
  auto& train = *spec.mutable_dataset()->mutable_train()->mutable_csv();
  train.set_uri(folder.Write("train.csv", "a,b,label\n0,1,7\n0.5,0.25,9\n"));
  EXPECT_THAT(CheckData(spec, form), IsEmpty()) << "what is left out may be anything";
  EXPECT_TRUE(LoadDatasets(spec, form).ok());
  for (const char* wrong : {"1.5", "-0.1"}) {
    train.set_uri(folder.Write("train.csv", absl::StrCat("a,b,label\n0,1,7\n0.5,", wrong, ",9\n")));
    const auto problems = CheckData(spec, form);
    ASSERT_THAT(problems, SizeIs(1));
    EXPECT_EQ(problems[0].path, "spec.dataset.train.csv.uri");
    EXPECT_THAT(problems[0].message,
                AllOf(HasSubstr(absl::StrCat("train.csv: line 3, column 2 (\"b\"): \"", wrong,
                                             "\" is not from 0 to 1")),
                      HasSubstr("use loss: SquaredError")));
    EXPECT_FALSE(LoadDatasets(spec, form).ok());
    EXPECT_TRUE(LoadDatasets(spec, {.kind = Form::Kind::kSamples}).ok());
  }
}

TEST(LoadDatasets, ALabelColumnOfNumbersIsReadAsTargets) {
  const storage::TestFolder folder;
  v1alpha1::TrainingJobSpec spec;
  v1alpha1::CsvSource& csv = *spec.mutable_dataset()->mutable_train()->mutable_csv();
  csv.set_uri(folder.Write("train.csv", "price,a,b\n2.5,1,2\n-1e3,3,4\n"));
  csv.set_label_column("price");
  spec.mutable_dataset()->set_normalize(false);
  const Form numbers{.kind = Form::Kind::kNumbers};
  const auto sets = LoadDatasets(spec, numbers);
  ASSERT_TRUE(sets.ok()) << sets.status();
  EXPECT_EQ(sets->train.targets, (std::vector<float>{2.5, -1000}));
  EXPECT_EQ(sets->train.features, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(sets->train.size(), 2);
  EXPECT_THAT(sets->train.labels, testing::IsEmpty());
  EXPECT_FALSE(LoadDatasets(spec).ok()) << "classes are whole numbers from 0 on";

  csv.set_uri(folder.Write("wrong.csv", "price,a,b\n2.5,1,2\nmuch,3,4\n"));
  const auto problems = CheckData(spec, numbers);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].path, "spec.dataset.train.csv.uri");
  EXPECT_NE(problems[0].message.find("line 3, column 1"), std::string::npos);
  EXPECT_NE(problems[0].message.find("labelColumn"), std::string::npos);
}

TEST(LoadDatasets, OnlyTablesHaveNumbersToBePredicted) {
  v1alpha1::TrainingJobSpec spec;
  spec.mutable_dataset()->mutable_train()->mutable_synthetic();
  const auto problems = CheckData(spec, {.kind = Form::Kind::kNumbers});
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].path, "spec.dataset.train");
  EXPECT_NE(problems[0].message.find("must be csv"), std::string::npos);
}

TEST(LoadDatasets, ASparseSetsWrongLineIsAFieldsProblem) {
  const storage::TestFolder folder;
  const auto problems = CheckData(SparseSpec(folder, "1 1:1\n", "1 7\n"), Sparse());
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].path, "spec.dataset.validation.libsvm.uri");
  EXPECT_NE(problems[0].message.find("line 1: \"7\" is not number:value"), std::string::npos);
}

TEST(LoadDatasets, MoreHashedFeaturesThanAWorkerCanKeepAreRefused) {
  const storage::TestFolder folder;
  const auto problems = CheckData(SparseSpec(folder, "1 1:1\n", "1 7:1\n"), Sparse(1LL << 40));
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].path, "spec.the.field");
}

}  // namespace
}  // namespace starling::data
