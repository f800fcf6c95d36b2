// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tar_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/random/philox.h"
#include "common/storage/test_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/data/load_datasets.h"
#include "trainer/testing/data_errors.h"
#include "trainer/testing/test_images.h"
#include "trainer/testing/test_tar.h"

namespace starling::data {
namespace {

using image::PngOf;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::uint64_t kWhole = std::numeric_limits<std::uint64_t>::max();

std::string Grey(std::uint8_t value) {
  return PngOf({.size = {1, 1}, .channels = 1, .pixels = {value}});
}

// Counts what is read of an archive.
struct Archive {
  std::string bytes;
  std::size_t reads = 0;
  std::size_t read_bytes = 0;

  ReadBytes Reading() {
    return [this](std::uint64_t offset, std::span<std::byte> into) {
      EXPECT_LE(offset + into.size(), bytes.size());
      ++reads;
      read_bytes += into.size();
      std::memcpy(into.data(), bytes.data() + offset, into.size());
      return absl::OkStatus();
    };
  }
};

struct Walked {
  absl::Status status;
  std::vector<std::string> names;
  std::vector<std::string> contents;
};

Walked Walk(Archive& archive, std::size_t most = 1 << 20) {
  TarReader reader(archive.bytes.size(), most, archive.Reading());
  Walked walked;
  while (true) {
    const auto member = reader.Next();
    walked.status = member.status();
    if (!member.ok() || !member->has_value()) return walked;
    walked.names.push_back((*member)->name);
    walked.contents.push_back(archive.bytes.substr((*member)->offset, (*member)->size));
  }
}

Walked Walk(std::string bytes) {
  Archive archive{std::move(bytes)};
  return Walk(archive);
}

std::string ErrorOf(const std::string& bytes) {
  const Walked walked = Walk(bytes);
  EXPECT_TRUE(absl::IsInvalidArgument(walked.status)) << walked.status;
  return std::string(walked.status.message());
}

std::string PaxRecord(const std::string& key, const std::string& value) {
  // The length counts its own digits: two of them here.
  const std::string rest = absl::StrCat(" ", key, "=", value, "\n");
  const std::size_t digits = rest.size() + 2 < 100 ? 2 : 3;
  return absl::StrCat(rest.size() + digits, rest);
}

TEST(TarReader, MembersAreFoundWithTheirContent) {
  const Walked walked = Walk(TarOf({{"a/1.jpg", "one"}, {"a/1.cls", "7"}, {"b", ""}}));
  EXPECT_TRUE(walked.status.ok()) << walked.status;
  EXPECT_THAT(walked.names, ElementsAre("a/1.jpg", "a/1.cls", "b"));
  EXPECT_THAT(walked.contents, ElementsAre("one", "7", ""));
}

TEST(TarReader, LongNamesComeInThreeForms) {
  const std::string deep(150, 'd');
  std::string archive = TarHeader("17.jpg", 2, '0', "folder/of/posix") + std::string("ab");
  archive.resize(1024);
  archive += TarMemberOf("././@LongLink", deep + "gnu.jpg" + std::string(1, '\0'), 'L');
  archive += TarMemberOf("cut", "cd");
  archive += TarMemberOf("PaxHeaders/1", PaxRecord("mtime", "1.5") + PaxRecord("path", deep), 'x');
  archive += TarMemberOf("cut", "ef");
  archive += TarMemberOf("plain", "gh");
  const Walked walked = Walk(archive + TarEnd());
  EXPECT_TRUE(walked.status.ok()) << walked.status;
  EXPECT_THAT(walked.names, ElementsAre("folder/of/posix/17.jpg", deep + "gnu.jpg", deep, "plain"));
  EXPECT_THAT(walked.contents, ElementsAre("ab", "cd", "ef", "gh"));
}

TEST(TarReader, WhatIsNoFileIsPassedOver) {
  const std::string archive = TarMemberOf("pax", PaxRecord("comment", "x"), 'g') +
                              TarHeader("folder/", 0, '5') + TarHeader("old/", 0, '\0') +
                              TarHeader("link", 0, '2') + TarMemberOf("file", "x");
  EXPECT_THAT(Walk(archive + TarEnd()).names, ElementsAre("file"));
}

TEST(TarReader, ASizeMayStandInAPaxHeaderOrInBinary) {
  std::string archive = TarMemberOf("x", PaxRecord("size", "3"), 'x') + TarHeader("a", 0);
  archive += "abc";
  archive.resize((archive.size() + 511) / 512 * 512);
  EXPECT_THAT(Walk(archive + TarEnd()).contents, ElementsAre("abc"));

  std::string header = TarHeader("a", 0);
  header.replace(124, 12, std::string("\x80\0\0\0\0\0\0\0\0\0\0\x03", 12));
  header.replace(148, 8, "        ");
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  header.replace(148, 7, absl::StrFormat("%06o", sum) + std::string(1, '\0'));
  std::string binary = header + "abc";
  binary.resize(1024);
  EXPECT_THAT(Walk(binary + TarEnd()).contents, ElementsAre("abc"));
}

TEST(TarReader, WhatIsNoArchiveIsToldApart) {
  EXPECT_THAT(ErrorOf("short"), HasSubstr("it is shorter than a header"));
  EXPECT_THAT(ErrorOf(std::string(600, 'x')), HasSubstr("what stands there is no tar header"));
  EXPECT_THAT(ErrorOf("\x1f\x8b" + std::string(600, 'x')), HasSubstr("is compressed as a whole"));
}

TEST(TarReader, ACutArchiveIsNeverTakenForWhole) {
  const std::string archive = TarOf({{"1.jpg", std::string(700, 'x')}, {"1.cls", "7"}});
  ASSERT_TRUE(Walk(archive).status.ok());
  for (std::size_t size = 0; size + 512 < archive.size(); ++size) {
    const absl::Status status = Walk(archive.substr(0, size)).status;
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << size << status;
  }
  EXPECT_THAT(ErrorOf(archive.substr(0, 600)),
              HasSubstr("ends at byte 600, within \"1.jpg\", which has 700 bytes from byte 512"));
  EXPECT_THAT(ErrorOf(archive.substr(0, 512 + 1024)), HasSubstr("it ends without its end mark"));
}

TEST(TarReader, DamagedAndForgedHeadersAreRefused) {
  std::string wrong_sum = TarOf({{"a", "x"}, {"b", "y"}});
  wrong_sum[1024] = 'c';
  EXPECT_THAT(ErrorOf(wrong_sum), HasSubstr("byte 1024: the sum over a header is wrong"));
  for (const char* size : {"18446744073709551615", "9223372036854775807", "x", ""}) {
    EXPECT_THAT(
        ErrorOf(TarMemberOf("x", PaxRecord("size", size), 'x') + TarMemberOf("a", "x") + TarEnd()),
        HasSubstr("is no whole tar archive"));
  }
  EXPECT_THAT(ErrorOf(TarMemberOf("x", PaxRecord("GNU.sparse.major", "1"), 'x') + TarEnd()),
              HasSubstr("a sparse file"));
  for (const char* records : {"99 path=a\n", "0 path=a\n", "path", "11 path=a\n", "9 path=ab"}) {
    EXPECT_THAT(ErrorOf(TarMemberOf("x", records, 'x') + TarEnd()),
                HasSubstr("a record of a pax header is damaged"));
  }
  EXPECT_THAT(ErrorOf(TarMemberOf("x", std::string(70000, 'a'), 'L') + TarEnd()),
              HasSubstr("has 70000 bytes, more than the 65536"));
  EXPECT_THAT(ErrorOf(TarMemberOf("a", "x", 'S') + TarEnd()), HasSubstr("is of type \"S\""));
  EXPECT_THAT(ErrorOf(TarMemberOf("a", "x", '2') + TarEnd()), HasSubstr("is of type \"2\""));
}

// Under AddressSanitizer, too: bytes from anywhere are an error or members that lie in the archive.
TEST(TarReader, FlippedBitsAreAnErrorOrMembersWithinTheArchive) {
  const std::string deep(150, 'd');
  const std::string archive =
      TarMemberOf("x", PaxRecord("path", deep) + PaxRecord("size", "12"), 'x') +
      TarMemberOf("1.jpg", "twelve bytes") + TarMemberOf("././@LongLink", deep, 'L') +
      TarMemberOf("1.cls", "7") + TarHeader("folder", 0, '5') + TarMemberOf("2.jpg", "image") +
      TarEnd();
  const random::Philox dice(1, random::Stream::kTest);
  std::uint64_t throws = 0;
  int errors = 0;
  for (int round = 0; round < 20000; ++round) {
    Archive broken{archive};
    const std::uint64_t flips = 1 + dice.Below(throws++, 3);
    for (std::uint64_t i = 0; i < flips; ++i) {
      const std::uint64_t bit = dice.Below(throws++, archive.size() * 8);
      broken.bytes[bit / 8] = static_cast<char>(broken.bytes[bit / 8] ^ (1 << bit % 8));
    }
    // Sums that are right again let the damage through to what stands behind them.
    if (round % 2 == 0) {
      for (std::size_t at = 0; at + 512 <= broken.bytes.size(); at += 512) {
        std::string header = broken.bytes.substr(at, 512);
        if (header[0] == '\0') continue;
        header.replace(148, 8, "        ");
        unsigned sum = 0;
        for (const char c : header) sum += static_cast<unsigned char>(c);
        broken.bytes.replace(at + 148, 6, absl::StrFormat("%06o", sum));
        broken.bytes.replace(at + 154, 2, std::string("\0 ", 2));
      }
    }
    if (round % 5 == 0) broken.bytes.resize(dice.Below(throws++, archive.size()));
    TarReader reader(broken.bytes.size(), 1024, broken.Reading());
    const auto index =
        IndexTar(reader, std::numeric_limits<std::uint64_t>::max(), [](std::int64_t label) {
          return label >= 0 ? absl::OkStatus() : absl::InvalidArgumentError("negative");
        });
    if (!index.ok()) {
      ++errors;
      EXPECT_TRUE(absl::IsInvalidArgument(index.status())) << index.status();
      continue;
    }
    for (std::size_t i = 0; i < index->labels.size(); ++i) {
      ASSERT_LE(index->offsets[i] + index->sizes[i], broken.bytes.size());
    }
  }
  EXPECT_GT(errors, 5000) << "damage is mostly found";
  EXPECT_LT(errors, 20000) << "and some leaves an archive";
}

TEST(TarReader, LargeMembersArePassedOverAndSmallOnesReadTogether) {
  std::vector<std::pair<std::string, std::string>> files;
  for (int i = 0; i < 20; ++i) files.emplace_back(absl::StrCat(i), std::string(1 << 20, 'x'));
  Archive large{TarOf(files)};
  EXPECT_THAT(Walk(large).names, SizeIs(20));
  EXPECT_LT(large.read_bytes, large.bytes.size() / 40);

  files.clear();
  for (int i = 0; i < 4000; ++i) files.emplace_back(absl::StrCat(i), std::string(1000, 'x'));
  Archive small{TarOf(files)};
  EXPECT_THAT(Walk(small).names, SizeIs(4000));
  EXPECT_LT(small.reads, 20u) << "of 6 MB";
}

std::vector<std::string> NamesIn(const TarIndex& index) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < index.size(); ++i) names.emplace_back(index.names.At(i));
  return names;
}

