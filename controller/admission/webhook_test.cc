// SPDX-License-Identifier: Apache-2.0
#include "controller/admission/webhook.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/clock/clock.h"
#include "common/http/test_tls_client.h"
#include "controller/kube/embedded_kube_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace starling::admission {
namespace {

using kube::Json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kReview[] = R"({"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",
  "request":{"uid":"u","operation":"DELETE"}})";

Json Configuration(const std::string& name) {
  const auto webhook = [](const std::string& title, const std::string& service) {
    return Json{{"name", title},
                {"clientConfig",
                 {{"service",
                   {{"name", service}, {"namespace", "starling-system"}, {"path", kReviewPath}}}}},
                {"sideEffects", "None"}};
  };
  return {{"apiVersion", "admissionregistration.k8s.io/v1"},
          {"kind", "ValidatingWebhookConfiguration"},
          {"metadata", {{"name", name}}},
          {"webhooks",
           Json::array({webhook("ours", "starling-webhook"), webhook("another's", "somebody")})}};
}

class WebhookTest : public ::testing::Test {
 protected:
  WebhookTest() { Configure(); }
  void Configure() {
    ASSERT_TRUE(
        client_->Create(kube::kValidatingWebhookConfiguration, Configuration("starling")).ok());
  }
  std::unique_ptr<Webhook> Start() {
    WebhookOptions options;
    options.address = "127.0.0.1";
    options.port = 0;
    auto webhook = Webhook::Start(*client_, clock_, options);
    EXPECT_TRUE(webhook.ok()) << webhook.status();
    return webhook.ok() ? *std::move(webhook) : nullptr;
  }
  std::string Bundle(std::size_t index = 0) {
    const Json found =
        client_->Get(kube::kValidatingWebhookConfiguration, {"", "starling"}).value();
    std::string text;
    absl::Base64Unescape(found["webhooks"][index]["clientConfig"].value("caBundle", ""), &text);
    return text;
  }
  Json Secret() {
    return client_->Get(kube::kSecret, {"starling-system", "starling-webhook-certificate"}).value();
  }
  static std::string Ask(const Webhook& webhook, const std::string& authority,
                         std::string_view path = kReviewPath, std::string_view body = kReview,
                         std::string_view method = "POST") {
    http::TestTlsClient client(webhook.port(), authority, "starling-webhook.starling-system.svc");
    if (!client.trusted()) return "not trusted";
    std::string request = std::string(method) + " " + std::string(path) +
                          " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n";
    if (!body.empty()) absl::StrAppend(&request, "Content-Length: ", body.size(), "\r\n");
    client.Send(request + "\r\n" + std::string(body));
    return client.Receive();
  }

  clock::FakeClock clock_{absl::Now()};
  std::unique_ptr<kube::KubeClient> client_ = kube::OpenEmbeddedKubeClient(clock_, {}).value();
};

TEST_F(WebhookTest, AnswersReviewsUnderTheAuthorityThatItPublished) {
  const auto webhook = Start();
  EXPECT_TRUE(webhook->ready());
  EXPECT_THAT(Ask(*webhook, Bundle()), HasSubstr(R"("allowed":true)"));
  EXPECT_THAT(Ask(*webhook, Bundle()), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Ask(*webhook, Bundle(), "/other"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask(*webhook, Bundle(), kReviewPath, "", "GET"), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(Ask(*webhook, Bundle(), kReviewPath, "{}"), StartsWith("HTTP/1.1 400"));
}

TEST_F(WebhookTest, OtherWebhooksOfTheConfigurationAreLeftAlone) {
  const auto webhook = Start();
  EXPECT_NE(Bundle(0), "");
  EXPECT_EQ(Bundle(1), "");
}

TEST_F(WebhookTest, ASecondReplicaServesTheSameCertificate) {
  const auto first = Start();
  const std::string version = Secret()["metadata"]["resourceVersion"];
  const auto second = Start();
  EXPECT_EQ(Secret()["metadata"]["resourceVersion"], version);
  EXPECT_THAT(Ask(*second, Bundle()), HasSubstr("allowed"));
  EXPECT_THAT(Ask(*first, Bundle()), HasSubstr("allowed"));
}

TEST_F(WebhookTest, RenewsBeforeExpiryWithoutARestartAndTheOtherReplicaFollows) {
  const auto first = Start();
  const auto second = Start();
  const Json before = Secret();
  clock_.Advance(absl::Hours(24) * 50);
  ASSERT_TRUE(first->Check().ok());
  EXPECT_EQ(Secret()["data"], before["data"]) << "not due yet";
  clock_.Advance(absl::Hours(24) * 15);
  ASSERT_TRUE(first->Check().ok());
  EXPECT_NE(Secret()["data"]["tls.crt"], before["data"]["tls.crt"]);
  EXPECT_EQ(Secret()["data"]["ca.crt"], before["data"]["ca.crt"]);
  const std::string version = Secret()["metadata"]["resourceVersion"];
  ASSERT_TRUE(second->Check().ok());
  EXPECT_EQ(Secret()["metadata"]["resourceVersion"], version);
}

TEST_F(WebhookTest, ADeletedSecretIsMadeAnewAndItsAuthorityPublished) {
  const auto webhook = Start();
  const std::string before = Bundle();
  ASSERT_TRUE(
      client_->Delete(kube::kSecret, {"starling-system", "starling-webhook-certificate"}, {}).ok());
  ASSERT_TRUE(webhook->Check().ok());
  EXPECT_NE(Bundle(), before);
  EXPECT_THAT(Ask(*webhook, Bundle()), HasSubstr("allowed"));
  EXPECT_EQ(Ask(*webhook, before), "not trusted");
}

TEST_F(WebhookTest, AConfigurationThatComesLaterOrIsOverwrittenGetsTheBundle) {
  ASSERT_TRUE(client_->Delete(kube::kValidatingWebhookConfiguration, {"", "starling"}, {}).ok());
  const auto webhook = Start();
  EXPECT_TRUE(webhook->ready());
  Configure();
  EXPECT_EQ(Bundle(), "");
  ASSERT_TRUE(webhook->Check().ok());
  EXPECT_THAT(Ask(*webhook, Bundle()), HasSubstr("allowed"));
}

TEST_F(WebhookTest, APortThatIsTakenIsAnError) {
  const auto webhook = Start();
  WebhookOptions options;
  options.address = "127.0.0.1";
  options.port = webhook->port();
  EXPECT_EQ(Webhook::Start(*client_, clock_, options).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace starling::admission
