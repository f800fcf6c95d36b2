// SPDX-License-Identifier: Apache-2.0
// Not tests: what tests do in all ways in which they can end, for report_test.py, which has
// gtest_program.py run some of them. Their order is that in which they run.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>

#include "gtest/gtest.h"

namespace {

TEST(First, Passes) { std::cout << "a line that is left open"; }
TEST(First, Fails) { EXPECT_EQ(1, 2) << "for all to see"; }
TEST(First, Skips) { GTEST_SKIP() << "not here"; }
TEST(Dies, OfASignal) { std::abort(); }
TEST(Dies, ByAnExit) { _exit(0); }
TEST(Dies, NoMore) {}
TEST(Hangs, WithAChildThatHoldsItsOutput) {
  (void)fork();
  for (;;) pause();
}
TEST(Hangs, NoMore) {}
TEST(Waits, ForEver) {
  for (;;) pause();
}

// Ends the process before a case of it begins.
struct Unready : ::testing::Test {
  static void SetUpTestSuite() { std::raise(SIGSEGV); }
};
TEST_F(Unready, Never) {}

class Named : public ::testing::TestWithParam<const char*> {};
TEST_P(Named, AsGoogleTestNamesThem) { EXPECT_STRNE(GetParam(), "odd (1 ms)"); }
INSTANTIATE_TEST_SUITE_P(Some, Named, ::testing::Values("even", "odd (1 ms)"));

// Its cases pass.
struct Untidy : ::testing::Test {
  static void TearDownTestSuite() { ADD_FAILURE() << "something was left"; }
};
TEST_F(Untidy, Passes) {}

// What one leaves to the next, which a process of its own does not see.
int left = 0;
TEST(Shared, First) { EXPECT_EQ(left++, 0); }
TEST(Shared, Second) { EXPECT_EQ(left++, 0); }

}  // namespace
