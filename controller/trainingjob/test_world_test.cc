// SPDX-License-Identifier: Apache-2.0
// The world of test_world.h, kept in the test program alone.
#include "controller/testing/test_world.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "common/status/check.h"
#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/garbage_collector.h"
#include "controller/kube/objects.h"
#include "controller/kube/training_job_admission.h"

namespace starling::trainingjob {
namespace {

using kube::Json;

constexpr std::int64_t kLastStep = 12;
const runtime::Key kKey{.ns = "default", .name = "digits"};

std::unique_ptr<kube::KubeClient> OpenStore(const clock::Clock& clock, bool admission) {
  kube::EmbeddedOptions options;
  if (admission) options.admission["TrainingJob"] = kube::AdmitTrainingJob;
  auto store = kube::OpenEmbeddedKubeClient(clock, std::move(options));
  STARLING_CHECK(store.ok(), "a store in memory opens");
  return *std::move(store);
}

std::string Phase(const Json& pod) { return kube::StringAt(pod, "/status/phase"); }

// One pod at a time, so that every run makes its writes in the same order.
Options OptionsFor(bool cluster) {
  Options options = cluster ? ClusterOptions() : Options();
  options.first_status_wait = ClusterOptions().first_status_wait;
  options.create_width = 1;
  return options;
}

bool HasEnded(const Json& pod) { return Phase(pod) == "Succeeded" || Phase(pod) == "Failed"; }

}  // namespace

void FakeLinks::Supervise(const runtime::Key& job, const std::vector<Supervision>& supervisions,
                          std::string_view /*job_uid*/) {
  std::map<std::string, Link> kept;
  for (const Supervision& supervision : supervisions) {
    const auto known = links_[job].find(supervision.pod_uid);
    Link& link = kept[supervision.pod_uid];
    if (known == links_[job].end()) {
      link.seen.pod_uid = supervision.pod_uid;
      link.last = clock_.Now();
    } else {
      link = known->second;
    }
    link.supervision = supervision;
  }
  links_[job] = std::move(kept);
}

std::vector<ObservedLink> FakeLinks::Look(const runtime::Key& job) const {
  std::vector<ObservedLink> seen;
  const auto found = links_.find(job);
  if (found == links_.end()) return seen;
  for (const auto& [pod_uid, link] : found->second) {
    seen.push_back(link.seen);
    seen.back().silent = clock_.Now() - link.last;
  }
  return seen;
}

const Supervision* FakeLinks::Told(const std::string& pod_uid) const {
  for (const auto& [job, links] : links_) {
    if (const auto link = links.find(pod_uid); link != links.end()) {
      return &link->second.supervision;
    }
  }
  return nullptr;
}

void FakeLinks::Report(const std::string& pod_uid, const v1alpha1::CoordinatorReport& report) {
  for (auto& [job, links] : links_) {
    const auto link = links.find(pod_uid);
    if (link == links.end()) continue;
    link->second.seen.heard = true;
    link->second.seen.report = report;
    link->second.last = clock_.Now();
  }
}

absl::StatusOr<kube::ObjectList> ApiServer::List(const kube::ResourceKind& kind,
                                                 std::string_view ns,
                                                 const kube::ListOptions& options) {
  auto list = ForwardingKubeClient::List(kind, ns, options);
  if (list.ok() && kind == kube::kPod && hidden_lists_ > 0) {
    --hidden_lists_;
    list->items.clear();
  }
  return list;
}

absl::StatusOr<ApiServer::Written> ApiServer::Write(const kube::ResourceKind& kind,
                                                    const kube::ObjectKey& key,
                                                    std::string_view verb, const Call& call) {
  const std::string write = absl::StrCat(std::string(verb), " ", std::string(kind.kind));
  ++writes_[write];
  const auto refused = refusals_.find(write);
  if (refused != refusals_.end() && !refused->second.ok()) return refused->second;
  if (kind == kube::kPod && verb == "create") {
    const auto pods = inner().List(kube::kPod, "", {});
    if (pods.ok() && pods->items.size() >= most_pods_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("pods \"", key.name, "\" is forbidden: exceeded quota: team"));
    }
  }
  return call();
}

