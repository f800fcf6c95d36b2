// SPDX-License-Identifier: Apache-2.0
#include "controller/local/pod_status.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "controller/kube/objects.h"

namespace starling::local {
namespace {

using kube::Json;

constexpr char kHostIp[] = "127.0.0.1";

std::string ContainerName(const Json& pod) {
  const std::string name = kube::StringAt(pod, "/spec/containers/0/name");
  return name.empty() ? "trainer" : name;
}

Json ContainerStatus(const Json& pod, Json state, bool ready, int restarts) {
  return {{"name", ContainerName(pod)},
          {"image", kube::StringAt(pod, "/spec/containers/0/image")},
          {"imageID", ""},
          {"ready", ready},
          {"started", ready},
          {"restartCount", restarts},
          {"state", std::move(state)}};
}

Json Conditions(const Json& pod, bool ready, const std::string& reason, absl::Time now) {
  Json conditions = kube::At(pod, "/status/conditions");
  const std::string value = ready ? "True" : "False";
  const auto set = [&](const char* type, const std::string& status, const std::string& why) {
    kube::SetCondition(
        conditions,
        {.type = type, .status = status, .reason = why, .message = "", .observed_generation = 0},
        now);
  };
  set("PodScheduled", "True", "");
  set("Initialized", "True", "");
  set("ContainersReady", value, reason);
  set("Ready", value, reason);
  return conditions;
}

Json Patch(const Json& pod, Json status) {
  return {{"metadata", {{"uid", kube::UidOf(pod)}}}, {"status", std::move(status)}};
}

}  // namespace

Json WaitingPatch(const Json& pod, const std::string& reason, const std::string& message,
                  absl::Time now) {
  Json waiting = {{"waiting", {{"reason", reason}, {"message", message}}}};
  return Patch(pod, {{"phase", "Pending"},
                     {"hostIP", kHostIp},
                     {"conditions", Conditions(pod, false, "ContainersNotReady", now)},
                     {"containerStatuses",
                      Json::array({ContainerStatus(pod, std::move(waiting), false, 0)})}});
}

Json RunningPatch(const Json& pod, const PodState& state, absl::Time now) {
  const std::string started = kube::FormatTimestamp(state.started);
  Json running = {{"running", {{"startedAt", started}}}};
  return Patch(pod, {{"phase", "Running"},
                     {"podIP", state.ip},
                     {"podIPs", Json::array({{{"ip", state.ip}}})},
                     {"hostIP", kHostIp},
                     {"startTime", started},
                     {"conditions", Conditions(pod, true, "", now)},
                     {"containerStatuses",
                      Json::array({ContainerStatus(pod, std::move(running), true, 0)})}});
}

Json EndedPatch(const Json& pod, const Outcome& outcome, const std::string& ip, bool shutdown,
                absl::Time now) {
  const bool succeeded = outcome.Succeeded() && !shutdown;
  Json terminated = {{"exitCode", outcome.exit_code},
                     {"reason", outcome.reason},
                     {"message", outcome.message},
                     {"startedAt", kube::FormatTimestamp(outcome.started)},
                     {"finishedAt", kube::FormatMicroTimestamp(outcome.finished)}};
  if (outcome.signal != 0) terminated["signal"] = outcome.signal;
  Json conditions = Conditions(pod, false, succeeded ? "PodCompleted" : "PodFailed", now);
  Json status = {{"phase", succeeded ? "Succeeded" : "Failed"}, {"hostIP", kHostIp}};
  if (!ip.empty()) {
    status["podIP"] = ip;
    status["podIPs"] = Json::array({{{"ip", ip}}});
  }
  if (shutdown) {
    status["reason"] = "NodeShutdown";
    status["message"] = "the pod was ended because the control plane of this machine stopped";
    kube::SetCondition(conditions,
                       {.type = "DisruptionTarget",
                        .status = "True",
                        .reason = "TerminationByKubelet",
                        .message = "the control plane of this machine stopped",
                        .observed_generation = 0},
                       now);
  }
  status["conditions"] = std::move(conditions);
  status["containerStatuses"] = Json::array(
      {ContainerStatus(pod, {{"terminated", std::move(terminated)}}, false, outcome.restarts)});
  return Patch(pod, std::move(status));
}

Json PlacementPatch(const Json& pod, pid_t pid) {
  return {{"metadata",
           {{"uid", kube::UidOf(pod)}, {"annotations", {{"starling.dev/pid", absl::StrCat(pid)}}}}},
          {"spec", {{"nodeName", "local"}}}};
}

bool HasEnded(const Json& pod) {
  const std::string phase = kube::StringAt(pod, "/status/phase");
  return phase == "Succeeded" || phase == "Failed";
}

}  // namespace starling::local
