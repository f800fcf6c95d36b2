// SPDX-License-Identifier: Apache-2.0
#include "cli/cluster_logs.h"

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/apply.h"
#include "cli/session.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"
#include "controller/resources/names.h"

namespace starling::cli {
namespace {

using kube::Json;

constexpr absl::Duration kPause = absl::Milliseconds(50);
constexpr absl::Duration kLookForPods = absl::Seconds(1);

struct Source {
  std::string name;
  std::unique_ptr<kube::LogStream> stream;  // null: it has ended
  std::string rest;                         // a line that is not whole yet
};

// Prints the logs of pods side by side, by whole lines. Confined to the main thread.
class ClusterTail {
 public:
  ClusterTail(Terminal& terminal, kube::PodLogs& logs, kube::LogOptions options, bool prefix)
      : terminal_(terminal), logs_(logs), options_(std::move(options)), prefix_(prefix) {}

  // Begins with the pod, unless it has been begun with or its container has not.
  absl::Status Add(const Json& pod) {
    const std::string uid = kube::UidOf(pod);
    if (sources_.contains(uid)) return absl::OkStatus();
    kube::LogOptions options = options_;
    options.container = kube::StringAt(pod, "/spec/containers/0/name");
    auto stream = logs_.ReadLogs(kube::KeyOf(pod), options);
    if (absl::IsInvalidArgument(stream.status()) || absl::IsNotFound(stream.status())) {
      if (!options_.follow) terminal_.Say(std::string(stream.status().message()));
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(stream.status());
    sources_.emplace(uid, Source{kube::NameOf(pod), *std::move(stream), ""});
    return absl::OkStatus();
  }

  bool Begun(const Json& pod) const { return sources_.contains(kube::UidOf(pod)); }

  // Prints what has come, waiting a little for the first. Whether any log may still grow.
  absl::StatusOr<bool> Read() {
    bool open = false;
    for (auto& [uid, source] : sources_) {
      if (!source.stream) continue;
      const auto text = source.stream->Next(kPause);
      if (absl::IsOutOfRange(text.status())) {
        source.stream.reset();
        if (!source.rest.empty()) Print(source, std::exchange(source.rest, "") + "\n");
        continue;
      }
      RETURN_IF_ERROR(text.status());
      open = true;
      if (!*text) continue;
      source.rest += **text;
      const std::size_t end = source.rest.rfind('\n');
      if (end == std::string::npos) continue;
      Print(source, source.rest.substr(0, end + 1));
      source.rest.erase(0, end + 1);
    }
    return open;
  }

 private:
  void Print(const Source& source, const std::string& text) {
    if (!prefix_) return terminal_.Print(text);
    std::string prefixed;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin) + 1;
      absl::StrAppend(&prefixed, "[", source.name, "] ", text.substr(begin, end - begin));
      begin = end;
    }
    terminal_.Print(prefixed);
  }

  Terminal& terminal_;
  kube::PodLogs& logs_;
  const kube::LogOptions options_;
  const bool prefix_;
  std::map<std::string, Source> sources_;  // by UID
};

// A pod that has been deleted while its log was followed counts as ended: then there is no log.
absl::StatusOr<std::vector<Json>> PodsOf(kube::KubeClient& store, const kube::ObjectKey& key,
                                         bool is_job, bool was_there) {
  if (!is_job) {
    absl::StatusOr<Json> pod = store.Get(kube::kPod, key);
    if (was_there && absl::IsNotFound(pod.status())) return std::vector<Json>();
    RETURN_IF_ERROR(pod.status());
    return std::vector<Json>{*std::move(pod)};
  }
  ASSIGN_OR_RETURN(kube::ObjectList list,
                   store.List(kube::kPod, key.ns, {{resources::JobSelector(key.name), ""}, 0, ""}));
  return std::move(list.items);
}

// Whether the job can still get pods.
absl::StatusOr<bool> IsOver(kube::KubeClient& store, const kube::ObjectKey& key) {
  const auto job = store.Get(kube::kTrainingJob, key);
  if (absl::IsNotFound(job.status())) return true;
  RETURN_IF_ERROR(job.status());
  return IsFinished(*job);
}

// Whether the pod, if it is there, can still begin to write.
bool IsOver(const ClusterTail& tail, const std::vector<Json>& pods) {
  if (pods.empty() || tail.Begun(pods.front())) return true;
  const std::string phase = kube::StringAt(pods.front(), "/status/phase");
  return phase == "Succeeded" || phase == "Failed";
}

}  // namespace

absl::Status ClusterLogs(const ClusterLogsParts& parts, const Arguments& arguments) {
  kube::LogOptions options;
  options.follow = arguments.Has("follow");
  std::int64_t lines = 0;
  if (arguments.Has("tail")) {
    if (!absl::SimpleAtoi(arguments.Get("tail"), &lines) || lines < 0) {
      return absl::InvalidArgumentError("--tail: write a whole number of lines, 0 or more");
    }
    options.tail_lines = lines;
  }
  const kube::ObjectKey key = JobKey(arguments, arguments.names[0]);
  const auto job = parts.store.Get(kube::kTrainingJob, key);
  if (!job.ok() && !absl::IsNotFound(job.status())) return job.status();
  const bool is_job = job.ok();
  ClusterTail tail(parts.terminal, parts.logs, options, is_job);
  absl::Time next_look = absl::InfinitePast();
  bool was_there = false;
  bool over = false;
  while (true) {
    if (parts.clock.Now() >= next_look) {
      if (is_job) {
        ASSIGN_OR_RETURN(over, IsOver(parts.store, key));
      }
      ASSIGN_OR_RETURN(const std::vector<Json> pods,
                       PodsOf(parts.store, key, is_job, std::exchange(was_there, true)));
      for (const Json& pod : pods) RETURN_IF_ERROR(tail.Add(pod));
      if (!is_job) over = IsOver(tail, pods);
      next_look = options.follow ? parts.clock.Now() + kLookForPods : absl::InfiniteFuture();
    }
    ASSIGN_OR_RETURN(const bool open, tail.Read());
    if (!open && (over || !options.follow)) return absl::OkStatus();
    if (parts.interrupts.count() > 0) return absl::CancelledError("interrupted");
    if (!open) parts.interrupts.Wait(absl::Milliseconds(200));
  }
}

}  // namespace starling::cli
