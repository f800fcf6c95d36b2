// SPDX-License-Identifier: Apache-2.0
// logs: what pods have written, from the files in the job's folder.
//
// The files outlive their pods in the store, so that a pod that failed and was replaced can still
// be asked why.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/apply.h"
#include "cli/cluster_logs.h"
#include "cli/commands.h"
#include "cli/control_plane.h"
#include "cli/exit_code.h"
#include "cli/rest_logs.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"
#include "controller/resources/names.h"

namespace starling::cli {
namespace {

namespace fs = std::filesystem;
using kube::Json;

constexpr std::size_t kUidSuffix = 9;  // "-", and 8 characters of the UID

// <pod's folder name without the UID>
std::string PodOf(const fs::path& folder) {
  const std::string name = folder.filename().string();
  return name.size() > kUidSuffix ? name.substr(0, name.size() - kUidSuffix) : name;
}

// Pods' folders of all jobs whose folders `matches` takes, oldest first.
template <typename Predicate>
std::vector<fs::path> PodFolders(const fs::path& jobs, Predicate matches) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (const auto& job : fs::directory_iterator(jobs, error)) {
    for (const auto& pod : fs::directory_iterator(job.path() / "pods", error)) {
      if (matches(job.path(), pod.path())) folders.push_back(pod.path());
    }
  }
  std::sort(folders.begin(), folders.end(), [](const fs::path& a, const fs::path& b) {
    std::error_code ignored;
    return std::pair(fs::last_write_time(a / "log", ignored), a) <
           std::pair(fs::last_write_time(b / "log", ignored), b);
  });
  return folders;
}

// Prints files as they grow, by whole lines. Confined to the main thread.
class Tail {
 public:
  Tail(Session& session, bool prefix, std::int64_t lines)
      : session_(session), prefix_(prefix), lines_(lines) {}

  // Whether there was anything new.
  bool Read(const fs::path& folder) {
    std::ifstream file(folder / "log", std::ios::binary);
    if (!file) return false;
    const auto [known, first] = positions_.try_emplace(folder.string(), 0);
    file.seekg(known->second);
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const std::size_t end = text.rfind('\n');
    if (end == std::string::npos) return false;
    text.resize(end + 1);
    known->second += static_cast<std::streamoff>(text.size());
    Print(PodOf(folder), first ? LastOf(text) : text);
    return true;
  }

 private:
  std::string LastOf(const std::string& text) const {
    if (lines_ < 0) return text;
    std::size_t begin = text.size();
    for (std::int64_t i = 0; i <= lines_ && begin > 0; ++i) {
      const std::size_t newline = text.rfind('\n', begin - 1);
      if (newline == std::string::npos) return text;
      begin = newline;
    }
    return begin == 0 ? text : text.substr(begin + 1);
  }

  void Print(const std::string& pod, const std::string& text) {
    if (!prefix_) return session_.terminal().Print(text);
    std::string prefixed;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin) + 1;
      absl::StrAppend(&prefixed, "[", pod, "] ", text.substr(begin, end - begin));
      begin = end;
    }
    session_.terminal().Print(prefixed);
  }

  Session& session_;
  const bool prefix_;
  const std::int64_t lines_;
  std::map<std::string, std::streamoff> positions_;
};

// Whether what is followed can still write.
absl::StatusOr<bool> IsOver(Session& session, const kube::ObjectKey& key, bool is_job) {
  ASSIGN_OR_RETURN(kube::KubeClient * store, session.Store());
  const auto object = store->Get(is_job ? kube::kTrainingJob : kube::kPod, key);
  if (absl::IsNotFound(object.status())) return true;
  RETURN_IF_ERROR(object.status());
  const std::string phase = kube::StringAt(*object, "/status/phase");
  return is_job ? IsFinished(*object) : phase == "Succeeded" || phase == "Failed";
}

// Empty: there is no such pod now.
absl::StatusOr<fs::path> FolderOfPodsJob(Session& session, kube::KubeClient& store,
                                         const kube::ObjectKey& key) {
  const auto pod = store.Get(kube::kPod, key);
  if (absl::IsNotFound(pod.status())) return fs::path();
  RETURN_IF_ERROR(pod.status());
  const auto job =
      store.Get(kube::kTrainingJob, {key.ns, kube::LabelOf(*pod, resources::kJobLabel)});
  if (absl::IsNotFound(job.status())) return fs::path();
  RETURN_IF_ERROR(job.status());
  return fs::path(session.home().FolderOf(*job));
}

absl::Status Logs(Session& session, const Arguments& arguments) {
  std::int64_t lines = -1;
  if (arguments.Has("tail") && (!absl::SimpleAtoi(arguments.Get("tail"), &lines) || lines < 0)) {
    return absl::InvalidArgumentError("--tail: write a whole number of lines, 0 or more");
  }
  const kube::ObjectKey key = JobKey(arguments, arguments.names[0]);
  ASSIGN_OR_RETURN(kube::KubeClient * store, session.Store());
  const auto job = store->Get(kube::kTrainingJob, key);
  if (!job.ok() && !absl::IsNotFound(job.status())) return job.status();
  const fs::path jobs = session.home().Jobs() + "/" + key.ns;
  const auto of_pod = [&](const fs::path&, const fs::path& pod) { return PodOf(pod) == key.name; };
  fs::path job_folder = job.ok() ? fs::path(session.home().FolderOf(*job)) : fs::path();
  if (!job.ok()) {
    ASSIGN_OR_RETURN(job_folder, FolderOfPodsJob(session, *store, key));
    // Nobody runs it any more: that of the newest job which had such a pod.
    if (job_folder.empty()) {
      const auto past = PodFolders(jobs, of_pod);
      if (!past.empty()) job_folder = past.back().parent_path().parent_path();
    }
  }
  const auto find = [&] {
    return PodFolders(jobs, [&](const fs::path& of_job, const fs::path& pod) {
      return of_job == job_folder && (job.ok() || of_pod(of_job, pod));
    });
  };
  if (!job.ok() && find().empty() && !store->Get(kube::kPod, key).ok()) {
    return absl::NotFoundError(absl::StrCat("no job or pod \"", key.ToString(), "\""));
  }
  Tail tail(session, job.ok(), lines);
  const bool follow = arguments.Has("follow");
  while (true) {
    ASSIGN_OR_RETURN(const bool over, IsOver(session, key, job.ok()));
    bool more = false;
    for (const fs::path& folder : find()) more = tail.Read(folder) || more;
    if (!follow || (over && !more)) return absl::OkStatus();
    if (session.interrupts().count() > 0) return absl::CancelledError("interrupted");
    session.interrupts().Wait(absl::Milliseconds(100));
  }
}

absl::Status LogsInCluster(Session& session, const Arguments& arguments) {
  ASSIGN_OR_RETURN(kube::KubeClient * store, session.Store());
  ASSIGN_OR_RETURN(kube::PodLogs * logs, session.Logs());
  return ClusterLogs({session.terminal(), session.clock(), session.interrupts(), *store, *logs},
                     arguments);
}

}  // namespace

int LogsCommand(Session& session, const Arguments& arguments) {
  if (session.over_rest()) return session.Fail(RestLogs(session, arguments));
  if (session.in_cluster()) return session.Fail(LogsInCluster(session, arguments));
  return session.Fail(Logs(session, arguments));
}

}  // namespace starling::cli
