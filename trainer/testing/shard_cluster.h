// SPDX-License-Identifier: Apache-2.0
// For tests of ShardCoordinator: pods whose processes do what they are told, perfectly or as the
// test says. Servers keep ledgers only; what one has, its whole chain has, at once.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/membership.pb.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/parameter_server/convert.h"
#include "trainer/parameter_server/shard_coordinator.h"

namespace starling::parameter_server {

namespace pb = v1alpha1;
using membership::MakeViewNumber;
using membership::Pod;
using membership::PodState;

inline constexpr std::int64_t kSamples = 40;  // 10 batches of 4 an epoch

inline pb::TrainingJobSpec Spec() {
  pb::TrainingJobSpec spec;
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1);
  spec.mutable_stop()->set_epochs(2);
  spec.mutable_validation()->set_every_epochs(1);
  spec.mutable_dataset()->mutable_validation();
  pb::ParameterServer& server = *spec.mutable_exchange()->mutable_parameter_server();
  server.set_samples_per_push(4);
  server.set_replication(2);
  server.set_shards(2);
  server.mutable_consistency()->mutable_asynchronous();
  return spec;
}

// A process of a pod: what it was told, and what it reports. Servers are perfect: what one has, all
// of its chain have, at once.
struct Process {
  MemberId id;
  bool server = false;
  std::optional<membership::LastExit> last_exit;
  bool connected = false;
  bool leaving = false;
  bool broken = false;
  std::vector<MemberId> unreachable;
  std::uint64_t incarnation = 0;
  std::optional<View> installed;
  std::map<std::size_t, ViewNumber> synced;  // shards that it holds, and since which view
  pb::ParameterServerDirective told;
  std::optional<pb::ModelLayout> tables;  // that it serves, as it was told first
  std::set<Lease> held;
  std::set<Lease> done;
  std::set<Lease> returned;  // refused, and still listed
  std::int64_t samples = kSamples;
  std::int64_t checkpoint_turn = 0;
  std::int64_t turn = 0;
  bool ends_training = false;
  membership::Training training;
  std::int64_t settings_generation = 0;
  bool saves = true;  // what it is asked to, at once
  bool released = false;
  // Where workers hold a part of the model (Cluster::hybrid()).
  membership::Phase phase = membership::Phase::kRun;
  std::int64_t base_step = 0;
  std::int64_t settled_step = 0;
  bool stopped = false;

  ViewNumber joined() const {
    if (!installed) return 0;
    const membership::ViewMember* self = installed->Find(id);
    return self == nullptr ? 0 : self->joined;
  }
};

class Cluster {
 public:
  Cluster(int workers, int servers, pb::TrainingJobSpec spec = Spec()) : spec_(std::move(spec)) {
    desired_.workers = workers;
    desired_.servers = servers;
    for (int i = 0; i < workers; ++i) AddPod("w", kWorkerRole, i);
    for (int i = 0; i < servers; ++i) AddPod("s", kServerRole, i);
    NewCoordinator();
  }
  // All processes run.
  static Cluster Running(int workers, int servers, pb::TrainingJobSpec spec = Spec()) {
    Cluster cluster(workers, servers, std::move(spec));
    for (const Pod& pod : cluster.pods_) cluster.Start(pod.name);
    cluster.Settle();
    return cluster;
  }

  bool hybrid() const { return spec_.exchange().parameter_server().tensors_size() > 0; }
  void AddPod(const std::string& prefix, const char* role, int index) {
    const std::string name = absl::StrCat(prefix, index);
    pods_.push_back({"uid-" + name, name, role, index, "127.0.0.9", PodState::kLive});
  }
  Pod& PodOf(const std::string& name) {
    return *std::find_if(pods_.begin(), pods_.end(),
                         [&](const Pod& pod) { return pod.name == name; });
  }
  void NewCoordinator() {
    ShardCoordinator::Options options = options_;
    options.common.boot_id = absl::StrCat("boot", ++incarnation_);
    options.common.rules = rules_;
    const ViewNumber seen = coordinator_ == nullptr ? 0 : Look().newest_view;
    coordinator_ = std::make_unique<ShardCoordinator>(options, spec_);
    for (auto& [name, process] : processes_) process.connected = false;
    coordinator_->OnGrant({incarnation_, options.common.boot_id, pods_, seen}, now_);
    told_.clear();
    Want();
  }
  void Want() {
    desired_.pods = pods_;
    ++desired_.sequence;
    coordinator_->OnDesired(desired_, now_);
    LookAtVersions();
  }
  Process& Start(const std::string& name, std::optional<membership::LastExit> last_exit = {}) {
    Process process;
    process.id = {"uid-" + name, starts_[name]++};
    process.server = PodOf(name).role == kServerRole;
    process.last_exit = std::move(last_exit);
    processes_[name] = process;
    Connect(name);
    return processes_.at(name);
  }
  void Connect(const std::string& name) {
    processes_.at(name).connected = true;
    coordinator_->OnConnected("uid-" + name, now_);
    LookAtVersions();
    Report(name);
  }
  // As a process that a new coordinator has just reached.
  void Meet(const std::string& name) {
    Connect(name);
    Obey(processes_.at(name));
    Report(name);
  }
  void Kill(const std::string& name) {
    processes_.erase(name);
    coordinator_->OnDisconnected("uid-" + name, now_);
    coordinator_->OnRefused("uid-" + name, now_);
    LookAtVersions();
  }

