// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/safetensors.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Aligned as the reader wants it.
std::vector<std::byte> ToBytes(std::string_view text) {
  const auto view = std::as_bytes(std::span(text.data(), text.size()));
  return {view.begin(), view.end()};
}

std::string WithHeader(std::string header, std::string_view data, bool pad = true) {
  while (pad && header.size() % 8 != 0) header += ' ';
  std::string file(8, '\0');
  const std::uint64_t size = header.size();
  std::memcpy(file.data(), &size, 8);
  return absl::StrCat(file, header, absl::string_view(data.data(), data.size()));
}

const std::vector<float> kFloats = {1, 2, 3, 4, 5, 6};
const std::vector<std::int64_t> kIntegers = {-7, 8};
const std::string kBytes = "abc";

std::vector<TensorView> Tensors() {
  return {MakeView("b.weight", {2, 3}, kFloats), MakeView("a", {2}, kIntegers),
          TensorView{.name = "c",
                     .type = DType::kU8,
                     .shape = {3},
                     .data = std::as_bytes(std::span(kBytes.data(), kBytes.size()))},
          MakeView("empty", {0, 5}, std::span<const float>())};
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  const auto file = ToBytes(Encode(Tensors(), {{"format", "pt"}}).value());
  const auto decoded = Decode(file);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->metadata.at("format"), "pt");
  ASSERT_NE(decoded->Find("b.weight"), nullptr);
  EXPECT_THAT(decoded->Find("b.weight")->Floats(), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(decoded->Find("b.weight")->shape, ElementsAre(2, 3));
  EXPECT_THAT(decoded->Find("a")->Integers(), ElementsAre(-7, 8));
  EXPECT_EQ(decoded->Find("c")->data.size(), 3u);
  EXPECT_EQ(decoded->Find("empty")->shape, (std::vector<std::int64_t>{0, 5}));
  EXPECT_EQ(decoded->Find("d"), nullptr);
  EXPECT_TRUE(decoded->Find("a")->Floats().empty());
  EXPECT_TRUE(decoded->Find("b.weight")->Integers().empty());
}

TEST(Safetensors, TheBytesAreThoseOfTheFormat) {
  const std::vector<float> one = {1};
  EXPECT_EQ(Encode(std::vector{MakeView("x", {1}, one)}, {}).value(),
            WithHeader(R"({"x":{"data_offsets":[0,4],"dtype":"F32","shape":[1]}})",
                       std::string("\0\0\x80\x3f", 4)));
}

TEST(Safetensors, EqualTensorsGiveEqualFilesInWhateverOrderTheyCome) {
  std::vector<TensorView> tensors = Tensors();
  const std::string file = Encode(tensors, {}).value();
  std::reverse(tensors.begin(), tensors.end());
  EXPECT_EQ(Encode(tensors, {}).value(), file);
}

TEST(Safetensors, BadTensorsAreNotWritten) {
  EXPECT_FALSE(Encode(std::vector{MakeView("x", {2}, kFloats)}, {}).ok());
  EXPECT_FALSE(Encode(std::vector{MakeView("", {6}, kFloats)}, {}).ok());
  EXPECT_FALSE(Encode(std::vector{MakeView("a\n", {6}, kFloats)}, {}).ok());
  EXPECT_FALSE(Encode(std::vector{MakeView("__metadata__", {6}, kFloats)}, {}).ok());
  EXPECT_FALSE(Encode(std::vector{MakeView(std::string(513, 'a'), {6}, kFloats)}, {}).ok());
  EXPECT_FALSE(
      Encode(std::vector{MakeView("x", {6}, kFloats), MakeView("x", {6}, kFloats)}, {}).ok());
}

TEST(Safetensors, ANameHasUpTo512PrintableCharactersOfAscii) {
  const auto takes = [](const std::string& name) {
    return Encode(std::vector{MakeView(name, {6}, kFloats)}, {}).ok();
  };
  EXPECT_TRUE(takes(std::string(512, 'a')));
  EXPECT_TRUE(takes(" ~"));
  EXPECT_FALSE(takes("\x1f"));
  EXPECT_FALSE(takes("\x7f"));
  EXPECT_FALSE(takes("\xc3\xa9"));
}

TEST(Safetensors, ATensorWithoutBytesMayLieAnywhere) {
  EXPECT_TRUE(Decode(ToBytes(WithHeader(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                        R"("y":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}})",
                                        std::string(8, 0))))
                  .ok());
}

struct BadFile {
  const char* why;
  std::string file;
};

