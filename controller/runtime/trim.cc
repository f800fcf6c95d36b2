// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/trim.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "controller/kube/messages.h"

namespace starling::runtime {
namespace {

constexpr const char* kOurs = "starling.dev/";

// Waiting reasons that only mean that the container has not started yet.
constexpr std::string_view kStarting[] = {"", "ContainerCreating", "PodInitializing"};

template <typename Map>
bool HasOthers(const Map& names) {
  return std::any_of(names.begin(), names.end(),
                     [](const auto& name) { return !absl::StartsWith(name.first, kOurs); });
}

template <typename Map>
void EraseOthers(Map& names) {
  for (auto name = names.begin(); name != names.end();) {
    name = absl::StartsWith(name->first, kOurs) ? std::next(name) : names.erase(name);
  }
}

void AddCondition(const kubernetes::Condition& condition, std::string& news) {
  const std::string& type = condition.type();
  const bool unplaced = type == "PodScheduled" && condition.status() == "False";
  if (!unplaced && type != "Ready" && type != "DisruptionTarget") return;
  absl::StrAppend(&news, "\n", type, "=", condition.status());
  if (type == "Ready") return;
  absl::StrAppend(&news, " ", condition.reason(), " ", condition.message());
}

void AddContainer(const kubernetes::ContainerStatus& container, std::string& news) {
  const std::string& waits = container.state().waiting().reason();
  const bool starts =
      std::find(std::begin(kStarting), std::end(kStarting), waits) != std::end(kStarting);
  const bool ended = container.state().has_terminated();
  if (starts && !ended) return;
  absl::StrAppend(&news, "\n", container.name(), ":", waits, " ",
                  ended ? container.state().terminated().exit_code() : -1);
}

}  // namespace

kube::MessagePtr KeepOurs(kube::MessagePtr object) {
  const kubernetes::ObjectMeta& metadata = kube::MetadataOf(*object);
  if (!HasOthers(metadata.labels()) && !HasOthers(metadata.annotations())) return object;
  std::shared_ptr<kube::Message> kept;
  if (object.use_count() == 1) {
    // Nobody else has it, as it was just read: it need not be copied.
    kept = std::const_pointer_cast<kube::Message>(std::move(object));
  } else {
    kept.reset(object->New());
    kept->CopyFrom(*object);
  }
  EraseOthers(*kube::MutableMetadataOf(*kept).mutable_labels());
  EraseOthers(*kube::MutableMetadataOf(*kept).mutable_annotations());
  return kept;
}

std::string NewsOfPod(const kube::Message& object) {
  const auto& pod = static_cast<const kubernetes::Pod&>(object);
  const kubernetes::PodStatus& status = pod.status();
  const kubernetes::Time& deletion = pod.metadata().deletion_timestamp();
  std::string news = absl::StrCat(kube::IsBeingDeleted(pod) ? deletion.seconds() : -1, "\n",
                                  status.phase(), "\n", status.reason(), "\n", status.pod_ip());
  for (const kubernetes::PodIP& address : status.pod_ips()) {
    absl::StrAppend(&news, " ", address.ip());
  }
  for (const kubernetes::Condition& condition : status.conditions()) AddCondition(condition, news);
  for (const auto* list : {&status.init_container_statuses(), &status.container_statuses()}) {
    for (const kubernetes::ContainerStatus& container : *list) AddContainer(container, news);
  }
  return news;
}

}  // namespace starling::runtime
