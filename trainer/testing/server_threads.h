// SPDX-License-Identifier: Apache-2.0
// For tests: server processes as threads over real links, workers that push leases of whole
// numbers, and a coordinator's turns under its own rules (ViewPlan, ShardPlacement, LeaseTable).
#pragma once

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/check.h"
#include "gtest/gtest.h"
#include "trainer/membership/view_plan.h"
#include "trainer/optimizer/server_rules.h"
#include "trainer/parameter_server/lease_table.h"
#include "trainer/server/shard_server.h"
#include "trainer/testing/client_loop.h"
#include "trainer/testing/transports.h"

namespace starling::server::cluster {

using membership::MemberId;
using membership::View;
using parameter_server::Lease;
using transport::testing::Kind;
using transport::testing::Soon;

inline constexpr std::size_t kShards = 3;
inline constexpr std::uint64_t kRows = 64;

inline parameter_server::ShardOptions TableOf() {
  auto table = std::make_shared<parameter_server::TableSpec>();
  table->name = "t";
  table->kind = parameter_server::TableKind::kDense;
  table->rows = kRows;
  table->combine = parameter_server::Combine::kSum;
  table->rule = optimizer::MakeAdd();
  return {table, {0, kRows}, consistency::Asynchronous{}, {}};
}

// A lease's update: whole numbers, other ones for each lease.
inline std::vector<float> UpdateOf(Lease lease) {
  std::vector<float> values(kRows);
  for (std::size_t i = 0; i < kRows; ++i) values[i] = static_cast<float>((lease * 7 + i) % 11);
  return values;
}

inline std::vector<float> SumOf(Lease leases) {
  std::vector<float> sum(kRows);
  for (Lease lease = 1; lease <= leases; ++lease) {
    const std::vector<float> one = UpdateOf(lease);
    for (std::size_t i = 0; i < kRows; ++i) sum[i] += one[i];
  }
  return sum;
}

class Cluster {
 public:
  struct Options {
    int servers = 2;
    int workers = 2;
    int replication = 2;
    Lease leases = 200;
    absl::Duration turn_interval = absl::InfiniteDuration();  // of checkpoints
    bool by_load = true;                                      // hot shards move
    parameter_server::Executors executors = {};               // of each server
  };

  Cluster(Kind kind, Options options)
      : options_(options),
        kind_(kind),
        book_(options.leases, kShards),
        folder_(testing::TempDir() + "/shard_server_test." + std::to_string(getpid())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    storage_ = *storage::Open(folder_);
    snapshots_ = std::make_unique<ShardSnapshots>(*storage_, kShards);
    parameter_server::ShardPlacement::Options plan;
    for (std::size_t shard = 0; shard < kShards; ++shard) {
      plan.shards.push_back({static_cast<std::uint32_t>(shard), {0, kRows}});
    }
    plan.replication = options.replication;
    plan.balance = {.by_load = options.by_load,
                    .patience = absl::Milliseconds(300),
                    .least = 10 * parameter_server::kBytesOfAMessage};
    placement_ = std::make_shared<parameter_server::ShardPlacement>(std::move(plan));
    membership::ViewPlan::Options rules;
    rules.incarnation = 1;
    rules.first_view_grace = absl::ZeroDuration();
    plan_ = std::make_unique<membership::ViewPlan>(
        rules, std::vector<std::shared_ptr<membership::Placement>>{placement_});
    wanted_servers_ = options.servers;
    for (int i = 0; i < options.workers; ++i) AddWorker(i);
  }
  ~Cluster() {
    quit_ = true;
    for (auto& [id, worker] : workers_) {
      const sync::MutexLock lock(worker->mutex);
      if (worker->mesh != nullptr) worker->mesh->Cancel(absl::CancelledError("the test is over"));
      worker->opening.Cancel(absl::CancelledError("the test is over"));
    }
    for (auto& [id, server] : servers_) server->machine->Stop();
    for (auto& [id, worker] : workers_) worker->thread.join();
    for (auto& [id, server] : servers_) server->thread.join();
    servers_.clear();  // their snapshots are still being written
    std::filesystem::remove_all(folder_);
  }

