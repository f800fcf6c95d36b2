// SPDX-License-Identifier: Apache-2.0
// What holds of every decision, whatever is observed.
#include <random>
#include <set>
#include <utility>

#include "controller/testing/test_scene.h"
#include "controller/trainingjob/reasons.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace starling::trainingjob {
namespace {

// A random state, in which nothing need fit together.
class RandomScene {
 public:
  explicit RandomScene(std::uint64_t seed) : random_(seed) {}

  Scene Make() {
    Scene scene;
    Spec(scene);
    Status(scene);
    for (std::uint64_t i = Below(8); i > 0; --i) Pod(scene);
    for (std::uint64_t i = Below(3); i > 0; --i) {
      scene.seen.configs.push_back({static_cast<std::int64_t>(Below(5)), Half()});
    }
    scene.seen.has_secret = Half();
    scene.seen.has_service = Half();
    scene.seen.deleting = Below(10) == 0;
    if (Below(10) == 0) scene.seen.spec_error = "spec: wrong";
    if (Half()) Link(scene);
    if (Half()) Standby(scene);
    scene.seen.since_status_write = absl::Milliseconds(static_cast<std::int64_t>(Below(3000)));
    return scene;
  }

 private:
  std::uint64_t Below(std::uint64_t bound) { return random_() % bound; }
  bool Half() { return Below(2) == 0; }
  std::int64_t Number() {
    static constexpr std::int64_t kOdd[] = {-5, -1, 0, 1, 2, 3, 17, 100, 1LL << 40};
    return kOdd[Below(std::size(kOdd))];
  }
  absl::Time Moment(const Scene& scene) {
    return scene.now + absl::Seconds(static_cast<std::int64_t>(Below(200)) - 100);
  }

  void Spec(Scene& scene) {
    if (Below(8) == 0) scene.seen.spec.Clear();
    if (Half()) scene.worker().set_replicas(static_cast<std::int64_t>(Below(30)) - 2);
    if (Half()) scene.worker().set_min_replicas(Number());
    if (Half()) scene.worker().set_max_replicas(Number());
    scene.worker().set_restart_policy(static_cast<v1alpha1::RestartPolicy>(Below(4)));
    scene.policy().set_suspend(Half());
    if (Half()) scene.policy().set_backoff_limit(Number());
    if (Half()) scene.policy().set_active_deadline_seconds(Number());
    if (Half()) scene.policy().set_ttl_seconds_after_finished(Number());
    scene.policy().set_clean_pod_policy(static_cast<v1alpha1::CleanPodPolicy>(Below(4)));
    scene.seen.spec.set_reproducible(Half());
    if (Below(3) == 0) scene.options = ClusterOptions();
    if (Below(5) == 0) scene.seen.spec.mutable_workload()->mutable_container();
    if (Below(20) == 0) scene.policy().set_managed_by("somebody.else/entirely");
    scene.policy().set_success_policy(static_cast<v1alpha1::SuccessPolicy>(Below(3)));
    if (Half()) {
      scene.worker().mutable_on_out_of_memory()->set_factor(Half() ? 1.5 : -3);
      scene.worker().mutable_on_out_of_memory()->set_maximum(Half() ? "1Gi" : "much");
    }
    scene.seen.queueing.hold = Below(8) == 0;
    if (Below(8) == 0) scene.seen.queueing.worker_limit = Number();
    scene.seen.checkpoint_durable = Half();
    if (Below(8) == 0) {
      scene.seen.refusal =
          Refusal{kQuotaExceeded, "full", Moment(scene), static_cast<int>(Below(9))};
    }
    for (const char* name : {"a", "b"}) {
      if (Half()) continue;
      ObservedNode& node = scene.seen.nodes[name];
      node.exists = Below(4) != 0;
      node.ready = node.exists && Half();
      if (Below(4) == 0) node.departure = "a taint";
    }
    if (Below(4) == 0) scene.seen.spec.mutable_dataset()->set_global_batch_size(Number());
    if (Below(4) == 0) Servers(scene);
  }

  void Servers(Scene& scene) {
    v1alpha1::ParameterServerSpec& servers = scene.servers(static_cast<std::int64_t>(Below(6)) - 1);
    if (Half()) servers.set_min_replicas(Number());
    if (Half()) servers.set_max_replicas(Number());
    servers.set_restart_policy(static_cast<v1alpha1::RestartPolicy>(Below(4)));
    if (Half()) scene.seen.spec.mutable_exchange()->mutable_parameter_server()->set_replication(3);
    scene.seen.has_server_budget = Half();
  }

