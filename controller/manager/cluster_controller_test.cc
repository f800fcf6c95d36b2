// SPDX-License-Identifier: Apache-2.0
// Controllers of a cluster against a store that stands in for the API server: alone, in turn, and
// with a leader that is stopped beyond its lease, at any of its writes, and wakes.
#include "controller/manager/cluster_controller.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/objects.h"
#include "controller/kube/training_job_admission.h"
#include "controller/runtime/forwarding_kube_client.h"
#include "gtest/gtest.h"

namespace starling::manager {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(30);

// A process that can be stopped: from its nth write on every call waits until it is woken.
class Stoppable final : public runtime::ForwardingKubeClient {
 public:
  using ForwardingKubeClient::ForwardingKubeClient;

  void StopAtWrite(int nth) {
    sync::MutexLock lock(mutex_);
    stop_at_ = writes_ + nth;
  }
  bool stopped() {
    sync::MutexLock lock(mutex_);
    return stopped_;
  }
  void Wake() {
    sync::MutexLock lock(mutex_);
    woken_ = true;
    stopped_ = false;
    stop_at_ = 0;
    changed_.NotifyAll();
  }
  // Writes that succeeded after it was woken, by verb; the lease's own not counted.
  std::map<std::string, int> late_writes() {
    sync::MutexLock lock(mutex_);
    return late_;
  }

  absl::StatusOr<Json> Get(const kube::ResourceKind& kind, const kube::ObjectKey& key) override {
    Pass();
    return ForwardingKubeClient::Get(kind, key);
  }
  absl::StatusOr<kube::ObjectList> List(const kube::ResourceKind& kind, std::string_view ns,
                                        const kube::ListOptions& options) override {
    Pass();
    return ForwardingKubeClient::List(kind, ns, options);
  }
  absl::StatusOr<kube::MessagePtr> GetMessage(const kube::ResourceKind& kind,
                                              const kube::ObjectKey& key) override {
    Pass();
    return ForwardingKubeClient::GetMessage(kind, key);
  }
  absl::StatusOr<kube::MessageList> ListMessages(const kube::ResourceKind& kind,
                                                 std::string_view ns,
                                                 const kube::ListOptions& options) override {
    Pass();
    return ForwardingKubeClient::ListMessages(kind, ns, options);
  }

 protected:
  absl::StatusOr<Written> Write(const kube::ResourceKind& kind, const kube::ObjectKey& /*key*/,
                                std::string_view verb, const Call& call) override {
    bool late = false;
    if (kind == kube::kLease) {
      Pass();
    } else {
      sync::MutexLock lock(mutex_);
      if (++writes_ == stop_at_) stopped_ = true;
      while (stopped_) changed_.Wait(mutex_);
      late = woken_;
    }
    absl::StatusOr<Written> result = call();
    sync::MutexLock lock(mutex_);
    if (late && result.ok()) ++late_[std::string(verb)];
    return result;
  }

 private:
  void Pass() {
    sync::MutexLock lock(mutex_);
    while (stopped_) changed_.Wait(mutex_);
  }

  sync::Mutex mutex_;
  sync::Condition changed_;
  int writes_ ABSL_GUARDED_BY(mutex_) = 0;
  int stop_at_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, int> late_ ABSL_GUARDED_BY(mutex_);
};

// The answer to a GET of a server on this machine.
std::string Fetch(int port, const std::string& path) {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    if (send(descriptor, request.data(), request.size(), MSG_NOSIGNAL) > 0) {
      char buffer[4096];
      for (ssize_t size = 0; (size = recv(descriptor, buffer, sizeof(buffer), 0)) > 0;) {
        answer.append(buffer, static_cast<std::size_t>(size));
      }
    }
  }
  close(descriptor);
  return answer;
}

class ClusterTest : public testing::Test {
 protected:
  ClusterTest() { OpenStore({}); }

  // Anew, as that of a cluster where these kinds of others are installed.
  void OpenStore(std::vector<kube::ResourceKind> installed) {
    kube::EmbeddedOptions options;
    options.admission["TrainingJob"] = kube::AdmitTrainingJob;
    options.optional_kinds = std::move(installed);
    store_ = *kube::OpenEmbeddedKubeClient(clock_, std::move(options));
  }

