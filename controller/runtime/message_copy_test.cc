// SPDX-License-Identifier: Apache-2.0
// Copies of messages: what they keep, what of it is news, and that they follow the store as those
// of JSON do (cached_kube_client_test.cc).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/message_json.h"
#include "controller/kube/messages.h"
#include "controller/runtime/cached_kube_client.h"
#include "controller/runtime/trim.h"
#include "controller/testing/faulty_kube_client.h"

namespace starling::runtime {
namespace {

using kube::Json;
using kube::kConfigMap;

Json Config(const std::string& name) {
  return {{"metadata", {{"name", name}, {"labels", {{"starling.dev/job", "digits"}}}}},
          {"data", {{"key", "0"}}}};
}

std::string NewsOf(const Json& pod) { return NewsOfPod(*kube::FromJson(kube::kPod, pod)); }

TEST(NewsOfPod, IsWhatADecisionMayHangOn) {
  const Json bare = {{"status", {{"phase", "Pending"}}}};
  const auto with = [&](const char* path, const Json& value) {
    Json pod = bare;
    pod[nlohmann::json::json_pointer(path)] = value;
    return NewsOf(pod);
  };
  const auto condition = [](const char* type, const char* status) {
    return Json::array({{{"type", type}, {"status", status}, {"reason", "Because"}}});
  };
  const auto container = [](const Json& state) {
    return Json::array({{{"name", "trainer"}, {"state", state}}});
  };
  const std::pair<const char*, Json> none[] = {
      {"/spec/nodeName", "node1"},
      {"/status/startTime", "2026-11-21T10:00:00Z"},
      {"/status/conditions", condition("PodScheduled", "True")},
      {"/status/conditions", condition("Initialized", "True")},
      {"/status/conditions", condition("Initialized", "False")},
      {"/status/containerStatuses", container({{"waiting", {{"reason", "ContainerCreating"}}}})},
      {"/status/containerStatuses", container({{"running", Json::object()}})}};
  for (const auto& [path, value] : none) EXPECT_EQ(with(path, value), NewsOf(bare)) << value;
  const std::pair<const char*, Json> some[] = {
      {"/metadata/deletionTimestamp", "2026-11-21T10:00:00Z"},
      {"/status/phase", "Running"},
      {"/status/reason", "Evicted"},
      {"/status/podIP", "10.0.0.1"},
      {"/status/podIPs", Json::array({{{"ip", "fd00::1"}}})},
      {"/status/conditions", condition("Ready", "True")},
      {"/status/conditions", condition("PodScheduled", "False")},
      {"/status/conditions", condition("DisruptionTarget", "True")},
      {"/status/initContainerStatuses", container({{"waiting", {{"reason", "ErrImagePull"}}}})},
      {"/status/containerStatuses", container({{"terminated", {{"exitCode", 0}}}})}};
  for (const auto& [path, value] : some) EXPECT_NE(with(path, value), NewsOf(bare)) << value;
  const auto told = [](const char* type, const char* status, const char* message) {
    return Json::array({{{"type", type}, {"status", status}, {"message", message}}});
  };
  const auto news_of = [&](const char* type, const char* status, const char* message) {
    return with("/status/conditions", told(type, status, message));
  };
  EXPECT_EQ(news_of("Ready", "False", "a probe"), news_of("Ready", "False", "another probe"));
  EXPECT_NE(news_of("PodScheduled", "False", "no room"), news_of("PodScheduled", "False", "taint"));
  EXPECT_NE(news_of("DisruptionTarget", "True", "a"), news_of("DisruptionTarget", "True", "b"));
  const auto ended = [&](int code) {
    return with("/status/containerStatuses", container({{"terminated", {{"exitCode", code}}}}));
  };
  EXPECT_NE(ended(0), ended(1));
  EXPECT_NE(with("/metadata/deletionTimestamp", "2026-11-21T10:00:30Z"),
            with("/metadata/deletionTimestamp", "2026-11-21T10:00:01Z"));
}

TEST(KeepOurs, WhatOthersWriteOnAnObjectIsNotKept) {
  const auto of = [](const Json& metadata) {
    return kube::FromJson(kube::kPod, {{"metadata", metadata}, {"spec", {{"nodeName", "n"}}}});
  };
  const kube::MessagePtr kept =
      KeepOurs(of({{"name", "p"},
                   {"labels", {{"starling.dev/job", "j"}, {"app", "x"}}},
                   {"annotations", {{"starling.dev/round", "1"}, {"big", "xxxxxxxxxxxx"}}}}));
  EXPECT_EQ(kube::ToJson(*kept), (Json{{"metadata",
                                        {{"name", "p"},
                                         {"labels", {{"starling.dev/job", "j"}}},
                                         {"annotations", {{"starling.dev/round", "1"}}}}},
                                       {"spec", {{"nodeName", "n"}}}}));
  const kube::MessagePtr ours = of({{"labels", {{"starling.dev/job", "j"}}}});
  EXPECT_EQ(KeepOurs(ours), ours);
}

TEST(KeepOurs, LabelsOrAnnotationsAloneAreEnoughAndWhoeverSharesTheObjectKeepsIt) {
  for (const char* names : {"labels", "annotations"}) {
    const Json metadata = {{"name", "p"}, {names, {{"app", "x"}}}};
    const kube::MessagePtr shared = kube::FromJson(kube::kPod, {{"metadata", metadata}});
    EXPECT_EQ(kube::ToJson(*KeepOurs(shared)), (Json{{"metadata", {{"name", "p"}}}})) << names;
    EXPECT_EQ(kube::ToJson(*shared), (Json{{"metadata", metadata}})) << names;
  }
}

// The same copy, of messages.
class MessageCopyTest : public testing::Test {
 protected:
  MessageCopyTest() {
    cached_.Serve(kConfigMap, informer_);
    informer_.AddHandler([this](const auto& before, const auto& after) {
      told_.push_back(kube::NameOf(after ? *after : *before));
    });
  }