TEST(IndexTarImages, AllThatIsNamedAsAnImageIsOneWhateverStandsBesideIt) {
  Archive archive{TarOf({{"./a/1.jpg", "x"},
                         {"a/1.cls", "no number"},
                         {"a/2.PNG", ""},
                         {"a/2.jpeg", "x"},
                         {"a/3.seg.png", "a mask, not the image"},
                         {"a/._4.jpg", "hidden"},
                         {"a.jpg/notes.txt", "x"},
                         {"jpg", "x"}})};
  TarReader reader(archive.bytes.size(), 1 << 20, archive.Reading());
  const auto index = IndexTarImages(reader, kWhole);
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_THAT(NamesIn(*index), ElementsAre("./a/1.jpg", "a/2.PNG", "a/2.jpeg"));
  EXPECT_THAT(index->bad, IsEmpty());
}

TEST(IndexTarImages, OfABeginningOnlyWhatStandsThere) {
  Archive archive{TarOf({{"1.jpg", "x"}, {"2.jpg", "x"}, {"3.jpg", "x"}})};
  TarReader reader(archive.bytes.size(), 1 << 20, archive.Reading());
  const auto index = IndexTarImages(reader, 1024);
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_THAT(NamesIn(*index), ElementsAre("1.jpg"));
  EXPECT_FALSE(index->whole);
}