TestWorld::TestWorld(bool admission, bool cluster, bool busy)
    : store_(OpenStore(clock_, admission)),
      server_(*store_),
      faulty_(server_),
      cluster_(cluster),
      busy_(busy) {
  StartController();
}

void TestWorld::StartController() {
  reconciler_.reset();
  events_ = std::make_unique<runtime::EventRecorder>(faulty_, clock_, "test", "test");
  links_ = std::make_unique<FakeLinks>(clock_);
  reconciler_ = std::make_unique<TrainingJobReconciler>(
      faulty_, *events_, *links_, clock_,
      resources::Platform{.jobs_folder = cluster_ ? "" : "/jobs",
                          .image = cluster_ ? "starling:test" : "",
                          .seed = "the seed of this world, of 32 bytes"},
      OptionsFor(cluster_));
  reconciler_->UseBacklog([this] { return busy_; });
}

void TestWorld::CreateContainerJob(std::int64_t workers) {
  const Json container = {{"name", "trainer"},
                          {"image", "python:3"},
                          {"command", Json::array({"python3", "train.py"})}};
  const Json job = {
      {"apiVersion", "starling.dev/v1alpha1"},
      {"kind", "TrainingJob"},
      {"metadata", {{"name", kKey.name}, {"namespace", kKey.ns}}},
      {"spec",
       {{"workload", {{"container", Json::object()}}},
        {"replicaSpecs",
         {{"worker",
           {{"replicas", workers},
            {"maxReplicas", 8},
            {"template", {{"spec", {{"containers", Json::array({container})}}}}}}}}}}}};
  const auto created = store_->Create(kube::kTrainingJob, job);
  STARLING_CHECK(created.ok(), created.status().ToString().c_str());
}

std::string TestWorld::ReasonOf(std::string_view condition) {
  const Json job = Job();
  if (job.is_null() || !kube::IsConditionTrue(job, condition)) return "";
  return kube::StringAt(kube::FindCondition(job, condition), "/reason");
}

void TestWorld::CreateJob(std::int64_t workers, std::int64_t servers) {
  Json job = {
      {"apiVersion", "starling.dev/v1alpha1"},
      {"kind", "TrainingJob"},
      {"metadata", {{"name", kKey.name}, {"namespace", kKey.ns}}},
      {"spec",
       {{"workload", {{"classification", {{"model", {{"mlp", {{"hidden", Json::array({8})}}}}}}}}},
        {"dataset", {{"train", {{"synthetic", {{"samples", 64}, {"shape", Json::array({4})}}}}}}},
        {"replicaSpecs", {{"worker", {{"replicas", workers}, {"maxReplicas", 8}}}}}}}};
  if (servers > 0) {
    job["spec"]["exchange"] = {{"parameterServer", Json::object()}};
    job["spec"]["replicaSpecs"]["parameterServer"] = {{"replicas", servers}};
  }
  const auto created = store_->Create(kube::kTrainingJob, job);
  STARLING_CHECK(created.ok(), created.status().ToString().c_str());
}

void TestWorld::PatchJob(const Json& patch) {
  const auto patched = store_->Patch(kube::kTrainingJob, kKey, patch);
  STARLING_CHECK(patched.ok(), patched.status().ToString().c_str());
}

void TestWorld::DeleteJob() {
  STARLING_CHECK(store_->Delete(kube::kTrainingJob, kKey, {}).ok(), "the job is there");
}

std::vector<Json> TestWorld::List(const kube::ResourceKind& kind) {
  auto list = store_->List(kind, "", {});
  STARLING_CHECK(list.ok(), "the store answers");
  return std::move(list->items);
}