  void Status(Scene& scene) {
    v1alpha1::TrainingJobStatus& status = scene.seen.status;
    static constexpr const char* kTypes[] = {"Created",   "Running",   "Restarting",
                                             "Suspended", "Succeeded", "Failed"};
    static constexpr const char* kValues[] = {"True", "False", "Unknown", "", "odd"};
    for (const char* type : kTypes) {
      if (Below(4) != 0) continue;
      v1alpha1::Condition& condition = *status.add_conditions();
      condition.set_type(type);
      condition.set_status(kValues[Below(5)]);
      if (Half()) SetTime(condition.mutable_last_transition_time(), Moment(scene));
    }
    if (Half()) SetTime(status.mutable_start_time(), Moment(scene));
    if (Below(4) == 0) SetTime(status.mutable_completion_time(), Moment(scene));
    if (Half()) status.set_failures(Number());
    if (Half()) status.mutable_round()->set_number(static_cast<std::int64_t>(Below(4)));
    if (Half()) status.mutable_round()->set_workers(static_cast<std::int64_t>(Below(5)));
    if (Half()) (*status.mutable_replica_statuses())["worker"].set_memory(Half() ? "96Mi" : "odd");
    for (std::uint64_t i = Below(3); i > 0; --i) {
      v1alpha1::AvoidedNode& node = *status.add_avoided_nodes();
      node.set_name(Half() ? "a" : "b");
      node.set_failures(Number());
      SetTime(node.mutable_last_failure_time(), Moment(scene));
      if (Half()) SetTime(node.mutable_until(), Moment(scene));
    }
    if (Half()) status.set_failures_since_step(Number());
    if (Half()) status.mutable_coordinator()->set_incarnation(static_cast<std::int64_t>(Below(3)));
    if (Half()) status.mutable_coordinator()->set_boot_id(Half() ? "a" : "b");
    for (std::uint64_t i = Below(25); i > 0; --i) Incident(scene, *status.add_incidents());
  }

  void Incident(Scene& scene, v1alpha1::Incident& incident) {
    SetTime(incident.mutable_time(), Moment(scene));
    static constexpr const char* kReasons[] = {"WorkerLost", "WorkerFailed", "ParameterServerLost"};
    incident.set_reason(kReasons[Below(3)]);
    incident.set_pod(resources::PodName("digits", Role::kWorker, static_cast<int>(Below(4))));
    if (Half()) incident.set_exit_code(Number());
  }

  void Pod(Scene& scene) {
    ObservedPod& pod =
        scene.Add(Below(3) == 0   ? Role::kCoordinator
                  : Below(4) == 0 ? Role::kParameterServer
                                  : Role::kWorker,
                  static_cast<std::int64_t>(Below(4)), static_cast<PodPhase>(Below(4)));
    pod.terminating = Below(4) == 0;
    pod.disrupted = Below(5) == 0;
    if (Below(5) == 0) pod.ip.clear();
    if (Half()) pod.exit = PodExit{Number(), Number(), "", "tail", Moment(scene)};
    if (Below(4) == 0) pod.surplus_since = Moment(scene);
    if (Below(4) == 0) pod.unheard_since = Moment(scene);
    if (Half()) pod.node = Half() ? "a" : "b";
    if (pod.disrupted && Half()) pod.disruption = "PreemptionByScheduler";
    pod.started = Moment(scene);
    if (pod.terminating) pod.deletion_due = Moment(scene);
    if (Half()) pod.memory = Number();
    if (pod.exit.has_value() && Below(3) == 0) pod.exit->reason = "OOMKilled";
    if (Below(4) == 0) pod.avoids = {"a"};
    if (pod.phase == PodPhase::kPending && Half()) {
      static constexpr std::string_view kProblems[] = {kUnschedulable, kImagePullFailed};
      pod.problem = PodProblem{kProblems[Below(2)], "odd", Moment(scene)};
    }
    if (Half()) {
      pod.world = {.round = static_cast<std::int64_t>(Below(4)),
                   .members = {0, static_cast<std::int64_t>(Below(3)) + 1},
                   .wanted = static_cast<std::int64_t>(Below(4))};
    }
  }

