// SPDX-License-Identifier: Apache-2.0
#include "controller/rest/summary.h"

#include <nlohmann/json.hpp>

#include "common/json/json.h"
#include "controller/kube/objects.h"
#include "controller/rest/plan.h"
#include "controller/rest/usage.h"

namespace starling::service {
namespace {

using kube::Json;

constexpr std::size_t kLabelBytes = 400;  // of all labels together
// As controller/admission/creator.h notes it.
constexpr char kCreatedBy[] = "starling.dev/created-by";
constexpr std::size_t kLongestCreator = 200;

// Only those labels that fit, so that a summary stays one.
Json ShortLabels(const Json& job) {
  Json labels = Json::object();
  std::size_t bytes = 0;
  for (const auto& [name, value] : kube::At(job, "/metadata/labels").items()) {
    if (!value.is_string()) continue;
    bytes += name.size() + value.get_ref<const std::string&>().size() + 6;
    if (bytes > kLabelBytes) break;
    labels[name] = value;
  }
  return labels;
}

// Of the condition that says the most: how it ended, else why it waits.
std::string ReasonOf(const Json& job) {
  for (const char* type : {"Failed", "Succeeded", "Suspended", "Restarting"}) {
    if (kube::IsConditionTrue(job, type)) {
      return kube::StringAt(kube::FindCondition(job, type), "/reason");
    }
  }
  return "";
}

void Copy(const Json& job, const char* pointer, const char* name, Json& to) {
  const Json& value = kube::At(job, pointer);
  if (!value.is_null()) to[name] = value;
}

}  // namespace

Json SummaryOf(const Json& job) {
  const std::string state = kube::StringAt(job, "/status/state");
  Json summary = {{"namespace", kube::NamespaceOf(job)},
                  {"name", kube::NameOf(job)},
                  {"uid", kube::UidOf(job)},
                  {"resourceVersion", kube::ResourceVersionOf(job)},
                  {"created", kube::StringAt(job, "/metadata/creationTimestamp")},
                  {"state", state.empty() ? "Pending" : state}};
  if (Json labels = ShortLabels(job); !labels.empty()) summary["labels"] = std::move(labels);
  const std::string creator = kube::AnnotationOf(job, kCreatedBy);
  if (!creator.empty() && creator.size() <= kLongestCreator) summary["createdBy"] = creator;
  if (kube::IsBeingDeleted(job)) summary["deleting"] = true;
  for (const char* name : {"summary", "epoch", "step", "loss", "samplesPerSecond", "workers"}) {
    const std::string pointer = std::string("/status/progress/") + name;
    Copy(job, pointer.c_str(), name, summary);
  }
  if (Json use = UseOf(job); !use.is_null()) summary["use"] = std::move(use);
  if (Json run = RunOf(job); !run.is_null()) summary["run"] = std::move(run);
  if (const std::string reason = ReasonOf(job); !reason.empty()) summary["reason"] = reason;
  return summary;
}

bool IsFinished(const Json& job) {
  return kube::IsConditionTrue(job, "Succeeded") || kube::IsConditionTrue(job, "Failed");
}

Json ProgressOf(const Json& job) {
  Json progress = kube::At(job, "/status/progress");
  if (!progress.is_object()) return Json();
  Copy(job, "/status/goodput", "goodput", progress);
  return progress;
}

}  // namespace starling::service
