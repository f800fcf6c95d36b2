// SPDX-License-Identifier: Apache-2.0
#include "controller/manager/cluster_controller.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/telemetry/metric_table.h"
#include "api/telemetry/process_metrics.h"
#include "common/bytes/bytes.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "controller/admission/webhook.h"
#include "controller/kube/objects.h"
#include "controller/manager/job_control.h"
#include "controller/manager/job_metrics.h"
#include "controller/manager/lease.h"
#include "controller/manager/telemetry.h"
#include "controller/resources/credentials.h"
#include "controller/resources/endpoints.h"
#include "controller/resources/names.h"
#include "controller/runtime/cached_kube_client.h"
#include "controller/runtime/fenced_kube_client.h"
#include "controller/runtime/leader_elector.h"
#include "controller/runtime/manager.h"
#include "controller/runtime/trim.h"
#include "controller/version/version.h"

namespace starling::manager {
namespace {

constexpr const char* kControllerName = "trainingjob";
// One reconcile handles all changes of this time; each reconcile saved may save a status write.
constexpr absl::Duration kSettle = absl::Milliseconds(70);
constexpr absl::Duration kRest = absl::Milliseconds(50);
// Of what nobody but this process writes, most often: its own writes are known at once.
constexpr absl::Duration kLongRest = absl::Milliseconds(500);
constexpr absl::Duration kWriteEventsEvery = absl::Milliseconds(100);
// Keys that come back after failures, all jobs together.
constexpr double kRetriesPerSecond = 100;
constexpr double kRetryBurst = 1000;

// Whose objects are copied, as far as they belong to jobs.
constexpr const kube::ResourceKind* kOwned[] = {&kube::kPod,           &kube::kConfigMap,
                                                &kube::kSecret,        &kube::kService,
                                                &kube::kEndpointSlice, &kube::kPodDisruptionBudget};

std::string RandomSuffix() {
  const std::string random = bytes::RandomBytes(8);
  return bytes::ToHex(
      std::span(reinterpret_cast<const std::uint8_t*>(random.data()), random.size()));
}

// Unlike that of any other process: a container that was started again is another.
std::string Identity() {
  const char* pod = std::getenv("POD_NAME");
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(pod != nullptr && *pod != '\0' ? pod : host, "_", RandomSuffix());
}

// Those that jobs' labels are on.
template <typename T>
runtime::InformerOptionsOf<T> OfJobs(const std::string& ns) {
  runtime::InformerOptionsOf<T> options;
  options.ns = ns;
  options.selection.labels = std::string(resources::kJobLabel);
  options.index_label = std::string(resources::kJobLabel);
  options.packed = true;
  options.rest = kRest;
  return options;
}

runtime::MessageInformerOptions Owned(const kube::ResourceKind& kind, const std::string& ns) {
  auto options = OfJobs<kube::Message>(ns);
  options.trim = runtime::KeepOurs;
  if (kind == kube::kPod) {
    options.news = runtime::NewsOfPod;
  } else {
    options.rest = kLongRest;
  }
  if (kind == kube::kEndpointSlice) {
    // Not those that Kubernetes itself keeps for a job of an older controller.
    absl::StrAppend(&options.selection.labels, ",", std::string(resources::kSliceManagerLabel), "=",
                    std::string(resources::kSliceManager));
  }
  return options;
}

runtime::InformerOptions Jobs(const std::string& ns) {
  runtime::InformerOptions options;
  options.ns = ns;
  options.packed = true;
  options.tells_before = true;
  options.rest = kRest;
  return options;
}

runtime::MessageInformerOptions Nodes() {
  runtime::MessageInformerOptions options;
  options.trim = runtime::KeepOurs;
  return options;
}

// A server that is away comes back, and a write that came second is made on what the first left.
bool MayPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsAborted(status) || absl::IsAlreadyExists(status) ||
         absl::IsResourceExhausted(status);
}

// Everything that acts. It lives as long as this process leads.
struct Leading {
  Leading(kube::KubeClient& client, runtime::WorkQueue& queue, const clock::Clock& clock,
          metrics::Registry& registry, const JobControlOptions& options)
      : control(client, queue, clock, options), manager(clock, &registry) {}

  JobControl control;
  runtime::Manager manager;
};

}  // namespace

// Destroyed from the last to the first: users go before what they use.
struct ClusterController::Parts {
  Parts(const Options& given, kube::KubeClient& api, kube::KubeClient& lease_client,
        metrics::Registry& metrics, const clock::Clock& time)
      : options(given),
        client(api),
        registry(metrics),
        clock(time),
        elector(lease_client, clock, options.cluster.election),
        fenced(client, [this] { return MayWrite(); }),
        cached(fenced),
        jobs(client, kube::kTrainingJob, Jobs(options.cluster.ns)),
        nodes(client, kube::kNode, Nodes()),
        queue(clock, {}, runtime::TokenBucket(kRetriesPerSecond, kRetryBurst)),
        watching(clock),
        watching_nodes(clock),
        process(registry, version::Current()),
        counted(registry, clock, [this] { return leads && MayWrite(); }) {}

