// SPDX-License-Identifier: Apache-2.0
// Where new pods may not go: nodes that are silent, or on which pods fail.
#include <algorithm>
#include <string>
#include <vector>

#include "controller/testing/test_cases.h"
#include "controller/testing/test_cluster.h"
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {
namespace {

void AvoidForSilence(Scene& s, const char* name) {
  v1alpha1::AvoidedNode& node = *s.seen.status.add_avoided_nodes();
  node.set_name(name);
  SetTime(node.mutable_last_failure_time(), s.now);
  SetTime(node.mutable_until(), s.now + s.options.silent_node_avoidance);
}

class DecidePlaces : public testing::TestWithParam<Case> {};

TEST_P(DecidePlaces, Holds) {
  Scene scene;
  GetParam().arrange(scene);
  GetParam().check(scene.Do());
}

const Case kPlaces[] = {
    {"ReplacementOfASilentCoordinatorGoesToAnotherNode",
     [](Scene& s) { InCluster(s).seen.link->silent = absl::Seconds(2); },
     [](const Decision& d) {
       ASSERT_NE(Creation(d, Role::kCoordinator, 1), nullptr);
       EXPECT_EQ(Creation(d, Role::kCoordinator, 1)->avoid, std::vector<std::string>{"a"});
     }},
    {"SilentNodeIsForgottenSoon",
     [](Scene& s) {
       InCluster(s).seen.link->silent = absl::Seconds(2);
       s.Settle();
       s.now += s.options.silent_node_avoidance + absl::Seconds(1);
       s.seen.link.reset();
       s.seen.pods.clear();
     },
     [](const Decision& d) { EXPECT_TRUE(Creation(d, Role::kCoordinator, 0)->avoid.empty()); }},
    {"WhenPodsFallSilentOnAllNodesTheLastIsNotAvoided",
     [](Scene& s) {
       InCluster(s).seen.link->silent = absl::Seconds(2);
       AvoidForSilence(s, "b");
     },
     [](const Decision& d) {
       EXPECT_EQ(Creation(d, Role::kCoordinator, 1)->avoid, std::vector<std::string>{"b"});
     }},
    {"SilentNodeIsAvoidedBesideAnotherWhileTheJobLivesOnAThird",
     [](Scene& s) {
       InCluster(s).seen.link->silent = absl::Seconds(2);
       AvoidForSilence(s, "c");
     },
     [](const Decision& d) {
       EXPECT_EQ(Creation(d, Role::kCoordinator, 1)->avoid, (std::vector<std::string>{"a", "c"}));
     }},
    {"NodeWhereSeveralPodsFailedIsAvoided",
     [](Scene& s) {
       InCluster(s).policy().set_backoff_limit(100);
       for (int i = 0; i < 3; ++i) {
         s.End("digits-worker-1", 1);
         s.Settle();
         s.now += absl::Seconds(20);
         std::erase_if(s.seen.pods, [](const ObservedPod& pod) { return pod.Terminated(); });
         s.Add(Role::kWorker, 1).node = "b";
       }
       s.seen.pods.pop_back();
     },
     [](const Decision& d) {
       ASSERT_NE(Creation(d, Role::kWorker, 1), nullptr);
       EXPECT_EQ(Creation(d, Role::kWorker, 1)->avoid, std::vector<std::string>{"b"});
     }},
    {"ProgramThatFailsEverywhereMakesNoNodeAvoided",
     [](Scene& s) {
       InCluster(s, 1).policy().set_backoff_limit(100);
       for (int i = 0; i < 4; ++i) {
         s.End("digits-worker-0", 1);
         s.Settle();
         s.now += absl::Seconds(20);
         std::erase_if(s.seen.pods, [](const ObservedPod& pod) { return pod.Terminated(); });
         s.Add(Role::kWorker, 0).node = "a";
       }
       s.seen.pods.pop_back();
     },
     [](const Decision& d) { EXPECT_TRUE(Creation(d, Role::kWorker, 0)->avoid.empty()); }},
    {"PodThatFindsNoPlaceBecauseItAvoidsOneForLongIsMadeAnew",
     [](Scene& s) {
       InCluster(s);
       s.seen.pods.pop_back();
       Pending(s, 1, kUnschedulable).avoids = {"b"};
     },
     [](const Decision& d) { EXPECT_NE(Deletes(d, "digits-worker-1"), nullptr); }},
    {"PartitionedCoordinatorIsGivenUpBeforeItsWorkers",
     [](Scene& s) {
       InCluster(s);
       for (ObservedPod& pod : s.seen.pods) {
         if (pod.role == Role::kWorker) pod.node = "b";
       }
       for (auto& member : *s.report().mutable_members()) {
         member.set_connected(false);
         member.set_silent_seconds(3);
       }
     },
     [](const Decision& d) {
       EXPECT_NE(Deletes(d, "digits-coordinator-0"), nullptr);
       EXPECT_EQ(Deletes(d, "digits-worker-0"), nullptr);
       EXPECT_EQ(Deletes(d, "digits-worker-1"), nullptr);
     }},
    {"WorkerThatANewCoordinatorNeverHeardOfIsGivenUpSoonIfItIsOld",
     [](Scene& s) {
       InCluster(s).report().mutable_members()->RemoveLast();
       s.now += absl::Minutes(5);
       s.Pod("digits-worker-1").unheard_since = s.now - absl::Seconds(5);
     },
     [](const Decision& d) {
       EXPECT_NE(Deletes(d, "digits-worker-1"), nullptr);
       EXPECT_EQ(Deletes(d, "digits-worker-0"), nullptr);
     }},
    {"WorkerThatIsYoungAndUnheardOfIsGivenItsTime",
     [](Scene& s) {
       InCluster(s).report().mutable_members()->RemoveLast();
       s.Pod("digits-worker-1").unheard_since = s.now - absl::Seconds(5);
     },
     [](const Decision& d) {
       EXPECT_EQ(Count<DeletePod>(d), 0);
       EXPECT_EQ(d.unheard.size(), 1U);
     }},
};

INSTANTIATE_TEST_SUITE_P(Nodes, DecidePlaces, testing::ValuesIn(kPlaces), NameOf);

}  // namespace
}  // namespace starling::trainingjob