  void Report(const std::string& name) {
    const Process& process = processes_.at(name);
    if (!process.connected || muted_.contains(name)) return;
    Say(ReportOf(process));
  }
  void Say(const membership::Report& report) {
    coordinator_->OnReport(report.id.pod_uid, report, now_);
    LookAtVersions();
  }
  // A directive is sent when the version says that there is news.
  void LookAtVersions() {
    const std::uint64_t version = coordinator_->directives_version();
    for (const Pod& pod : pods_) {
      membership::Directive directive = coordinator_->DirectiveFor(pod.uid);
      const auto told = told_.find(pod.uid);
      if (told != told_.end() && version == version_ && !coordinator_->superseded()) {
        EXPECT_EQ(told->second, directive) << "what " << pod.name << " is told has changed";
      }
      told_.insert_or_assign(pod.uid, std::move(directive));
    }
    version_ = version;
  }
  membership::Report ReportOf(const Process& process) const {
    membership::Report report;
    report.id = process.id;
    report.highest_incarnation = process.incarnation;
    report.last_exit = process.last_exit;
    report.leaving = process.leaving;
    report.unreachable = process.unreachable;
    report.checkpoint_turn = process.checkpoint_turn;
    report.training = process.training;
    report.settings_generation = process.settings_generation;
    pb::ParameterServerReport said;
    if (hybrid() && !process.server && process.installed) {
      said.set_chains(3);
      report.phase = process.phase;
      report.state = StateId{process.installed->number, process.settled_step};
      report.base_step = process.base_step;
      report.settled_step = process.settled_step;
      report.stopped = process.stopped;
    }
    report.installed = process.installed;
    said.set_broken(process.broken);
    if (!process.server) {
      Put(Layout{2 * kSmallestShard, process.samples, "f"}, *said.mutable_layout());
    } else if (process.tables) {
      *said.mutable_layout() = *process.tables;
    }
    for (std::size_t shard = 0; process.server && shard < 3; ++shard) {
      ShardReport one;
      const auto synced = process.synced.find(shard);
      if (synced != process.synced.end()) one.state = StateId{synced->second, 1};
      one.cached = cached_[shard];
      const bool serves = process.installed && process.installed->groups[shard].Has(process.id);
      one.load = serves ? loads_[shard] : 0;
      Put(one, *said.add_shards());
      const bool tail = process.installed && !process.broken &&
                        process.installed->groups[shard].members.back() == process.id;
      if (!tail || shard == 2) continue;
      pb::ShardLedger& ledger = *said.add_ledgers();
      ledger.set_shard(static_cast<std::int64_t>(shard));
      Put(ledgers_[shard], ledger);
    }
    for (const Lease lease : process.done) said.add_done(lease);
    for (const Lease lease : process.held) said.add_held(lease);
    said.mutable_evaluation()->set_turn(process.turn);
    said.mutable_evaluation()->set_ends_training(process.ends_training);
    report.parameter_server = said.SerializeAsString();
    return report;
  }

  static bool In(const std::vector<MemberId>& chain, const MemberId& id) {
    return std::find(chain.begin(), chain.end(), id) != chain.end();
  }

