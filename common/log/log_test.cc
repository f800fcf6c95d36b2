// SPDX-License-Identifier: Apache-2.0
#include "common/log/log.h"

#include "gtest/gtest.h"

namespace starling::log {
namespace {

TEST(Log, OneLineIsOneJsonObjectWithItsFieldsInOrder) {
  EXPECT_EQ(
      Format(Level::kInfo, "controller", "pod created", {{"job", "a/b"}, {"index", 3}}),
      R"({"level":"info","logger":"controller","msg":"pod created","job":"a/b","index":"3"})");
}

TEST(Log, ControlCharactersAndBadUtf8CannotBreakTheLine) {
  const std::string line = Format(Level::kInfo, "c", "m", {{"name", "a\nb\x1b[31m\xff"}});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(line.find('\x1b'), std::string::npos);
}

TEST(Log, SecretsNeverReachTheLine) {
  const std::string line = Format(Level::kError, "c", "m", {{"jobSecret", "canary"}});
  EXPECT_EQ(line.find("canary"), std::string::npos);
}

}  // namespace
}  // namespace starling::log