  MemberId StartServer(int index, std::int64_t start,
                       const std::optional<control::Failpoint>& failpoint = {}) {
    MemberId id{absl::StrCat("server-", index), start};
    auto server = std::make_unique<Server>();
    server->index = index;
    server->transport = NewTransport(id);
    server->failpoints =
        std::make_unique<control::Failpoints>(failpoint, [dead = &server->dead] { *dead = true; });
    ShardServer::Options options;
    options.id = id;
    options.shards.assign(kShards, TableOf());
    options.peer_name = NameOf;
    options.open_timeout = absl::Seconds(1);
    options.executors = options_.executors;
    server->machine = std::make_unique<ShardServer>(options, *server->transport, *snapshots_,
                                                    *server->failpoints);
    server->thread = std::thread([one = server.get()] {
      (void)one->machine->Run();
      one->ended = true;
    });
    servers_[id] = std::move(server);
    return id;
  }
  void Kill(const MemberId& id) {
    servers_.at(id)->dead = true;
    servers_.at(id)->machine->Stop();
  }
  void Leave(const MemberId& id) { servers_.at(id)->leaving = true; }
  // From now on the first worker reads these shards all the time.
  void Heat(const std::set<std::size_t>& shards) {
    const sync::MutexLock lock(mutex_);
    hot_ = shards;
  }
  // What a server says that it has to do for the shards in whose chains it is.
  std::int64_t LoadOf(const MemberId& id) {
    const ServerReport report = servers_.at(id)->machine->Report();
    std::int64_t load = 0;
    for (std::size_t shard = 0; shard < report.shards.size(); ++shard) {
      const auto chain = newest().groups[shard].members;
      const bool serves = std::find(chain.begin(), chain.end(), id) != chain.end();
      load += serves ? report.shards[shard].load : 0;
    }
    return load;
  }
  void WantServers(int wanted) { wanted_servers_ = wanted; }