  void Link(Scene& scene) {
    scene.seen.link.emplace();
    ObservedLink& link = *scene.seen.link;
    if (!scene.seen.pods.empty() && Half()) link.pod_uid = scene.seen.pods.front().uid;
    link.heard = Half();
    link.silent = absl::Milliseconds(static_cast<std::int64_t>(Below(4000)));
    link.report.set_boot_id(Half() ? "a" : "b");
    link.report.set_incarnation(Below(3));
    link.report.set_view_synced(Half());
    link.report.set_stopped(Half());
    link.report.set_settled_step(Number());
    for (const ObservedPod& pod : scene.seen.pods) {
      v1alpha1::MemberStatus& member = scene.Member(pod);
      member.set_connected(Half());
      member.set_drained(Half());
      member.set_in_view(Half());
      member.set_silent_seconds(static_cast<double>(Below(100)));
    }
    if (Below(5) == 0) link.report.mutable_training()->mutable_result();
    if (Below(8) == 0) link.report.mutable_training()->set_failure("odd");
    for (std::uint64_t i = Below(4); i > 0; --i) Incident(scene, *link.report.add_incidents());
  }

  // Something about a second coordinator, that may make no sense.
  void Standby(Scene& scene) {
    scene.seen.spec.mutable_replica_specs()->mutable_coordinator()->set_standby(Half());
    if (Half()) {
      v1alpha1::CoordinatorGrant& grant = *scene.seen.status.mutable_coordinator();
      grant.set_incarnation(static_cast<std::int64_t>(Below(3)) + 1);
      grant.set_boot_id(Half() ? "a" : "c");
      v1alpha1::StandbyGrant& standby = *grant.mutable_standby();
      // Never its coordinator's own number.
      standby.set_incarnation(grant.incarnation() + (Half() ? 1 : -1));
      standby.set_follows(Half() ? grant.incarnation() : grant.incarnation() - 1);
      standby.set_boot_id(Half() ? "b" : "c");
      if (!scene.seen.pods.empty()) standby.set_pod_uid(scene.seen.pods.back().uid);
      if (!scene.seen.pods.empty() && Half()) grant.set_pod_uid(scene.seen.pods.front().uid);
    }
    if (scene.seen.pods.empty() || Half()) return;
    ObservedLink& link = scene.seen.second_link.emplace();
    link.pod_uid = scene.seen.pods.back().uid;
    link.heard = Half();
    link.silent = absl::Milliseconds(static_cast<std::int64_t>(Below(4000)));
    link.report.set_boot_id(Half() ? "b" : "c");
    link.report.set_incarnation(Below(4));
    link.report.set_superseded(Below(4) == 0);
    link.report.mutable_standby()->set_incarnation(Below(4));
    link.report.mutable_standby()->set_armed(Half());
    link.report.mutable_standby()->set_silent_seconds(Half() ? 0.1 : 1);
  }

