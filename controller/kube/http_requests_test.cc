// SPDX-License-Identifier: Apache-2.0
// What an API server is asked for: the path, the query and the body of every call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "controller/kube/http_client_testing.h"
#include "controller/kube/http_path.h"
#include "controller/kube/messages.h"
#include "controller/kube/objects.h"
#include "controller/kube/protobuf_wire.h"

namespace starling::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A server that remembers what it was asked and gives one answer after the other, the last of them
// again and again.
class Recorder {
 public:
  explicit Recorder(std::vector<std::string> answers, int status = 200)
      : server_([this, answers, status](Conversation& c, int number) {
          const sync::MutexLock lock(mutex_);
          requests_.push_back(c.request);
          const auto last = answers.size() - 1;
          c.Answer(status, answers[std::min(static_cast<std::size_t>(number), last)]);
          return true;
        }) {}

  std::unique_ptr<HttpKubeClient> Client(HttpKubeClientOptions options = Quick()) const {
    return Open(server_, {}, std::move(options));
  }
  std::vector<std::string> requests() {
    const sync::MutexLock lock(mutex_);
    return requests_;
  }
  // Of all requests: "METHOD target".
  std::vector<std::string> lines() {
    std::vector<std::string> lines;
    for (const std::string& request : requests()) {
      lines.push_back(request.substr(0, request.find(" HTTP/1.1")));
    }
    return lines;
  }
  Json body() {
    const std::string last = requests().back();
    return Json::parse(last.substr(last.find("\r\n\r\n") + 4), nullptr, false);
  }

 private:
  sync::Mutex mutex_;
  std::vector<std::string> requests_;
  const ScriptedServer server_;
};

const char* const kAnswer =
    R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","resourceVersion":"7"}})";

Json Config() {
  return {{"apiVersion", "v1"},
          {"kind", "ConfigMap"},
          {"metadata", {{"name", "x"}, {"resourceVersion", "7"}}}};
}

TEST(HttpRequests, EveryCallHasItsPathAndSaysWhoWrites) {
  struct Call {
    const char* line;
    std::function<absl::Status(HttpKubeClient&)> make;
  };
  const Json job = {{"metadata", {{"name", "j"}, {"namespace", "n"}, {"resourceVersion", "7"}}}};
  const Call calls[] = {
      {"GET /api/v1/namespaces/default/configmaps/x",
       [](auto& client) {
         return client.Get(kConfigMap, {"", "x"}).status();
       }},
      {"GET /api/v1/namespaces/n%2F/configmaps/x%3F",
       [](auto& client) {
         return client.Get(kConfigMap, {"n/", "x?"}).status();
       }},
      {"GET /apis/starling.dev/v1alpha1/clustertrainingtemplates/x",
       [](auto& client) {
         return client.Get(kClusterTrainingTemplate, {"", "x"}).status();
       }},
      {"POST /api/v1/namespaces/default/configmaps?fieldManager=starling",
       [](auto& client) { return client.Create(kConfigMap, Config()).status(); }},
      {"POST /api/v1/namespaces/default/configmaps?fieldManager=starling&dryRun=All",
       [](auto& client) { return client.DryRunCreate(kConfigMap, Config()).status(); }},
      {"PUT /api/v1/namespaces/default/configmaps/x?fieldManager=starling",
       [](auto& client) { return client.Update(kConfigMap, Config()).status(); }},
      {"PUT /apis/starling.dev/v1alpha1/namespaces/n/trainingjobs/j/status?fieldManager=starling",
       [=](auto& client) { return client.UpdateStatus(kTrainingJob, job).status(); }},
      {"PATCH /api/v1/namespaces/n/configmaps/x?fieldManager=starling",
       [](auto& client) {
         return client.Patch(kConfigMap, {"n", "x"}, {{"a", 1}}).status();
       }},
      {"PATCH /api/v1/namespaces/n/pods/x/status?fieldManager=starling",
       [](auto& client) {
         return client.PatchStatus(kPod, {"n", "x"}, {{"a", 1}}).status();
       }},
      {"PATCH /api/v1/namespaces/default/configmaps/x?fieldManager=me&force=false",
       [](auto& client) { return client.Apply(kConfigMap, Config(), {"me"}).status(); }},
      {"PATCH /api/v1/namespaces/default/configmaps/x?fieldManager=me&force=true&dryRun=All",
       [](auto& client) {
         return client.Apply(kConfigMap, Config(), {"me", true, true}).status();
       }},
      {"DELETE /api/v1/namespaces/default/configmaps/x",
       [](auto& client) {
         return client.Delete(kConfigMap, {"", "x"}, {}).status();
       }},
      {"GET /apis/starling.dev/v1alpha1/namespaces/n/trainingjobs/j/scale",
       [](auto& client) {
         return client.GetScale(kTrainingJob, {"n", "j"}).status();
       }},
      {"PUT /apis/starling.dev/v1alpha1/namespaces/n/trainingjobs/j/scale?fieldManager=starling",
       [=](auto& client) { return client.UpdateScale(kTrainingJob, job).status(); }}};
  for (const Call& call : calls) {
    Recorder server({kAnswer});
    const absl::Status made = call.make(*server.Client());
    EXPECT_TRUE(made.ok()) << call.line << ": " << made;
    EXPECT_THAT(server.lines(), ElementsAre(call.line));
  }
}

