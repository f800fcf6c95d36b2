// SPDX-License-Identifier: Apache-2.0
// What becomes of a client whose server is broken, hostile or slow: a clear status, in time.
#include "controller/kube/http_kube_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "controller/kube/http_client_testing.h"
#include "controller/kube/objects.h"

namespace starling::kube {
namespace {

using testing::HasSubstr;

constexpr const char* kMap =
    R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"default",)"
    R"("resourceVersion":"7","managedFields":[{}]}})";
const ObjectKey kKey{"default", "x"};

// The status of a Get whose only answer is this.
absl::Status GetStatus(const ScriptedServer::Handler& handler) {
  const ScriptedServer server(handler);
  const absl::Time begin = absl::Now();
  absl::Status status = Open(server)->Get(kConfigMap, kKey).status();
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5)) << "it hung";
  return status;
}

TEST(HttpKubeClientTest, ConnectionsAreKeptAndManagedFieldsAreNot) {
  ScriptedServer server([&](Conversation& c, int) {
    c.Answer(200, kMap);
    return true;
  });
  auto client = Open(server);

  for (int i = 0; i < 3; ++i) {
    const auto found = client->Get(kConfigMap, kKey);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_FALSE((*found)["metadata"].contains("managedFields"));
  }
  EXPECT_EQ(server.requests(), 3);
  EXPECT_EQ(server.connections(), 1);
}

TEST(HttpKubeClientTest, AnAnswerThatMakesNoSenseIsUnavailableAndSaysWhy) {
  struct Case {
    std::string name, body, type, message;
  };
  for (const Case& c : {Case{"truncated", R"({"kind":"Conf)", "application/json", "understood"},
                        Case{"html", "<html>hello</html>", "text/html", "text/html"},
                        Case{"list", "[1,2]", "application/json", "no object"},
                        Case{"deep", std::string(100'000, '['), "application/json", "understood"},
                        Case{"empty", "", "application/json", "understood"}}) {
    const absl::Status status = GetStatus([&](Conversation& conversation, int) {
      conversation.Answer(200, c.body, c.type);
      return true;
    });
    EXPECT_TRUE(absl::IsUnavailable(status)) << c.name << ": " << status;
    EXPECT_THAT(status.message(), HasSubstr(c.message)) << c.name;
  }
}

TEST(HttpKubeClientTest, ServersErrorsAreClear) {
  struct Case {
    int http;
    const char* body;
    absl::StatusCode code;
    const char* message;
  };
  constexpr const char* kQuota =
      R"({"kind":"Status","code":403,"reason":"Forbidden","message":"pods is forbidden: exceeded quota: q"})";
  constexpr const char* kDenied =
      R"({"kind":"Status","code":403,"reason":"Forbidden","message":"may not get configmaps"})";
  for (const Case& c :
       {Case{500, "boom", absl::StatusCode::kUnavailable, "boom"},
        Case{502, "<html>", absl::StatusCode::kUnavailable, "502"},
        Case{401, "who?", absl::StatusCode::kPermissionDenied, "who?"},
        Case{403, kDenied, absl::StatusCode::kPermissionDenied, "may not get"},
        Case{403, kQuota, absl::StatusCode::kResourceExhausted, "exceeded quota"},
        Case{404, "404 page not found", absl::StatusCode::kNotFound, "page not found"},
        Case{410, "{}", absl::StatusCode::kOutOfRange, "410"}}) {
    const absl::Status status = GetStatus([&](Conversation& conversation, int) {
      conversation.Answer(c.http, c.body);
      return true;
    });
    EXPECT_EQ(status.code(), c.code) << c.http << ": " << status;
    EXPECT_THAT(status.message(), HasSubstr(c.message));
  }
}

TEST(HttpKubeClientTest, ARedirectIsNotFollowed) {
  std::atomic<int> asked = 0;
  const ScriptedServer elsewhere([&](Conversation& c, int) {
    ++asked;
    c.Answer(200, kMap);
    return true;
  });
  const std::string url = elsewhere.url();

  const absl::Status status = GetStatus([&](Conversation& c, int) {
    c.Answer(302, "", "text/plain", "Location: " + url + "/x\r\n");
    return true;
  });

  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("redirect"));
  EXPECT_EQ(asked, 0);
}

TEST(HttpKubeClientTest, ASilentServerIsGivenUpInTime) {
  const absl::Status status = GetStatus([](Conversation& c, int) {
    c.AwaitTheirEnd();
    return false;
  });
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("in time"));
}

TEST(HttpKubeClientTest, LaterThanTheDeadlineIsAnAnswer) {
  const absl::Status status = GetStatus([](Conversation& c, int) {
    c.Answer(429, "busy", "text/plain", "Retry-After: 60\r\n");
    return true;
  });
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

TEST(HttpKubeClientTest, NobodyAtThePortIsUnavailable) {
  std::string url;
  {
    const ScriptedServer gone([](Conversation&, int) { return false; });
    url = gone.url();
  }
  ClusterConfig config;
  config.server = url;
  const auto client = OpenHttpKubeClient(config, Quick());
  ASSERT_TRUE(client.ok());
  const absl::Status status = (*client)->Get(kConfigMap, kKey).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("cannot be reached"));
}

// Over TLS with this certificate, believing this authority.
absl::Status TlsStatus(const TestCertificate& shown, const std::string& believed,
                       bool insecure = false) {
  const ScriptedServer server(
      [](Conversation& c, int) {
        c.Answer(200, kMap);
        return true;
      },
      &shown);
  ClusterConfig config;
  config.authority.text = believed;
  config.insecure = insecure;
  return Open(server, config)->Get(kConfigMap, kKey).status();
}

TEST(HttpKubeClientTest, OnlyTheClustersOwnAuthorityIsBelieved) {
  const TestCertificate good("127.0.0.1", 3600);
  const TestCertificate other("127.0.0.1", 3600);
  const std::string path = std::filesystem::temp_directory_path() /
                           ("starling-system-authority-" + std::to_string(::getpid()));
  std::ofstream(path) << other.Pem();
  ::setenv("SSL_CERT_FILE", path.c_str(), 1);  // the system's believes `other`

  EXPECT_TRUE(TlsStatus(good, good.Pem()).ok());
  EXPECT_TRUE(TlsStatus(other, "").ok()) << "no authority is given: the system's counts";
  const absl::Status refused = TlsStatus(other, good.Pem());
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("not to be trusted"));
  ::unsetenv("SSL_CERT_FILE");
  std::filesystem::remove(path);
}

TEST(HttpKubeClientTest, ATokenIsReadAgainWhenItNoLongerServes) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("starling-token-" + std::to_string(::getpid()));
  std::ofstream(path) << "old\n";
  const TestCertificate certificate("127.0.0.1", 3600);
  const ScriptedServer server(
      [&](Conversation& c, int number) {
        const bool is_new = c.request.find("Authorization: Bearer new\r\n") != std::string::npos;
        if (number == 0) std::ofstream(path) << "new\n";
        c.Answer(is_new || number == 0 ? 200 : 401, kMap);
        return true;
      },
      &certificate);
  ClusterConfig config;
  config.authority.text = certificate.Pem();
  config.token.file = path;
  auto client = Open(server, config);

  EXPECT_TRUE(client->Get(kConfigMap, kKey).ok());
  const auto again = client->Get(kConfigMap, kKey);
  EXPECT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(server.requests(), 3);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace starling::kube
