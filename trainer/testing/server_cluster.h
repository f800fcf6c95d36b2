// SPDX-License-Identifier: Apache-2.0
// For tests: a whole job with parameter servers in one process: real workers and servers in
// threads over an inproc network, led by the real coordinator machine. Only the links between
// coordinator and members are calls, made by the test's thread (Turn), and pods are made by hand.
//
// A kill is a process whose links break and that is never heard again; its pod is reported as
// ended at once, as a node's kubelet would.
//
// With links other than inproc, servers are processes (server_process.h), and a kill of one is
// kill -9.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock/clock.h"
#include "common/metrics/metrics.h"
#include "common/storage/blob_store.h"
#include "common/sync/mutex.h"
#include "starling/v1alpha1/membership.pb.h"
#include "trainer/checkpoint/checkpoint_store.h"
#include "trainer/control/options.h"
#include "trainer/data/load_datasets.h"
#include "trainer/membership/convert.h"
#include "trainer/parameter_server/shard_coordinator.h"
#include "trainer/server/server_member.h"
#include "trainer/testing/server_process.h"
#include "trainer/transport/inproc_transport.h"
#include "trainer/worker/worker.h"
#include "trainer/workload/classification.h"

namespace starling::worker {

// Confined to the test's thread.
class ServerCluster {
 public:
  using MakeWorkload = std::function<std::unique_ptr<workload::Workload>(int worker)>;
  using MakeEngine = std::function<std::unique_ptr<engine::Engine>(int worker)>;
  using Links = transport::testing::Kind;

  // Classification of these data by engines.
  ServerCluster(v1alpha1::TrainingJobSpec spec, const data::Datasets& datasets,
                const MakeEngine& make_engine, std::string job_dir, Links links = Links::kInproc)
      : ServerCluster(
            std::move(spec),
            [this, datasets, make_engine](int worker) -> std::unique_ptr<workload::Workload> {
              std::unique_ptr<engine::Engine> engine = make_engine(worker);
              engines_[worker] = engine.get();
              return std::make_unique<workload::Classification>(datasets, std::move(engine), "");
            },
            std::move(job_dir), links) {}
  ServerCluster(v1alpha1::TrainingJobSpec spec, MakeWorkload make_workload, std::string job_dir,
                Links links = Links::kInproc)
      : links_(links),
        spec_(std::move(spec)),
        make_workload_(std::move(make_workload)),
        job_dir_(std::move(job_dir)),
        storage_(*storage::Open(checkpoint::JobPlace(spec_.checkpoint().uri(), "job", job_dir_))) {
    settings_.set_generation(1);
    *settings_.mutable_stop() = spec_.stop();
    *settings_.mutable_checkpoint() = spec_.checkpoint();
    NewCoordinator();
  }
  ~ServerCluster() {
    for (auto& [uid, pod] : pods_) pod->GraceOver();
    for (auto& [uid, pod] : pods_) pod->thread.join();
  }

  // As many live pods as are wanted.
  void AddWorkers(int count) {
    for (int i = 0; i < count; ++i) Start(parameter_server::kWorkerRole, workers_++, 0);
    Want();
  }
  void AddServers(int count) {
    for (int i = 0; i < count; ++i) Start(parameter_server::kServerRole, servers_++, 0);
    Want();
  }
  static std::string WorkerUid(int index) { return Uid(parameter_server::kWorkerRole, index); }
  static std::string ServerUid(int index) { return Uid(parameter_server::kServerRole, index); }