TEST(IndexTarImages, WhatIsTooLargeForAnImageIsToldAndNotRead) {
  const std::string head = TarHeader("1.jpg", image::kMaxFileBytes + 1);
  const std::string rest = TarMemberOf("2.jpg", "x") + TarEnd();
  const std::uint64_t behind = 512 + image::kMaxFileBytes + 512;
  std::uint64_t read = 0;
  TarReader reader(behind + rest.size(), 1024, [&](std::uint64_t at, std::span<std::byte> into) {
    read += into.size();
    const std::string& part = at < behind ? head : rest;
    const std::uint64_t begin = at < behind ? at : at - behind;
    std::memcpy(into.data(), part.data() + begin, std::min(into.size(), part.size() - begin));
    return absl::OkStatus();
  });
  const auto index = IndexTarImages(reader, kWhole);
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_THAT(NamesIn(*index), ElementsAre("2.jpg"));
  EXPECT_THAT(index->bad, ElementsAre(testing::StartsWith("1.jpg has 268435457 bytes, more than")));
  EXPECT_LT(read, 100'000u);
}

class TarSourceTest : public testing::Test {
 protected:
  using Files = std::vector<std::pair<std::string, std::string>>;

  // Grey images of 1 by 1, not scaled: their values are their colours.
  v1alpha1::TrainingJobSpec Job(const std::string& name = "train.tar") {
    v1alpha1::TrainingJobSpec spec;
    spec.mutable_dataset()->set_normalize(false);
    Fill(*spec.mutable_dataset()->mutable_train(), name);
    return spec;
  }
  void Fill(v1alpha1::DataSource& source, const std::string& name) {
    source.mutable_tar()->set_uri(folder_.path() + "/" + name);
    for (const std::int64_t side : {1, 1, 1}) source.mutable_tar()->add_shape(side);
  }
  static Files Sample(const std::string& key, std::uint8_t value, int label) {
    return {{key + ".png", Grey(value)}, {key + ".cls", absl::StrCat(label)}};
  }
  static Files Samples(const std::vector<Files>& samples) {
    Files all;
    for (const Files& sample : samples) all.insert(all.end(), sample.begin(), sample.end());
    return all;
  }
  void Write(const std::string& name, const std::vector<Files>& samples) {
    folder_.Write(name, TarOf(Samples(samples)));
  }

  storage::TestFolder folder_;
};

struct Pixels {
  absl::Status status;
  std::vector<float> features;  // 0 to 255
  std::vector<std::int64_t> labels;
};

Pixels ReadAll(const Dataset& set) {
  Pixels read;
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < set.size(); ++i) ids.push_back(i);
  read.features.resize(ids.size() * static_cast<std::size_t>(set.SampleSize()));
  read.labels.resize(ids.size());
  read.status = data::Read(set, ids, 0, read.features, read.labels);
  for (float& value : read.features) value = std::round(255 * value);
  return read;
}

