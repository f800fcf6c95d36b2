// SPDX-License-Identifier: Apache-2.0
// Which pods go and come when their number changes, what the rest of a job gets with them, and at
// which bounds each of it begins.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "controller/testing/test_scene.h"
#include "controller/trainingjob/policies.h"
#include "controller/trainingjob/quantity.h"
#include "gtest/gtest.h"

namespace starling::trainingjob {
namespace {

void Remove(Scene& scene, Role role) {
  std::erase_if(scene.seen.pods, [role](const ObservedPod& pod) { return pod.role == role; });
}

int DeletionsOf(const Decision& decision, std::string_view name) {
  return static_cast<int>(
      std::count_if(decision.actions.begin(), decision.actions.end(), [&](const Action& action) {
        const auto* remove = std::get_if<DeletePod>(&action);
        return remove != nullptr && remove->name == name;
      }));
}

// What it holds may be nowhere else.
TEST(Scaling, WhoIsMoreThanWantedStaysWhileNobodySaysThatItIsDrained) {
  Scene scene;
  scene.servers(2);
  scene.Training(2);
  scene.servers(1);
  scene.worker().set_replicas(1);
  scene.seen.link->heard = false;
  const Decision decision = scene.Do();
  EXPECT_EQ(decision.surplus.size(), 2U);
  EXPECT_EQ(Count<DeletePod>(decision), 0);
}

TEST(Scaling, ACoordinatorIsMadeAnewOnlyWhenItsDelayIsOver) {
  Scene scene;
  scene.Training();
  Remove(scene, Role::kCoordinator);
  scene.seen.link.reset();
  scene.seen.refusal = Refusal{kQuotaExceeded, "no more pods", scene.now, 1};
  EXPECT_FALSE(Creates(scene.Do(), Role::kCoordinator, 0));
  EXPECT_TRUE(scene.Do().delayed);
  scene.now += absl::Milliseconds(200);
  EXPECT_TRUE(Creates(scene.Do(), Role::kCoordinator, 0));
  EXPECT_FALSE(scene.Do().delayed);
}

TEST(Scaling, NothingIsDelayedWhereAllPodsAreThere) {
  Scene scene;
  scene.servers(2);
  scene.Training(2);
  scene.seen.refusal = Refusal{kQuotaExceeded, "no more pods", scene.now, 1};
  EXPECT_FALSE(scene.Do().delayed);
  scene.worker().set_replicas(3);
  EXPECT_TRUE(scene.Do().delayed);
}

TEST(Scaling, APodIsDeletedOnceThoughTwoReasonsAskForIt) {
  Scene scene;
  scene.Training();
  scene.policy().set_suspend(true);
  Remove(scene, Role::kWorker);
  scene.seen.link->silent = absl::Minutes(1);
  EXPECT_EQ(DeletionsOf(scene.Do(), "digits-coordinator-0"), 1);
}

TEST(Budgets, AreForClustersWhateverRolesThereAre) {
  Scene scene;
  scene.servers(2);
  scene.Training(2);
  EXPECT_EQ(Count<CreateBudget>(scene.Do()), 0);
  scene.options.budgets = true;
  EXPECT_EQ(Count<CreateBudget>(scene.Do()), 2);
}

TEST(NewestView, OfAJobThatHasHadNoneIsNotTold) {
  Scene scene;
  scene.Prepared().Add(Role::kCoordinator, 0);
  scene.Granted();
  scene.report().clear_newest_view();
  EXPECT_FALSE(scene.Do().status.has_newest_view());
}

// A job that is asked for a timeline, and whose coordinator has recorded one.
class Timeline : public testing::Test {
 protected:
  Timeline() {
    scene_.Training();
    scene_.seen.trace_request = "now";
    scene_.report().set_trace_request("now");
    scene_.report().set_trace("bytes");
  }
  int Stored() const { return Count<StoreTrace>(scene_.Do()); }

  Scene scene_;
};

TEST_F(Timeline, ThatNobodyAsksForIsNotStored) {
  ASSERT_EQ(Stored(), 1);
  scene_.seen.trace_request.clear();
  scene_.report().clear_trace_request();
  EXPECT_EQ(Stored(), 0);
}

TEST_F(Timeline, WaitsForACoordinatorToBeThere) {
  scene_.seen.link.reset();
  EXPECT_EQ(Stored(), 0);
}

TEST_F(Timeline, IsNotStoredBeforeItIsRecorded) {
  scene_.report().clear_trace();
  EXPECT_EQ(Stored(), 0);
}

// What is done about a worker that was killed with so much memory.
std::optional<std::string> Raised(std::int64_t had) {
  Scene scene;
  auto& remedy = *scene.worker().mutable_on_out_of_memory();
  remedy.set_factor(2);
  remedy.set_maximum("1Gi");
  ObservedPod pod;
  pod.memory = had;
  Pass pass(scene.seen, scene.options, scene.now);
  return RaiseMemory(pass, pod);
}

TEST(RaiseMemory, PromisesNothingToAPodThatHadNoLimit) {
  EXPECT_EQ(Raised(0), std::nullopt);
  EXPECT_EQ(Raised(1), "it comes back with 1Mi of memory");
}

TEST(ParseBytes, ASingleByteCounts) { EXPECT_EQ(ParseBytes("1"), 1); }

}  // namespace
}  // namespace starling::trainingjob
