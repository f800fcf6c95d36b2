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
#include "common/status/macros.h"
#include "controller/kube/objects.h"
#include "controller/resources/names.h"

namespace starling::cli {
namespace {

using kube::Json;

constexpr absl::Duration kTick = absl::Milliseconds(50);
constexpr absl::Duration kLookForPods = absl::Seconds(1);

struct Source {
  std::string name;
  std::unique_ptr<kube::LogStream> stream;  // null: it has ended
  std::string rest;                         // a line that is not whole yet
};

// Prints the logs of pods side by side, by whole lines. Confined to the main thread.
class ClusterTail {
 public:
  ClusterTail(Session& session, kube::PodLogs& logs, kube::LogOptions options, bool prefix)
      : session_(session), logs_(logs), options_(std::move(options)), prefix_(prefix) {}

  // Begins with the pod, unless it has been begun with or its container has not.
  absl::Status Add(const Json& pod) {
    const std::string uid = kube::UidOf(pod);
    if (sources_.contains(uid)) return absl::OkStatus();
    kube::LogOptions options = options_;
    options.container = kube::StringAt(pod, "/spec/containers/0/name");
    auto stream = logs_.ReadLogs(kube::KeyOf(pod), options);
    if (absl::IsInvalidArgument(stream.status()) || absl::IsNotFound(stream.status())) {
      if (!options_.follow) session_.terminal().Say(std::string(stream.status().message()));
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(stream.status());
    sources_.emplace(uid, Source{kube::NameOf(pod), *std::move(stream), ""});
    return absl::OkStatus();
  }

  // Prints what has come, waiting a little for the first. Whether any log may still grow.
  absl::StatusOr<bool> Read() {
    bool open = false;
    for (auto& [uid, source] : sources_) {
      if (!source.stream) continue;
      const auto text = source.stream->Next(kTick);
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
    if (!prefix_) return session_.terminal().Print(text);
    std::string prefixed;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin) + 1;
      absl::StrAppend(&prefixed, "[", source.name, "] ", text.substr(begin, end - begin));
      begin = end;
    }
    session_.terminal().Print(prefixed);
  }

  Session& session_;
  kube::PodLogs& logs_;
  const kube::LogOptions options_;
  const bool prefix_;
  std::map<std::string, Source> sources_;  // by UID
};

absl::StatusOr<std::vector<Json>> PodsOf(kube::KubeClient& store, const kube::ObjectKey& key,
                                         bool is_job) {
  if (!is_job) {
    ASSIGN_OR_RETURN(Json pod, store.Get(kube::kPod, key));
    return std::vector<Json>{std::move(pod)};
  }
  ASSIGN_OR_RETURN(kube::ObjectList list,
                   store.List(kube::kPod, key.ns, {{resources::JobSelector(key.name), ""}, 0, ""}));
  return std::move(list.items);
}

// Whether the job can still get pods.
absl::StatusOr<bool> IsOver(kube::KubeClient& store, const kube::ObjectKey& key, bool is_job) {
  if (!is_job) return true;
  const auto job = store.Get(kube::kTrainingJob, key);
  if (absl::IsNotFound(job.status())) return true;
  RETURN_IF_ERROR(job.status());
  return IsFinished(*job);
}

}  // namespace

absl::Status ClusterLogs(Session& session, const Arguments& arguments) {
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
  ASSIGN_OR_RETURN(kube::KubeClient * store, session.Store());
  ASSIGN_OR_RETURN(kube::PodLogs * logs, session.Logs());
  const auto job = store->Get(kube::kTrainingJob, key);
  if (!job.ok() && !absl::IsNotFound(job.status())) return job.status();
  const bool is_job = job.ok();
  ClusterTail tail(session, *logs, options, is_job);
  absl::Time next_look = absl::InfinitePast();
  bool over = false;
  while (true) {
    if (session.clock().Now() >= next_look) {
      ASSIGN_OR_RETURN(over, IsOver(*store, key, is_job));
      ASSIGN_OR_RETURN(const std::vector<Json> pods, PodsOf(*store, key, is_job));
      for (const Json& pod : pods) RETURN_IF_ERROR(tail.Add(pod));
      next_look = options.follow ? session.clock().Now() + kLookForPods : absl::InfiniteFuture();
    }
    ASSIGN_OR_RETURN(const bool open, tail.Read());
    if (!open && (over || !options.follow)) return absl::OkStatus();
    if (session.interrupts().count() > 0) return absl::CancelledError("interrupted");
    if (!open) session.interrupts().Wait(absl::Milliseconds(200));
  }
}

}  // namespace starling::cli