TEST_F(TarSourceTest, MembersOfOneKeyAreASampleInTheOrderOfTheArchives) {
  Write("train-08.tar", {{{"README", "no sample"}},
                         Sample("dog/b", 4, 2),
                         {{"cat/a.CLS", "0\n"}, {"cat/a.json", "{}"}, {"cat/a.PNG", Grey(3)}}});
  Write("train-09.tar", {{{"._hidden.jpg", "x"}}, Sample("a", 1, 1), {{"a.b.txt", "no image"}}});
  Write("train-10.tar", {Sample("a", 9, 0)});
  const auto sets = LoadDatasets(Job("train-{08..10}.tar"));
  ASSERT_TRUE(sets.ok()) << sets.status();
  EXPECT_EQ(sets->train.classes, 3);
  EXPECT_THAT(sets->train.features, IsEmpty()) << "nothing is held in memory";
  const Pixels read = ReadAll(sets->train);
  ASSERT_TRUE(read.status.ok()) << read.status;
  EXPECT_THAT(read.features, ElementsAre(4, 3, 1, 9));
  EXPECT_THAT(read.labels, ElementsAre(2, 0, 1, 0));
}

TEST_F(TarSourceTest, TheDigestIsOfNamesLabelsAndPlaces) {
  Write("train.tar", {Sample("a", 1, 0), Sample("b", 2, 1)});
  const std::string first = LoadDatasets(Job())->digest;
  EXPECT_EQ(first, LoadDatasets(Job())->digest);
  Write("train.tar", {Sample("a", 1, 0), Sample("b", 2, 0)});
  const std::string other_label = LoadDatasets(Job())->digest;
  EXPECT_NE(first, other_label);
  Write("train.tar", {Sample("a", 1, 0), Sample("c", 2, 0)});
  EXPECT_NE(other_label, LoadDatasets(Job())->digest);
}

