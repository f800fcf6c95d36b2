// SPDX-License-Identifier: Apache-2.0
#include "controller/manager/serve_options.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::manager {
namespace {

using ::testing::HasSubstr;

std::string Refusal(const std::vector<std::string>& arguments) {
  const auto options = ParseServeOptions(arguments);
  return options.ok() ? "" : std::string(options.status().message());
}

TEST(ServeOptions, AreRead) {
  const auto options = ParseServeOptions(
      {"--kubeconfig=a", "--namespace=team", "--secret=s", "--linger=3s", "--rest-streams=5"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->cluster.kubeconfig, "a");
  EXPECT_EQ(options->cluster.ns, "team");
  EXPECT_EQ(options->address, ":8443");
  EXPECT_EQ(options->linger, absl::Seconds(3));
  EXPECT_EQ(options->rest.streams, 5);
}

TEST(ServeOptions, ModelsAreReadWhereTheirVolumesAreMounted) {
  const auto options = ParseServeOptions(
      {"--secret=s", "--models=file:///checkpoints=/models/0", "--models=file:///nfs/a=/models/1"});
  ASSERT_TRUE(options.ok()) << options.status();
  ASSERT_EQ(options->models.size(), 2U);
  EXPECT_EQ(options->models[1].path, "/nfs/a");
  EXPECT_EQ(options->models[1].folder, "/models/1");
  EXPECT_THAT(Refusal({"--secret=s", "--models=s3://bucket=/models"}), HasSubstr("--models"));
}

TEST(ServeOptions, TheHistoryHasOnePlaceAndItsPasswordIsInNoFlag) {
  const auto none = ParseServeOptions({"--secret=s"});
  EXPECT_EQ(none->history.file + none->history.url, "");
  EXPECT_EQ(ParseServeOptions({"--secret=s", "--history-file=/h.db"})->history.file, "/h.db");
  EXPECT_THAT(Refusal({"--secret=s", "--history-file=/h.db", "--history-url=postgresql://db/h"}),
              HasSubstr("--history-"));
  EXPECT_THAT(Refusal({"--secret=s", "--history-url=http://db/h"}), HasSubstr("postgresql://"));
  ::setenv("STARLING_HISTORY_URL", "postgresql://a:secret@db/h", 1);
  EXPECT_EQ(ParseServeOptions({"--secret=s"})->history.url, "postgresql://a:secret@db/h");
  EXPECT_EQ(ParseServeOptions({"--secret=s", "--history-file=/h.db"})->history.url, "");
  EXPECT_THAT(ServeUsage(), testing::Not(HasSubstr("secret@")));
  ::setenv("STARLING_HISTORY_URL", "nonsense", 1);
  EXPECT_THAT(Refusal({"--secret=s"}), HasSubstr("STARLING_HISTORY_URL"));
  ::unsetenv("STARLING_HISTORY_URL");
}

TEST(ServeOptions, TokensAreNotReadFromAnOpenNetwork) {
  EXPECT_THAT(Refusal({"--rest-bind-address=:8080"}), HasSubstr("--secret or --tls-folder"));
  EXPECT_THAT(Refusal({"--rest-bind-address=0.0.0.0:8080"}), HasSubstr("127.0.0.1"));
  EXPECT_EQ(Refusal({"--rest-bind-address=127.0.0.1:8080"}), "");
  EXPECT_EQ(Refusal({"--rest-bind-address=[::1]:8080"}), "");
  EXPECT_EQ(Refusal({"--rest-bind-address=:8080", "--tls-folder=/a"}), "");
}

TEST(ServeOptions, WhatIsWrongIsNamed) {
  EXPECT_THAT(Refusal({"--rest-bind-address=8080"}), HasSubstr("[HOST]:PORT"));
  EXPECT_THAT(Refusal({"--home=a"}), HasSubstr("serve --help"));
  EXPECT_THAT(Refusal({"--rest-streams=0"}), HasSubstr("--rest-streams"));
  EXPECT_THAT(ServeUsage(), HasSubstr("--rest-bind-address"));
}

}  // namespace
}  // namespace starling::manager
