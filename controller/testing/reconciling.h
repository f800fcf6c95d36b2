// SPDX-License-Identifier: Apache-2.0
// For tests: one reconciler and the real store, and nobody who runs pods. What becomes of them, of
// the coordinator and of objects of others, each test says itself.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/clock/clock.h"
#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/objects.h"
#include "controller/testing/faulty_kube_client.h"
#include "controller/testing/test_world.h"
#include "gtest/gtest.h"

namespace starling::trainingjob {

class Reconciling : public testing::Test {
 protected:
  using Json = kube::Json;

  Reconciling() { Start("the seed of these tests: 32 bytes"); }

  void Start(const std::string& seed, Options options = {}) {
    reconciler_ = std::make_unique<TrainingJobReconciler>(
        client_, events_, links_, clock_,
        resources::Platform{.jobs_folder = "/jobs", .image = "", .seed = seed}, options);
  }
  void Start(const Options& options) { Start("the seed of these tests: 32 bytes", options); }
  // With budgets; nothing else of a cluster.
  void StartWithBudgets() {
    Options options;
    options.budgets = true;
    Start(options);
  }
  // While others wait for as long as `busy_`.
  void StartBusy() {
    Options options;
    options.first_status_wait = absl::Seconds(10);
    Start(options);
    reconciler_->UseBacklog([this] { return busy_; });
  }

  // `more` is merged into the job.
  void CreateJob(std::int64_t workers, const Json& more = Json::object()) {
    Json job = {{"apiVersion", "starling.dev/v1alpha1"},
                {"kind", "TrainingJob"},
                {"metadata", {{"name", "digits"}, {"namespace", "default"}}},
                {"spec",
                 {{"workload", {{"classification", {{"model", {{"mlp", Json::object()}}}}}}},
                  {"dataset", {{"train", {{"synthetic", Json::object()}}}}},
                  {"replicaSpecs", {{"worker", {{"replicas", workers}, {"maxReplicas", 32}}}}}}}};
    job.merge_patch(more);
    const auto made = store_->Create(kube::kTrainingJob, job);
    ASSERT_TRUE(made.ok()) << made.status();
  }
  void CreateContainerJob(std::int64_t workers) {
    const Json container = {
        {"name", "trainer"}, {"image", "python:3"}, {"command", Json::array({"python3"})}};
    CreateJob(workers,
              {{"spec",
                {{"workload", {{"classification", nullptr}, {"container", Json::object()}}},
                 {"dataset", nullptr},
                 {"replicaSpecs",
                  {{"worker",
                    {{"template", {{"spec", {{"containers", Json::array({container})}}}}}}}}}}}});
  }
  void PatchJob(const Json& patch) {
    const auto patched = store_->Patch(kube::kTrainingJob, key_, patch);
    ASSERT_TRUE(patched.ok()) << patched.status();
  }
  // With all that it owns.
  void DeleteJob() {
    ASSERT_TRUE(store_->Delete(kube::kTrainingJob, key_, {}).ok());
    kube::DeleteOptions now;
    now.grace_period_seconds = 0;
    for (const kube::ResourceKind& kind :
         {kube::kPod, kube::kSecret, kube::kConfigMap, kube::kService}) {
      for (const Json& object : All(kind)) {
        ASSERT_TRUE(store_->Delete(kind, kube::KeyOf(object), now).ok());
      }
    }
  }
  absl::StatusOr<runtime::Result> Reconcile() { return reconciler_->Reconcile(key_); }
  void MustReconcile() {
    const auto result = Reconcile();
    ASSERT_TRUE(result.ok()) << result.status();
  }