  void Obey(Process& process) {
    const membership::Directive directive = coordinator_->DirectiveFor(process.id.pod_uid);
    if (directive.incarnation < process.incarnation) return;
    process.incarnation = directive.incarnation;
    process.released = directive.released;
    ASSERT_TRUE(process.told.ParseFromString(directive.parameter_server));
    if (process.server && process.told.has_layout() && !process.tables)
      process.tables = process.told.layout();
    if (process.server && process.saves)
      process.checkpoint_turn = std::max(process.checkpoint_turn, directive.checkpoint_turn);
    const View view = directive.view.value_or(View());
    const ViewNumber had = process.installed ? process.installed->number : 0;
    const bool newer =
        view.number > had && membership::IncarnationOf(view.number) == directive.incarnation;
    if (newer) Install(process, view);
    if (!process.installed || process.installed->number != view.number) return;
    std::set<Lease> listed(process.told.leases().begin(), process.told.leases().end());
    std::erase_if(process.done, [&](Lease lease) { return !listed.contains(lease); });
    std::erase_if(process.returned, [&](Lease lease) { return !listed.contains(lease); });
    process.held.clear();
    for (const Lease lease : listed) {
      const bool held = !process.done.contains(lease) && !process.returned.contains(lease);
      if (held) process.held.insert(lease);
    }
  }
  void Install(Process& process, const View& view) {
    const ViewNumber joined = process.joined();
    process.installed = view;
    process.broken = false;
    process.unreachable.clear();
    if (!process.server) {
      if (process.joined() != joined) process.held.clear(), process.done.clear();
      return;
    }
    for (std::size_t shard = 0; shard < view.groups.size(); ++shard) {
      const ReplicaGroup& part = view.groups[shard];
      if (!part.Has(process.id)) continue;
      if (part.restore && shard < ledgers_.size() &&
          restored_.insert({view.number, shard}).second) {
        ledgers_[shard] = saved_;
      }
      process.synced[shard] = view.number;
    }
  }
  // This worker does so many of the batches that it was given; answers how many it had.
  std::size_t Work(const std::string& name, std::size_t most = 1000) {
    Process& process = processes_.at(name);
    std::size_t count = 0;
    while (!process.held.empty() && count < most) {
      const Lease lease = *process.held.begin();
      process.held.erase(process.held.begin());
      process.done.insert(lease);
      for (LeaseLedger& ledger : ledgers_) {
        if (ledger.Has(lease)) ++repeated_;
        ledger.Add(lease);
      }
      order_.push_back(lease);
      ++count;
    }
    return count;
  }
  // Some shard has refused the first of its leases, which is not its any more.
  Lease Return(const std::string& name) {
    Process& process = processes_.at(name);
    const Lease lease = *process.held.begin();
    process.held.erase(lease);
    process.returned.insert(lease);
    return lease;
  }
  // Directives and reports flow until nothing changes.
  void Settle() {
    for (int round = 0; round < 8; ++round) {
      for (auto& [name, process] : processes_) {
        if (process.connected && !muted_.contains(name)) Obey(process);
      }
      for (auto& [name, process] : processes_) Report(name);
    }
  }
  void Advance(absl::Duration by) {
    Pass(by);
    Settle();
  }
  // Time passes, and nobody obeys.
  void Pass(absl::Duration by) {
    for (absl::Duration gone; gone < by; gone += absl::Milliseconds(50)) {
      now_ += absl::Milliseconds(50);
      for (auto& [name, process] : processes_) Report(name);
      coordinator_->OnTick(now_);
      LookAtVersions();
    }
  }
  void Validate(const std::string& name, bool ends_training = false) {
    Process& process = processes_.at(name);
    ASSERT_NE(process.told.evaluate(), 0);
    process.turn = process.told.evaluate();
    process.ends_training = ends_training;
    Settle();
  }
  // Everybody works until nobody has anything.
  void WorkAll() {
    for (bool any = true; any;) {
      any = false;
      for (auto& [name, process] : processes_) any = (!process.server && Work(name, 1) > 0) || any;
      Settle();
    }
  }
  membership::Summary Look() const { return coordinator_->MakeSummary(now_); }
  const membership::MemberState& MemberOf(const std::string& name) {
    summary_ = Look();
    return *std::find_if(summary_.members.begin(), summary_.members.end(),
                         [&](const auto& member) { return member.pod == name; });
  }
  Process& operator[](const std::string& name) { return processes_.at(name); }

  pb::TrainingJobSpec spec_;
  membership::Rules rules_;            // of the next coordinator
  ShardCoordinator::Options options_;  // the same
  std::vector<Pod> pods_;
  std::map<std::string, Process> processes_;
  std::map<std::string, std::int64_t> starts_;
  std::set<std::string> muted_;
  std::unique_ptr<ShardCoordinator> coordinator_;
  membership::Desired desired_;
  membership::Summary summary_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::uint64_t incarnation_ = 0;
  // Whoever is asked to fetch one of these shards ahead has done so.
  std::array<bool, 3> cached_ = {true, true, true};
  std::array<std::int64_t, 3> loads_ = {};  // of the shards, bytes a second
  std::array<LeaseLedger, 2> ledgers_;
  LeaseLedger saved_;
  std::set<std::pair<ViewNumber, std::size_t>> restored_;
  std::vector<Lease> order_;  // as they were done
  int repeated_ = 0;
  std::uint64_t version_ = 0;  // of the directives that are told
  std::map<std::string, membership::Directive> told_;
};

}  // namespace starling::parameter_server