std::vector<Json> TestWorld::Pods() { return List(kube::kPod); }

std::size_t TestWorld::CountPods() { return Pods().size(); }

std::string TestWorld::SecretKey() {
  const auto secret = store_->Get(kube::kSecret, {kKey.ns, resources::SecretName(kKey.name)});
  return secret.ok() ? kube::StringAt(*secret, "/data/data-plane") : "";
}

bool TestWorld::PodRuns(const std::string& name) {
  const auto pod = store_->Get(kube::kPod, {kKey.ns, name});
  return pod.ok() && Phase(*pod) == "Running" && !kube::IsBeingDeleted(*pod);
}

void TestWorld::KillPod(const std::string& name) {
  const auto pod = store_->Get(kube::kPod, {kKey.ns, name});
  if (pod.ok()) EndPod(*pod, 137, 9);
}

void TestWorld::Hang(const std::string& coordinator) {
  const auto pod = store_->Get(kube::kPod, {kKey.ns, coordinator});
  if (pod.ok()) coordinators_[kube::UidOf(*pod)].hung = true;
}

Json TestWorld::Job() {
  const auto job = store_->Get(kube::kTrainingJob, kKey);
  return job.ok() ? *job : Json();
}

std::string TestWorld::State() {
  const Json job = Job();
  return job.is_null() ? "Gone" : kube::StringAt(job, "/status/state");
}

void TestWorld::Tick() {
  clock_.Advance(absl::Milliseconds(100));
  Kubelet();
  Training();
  Reconcile();
}

void TestWorld::EndPod(const Json& pod, std::int64_t code, std::int64_t signal) {
  Json ended = {{"exitCode", code}, {"finishedAt", kube::FormatTimestamp(clock_.WallNow())}};
  if (signal > 0) ended["signal"] = signal;
  const Json status = {{"phase", code == 0 ? "Succeeded" : "Failed"},
                       {"containerStatuses",
                        Json::array({{{"name", "trainer"}, {"state", {{"terminated", ended}}}}})}};
  (void)store_->PatchStatus(kube::kPod, kube::KeyOf(pod), {{"status", status}});
}

void TestWorld::Kubelet() {
  for (const Json& pod : Pods()) {
    if (kube::IsBeingDeleted(pod)) {
      kube::DeleteOptions now;
      now.grace_period_seconds = 0;
      (void)store_->Delete(kube::kPod, kube::KeyOf(pod), now);
    } else if (Phase(pod).empty() || Phase(pod) == "Pending") {
      const Json status = {{"phase", "Running"},
                           {"podIP", absl::StrCat("127.1.0.", pod["metadata"]["name"].size())},
                           {"conditions", Json::array({{{"type", "Ready"}, {"status", "True"}}})}};
      (void)store_->PatchStatus(kube::kPod, kube::KeyOf(pod), {{"status", status}});
    } else if (!HasEnded(pod) && (leaving_.contains(kube::UidOf(pod)) || IsOver(pod))) {
      EndPod(pod, 0, 0);
    }
  }
}

bool TestWorld::IsOver(const Json& pod) {
  constexpr int kTicks = 8;
  if (kube::AnnotationOf(pod, kRoundAnnotation).empty()) return false;
  return ++ages_[kube::UidOf(pod)] > kTicks;
}

void TestWorld::Training() {
  for (const Json& pod : Pods()) {
    if (Phase(pod) != "Running" || kube::IsBeingDeleted(pod)) continue;
    if (kube::LabelOf(pod, resources::kRoleLabel) != "coordinator") continue;
    Coordinator& coordinator = coordinators_[kube::UidOf(pod)];
    if (coordinator.boot_id.empty()) coordinator.boot_id = "boot-" + kube::UidOf(pod);
    if (!coordinator.hung) Lead(pod, coordinator);
  }
}

