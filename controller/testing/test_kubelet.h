// SPDX-License-Identifier: Apache-2.0
// What tests of the kubelet stand on: a store, its informers, a kubelet that runs what is in it,
// and ways to wait for what it does.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/clock/patience.h"
#include "common/process/process.h"
#include "common/storage/test_folder.h"
#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/objects.h"
#include "controller/local/folders.h"
#include "controller/local/pod_process.h"
#include "controller/local/process_kubelet.h"
#include "controller/testing/faulty_kube_client.h"
#include "gtest/gtest.h"

namespace starling::local {

using kube::Json;

inline constexpr char kForever[] = "exec sleep 300";

inline Json Container(const std::string& script) {
  return {{"name", "trainer"}, {"image", "none"}, {"command", {"/bin/sh", "-c", script}}};
}

inline Json Pod(const std::string& name, const std::string& script) {
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata", {{"name", name}, {"namespace", "default"}}},
          {"spec", {{"restartPolicy", "Never"}, {"containers", Json::array({Container(script)})}}}};
}

inline Json Job(const std::string& name) {
  return {{"apiVersion", "starling.dev/v1alpha1"},
          {"kind", "TrainingJob"},
          {"metadata", {{"name", name}, {"namespace", "default"}}},
          {"spec", Json::object()}};
}

