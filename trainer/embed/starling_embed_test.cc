// SPDX-License-Identifier: Apache-2.0
// What the C functions make of callers that are wrong. How they train: tests/e2e/own_loop_test.py.
#include "trainer/embed/starling_embed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace {

using ::testing::HasSubstr;

int Open(const std::vector<const char*>& flags, starling_run** run) {
  return starling_open(flags.data(), flags.size(), run);
}

TEST(StarlingEmbed, WrongFlagsAreNamed) {
  starling_run* run = nullptr;
  EXPECT_EQ(Open({"--no-such-flag"}, &run), STARLING_BAD_INPUT);
  EXPECT_EQ(run, nullptr);
  EXPECT_THAT(starling_last_error(), HasSubstr("--"));
}

TEST(StarlingEmbed, AFileThatIsNotThereIsNamed) {
  starling_run* run = nullptr;
  const std::vector<const char*> flags = {"--spec=/no/such/spec.json",
                                          "--secret=/no",
                                          "--address=127.0.0.1",
                                          "--pod-name=p",
                                          "--pod-uid=u",
                                          "--job-uid=j",
                                          "--job-name=n",
                                          "--job-dir=/tmp",
                                          "--tls=/no/such/folder"};
  EXPECT_EQ(Open(flags, &run), STARLING_BAD_INPUT);
  EXPECT_THAT(starling_last_error(), HasSubstr("/no/such/spec.json"));
}

TEST(StarlingEmbed, NullPointersAreMistakesOfTheCaller) {
  EXPECT_EQ(starling_open(nullptr, 1, nullptr), STARLING_MISUSE);
  starling_step step;
  EXPECT_EQ(starling_next(nullptr, &step), STARLING_MISUSE);
  EXPECT_EQ(starling_set_end(nullptr, 1, 1), STARLING_MISUSE);
  EXPECT_EQ(starling_start(nullptr), STARLING_MISUSE);
  EXPECT_THAT(starling_last_error(), HasSubstr("null"));
  EXPECT_EQ(starling_close(nullptr), STARLING_OK);
  starling_abandon(nullptr);
  starling_free(nullptr);
}

TEST(StarlingEmbed, SaysWhichVersionItSpeaks) { EXPECT_EQ(starling_abi(), STARLING_ABI); }

}  // namespace