  absl::Status Poll() { return informer_.Poll(absl::ZeroDuration()); }
  static kubernetes::ConfigMap Made(const std::string& name) {
    return kube::FromJson<kubernetes::ConfigMap>(Config(name));
  }
  // What a reader of the copy sees; empty: nothing.
  std::string Value(const std::string& name) {
    const auto config = kube::Read<kubernetes::ConfigMap>(cached_, {"default", name});
    return config.ok() ? (*config)->data().at("key") : "";
  }
  static MessageInformerOptions Options() {
    MessageInformerOptions options;
    options.selection.labels = "starling.dev/job";
    options.page = 2;
    options.packed = true;
    options.trim = KeepOurs;
    options.index_label = "starling.dev/job";
    return options;
  }

  clock::FakeClock clock_;
  std::unique_ptr<kube::KubeClient> store_ = *kube::OpenEmbeddedKubeClient(clock_, {});
  kube::FaultyKubeClient faulty_{*store_};
  MessageInformer informer_{faulty_, kConfigMap, Options()};
  CachedKubeClient cached_{faulty_};
  std::vector<std::string> told_;
};

TEST_F(MessageCopyTest, TellsOfOthersChangesAndAnswersReads) {
  for (const char* name : {"a", "b", "c"})
    ASSERT_TRUE(store_->Create(kConfigMap, Config(name)).ok());
  ASSERT_TRUE(Poll().ok());
  EXPECT_EQ(informer_.ListByLabel("default", "digits").size(), 3U);
  EXPECT_EQ(Value("b"), "0");
  ASSERT_TRUE(Poll().ok());  // watches
  ASSERT_TRUE(store_->Patch(kConfigMap, {"default", "a"}, {{"data", {{"key", "1"}}}}).ok());
  ASSERT_TRUE(store_->Delete(kConfigMap, {"default", "b"}, {}).ok());
  ASSERT_TRUE(Poll().ok());
  EXPECT_EQ(Value("a"), "1");
  EXPECT_EQ(Value("b"), "");
  EXPECT_EQ(told_, (std::vector<std::string>{"a", "b", "c", "a", "b"}));
  const auto all =
      kube::ReadAll<kubernetes::ConfigMap>(cached_, "default", {"starling.dev/job=digits", ""});
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->size(), 2U);
}

TEST_F(MessageCopyTest, OwnWritesInEitherFormAreReadImmediately) {
  ASSERT_TRUE(Poll().ok());
  ASSERT_TRUE(cached_.CreateMessage(kConfigMap, Made("a")).ok());
  EXPECT_EQ(Value("a"), "0");
  ASSERT_TRUE(cached_.Patch(kConfigMap, {"default", "a"}, {{"data", {{"key", "2"}}}}).ok());
  EXPECT_EQ(Value("a"), "2");
  ASSERT_TRUE(cached_.CreateFromJson(kConfigMap, Config("b")).ok());
  EXPECT_EQ(Value("b"), "0");
}

TEST_F(MessageCopyTest, AfterAnUnknownResultTheServerIsAsked) {
  ASSERT_TRUE(Poll().ok());
  faulty_.FailWrite(1, kube::Fault::kUnknownResult);
  EXPECT_TRUE(absl::IsUnavailable(cached_.CreateMessage(kConfigMap, Made("a")).status()));
  EXPECT_EQ(informer_.Get({"default", "a"}), nullptr);
  EXPECT_EQ(Value("a"), "0");
  faulty_.FailWrite(1, kube::Fault::kUnknownResult);
  EXPECT_FALSE(cached_.CreateMessage(kConfigMap, Made("b")).ok());
  EXPECT_EQ(kube::ReadAll<kubernetes::ConfigMap>(cached_, "default", {})->size(), 2U);
}

TEST_F(MessageCopyTest, ListsAreReadFromTheCopyUnlessAPageIsAskedFor) {
  ASSERT_TRUE(Poll().ok());
  for (const char* name : {"a", "b"}) ASSERT_TRUE(store_->Create(kConfigMap, Config(name)).ok());
  EXPECT_TRUE(cached_.ListMessages(kConfigMap, "default", {})->items.empty()) << "it is late";
  kube::ListOptions page;
  page.limit = 1;
  EXPECT_EQ(cached_.ListMessages(kConfigMap, "default", page)->items.size(), 1U);
}

TEST_F(MessageCopyTest, ACopyOfOneFormAnswersReadsOfThatFormOnly) {
  ASSERT_TRUE(Poll().ok());
  ASSERT_TRUE(store_->Create(kConfigMap, Config("a")).ok());
  EXPECT_EQ(Value("a"), "") << "the copy is late";
  EXPECT_TRUE(cached_.Get(kConfigMap, {"default", "a"}).ok()) << "the API server is not";
}

}  // namespace
}  // namespace starling::runtime
