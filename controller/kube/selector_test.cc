// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/selector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "controller/kube/messages.h"

namespace starling::kube {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;

struct Case {
  const char* selector;
  Json matching;  // labels
  Json others;
};

TEST(LabelSelector, ChoosesAsKubectlDoes) {
  const Json none = Json::object();
  const Json a = {{"app", "a"}};
  const Json b = {{"app", "b"}};
  const Json ax = {{"app", "a"}, {"tier", "x"}};
  const Case cases[] = {
      {"", Json::array({none, a, ax}), Json::array()},
      {" ", Json::array({none, a}), Json::array()},
      {"app=a", Json::array({a, ax}), Json::array({none, b})},
      {"app==a", Json::array({a, ax}), Json::array({none, b})},
      {" app = a , tier = x ", Json::array({ax}), Json::array({none, a, b})},
      {"app!=a", Json::array({none, b}), Json::array({a, ax})},
      {"app", Json::array({a, b, ax}), Json::array({none})},
      {"!app", Json::array({none}), Json::array({a, b})},
      {"! app", Json::array({none}), Json::array({a, b})},
      {"app in (a, c)", Json::array({a, ax}), Json::array({none, b})},
      {"app\tin (b,a),tier", Json::array({ax}), Json::array({a, b})},
      {"app notin (a,c)", Json::array({none, b}), Json::array({a, ax})},
      {"tier!=x,app in (a,b)", Json::array({a, b}), Json::array({none, ax})},
      {"app=", Json::array({{{"app", ""}}}), Json::array({none, a})},
      {"example.dev/a_b-c=1", Json::array({{{"example.dev/a_b-c", "1"}}}), Json::array({none})}};
  for (const Case& one : cases) {
    const auto selector = LabelSelector::Parse(one.selector);
    ASSERT_TRUE(selector.ok()) << one.selector << ": " << selector.status();
    for (const Json& labels : one.matching) {
      EXPECT_TRUE(selector->Matches(labels)) << one.selector << " of " << labels;
    }
    for (const Json& labels : one.others) {
      EXPECT_FALSE(selector->Matches(labels)) << one.selector << " of " << labels;
    }
  }
  EXPECT_TRUE(LabelSelector::Parse("!app")->Matches(Json())) << "an object without labels";
  EXPECT_FALSE(LabelSelector::Parse("app=7")->Matches(Json{{"app", 7}})) << "labels are text";
}

TEST(LabelSelector, WhatMeansNothingIsRefusedWithARemedy) {
  for (const char* text : {"=a", "!=a", "app=a=b", "app===a", "app!==a", "app in a)",
                           "app among (a)", "app in now (a)", "(a)", "in (a)", "app,", ",app",
                           "-app", "a b", "!", "app in (a", "\xc3\xa4=1"}) {
    const auto selector = LabelSelector::Parse(text);
    EXPECT_TRUE(absl::IsInvalidArgument(selector.status())) << text;
    EXPECT_THAT(std::string(selector.status().message()), HasSubstr("key notin (a,b)")) << text;
  }
  EXPECT_TRUE(LabelSelector::Parse(std::string(317, 'a')).ok());
  EXPECT_FALSE(LabelSelector::Parse(std::string(318, 'a')).ok());
}

TEST(LabelSelector, SaysWhichValueALabelMustHave) {
  const auto required = [](const char* text) { return LabelSelector::Parse(text)->Required(); };
  EXPECT_THAT(required("app=a"), Pair("app", "a"));
  EXPECT_THAT(required("tier!=x,!job,zone,app in (a)"), Pair("app", "a"));
  EXPECT_THAT(required("app in (a,b),tier notin (x),zone"), Pair("", ""));
}

TEST(Selector, FieldsAreThoseOfTheirKind) {
  const Json pod = {{"metadata", {{"name", "w"}, {"namespace", "team"}, {"labels", {{"a", "1"}}}}},
                    {"spec", {{"nodeName", "n"}}},
                    {"status", {{"phase", "Running"}}}};
  const auto matches = [&](const char* fields, const char* labels) {
    const auto selector = Selector::Parse(kPod, {labels, fields});
    EXPECT_TRUE(selector.ok()) << fields << ": " << selector.status();
    kubernetes::Pod message;
    message.mutable_metadata()->set_name("w");
    message.mutable_metadata()->set_ns("team");
    (*message.mutable_metadata()->mutable_labels())["a"] = "1";
    message.mutable_spec()->set_node_name("n");
    message.mutable_status()->set_phase("Running");
    EXPECT_EQ(selector->Matches(message), selector->Matches(pod)) << fields << labels;
    return selector->Matches(pod);
  };
  EXPECT_TRUE(matches("", ""));
  EXPECT_TRUE(matches("metadata.name=w", ""));
  EXPECT_TRUE(matches("metadata.name==w, spec.nodeName!=other", "a=1"));
  EXPECT_TRUE(matches("status.phase = Running", ""));
  EXPECT_FALSE(matches("metadata.name!=w", ""));
  EXPECT_FALSE(matches("metadata.name=w,metadata.namespace=other", ""));
  EXPECT_FALSE(matches("metadata.name=w", "a=2"));
  EXPECT_FALSE(matches("", "b"));
  for (const char* fields : {"metadata.name", "=w", "spec.hostname=x", "reason=x"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Selector::Parse(kPod, {"", fields}).status())) << fields;
  }
  EXPECT_TRUE(Selector::Parse(kEvent, {"", "reason=x,regarding.uid=u"}).ok());
  EXPECT_FALSE(Selector::Parse(kEvent, {"", "spec.nodeName=n"}).ok());
}

TEST(Selector, WhatCanBeSelectedIsKeptOfAnObjectThatChanged) {
  const Json pod = {{"metadata", {{"name", "w"}, {"labels", {{"a", "1"}}}, {"uid", "u"}}},
                    {"spec", {{"nodeName", "n"}, {"hostname", "h"}}},
                    {"status", {{"phase", "Running"}}}};
  const Json parts = {{"metadata", {{"name", "w"}, {"labels", {{"a", "1"}}}}},
                      {"spec", {{"nodeName", "n"}}},
                      {"status", {{"phase", "Running"}}}};
  EXPECT_EQ(Selector::SelectableParts(pod), parts);
}

}  // namespace
}  // namespace starling::kube
