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

  // The config of one context with a cluster and a user of these fields.
  absl::StatusOr<ClusterConfig> LoadWith(const std::string& cluster, const std::string& user) {
    Write("config", absl::StrCat("current-context: c\n"
                                 "contexts:\n- {name: c, context: {cluster: k, user: u}}\n"
                                 "clusters:\n- {name: k, cluster: {",
                                 cluster, "}}\nusers:\n- {name: u, user: {", user, "}}\n"));
    return Load();
  }
  std::string RefusalOf(const std::string& cluster, const std::string& user) {
    const absl::Status status = LoadWith(cluster, user).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
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
  EXPECT_EQ(config->origin, "context \"one\" of " + Path("config"));
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

constexpr const char* kServer = "server: \"https://a\"";

TEST_F(ClusterConfigTest, ServersAreReachedByHttpsOrHttpAlone) {
  for (const char* server : {"http://a:80", "https://a:443/b"}) {
    const auto config = LoadWith(absl::StrCat("server: \"", server, "\""), "token: t");
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->server, server);
  }
  for (const char* server : {"", "a:6443", "ftp://a", "httpss://a"}) {
    EXPECT_THAT(RefusalOf(absl::StrCat("server: \"", server, "\""), "token: t"),
                HasSubstr(absl::StrCat("server: \"", server, "\" must begin with")));
  }
}

TEST_F(ClusterConfigTest, CertificatesAreCheckedUnlessTheFileSaysOtherwise) {
  const auto config = LoadWith(kServer, "token: t");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->insecure);
  EXPECT_TRUE(config->authority.empty()) << "the system's authorities";
  EXPECT_TRUE(config->certificate.empty());
  const auto loose =
      LoadWith(absl::StrCat(kServer, ", insecure-skip-tls-verify: true, tls-server-name: b"), "");
  ASSERT_TRUE(loose.ok()) << loose.status();
  EXPECT_TRUE(loose->insecure);
  EXPECT_EQ(loose->tls_server_name, "b");
}

TEST_F(ClusterConfigTest, WhatStandsInTheFileIsTakenBeforeAPath) {
  const auto config = LoadWith(
      absl::StrCat(kServer, ", certificate-authority: x, certificate-authority-data: aGVsbG8="),
      "");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->authority.text, "hello");
  EXPECT_EQ(config->authority.file, "");
  EXPECT_THAT(RefusalOf(absl::StrCat(kServer, ", certificate-authority-data: \"!\""), ""),
              HasSubstr("certificate-authority-data: is not base64"));
  EXPECT_THAT(RefusalOf(kServer, "client-certificate-data: \"!\", client-key: k"),
              HasSubstr("client-certificate-data: is not base64"));
  EXPECT_THAT(RefusalOf(kServer, "client-certificate: c, client-key-data: \"!\""),
              HasSubstr("client-key-data: is not base64"));
}

TEST_F(ClusterConfigTest, TokensStandInTheFileOrInOneBesideIt) {
  const auto given = LoadWith(kServer, "token: t");
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->token.text, "t");
  EXPECT_EQ(given->token.file, "");
  const auto beside = LoadWith(kServer, "token: t, tokenFile: there/token");
  ASSERT_TRUE(beside.ok()) << beside.status();
  EXPECT_EQ(beside->token.file, Path("there/token"));
  EXPECT_EQ(beside->token.text, "") << "the file is newer";
}

TEST_F(ClusterConfigTest, OfUsersWhatWouldBePassedOverIsRefused) {
  for (const char* field : {"exec", "auth-provider", "username", "password", "as", "as-uid",
                            "as-groups", "as-user-extra"}) {
    EXPECT_THAT(RefusalOf(kServer, absl::StrCat(field, ": x")),
                HasSubstr(absl::StrCat("user \"u\": ", field, " is not supported; ")));
  }
  EXPECT_THAT(RefusalOf(kServer, "client-key: k"), HasSubstr("must be given together"));
}