TEST(HttpRequests, WhatCannotBeAskedIsNotAsked) {
  Recorder server({kAnswer});
  const auto client = server.Client();
  Json nameless = Config();
  nameless["metadata"].erase("name");
  Json unread = Config();
  unread["metadata"].erase("resourceVersion");
  for (const char* name : {"", ".", ".."}) {
    const ObjectKey key{"n", name};
    for (const absl::Status& refused :
         {client->Get(kConfigMap, key).status(), client->GetMessage(kConfigMap, key).status(),
          client->Patch(kConfigMap, key, Json::object()).status(),
          client->Delete(kConfigMap, key, {}).status(),
          client->DeleteMessage(kConfigMap, key, {}).status(),
          client->GetScale(kTrainingJob, key).status(), client->ReadLogs(key, {}).status()}) {
      EXPECT_TRUE(absl::IsInvalidArgument(refused)) << name << ": " << refused;
      EXPECT_THAT(std::string(refused.message()), HasSubstr("metadata.name: must be given"));
    }
  }
  for (const absl::Status& refused :
       {client->Update(kConfigMap, nameless).status(), client->Update(kConfigMap, unread).status(),
        client->UpdateStatus(kPod, unread).status(),
        client->Apply(kConfigMap, nameless, {"me"}).status(),
        client->Apply(kConfigMap, Config(), {}).status(),
        client->GetMessage(kTrainingJob, {"n", "x"}).status(),
        client->ListMessages(kTrainingJob, "", {}).status(),
        client->WatchMessages(kTrainingJob, "", {}).status(),
        client->WatchMessages(kTrainingJob, "", {{}, "4"}).status(),
        client->CreateMessage(kTrainingJob, kubernetes::Pod()).status(),
        client->CreateFromJson(kTrainingJob, Config()).status(),
        client->DeleteMessage(kTrainingJob, {"n", "x"}, {}).status()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  }
  for (const absl::Status& none :
       {client->UpdateStatus(kConfigMap, Config()).status(),
        client->PatchStatus(kConfigMap, {"n", "x"}, Json::object()).status(),
        client->GetScale(kPod, {"n", "x"}).status(),
        client->UpdateScale(kPod, Config()).status()}) {
    EXPECT_TRUE(absl::IsNotFound(none)) << none;
    EXPECT_THAT(std::string(none.message()), HasSubstr("subresource"));
  }
  EXPECT_TRUE(server.requests().empty());
}

TEST(HttpRequests, WritesSayInWhatFormTheyAre) {
  Recorder server({kAnswer});
  const auto client = server.Client();
  ASSERT_TRUE(client->Patch(kConfigMap, {"n", "x"}, {{"data", {{"k", "v"}}}}).ok());
  ASSERT_TRUE(client->Apply(kConfigMap, Config(), {"me"}).ok());
  ASSERT_TRUE(client->Update(kConfigMap, Config()).ok());
  const auto requests = server.requests();
  EXPECT_THAT(requests[0], HasSubstr("Content-Type: application/merge-patch+json"));
  EXPECT_THAT(requests[0], HasSubstr(R"({"data":{"k":"v"}})"));
  EXPECT_THAT(requests[1], HasSubstr("Content-Type: application/apply-patch+yaml"));
  EXPECT_THAT(requests[2], HasSubstr("Content-Type: application/json"));
  for (const std::string& request : requests) {
    EXPECT_THAT(request, HasSubstr("Accept: application/json"));
  }
}

TEST(HttpRequests, AnObjectThatIsCreatedIsNamedWhereItsWriterDidNot) {
  for (const Json& said : {Json{{"data", {{"k", "v"}}}}, Json{{"apiVersion", "v1"}},
                           Json{{"kind", "ConfigMap"}}, Config()}) {
    Recorder server({kAnswer});
    ASSERT_TRUE(server.Client()->Create(kConfigMap, said).ok());
    Json wanted = said;
    wanted["apiVersion"] = "v1";
    wanted["kind"] = "ConfigMap";
    EXPECT_EQ(server.body(), wanted);
  }
  Recorder server({kAnswer});
  (void)server.Client()->Create(kConfigMap, Json::array());
  EXPECT_EQ(server.body(), Json::array()) << "the server's to refuse";
}

TEST(HttpRequests, AStatusOfAJobGoesAlone) {
  const Json job = {{"apiVersion", "starling.dev/v1alpha1"},
                    {"kind", "TrainingJob"},
                    {"metadata",
                     {{"name", "j"},
                      {"namespace", "n"},
                      {"uid", "u"},
                      {"resourceVersion", "7"},
                      {"labels", {{"a", "b"}}}}},
                    {"spec", {{"a", 1}}},
                    {"status", {{"phase", "Running"}}}};
  Recorder server({kAnswer});
  ASSERT_TRUE(server.Client()->UpdateStatus(kTrainingJob, job).ok());
  Json alone = job;
  alone.erase("spec");
  alone["metadata"].erase("labels");
  EXPECT_EQ(server.body(), alone);
  Json pod = job;
  pod["kind"] = "Pod";
  ASSERT_TRUE(server.Client()->UpdateStatus(kPod, pod).ok());
  EXPECT_EQ(server.body(), pod);
}

TEST(HttpRequests, ADeletionSaysWhatMustHoldAndHowLongItMayTake) {
  Recorder server({kAnswer});
  const auto client = server.Client();
  const Json plain = {
      {"apiVersion", "v1"}, {"kind", "DeleteOptions"}, {"propagationPolicy", "Background"}};
  ASSERT_TRUE(client->Delete(kPod, {"n", "x"}, {}).ok());
  EXPECT_EQ(server.body(), plain);
  ASSERT_TRUE(client
                  ->Delete(kPod, {"n", "x"},
                           {.uid = "u", .resource_version = "7", .grace_period_seconds = 0})
                  .ok());
  Json full = plain;
  full["preconditions"] = {{"uid", "u"}, {"resourceVersion", "7"}};
  full["gracePeriodSeconds"] = 0;
  EXPECT_EQ(server.body(), full);
  (void)client->DeleteMessage(kPod, {"n", "x"},
                              {.uid = "u-1", .resource_version = "v-7", .grace_period_seconds = 5});
  kubernetes::DeleteOptions options;
  options.set_propagation_policy("Background");
  options.mutable_preconditions()->set_uid("u-1");
  options.mutable_preconditions()->set_resource_version("v-7");
  options.set_grace_period_seconds(5);
  EXPECT_THAT(server.requests().back(), HasSubstr(EncodeBody("v1", "DeleteOptions", options)));
  (void)client->DeleteMessage(kPod, {"n", "x"}, {});
  kubernetes::DeleteOptions none;
  none.set_propagation_policy("Background");
  EXPECT_THAT(server.requests().back(),
              ::testing::EndsWith(EncodeBody("v1", "DeleteOptions", none)));
}

TEST(HttpRequests, OfWhatIsGoneTheKeyAndTheUidAreTold) {
  Recorder server({R"({"kind":"Status","status":"Success","details":{"uid":"u-1"}})"});
  const auto gone = server.Client()->Delete(kConfigMap, {"", "x"}, {});
  ASSERT_TRUE(gone.ok()) << gone.status();
  EXPECT_EQ(*gone, (Json{{"apiVersion", "v1"},
                         {"kind", "ConfigMap"},
                         {"metadata", {{"name", "x"}, {"namespace", "default"}, {"uid", "u-1"}}}}));
}

TEST(HttpRequests, WhatIsGoneAndHasNoNamespaceHasNone) {
  Recorder server({R"({"kind":"Status","status":"Success","details":{"uid":"u-1"}})"});
  const auto gone = server.Client()->Delete(kNode, {"", "x"}, {});
  ASSERT_TRUE(gone.ok()) << gone.status();
  EXPECT_EQ((*gone)["metadata"]["namespace"], "");
}

TEST(HttpRequests, OfWhatGoesLaterTheServersWordIsHandedOn) {
  Recorder server({kAnswer});
  const auto going = server.Client()->Delete(kConfigMap, {"", "x"}, {});
  ASSERT_TRUE(going.ok()) << going.status();
  EXPECT_EQ(*going, Json::parse(kAnswer));
}

TEST(HttpRequests, AnObjectWhoseMetadataAreNoneIsHandedOnAsItIs) {
  const char* const odd = R"({"kind":"ConfigMap","metadata":"none"})";
  Recorder server({odd});
  const auto found = server.Client()->Get(kConfigMap, {"", "x"});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, Json::parse(odd));
}

