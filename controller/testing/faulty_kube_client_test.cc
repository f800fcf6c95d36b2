// SPDX-License-Identifier: Apache-2.0
#include "controller/testing/faulty_kube_client.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/clock/clock.h"
#include "controller/kube/embedded_kube_client.h"

namespace starling::kube {
namespace {

class FaultyKubeClientTest : public testing::Test {
 protected:
  FaultyKubeClientTest() : store_(*OpenEmbeddedKubeClient(clock_, {})), client_(*store_) {}

  absl::Status Create(const std::string& name) {
    return client_.Create(kConfigMap, {{"metadata", {{"name", name}}}}).status();
  }
  bool Stored(const std::string& name) { return store_->Get(kConfigMap, {"default", name}).ok(); }

  const clock::FakeClock clock_;
  const std::unique_ptr<KubeClient> store_;
  FaultyKubeClient client_;
};

TEST_F(FaultyKubeClientTest, WithoutAPlanNothingFails) {
  EXPECT_TRUE(Create("a").ok());
  EXPECT_TRUE(client_.Get(kConfigMap, {"default", "a"}).ok());
  EXPECT_EQ(client_.writes(), 1);
}

TEST_F(FaultyKubeClientTest, ARefusedWriteIsNotStored) {
  client_.FailWrite(2, Fault::kRefuse);

  EXPECT_TRUE(Create("a").ok());
  EXPECT_TRUE(absl::IsUnavailable(Create("b")));
  EXPECT_TRUE(Create("c").ok()) << "only the one";
  EXPECT_FALSE(Stored("b"));
}

TEST_F(FaultyKubeClientTest, AWriteOfUnknownResultIsStored) {
  client_.FailWrite(1, Fault::kUnknownResult);

  EXPECT_TRUE(absl::IsUnavailable(Create("a")));
  EXPECT_TRUE(Stored("a"));
}

TEST_F(FaultyKubeClientTest, AReadIsWhatTheReaderSaysOfIt) {
  ASSERT_TRUE(Create("a").ok());
  client_.AskBeforeReads([](const ResourceKind& kind) {
    return kind == kConfigMap ? absl::UnavailableError("busy") : absl::OkStatus();
  });
  EXPECT_TRUE(absl::IsUnavailable(client_.Get(kConfigMap, {"default", "a"}).status()));
  EXPECT_TRUE(absl::IsUnavailable(client_.List(kConfigMap, "", {}).status()));
  EXPECT_TRUE(client_.List(kPod, "", {}).ok());
  client_.Heal();
  EXPECT_TRUE(client_.Get(kConfigMap, {"default", "a"}).ok());
}

TEST_F(FaultyKubeClientTest, AfterACrashNothingWorksAnyMore) {
  client_.FailWrite(1, Fault::kCrashAfter);
  const auto watch = client_.Watch(kConfigMap, "", {});
  ASSERT_TRUE(watch.ok());

  EXPECT_TRUE(absl::IsCancelled(Create("a")));
  EXPECT_TRUE(client_.crashed());
  EXPECT_TRUE(Stored("a"));
  EXPECT_TRUE(absl::IsCancelled(client_.List(kConfigMap, "", {}).status()));
  EXPECT_TRUE(absl::IsCancelled((*watch)->Next(absl::ZeroDuration()).status()));
  EXPECT_TRUE(absl::IsCancelled(Create("b")));
  EXPECT_FALSE(Stored("b"));

  client_.Heal();
  EXPECT_TRUE(Create("b").ok());
}

TEST_F(FaultyKubeClientTest, ACrashBeforeAWriteStoresNothing) {
  client_.FailWrite(1, Fault::kCrashBefore);

  EXPECT_TRUE(absl::IsCancelled(Create("a")));
  EXPECT_FALSE(Stored("a"));
}

TEST_F(FaultyKubeClientTest, WritesCanBeChosenByKindAndVerb) {
  client_.FailWritesThat(
      [](const ResourceKind& kind, std::string_view verb) {
        return kind == kConfigMap && verb == "delete";
      },
      Fault::kConflict);

  EXPECT_TRUE(Create("a").ok());
  EXPECT_TRUE(absl::IsAborted(client_.Delete(kConfigMap, {"default", "a"}, {}).status()));
  EXPECT_TRUE(Stored("a"));
}

}  // namespace
}  // namespace starling::kube
