// SPDX-License-Identifier: Apache-2.0
#include "controller/resources/endpoints.h"

#include <nlohmann/json.hpp>

#include "controller/kube/message_json.h"
#include "gtest/gtest.h"
#include "kubernetes/objects.pb.h"

namespace starling::resources {
namespace {

const JobIdentity kJob = {"team", "digits", "0123456789abcdef"};

PodEndpoint At(const std::string& address, const std::string& pod = "digits-worker-0") {
  return {.pod = pod, .uid = pod + "-uid", .host = pod, .node = "a", .address = address};
}

TEST(Endpoints, AreHeldByFamilyAndByAHundredIndexes) {
  PodEndpoints endpoints;
  for (const std::int64_t index : {0, 99, 100, 250}) {
    AddEndpoint(kJob, index, At("10.0.0.1"), endpoints);
  }
  AddEndpoint(kJob, 99, At("fd00::1"), endpoints);
  std::map<std::string, std::size_t> counts;
  for (const auto& [name, held] : endpoints) counts[name] = held.size();
  EXPECT_EQ(
      counts,
      (std::map<std::string, std::size_t>{
          {"digits-ipv4-0", 2}, {"digits-ipv4-1", 1}, {"digits-ipv4-2", 1}, {"digits-ipv6-0", 1}}));
}

TEST(Endpoints, ASliceBelongsToTheServiceAndToNoControllerOfKubernetes) {
  const kubernetes::EndpointSlice slice = BuildSlice(kJob, "digits-ipv4-0", {At("10.0.0.1")});
  const Json json = kube::ToJson(slice);
  EXPECT_EQ(json["metadata"]["name"], "digits-ipv4-0");
  EXPECT_EQ(json["metadata"]["ownerReferences"][0]["uid"], kJob.uid);
  const Json& labels = json["metadata"]["labels"];
  EXPECT_EQ(labels["kubernetes.io/service-name"], "digits");
  EXPECT_EQ(labels["endpointslice.kubernetes.io/managed-by"], "controller.starling.dev");
  EXPECT_TRUE(labels.contains("service.kubernetes.io/headless"));
  EXPECT_EQ(labels["starling.dev/job"], "digits");
  EXPECT_EQ(json["addressType"], "IPv4");
  EXPECT_EQ(json["ports"],
            Json::array({{{"name", "metrics"}, {"port", 7073}, {"protocol", "TCP"}}}));
  const Json expected = {{"addresses", Json::array({"10.0.0.1"})},
                         {"conditions", {{"ready", true}}},
                         {"hostname", "digits-worker-0"},
                         {"nodeName", "a"},
                         {"targetRef",
                          {{"kind", "Pod"},
                           {"namespace", "team"},
                           {"name", "digits-worker-0"},
                           {"uid", "digits-worker-0-uid"}}}};
  EXPECT_EQ(json["endpoints"], Json::array({expected}));
  EXPECT_EQ(kube::ToJson(BuildSlice(kJob, "digits-ipv6-0", {At("fd00::1")}))["addressType"],
            "IPv6");
}

TEST(Endpoints, WhatIsNotKnownIsNotSaid) {
  PodEndpoint bare = At("10.0.0.1");
  bare.host = bare.node = "";
  const Json endpoint = kube::ToJson(BuildSlice(kJob, "digits-ipv4-0", {bare}))["endpoints"][0];
  EXPECT_FALSE(endpoint.contains("hostname"));
  EXPECT_FALSE(endpoint.contains("nodeName"));
}

TEST(Endpoints, AreReadAsTheyWereWritten) {
  const std::vector<PodEndpoint> endpoints = {At("10.0.0.1"), At("10.0.0.2", "digits-worker-1")};
  EXPECT_EQ(ReadSlice(BuildSlice(kJob, "digits-ipv4-0", endpoints)), endpoints);
  kubernetes::EndpointSlice odd;
  odd.add_endpoints();
  EXPECT_EQ(ReadSlice(odd), std::vector<PodEndpoint>{PodEndpoint{}});
}

TEST(Endpoints, APatchReplacesThoseOfThisSliceAlone) {
  const Json patch = SlicePatch("its-uid", "team", {At("10.0.0.2", "digits-worker-1")});
  EXPECT_EQ(patch["metadata"], Json({{"uid", "its-uid"}}));
  EXPECT_EQ(patch["endpoints"][0]["targetRef"]["namespace"], "team");
  EXPECT_EQ(ReadSlice(kube::FromJson<kubernetes::EndpointSlice>(patch)),
            std::vector<PodEndpoint>{At("10.0.0.2", "digits-worker-1")});
  EXPECT_EQ(patch.size(), 2U);
}

}  // namespace
}  // namespace starling::resources
