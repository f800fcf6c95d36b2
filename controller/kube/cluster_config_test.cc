// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/cluster_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"

namespace starling::kube {
namespace {

using testing::HasSubstr;

constexpr const char* kConfig = R"(
apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: first, cluster: {server: "https://10.0.0.1:6443", certificate-authority: pki/ca.crt}}
- {name: second, cluster: {server: "https://10.0.0.2:6443", certificate-authority-data: aGVsbG8=}}
- {name: behind, cluster: {server: "https://10.0.0.3", proxy-url: "http://proxy:3128"}}
contexts:
- {name: one, context: {cluster: first, user: a, namespace: vision}}
- {name: two, context: {cluster: second, user: b}}
- {name: plug, context: {cluster: first, user: plugin}}
- {name: through, context: {cluster: behind, user: a}}
- {name: half, context: {cluster: first, user: half}}
- {name: lost, context: {cluster: nowhere, user: a}}
users:
- {name: a, user: {client-certificate-data: Y2VydA==, client-key: a.key}}
- {name: b, user: {tokenFile: /run/token}}
- {name: plugin, user: {exec: {command: aws}}}
- {name: half, user: {client-certificate: a.crt}}
)";

class ClusterConfigTest : public testing::Test {
 protected:
  ClusterConfigTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "starling-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    Write("config", kConfig);
  }
  ~ClusterConfigTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

  absl::StatusOr<ClusterConfig> Load(const std::string& context = "") {
    return LoadKubeconfig({Path("config"), context}, [](const char*) { return std::string(); });
  }

  EnvironmentReader Environment() {
    return [this](const char* name) { return environment_[name]; };
  }

  std::filesystem::path folder_;
  std::map<std::string, std::string> environment_;
};

TEST_F(ClusterConfigTest, TheCurrentContextWithPathsThatBeginAtTheFile) {
  const auto config = Load();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->server, "https://10.0.0.1:6443");
  EXPECT_EQ(config->authority.file, Path("pki/ca.crt"));
  EXPECT_EQ(config->certificate.text, "cert");
  EXPECT_EQ(config->key.file, Path("a.key"));
  EXPECT_EQ(config->ns, "vision");
}

TEST_F(ClusterConfigTest, AnotherContextByName) {
  const auto config = Load("two");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->authority.text, "hello");
  EXPECT_EQ(config->token.file, "/run/token");
  EXPECT_EQ(config->ns, "default");
}

TEST_F(ClusterConfigTest, WhatIsNotSupportedOrNotThereIsRefusedByName) {
  const auto refusal = [&](const std::string& context) {
    return std::string(Load(context).status().message());
  };
  EXPECT_THAT(refusal("plug"), HasSubstr("exec is not supported; give it a token"));
  EXPECT_THAT(refusal("through"), HasSubstr("proxy-url is not supported"));
  EXPECT_THAT(refusal("half"), HasSubstr("must be given together"));
  EXPECT_THAT(refusal("lost"), HasSubstr("there is no cluster \"nowhere\""));
  EXPECT_TRUE(absl::IsNotFound(Load("none").status()));
}

TEST_F(ClusterConfigTest, SeveralFilesAreOneAndTheFirstWins) {
  const std::string first = Write("first",
                                  "current-context: two\ncontexts:\n- {name: two, context: "
                                  "{cluster: second, user: b, namespace: mine}}\n");
  environment_["KUBECONFIG"] = absl::StrCat(first, ":", Path("missing"), ":", Path("config"));

  const auto config = LoadKubeconfig({}, Environment());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->server, "https://10.0.0.2:6443");
  EXPECT_EQ(config->ns, "mine");
}

TEST_F(ClusterConfigTest, InAPodTheServiceAccountCounts) {
  EXPECT_TRUE(
      absl::IsFailedPrecondition(InClusterConfig(Environment(), folder_.string()).status()));
  environment_ = {{"KUBERNETES_SERVICE_HOST", "fd00::1"}, {"KUBERNETES_SERVICE_PORT", "443"}};
  EXPECT_TRUE(absl::IsNotFound(InClusterConfig(Environment(), folder_.string()).status()));
  Write("token", "t");
  Write("ca.crt", "c");
  Write("namespace", "starling-system\n");

  const auto config = InClusterConfig(Environment(), folder_.string());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->server, "https://[fd00::1]:443");
  EXPECT_EQ(config->ns, "starling-system");
  EXPECT_EQ(*config->token.Read(), "t");
}

}  // namespace
}  // namespace starling::kube