  bool MayWrite() const { return !options.cluster.leader_elect || elector.MayWrite(); }
  void Watch();
  absl::Status Begin();
  absl::Status ServeWebhook();
  absl::Status Lead(std::int64_t transition);
  absl::StatusOr<ClusterState> Elect();
  void Resync();
  void Refresh();
  std::string NotReady() const;

  const Options options;
  kube::KubeClient& client;
  metrics::Registry& registry;
  const clock::Clock& clock;
  runtime::LeaderElector elector;
  runtime::FencedKubeClient fenced;
  runtime::CachedKubeClient cached;
  runtime::Informer jobs;
  std::vector<std::unique_ptr<runtime::MessageInformer>> owned;  // what jobs consist of
  std::vector<std::unique_ptr<runtime::Informer>> queues;        // what others say of them
  runtime::MessageInformer nodes;
  runtime::WorkQueue queue;
  runtime::Manager watching;
  // Not among the others, since readiness does not depend on it: a controller of one namespace may
  // not be allowed to see nodes.
  runtime::Manager watching_nodes;
  std::unique_ptr<admission::Webhook> webhook;
  telemetry::ProcessMetrics process;
  std::atomic<bool> leads = false;  // has begun to; whether the lease holds, MayWrite() says
  JobMetrics counted;
  std::unique_ptr<Telemetry> telemetry;
  std::thread electing;
  std::unique_ptr<Leading> leading;
  ClusterState state = ClusterState::kSyncing;
};

void ClusterController::Parts::Watch() {
  EnqueueJobs(jobs, queue, kSettle);
  counted.Watch(jobs);
  cached.Serve(kube::kTrainingJob, jobs);
  watching.AddInformer("trainingjobs", jobs);
  for (const kube::ResourceKind* kind : kOwned) {
    owned.push_back(std::make_unique<runtime::MessageInformer>(client, *kind,
                                                               Owned(*kind, options.cluster.ns)));
    EnqueueOwners(*owned.back(), queue, kSettle);
    cached.Serve(*kind, *owned.back());
    watching.AddInformer(std::string(kind->plural), *owned.back());
    if (*kind == kube::kPod) EnqueueJobsOnNode(nodes, *owned.back(), queue);
  }
  // What queues say of jobs. Where they come to be installed later, jobs look for themselves, less
  // often.
  for (const kube::ResourceKind& kind : scheduling::Scheduling::Watched()) {
    if (!client.Serves(kind).value_or(false)) continue;
    queues.push_back(
        std::make_unique<runtime::Informer>(client, kind, OfJobs<kube::Json>(options.cluster.ns)));
    EnqueueOwners(*queues.back(), queue);
    watching_nodes.AddInformer(std::string(kind.plural), *queues.back());
  }
  watching_nodes.AddInformer("nodes", nodes);
  watching_nodes.Launch();
  watching.Launch();
}

// Every replica serves it, leader or not.
absl::Status ClusterController::Parts::ServeWebhook() {
  if (options.cluster.webhook_port == 0 || webhook != nullptr) return absl::OkStatus();
  admission::WebhookOptions webhook_options;
  webhook_options.ns = options.cluster.election.ns;
  webhook_options.port = static_cast<int>(options.cluster.webhook_port);
  ASSIGN_OR_RETURN(webhook, admission::Webhook::Start(client, clock, webhook_options));
  return absl::OkStatus();
}

void ClusterController::Parts::Resync() {
  for (const auto& job : jobs.List()) queue.Add(kube::KeyOf(*job));
}

absl::Status ClusterController::Parts::Lead(std::int64_t transition) {
  JobControlOptions control;
  control.decide = trainingjob::ClusterOptions();
  control.decide.coordinator_silence = options.coordinator_silence;
  control.decide.lease_transition = transition;
  control.platform.image = options.cluster.image;
  ASSIGN_OR_RETURN(control.platform.seed,
                   resources::EnsureSeed(fenced, options.cluster.election.ns));
  control.instance = options.cluster.election.identity;
  control.event_writes = runtime::EventWrites::kQueued;
  control.scheduling = options.cluster.scheduling;
  leading = std::make_unique<Leading>(cached, queue, clock, registry, control);
  Leading& all = *leading;
  all.control.reconciler().WatchNodes(FindNodeIn(nodes));
  all.manager.AddController(kControllerName, queue, all.control.reconciler(),
                            static_cast<int>(options.cluster.concurrent_reconciles));
  all.manager.AddPeriodic("events", kWriteEventsEvery, [&all] {
    all.control.events().Flush();
    return absl::OkStatus();
  });
  all.manager.AddPeriodic("resync", options.cluster.resync, [this] {
    Resync();
    return absl::OkStatus();
  });
  all.manager.Launch();
  leads = true;
  log::Info("leading", {{"transition", transition}});
  return absl::OkStatus();
}

