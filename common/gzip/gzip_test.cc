// SPDX-License-Identifier: Apache-2.0
#include "common/gzip/gzip.h"

#include <gtest/gtest.h>

namespace starling::gzip {
namespace {

TEST(Gzip, WhatWasPackedComesOutAsItWas) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += std::to_string(i * 7 % 1000);
  for (const std::string& bytes : {std::string(), std::string("a"), std::string(3, '\0'), text}) {
    EXPECT_EQ(*Unpack(Pack(bytes), bytes.size()), bytes);
  }
  EXPECT_LT(Pack(text).size(), text.size() / 2);
}

TEST(Gzip, WhatHoldsMoreThanItMayIsRefused) {
  const std::string packed = Pack(std::string(100'000, 'x'));
  EXPECT_LT(packed.size(), 1000U);
  EXPECT_EQ(Unpack(packed, 99'999).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Unpack(packed, 100'000).ok());
}

TEST(Gzip, WhatIsNoWholeStreamIsRefused) {
  const std::string packed = Pack("some text, which is not very long");
  for (std::size_t size = 0; size < packed.size(); ++size) {
    EXPECT_EQ(Unpack(packed.substr(0, size), 1000).status().code(),
              absl::StatusCode::kInvalidArgument)
        << size;
  }
  EXPECT_FALSE(Unpack(packed + "x", 1000).ok());
  EXPECT_FALSE(Unpack("no gzip at all", 1000).ok());
}

}  // namespace
}  // namespace starling::gzip
