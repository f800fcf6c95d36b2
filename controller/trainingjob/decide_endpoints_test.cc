// SPDX-License-Identifier: Apache-2.0
// When and where the pods' names are published.
#include <string>
#include <vector>

#include "controller/testing/test_cases.h"
#include "controller/testing/test_cluster.h"
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {
namespace {

using resources::PodEndpoint;
using Hosts = std::vector<std::string>;

// What is written: "name uid: hosts", and "-name uid" for what is removed.
Hosts Told(const Decision& d) {
  Hosts told;
  for (const SliceChange& slice : d.slices) {
    if (slice.endpoints.empty()) {
      told.push_back("-" + slice.name + " " + slice.uid);
      continue;
    }
    std::string text = slice.name + " " + slice.uid + ":";
    for (const PodEndpoint& endpoint : slice.endpoints) text += " " + endpoint.host;
    told.push_back(text);
  }
  return told;
}

// All that is wanted now has been written.
void Publish(Scene& s) {
  for (const SliceChange& slice : s.Do().slices) {
    s.seen.slices.push_back({slice.name, "its-uid", true, slice.endpoints});
  }
  ASSERT_FALSE(s.seen.slices.empty());
}

PodEndpoint Endpoint() {
  return {"digits-worker-0", "another", "digits-worker-0", "a", "127.1.0.9"};
}

void Drop(Scene& s, std::string_view pod) {
  std::erase_if(s.seen.pods, [pod](const ObservedPod& seen) { return seen.name == pod; });
}

const std::string kAll = "digits-coordinator-0 digits-worker-0 digits-worker-1";

class DecideEndpoints : public testing::TestWithParam<Case> {};

TEST_P(DecideEndpoints, Holds) {
  Scene scene;
  InCluster(scene);
  GetParam().arrange(scene);
  GetParam().check(scene.Do());
}

const Case kEndpoints[] = {
    {"WhenAllPodsHaveAddressesTheirNamesAreToldImmediately", [](Scene&) {},
     [](const Decision& d) {
       EXPECT_EQ(Told(d), Hosts{"digits-ipv4-0 : " + kAll});
       const SliceChange& slice = d.slices.front();
       EXPECT_EQ(slice.endpoints[1], (PodEndpoint{.pod = "digits-worker-0",
                                                  .uid = "digits-worker-0-uid2",
                                                  .host = "digits-worker-0",
                                                  .node = "a",
                                                  .address = "127.1.0.2"}));
     }},
    {"OnOneMachineNothingIsTold", [](Scene& s) { s.options.endpoints = false; },
     [](const Decision& d) { EXPECT_EQ(Told(d), Hosts{}); }},
    {"WithoutAServiceNothingIsTold", [](Scene& s) { s.seen.has_service = false; },
     [](const Decision& d) { EXPECT_EQ(Told(d), Hosts{}); }},
    {"OfAServiceWithASelectorKubernetesTells", [](Scene& s) { s.seen.service_selects = true; },
     [](const Decision& d) { EXPECT_EQ(Told(d), Hosts{}); }},
    {"WhatIsToldIsNotToldAgain", [](Scene& s) { Publish(s); },
     [](const Decision& d) {
       EXPECT_EQ(Told(d), Hosts{});
       EXPECT_FALSE(d.endpoints_behind);
     }},
    {"TheOrderOfPodsIsNoChange",
     [](Scene& s) {
       Publish(s);
       std::ranges::reverse(s.seen.pods);
     },
     [](const Decision& d) {
       EXPECT_EQ(Told(d), Hosts{});
       EXPECT_FALSE(d.endpoints_behind);
     }},
    {"OneThatEndedBeforeItHadAnAddressIsNotWaitedFor",
     [](Scene& s) { s.End("digits-worker-1", 1).ips.clear(); },
     [](const Decision& d) {
       EXPECT_EQ(Told(d), Hosts{"digits-ipv4-0 : digits-coordinator-0 digits-worker-0"});
     }},
    {"PodsOfBothFamiliesAreInASliceOfEach",
     [](Scene& s) {
       for (ObservedPod& pod : s.seen.pods) pod.ips.push_back("fd00::" + pod.ip.substr(8));
     },
     [](const Decision& d) {
       EXPECT_EQ(Told(d), (Hosts{"digits-ipv4-0 : " + kAll, "digits-ipv6-0 : " + kAll}));
     }},
    {"WhileOneHasNoAddressTheOthersWaitASecond",
     [](Scene& s) { s.Pod("digits-worker-1").ips.clear(); },
     [](const Decision& d) {
       EXPECT_EQ(Told(d), Hosts{});
       EXPECT_TRUE(d.endpoints_behind);
       EXPECT_FALSE(d.delayed) << "what was refused of other things is not remembered for it";
       EXPECT_LE(d.requeue_after, absl::Seconds(1));
     }},
    {"WhileTheyWaitOnlyTheRestOfTheSecondIsLeft",
     [](Scene& s) {
       s.Pod("digits-worker-1").ips.clear();
       s.seen.endpoints_behind_since = s.now - absl::Milliseconds(900);
     },
     [](const Decision& d) {
       EXPECT_EQ(Told(d), Hosts{});
       EXPECT_EQ(d.requeue_after, absl::Milliseconds(100));
     }},
    {"AfterASecondTheyAreToldWithoutIt",
     [](Scene& s) {
       s.Pod("digits-worker-1").ips.clear();
       s.seen.endpoints_behind_since = s.now - absl::Seconds(1);
     },
     [](const Decision& d) {
       EXPECT_EQ(Told(d), Hosts{"digits-ipv4-0 : digits-coordinator-0 digits-worker-0"});
       EXPECT_FALSE(d.endpoints_behind) << "the next change waits by itself";
     }},
    {"OneThatComesIsAddedToWhatIsThere",
     [](Scene& s) {
       Publish(s);
       s.Add(Role::kWorker, 2).node = "a";
     },
     [](const Decision& d) {
       EXPECT_EQ(Told(d), Hosts{"digits-ipv4-0 its-uid: " + kAll + " digits-worker-2"});
     }},
    {"OneThatEndedIsTakenOutByAndBy",
     [](Scene& s) {
       Publish(s);
       s.End("digits-worker-1", 0);
     },
     [](const Decision& d) {
       EXPECT_EQ(Told(d), Hosts{});
       EXPECT_TRUE(d.endpoints_behind);
     }},
    {"OneThatEndedIsTakenOutAfterASecond",
     [](Scene& s) {
       Publish(s);
       s.End("digits-worker-1", 0);
       s.seen.endpoints_behind_since = s.now - absl::Seconds(2);
     },
     [](const Decision& d) {
       EXPECT_EQ(Told(d), Hosts{"digits-ipv4-0 its-uid: digits-coordinator-0 digits-worker-0"});
     }},
    {"OneThatIsGoneIsTakenOutImmediately",
     [](Scene& s) {
       Publish(s);
       Drop(s, "digits-worker-1");
     },
     [](const Decision& d) {
       EXPECT_EQ(Told(d), Hosts{"digits-ipv4-0 its-uid: digits-coordinator-0 digits-worker-0"});
     }},
    {"AnotherPodOfTheNameIsNotTakenForTheOneThatIsGone",
     [](Scene& s) {
       Publish(s);
       s.Pod("digits-worker-1").uid = "another";
       s.Pod("digits-worker-1").ips.clear();
     },
     [](const Decision& d) {
       EXPECT_EQ(Told(d), Hosts{"digits-ipv4-0 its-uid: digits-coordinator-0 digits-worker-0"});
     }},
    {"OneThatIsBeingEndedKeepsItsName",
     [](Scene& s) {
       Publish(s);
       s.Pod("digits-worker-1").terminating = true;
     },
     [](const Decision& d) { EXPECT_EQ(Told(d), Hosts{}); }},
    {"WithTheLastPodTheSliceGoesImmediately",
     [](Scene& s) {
       Publish(s);
       s.Finished(true);
       for (ObservedPod& pod : s.seen.pods) pod.phase = PodPhase::kSucceeded;
     },
     [](const Decision& d) { EXPECT_EQ(Told(d), Hosts{"-digits-ipv4-0 its-uid"}); }},
    {"ASliceThatNobodyIsInAnyMoreGoesWhileOthersStay",
     [](Scene& s) {
       s.Add(Role::kWorker, 100);
       Publish(s);
       Drop(s, "digits-worker-100");
     },
     [](const Decision& d) { EXPECT_EQ(Told(d), Hosts{"-digits-ipv4-1 its-uid"}); }},
    {"WhatIsRefusedIsTriedAgainWithPatience",
     [](Scene& s) {
       s.seen.slices_refused =
           Refusal{.reason = kNamesUnpublished, .message = "no", .at = s.now, .attempts = 3};
     },
     [](const Decision& d) {
       EXPECT_EQ(Told(d), Hosts{});
       EXPECT_TRUE(d.endpoints_behind);
       EXPECT_EQ(d.requeue_after, absl::Milliseconds(800));
       EXPECT_EQ(ReasonOf(d, "Degraded"), kNamesUnpublished);
     }},
    {"WhatIsRefusedOfPodsKeepsNoNameBack",
     [](Scene& s) {
       s.seen.refusal =
           Refusal{.reason = kQuotaExceeded, .message = "no", .at = s.now, .attempts = 9};
     },
     [](const Decision& d) { EXPECT_EQ(Told(d).size(), 1U); }},
    {"NamesThatAreRefusedKeepNoPodBack",
     [](Scene& s) {
       s.seen.slices_refused =
           Refusal{.reason = kNamesUnpublished, .message = "no", .at = s.now, .attempts = 9};
       s.worker().set_replicas(3);
     },
     [](const Decision& d) { EXPECT_NE(Creation(d, Role::kWorker, 2), nullptr); }},
    {"SlicesOfAnEarlierJobOfTheNameGoFirst",
     [](Scene& s) {
       s.seen.slices = {{"digits-ipv4-0", "former", false, {Endpoint()}},
                        {"digits-ipv4-7", "former too", false, {}}};
     },
     [](const Decision& d) {
       EXPECT_EQ(Told(d), (Hosts{"-digits-ipv4-0 former", "-digits-ipv4-7 former too",
                                 "digits-ipv4-0 : " + kAll}));
     }},
    {"SlicesOfAnEarlierJobDoNotWaitForPods",
     [](Scene& s) {
       for (ObservedPod& pod : s.seen.pods) pod.ips.clear();
       s.seen.slices = {{"digits-ipv4-0", "former", false, {Endpoint()}}};
     },
     [](const Decision& d) { EXPECT_EQ(Told(d), Hosts{"-digits-ipv4-0 former"}); }},
    {"AClockThatIsSetBackHoldsNothingUpForLonger",
     [](Scene& s) {
       s.Pod("digits-worker-1").ips.clear();
       s.seen.endpoints_behind_since = s.now + absl::Hours(1);
     },
     [](const Decision& d) { EXPECT_LE(d.requeue_after, absl::Seconds(1)); }},
};

INSTANTIATE_TEST_SUITE_P(Endpoints, DecideEndpoints, testing::ValuesIn(kEndpoints), NameOf);

}  // namespace
}  // namespace starling::trainingjob