absl::StatusOr<ClusterState> ClusterController::Parts::Elect() {
  if (!options.cluster.leader_elect) {
    // Nobody else runs, so its holder is not asked; the number still has to rise.
    ASSIGN_OR_RETURN(const std::int64_t transition,
                     TakeLease(client, clock, options.cluster.election));
    RETURN_IF_ERROR(Lead(transition));
    return ClusterState::kLeading;
  }
  electing = std::thread([this] { elector.Run(); });
  return ClusterState::kStandby;
}

void ClusterController::Parts::Refresh() {
  watching.UpdateMetrics();
  queue.UpdateAges();
  process.Update();
  counted.Show(jobs.List(), leads ? leading->control.links().Count()
                                  : trainingjob::GrpcCoordinatorLinks::Counts());
  telemetry::AddGauge(registry, "leader_election_master_status",
                      {{"name", options.cluster.election.name}})
      .Set(MayWrite() ? 1 : 0);
}

std::string ClusterController::Parts::NotReady() const {
  return std::string(watching.Health().message());
}

absl::StatusOr<std::unique_ptr<ClusterController>> ClusterController::Start(
    const Options& options, kube::KubeClient& client, kube::KubeClient& lease_client,
    metrics::Registry& registry, const clock::Clock& clock) {
  Options named = options;
  if (named.cluster.election.identity.empty()) named.cluster.election.identity = Identity();
  auto parts = std::make_unique<Parts>(named, client, lease_client, registry, clock);
  Parts& all = *parts;
  // From here on a failure ends what was started.
  std::unique_ptr<ClusterController> controller(new ClusterController(std::move(parts)));
  ASSIGN_OR_RETURN(all.telemetry,
                   Telemetry::Start({.metrics_address = options.cluster.metrics_bind_address,
                                     .probe_address = options.cluster.health_probe_bind_address,
                                     .refresh = [&all] { all.Refresh(); },
                                     .not_ready = [&all] { return all.NotReady(); }},
                                    registry));
  all.Watch();
  log::Info("controller started", {{"version", version::Current()},
                                   {"identity", named.cluster.election.identity},
                                   {"namespace", options.cluster.ns}});
  return controller;
}

ClusterController::ClusterController(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

ClusterController::~ClusterController() {
  Parts& parts = *parts_;
  parts.queue.ShutDown();
  if (parts.leading != nullptr) {
    parts.leading->control.events().Close();
    parts.leading->manager.Stop();
  }
  parts.elector.Stop();
  if (parts.electing.joinable()) parts.electing.join();
  // Only now: nothing acts any more.
  if (const absl::Status status = parts.elector.Release(); !status.ok()) {
    log::Warning("the lease could not be given back", {{"error", status.ToString()}});
  }
  parts.telemetry.reset();
  parts.webhook.reset();
  parts.watching_nodes.Stop();
  parts.watching.Stop();
}

absl::Status ClusterController::Parts::Begin() {
  RETURN_IF_ERROR(ServeWebhook());
  ASSIGN_OR_RETURN(state, Elect());
  return absl::OkStatus();
}

absl::StatusOr<ClusterState> ClusterController::Advance() {
  Parts& parts = *parts_;
  absl::Status status;
  if (parts.state == ClusterState::kSyncing) {
    if (!parts.watching.Health().ok()) return parts.state;
    status = parts.Begin();
  }
  if (parts.electing.joinable()) {
    const runtime::Standing standing = parts.elector.standing();
    if (standing == runtime::Standing::kLost) {
      parts.state = ClusterState::kLost;
    } else if (standing == runtime::Standing::kLeader && parts.leading == nullptr) {
      status = parts.Lead(parts.elector.transition());
      if (status.ok()) parts.state = ClusterState::kLeading;
    }
  }
  if (status.ok()) return parts.state;
  if (!MayPass(status)) return status;
  log::Warning("not started yet", {{"error", status.ToString()}});
  return parts.state;
}

int ClusterController::metrics_port() const { return parts_->telemetry->metrics_port(); }
int ClusterController::probe_port() const { return parts_->telemetry->probe_port(); }

}  // namespace starling::manager
