// SPDX-License-Identifier: Apache-2.0
// How the names of pods come into the store, and leave it.
#include <string>
#include <vector>

#include "controller/testing/reconciling.h"

namespace starling::trainingjob {
namespace {

constexpr char kSlice[] = "digits-ipv4-0";

class Publishing : public Reconciling {
 protected:
  Publishing() { StartPublishing(); }
  void StartPublishing() {
    Options options;
    options.endpoints = true;
    Start(options);
  }
  Json Slice() { return Get(kube::kEndpointSlice, kSlice); }
  std::vector<std::string> Hosts() {
    std::vector<std::string> hosts;
    for (const Json& endpoint : Slice().value("endpoints", Json::array())) {
      hosts.push_back(endpoint.value("hostname", ""));
    }
    return hosts;
  }
  // A job of which `workers` run.
  void RunJob(std::int64_t workers) {
    CreateContainerJob(workers);
    MustReconcile();
    for (std::int64_t i = 0; i < workers; ++i) Run("digits-worker-" + std::to_string(i));
    MustReconcile();
  }
  static Json ForeignSlice() {
    Json slice = Foreign(kube::kEndpointSlice, kSlice);
    slice["addressType"] = "IPv4";
    slice["endpoints"] = Json::array();
    return slice;
  }
};

TEST_F(Publishing, PodsHaveNamesWhenAllHaveAddresses) {
  RunJob(2);
  EXPECT_EQ(Hosts(), (std::vector<std::string>{"digits-worker-0", "digits-worker-1"}));
  EXPECT_EQ(kube::ControllerUidOf(Slice()), kube::UidOf(Job()));
}

TEST_F(Publishing, OneOfTwoHasItsNameAfterASecond) {
  CreateContainerJob(2);
  MustReconcile();
  Run("digits-worker-0");
  MustReconcile();
  EXPECT_TRUE(Slice().is_null());
  clock_.Advance(absl::Milliseconds(999));
  MustReconcile();
  EXPECT_TRUE(Slice().is_null());
  clock_.Advance(absl::Milliseconds(1));
  MustReconcile();
  EXPECT_EQ(Hosts(), std::vector<std::string>{"digits-worker-0"});

  const std::string uid = kube::UidOf(Slice());
  Run("digits-worker-1");
  MustReconcile();
  EXPECT_EQ(Hosts(), (std::vector<std::string>{"digits-worker-0", "digits-worker-1"}));
  EXPECT_EQ(kube::UidOf(Slice()), uid);
}

// Each change waits its own second.
TEST_F(Publishing, TheNextThatComesLateWaitsAnew) {
  CreateContainerJob(3);
  MustReconcile();
  Run("digits-worker-0");
  MustReconcile();
  clock_.Advance(absl::Seconds(1));
  MustReconcile();
  Run("digits-worker-1");
  clock_.Advance(absl::Seconds(5));
  MustReconcile();
  EXPECT_EQ(Hosts().size(), 1U);
  clock_.Advance(absl::Seconds(1));
  MustReconcile();
  EXPECT_EQ(Hosts().size(), 2U);
}

TEST_F(Publishing, AnotherControllerFindsNothingToDo) {
  RunJob(2);
  const std::string version = kube::StringAt(Slice(), "/metadata/resourceVersion");
  StartPublishing();
  MustReconcile();
  EXPECT_EQ(kube::StringAt(Slice(), "/metadata/resourceVersion"), version);
}

TEST_F(Publishing, NamesGoWithTheLastPod) {
  RunJob(1);
  End("digits-worker-0", 0);
  MustReconcile();
  EXPECT_TRUE(Slice().is_null());
  EXPECT_FALSE(Get(kube::kService, resources::ServiceName("digits")).is_null());
}

TEST_F(Publishing, ASliceThatCameIntoThePlaceOfOursStays) {
  RunJob(1);
  End("digits-worker-0", 0);
  ReplaceBeforeDelete(kube::kEndpointSlice, kSlice, ForeignSlice());
  MustReconcile();
  EXPECT_EQ(kube::ControllerUidOf(Slice()), "");
  EXPECT_FALSE(Slice().is_null());
}

TEST_F(Publishing, ASliceThatSomebodyDeletedIsMadeAgain) {
  RunJob(1);
  ASSERT_TRUE(store_->Delete(kube::kEndpointSlice, Of(kSlice), {}).ok());
  MustReconcile();
  EXPECT_EQ(Hosts(), std::vector<std::string>{"digits-worker-0"});
}

TEST_F(Publishing, ANameThatIsTakenIsToldAndKeepsNobodyFromTraining) {
  ASSERT_TRUE(store_->Create(kube::kEndpointSlice, ForeignSlice()).ok());
  RunJob(1);
  for (int i = 0; i < 9; ++i) {  // it might be one of ours that is just being deleted
    clock_.Advance(absl::Seconds(5));
    MustReconcile();
  }
  EXPECT_EQ(ReasonOf("Degraded"), "NameTaken");
  End("digits-worker-0", 0);
  MustReconcile();
  EXPECT_EQ(State(), "Succeeded");
  EXPECT_EQ(kube::ControllerUidOf(Slice()), "");
}

// A loopback's address, for instance: the pods are as they should be, and so is the spec.
TEST_F(Publishing, AnAddressThatTheServerDoesNotTakeFailsNoJob) {
  server_.Refuse("create EndpointSlice", absl::InvalidArgumentError("must not be in the loopback"));
  RunJob(1);
  MustReconcile();
  EXPECT_EQ(State(), "Running");
  EXPECT_EQ(ReasonOf("Degraded"), "NamesUnpublished");
  server_.Refuse("create EndpointSlice", absl::OkStatus());
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Reconcile()->requeue_after, absl::Milliseconds(1)) << "nobody else would wake the job";
  EXPECT_EQ(Hosts(), std::vector<std::string>{"digits-worker-0"});
  MustReconcile();
  EXPECT_EQ(ReasonOf("Degraded"), "");
}

TEST_F(Publishing, AMissingRightIsToldAndAskedForWithPatience) {
  server_.Refuse("create EndpointSlice",
                 absl::PermissionDeniedError("endpointslices is forbidden"));
  RunJob(1);
  for (int i = 0; i < 20; ++i) MustReconcile();
  EXPECT_EQ(ReasonOf("Degraded"), "NamesUnpublished");
  EXPECT_LE(server_.writes().at("create EndpointSlice"), 2);
  EXPECT_EQ(State(), "Running");
}

TEST_F(Publishing, NamesThatAreRefusedKeepNoPodFromBeingReplaced) {
  for (const auto& why : {absl::PermissionDeniedError("endpointslices is forbidden"),
                          absl::ResourceExhaustedError("exceeded quota: objects"),
                          absl::UnavailableError("etcd has no leader")}) {
    CreateJob(1);
    MustReconcile();
    server_.Refuse("create EndpointSlice", why);
    for (const char* pod : {"digits-coordinator-0", "digits-worker-0"}) Run(pod);
    Reconcile().IgnoreError();
    const std::string first = UidOf("digits-worker-0");
    End("digits-worker-0", 1);
    for (int i = 0; i < 3; ++i) {
      Reconcile().IgnoreError();
      clock_.Advance(absl::Seconds(40));
    }
    EXPECT_NE(UidOf("digits-worker-0"), "") << why;
    EXPECT_NE(UidOf("digits-worker-0"), first) << why;
    server_.Refuse("create EndpointSlice", absl::OkStatus());
    DeleteJob();
    MustReconcile();
  }
}

TEST_F(Publishing, ARefusalIsToldInThePassThatFollowsAtOnce) {
  server_.Refuse("create EndpointSlice",
                 absl::PermissionDeniedError("endpointslices is forbidden"));
  CreateContainerJob(1);
  MustReconcile();
  Run("digits-worker-0");
  EXPECT_EQ(Reconcile()->requeue_after, absl::Milliseconds(1));
}

TEST_F(Publishing, AnErrorThatSaysNothingOfTheJobIsTheControllersToRepeat) {
  server_.Refuse("create EndpointSlice", absl::UnavailableError("etcd has no leader"));
  CreateContainerJob(1);
  MustReconcile();
  Run("digits-worker-0");
  EXPECT_TRUE(absl::IsUnavailable(Reconcile().status()));
  EXPECT_EQ(ReasonOf("Degraded"), "");
}

TEST_F(Publishing, NamesDoNotWaitForPodsThatCannotBeMadeNow) {
  CreateContainerJob(2);
  MustReconcile();
  for (const char* pod : {"digits-worker-0", "digits-worker-1"}) Run(pod);
  server_.Refuse("create ConfigMap", absl::UnavailableError("etcd has no leader"));
  for (const Json& config : All(kube::kConfigMap)) {
    ASSERT_TRUE(store_->Delete(kube::kConfigMap, kube::KeyOf(config), {}).ok());
  }
  EXPECT_TRUE(absl::IsUnavailable(Reconcile().status()));
  EXPECT_EQ(Hosts().size(), 2U);
}

TEST_F(Publishing, ASliceThatIsRefusedKeepsNoOtherBack) {
  CreateContainerJob(1);
  MustReconcile();
  ASSERT_TRUE(store_->Create(kube::kEndpointSlice, ForeignSlice()).ok());
  const Json status = {{"podIPs", Json::array({{{"ip", "10.0.0.1"}}, {{"ip", "fd00::1"}}})}};
  ASSERT_TRUE(store_->PatchStatus(kube::kPod, Of("digits-worker-0"), {{"status", status}}).ok());
  MustReconcile();
  EXPECT_EQ(kube::ControllerUidOf(Slice()), "") << "somebody else's";
  EXPECT_FALSE(Get(kube::kEndpointSlice, "digits-ipv6-0").is_null());
}

TEST_F(Publishing, ARefusalOfAChangeIsToldToo) {
  RunJob(2);
  server_.Refuse("patch EndpointSlice", absl::PermissionDeniedError("endpointslices is forbidden"));
  ASSERT_TRUE(
      store_->PatchStatus(kube::kPod, Of("digits-worker-1"), {{"status", {{"podIP", "127.1.0.9"}}}})
          .ok());
  for (int i = 0; i < 2; ++i) MustReconcile();
  EXPECT_EQ(ReasonOf("Degraded"), "NamesUnpublished");
}

TEST_F(Publishing, OfAnEarlierJobOfTheNameNothingIsFound) {
  RunJob(1);
  Json former = Slice();
  DeleteJob();
  MustReconcile();
  RunJob(1);
  EXPECT_EQ(kube::ControllerUidOf(Slice()), kube::UidOf(Job()));
  EXPECT_NE(kube::UidOf(Slice()), kube::UidOf(former));
}

}  // namespace
}  // namespace starling::trainingjob