  // The pod's node says that it runs.
  void Run(const std::string& name, const std::string& node = "") {
    if (!node.empty()) {
      ASSERT_TRUE(store_->Patch(kube::kPod, Of(name), {{"spec", {{"nodeName", node}}}}).ok());
    }
    const Json status = {{"phase", "Running"},
                         {"podIP", "127.1.0.1"},
                         {"conditions", Json::array({{{"type", "Ready"}, {"status", "True"}}})}};
    ASSERT_TRUE(store_->PatchStatus(kube::kPod, Of(name), {{"status", status}}).ok());
  }
  void End(const std::string& name, int code) {
    const Json ended = {{"exitCode", code},
                        {"finishedAt", kube::FormatTimestamp(clock_.WallNow())}};
    const Json status = {
        {"phase", code == 0 ? "Succeeded" : "Failed"},
        {"containerStatuses",
         Json::array({{{"name", "trainer"}, {"state", {{"terminated", ended}}}}})}};
    ASSERT_TRUE(store_->PatchStatus(kube::kPod, Of(name), {{"status", status}}).ok());
  }
  // The coordinator says what is in `report_`.
  void Report() { links_.Report(UidOf("digits-coordinator-0"), report_); }
  // Until a coordinator leads.
  void Lead() {
    MustReconcile();
    Run("digits-coordinator-0");
    MustReconcile();
    report_.set_boot_id("boot");
    Report();
    MustReconcile();
    report_.set_incarnation(1);
    Report();
  }

  // As soon as an object of this kind is to be deleted, somebody puts another one of its name into
  // its place.
  void ReplaceBeforeDelete(const kube::ResourceKind& kind, const std::string& name, Json other) {
    BeforeDelete(kind, [this, kind, name, other = std::move(other)] {
      kube::DeleteOptions now;
      if (kind == kube::kPod) now.grace_period_seconds = 0;
      ASSERT_TRUE(store_->Delete(kind, Of(name), now).ok());
      ASSERT_TRUE(store_->Create(kind, other).ok());
    });
  }
  // `act` comes before the first deletion of an object of this kind.
  void BeforeDelete(const kube::ResourceKind& kind, std::function<void()> act) {
    client_.FailWritesThat(
        [kind, act = std::move(act), done = false](const kube::ResourceKind& written,
                                                   std::string_view verb) mutable {
          if (!done && written == kind && verb == "delete") {
            done = true;
            act();
          }
          return false;
        },
        kube::Fault::kRefuse);
  }

  static kube::ObjectKey Of(const std::string& name) { return {"default", name}; }
  // An object of nobody's.
  static Json Foreign(const kube::ResourceKind& kind, const std::string& name) {
    return {{"apiVersion", kind.ApiVersion()},
            {"kind", std::string(kind.kind)},
            {"metadata", {{"name", name}, {"namespace", "default"}}}};
  }
  // A null: there is none.
  Json Get(const kube::ResourceKind& kind, const std::string& name) {
    return store_->Get(kind, Of(name)).value_or(Json());
  }
  Json Job() { return Get(kube::kTrainingJob, "digits"); }
  Json Pod(const std::string& name) { return Get(kube::kPod, name); }
  Json Secret() { return Get(kube::kSecret, "digits-secret"); }
  std::string UidOf(const std::string& pod) { return kube::UidOf(Pod(pod)); }
  std::string State() { return kube::StringAt(Job(), "/status/state"); }
  // Empty: there is none, or it is not True.
  std::string ReasonOf(std::string_view condition) {
    const Json job = Job();
    if (!kube::IsConditionTrue(job, condition)) return "";
    return kube::StringAt(kube::FindCondition(job, condition), "/reason");
  }
  std::vector<Json> All(const kube::ResourceKind& kind) {
    return store_->List(kind, "", {}).value().items;
  }
  std::size_t Count(const kube::ResourceKind& kind) { return All(kind).size(); }
  std::size_t Pods() { return Count(kube::kPod); }
  // A null: there is none.
  Json Event(std::string_view reason) {
    for (const Json& event : All(kube::kEvent)) {
      if (kube::StringAt(event, "/reason") == reason) return event;
    }
    return {};
  }

  const runtime::Key key_{.ns = "default", .name = "digits"};
  clock::FakeClock clock_{absl::FromUnixSeconds(1'800'000'000)};
  std::unique_ptr<kube::KubeClient> store_ = [this] {
    kube::EmbeddedOptions options;
    options.optional_kinds = {kube::kKueueWorkload};
    return kube::OpenEmbeddedKubeClient(clock_, std::move(options)).value();
  }();
  ApiServer server_{*store_};
  kube::FaultyKubeClient client_{server_};
  runtime::EventRecorder events_{*store_, clock_, "test", "test"};
  FakeLinks links_{clock_};
  v1alpha1::CoordinatorReport report_;
  bool busy_ = true;
  std::unique_ptr<TrainingJobReconciler> reconciler_;
};

}  // namespace starling::trainingjob
