// SPDX-License-Identifier: Apache-2.0
// The command line's client of REST, as a KubeClient: jobs pass the suite that the embedded store
// and an API server pass.
#include "cli/rest_client.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/clock/clock.h"
#include "common/http/http_server.h"
#include "common/metrics/metrics.h"
#include "controller/history/no_history.h"
#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/training_job_admission.h"
#include "controller/rest/rest_service.h"
#include "controller/runtime/informer.h"
#include "tests/contract/kube_client_contract.h"
#include "tests/contract/kube_client_reads_contract.h"

namespace starling::cli {
namespace {

using kube::Json;
using kube::ObjectKey;
using kube::ResourceKind;

// The service of one machine over a store in memory, without a controller.
class Service {
 public:
  Service() {
    EXPECT_TRUE(jobs_.Poll(absl::ZeroDuration()).ok());  // the first list
    watching_ = std::thread([this] { jobs_.Run(); });
    http::HttpServerOptions server;
    server.handler_threads = 2;
    server_ = *http::HttpServer::Start(
        std::move(server), [this](const http::Request& request) { return rest_.Answer(request); });
    rest_.Begin(server_->port());
  }
  ~Service() {
    server_.reset();
    jobs_.Stop();
    watching_.join();
  }

  kube::KubeClient& store() { return *store_; }
  RestServer Address(std::string token = kToken) const {
    return {.url = absl::StrCat("http://127.0.0.1:", server_->port()),
            .token = {.file = "", .text = std::move(token)},
            .authority = {}};
  }

 private:
  static constexpr const char* kToken = "a-token-of-the-test";

  static service::ServiceOptions Options() {
    service::ServiceOptions options;
    options.token = kToken;
    options.limits.reads_per_second = options.limits.writes_per_second = 0;
    options.signing_key = "key";
    options.version = "test";
    return options;
  }

  const clock::SystemClock clock_;
  const std::unique_ptr<kube::KubeClient> store_ = *kube::OpenEmbeddedKubeClient(clock_, {});
  metrics::Registry registry_;
  runtime::Informer jobs_{*store_, kube::kTrainingJob, {}};
  const service::LocalJobFiles files_{"/nowhere", clock_};
  history::NoHistory history_;
  service::RestService rest_{*store_, jobs_, files_, history_, clock_, registry_, Options()};
  std::unique_ptr<http::HttpServer> server_;
  std::thread watching_;
};

// Jobs over REST; what REST leaves to the controller, other kinds and the status, from the store.
class JobsOverRest final : public kube::KubeClient {
 public:
  JobsOverRest(kube::KubeClient& rest, kube::KubeClient& store) : rest_(rest), store_(store) {}

  absl::StatusOr<Json> Get(const ResourceKind& kind, const ObjectKey& key) override {
    return Of(kind).Get(kind, key);
  }
  absl::StatusOr<kube::ObjectList> List(const ResourceKind& kind, std::string_view ns,
                                        const kube::ListOptions& options) override {
    return Of(kind).List(kind, ns, options);
  }
  absl::StatusOr<std::unique_ptr<kube::WatchStream>> Watch(
      const ResourceKind& kind, std::string_view ns, const kube::WatchOptions& options) override {
    return Of(kind).Watch(kind, ns, options);
  }
  absl::StatusOr<Json> Create(const ResourceKind& kind, const Json& object) override {
    return Of(kind).Create(kind, object);
  }
  absl::StatusOr<Json> Update(const ResourceKind& kind, const Json& object) override {
    return Of(kind).Update(kind, object);
  }
  absl::StatusOr<Json> UpdateStatus(const ResourceKind& kind, const Json& object) override {
    return store_.UpdateStatus(kind, object);
  }
  absl::StatusOr<Json> Patch(const ResourceKind& kind, const ObjectKey& key,
                             const Json& patch) override {
    return Of(kind).Patch(kind, key, patch);
  }
  absl::StatusOr<Json> PatchStatus(const ResourceKind& kind, const ObjectKey& key,
                                   const Json& patch) override {
    return store_.PatchStatus(kind, key, patch);
  }
  absl::StatusOr<Json> Apply(const ResourceKind& kind, const Json& object,
                             const kube::ApplyOptions& options) override {
    return Of(kind).Apply(kind, object, options);
  }
  absl::StatusOr<Json> DryRunCreate(const ResourceKind& kind, const Json& object) override {
    return Of(kind).DryRunCreate(kind, object);
  }
  absl::StatusOr<bool> Serves(const ResourceKind& kind) override { return store_.Serves(kind); }
  absl::StatusOr<Json> Delete(const ResourceKind& kind, const ObjectKey& key,
                              const kube::DeleteOptions& options) override {
    return Of(kind).Delete(kind, key, options);
  }
  absl::StatusOr<Json> GetScale(const ResourceKind& kind, const ObjectKey& key) override {
    return Of(kind).GetScale(kind, key);
  }
  absl::StatusOr<Json> UpdateScale(const ResourceKind& kind, const Json& scale) override {
    return Of(kind).UpdateScale(kind, scale);
  }

