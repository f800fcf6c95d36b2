// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/state_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <optional>

namespace starling::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const StateId kId{1, 2, 3};

// Parts of several types, one of them each member's own.
struct Owner {
  std::vector<float> weights = {0, 0, 0, 0};
  double loss = 0;
  std::int64_t step = 0;
  std::vector<std::byte> opaque = std::vector<std::byte>(3);
  std::vector<float> residual = {0, 0};
  StateParts parts;

  Owner() {
    parts.Add("weights", {2, 2}, std::span(weights));
    parts.AddScalar("loss", loss);
    parts.AddScalar("step", step);
    parts.Add("opaque", {3}, std::span(opaque));
    parts.Add("residual", {2}, std::span(residual), Scope::kOwn);
  }
  void Fill() {
    weights = {1.5F, -0.0F, std::numeric_limits<float>::infinity(), 1e-40F};
    loss = 1.0 / 3;
    step = -(std::int64_t{1} << 60);
    opaque = {std::byte{1}, std::byte{0}, std::byte{255}};
    residual = {0.25F, -0.25F};
  }
};

// Through the file format and back, as a checkpoint goes.
struct Saved {
  explicit Saved(std::vector<TensorView> tensors) {
    const auto file = Encode(tensors, {});
    EXPECT_TRUE(file.ok()) << file.status();
    std::vector<std::byte> bytes(file->size());
    std::copy(file->begin(), file->end(), reinterpret_cast<char*>(bytes.data()));
    auto decoded = Decode(bytes);
    EXPECT_TRUE(decoded.ok()) << decoded.status();
    std::vector<std::vector<std::byte>> shards;
    shards.push_back(std::move(bytes));
    loaded.emplace(State{.id = kId, .tensors = decoded->tensors, .attributes = {}},
                   std::move(shards));
  }
  std::optional<LoadedCheckpoint> loaded;
};

TEST(StateParts, AMadeUpPartSurvivesSaveAndRestoreBitByBit) {
  Owner before;
  before.Fill();
  const Saved saved(before.parts.Views());
  Owner after;

  const auto staging = after.parts.Read(*saved.loaded, /*own=*/true);
  ASSERT_TRUE(staging.ok()) << staging.status();
  EXPECT_EQ(after.step, 0) << "nothing changes before the staging is adopted";
  after.parts.Adopt(*staging);

  EXPECT_EQ(after.loss, before.loss);
  EXPECT_EQ(after.step, before.step);
  EXPECT_EQ(after.opaque, before.opaque);
  EXPECT_EQ(after.residual, before.residual);
  EXPECT_EQ(0, std::memcmp(after.weights.data(), before.weights.data(), 4 * sizeof(float)));
}

TEST(StateParts, WhatEachMemberHasForItselfIsRestoredToOneOnly) {
  Owner before;
  before.Fill();
  const Saved saved(before.parts.Views());
  Owner after;
  after.residual = {9, 9};

  const auto staging = after.parts.Read(*saved.loaded, /*own=*/false);
  ASSERT_TRUE(staging.ok()) << staging.status();
  after.parts.Adopt(*staging);

  EXPECT_THAT(after.residual, ElementsAre(0, 0));
  EXPECT_EQ(after.step, before.step);
}

// So large that several threads copy.
TEST(StateParts, AreAdoptedWholeHoweverLargeTheyAre) {
  constexpr std::size_t kLarge = (200 << 20) / sizeof(std::int32_t) + 3;
  std::vector<std::int32_t> large(kLarge), small = {7};
  StateParts parts;
  parts.Add("small", {1}, std::span(small));
  parts.Add("large", {kLarge}, std::span(large));
  const StateParts staging = parts.NewStaging();
  const auto segments = staging.Replicated();
  ASSERT_EQ(segments.size(), 2U);
  ASSERT_EQ(segments[1].size(), kLarge * sizeof(std::int32_t));
  auto* const staged = reinterpret_cast<std::int32_t*>(segments[1].data());
  for (std::size_t i = 0; i < kLarge; ++i) staged[i] = static_cast<std::int32_t>(3 * i + 1);
  parts.Adopt(staging);
  EXPECT_EQ(small[0], 0);
  for (std::size_t i = 0; i < kLarge; ++i) {
    ASSERT_EQ(large[i], static_cast<std::int32_t>(3 * i + 1)) << i;
  }
}

TEST(StateParts, JoinersAreSentTheReplicatedPartsInTheirOrder) {
  Owner owner;
  const auto segments = owner.parts.Replicated();
  ASSERT_EQ(segments.size(), 4u);
  EXPECT_EQ(segments[0].data(), std::as_writable_bytes(std::span(owner.weights)).data());
  EXPECT_EQ(segments[3].size(), 3u);
  const StateParts staging = owner.parts.NewStaging();
  for (std::size_t i = 0; i < segments.size(); ++i) {
    EXPECT_EQ(staging.Replicated()[i].size(), segments[i].size());
  }
}

TEST(StateParts, AMissingUnknownOrForeignPartIsNamed) {
  Owner owner;
  const auto why = [&](std::vector<TensorView> tensors) {
    const Saved saved(std::move(tensors));
    const absl::Status status = owner.parts.Read(*saved.loaded, true).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    return std::string(status.message());
  };
  std::vector<TensorView> views = owner.parts.Views();
  views.erase(views.begin() + 3);
  EXPECT_THAT(why(views), HasSubstr("part opaque is missing"));

  views = owner.parts.Views();
  const float more[1] = {1};
  views.push_back(MakeView("residual/of-another-codec", {1}, more));
  EXPECT_THAT(why(views), HasSubstr("part residual/of-another-codec is not known"));

  views = owner.parts.Views();
  views[0].shape = {4, 1};
  EXPECT_THAT(why(views), HasSubstr("part weights has another type or shape"));
  views = owner.parts.Views();
  views[1].type = DType::kI64;
  EXPECT_THAT(why(views), HasSubstr("part loss has another type or shape"));
}

TEST(StatePartsDeathTest, ANameGivenTwiceOrBytesWithoutTheirShapeEndTheProcess) {
  std::vector<float> values(4);
  StateParts parts;
  parts.Add("a", {4}, std::span(values));
  EXPECT_DEATH(parts.Add("a", {4}, std::span(values)), "registered once");
  EXPECT_DEATH(parts.Add("b", {5}, std::span(values)), "bytes of its shape");
}

}  // namespace
}  // namespace starling::checkpoint