  std::unique_ptr<ClusterController> Start(kube::KubeClient& client, metrics::Registry& registry,
                                           bool leader_elect = true) {
    Options options;
    options.cluster.image = "starling:test";
    options.cluster.leader_elect = leader_elect;
    options.cluster.metrics_bind_address = "127.0.0.1:0";
    options.cluster.health_probe_bind_address = "127.0.0.1:0";
    options.cluster.election.retry = absl::Milliseconds(20);
    auto controller = ClusterController::Start(options, client, client, registry, clock_);
    EXPECT_TRUE(controller.ok()) << controller.status();
    return *std::move(controller);
  }

  // Waits in real time, for threads; the clock of the controllers moves by `step` a millisecond.
  template <typename Condition>
  bool Until(Condition holds, absl::Duration step = absl::Milliseconds(1)) {
    const absl::Time limit = absl::Now() + kTimeout;
    while (!holds()) {
      if (absl::Now() > limit) return false;
      clock_.Advance(step);
      absl::SleepFor(absl::Milliseconds(1));
    }
    return true;
  }
  static auto Reaches(ClusterController& controller, ClusterState state) {
    return [&controller, state] { return *controller.Advance() == state; };
  }

  void CreateJob(int workers, const Json& labels = Json::object()) {
    const Json job = {
        {"apiVersion", "starling.dev/v1alpha1"},
        {"kind", "TrainingJob"},
        {"metadata", {{"name", "digits"}, {"namespace", "default"}, {"labels", labels}}},
        {"spec",
         {{"workload", {{"classification", {{"model", {{"mlp", {{"hidden", {8}}}}}}}}}},
          {"dataset",
           {{"train", {{"synthetic", {{"samples", 64}, {"shape", {4}}, {"classes", 2}}}}},
            {"globalBatchSize", 8}}},
          {"optimizer", {{"sgd", {{"learningRate", 0.1}}}}},
          {"stop", {{"epochs", 1}}},
          {"replicaSpecs", {{"worker", {{"replicas", workers}}}}}}}};
    const auto created = store_->Create(kube::kTrainingJob, job);
    ASSERT_TRUE(created.ok()) << created.status();
  }
  void Scale(int workers) {
    const Json patch = {{"spec", {{"replicaSpecs", {{"worker", {{"replicas", workers}}}}}}}};
    ASSERT_TRUE(store_->Patch(kube::kTrainingJob, {"default", "digits"}, patch).ok());
  }
  // Name to UID.
  std::map<std::string, std::string> Pods() {
    std::map<std::string, std::string> pods;
    const kube::ObjectList list = *store_->List(kube::kPod, "default", {});
    for (const Json& pod : list.items) {
      if (!kube::IsBeingDeleted(pod)) pods[kube::NameOf(pod)] = kube::UidOf(pod);
    }
    return pods;
  }
  std::int64_t Transition() {
    return kube::IntAt(*store_->Get(kube::kLease, {"starling-system", "starling-controller"}),
                       "/spec/leaseTransitions");
  }