 private:
  kube::KubeClient& Of(const ResourceKind& kind) {
    return kind == kube::kTrainingJob ? rest_ : store_;
  }

  kube::KubeClient& rest_;
  kube::KubeClient& store_;
};

class RestCluster final : public kube::Cluster {
 public:
  kube::KubeClient& writer() override { return jobs_; }
  kube::KubeClient& reader() override { return jobs_; }

 private:
  Service service_;
  const std::unique_ptr<RestClient> rest_ = *OpenRestClient(service_.Address());
  JobsOverRest jobs_{*rest_, service_.store()};
};

}  // namespace
}  // namespace starling::cli

namespace starling::kube {
namespace {

INSTANTIATE_TEST_SUITE_P(Rest, KubeClientContract,
                         testing::Values(ClusterFactory{
                             "Service", [] { return std::make_unique<cli::RestCluster>(); }}),
                         NameOfFactory);

}  // namespace
}  // namespace starling::kube

namespace starling::cli {
namespace {

using testing::HasSubstr;

Json Held(const std::string& name) {
  return {{"apiVersion", "starling.dev/v1alpha1"},
          {"kind", "TrainingJob"},
          {"metadata", {{"name", name}, {"namespace", "default"}}},
          {"spec",
           {{"workload", {{"classification", {{"model", {{"mlp", Json::object()}}}}}}},
            {"dataset", {{"train", {{"synthetic", {{"samples", 64}}}}}}},
            {"runPolicy", {{"suspend", true}}}}}};
}

class RestClientTest : public testing::Test {
 protected:
  // The next event of a job, "MODIFIED name".
  static std::string Heard(kube::WatchStream& watch) {
    const auto event = watch.Next(absl::Seconds(10));
    if (!event.ok()) return event.status().ToString();
    if (!*event) return "nothing";
    constexpr const char* kNames[] = {"ADDED ", "MODIFIED ", "DELETED ", "BOOKMARK "};
    return kNames[static_cast<int>((*event)->type)] + kube::NameOf(*(*event)->object);
  }

  Service service_;
  const std::unique_ptr<RestClient> client_ = *OpenRestClient(service_.Address());
};

TEST_F(RestClientTest, WhatRestCannotDoIsSaidWithARemedy) {
  const ObjectKey key{"default", "x"};
  const std::vector<absl::Status> refusals = {
      client_->Get(kube::kConfigMap, key).status(),
      client_->List(kube::kSecret, "default", {}).status(),
      client_->List(kube::kTrainingJob, "default", {{}, 5, ""}).status(),
      client_->Watch(kube::kPod, "default", {}).status(),
      client_->Watch(kube::kTrainingJob, "default", {}).status(),
      client_->Create(kube::kPod, Json::object()).status(),
      client_->UpdateStatus(kube::kTrainingJob, Held("x")).status(),
      client_->PatchStatus(kube::kTrainingJob, key, Json::object()).status(),
      client_->Apply(kube::kTrainingJob, Held("x"), {"me"}).status()};

  for (const absl::Status& refusal : refusals) {
    EXPECT_TRUE(absl::IsUnimplemented(refusal)) << refusal;
    EXPECT_THAT(std::string(refusal.message()), HasSubstr("; ")) << "and what to do";
  }
}

TEST_F(RestClientTest, AWrongJobIsToldFieldByField) {
  Json job = Held("wrong");
  job["spec"]["sede"] = 3;
  job["spec"]["stop"] = {{"epochs", -1}};

  const absl::Status refused = client_->Create(kube::kTrainingJob, job).status();

  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("spec.sede: unknown field"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("\nspec.stop.epochs: "));
}

TEST_F(RestClientTest, AWatchOfOneJobTellsItsLifeAndThatAnotherHasTakenItsName) {
  const auto created = client_->Create(kube::kTrainingJob, Held("one"));
  ASSERT_TRUE(created.ok()) << created.status();
  const kube::Selection selection{"", "metadata.name=one"};
  auto watch = client_->Watch(kube::kTrainingJob, "default", {selection, ""});
  ASSERT_TRUE(watch.ok()) << watch.status();
  EXPECT_EQ(Heard(**watch), "ADDED one");

  const Json label = {{"metadata", {{"labels", {{"a", "b"}}}}}};
  ASSERT_TRUE(client_->Patch(kube::kTrainingJob, {"default", "one"}, label).ok());
  EXPECT_EQ(Heard(**watch), "MODIFIED one");

  ASSERT_TRUE(client_->Delete(kube::kTrainingJob, {"default", "one"}, {}).ok());
  EXPECT_EQ(Heard(**watch), "DELETED one");
  const auto after = (*watch)->Next(absl::Milliseconds(50));
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_FALSE(after->has_value());
  (*watch)->Stop();
  EXPECT_TRUE(absl::IsCancelled((*watch)->Next(absl::Seconds(10)).status()));
}

TEST_F(RestClientTest, AWatchGoesOnBehindTheVersionThatWasSeen) {
  ASSERT_TRUE(client_->Create(kube::kTrainingJob, Held("seen")).ok());
  const kube::Selection selection{"", "metadata.name=seen"};
  const auto list = client_->List(kube::kTrainingJob, "default", {selection, 0, ""});
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->items.size(), 1U);

