// SPDX-License-Identifier: Apache-2.0
// What a client whose objects are JSON does about messages unless it says otherwise.
#include "controller/kube/kube_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "common/clock/clock.h"
#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/messages.h"

namespace starling::kube {
namespace {

using testing::HasSubstr;

class KubeClientTest : public testing::Test {
 protected:
  clock::FakeClock clock_;
  std::unique_ptr<KubeClient> client_ = *OpenEmbeddedKubeClient(clock_, {});
};

TEST_F(KubeClientTest, AStreamOfMessagesEndsWhenItIsStopped) {
  const auto stream = client_->WatchMessages(kConfigMap, "", {});
  ASSERT_TRUE(stream.ok()) << stream.status();
  (*stream)->Stop();

  EXPECT_TRUE(absl::IsCancelled((*stream)->Next(absl::ZeroDuration()).status()));
}

struct Call {
  std::string name;
  std::function<absl::Status(KubeClient&)> call;
};

// Of templates there are no messages.
class WithoutMessagesTest : public KubeClientTest, public testing::WithParamInterface<Call> {};

TEST_P(WithoutMessagesTest, IsRefusedAndDoesNothing) {
  const Json object = {{"metadata", {{"name", "kept"}}}};
  ASSERT_TRUE(client_->Create(kTrainingTemplate, object).ok());

  const absl::Status refused = GetParam().call(*client_);
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("trainingtemplates have no message"));
  const auto list = client_->List(kTrainingTemplate, "", {});
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->items.size(), 1U);
}

const ObjectKey kKept{"default", "kept"};
kubernetes::ConfigMap Named(const std::string& name) {
  kubernetes::ConfigMap config;
  config.mutable_metadata()->set_name(name);
  return config;
}

INSTANTIATE_TEST_SUITE_P(
    Calls, WithoutMessagesTest,
    testing::Values(
        Call{"Get",
             [](auto& client) { return client.GetMessage(kTrainingTemplate, kKept).status(); }},
        Call{"List",
             [](auto& client) {
               return client.ListMessages(kTrainingTemplate, "other", {}).status();
             }},
        Call{"Watch",
             [](auto& client) { return client.WatchMessages(kTrainingTemplate, "", {}).status(); }},
        Call{"Create",
             [](auto& client) {
               return client.CreateMessage(kTrainingTemplate, Named("new")).status();
             }},
        Call{"CreateFromJson",
             [](auto& client) {
               const Json object = {{"metadata", {{"name", "new"}}}};
               return client.CreateFromJson(kTrainingTemplate, object).status();
             }},
        Call{"Delete",
             [](auto& client) {
               return client.DeleteMessage(kTrainingTemplate, kKept, {}).status();
             }}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace starling::kube
