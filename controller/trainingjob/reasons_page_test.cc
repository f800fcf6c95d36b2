// SPDX-License-Identifier: Apache-2.0
#include <fstream>
#include <iterator>
#include <string>

#include "controller/trainingjob/reasons.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::trainingjob {
namespace {

TEST(ReasonsPage, HoldsTheTableAsItIs) {
  std::ifstream file(STARLING_SOURCE_DIR "/docs/reference/reasons.md", std::ios::binary);
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(page, ::testing::EndsWith("\n\n" + ReasonsAsMarkdown()))
      << "put this table at the end of docs/reference/reasons.md";
}

}  // namespace
}  // namespace starling::trainingjob