void TestWorld::Lead(const Json& pod, Coordinator& coordinator) {
  const Supervision* told = links_->Told(kube::UidOf(pod));
  if (told == nullptr) return;
  v1alpha1::CoordinatorReport report;
  if (told->boot_id == coordinator.boot_id) {
    if (told->grant.has_value()) coordinator.incarnation = told->grant->incarnation();
    if (told->desired.has_value()) coordinator.desired = told->desired;
  }
  if (coordinator.incarnation > 0 && coordinator.desired.has_value() &&
      Obey(*coordinator.desired, report)) {
    leaving_.insert(kube::UidOf(pod));
  }
  report.set_boot_id(coordinator.boot_id);
  report.set_incarnation(coordinator.incarnation);
  if (coordinator.incarnation > 0) report.set_newest_view((coordinator.incarnation << 32) + 1);
  links_->Report(kube::UidOf(pod), report);
}

// Returns whether all may go.
bool TestWorld::Obey(const v1alpha1::Desired& desired, v1alpha1::CoordinatorReport& report) {
  std::int64_t live = 0;
  for (const v1alpha1::Pod& pod : desired.pods()) {
    if (!PodRuns(pod.name())) continue;
    v1alpha1::MemberStatus& member = *report.add_members();
    member.mutable_id()->set_pod_uid(pod.uid());
    member.set_connected(true);
    const bool drained = pod.state() == v1alpha1::Pod::DRAINING;
    member.set_drained(drained);
    member.set_in_view(!drained);
    if (!drained) ++live;
    if (desired.finished()) leaving_.insert(pod.uid());
  }
  report.set_view_synced(live > 0);
  report.set_stopped(desired.settings().halt());
  if (live >= desired.min_workers() && !desired.settings().halt() && step_ < kLastStep) ++step_;
  report.set_settled_step(step_);
  report.mutable_training()->mutable_progress()->set_step(step_);
  if (step_ >= kLastStep) report.mutable_training()->mutable_result()->set_steps(step_);
  return desired.finished();
}

void TestWorld::Reconcile() {
  (void)kube::CollectGarbage(faulty_, kube::OwnedKinds());
  for (int i = 0; i < 10; ++i) {
    const std::int64_t before = faulty_.writes();
    const bool ok =
        reconciler_->Reconcile(kKey).ok() && kube::CollectGarbage(faulty_, kube::OwnedKinds()).ok();
    if (faulty_.crashed()) {
      ++crashes_;
      faulty_.Heal();
      StartController();
    } else if (ok && faulty_.writes() == before) {
      return;
    }
  }
}

std::string TestWorld::Summary() {
  std::string summary;
  for (const kube::ResourceKind& kind :
       {kube::kPod, kube::kSecret, kube::kConfigMap, kube::kService}) {
    for (const Json& object : List(kind)) {
      absl::StrAppend(&summary, std::string(kind.kind), " ", kube::NameOf(object), " ",
                      Phase(object), "\n");
    }
  }
  const Json job = Job();
  if (job.is_null()) return summary + "no job\n";
  const Json& status = job["status"];
  for (const char* field : {"state", "result", "failures", "restarts", "replicas", "coordinator",
                            "replicaStatuses", "round"}) {
    if (!status.contains(field)) continue;
    Json value = status[field];
    if (value.is_object()) {
      value.erase("bootId");
      value.erase("podUid");
      value.erase("seconds");
    }
    absl::StrAppend(&summary, field, " ", json::Dump(value), "\n");
  }
  for (const Json& condition : kube::At(status, "/conditions")) {
    absl::StrAppend(&summary, kube::StringAt(condition, "/type"), " ",
                    kube::StringAt(condition, "/status"), " ", kube::StringAt(condition, "/reason"),
                    "\n");
  }
  for (const Json& incident : kube::At(status, "/incidents")) {
    absl::StrAppend(&summary, kube::StringAt(incident, "/reason"), " ",
                    kube::StringAt(incident, "/pod"), "\n");
  }
  return summary;
}

}  // namespace starling::trainingjob