TEST_F(TarSourceTest, ArchivesThatAreNoneAreToldWithTheField) {
  const std::string field = "spec.dataset.train.tar.uri: ";
  EXPECT_THAT(DataErrorOf(Job()), AllOf(HasSubstr(field + folder_.path() + "/train.tar"),
                                        HasSubstr("there is no such file")));
  folder_.Write("train.tar", "no archive");
  EXPECT_THAT(DataErrorOf(Job()), HasSubstr(field + folder_.path() + "/train.tar is no whole tar"));
  Write("train.tar", {{{"a.txt", "x"}}});
  EXPECT_THAT(DataErrorOf(Job()), HasSubstr("there are no samples; pack each image"));
  EXPECT_THAT(DataErrorOf(Job("train-{2..1}.tar")), HasSubstr("does not count up"));
  EXPECT_THAT(DataErrorOf(Job("")), HasSubstr("must name a file, not a folder"));
}

TEST_F(TarSourceTest, ASampleThatIsNoneIsToldByNameOrPassedOver) {
  const Files image = {{"x.png", Grey(7)}};
  const Files label = {{"x.cls", "1"}};
  for (const auto& [sample, words] : std::vector<std::pair<Files, std::string>>{
           {image, "x.png has no class; pack x.cls behind it"},
           {label, "x.cls has no image (jpg, jpeg, png)"},
           {{image[0], {"x.cls", "cat"}}, "x.cls holds \"cat\"; it must hold the number"},
           {{image[0], {"x.cls", std::string(40, '1')}}, "x.cls holds 40 bytes; it must hold"},
           {{image[0], {"x.cls", "-1"}}, "x.cls: label -1 is out of range"},
           {{image[0], label[0], label[0]}, "x.cls is there twice"},
           {{image[0], {"x.jpg", Grey(1)}, label[0]}, "x has two images, x.png and x.jpg"}}) {
    Write("train.tar", {Sample("a", 1, 0), sample, Sample("b", 2, 1)});
    EXPECT_THAT(DataErrorOf(Job()),
                AllOf(HasSubstr("spec.dataset.train.tar.uri: " + folder_.path() + "/train.tar: "),
                      HasSubstr(words)));
    auto spec = Job();
    spec.mutable_dataset()->set_on_bad_record(v1alpha1::ON_BAD_RECORD_SKIP);
    const auto sets = LoadDatasets(spec);
    ASSERT_TRUE(sets.ok()) << sets.status();
    EXPECT_THAT(ReadAll(sets->train).features, ElementsAre(1, 2)) << words;
    spec.mutable_dataset()->set_max_bad_records(0);
    EXPECT_THAT(std::string(LoadDatasets(spec).status().message()),
                HasSubstr("more bad records than the 0 of dataset.maxBadRecords"));
  }
}

TEST_F(TarSourceTest, ABadImageIsToldByNameOrTheNextStandsInForIt) {
  Write("train.tar",
        {Sample("a", 1, 0), {{"b.jpg", "no image"}, {"b.cls", "1"}}, Sample("c", 3, 1)});
  EXPECT_EQ(std::string(ReadAll(LoadDatasets(Job())->train).status.message()),
            absl::StrCat("spec.dataset.train.tar.uri: ", folder_.path(),
                         "/train.tar: b.jpg is neither a JPEG nor a PNG file; repair or remove it "
                         "(dataset.onBadRecord: Skip passes over such images)"));
  auto spec = Job();
  spec.mutable_dataset()->set_on_bad_record(v1alpha1::ON_BAD_RECORD_SKIP);
  EXPECT_THAT(ReadAll(LoadDatasets(spec)->train).features, ElementsAre(1, 3, 3));
}