  // One turn of the coordinator.
  void Turn() {
    membership::Roster roster;
    roster.servers.most = wanted_servers_;
    roster.workers.most = roster.workers.least = options_.workers;
    for (auto& [id, server] : servers_) {
      if (server->dead && server->ended) continue;
      if (released_.contains(id) && server->ended) continue;
      const ServerReport report = server->machine->Report();
      membership::Participant one = Common(id, server->index, server->transport->address());
      one.role = membership::Role::kServer;
      one.leaving = server->leaving;
      one.fence = one.installed = report.installed ? report.installed->number : 0;
      if (report.broken) one.phase = membership::Phase::kAborted;
      one.groups = report.shards;
      roster.participants.emplace(id, std::move(one));
    }
    for (auto& [id, worker] : workers_) {
      membership::Participant one = Common(id, worker->index, worker->transport->address());
      one.fence = one.installed = worker->fence;
      if (worker->broken) one.phase = membership::Phase::kAborted;
      roster.participants.emplace(id, std::move(one));
    }
    const auto view = plan_->Next(roster, absl::Now());
    {
      const sync::MutexLock lock(mutex_);
      if (view) book_.OnView(*view);
      for (auto& [id, server] : servers_) {
        const ServerReport report = server->machine->Report();
        for (const auto& [shard, ledger] : report.ledgers) {
          if (!server->dead) book_.OnLedger(report.installed->number, shard, ledger);
        }
      }
    }
    for (auto& [id, server] : servers_) {
      const bool released = server->leaving && plan_->synced() && !newest().Has(id);
      if (released && released_.insert(id).second) server->machine->Stop();
      std::vector<std::size_t> ahead;
      if (plan_->running() && newest().Has(id) && placement_->ahead().contains(id)) {
        ahead = placement_->ahead().at(id);
      }
      server->machine->OnDirective(
          {plan_->Newest() == nullptr ? std::nullopt : std::optional(newest()), ahead,
           CheckpointTurn(), 2});
    }
    if (view) {
      ++views_;
      for (auto& [id, worker] : workers_) worker->Tell(*view);
    }
  }
  std::int64_t CheckpointTurn() const {
    const absl::Duration since = absl::Now() - begun_;
    const absl::Duration each = options_.turn_interval;
    return each == absl::InfiniteDuration() ? 0 : static_cast<std::int64_t>(since / each);
  }
  // Turns until `done`; false if that takes too long.
  bool Until(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      Turn();
      Pause();
    }
    return true;
  }
  bool AllDone() {
    const sync::MutexLock lock(mutex_);
    return book_.AllDone();
  }
  bool Done(Lease lease) {
    const sync::MutexLock lock(mutex_);
    return book_.Done(lease);
  }
  bool Dead(const MemberId& id) { return servers_.at(id)->dead && servers_.at(id)->ended; }
  bool Gone(const MemberId& id) { return servers_.at(id)->ended; }
  std::int64_t Snapshots() {
    std::int64_t sum = 0;
    for (auto& [id, server] : servers_) sum += server->machine->Report().snapshots;
    return sum;
  }
  const membership::ViewPlan& plan() const { return *plan_; }
  membership::View newest() const {
    return plan_->Newest() == nullptr ? membership::View() : *plan_->Newest();
  }
  int views() const { return views_; }
  bool by_load() const { return options_.by_load; }
  std::string Why() {
    std::string why = absl::StrCat(plan_->waiting(), " view ", newest().number,
                                   plan_->running() ? " running" : "");
    for (auto& [id, worker] : workers_) {
      absl::StrAppend(&why, "; ", NameOf(id), worker->broken ? " broken in " : " in ",
                      worker->fence.load());
    }
    for (auto& [id, server] : servers_) {
      const ServerReport report = server->machine->Report();
      absl::StrAppend(&why, "; ", NameOf(id), report.broken ? " broken in " : " in ",
                      report.installed ? report.installed->number : 0, " answers for ",
                      report.ledgers.size(), server->ended ? " ended" : "");
      for (const auto& shard : report.shards) {
        absl::StrAppend(&why, shard.state ? absl::StrCat(" ", shard.state->view) : " none");
      }
    }
    const membership::View view = newest();
    for (const auto& chain : view.groups) {
      absl::StrAppend(&why, "; shard");
      for (const MemberId& id : chain.members) absl::StrAppend(&why, " ", NameOf(id));
    }
    return why;
  }

  // What a worker reads at the end, of each shard.
  std::vector<std::vector<float>> ReadAll() {
    reading_ = true;
    EXPECT_TRUE(Until([this] { return read_.load(); }));
    return tables_;
  }

 private:
  struct Server {
    int index = 0;
    std::unique_ptr<transport::Transport> transport;
    std::unique_ptr<control::Failpoints> failpoints;
    std::unique_ptr<ShardServer> machine;
    std::atomic<bool> dead = false, ended = false, leaving = false;
    std::thread thread;
  };
  struct Worker {
    MemberId id;
    int index = 0;
    std::unique_ptr<transport::Transport> transport;
    std::atomic<std::uint64_t> fence = 0;
    std::atomic<bool> broken = false;
    sync::Mutex mutex;
    std::optional<View> newest ABSL_GUARDED_BY(mutex);
    transport::Mesh* mesh ABSL_GUARDED_BY(mutex) = nullptr;
    transport::Cancellation opening;  // the test's end
    std::thread thread;

    void Tell(const View& view) {
      const sync::MutexLock lock(mutex);
      newest = view;
      if (mesh != nullptr) mesh->Cancel(absl::AbortedError("a newer view has begun"));
    }
  };

