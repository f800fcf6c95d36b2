// SPDX-License-Identifier: Apache-2.0
// For tests: a small world around the reconciler. The store is the real one; kubelet, coordinator
// and workers are models that do the least that the real ones promise. The controller may die after
// any write and be started anew.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock/clock.h"
#include "controller/kube/kube_client.h"
#include "controller/runtime/event_recorder.h"
#include "controller/runtime/forwarding_kube_client.h"
#include "controller/testing/faulty_kube_client.h"
#include "controller/trainingjob/coordinator_links.h"
#include "controller/trainingjob/trainingjob_reconciler.h"

namespace starling::trainingjob {

// Remembers what it is told; the world brings reports. Confined to one thread.
class FakeLinks final : public CoordinatorLinks {
 public:
  explicit FakeLinks(const clock::Clock& clock) : clock_(clock) {}

  void Supervise(const runtime::Key& job, const std::vector<Supervision>& supervisions,
                 std::string_view job_uid) override;
  std::vector<ObservedLink> Look(const runtime::Key& job) const override;

  // What the coordinator of this pod is told; null: nobody speaks with it.
  const Supervision* Told(const std::string& pod_uid) const;
  void Report(const std::string& pod_uid, const v1alpha1::CoordinatorReport& report);

 private:
  struct Link {
    Supervision supervision;
    ObservedLink seen;
    absl::Time last;
  };
  const clock::Clock& clock_;
  std::map<runtime::Key, std::map<std::string, Link>> links_;  // by pod UID
};

// What stands between the controller and the store: a quota, a copy that is late, a count of all
// writes. Confined to one thread.
class ApiServer final : public runtime::ForwardingKubeClient {
 public:
  using ForwardingKubeClient::ForwardingKubeClient;

  // No pod is created while so many exist.
  void LimitPods(std::size_t most) { most_pods_ = most; }
  // Writes like "delete Pod" are not made while this is not OK: what who tries is told.
  void Refuse(const std::string& write, absl::Status why) { refusals_[write] = std::move(why); }
  void RefusePods(absl::Status why) { Refuse("create Pod", std::move(why)); }
  // The next lists of pods are from before any of them was made.
  void HidePods(int lists) { hidden_lists_ = lists; }
  // "create Pod" and the like; how often so far.
  const std::map<std::string, int>& writes() const { return writes_; }

  absl::StatusOr<kube::ObjectList> List(const kube::ResourceKind& kind, std::string_view ns,
                                        const kube::ListOptions& options) override;

 protected:
  absl::StatusOr<Written> Write(const kube::ResourceKind& kind, const kube::ObjectKey& key,
                                std::string_view verb, const Call& call) override;

 private:
  std::size_t most_pods_ = 1000;
  int hidden_lists_ = 0;
  std::map<std::string, absl::Status> refusals_;
  std::map<std::string, int> writes_;
};

// Confined to one thread.
class TestWorld {
 public:
  // Without admission, whatever is written is stored. `cluster`: with a real cluster's options.
  // `busy`: other jobs always wait.
  explicit TestWorld(bool admission = true, bool cluster = false, bool busy = false);

  // What happens outside the controller.
  void CreateJob(std::int64_t workers, std::int64_t servers = 0);
  void CreateContainerJob(std::int64_t workers);  // its containers run for 8 ticks
  void PatchJob(const kube::Json& patch);
  void DeleteJob();
  void KillPod(const std::string& name);  // its processes, with signal 9
  void Hang(const std::string& coordinator);

  kube::Json Job();     // null: not there
  std::string State();  // status.state, or "Gone"
  std::int64_t step() const { return step_; }
  bool PodRuns(const std::string& name);
  std::size_t CountPods();
  std::string SecretKey();
  std::string ReasonOf(std::string_view condition);  // empty: there is none, or it is not True
  bool busy() const { return busy_; }
  ApiServer& server() { return server_; }

  // 100 ms: kubelet, training, controller.
  void Tick();

  // Dies at the nth write from now on.
  void CrashAt(std::int64_t nth, kube::Fault fault) { faulty_.FailWrite(nth, fault); }
  std::int64_t writes() const { return faulty_.writes(); }
  int crashes() const { return crashes_; }

  // All that should be the same however the controller was disturbed; times are not.
  std::string Summary();

 private:
  struct Coordinator {
    std::string boot_id;
    std::uint64_t incarnation = 0;
    std::optional<v1alpha1::Desired> desired;
    bool hung = false;
  };

  void StartController();
  void Kubelet();
  void Training();
  void Lead(const kube::Json& pod, Coordinator& coordinator);
  bool Obey(const v1alpha1::Desired& desired, v1alpha1::CoordinatorReport& report);
  void Reconcile();
  bool IsOver(const kube::Json& pod);
  void EndPod(const kube::Json& pod, std::int64_t code, std::int64_t signal);
  std::vector<kube::Json> List(const kube::ResourceKind& kind);
  std::vector<kube::Json> Pods();

  clock::FakeClock clock_{absl::FromUnixSeconds(1'800'000'000)};
  std::unique_ptr<kube::KubeClient> store_;
  ApiServer server_;
  kube::FaultyKubeClient faulty_;
  std::unique_ptr<runtime::EventRecorder> events_;
  std::unique_ptr<FakeLinks> links_;
  std::unique_ptr<TrainingJobReconciler> reconciler_;
  std::map<std::string, Coordinator> coordinators_;  // by pod UID
  std::set<std::string> leaving_;                    // UIDs of pods that are let go
  std::map<std::string, int> ages_;                  // of containers that are not ours, in ticks
  bool cluster_ = false;
  bool busy_ = false;
  std::int64_t step_ = 0;
  int crashes_ = 0;
};

}  // namespace starling::trainingjob