std::string Page(const std::string& name, const std::string& next) {
  return Json{{"metadata", {{"resourceVersion", "9"}, {"continue", next}}},
              {"items", Json::array({{{"metadata", {{"name", name}, {"managedFields", {1}}}}},
                                     "no object"})}}
      .dump();
}

TEST(HttpRequests, AListIsReadPageAfterPage) {
  Recorder server({Page("a", "next/1"), Page("b", "next/2"), Page("c", "")});
  HttpKubeClientOptions options = Quick();
  options.page = 1;
  const auto client = server.Client(options);
  const auto list = client->List(kConfigMap, "n", {{"app=x", "metadata.name!=y"}, 0, ""});
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->resource_version, "9");
  EXPECT_EQ(list->continue_token, "");
  ASSERT_EQ(list->items.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(list->items[i], (Json{{"apiVersion", "v1"},
                                    {"kind", "ConfigMap"},
                                    {"metadata", {{"name", std::string(1, "abc"[i])}}}}));
  }
  const std::string all =
      "GET "
      "/api/v1/namespaces/n/configmaps?labelSelector=app%3Dx&fieldSelector=metadata.name%21%3Dy";
  EXPECT_THAT(server.lines(), ElementsAre(all + "&limit=1", all + "&limit=1&continue=next%2F1",
                                          all + "&limit=1&continue=next%2F2"));
}