// A store, its informers, and a kubelet that runs what is in it.
class ProcessKubeletTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto client = kube::OpenEmbeddedKubeClient(clock_, {});
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = std::move(*client);
    faulty_ = std::make_unique<kube::FaultyKubeClient>(*client_);
    StartKubelet();
  }

  void TearDown() override {
    StopKubelet(StopMode::kTerminatePods);
    KillStrays(home_, {});
    while (waitpid(-1, nullptr, WNOHANG) > 0) {  // those that no kubelet saw end
    }
  }

  void MayRemove(bool may) {
    sync::MutexLock lock(mutex_);
    may_remove_ = may;
  }
  std::set<std::string> Asked() {
    sync::MutexLock lock(mutex_);
    return asked_;
  }

  void StartKubelet() {
    MakeKubelet();
    informers_.emplace_back([this] { pods_->Run(); });
    informers_.emplace_back([this] { jobs_->Run(); });
    ASSERT_TRUE(Eventually([this] { return pods_->HasSynced() && jobs_->HasSynced(); }));
    ASSERT_TRUE(kubelet_->Start().ok());
  }

  void MakeKubelet() {
    pods_ = std::make_unique<runtime::Informer>(*client_, kube::kPod, runtime::InformerOptions{});
    jobs_ = std::make_unique<runtime::Informer>(*client_, kube::kTrainingJob,
                                                runtime::InformerOptions{});
    KubeletOptions options{.home = home_, .program_folder = "/bin", .environment = {}};
    options.environment = PodEnvironment(options);
    options.retry = absl::Milliseconds(10);
    options.stop_grace = absl::Seconds(2);
    options.may_remove = [this](const JobReference& job) {
      sync::MutexLock lock(mutex_);
      asked_.insert(job.ns + "/" + job.name + "-" + job.uid.substr(0, 8));
      return may_remove_;
    };
    if (adjust_) adjust_(options);
    kubelet_ = std::make_unique<ProcessKubelet>(*faulty_, *pods_, *jobs_, KubeletClock(), options);
  }

  virtual const clock::Clock& KubeletClock() const { return clock_; }

  void StopKubelet(StopMode mode) {
    if (kubelet_ == nullptr) return;
    kubelet_->Stop(mode);
    pods_->Stop();
    jobs_->Stop();
    for (std::thread& thread : informers_) thread.join();
    informers_.clear();
    kubelet_.reset();
  }

  // Waits for what other threads and processes do.
  static bool Eventually(const std::function<bool()>& holds) {
    const absl::Time deadline = absl::Now() + clock::Patience(absl::Seconds(30));
    while (!holds()) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(2));
    }
    return true;
  }

  Json Get(const std::string& name) {
    return client_->Get(kube::kPod, {.ns = "default", .name = name}).value_or(Json());
  }
  void Create(const Json& pod) {
    const auto created = client_->Create(kube::kPod, pod);
    ASSERT_TRUE(created.ok()) << created.status();
  }
  // The pod once it is in `phase`.
  Json Await(const std::string& name, const std::string& phase) {
    EXPECT_TRUE(Eventually([&] { return kube::StringAt(Get(name), "/status/phase") == phase; }))
        << Get(name).dump(2);
    return Get(name);
  }
  // A kubelet looks after what its predecessor left before it starts anything.
  void AwaitRecovery(const char* script = "true") {
    Create(Pod("sentinel", script));
    Await("sentinel", "Succeeded");
  }
  // From now on the kubelet's store neither answers nor takes anything, until it is healed.
  void BreakStore() {
    faulty_->FailWrite(1, kube::Fault::kCrashBefore);
    ASSERT_FALSE(faulty_->Delete(kube::kPod, {.ns = "default", .name = "none"}, {}).ok());
  }
  Json CreateJob(const Json& job) {
    const auto created = client_->Create(kube::kTrainingJob, job);
    EXPECT_TRUE(created.ok()) << created.status();
    return created.value_or(Json());
  }
  // A pod of that job.
  void CreateOf(const Json& job, Json pod) {
    pod["metadata"]["ownerReferences"] = Json::array({kube::ControllerReference(job)});
    Create(pod);
  }
  void Finish(const Json& job, const char* condition = "Succeeded") {
    Json conditions;
    kube::SetCondition(conditions, {condition, "True", "Completed", "", 1}, absl::Now());
    const auto patched = client_->PatchStatus(kube::kTrainingJob, kube::KeyOf(job),
                                              {{"status", {{"conditions", conditions}}}});
    ASSERT_TRUE(patched.ok()) << patched.status();
  }
  // Whether somebody reads the job's FIFO: opening for writing alone, without waiting, works.
  bool IsHeld(const Json& job) {
    const std::string fifo = JobFolder(home_, ReferenceTo(job)) + "/alive";
    const int writer = open(fifo.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (writer >= 0) close(writer);
    return writer >= 0;
  }
  bool IsGone(const std::string& name) {
    return absl::IsNotFound(client_->Get(kube::kPod, {.ns = "default", .name = name}).status());
  }
  void Delete(const std::string& name, std::int64_t grace) {
    kube::DeleteOptions options;
    options.grace_period_seconds = grace;
    ASSERT_TRUE(client_->Delete(kube::kPod, {.ns = "default", .name = name}, options).ok());
  }

  static Json Terminated(const Json& pod) {
    return kube::At(pod, "/status/containerStatuses/0/state/terminated");
  }
  static pid_t PidOf(const Json& pod) {
    return std::atoi(kube::AnnotationOf(pod, "starling.dev/pid").c_str());
  }
  static bool Runs(pid_t pid) {
    const auto stat = process::ReadStat(pid);
    return stat.ok() && !stat->Ended();
  }
  std::string Log(const Json& pod) { return ReadFile(PodFolder(home_, pod) + "/log").value_or(""); }

  clock::SystemClock clock_;
  const storage::TestFolder folder_;
  const std::string& home_ = folder_.path();
  std::unique_ptr<kube::KubeClient> client_;
  std::unique_ptr<kube::FaultyKubeClient> faulty_;  // of the kubelet
  std::unique_ptr<runtime::Informer> pods_;
  std::unique_ptr<runtime::Informer> jobs_;
  std::vector<std::thread> informers_;
  std::unique_ptr<ProcessKubelet> kubelet_;
  std::function<void(KubeletOptions& options)> adjust_;  // of the next kubelet
  sync::Mutex mutex_;
  bool may_remove_ ABSL_GUARDED_BY(mutex_) = true;
  std::set<std::string> asked_ ABSL_GUARDED_BY(mutex_);  // about folders
};

}  // namespace starling::local