  // As kill -9 of the pod.
  void Kill(const std::string& uid) {
    Pod& pod = *pods_.at(uid);
    pod.dead = true;
    pod.process ? pod.process->Kill() : pod.GraceOver();
    if (pod.connected) coordinator_->OnDisconnected(uid, clock_.Now());
    Want();
  }
  // A new process in the pod of a killed one.
  void Restart(const std::string& uid) {
    const std::string role = pods_.at(uid)->role;
    const int index = pods_.at(uid)->index;
    const std::int64_t start = pods_.at(uid)->start + 1;
    pods_.at(uid)->thread.join();
    pods_.erase(uid);
    Start(role, index, start);
    Want();
  }
  // A server's process kills itself at this place, as STARLING_FAILPOINT says it; Dead() tells.
  void Arm(const std::string& uid, const std::string& place) { pods_.at(uid)->process->Arm(place); }
  bool Dead(const std::string& uid) const { return pods_.at(uid)->dead; }
  // The thread of a server that comes to this place does that there.
  void DoAt(const std::string& uid, control::Failpoint point, std::function<void()> deed) {
    pods_.at(uid)->deed = std::move(deed);
    pods_.at(uid)->failpoints->Arm(std::move(point));
  }
  // It was told that it hangs: its process has ended, as kill -9 would end it.
  bool Hung(const std::string& uid) const { return pods_.at(uid)->hung; }
  // A server's process stands still, unnoticed: what it said last is said on.
  void Stop(const std::string& uid) { pods_.at(uid)->process->Stop(); }
  void Resume(const std::string& uid) { pods_.at(uid)->process->Resume(); }
  // SIGTERM.
  void Terminate(const std::string& uid) { pods_.at(uid)->Terminate(); }
  // The controller does not want it any more.
  void Drain(const std::string& uid) {
    pods_.at(uid)->draining = true;
    Want();
  }
  void SetHalt(bool halt) {
    settings_.set_halt(halt);
    settings_.set_generation(settings_.generation() + 1);
    Want();
  }
  void SetStop(const v1alpha1::Stop& stop) {
    *settings_.mutable_stop() = stop;
    settings_.set_generation(settings_.generation() + 1);
    Want();
  }
  void Finish() {
    finished_ = true;
    Want();
  }
  // Directives do not tell workers what there is to do.
  void WithholdOrders(bool withheld) { orders_withheld_ = withheld; }
  // A successor that knows nothing.
  void ReplaceCoordinator() { NewCoordinator(); }

  // Reports up, directives down.
  void Turn() {
    for (auto& [uid, pod] : pods_) {
      const bool failed = pod->process && pod->ended && !EndOf(uid).ok();
      if ((failed || pod->hung) && !pod->dead) Kill(uid);
      if (pod->dead || !pod->Speaks()) continue;
      if (pod->ended && EndOf(uid).ok()) {  // one that failed is still there to tell it
        if (std::exchange(pod->connected, false)) coordinator_->OnDisconnected(uid, clock_.Now());
        continue;
      }
      if (!std::exchange(pod->connected, true)) coordinator_->OnConnected(uid, clock_.Now());
      coordinator_->OnReport(uid, membership::FromProto(membership::ToProto(pod->MakeReport())),
                             clock_.Now());
    }
    coordinator_->OnTick(clock_.Now());
    for (auto& [uid, pod] : pods_) {
      if (pod->dead || !pod->Speaks() || (pod->ended && EndOf(uid).ok())) continue;
      membership::Directive directive =
          membership::FromProto(membership::ToProto(coordinator_->DirectiveFor(uid)));
      if (orders_withheld_ && pod->worker != nullptr) directive.parameter_server = "unreadable";
      pod->OnDirective(directive);
    }
  }
  // Turns until it holds; false after a minute.
  bool Await(const std::function<bool()>& condition) {
    const net::Deadline deadline = net::Deadline::After(absl::Minutes(1));
    while (!condition()) {
      if (deadline.Expired()) return false;
      Turn();
      sync::MutexLock lock(mutex_);
      changed_.WaitFor(mutex_, absl::Milliseconds(1));
    }
    return true;
  }
  // Turns for so long.
  void AwaitFor(absl::Duration duration) {
    const net::Deadline deadline = net::Deadline::After(duration);
    (void)Await([&] { return deadline.Expired(); });
  }
  bool AwaitSettled(std::int64_t settled) {
    return Await([&] { return coordinator_->settled() >= settled; });
  }
  // The result, once a worker has concluded; empty if none does.
  v1alpha1::Result AwaitResult() {
    Await([&] { return Training().has_result(); });
    return Training().result();
  }
  v1alpha1::TrainingReport Training() {
    v1alpha1::TrainingReport training;
    training.ParseFromString(coordinator_->MakeSummary(clock_.Now()).training.bytes);
    return training;
  }
  membership::Summary Summary() { return coordinator_->MakeSummary(clock_.Now()); }
  bool AwaitEnd(const std::string& uid) {
    return Await([&] { return pods_.at(uid)->ended.load(); });
  }
  absl::Status EndOf(const std::string& uid) {
    sync::MutexLock lock(mutex_);
    return pods_.at(uid)->end;
  }
  membership::Report ReportOf(const std::string& uid) { return pods_.at(uid)->MakeReport(); }
  template <typename Made>
  const Made& WorkloadOf(int worker) {
    return dynamic_cast<const Made&>(*pods_.at(WorkerUid(worker))->workload);
  }
  template <typename Engine>
  const Engine& EngineOf(int worker) {
    return dynamic_cast<const Engine&>(*engines_.at(worker));
  }
  // All that it ever sent and received, in whole frames.
  transport::Traffic TrafficOf(const std::string& uid) const {
    return pods_.at(uid)->transport->ledger().Total();
  }
  std::uint64_t SentBy(int worker) const { return TrafficOf(WorkerUid(worker)).payload_sent; }
  std::string MetricsOf(const std::string& uid) {
    const Pod& pod = *pods_.at(uid);
    return pod.process ? pod.process->Metrics() : pod.registry->Serialize();
  }
  const parameter_server::ShardCoordinator& coordinator() const { return *coordinator_; }

