// SPDX-License-Identifier: Apache-2.0
// Who we are, as an API server is shown it, and which configurations are refused before that.
#include "controller/kube/cluster_http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "common/http/scripted_server.h"

namespace starling::kube {
namespace {

using testing::HasSubstr;

// Of a server that nobody needs to reach; its certificate would be believed.
ClusterConfig Config(const std::string& server = "https://127.0.0.1:1") {
  ClusterConfig config;
  config.server = server;
  config.insecure = true;
  config.origin = "the test";
  return config;
}

absl::Status OpenStatus(const ClusterConfig& config) {
  return OpenClusterHttp(config, {}).status();
}

TEST(ClusterHttp, ATokenThatStandsInTheConfigurationIsShown) {
  const http::TestCertificate certificate("127.0.0.1", 3600);
  const http::ScriptedServer server(
      [](http::Conversation& c, int) {
        c.Answer(200, c.request, "text/plain");
        return true;
      },
      &certificate);
  ClusterConfig config = Config(server.url());
  config.token.text = " secret\n";
  const auto client = OpenClusterHttp(config, {});
  ASSERT_TRUE(client.ok()) << client.status();
  const auto answer = (*client)->Exchange({"GET", "/", "", {}});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_THAT(answer->body, HasSubstr("Authorization: Bearer secret\r\n"));
}

TEST(ClusterHttp, ATokenThatIsNoneIsNotShown) {
  for (const char* token : {" \n", "two words", "tab\tin it", "line\nbreak", "bell\x07"}) {
    ClusterConfig config = Config();
    config.token.text = token;
    const auto client = OpenClusterHttp(config, {});
    ASSERT_TRUE(client.ok()) << client.status();
    EXPECT_EQ((*client)->Exchange({"GET", "/", "", {}}).status(),
              absl::InvalidArgumentError("the test: the token is empty or has spaces in it"))
        << token;
  }
}

TEST(ClusterHttp, CredentialsAreNotSentInTheClear) {
  ClusterConfig with_token = Config("http://127.0.0.1:1");
  with_token.token.text = "secret";
  ClusterConfig with_certificate = Config("http://127.0.0.1:1");
  with_certificate.certificate.text = "PEM";
  for (const ClusterConfig& config : {with_token, with_certificate}) {
    EXPECT_EQ(OpenStatus(config),
              absl::InvalidArgumentError(
                  "the test: credentials are not sent over http://; use https://"));
  }
  EXPECT_TRUE(OpenStatus(Config("http://127.0.0.1:1")).ok()) << "there are none";
}

TEST(ClusterHttp, AFileThatIsMissingIsToldWithWhereItIsWanted) {
  ClusterConfig config = Config();
  config.authority.file = "/nowhere/ca.crt";
  const absl::Status status = OpenStatus(config);
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("the test: "));
  EXPECT_THAT(status.message(), HasSubstr("/nowhere/ca.crt"));
}

TEST(ClusterHttp, AnAuthorityThatIsEmptyDoesNotMeanTheSystems) {
  std::string path = (std::filesystem::temp_directory_path() / "starling-XXXXXX").string();
  ::close(::mkstemp(path.data()));
  ClusterConfig config = Config();
  config.authority.file = path;
  EXPECT_EQ(OpenStatus(config),
            absl::InvalidArgumentError("the test: the certificate authority is empty"));
  std::filesystem::remove(path);
}

TEST(ClusterHttp, MessagesSayThatItIsAnApiServer) {
  http::ClientOptions options;
  options.timeout = absl::Seconds(1);
  const auto client = OpenClusterHttp(Config("http://127.0.0.1:1"), options);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_THAT((*client)->Exchange({"GET", "/", "", {}}).status().message(),
              HasSubstr("API server http://127.0.0.1:1"));
}

}  // namespace
}  // namespace starling::kube
