// SPDX-License-Identifier: Apache-2.0
#include "controller/admission/webhook.h"

#include <atomic>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/clock/clock.h"
#include "common/http/test_tls_client.h"
#include "controller/kube/embedded_kube_client.h"
#include "controller/testing/faulty_kube_client.h"
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
  static WebhookOptions Options() {
    WebhookOptions options;
    options.address = "127.0.0.1";
    options.port = 0;
    return options;
  }
  std::unique_ptr<Webhook> Start() {
    auto webhook = Webhook::Start(*client_, clock_, Options());
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

TEST_F(WebhookTest, ASecretThatIsPutBackIsServedAgain) {
  const auto webhook = Start();
  const std::string before = Bundle();
  const Json data = Secret()["data"];
  ASSERT_TRUE(
      client_->Delete(kube::kSecret, {"starling-system", "starling-webhook-certificate"}, {}).ok());
  ASSERT_TRUE(webhook->Check().ok());
  Json secret = Secret();
  secret["data"] = data;
  ASSERT_TRUE(client_->Update(kube::kSecret, secret).ok());
  ASSERT_TRUE(webhook->Check().ok());
  EXPECT_EQ(Bundle(), before);
  EXPECT_THAT(Ask(*webhook, before), HasSubstr("allowed"));
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

TEST_F(WebhookTest, OfOtherNamespacesWebhooksNothingIsWritten) {
  Json configuration =
      client_->Get(kube::kValidatingWebhookConfiguration, {"", "starling"}).value();
  configuration["webhooks"][1]["clientConfig"]["service"] = {{"name", "starling-webhook"},
                                                             {"namespace", "elsewhere"}};
  ASSERT_TRUE(client_->Update(kube::kValidatingWebhookConfiguration, configuration).ok());
  const auto webhook = Start();
  EXPECT_NE(Bundle(0), "");
  EXPECT_EQ(Bundle(1), "");
}

TEST_F(WebhookTest, TheMutatingConfigurationGetsTheSameBundleAndNeitherIsWrittenTwice) {
  Json mutating = Configuration("starling");
  mutating["kind"] = "MutatingWebhookConfiguration";
  ASSERT_TRUE(client_->Create(kube::kMutatingWebhookConfiguration, mutating).ok());
  const auto webhook = Start();
  const auto both = [this] {
    return std::pair(client_->Get(kube::kValidatingWebhookConfiguration, {"", "starling"}).value(),
                     client_->Get(kube::kMutatingWebhookConfiguration, {"", "starling"}).value());
  };
  const auto written = both();
  EXPECT_EQ(written.first["webhooks"][0]["clientConfig"]["caBundle"],
            written.second["webhooks"][0]["clientConfig"]["caBundle"]);
  EXPECT_NE(Bundle(), "");
  ASSERT_TRUE(webhook->Check().ok());
  EXPECT_EQ(both(), written) << "resource versions too";
}

TEST_F(WebhookTest, WhereAllIsAsItShouldBeNothingIsWritten) {
  kube::FaultyKubeClient counting(*client_);
  const auto webhook = Webhook::Start(counting, clock_, Options());
  ASSERT_TRUE(webhook.ok()) << webhook.status();
  EXPECT_EQ(counting.writes(), 2) << "the Secret and one configuration";
  ASSERT_TRUE((*webhook)->Check().ok());
  EXPECT_EQ(counting.writes(), 2);
}

TEST_F(WebhookTest, AConfigurationThatCannotBeReadIsToldAndAskedForAgain) {
  kube::FaultyKubeClient faulty(*client_);
  faulty.AskBeforeReads([](const kube::ResourceKind& kind) {
    return kind == kube::kValidatingWebhookConfiguration ? absl::UnavailableError("busy")
                                                         : absl::OkStatus();
  });
  const auto webhook = Webhook::Start(faulty, clock_, Options());
  ASSERT_TRUE(webhook.ok()) << webhook.status();
  EXPECT_FALSE((*webhook)->ready());
  EXPECT_TRUE(absl::IsUnavailable((*webhook)->Check()));
  faulty.Heal();
  EXPECT_TRUE((*webhook)->Check().ok());
  EXPECT_NE(Bundle(), "");
}

TEST_F(WebhookTest, AConfigurationWithoutWebhooksIsNotWritten) {
  Start().reset();  // makes the Secret
  kube::FaultyKubeClient counting(*client_);
  Json none = Configuration("starling");
  none.erase("webhooks");
  std::vector<Json> odd = {none};
  const Json named = {{"ours", Configuration("starling")["webhooks"][0]}};
  for (const Json& webhooks : {Json(), Json::object(), Json::array(), named}) {
    odd.push_back(none);
    odd.back()["webhooks"] = webhooks;
  }
  for (const Json& configuration : odd) {
    ASSERT_TRUE(client_->Delete(kube::kValidatingWebhookConfiguration, {"", "starling"}, {}).ok());
    ASSERT_TRUE(client_->Create(kube::kValidatingWebhookConfiguration, configuration).ok());
    const auto webhook = Webhook::Start(counting, clock_, Options());
    ASSERT_TRUE(webhook.ok()) << webhook.status();
    EXPECT_TRUE((*webhook)->ready());
    EXPECT_EQ(counting.writes(), 0) << configuration;
  }
}

TEST_F(WebhookTest, AnotherWriterOfTheConfigurationIsMetByReadingAgain) {
  kube::FaultyKubeClient faulty(*client_);
  int conflicts = 4;
  faulty.FailWritesThat(
      [&](const kube::ResourceKind& kind, auto) {
        return kind.plural == kube::kValidatingWebhookConfiguration.plural && conflicts-- > 0;
      },
      kube::Fault::kConflict);
  const auto webhook = Webhook::Start(faulty, clock_, Options());
  ASSERT_TRUE(webhook.ok()) << webhook.status();
  EXPECT_TRUE((*webhook)->ready());
  conflicts = 1000;
  ASSERT_TRUE(
      client_->Delete(kube::kSecret, {"starling-system", "starling-webhook-certificate"}, {}).ok());
  EXPECT_TRUE(absl::IsAborted((*webhook)->Check()));
  EXPECT_EQ(conflicts, 995);
}

// Until the API server knows the new authority, it accepts the leaf before.
TEST_F(WebhookTest, ANewLeafIsServedOnceItsAuthorityIsPublished) {
  kube::FaultyKubeClient faulty(*client_);
  const auto webhook = Webhook::Start(faulty, clock_, Options());
  ASSERT_TRUE(webhook.ok());
  const std::string before = Bundle();
  ASSERT_TRUE(
      client_->Delete(kube::kSecret, {"starling-system", "starling-webhook-certificate"}, {}).ok());
  faulty.FailWritesThat(
      [](const kube::ResourceKind& kind, auto) {
        return kind.plural == kube::kValidatingWebhookConfiguration.plural;
      },
      kube::Fault::kRefuse);
  EXPECT_TRUE(absl::IsUnavailable((*webhook)->Check()));
  EXPECT_THAT(Ask(**webhook, before), HasSubstr("allowed"));
  faulty.Heal();
  ASSERT_TRUE((*webhook)->Check().ok());
  EXPECT_EQ(Ask(**webhook, before), "not trusted");
  EXPECT_THAT(Ask(**webhook, Bundle()), HasSubstr("allowed"));
}

TEST_F(WebhookTest, ItLooksAgainByItselfAndSoonerWhileItIsNotReady) {
  kube::FaultyKubeClient faulty(*client_);
  std::atomic<int> refusals = 4;
  faulty.FailWritesThat(
      [&](const kube::ResourceKind& kind, auto) {
        return kind.plural == kube::kValidatingWebhookConfiguration.plural && refusals-- > 0;
      },
      kube::Fault::kRefuse);
  WebhookOptions options = Options();
  options.retry_after = absl::Milliseconds(1);
  options.check_every = absl::Hours(1);
  const auto webhook = Webhook::Start(faulty, clock_, options);
  ASSERT_TRUE(webhook.ok()) << "it serves all the same";
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (!(*webhook)->ready() && absl::Now() < deadline) std::this_thread::yield();
  EXPECT_TRUE((*webhook)->ready());
  EXPECT_NE(Bundle(), "");
}

TEST_F(WebhookTest, AWriteThatFailsForAnotherReasonThanAConflictIsNotRepeated) {
  kube::FaultyKubeClient faulty(*client_);
  faulty.FailWritesThat(
      [](const kube::ResourceKind& kind, auto) {
        return kind.plural == kube::kValidatingWebhookConfiguration.plural;
      },
      kube::Fault::kRefuse);
  const auto webhook = Webhook::Start(faulty, clock_, Options());
  ASSERT_TRUE(webhook.ok()) << webhook.status();
  EXPECT_EQ(faulty.writes(), 2) << "the Secret and the refused one";
}

TEST_F(WebhookTest, AfterALookThatFailedTheNextOneWaits) {
  kube::FaultyKubeClient faulty(*client_);
  std::atomic<int> looks = 0;
  faulty.AskBeforeReads([&](const kube::ResourceKind& kind) {
    if (kind != kube::kSecret || ++looks == 1) return absl::OkStatus();
    return absl::UnavailableError("busy");
  });
  WebhookOptions options = Options();
  options.check_every = absl::ZeroDuration();
  options.retry_after = absl::Hours(1);
  auto webhook = Webhook::Start(faulty, clock_, options);
  ASSERT_TRUE(webhook.ok()) << webhook.status();
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (looks < 2 && absl::Now() < deadline) std::this_thread::yield();
  // While this is answered, somebody who does not wait looks many times.
  EXPECT_THAT(Ask(**webhook, Bundle()), HasSubstr("allowed"));
  webhook->reset();
  EXPECT_EQ(looks, 2);
}

TEST_F(WebhookTest, WithoutASecretNothingIsServed) {
  kube::FaultyKubeClient faulty(*client_);
  faulty.FailWrite(1, kube::Fault::kRefuse);
  EXPECT_TRUE(absl::IsUnavailable(Webhook::Start(faulty, clock_, Options()).status()));
}

// An API server sends the object as it was and as it is to be, of up to 1.5 MiB each.
TEST_F(WebhookTest, AReviewOfTwoLargeObjectsIsAnswered) {
  const auto webhook = Start();
  Json review = Json::parse(kReview);
  review["request"]["oldObject"] = {{"spec", std::string(3 << 20, 'x')}};
  EXPECT_THAT(Ask(*webhook, Bundle(), kReviewPath, review.dump()), StartsWith("HTTP/1.1 200"));
}

TEST_F(WebhookTest, WhereThereIsNoRoomTheIdleConnectionGoes) {
  WebhookOptions options = Options();
  options.max_connections = 1;
  const auto webhook = Webhook::Start(*client_, clock_, options);
  ASSERT_TRUE(webhook.ok()) << webhook.status();
  http::TestTlsClient idle((*webhook)->port(), Bundle(), "starling-webhook.starling-system.svc");
  ASSERT_TRUE(idle.trusted());
  EXPECT_THAT(Ask(**webhook, Bundle()), HasSubstr("allowed"));
  idle.Send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(idle.Receive(), "");
}

// To look a template up is to ask the API server, which may take its time.
TEST_F(WebhookTest, WhileOneReviewWaitsForItsTemplateOthersAreAnswered) {
  kube::FaultyKubeClient slow(*client_);
  std::latch asked(1), released(1);
  slow.AskBeforeReads([&](const kube::ResourceKind& kind) {
    if (kind == kube::kTrainingTemplate) {
      asked.count_down();
      released.wait();
    }
    return absl::OkStatus();
  });
  const auto webhook = Webhook::Start(slow, clock_, Options());
  ASSERT_TRUE(webhook.ok()) << webhook.status();
  Json review = Json::parse(kReview);
  review["request"]["operation"] = "CREATE";
  review["request"]["namespace"] = "team";
  review["request"]["object"] = {
      {"apiVersion", "starling.dev/v1alpha1"},
      {"kind", "TrainingJob"},
      {"metadata", {{"name", "digits"}}},
      {"spec",
       {{"templateRef", {{"name", "small"}}},
        {"workload", {{"classification", {{"model", {{"mlp", Json::object()}}}}}}},
        {"dataset", {{"train", {{"synthetic", Json::object()}}}}},
        {"replicaSpecs",
         {{"worker", {{"replicas", 1}, {"minReplicas", 1}}}, {"coordinator", Json::object()}}},
        {"runPolicy", Json::object()}}}};
  const std::string bundle = Bundle();
  std::string answer;
  std::thread waits([&] { answer = Ask(**webhook, bundle, kTemplatePath, review.dump()); });
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (!asked.try_wait() && absl::Now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(asked.try_wait());
  EXPECT_THAT(Ask(**webhook, bundle), HasSubstr(R"("allowed":true)"));
  released.count_down();
  waits.join();
  EXPECT_THAT(answer, HasSubstr("spec.templateRef.name")) << "there is none";
}

TEST_F(WebhookTest, ItListensWhereItIsToldTo) {
  const auto webhook = Start();
  WebhookOptions options = Options();
  options.address = "127.0.0.2";
  options.port = webhook->port();
  EXPECT_TRUE(Webhook::Start(*client_, clock_, options).ok()) << "another address's port is free";
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