 private:
  // Addresses are members' names here.
  class ByName final : public transport::Transport {
   public:
    explicit ByName(std::unique_ptr<transport::Transport> inner) : inner_(std::move(inner)) {}
    std::string address() const override { return inner_->address(); }
    absl::StatusOr<std::unique_ptr<transport::Mesh>> Open(
        std::uint64_t view, const std::vector<transport::Peer>& members, int rank,
        net::Deadline deadline, transport::Cancellation* cancellation) override {
      std::vector<transport::Peer> named = members;
      for (transport::Peer& peer : named) peer.address = peer.member;
      return inner_->Open(view, named, rank, deadline, cancellation);
    }
    void Fence(std::uint64_t view) override { inner_->Fence(view); }
    std::uint64_t fence() const override { return inner_->fence(); }
    const transport::Ledger& ledger() const override { return inner_->ledger(); }

   private:
    const std::unique_ptr<transport::Transport> inner_;
  };

  struct Pod {
    std::string role;
    int index = 0;
    std::int64_t start = 0;
    std::string ip;
    std::unique_ptr<ServerProcess> process;  // or what follows
    std::unique_ptr<workload::Workload> workload;
    std::unique_ptr<transport::Transport> transport;
    std::unique_ptr<metrics::Registry> registry;
    std::unique_ptr<control::Failpoints> failpoints;
    std::function<void()> deed = [] {};  // at a failpoint
    std::unique_ptr<Worker> worker;
    std::unique_ptr<server::ServerMember> server;
    bool connected = false;
    bool dead = false;
    bool draining = false;
    std::atomic<bool> ended = false;
    std::atomic<bool> hung = false;
    absl::Status end;
    std::thread thread;

    absl::Status Run() {
      if (process) return process->Run();
      return worker ? worker->Run() : server->Run();
    }
    bool Speaks() const { return !process || process->heard(); }
    void OnDirective(const membership::Directive& directive) {
      if (process) return process->OnDirective(directive);
      worker ? worker->OnDirective(directive) : server->OnDirective(directive);
    }
    membership::Report MakeReport() {
      if (process) return process->MakeReport();
      return worker ? worker->MakeReport() : server->MakeReport();
    }
    void Terminate() { worker ? worker->Terminate() : server->Terminate(); }
    void GraceOver() {
      if (process) return process->GraceOver();
      worker ? worker->GraceOver() : server->GraceOver();
    }
  };

  static std::string Uid(const std::string& role, int index) {
    return absl::StrCat(role, "-", index);
  }

  void Start(const std::string& role, int index, std::int64_t start) {
    auto pod = std::make_unique<Pod>();
    pod->role = role;
    pod->index = index;
    pod->start = start;
    const membership::MemberId id{Uid(role, index), start};
    pod->ip = IpOf(role, index);
    const auto changed = [this] { changed_.NotifyAll(); };
    if (role == parameter_server::kServerRole && links_ != Links::kInproc) {
      pod->process = std::make_unique<ServerProcess>(links_, spec_, id, pod->ip, job_dir_, changed);
      return Run(std::move(pod));
    }
    pod->transport = NewTransport(id, pod->ip);
    pod->registry = std::make_unique<metrics::Registry>();
    pod->failpoints =
        std::make_unique<control::Failpoints>(std::nullopt, [raw = pod.get()] { raw->deed(); });
    const auto hangs = [raw = pod.get()](std::int64_t) { raw->hung = true; };
    if (role == parameter_server::kServerRole) {
      server::ServerConfig config;
      config.spec = spec_;
      config.job_uid = "job";
      config.job_dir = job_dir_;
      config.self = id;
      pod->server = std::make_unique<server::ServerMember>(
          config, server::ServerParts{.transport = *pod->transport,
                                      .storage = *storage_,
                                      .clock = clock_,
                                      .registry = *pod->registry,
                                      .failpoints = *pod->failpoints,
                                      .notify = changed,
                                      .on_hung = hangs});
    } else {
      pod->workload = make_workload_(index);
      WorkerConfig config;
      config.spec = spec_;
      config.job_uid = "job";
      config.job_dir = job_dir_;
      config.self = id;
      pod->worker = *Worker::Create(std::move(config), {.workload = *pod->workload,
                                                        .transport = *pod->transport,
                                                        .storage = *storage_,
                                                        .clock = clock_,
                                                        .registry = *pod->registry,
                                                        .notify = changed,
                                                        .on_view = nullptr,
                                                        .on_hung = hangs});
    }
    Run(std::move(pod));
  }