  auto watch = client_->Watch(kube::kTrainingJob, "default", {selection, list->resource_version});
  ASSERT_TRUE(watch.ok()) << watch.status();
  const Json label = {{"metadata", {{"labels", {{"a", "b"}}}}}};
  ASSERT_TRUE(client_->Patch(kube::kTrainingJob, {"default", "seen"}, label).ok());

  EXPECT_EQ(Heard(**watch), "MODIFIED seen");
}

TEST_F(RestClientTest, ListsAreWholeObjectsOfAllPages) {
  for (int i = 0; i < 7; ++i) {
    ASSERT_TRUE(client_->Create(kube::kTrainingJob, Held(absl::StrCat("job-", i))).ok());
  }

  const auto list = client_->List(kube::kTrainingJob, "", {});

  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->items.size(), 7U);
  for (const Json& job : list->items) EXPECT_TRUE(kube::At(job, "/spec").is_object());
  EXPECT_EQ(client_->List(kube::kTrainingJob, "elsewhere", {})->items.size(), 0U);
}

TEST(EventStreamTest, AServerThatStaysAwayIsGivenUpOnAndThenTriedAnew) {
  auto service = std::make_unique<Service>();
  const RestServer address = service->Address();
  http::ClientOptions options;
  options.authorize = [&](http::Request& request, bool) {
    request.headers.emplace_back("Authorization", "Bearer " + address.token.text);
    return absl::OkStatus();
  };
  options.status_of = StatusOfProblem;
  const auto http = *http::HttpClient::Open(address.url, options);
  EventStream stream(*http, "/v1/jobs?watch=true", "", absl::Milliseconds(500));
  ASSERT_TRUE(stream.Start().ok());
  auto event = stream.Next(absl::Seconds(10));
  ASSERT_TRUE(event.ok() && *event) << event.status();
  EXPECT_EQ((*event)->name, "bookmark");
  service.reset();

  absl::Status given_up;
  for (int i = 0; i < 200 && given_up.ok(); ++i) {
    given_up = stream.Next(absl::Milliseconds(100)).status();
  }

  EXPECT_TRUE(absl::IsUnavailable(given_up)) << given_up;
  EXPECT_TRUE(stream.Next(absl::Milliseconds(1)).ok()) << "patient anew";
}

TEST_F(RestClientTest, WhoIsNotKnownIsToldWhatToSend) {
  const auto stranger = *OpenRestClient(service_.Address("wrong"));

  const absl::Status refused = stranger->Get(kube::kTrainingJob, {"default", "x"}).status();

  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("Authorization: Bearer"));
  EXPECT_TRUE(absl::IsInvalidArgument((*OpenRestClient(service_.Address("two words")))
                                          ->Get(kube::kTrainingJob, {"default", "x"})
                                          .status()));
}

}  // namespace
}  // namespace starling::cli