TEST(Safetensors, FilesThatLieAreRefusedWithTheReason) {
  const std::string eight(8, '\0');
  const auto entry = [](std::string_view rest) {
    return absl::StrCat(R"({"x":{"dtype":"F32",)", absl::string_view(rest.data(), rest.size()),
                        "}}");
  };
  const BadFile cases[] = {
      {"shorter than its first field", "abc"},
      {"header does not fit", std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)},
      {"header does not fit", WithHeader("{}", "", /*pad=*/false)},
      {"its header", WithHeader("{", "")},
      {"not an object", WithHeader("[]", "")},
      {"not an object", WithHeader(" {}", "")},
      {"its header", WithHeader(R"({"x":1,"x":1})", "")},
      {"nothing else", WithHeader(R"({"x":1})", "")},
      {"tensor \"x\" needs", WithHeader(R"({"x":1})", "")},
      {"nothing else", WithHeader(entry(R"("shape":[2])"), eight)},
      {"nothing else", WithHeader(entry(R"("shape":[2],"offsets":[0,8])"), eight)},
      {"nothing else", WithHeader(entry(R"("sides":[2],"data_offsets":[0,8])"), eight)},
      {"nothing else",
       WithHeader(R"({"x":{"type":"F32","shape":[2],"data_offsets":[0,8]}})", eight)},
      {"nothing else", WithHeader(entry(R"("shape":[2],"data_offsets":[0,8],"y":1)"), eight)},
      {"unknown dtype",
       WithHeader(R"({"x":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})", eight)},
      {"beyond the end", WithHeader(entry(R"("shape":[4],"data_offsets":[0,16])"), eight)},
      {"beyond the end", WithHeader(entry(R"("shape":[2],"data_offsets":[8,0])"), eight)},
      {"beyond the end", WithHeader(entry(R"("shape":[2],"data_offsets":[-8,0])"), eight)},
      {"bytes that its shape needs",
       WithHeader(entry(R"("shape":[3],"data_offsets":[0,8])"), eight)},
      {"bytes that its shape needs",
       WithHeader(entry(R"("shape":[4611686018427387904,4],"data_offsets":[0,8])"), eight)},
      {"bytes that its shape needs",  // 2^66 of them, which is 0 in 64 bits
       WithHeader(entry(R"("shape":[4294967296,4294967296],"data_offsets":[0,0])"), "")},
      {"no list as its shape", WithHeader(entry(R"("shape":2,"data_offsets":[0,8])"), eight)},
      {"two data_offsets", WithHeader(entry(R"("shape":[2],"data_offsets":{"a":0,"b":8})"), eight)},
      {"two data_offsets", WithHeader(entry(R"("shape":[2],"data_offsets":[0,8,8])"), eight)},
      {"shape that is none", WithHeader(entry(R"("shape":[-2],"data_offsets":[0,8])"), eight)},
      {"shape that is none", WithHeader(entry(R"("shape":[2.0],"data_offsets":[0,8])"), eight)},
      {"behind the last", WithHeader(entry(R"("shape":[1],"data_offsets":[0,4])"), eight)},
      {"gap", WithHeader(entry(R"("shape":[1],"data_offsets":[4,8])"), eight)},
      {"not aligned", WithHeader(entry(R"("shape":[1],"data_offsets":[2,6])"), eight)},
      {"overlap", WithHeader(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                             R"("y":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                             eight)},
      {"printable",
       WithHeader(R"({"a\u0000":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", eight)},
      {"metadata", WithHeader(R"({"__metadata__":{"a":1}})", "")},
      {"metadata", WithHeader(R"({"__metadata__":[]})", "")},
  };
  for (const BadFile& bad : cases) {
    const auto decoded = Decode(ToBytes(bad.file));
    ASSERT_FALSE(decoded.ok()) << bad.why;
    EXPECT_TRUE(absl::IsDataLoss(decoded.status()));
    EXPECT_THAT(std::string(decoded.status().message()), HasSubstr(bad.why));
  }
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string file = Encode(Tensors(), {{"a", "b"}}).value();
  for (std::size_t size = 0; size < file.size(); ++size) {
    EXPECT_FALSE(Decode(ToBytes(std::string_view(file).substr(0, size))).ok()) << size;
  }
}

TEST(Safetensors, RandomDamageToTheHeaderIsNeverMoreThanAnError) {
  const std::string file = Encode(Tensors(), {{"a", "b"}}).value();
  std::mt19937 random(8);
  constexpr std::string_view kAlphabet = "{}[]\":,0129eE+-.aFxI\\u \n\xff";
  for (int round = 0; round < 30'000; ++round) {
    std::string damaged = file;
    for (std::uint32_t k = random() % 4; k != 0xffffffff; --k) {
      damaged[random() % damaged.size()] = kAlphabet[random() % kAlphabet.size()];
    }
    if (random() % 4 == 0) damaged.insert(random() % damaged.size(), "[[[[");
    const auto bytes = ToBytes(damaged);
    const auto decoded = Decode(bytes);
    if (!decoded.ok()) continue;
    for (const TensorView& tensor : decoded->tensors) {
      if (tensor.data.empty()) continue;
      EXPECT_GE(tensor.data.data(), bytes.data());
      EXPECT_LE(tensor.data.data() + tensor.data.size(), bytes.data() + bytes.size());
    }
  }
}

}  // namespace
}  // namespace starling::checkpoint