  std::mt19937_64 random_;
};

bool IsGone(const Scene& scene, const ObservedPod& pod) {
  const auto node = scene.seen.nodes.find(pod.node);
  return node != scene.seen.nodes.end() && !node->second.exists;
}

// Of deletions: never twice, never by force unless it is known that nobody runs there any more.
std::string WrongDeletion(const Scene& scene, const std::set<std::string>& deleted,
                          const DeletePod& remove) {
  if (!deleted.contains(remove.uid)) return "deletes what it does not count as deleted";
  for (const ObservedPod& pod : scene.seen.pods) {
    if (pod.uid != remove.uid) continue;
    const bool forced = remove.grace_seconds == 0;
    if (forced && !pod.Terminated() && !IsGone(scene, pod)) {
      return "asserts that a live pod is gone";
    }
    if (pod.terminating && !(forced && IsGone(scene, pod))) {
      return "deletes what is being deleted";
    }
    return "";
  }
  return "deletes a pod that is none of the job's";
}

// Of standbys: no number is given twice, and no coordinator loses the one that it has had.
std::string WrongStandby(const Scene& scene, const Decision& decision) {
  const v1alpha1::CoordinatorGrant& before = scene.seen.status.coordinator();
  const v1alpha1::CoordinatorGrant& after = decision.status.coordinator();
  const bool same = after.incarnation() == before.incarnation();
  const auto& had = before.standby();
  const bool bound = before.has_standby() && had.follows() == before.incarnation();
  if (bound && same && had.SerializeAsString() != after.standby().SerializeAsString()) {
    return "takes a coordinator's standby away";
  }
  if (after.has_standby() && after.standby().SerializeAsString() != had.SerializeAsString() &&
      after.standby().incarnation() <= std::max(after.incarnation(), had.incarnation())) {
    return "gives a number twice";
  }
  if (!decision.supervision.has_value() || !decision.supervision->desired.has_value()) return "";
  const bool names = decision.supervision->desired->has_standby();
  const bool has = after.has_standby() && after.standby().follows() == after.incarnation();
  return names == has ? "" : "does not tell a coordinator of its standby";
}

// What must hold of every decision, whatever is observed. Empty: it does.
std::string Wrong(const Scene& scene, const Decision& decision) {
  std::set<std::pair<Role, std::int64_t>> taken;
  std::set<std::string> deleted;
  for (const Action& action : decision.actions) {
    const auto* remove = std::get_if<DeletePod>(&action);
    if (remove != nullptr && !deleted.insert(remove->uid).second) return "deletes a pod twice";
  }
  for (const ObservedPod& pod : scene.seen.pods) {
    if (!pod.Terminated() || !deleted.contains(pod.uid)) taken.insert({pod.role, pod.index});
  }
  if (scene.seen.spec.run_policy().managed_by().size() > 0 && !decision.actions.empty()) {
    return "touches another controller's job";
  }
  for (const Action& action : decision.actions) {
    if (const auto* create = std::get_if<CreatePod>(&action)) {
      if (!taken.insert({create->role, create->index}).second) return "takes a taken index";
      if (ConditionStatus(decision.status, "Failed") == "True") return "feeds a failed job";
      if (scene.seen.spec.run_policy().suspend()) return "feeds a suspended job";
      if (scene.seen.queueing.hold) return "feeds a job that is held";
      const bool alone = scene.seen.spec.workload().has_container();
      if (alone != (create->world.round > 0)) return "makes a pod of the wrong kind";
      if (alone && create->role == Role::kCoordinator) return "gives a container a coordinator";
      if (create->role == Role::kParameterServer && !resources::HasServers(scene.seen.spec)) {
        return "gives a parameter server to a job without them";
      }
    }
    if (const auto* remove = std::get_if<DeletePod>(&action)) {
      std::string wrong = WrongDeletion(scene, deleted, *remove);
      if (!wrong.empty()) return wrong;
    }
    const auto* event = std::get_if<EmitEvent>(&action);
    if (event != nullptr && MeaningOf(event->reason).empty() && event->reason != "odd") {
      return "tells of " + event->reason + ", which is in no table";
    }
  }
  for (const v1alpha1::Condition& condition : decision.status.conditions()) {
    if (!condition.reason().empty() && MeaningOf(condition.reason()).empty()) {
      return "the reason " + condition.reason() + " is in no table";
    }
  }
  if (decision.status.incidents_size() > 25) return "keeps too many incidents";
  const auto before = scene.seen.status.coordinator().incarnation();
  const auto after = decision.status.coordinator().incarnation();
  const auto standby = scene.seen.status.coordinator().standby().incarnation();
  const auto next = std::max(before, standby) + 1;
  const bool numbered = after == before || after == next || (standby > before && after == standby);
  if (!numbered) return "jumps to an incarnation";
  return WrongStandby(scene, decision);
}

TEST(DecideProperty, EveryStateHasASoundDecision) {
  for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
    const Scene scene = RandomScene(seed).Make();
    const Decision decision = scene.Do();
    ASSERT_EQ(Wrong(scene, decision), "") << "seed " << seed;
  }
}

TEST(DecideProperty, EqualStatesHaveEqualDecisions) {
  for (std::uint64_t seed = 0; seed < 2'000; ++seed) {
    const Scene scene = RandomScene(seed).Make();
    const Decision a = scene.Do();
    const Decision b = scene.Do();
    ASSERT_TRUE(google::protobuf::util::MessageDifferencer::Equals(a.status, b.status));
    ASSERT_EQ(a.actions.size(), b.actions.size());
  }
}

// The status does not keep changing while nothing else does.
TEST(DecideProperty, StatusSettles) {
  for (std::uint64_t seed = 0; seed < 5'000; ++seed) {
    Scene scene = RandomScene(seed).Make();
    for (int i = 0; i < 4; ++i) scene.Settle();
    const v1alpha1::TrainingJobStatus settled = scene.seen.status;
    scene.Settle();
    ASSERT_EQ(settled.DebugString(), scene.seen.status.DebugString()) << "seed " << seed;
  }
}

// Negative control: the checker finds what is wrong.
TEST(DecideProperty, CheckerCatchesAnUnsoundDecision) {
  Scene scene;
  scene.Training();
  Decision decision = scene.Do();
  ASSERT_EQ(Wrong(scene, decision), "");

  decision.actions.push_back(CreatePod{Role::kWorker, 1, 1});
  EXPECT_EQ(Wrong(scene, decision), "takes a taken index");
  decision.actions.back() = DeletePod{"digits-worker-1", scene.seen.pods.back().uid, 0};
  EXPECT_EQ(Wrong(scene, decision), "asserts that a live pod is gone");
}

}  // namespace
}  // namespace starling::trainingjob
