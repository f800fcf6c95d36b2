// SPDX-License-Identifier: Apache-2.0
// For tests: a PeerCoordinator with real members, and a test in the place of their network, clock
// and controller.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "trainer/membership/member.h"
#include "trainer/membership/peer_coordinator.h"

namespace starling::membership {

// A coordinator and real members that hear each other at once; the test decides who lives and when
// steps are made.
class Cluster {
 public:
  explicit Cluster(int workers, const Rules& rules = {}) : rules_(rules) {
    for (int i = 0; i < workers; ++i) AddPod();
    desired_.workers = workers;
    NewCoordinator();
  }

  void NewCoordinator() {
    PeerCoordinator::Options options;
    options.boot_id = "boot" + std::to_string(incarnation_ + 1);
    options.rules = rules_;
    coordinator_ = std::make_unique<PeerCoordinator>(options);
    ++incarnation_;
    connected_.clear();
    Grant grant;
    grant.incarnation = incarnation_;
    grant.boot_id = options.boot_id;
    grant.roster = pods_;
    grant.newest_view = seen_;
    coordinator_->OnGrant(grant, now_);
    Want();
  }
  void AddPod() {
    const std::string uid = "uid" + std::to_string(pods_.size());
    pods_.push_back({uid, "w" + std::to_string(pods_.size()), "worker",
                     static_cast<std::int64_t>(pods_.size()), "127.0.0.9", PodState::kLive});
  }
  void Want() {
    desired_.pods = pods_;
    ++desired_.sequence;
    coordinator_->OnDesired(desired_, now_);
  }
  // A process of this pod starts and is connected.
  void Start(int pod, std::optional<LastExit> last_exit = {}, const std::string& identity = "") {
    const std::string& uid = pods_[static_cast<std::size_t>(pod)].uid;
    const std::int64_t start = starts_[pod]++;
    members_.insert_or_assign(pod, Member({{uid, start}, identity, std::move(last_exit), rules_}));
    Connect(pod);
  }
  void Connect(int pod) {
    coordinator_->OnConnected(Uid(pod), now_);
    connected_.insert(pod);
    Settle();
  }
  void Kill(int pod) {
    members_.erase(pod);
    connected_.erase(pod);
    coordinator_->OnDisconnected(Uid(pod), now_);
    coordinator_->OnRefused(Uid(pod), now_);
    Settle();
  }
  void Abort(int pod, const std::vector<int>& unreachable) {
    std::vector<MemberId> ids;
    ids.reserve(unreachable.size());
    for (const int other : unreachable) ids.push_back(members_.at(other).MakeReport().id);
    Do(pod, members_.at(pod).OnBroken(members_.at(pod).view()->number, ids));
    Report(pod);
  }
  // All members of `pods` make a step.
  void Step(const std::vector<int>& pods) {
    Reduction reduction;
    bool first = true;
    for (const int pod : pods) {
      const Member& member = members_.at(pod);
      const ControlWord word = members_.at(pod).NextControlWord();
      reduction.view = member.view()->number;
      reduction.step = member.state()->step + 1;
      const auto fold = [&](auto field) {
        reduction.min.*field = first ? word.*field : std::min(reduction.min.*field, word.*field);
        reduction.max.*field = first ? word.*field : std::max(reduction.max.*field, word.*field);
      };
      fold(&ControlWord::candidate);
      fold(&ControlWord::checkpoint_turn);
      fold(&ControlWord::settings_generation);
      first = false;
    }
    for (const int pod : pods) Do(pod, members_.at(pod).OnReduced(reduction));
    Settle();
  }
  void Advance(absl::Duration by, const std::set<int>& mute = {}) {
    for (absl::Duration gone; gone < by; gone += absl::Milliseconds(100)) {
      now_ += absl::Milliseconds(100);
      for (const auto& [pod, member] : members_) {
        if (!mute.contains(pod) && connected_.contains(pod)) Report(pod);
      }
      coordinator_->OnTick(now_);
    }
    Settle(mute);
  }
  void Report(int pod) { coordinator_->OnReport(Uid(pod), members_.at(pod).MakeReport(), now_); }
  // Directives and reports flow until nothing changes.
  void Settle(const std::set<int>& mute = {}) {
    for (int round = 0; round < 8; ++round) {
      for (auto& [pod, member] : members_) {
        if (mute.contains(pod) || !connected_.contains(pod)) continue;
        Do(pod, member.OnDirective(coordinator_->DirectiveFor(Uid(pod))));
      }
      for (auto& [pod, member] : members_) {
        if (!mute.contains(pod) && connected_.contains(pod)) Report(pod);
      }
    }
    seen_ = Look().newest_view;
  }
  Summary Look() const { return coordinator_->MakeSummary(now_); }
  std::vector<int> Running() const {
    std::vector<int> running;
    for (const auto& [pod, member] : members_) {
      if (member.phase() == Phase::kRun) running.push_back(pod);
    }
    return running;
  }
  std::string Uid(int pod) const { return pods_[static_cast<std::size_t>(pod)].uid; }

  std::vector<Pod> pods_;
  std::map<int, Member> members_;
  std::unique_ptr<PeerCoordinator> coordinator_;
  Desired desired_;
  std::set<int> exited_;
  std::set<int> connected_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::uint64_t incarnation_ = 0;
  ViewNumber seen_ = 0;

 private:
  void Do(int pod, const Actions& actions) {
    for (const Action& action : actions) {
      if (const auto* send = std::get_if<SendSyncId>(&action)) {
        for (auto& [peer, member] : members_) {
          if (peer != pod) Do(peer, member.OnSyncId(send->sync_id));
        }
      } else if (const auto* copy = std::get_if<CopyState>(&action)) {
        Do(pod, members_.at(pod).OnCopied(copy->view));
      } else if (const auto* find = std::get_if<FindCheckpoint>(&action)) {
        Do(pod, members_.at(pod).OnCheckpointFound(find->view, std::nullopt));
      } else if (std::holds_alternative<Exit>(action)) {
        exited_.insert(pod);
      }
    }
  }

  const Rules rules_;
  std::map<int, std::int64_t> starts_;
};

// All have started and made a step.
inline Cluster Running(int workers) {
  Cluster cluster(workers);
  for (int i = 0; i < workers; ++i) cluster.Start(i);
  std::vector<int> all(static_cast<std::size_t>(workers));
  std::iota(all.begin(), all.end(), 0);
  cluster.Step(all);
  return cluster;
}

}  // namespace starling::membership
