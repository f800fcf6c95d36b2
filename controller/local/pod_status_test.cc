// SPDX-License-Identifier: Apache-2.0
#include "controller/local/pod_status.h"

#include <csignal>
#include <nlohmann/json.hpp>

#include "controller/kube/objects.h"
#include "gtest/gtest.h"

namespace starling::local {
namespace {

using kube::Json;

const absl::Time kStart = absl::FromUnixSeconds(1'700'000'000);  // 2023-11-14T22:13:20Z
const absl::Time kNow = kStart + absl::Seconds(5) + absl::Microseconds(7);

Json Pod() {
  return {{"metadata", {{"name", "worker-0"}, {"uid", "u-1"}}},
          {"spec", {{"containers", Json::array({{{"name", "main"}, {"image", "python"}}})}}}};
}

PodState State() {
  PodState state;
  state.ip = "127.1.2.3";
  state.started = kStart;
  return state;
}

Outcome Ended(int exit_code) {
  Outcome outcome;
  outcome.exit_code = exit_code;
  outcome.restarts = 2;
  outcome.reason = "Why";
  outcome.message = "its last words";
  outcome.started = kStart;
  outcome.finished = kNow;
  return outcome;
}

const Json& Container(const Json& patch) { return kube::At(patch, "/status/containerStatuses/0"); }

// What the condition says, and why.
std::string Says(const Json& patch, const char* type) {
  const Json& condition = kube::FindCondition(patch, type);
  return kube::StringAt(condition, "/status") + ":" + kube::StringAt(condition, "/reason");
}

TEST(PodStatus, EveryPatchIsForThePodItWasMadeOf) {
  for (const Json& patch :
       {WaitingPatch(Pod(), "a", "b", kNow), RunningPatch(Pod(), State(), kNow),
        EndedPatch(Pod(), Ended(0), "", false, kNow), PlacementPatch(Pod(), 12)}) {
    EXPECT_EQ(kube::UidOf(patch), "u-1") << patch;
  }
}

TEST(PodStatus, WaitingPodSaysWhyAndIsNotReady) {
  const Json patch = WaitingPatch(Pod(), "CreateContainerConfigError", "no Secret keys", kNow);
  EXPECT_EQ(kube::StringAt(patch, "/status/phase"), "Pending");
  EXPECT_EQ(kube::StringAt(patch, "/status/hostIP"), "127.0.0.1");
  const Json wanted = {
      {"name", "main"},
      {"image", "python"},
      {"imageID", ""},
      {"ready", false},
      {"started", false},
      {"restartCount", 0},
      {"state",
       {{"waiting", {{"reason", "CreateContainerConfigError"}, {"message", "no Secret keys"}}}}}};
  EXPECT_EQ(Container(patch), wanted);
  EXPECT_EQ(Says(patch, "PodScheduled"), "True:");
  EXPECT_EQ(Says(patch, "Initialized"), "True:");
  EXPECT_EQ(Says(patch, "ContainersReady"), "False:ContainersNotReady");
  EXPECT_EQ(Says(patch, "Ready"), "False:ContainersNotReady");
}

TEST(PodStatus, RunningPodIsReadyAndTellsItsAddressAndSinceWhen) {
  const Json patch = RunningPatch(Pod(), State(), kNow);
  EXPECT_EQ(kube::StringAt(patch, "/status/phase"), "Running");
  EXPECT_EQ(kube::StringAt(patch, "/status/podIP"), "127.1.2.3");
  EXPECT_EQ(kube::StringAt(patch, "/status/podIPs/0/ip"), "127.1.2.3");
  EXPECT_EQ(kube::StringAt(patch, "/status/startTime"), "2023-11-14T22:13:20Z");
  const Json wanted = {{"name", "main"},
                       {"image", "python"},
                       {"imageID", ""},
                       {"ready", true},
                       {"started", true},
                       {"restartCount", 0},
                       {"state", {{"running", {{"startedAt", "2023-11-14T22:13:20Z"}}}}}};
  EXPECT_EQ(Container(patch), wanted);
  EXPECT_EQ(Says(patch, "ContainersReady"), "True:");
  EXPECT_EQ(Says(patch, "Ready"), "True:");
}

TEST(PodStatus, EndedPodTellsHowAndWhen) {
  const Json good = EndedPatch(Pod(), Ended(0), "127.1.2.3", false, kNow);
  EXPECT_EQ(kube::StringAt(good, "/status/phase"), "Succeeded");
  EXPECT_EQ(Says(good, "Ready"), "False:PodCompleted");
  EXPECT_EQ(kube::StringAt(good, "/status/podIP"), "127.1.2.3");
  EXPECT_EQ(kube::StringAt(good, "/status/podIPs/0/ip"), "127.1.2.3");
  const Json terminated = {{"exitCode", 0},
                           {"reason", "Why"},
                           {"message", "its last words"},
                           {"startedAt", "2023-11-14T22:13:20Z"},
                           {"finishedAt", "2023-11-14T22:13:25.000007Z"}};
  const Json wanted = {{"name", "main"},
                       {"image", "python"},
                       {"imageID", ""},
                       {"ready", false},
                       {"started", false},
                       {"restartCount", 2},
                       {"state", {{"terminated", terminated}}}};
  EXPECT_EQ(Container(good), wanted);
  EXPECT_FALSE(good["status"].contains("reason"));
  EXPECT_TRUE(kube::FindCondition(good, "DisruptionTarget").is_null());

  Outcome killed = Ended(137);
  killed.signal = SIGKILL;
  const Json bad = EndedPatch(Pod(), killed, "", false, kNow);
  EXPECT_EQ(kube::StringAt(bad, "/status/phase"), "Failed");
  EXPECT_EQ(Says(bad, "Ready"), "False:PodFailed");
  EXPECT_FALSE(bad["status"].contains("podIP")) << "it never had one";
  EXPECT_FALSE(bad["status"].contains("podIPs"));
  EXPECT_EQ(kube::IntAt(Container(bad), "/state/terminated/signal"), SIGKILL);
  EXPECT_EQ(kube::IntAt(Container(bad), "/state/terminated/exitCode"), 137);
}

TEST(PodStatus, PodThatItsNodeEndedFailsWhateverItsExitCode) {
  for (const int code : {0, 1}) {
    const Json patch = EndedPatch(Pod(), Ended(code), "127.1.2.3", true, kNow);
    EXPECT_EQ(kube::StringAt(patch, "/status/phase"), "Failed");
    EXPECT_EQ(kube::StringAt(patch, "/status/reason"), "NodeShutdown");
    EXPECT_NE(kube::StringAt(patch, "/status/message"), "");
    EXPECT_EQ(Says(patch, "DisruptionTarget"), "True:TerminationByKubelet");
    EXPECT_EQ(kube::IntAt(Container(patch), "/state/terminated/exitCode"), code);
  }
}

TEST(PodStatus, ConditionsOfOthersStayAndTheirTimesMoveWithTheirStatusOnly) {
  Json pod = Pod();
  pod["status"]["conditions"] =
      Json::array({{{"type", "example.dev/Gate"}, {"status", "True"}},
                   {{"type", "PodScheduled"}, {"status", "True"}, {"lastTransitionTime", "before"}},
                   {{"type", "Ready"}, {"status", "True"}, {"lastTransitionTime", "before"}}});
  const Json patch = EndedPatch(pod, Ended(1), "", false, kNow);
  EXPECT_TRUE(kube::IsConditionTrue(patch, "example.dev/Gate"));
  const auto moved = [&](const char* type) {
    return kube::StringAt(kube::FindCondition(patch, type), "/lastTransitionTime");
  };
  EXPECT_EQ(moved("PodScheduled"), "before");
  EXPECT_EQ(moved("Ready"), kube::FormatTimestamp(kNow));
}

TEST(PodStatus, PlacementNamesTheNodeAndThePid) {
  const Json wanted = {
      {"metadata", {{"uid", "u-1"}, {"annotations", {{"starling.dev/pid", "12"}}}}},
      {"spec", {{"nodeName", "local"}}}};
  EXPECT_EQ(PlacementPatch(Pod(), 12), wanted);
}

TEST(PodStatus, NamelessContainerIsTheTrainer) {
  const Json pod = {{"metadata", {{"uid", "u-1"}}}};
  EXPECT_EQ(kube::StringAt(Container(WaitingPatch(pod, "a", "b", kNow)), "/name"), "trainer");
}

TEST(PodStatus, PodHasEndedWhenItsPhaseSaysSo) {
  for (const auto& [phase, ended] : {std::pair("Pending", false), std::pair("Running", false),
                                     std::pair("Succeeded", true), std::pair("Failed", true)}) {
    EXPECT_EQ(HasEnded({{"status", {{"phase", phase}}}}), ended) << phase;
  }
}

}  // namespace
}  // namespace starling::local