// Without a job, as `starling predict` loads them.
TEST_F(TarSourceTest, ImagesWithoutClassesHaveTheirMembersNames) {
  Write("new-0.tar", {{{"b.png", Grey(4)}, {"b.cls", "cat"}, {"a.png", Grey(3)}}});
  Write("new-1.tar", {{{"notes.txt", "no image"}}});
  Write("new-2.tar", {{{"b.png", Grey(9)}}});
  const auto load = [this](const std::string& name) {
    const auto spec = Job(name);
    LoadOptions options;
    options.path = "here";
    return LoadLooseTar(spec.dataset().train().tar(), options);
  };
  const auto images = load("new-{0..2}.tar");
  ASSERT_TRUE(images.ok()) << images.status();
  EXPECT_THAT(images->names, ElementsAre("b.png", "a.png", "b.png"));
  EXPECT_THAT(ReadAll(images->loaded.dataset).features, ElementsAre(4, 3, 9));

  const std::string begin = "here.uri: " + folder_.path() + "/";
  EXPECT_THAT(std::string(load("new-1.tar").status().message()),
              testing::StartsWith(begin + "new-1.tar: there are no images; pack files"));
  EXPECT_THAT(std::string(load("new-{1..1}.tar").status().message()), HasSubstr("1.tar: there"));
  std::filesystem::resize_file(folder_.path() + "/new-2.tar", 600);
  EXPECT_THAT(std::string(load("new-{0..2}.tar").status().message()),
              testing::StartsWith(begin + "new-2.tar is no whole tar archive (byte 600: it ends"));
  Write("bad.tar", {{{"c.png", "no image"}}});
  EXPECT_EQ(std::string(ReadAll(load("bad.tar")->loaded.dataset).status.message()),
            begin + "bad.tar: c.png is neither a JPEG nor a PNG file; repair or remove it")
      << "without a job nothing can be passed over";
}

TEST_F(TarSourceTest, SamplesWhoseClassesNobodyLooksAtNeedNone) {
  Write("train.tar", {{{"a.png", Grey(4)}, {"b.png", Grey(3)}, {"b.cls", "cat"}}});
  const Form form{.kind = Form::Kind::kSamples};
  EXPECT_THAT(CheckData(Job(), form), IsEmpty());
  const auto sets = LoadDatasets(Job(), form);
  ASSERT_TRUE(sets.ok()) << sets.status();
  EXPECT_THAT(ReadAll(sets->train).features, ElementsAre(4, 3));
  EXPECT_FALSE(LoadDatasets(Job()).ok()) << "a classification needs them";
  Write("train.tar", {{{"a.txt", "none"}}});
  EXPECT_THAT(std::string(LoadDatasets(Job(), form).status().message()),
              HasSubstr("train.tar: there are no images; pack files"));
}

TEST_F(TarSourceTest, ClassesAreCountedOrGiven) {
  Write("train.tar", {Sample("a", 1, 0), Sample("b", 2, 4)});
  EXPECT_EQ(LoadDatasets(Job())->train.classes, 5);
  auto spec = Job();
  spec.mutable_dataset()->mutable_train()->mutable_tar()->set_classes(10);
  EXPECT_EQ(LoadDatasets(spec)->train.classes, 10);
  spec.mutable_dataset()->mutable_train()->mutable_tar()->set_classes(3);
  EXPECT_THAT(DataErrorOf(spec), HasSubstr("b.cls: label 4 is out of range; with the 3 classes"));
  Write("test.tar", {Sample("a", 1, 5)});
  spec = Job();
  Fill(*spec.mutable_dataset()->mutable_validation(), "test.tar");
  EXPECT_THAT(DataErrorOf(spec),
              HasSubstr("label 5 is out of range; with the 5 classes of the training"));
}

TEST_F(TarSourceTest, AValidationFolderHasAsManyClassesAsTheTrainingArchive) {
  Write("train.tar", {Sample("a", 1, 0), Sample("b", 2, 1)});
  for (const char* label : {"a", "b", "c"}) {
    std::filesystem::create_directories(folder_.path() + "/test/" + label);
    folder_.Write(absl::StrCat("test/", label, "/1.png"), Grey(1));
  }
  auto spec = Job();
  auto& folder = *spec.mutable_dataset()->mutable_validation()->mutable_image_folder();
  folder.set_uri(folder_.path() + "/test");
  for (const std::int64_t side : {1, 1, 1}) folder.add_shape(side);
  EXPECT_THAT(DataErrorOf(spec),
              HasSubstr("has 3 folders with images, but the training set has 2"));
  std::filesystem::remove_all(folder_.path() + "/test/c");
  EXPECT_TRUE(LoadDatasets(spec).ok());
}

TEST_F(TarSourceTest, AnArchiveThatBecameShorterIsNoBadRecord) {
  Write("train.tar", {Sample("a", 1, 0), Sample("b", 2, 1)});
  auto spec = Job();
  spec.mutable_dataset()->set_on_bad_record(v1alpha1::ON_BAD_RECORD_SKIP);
  const auto sets = LoadDatasets(spec);
  std::filesystem::resize_file(folder_.path() + "/train.tar", 600);
  const absl::Status status = ReadAll(sets->train).status;
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the file became shorter"));
}

}  // namespace
}  // namespace starling::data
