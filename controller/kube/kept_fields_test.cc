// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/kept_fields.h"

#include <nlohmann/json.hpp>
#include <string>

#include "gtest/gtest.h"

namespace starling::kube {
namespace {

using Json = nlohmann::json;

constexpr KeptField kLabels[] = {{"our.dev/*"}};
constexpr KeptField kMetadata[] = {{"name"}, {"labels", kLabels}, {"continue"}};
constexpr KeptField kItem[] = {{"name"}};
constexpr KeptField kSpec[] = {{"node"}, {"parts", kItem}};
constexpr KeptField kObject[] = {{"kind"}, {"metadata", kMetadata}, {"spec", kSpec}};

constexpr char kWhole[] = R"( {"kind" : "K", "metadata":{"name":"a\"}]","x":{"y":["}"]},
  "labels":{"our.dev/job":"j","other":"o"},"managedFields":[{"f:x":{}}]},"big":[1,{"a":[]}],
  "spec":{"node":"n","parts":[{"name":"p","env":[{}]},{"env":1},7,[[{"z":1}]]],"z":null},"n":-1.5e3})";
constexpr char kKept[] = R"({"kind":"K","metadata":{"name":"a\"}]","labels":{"our.dev/job":"j"}},
  "spec":{"node":"n","parts":[{"name":"p"},{},7,[[{"z":1}]]]}})";

TEST(KeptFields, TextAndObjectKeepTheSame) {
  const Json kept = Json::parse(kKept);
  EXPECT_EQ(Json::parse(KeepFieldsOfAnswer(kWhole, kObject)), kept);
  EXPECT_EQ(KeepFields(Json::parse(kWhole), kObject), kept);
}

TEST(KeptFields, OfAListAndAnEventTheirObjectsAreTaken) {
  const Json kept = Json::parse(kKept);
  const std::string list =
      std::string(R"({"kind":"L","metadata":{"continue":"c","x":1},"items":[)") + kWhole + "," +
      kWhole + "]}";
  EXPECT_EQ(
      Json::parse(KeepFieldsOfAnswer(list, kObject)),
      (Json{
          {"kind", "L"}, {"metadata", {{"continue", "c"}}}, {"items", Json::array({kept, kept})}}));
  EXPECT_EQ(Json::parse(KeepFieldsOfAnswer(
                std::string(R"({"type":"ADDED","object":)") + kWhole + "}", kObject)),
            (Json{{"type", "ADDED"}, {"object", kept}}));
}

TEST(KeptFields, WhatAStatusSaysIsKept) {
  const Json status = {{"kind", "Status"},
                       {"code", 410},
                       {"reason", "Gone"},
                       {"message", "too old"},
                       {"details", {{"uid", "u"}}}};
  EXPECT_EQ(Json::parse(KeepFieldsOfAnswer(status.dump(), kObject)), status);
  const Json event = {{"type", "ERROR"}, {"object", status}};
  EXPECT_EQ(Json::parse(KeepFieldsOfAnswer(event.dump(), kObject)), event);
}

TEST(KeptFields, TextThatWasCutAnywhereStaysNoJson) {
  const std::string text = kWhole;
  for (std::size_t size = 1; size < text.size(); ++size) {
    EXPECT_FALSE(Json::accept(KeepFieldsOfAnswer(text.substr(0, size), kObject))) << size;
  }
  for (const char* wrong : {"", "{", "[", "{\"kind\":}", "{\"kind\" 1}", "{} x",
                            "{\"metadata\":{]}", "{\"a\":1,}x", "\"", "{\"kind\":\"\\"}) {
    EXPECT_FALSE(Json::accept(KeepFieldsOfAnswer(wrong, kObject))) << wrong;
  }
  const std::string deep(1000000, '[');
  EXPECT_EQ(KeepFieldsOfAnswer(deep, kObject), deep) << "and costs no stack";
}

}  // namespace
}  // namespace starling::kube
