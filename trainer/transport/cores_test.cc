// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/cores.h"

#include <sched.h>

#include <fstream>
#include <iterator>
#include <string>

#include "gtest/gtest.h"

namespace starling::transport {
namespace {

TEST(Cores, AreThoseThatTheProcessMayRunOnOrItsGroupsLimitWhicheverIsLess) {
  EXPECT_EQ(CoresOf("", 3), 3);
  EXPECT_EQ(CoresOf("max 100000\n", 3), 3);
  EXPECT_EQ(CoresOf("150000 100000\n", 8), 2);
  EXPECT_EQ(CoresOf("50000 100000\n", 8), 1);
  EXPECT_EQ(CoresOf("1600000 100000\n", 8), 8);
  EXPECT_EQ(CoresOf("nonsense", 0), 1);
}

TEST(Cores, TheLeastQuotaAndTheLeastPeriodAreALimit) {
  EXPECT_EQ(CoresOf("1 100000\n", 8), 1);
  EXPECT_EQ(CoresOf("2 1\n", 8), 2);
}

TEST(Cores, AQuotaOrAPeriodThatIsNoneIsNoLimit) {
  EXPECT_EQ(CoresOf("0 100000\n", 3), 3);
  EXPECT_EQ(CoresOf("-100000 100000\n", 3), 3);
  EXPECT_EQ(CoresOf("100000 0\n", 3), 3);
  EXPECT_EQ(CoresOf("100000 -100000\n", 3), 3);
}

// The cores of this thread, which it may run on again afterwards.
class CoresHereTest : public ::testing::Test {
 protected:
  CoresHereTest() { EXPECT_EQ(::sched_getaffinity(0, sizeof all_, &all_), 0); }
  ~CoresHereTest() override { EXPECT_EQ(::sched_setaffinity(0, sizeof all_, &all_), 0); }

  cpu_set_t all_ = {};
};

TEST_F(CoresHereTest, OnlyCoresThatTheThreadMayRunOnCount) {
  int first = 0;
  while (!CPU_ISSET(first, &all_)) ++first;
  cpu_set_t one = {};
  CPU_SET(first, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(CoresHere(), 1);
}

TEST_F(CoresHereTest, AllOfThemCountAsFarAsTheGroupsLimitAllows) {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  const std::string cpu_max(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(CoresHere(), CoresOf(cpu_max, CPU_COUNT(&all_)));
}

}  // namespace
}  // namespace starling::transport