  static std::string NameOf(const MemberId& id) { return absl::StrCat(id.pod_uid, ".", id.start); }
  std::unique_ptr<transport::Transport> NewTransport(const MemberId& id) {
    transport::Options options;
    options.member = NameOf(id);
    options.job = "job-a";
    options.secret = "secret of the tests";
    auto opened = kind_ == Kind::kInproc
                      ? network_.OpenTransport(options)
                      : transport::OpenTcpTransport(net::Address{"127.0.84.1", 0}, options);
    STARLING_CHECK(opened.ok(), opened.status().ToString().c_str());
    return *std::move(opened);
  }
  static membership::Participant Common(const MemberId& id, int index, std::string address) {
    membership::Participant one;
    one.id = id;
    one.pod = id.pod_uid;
    one.index = index;
    one.address = std::move(address);
    one.liveness = membership::Liveness::kReporting;
    return one;
  }

  // Between two looks at what others do.
  void Pause() {
    const sync::MutexLock lock(pause_mutex_);
    pause_.WaitFor(pause_mutex_, absl::Milliseconds(2));
  }

  void AddWorker(int index) {
    auto worker = std::make_unique<Worker>();
    worker->id = {absl::StrCat("worker-", index), 0};
    worker->index = index;
    worker->transport = NewTransport(worker->id);
    worker->thread = std::thread([this, one = worker.get()] { Work(*one); });
    workers_[worker->id] = std::move(worker);
  }

  void Work(Worker& worker) {
    parameter_server::ClientLoop client(worker.id, kShards);
    while (!quit_) {
      std::optional<View> view;
      {
        const sync::MutexLock lock(worker.mutex);
        if (worker.newest && worker.newest->number > worker.fence) view = worker.newest;
      }
      if (!view) {
        Pause();
        continue;
      }
      worker.transport->Fence(view->number);
      worker.broken = false;
      worker.fence = view->number;
      (void)InView(worker, client, *view);
      worker.broken = true;
    }
  }

  absl::Status InView(Worker& worker, parameter_server::ClientLoop& client, const View& view) {
    const parameter_server::Ranks ranks = parameter_server::RanksOf(view);
    std::vector<transport::Peer> peers;
    for (const auto& member : view.members) {
      peers.push_back({NameOf(member.id), member.address});
    }
    auto mesh =
        worker.transport->Open(view.number, peers, parameter_server::RankOf(ranks, worker.id),
                               net::Deadline::After(absl::Seconds(1)), &worker.opening);
    if (!mesh.ok()) return mesh.status();
    {
      const sync::MutexLock lock(worker.mutex);
      worker.mesh = mesh->get();
      if (worker.newest->number > view.number || quit_) {
        worker.mesh->Cancel(absl::AbortedError("a newer view has begun"));
      }
    }
    absl::Status status = Push(worker, client, view, ranks, **mesh);
    const sync::MutexLock lock(worker.mutex);
    worker.mesh = nullptr;
    return status;
  }