TEST_F(ClusterConfigTest, AContextMayHaveNoUserButNoneThatIsNotThere) {
  const std::string cluster = "clusters:\n- {name: k, cluster: {server: \"https://a\"}}\n";
  Write("config", cluster + "current-context: c\ncontexts:\n- {name: c, context: {cluster: k}}\n");
  const auto config = Load();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->token.empty());
  EXPECT_EQ(config->ns, "default");
  Write("config",
        cluster + "current-context: c\ncontexts:\n- {name: c, context: {cluster: k, user: x}}\n");
  EXPECT_THAT(std::string(Load().status().message()), HasSubstr("there is no user \"x\""));
  Write("config", cluster);
  EXPECT_THAT(std::string(Load().status().message()), HasSubstr("has no current-context"));
  EXPECT_TRUE(absl::IsInvalidArgument(Load().status()));
}

TEST_F(ClusterConfigTest, WhatIsNoYamlIsRefusedWithItsPath) {
  Write("config", "a: [");
  EXPECT_TRUE(absl::IsInvalidArgument(Load().status()));
  EXPECT_THAT(std::string(Load().status().message()), testing::StartsWith(Path("config") + ": "));
}

TEST_F(ClusterConfigTest, TheFileIsTheChosenOneOrTheEnvironmentsOrThatAtHome) {
  const auto server = [&](const std::string& path) {
    const auto config = LoadKubeconfig({path, ""}, Environment());
    return config.ok() ? config->server : std::string(config.status().message());
  };
  EXPECT_THAT(server(""), HasSubstr("there is no kubeconfig"));
  std::filesystem::create_directory(Path(".kube"));
  ASSERT_TRUE(LoadWith("server: \"https://home\"", "").ok());
  std::filesystem::rename(Path("config"), Path(".kube/config"));
  environment_["HOME"] = folder_.string();
  EXPECT_EQ(server(""), "https://home");
  ASSERT_TRUE(LoadWith("server: \"https://environment\"", "").ok());
  environment_["KUBECONFIG"] = Path("config");
  EXPECT_EQ(server(""), "https://environment");
  EXPECT_EQ(server(Path(".kube/config")), "https://home");
  environment_["KUBECONFIG"] = Path("missing");
  EXPECT_EQ(server(""), Path("missing") + ": cannot be read");
  environment_["KUBECONFIG"] = absl::StrCat(Path("missing"), ":", Path("none"));
  EXPECT_THAT(server(""), HasSubstr("there is no kubeconfig"));
}

TEST_F(ClusterConfigTest, FilesAreReadAnewAndUpToOneMebibyte) {
  const auto read = [&](const std::string& name) {
    return FileOrText{.file = Path(name), .text = ""}.Read();
  };
  for (const std::size_t size : {(1U << 20U) - 1, 1U << 20U}) {
    Write("large", std::string(size, 'x'));
    const auto text = read("large");
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_TRUE(*text == std::string(size, 'x'));
  }
  Write("large", std::string((1U << 20U) + 1, 'x'));
  EXPECT_TRUE(absl::IsInvalidArgument(read("large").status()));
  EXPECT_TRUE(absl::IsNotFound(read("none").status()));
  EXPECT_TRUE(absl::IsUnavailable(read("").status())) << "a folder";
  EXPECT_EQ(*(FileOrText{.file = "", .text = "t"}.Read()), "t");
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
  EXPECT_EQ(config->authority.file, Path("ca.crt"));
  EXPECT_EQ(config->origin, "the pod's service account");
}

TEST_F(ClusterConfigTest, APodKnowsTheServersHostAndPortAndHasAllOfItsAccount) {
  const auto load = [&] { return InClusterConfig(Environment(), folder_.string()); };
  Write("token", "t");
  Write("ca.crt", "c");
  environment_ = {{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}};
  EXPECT_TRUE(absl::IsFailedPrecondition(load().status()));
  environment_ = {{"KUBERNETES_SERVICE_PORT", "443"}};
  EXPECT_TRUE(absl::IsFailedPrecondition(load().status()));
  environment_["KUBERNETES_SERVICE_HOST"] = "10.0.0.1";
  ASSERT_TRUE(load().ok()) << load().status();
  EXPECT_EQ(load()->server, "https://10.0.0.1:443");
  EXPECT_EQ(load()->ns, "default") << "nobody says which";
  for (const char* needed : {"token", "ca.crt"}) {
    std::filesystem::rename(Path(needed), Path("away"));
    EXPECT_TRUE(absl::IsNotFound(load().status())) << needed;
    std::filesystem::rename(Path("away"), Path(needed));
  }
}

}  // namespace
}  // namespace starling::kube