TEST(HttpRequests, APageThatIsAskedForIsOnePage) {
  Recorder server({Page("a", "next")});
  const auto client = server.Client();
  EXPECT_EQ(client->List(kNode, "", {{}, 3, ""})->continue_token, "next");
  EXPECT_EQ(client->List(kNode, "n", {{}, 0, "next"})->items.size(), 1U);
  EXPECT_THAT(server.lines(),
              ElementsAre("GET /api/v1/nodes?limit=3", "GET /api/v1/nodes?continue=next"));
}

TEST(HttpRequests, APageMayBeOfOneObject) {
  Recorder server({Page("a", "next"), Page("b", "")});
  EXPECT_EQ(server.Client()->List(kNode, "", {{}, 1, ""})->continue_token, "next");
  EXPECT_THAT(server.lines(), ElementsAre("GET /api/v1/nodes?limit=1"));
}

TEST(HttpRequests, AListWhosePagesWereForgottenIsReadAtOnce) {
  const std::string forgotten =
      R"({"kind":"Status","code":410,"reason":"Expired","message":"old"})";
  std::vector<std::string> lines;
  const ScriptedServer server([&](Conversation& c, int number) {
    lines.push_back(c.request.substr(0, c.request.find(" HTTP/1.1")));
    c.Answer(number == 1 ? 410 : 200, number == 1 ? forgotten : Page("a", number == 0 ? "n" : ""));
    return true;
  });
  EXPECT_EQ(Open(server)->List(kPod, "", {})->items.size(), 1U);
  EXPECT_THAT(lines, ElementsAre("GET /api/v1/pods?limit=500",
                                 "GET /api/v1/pods?limit=500&continue=n", "GET /api/v1/pods"));
  Recorder always({forgotten}, 410);
  EXPECT_TRUE(absl::IsOutOfRange(always.Client()->List(kPod, "", {}).status()));
  EXPECT_EQ(always.lines().size(), 1U);
}