  absl::Status Push(Worker& worker, parameter_server::ClientLoop& client, const View& view,
                    const parameter_server::Ranks& ranks, transport::Mesh& mesh) {
    const bool fresh = parameter_server::ClientViewOf(view, worker.id).joined != client.joined();
    if (fresh) open_[worker.index].clear();
    auto status = client.Enter(parameter_server::ClientViewOf(view, worker.id), ranks, mesh);
    if (!status.ok()) return status;
    if (!client.ready()) {
      const auto start = client.WaitUntilReady(Soon());
      if (!start.ok()) return start.status();
    }
    while (true) {
      // What was pushed before the last view ended is acknowledged first.
      status = client.Drain(Soon());
      if (!status.ok()) return status;
      std::vector<Lease> taken;
      bool all_done = false;  // not so any more where the last copy is lost after them
      {
        const sync::MutexLock lock(mutex_);
        for (const Lease lease : open_[worker.index])
          book_.OnDone(lease, parameter_server::Client{worker.id, client.joined()});
        open_[worker.index].clear();
        taken = book_.Take(parameter_server::Client{worker.id, client.joined()}, 2);
        all_done = book_.AllDone();
      }
      if (worker.index == 0) {
        status = ReadHot(client);
        if (!status.ok()) return status;
      }
      if (all_done && reading_ && worker.index == 0 && !read_) {
        status = Read(client);
        if (!status.ok()) return status;
      }
      if (taken.empty()) {
        Pause();
        if (!mesh.status().ok()) return mesh.status();
        // Hears of the mesh's end.
        parameter_server::Read ping;
        ping.rows = 1;
        const auto pong = client.Pull(0, ping, Soon());
        if (!pong.ok()) return pong.status();
        continue;
      }
      open_[worker.index] = taken;
      for (const Lease lease : taken) {
        const std::vector<float> values = UpdateOf(lease);
        parameter_server::Entry entry;
        entry.lease = lease;
        entry.clock = static_cast<parameter_server::Clock>(lease);
        entry.update = parameter_server::Encode(
            {parameter_server::UpdateKind::kRange, 0, 0, kRows, {}, values, {}});
        for (std::size_t shard = 0; shard < kShards; ++shard) client.Push(shard, entry);
      }
    }
  }

  absl::Status ReadHot(parameter_server::ClientLoop& client) {
    std::set<std::size_t> hot;
    {
      const sync::MutexLock lock(mutex_);
      hot = hot_;
    }
    for (int times = 0; times < 10; ++times) {
      for (const std::size_t shard : hot) {
        parameter_server::Read read;
        read.rows = kRows;
        const auto done = client.Pull(shard, read, Soon());
        if (!done.ok()) return done.status();
      }
    }
    return absl::OkStatus();
  }

  absl::Status Read(parameter_server::ClientLoop& client) {
    std::vector<std::vector<float>> tables;
    for (std::size_t shard = 0; shard < kShards; ++shard) {
      parameter_server::Read read;
      read.rows = kRows;
      const auto done = client.Pull(shard, read, Soon());
      if (!done.ok()) return done.status();
      std::vector<float>& values = tables.emplace_back(kRows);
      std::memcpy(values.data(), done->values->data(), done->values->size());
    }
    tables_ = std::move(tables);
    read_ = true;
    return absl::OkStatus();
  }

  const Options options_;
  const absl::Time begun_ = absl::Now();
  const Kind kind_;
  transport::InprocNetwork network_;
  std::unique_ptr<storage::BlobStore> storage_;
  std::unique_ptr<ShardSnapshots> snapshots_;
  std::shared_ptr<parameter_server::ShardPlacement> placement_;
  std::unique_ptr<membership::ViewPlan> plan_;
  sync::Mutex mutex_;
  parameter_server::LeaseTable book_ ABSL_GUARDED_BY(mutex_);
  std::set<std::size_t> hot_ ABSL_GUARDED_BY(mutex_);
  std::string folder_;
  std::map<MemberId, std::unique_ptr<Server>> servers_;
  std::map<MemberId, std::unique_ptr<Worker>> workers_;
  std::map<int, std::vector<Lease>> open_ = {{0, {}}, {1, {}}, {2, {}}};  // each worker's own
  std::set<MemberId> released_;
  int wanted_servers_ = 0;
  int views_ = 0;
  std::atomic<bool> quit_ = false, reading_ = false, read_ = false;
  std::vector<std::vector<float>> tables_;
  sync::Mutex pause_mutex_;
  sync::Condition pause_;
};

inline void ExpectExact(Cluster& cluster, Lease leases) {
  ASSERT_TRUE(cluster.Until([&] { return cluster.AllDone(); })) << cluster.Why();
  const auto tables = cluster.ReadAll();
  ASSERT_EQ(tables.size(), kShards);
  for (const auto& table : tables) EXPECT_EQ(table, SumOf(leases));
}

}  // namespace starling::server::cluster