  clock::FakeClock clock_{absl::FromUnixSeconds(1'800'000'000)};
  std::unique_ptr<kube::KubeClient> store_;
};

TEST_F(ClusterTest, OneControllerBecomesReadyLeadsAndMakesPods) {
  metrics::Registry registry;
  const auto controller = Start(*store_, registry);
  ASSERT_TRUE(Until(Reaches(*controller, ClusterState::kLeading)));
  CreateJob(2);
  EXPECT_TRUE(Until([&] { return Pods().size() == 3; }));

  EXPECT_THAT(Fetch(controller->probe_port(), "/healthz"), HasSubstr("200 OK"));
  EXPECT_THAT(Fetch(controller->probe_port(), "/readyz"), HasSubstr("200 OK"));
  EXPECT_THAT(Fetch(controller->probe_port(), "/metrics"), HasSubstr("404"));
  const std::string text = Fetch(controller->metrics_port(), "/metrics");
  for (const char* name :
       {"controller_runtime_reconcile_total{controller=\"trainingjob\",result=\"success\"}",
        "controller_runtime_reconcile_time_seconds_count", "controller_runtime_active_workers",
        "controller_runtime_max_concurrent_reconciles{controller=\"trainingjob\"} 8",
        "workqueue_depth", "workqueue_adds_total", "workqueue_queue_duration_seconds_bucket",
        "workqueue_work_duration_seconds_bucket", "workqueue_unfinished_work_seconds",
        "workqueue_longest_running_processor_seconds", "workqueue_retries_total",
        "leader_election_master_status{name=\"starling-controller\"} 1",
        "process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds",
        "starling_controller_jobs{job_namespace=\"default\",state=\"Pending\"} 1"}) {
    EXPECT_THAT(text, HasSubstr(name));
  }
}

TEST_F(ClusterTest, AJobThatEndsIsCountedOnceByTheOneThatLeads) {
  metrics::Registry of_leader;
  metrics::Registry of_standby;
  const auto leader = Start(*store_, of_leader);
  ASSERT_TRUE(Until(Reaches(*leader, ClusterState::kLeading)));
  const auto standby = Start(*store_, of_standby);
  ASSERT_TRUE(Until(Reaches(*standby, ClusterState::kStandby)));
  CreateJob(1);
  ASSERT_TRUE(Until([&] { return Pods().size() == 2; }));
  const auto state = [&] {
    return kube::StringAt(*store_->Get(kube::kTrainingJob, {"default", "digits"}), "/status/state");
  };
  ASSERT_TRUE(Until([&] { return !state().empty(); }));
  // As the node of a worker says it whose data are not there.
  const Json wrong = {{"name", "trainer"},
                      {"ready", false},
                      {"restartCount", 0},
                      {"state", {{"terminated", {{"exitCode", 2}}}}}};
  const Json ended = {{"status", {{"phase", "Failed"}, {"containerStatuses", {wrong}}}}};
  ASSERT_TRUE(store_->PatchStatus(kube::kPod, {"default", "digits-worker-0"}, ended).ok());
  ASSERT_TRUE(Until([&] { return state() == "Failed"; }));
  const std::string counted = "starling_controller_jobs_finished_total{";
  EXPECT_TRUE(Until([&] {
    return Fetch(leader->metrics_port(), "/metrics").find(counted) != std::string::npos;
  }));
  const std::string text = Fetch(leader->metrics_port(), "/metrics");
  EXPECT_THAT(text, testing::ContainsRegex("jobs_finished_total.*result=\"Failed\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("starling_controller_job_duration_seconds_count 1\n"));
  EXPECT_THAT(Fetch(standby->metrics_port(), "/metrics"), Not(HasSubstr(counted)));
}

TEST_F(ClusterTest, AStandbyIsReadyAndTakesOverAtOnceWhenTheLeaderIsAskedToEnd) {
  metrics::Registry of_a;
  metrics::Registry of_b;
  auto a = Start(*store_, of_a);
  ASSERT_TRUE(Until(Reaches(*a, ClusterState::kLeading)));
  const auto b = Start(*store_, of_b);
  ASSERT_TRUE(Until(Reaches(*b, ClusterState::kStandby)));
  EXPECT_THAT(Fetch(b->probe_port(), "/readyz"), HasSubstr("200 OK"));
  CreateJob(1);
  ASSERT_TRUE(Until([&] { return Pods().size() == 2; }));
  const auto pods = Pods();

  const absl::Time asked = clock_.Now();
  a.reset();
  ASSERT_TRUE(Until(Reaches(*b, ClusterState::kLeading)));
  EXPECT_LT(clock_.Now() - asked, absl::Seconds(10)) << "nobody waits for a lease to end";
  EXPECT_EQ(Transition(), 2);
  EXPECT_EQ(Pods(), pods);
  Scale(3);
  EXPECT_TRUE(Until([&] { return Pods().size() == 4; }));
}

TEST_F(ClusterTest, WithoutElectionItLeadsAloneUnderAHigherTransition) {
  for (int i = 1; i <= 3; ++i) {
    metrics::Registry registry;
    const auto controller = Start(*store_, registry, /*leader_elect=*/false);
    ASSERT_TRUE(Until(Reaches(*controller, ClusterState::kLeading)));
    EXPECT_EQ(Transition(), i);
  }
}

constexpr const char* kQueueLabel = "kueue.x-k8s.io/queue-name";
const kube::ObjectKey kWorkload{"default", "trainingjob-digits"};

TEST_F(ClusterTest, AWorkloadsAdmissionWakesItsJobAtOnce) {
  OpenStore({kube::kKueueWorkload});
  metrics::Registry registry;
  const auto controller = Start(*store_, registry);
  ASSERT_TRUE(Until(Reaches(*controller, ClusterState::kLeading)));
  CreateJob(2, {{kQueueLabel, "research"}});
  const auto held = [&] {
    const Json job = *store_->Get(kube::kTrainingJob, {"default", "digits"});
    return store_->Get(kube::kKueueWorkload, kWorkload).ok() &&
           kube::StringAt(job, "/status/state") == "Suspended";
  };
  ASSERT_TRUE(Until(held));
  // What its first reconciles left to be done is over; the next look of its own is far away.
  const absl::Time settled = clock_.Now() + absl::Seconds(3);
  ASSERT_TRUE(Until([&] { return clock_.Now() > settled; }, absl::Milliseconds(5)));
  ASSERT_TRUE(Pods().empty());

  const absl::Time admitted = clock_.Now();
  const Json condition = {{"type", "Admitted"},
                          {"status", "True"},
                          {"reason", "Admitted"},
                          {"message", "there is room"}};
  const Json quota = {{"type", "QuotaReserved"},
                      {"status", "True"},
                      {"reason", "QuotaReserved"},
                      {"message", "there is room"}};
  ASSERT_TRUE(store_
                  ->PatchStatus(kube::kKueueWorkload, kWorkload,
                                {{"status", {{"conditions", Json::array({quota, condition})}}}})
                  .ok());
  EXPECT_TRUE(Until([&] { return Pods().size() == 3; }));
  EXPECT_LT(clock_.Now() - admitted, absl::Seconds(10)) << "the job did not wait for its own look";
}

TEST_F(ClusterTest, AQueueThatIsNotInstalledIsToldByConditionAndEvent) {
  metrics::Registry registry;
  const auto controller = Start(*store_, registry);
  ASSERT_TRUE(Until(Reaches(*controller, ClusterState::kLeading)));
  CreateJob(1, {{kQueueLabel, "research"}});
  ASSERT_TRUE(Until([&] { return Pods().size() == 2; })) << "the job runs without it";
  std::string told;
  EXPECT_TRUE(Until([&] {
    const kube::ObjectList events = *store_->List(kube::kEvent, "default", {});
    for (const Json& event : events.items) {
      if (kube::StringAt(event, "/reason") == "SchedulingIgnored") {
        told = kube::StringAt(event, "/note");
      }
    }
    return !told.empty();
  }));
  EXPECT_THAT(told, HasSubstr(kQueueLabel));
  const Json job = *store_->Get(kube::kTrainingJob, {"default", "digits"});
  std::string condition;
  for (const Json& found : kube::At(job, "/status/conditions")) {
    if (kube::StringAt(found, "/type") == "Degraded") {
      condition = kube::StringAt(found, "/message");
    }
  }
  EXPECT_THAT(condition, HasSubstr("Kueue's Workload"));
}

// Stopped at its nth write, which it had already decided on and been allowed, the leader wakes when
// another has long taken over and the user has changed his mind.
class StoppedLeader : public ClusterTest, public testing::WithParamInterface<int> {};

TEST_P(StoppedLeader, WakesWithoutDoingHarm) {
  Stoppable of_a(*store_);
  metrics::Registry registry_a;
  metrics::Registry registry_b;
  auto a = Start(of_a, registry_a);
  ASSERT_TRUE(Until(Reaches(*a, ClusterState::kLeading)));
  of_a.StopAtWrite(GetParam());
  CreateJob(2);
  ASSERT_TRUE(Until([&] { return of_a.stopped(); }));

  const auto b = Start(*store_, registry_b);
  const std::map<std::string, std::string> before = Pods();
  ASSERT_TRUE(Until(Reaches(*b, ClusterState::kLeading), absl::Seconds(1)));
  ASSERT_TRUE(Until([&] { return Pods().size() == 3; }, absl::Milliseconds(10)));
  for (const auto& [name, uid] : before) EXPECT_EQ(Pods()[name], uid) << "adopted, not replaced";
  Scale(1);
  const auto wanted = [&] {
    std::vector<std::string> names;
    for (const auto& [name, uid] : Pods()) names.push_back(name);
    return names == std::vector<std::string>{"digits-coordinator-0", "digits-worker-0"};
  };
  ASSERT_TRUE(Until(wanted, absl::Milliseconds(10)));

  of_a.Wake();
  ASSERT_TRUE(Until(Reaches(*a, ClusterState::kLost)));
  a.reset();
  // What A had on its way reaches the server; nothing else does, and nothing is changed by it.
  EXPECT_TRUE(Until(wanted, absl::Milliseconds(10)));
  for (const auto& [verb, count] : of_a.late_writes()) {
    EXPECT_EQ(verb, "create") << "updates, patches and deletes are refused";
    EXPECT_LE(count, 3) << "at most two pods that were made at once, and an event";
  }
  EXPECT_EQ(Transition(), 2);
}

INSTANTIATE_TEST_SUITE_P(AtWrite, StoppedLeader, testing::Range(1, 9));

}  // namespace
}  // namespace starling::manager