TEST(HttpRequests, WhatIsNoListIsUnavailable) {
  for (const char* body : {R"({"items":[]})", R"({"metadata":{"resourceVersion":"9"}})",
                           R"({"metadata":{"resourceVersion":"9"},"items":{}})"}) {
    Recorder server({body});
    EXPECT_TRUE(absl::IsUnavailable(server.Client()->List(kPod, "", {}).status())) << body;
  }
  Recorder server({R"({"metadata":{"resourceVersion":"9"},"items":null})"});
  EXPECT_TRUE(server.Client()->List(kPod, "", {})->items.empty());
}

TEST(HttpRequests, AKindIsServedWhereItsGroupHasIt) {
  Recorder served({R"({"resources":[{"name":"other"},{"name":"workloads"}]})"});
  EXPECT_EQ(served.Client()->Serves(kKueueWorkload).value_or(false), true);
  EXPECT_THAT(served.lines(), ElementsAre("GET /apis/kueue.x-k8s.io/v1beta1"));
  Recorder lacking({R"({"resources":[{"name":"other"}]})"});
  EXPECT_EQ(lacking.Client()->Serves(kKueueWorkload).value_or(true), false);
  Recorder unknown({"no such group"}, 404);
  EXPECT_EQ(unknown.Client()->Serves(kKueueWorkload).value_or(true), false);
  Recorder broken({"no"}, 403);
  EXPECT_TRUE(absl::IsPermissionDenied(broken.Client()->Serves(kKueueWorkload).status()));
}

TEST(HttpRequests, LogsAreAskedForAsTheirReaderWants) {
  Recorder server({"text"});
  const auto client = server.Client();
  LogOptions options;
  ASSERT_TRUE(client->ReadLogs({"n", "x"}, options).ok());
  options = {.container = "main", .follow = true, .previous = true, .tail_lines = 5};
  ASSERT_TRUE(client->ReadLogs({"", "x"}, options).ok());
  EXPECT_THAT(server.lines(),
              ElementsAre("GET /api/v1/namespaces/n/pods/x/log",
                          "GET /api/v1/namespaces/default/pods/x/log?container=main&follow=true&"
                          "previous=true&tailLines=5"));
}

// The limit of requests holds each for a little longer than ten minutes.
TEST(HttpRequests, ALogIsReadForTenMinutesAndOneThatIsFollowedForLonger) {
  Recorder server({"text"});
  HttpKubeClientOptions options = Quick();
  options.transport.timeout = absl::ZeroDuration();
  options.transport.take_token = [] { return absl::Minutes(10) + absl::Seconds(1); };
  const auto client = server.Client(options);
  const absl::Status read = client->ReadLogs({"n", "x"}, {}).status();
  EXPECT_TRUE(absl::IsResourceExhausted(read)) << read;
  LogOptions follow;
  follow.follow = true;
  const absl::Status followed = client->ReadLogs({"n", "x"}, follow).status();
  EXPECT_TRUE(absl::IsUnavailable(followed)) << followed;
  EXPECT_THAT(std::string(followed.message()), HasSubstr("no answer in time"));
}

TEST(HttpPath, EveryPartIsEncodedAndWhatIsEmptyIsLeftOut) {
  EXPECT_EQ(GroupPath(kPod), "/api/v1");
  EXPECT_EQ(GroupPath(kLease), "/apis/coordination.k8s.io/v1");
  EXPECT_EQ(CollectionPath(kPod, ""), "/api/v1/pods");
  EXPECT_EQ(CollectionPath(kPod, "a b"), "/api/v1/namespaces/a%20b/pods");
  EXPECT_EQ(CollectionPath(kNode, "n"), "/api/v1/nodes");
  EXPECT_EQ(ObjectPath(kNode, {"", "x/y"}), "/api/v1/nodes/x%2Fy");
  EXPECT_EQ(Query({}), "");
  EXPECT_EQ(Query({{"a", ""}, {"b", "1&2"}, {"c", ""}, {"d", "3"}}), "?b=1%262&d=3");
}

}  // namespace
}  // namespace starling::kube