  void Run(std::unique_ptr<Pod> pod) {
    pod->thread = std::thread([this, raw = pod.get()] {
      const absl::Status end = raw->Run();
      const sync::MutexLock lock(mutex_);
      raw->end = end;
      raw->ended = true;
      changed_.NotifyAll();
    });
    const std::string uid = Uid(pod->role, pod->index);
    pods_[uid] = std::move(pod);
  }

  // Tests that run beside this one have others.
  static std::string IpOf(const std::string& role, int index) {
    const int of_test = getpid();
    return absl::StrCat("127.", 100 + of_test % 100, ".", of_test / 100 % 250 + 1, ".",
                        (role == parameter_server::kServerRole ? 101 : 1) + index);
  }
  std::unique_ptr<transport::Transport> NewTransport(const membership::MemberId& id,
                                                     const std::string& ip) {
    if (links_ != Links::kInproc) {
      auto opened = OpenOwnTransport(links_, id, ip);
      STARLING_CHECK(opened.ok(), opened.status().ToString().c_str());
      return *std::move(opened);
    }
    transport::Options options;
    options.member = control::NameOf(id);
    options.job = "job";
    options.secret = "secret";
    return std::make_unique<ByName>(*network_.OpenTransport(options));
  }

  void NewCoordinator() {
    const membership::ViewNumber newest = coordinator_ == nullptr || coordinator_->view() == nullptr
                                              ? 0
                                              : coordinator_->view()->number;
    parameter_server::ShardCoordinator::Options options;
    options.common.boot_id = absl::StrCat("boot-", ++incarnation_);
    options.common.first_view_grace = absl::Milliseconds(50);
    coordinator_ = std::make_unique<parameter_server::ShardCoordinator>(options, spec_);
    for (auto& [uid, pod] : pods_) pod->connected = false;
    coordinator_->OnGrant({.incarnation = incarnation_,
                           .boot_id = options.common.boot_id,
                           .roster = Pods(),
                           .newest_view = newest},
                          clock_.Now());
    Want();
  }

  std::vector<membership::Pod> Pods() const {
    std::vector<membership::Pod> pods;
    for (const auto& [uid, pod] : pods_) {
      if (pod->dead) continue;
      pods.push_back(
          {uid, uid, pod->role, pod->index, pod->ip,
           pod->draining ? membership::PodState::kDraining : membership::PodState::kLive});
    }
    return pods;
  }

  void Want() {
    membership::Desired desired;
    desired.sequence = ++sequence_;
    desired.pods = Pods();
    for (const membership::Pod& pod : desired.pods) {
      if (pod.state != membership::PodState::kLive) continue;
      ++(pod.role == parameter_server::kServerRole ? desired.servers : desired.workers);
    }
    desired.settings = {.generation = settings_.generation(),
                        .halt = settings_.halt(),
                        .values = settings_.SerializeAsString()};
    const google::protobuf::Duration& interval = settings_.checkpoint().interval();
    desired.checkpoint_interval_ms = interval.seconds() * 1000 + interval.nanos() / 1'000'000;
    desired.finished = finished_;
    coordinator_->OnDesired(desired, clock_.Now());
  }

  const Links links_;
  const v1alpha1::TrainingJobSpec spec_;
  const MakeWorkload make_workload_;
  std::map<int, const engine::Engine*> engines_;  // of the workers' classifications
  const std::string job_dir_;
  const clock::SystemClock clock_;
  const std::unique_ptr<storage::BlobStore> storage_;
  sync::Mutex mutex_;  // of `end`
  sync::Condition changed_;
  transport::InprocNetwork network_;
  std::unique_ptr<parameter_server::ShardCoordinator> coordinator_;
  std::uint64_t incarnation_ = 0;
  std::map<std::string, std::unique_ptr<Pod>> pods_;  // by UID
  v1alpha1::Settings settings_;
  std::int64_t sequence_ = 0;
  int workers_ = 0;
  int servers_ = 0;
  bool orders_withheld_ = false;
  bool finished_ = false;
};

}  // namespace starling::worker
