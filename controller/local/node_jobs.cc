// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/log/log.h"
#include "controller/kube/objects.h"
#include "controller/local/node.h"
#include "controller/local/pod_status.h"

namespace starling::local {
namespace {

bool HasFinished(const kube::Json& job) {
  return kube::IsConditionTrue(job, "Succeeded") || kube::IsConditionTrue(job, "Failed");
}

bool IsSuspended(const kube::Json& job) {
  return kube::BoolAt(job, "/spec/runPolicy/suspend", false);
}

}  // namespace

void Node::CleanUpAfterPredecessor() {
  // Listed before the store is read: a folder made meanwhile belongs to a job that is there.
  const std::vector<std::string> folders = ListJobFolders(options_.home);
  std::set<std::string> keep;
  for (const Object& pod : pods_.List()) {
    if (HasEnded(*pod)) continue;
    keep.insert(kube::UidOf(*pod));
    // Before anybody is given an address: a pod that is new may come before those that run.
    const auto state = ReadPodState(PodFolder(options_.home, *pod));
    if (state.ok()) addresses_.Use(state->ip);
  }
  KillStrays(options_.home, keep);
  const auto jobs = client_.List(kube::kTrainingJob, "", {});
  if (jobs.ok()) {
    std::set<std::string> wanted;
    for (const kube::Json& job : jobs->items)
      wanted.insert(JobFolder(options_.home, ReferenceTo(job)));
    for (const std::string& folder : folders) {
      if (!wanted.contains(folder)) leftovers_.push_back(folder);
    }
    RemoveLeftovers();
  }
  for (const Object& job : jobs_.List()) ReconcileJob(kube::KeyOf(*job));
  for (const Object& pod : pods_.List()) ReconcilePod(kube::KeyOf(*pod));
}

void Node::ReconcileJob(const runtime::Key& key) {
  const Object job = jobs_.Get(key);
  const std::string present = job == nullptr ? "" : kube::UidOf(*job);
  if (job != nullptr) {
    const JobReference reference = ReferenceTo(*job);
    known_jobs_[key][present] = reference;
    if (HasFinished(*job)) {
      if (!Runs(reference)) job_folders_.Release(reference);
    } else if (!IsSuspended(*job)) {  // thousands that wait would hold a descriptor each
      const absl::Status held = job_folders_.Hold(reference);
      if (!held.ok()) {
        log::Error("cannot hold a job's FIFO open; its pods would end",
                   {{"job", key.ToString()}, {"error", held.ToString()}});
      }
    }
  }
  const auto known = known_jobs_.find(key);
  if (known == known_jobs_.end()) return;
  const std::map<std::string, JobReference> of_that_name = known->second;
  for (const auto& [uid, reference] : of_that_name) {
    if (uid != present) RemoveIfGone(reference);
  }
}

bool Node::IsGone(const JobReference& job) {
  const runtime::Key key{.ns = job.ns, .name = job.name};
  if (const Object copy = jobs_.Get(key); copy != nullptr && kube::UidOf(*copy) == job.uid) {
    return false;
  }
  // The copy may be late: ask.
  const auto stored = client_.Get(kube::kTrainingJob, key);
  if (stored.ok()) return kube::UidOf(*stored) != job.uid;
  if (absl::IsNotFound(stored.status())) return true;
  remove_at_ = clock_.Now() + options_.retry;  // nobody knows: it is asked again
  return false;
}

bool Node::Runs(const JobReference& job) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const auto& item) {
    return item.second.job.uid == job.uid && item.second.process;
  });
}

bool Node::MayRemove(const JobReference& job) {
  if (options_.may_remove == nullptr || job.empty() || options_.may_remove(job)) return true;
  remove_at_ = clock_.Now() + options_.retry;
  return false;
}

// What waited to be removed is asked about again.
void Node::RemoveLeftovers() {
  remove_at_ = absl::InfiniteFuture();
  std::erase_if(leftovers_, [this](const std::string& folder) {
    if (!MayRemove(JobOfFolder(folder))) return false;
    log::Info("folder of a job that is gone is removed", {{"folder", folder}});
    RemoveFolder(folder);
    return true;
  });
  const auto known = known_jobs_;
  for (const auto& [key, of_that_name] : known) {
    for (const auto& [uid, job] : of_that_name) RemoveIfGone(job);
  }
}

void Node::RemoveIfGone(const JobReference& job) {
  if (Runs(job) || !IsGone(job) || !MayRemove(job)) return;
  log::Info("job's folder is removed", {{"job", job.ns + "/" + job.name}, {"uid", job.uid}});
  job_folders_.Remove(job);
  const auto known = known_jobs_.find({.ns = job.ns, .name = job.name});
  if (known == known_jobs_.end()) return;
  known->second.erase(job.uid);
  if (known->second.empty()) known_jobs_.erase(known);
}

bool Node::KeepsLogs(const JobReference& job) const {
  if (job.empty()) return false;
  const Object copy = jobs_.Get({.ns = job.ns, .name = job.name});
  // They go with the job's folder, once that may go.
  if (copy == nullptr || kube::UidOf(*copy) != job.uid) return options_.may_remove != nullptr;
  return !HasFinished(*copy) || kube::StringAt(*copy, "/spec/runPolicy/cleanPodPolicy") != "All";
}

}  // namespace starling::local
