// SPDX-License-Identifier: Apache-2.0
#include "trainer/buffer/buffer.h"

#include <gmock/gmock.h>

#include <array>
#include <vector>

namespace starling::buffer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Buffer, KnowsWhatItHoldsAndGivesItBackAsThat) {
  std::vector<float> floats = {1, 2, 3};
  const View view(floats);
  EXPECT_EQ(view.type(), DType::kF32);
  EXPECT_EQ(view.device(), Device::kCpu);
  EXPECT_EQ(view.size(), 3U);
  EXPECT_EQ(view.size_bytes(), 12U);
  const auto seen = view.As<float>();
  ASSERT_TRUE(seen.ok());
  (*seen)[1] = 7;
  EXPECT_THAT(floats, ElementsAre(1, 7, 3));
}

template <typename T>
void ExpectIs(DType type, std::string_view name, std::size_t size) {
  const std::array<T, 4> values{};
  const ConstView view(values);
  EXPECT_EQ(view.type(), type);
  EXPECT_EQ(NameOf(type), name);
  EXPECT_EQ(ParseDType(name), type);
  EXPECT_EQ(ParseDType("F8"), std::nullopt);
  EXPECT_EQ(SizeOf(type), size);
  EXPECT_EQ(view.size_bytes(), 4 * size);
  EXPECT_TRUE(view.As<T>().ok());
}

TEST(Buffer, HasATypeForEveryKindOfNumberThatIsExchangedOrKept) {
  ExpectIs<float>(DType::kF32, "F32", 4);
  ExpectIs<Float16>(DType::kF16, "F16", 2);
  ExpectIs<BFloat16>(DType::kBF16, "BF16", 2);
  ExpectIs<double>(DType::kF64, "F64", 8);
  ExpectIs<std::int32_t>(DType::kI32, "I32", 4);
  ExpectIs<std::int64_t>(DType::kI64, "I64", 8);
  ExpectIs<std::int8_t>(DType::kI8, "I8", 1);
}

TEST(Buffer, IsNotSeenAsWhatItIsNot) {
  std::vector<double> doubles(2);
  const auto wrong = View(doubles).As<float>();
  ASSERT_EQ(wrong.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(wrong.status().message()), HasSubstr("F64"));
  EXPECT_THAT(std::string(wrong.status().message()), HasSubstr("F32"));
  EXPECT_EQ(View(doubles).Bytes()->size(), 16U);
}

TEST(Buffer, AnAddressThatItsTypeCannotHaveIsRefused) {
  alignas(8) std::array<std::byte, 12> bytes{};
  EXPECT_TRUE(View(DType::kF32, Device::kCpu, bytes.data() + 4, 2).As<float>().ok());
  const auto odd = View(DType::kF32, Device::kCpu, bytes.data() + 1, 2).As<float>();
  EXPECT_EQ(odd.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Buffer, OnADeviceThatIsNotBuiltSaysSoAndTouchesNothing) {
  // No address of this process: reading it would end the test.
  const View remote(DType::kF32, Device::kCuda, reinterpret_cast<void*>(64), 5);
  EXPECT_EQ(remote.size_bytes(), 20U);
  for (const absl::Status& status : {remote.As<float>().status(), remote.Bytes().status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(status.message()), HasSubstr("CUDA"));
  }
}

}  // namespace
}  // namespace starling::buffer
