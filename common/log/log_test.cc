// SPDX-License-Identifier: Apache-2.0
#include "common/log/log.h"

#include <cstdlib>
#include <string>

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

std::string Written() {
  testing::internal::CaptureStderr();
  Start("c");
  Info("m");
  return testing::internal::GetCapturedStderr();
}

TEST(Log, LinesNameTheTraceThatTheirProcessBelongsTo) {
  setenv("TRACEPARENT", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", 1);
  EXPECT_NE(Written().find(R"("trace_id":"4bf92f3577b34da6a3ce929d0e0e4736")"), std::string::npos);
  setenv("TRACEPARENT", "nonsense", 1);
  EXPECT_EQ(Written().find("trace_id"), std::string::npos);
  unsetenv("TRACEPARENT");
  EXPECT_EQ(Written().find("trace_id"), std::string::npos);
}

}  // namespace
}  // namespace starling::log
