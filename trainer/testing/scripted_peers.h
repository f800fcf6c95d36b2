// SPDX-License-Identifier: Apache-2.0
// For tests: a PeerCoordinator whose members are nothing but reports that the test writes, so that
// it can be shown every combination, also those that real members seldom come into (peer_cluster.h
// has real ones).
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "trainer/membership/peer_coordinator.h"

namespace starling::membership {

// Pods are numbered from 0; pod 3 has the UID "uid3", the name "w3" and the index 3.
class ScriptedPeers {
 public:
  // `incarnation` above 1: the coordinator succeeds another, and the controller has seen its view
  // `seen` and that this step is settled.
  explicit ScriptedPeers(int pods, std::uint64_t incarnation = 1, ViewNumber seen = 0,
                         std::int64_t settled = 0)
      : coordinator_(Options()) {
    Grant grant;
    grant.incarnation = incarnation;
    grant.boot_id = "boot";
    grant.newest_view = seen;
    grant.settled_step = settled;
    for (int i = 0; i < pods; ++i) {
      grant.roster.push_back(
          {Uid(i), "w" + std::to_string(i), "worker", i, "127.0.0.9", PodState::kLive});
      Report report;
      report.id = Id(i);
      report.highest_incarnation = incarnation;
      reports_.push_back(report);
    }
    desired_.pods = grant.roster;
    desired_.workers = pods;
    coordinator_.OnGrant(grant, now_);
    Want();
  }

  static std::string Uid(int pod) { return "uid" + std::to_string(pod); }
  static MemberId Id(int pod) { return {Uid(pod), 0}; }
  static View PeerView(ViewNumber number, const std::vector<int>& pods) {
    std::vector<ViewMember> members;
    members.reserve(pods.size());
    for (const int pod : pods) members.push_back({Id(pod), "", number, "w" + std::to_string(pod)});
    return ViewOfPeers(number, std::move(members));
  }

  Report& Of(int pod) { return reports_[static_cast<std::size_t>(pod)]; }
  Pod& PodOf(int pod) { return desired_.pods[static_cast<std::size_t>(pod)]; }
  void Want() {
    ++desired_.sequence;
    coordinator_.OnDesired(desired_, now_);
  }
  // Connects if it is not connected, and reports.
  void Say(int pod) {
    if (connected_.insert(pod).second) coordinator_.OnConnected(Uid(pod), now_);
    coordinator_.OnReport(Uid(pod), Of(pod), now_);
  }
  void Say(const std::vector<int>& pods) {
    for (const int pod : pods) Say(pod);
  }
  // From its next report on, it has made this step in this view.
  void Hold(int pod, const View& view, std::int64_t step = 1) {
    Report& report = Of(pod);
    report.installed = view;
    report.fence = view.number;
    report.state = {view.number, step};
    report.settled_step = step;
    report.phase = Phase::kRun;
  }
  // All of these report that they run in the newest view.
  void Run(const std::vector<int>& pods, std::int64_t step = 1) {
    const View view = Newest();
    for (const int pod : pods) Hold(pod, view, step);
    Say(pods);
  }
  // Its address refuses: the process has ended, or the network says so.
  void Refuse(int pod) {
    connected_.erase(pod);
    coordinator_.OnDisconnected(Uid(pod), now_);
    coordinator_.OnRefused(Uid(pod), now_);
  }
  void Restart(int pod) {
    Refuse(pod);
    Report report;
    report.id = {Uid(pod), Of(pod).id.start + 1};
    report.highest_incarnation = Of(pod).highest_incarnation;
    Of(pod) = report;
    Say(pod);
  }
  void Terminate(int pod) {
    PodOf(pod).state = PodState::kTerminated;
    Want();
  }
  // All who are connected say the same again and again, except the mute.
  void Pass(absl::Duration time, const std::set<int>& mute = {}) {
    const absl::Time end = now_ + time;
    while (now_ < end) {
      now_ = std::min(end, now_ + absl::Milliseconds(100));
      for (const int pod : std::set<int>(connected_)) {
        if (!mute.contains(pod)) Say(pod);
      }
      coordinator_.OnTick(now_);
    }
  }
  void Freeze(absl::Duration time) { now_ += time; }

  Summary Look() const { return coordinator_.MakeSummary(now_); }
  Directive Told(int pod) const { return coordinator_.DirectiveFor(Uid(pod)); }
  View Newest() const { return Told(0).view.value_or(View{}); }
  ViewNumber Number() const { return Newest().number; }
  std::vector<int> Members() const {
    std::vector<int> pods;
    for (const ViewMember& member : Newest().members) {
      pods.push_back(std::stoi(member.id.pod_uid.substr(3)));
    }
    return pods;
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  Desired desired_;
  std::vector<Report> reports_;
  std::set<int> connected_;
  PeerCoordinator coordinator_;

 private:
  static PeerCoordinator::Options Options() {
    PeerCoordinator::Options options;
    options.boot_id = "boot";
    return options;
  }
};

// These pods run in the first view, of all.
inline ScriptedPeers RunningPeers(int pods) {
  ScriptedPeers peers(pods);
  std::vector<int> all;
  for (int i = 0; i < pods; ++i) all.push_back(i);
  peers.Say(all);
  peers.Run(all);
  return peers;
}

}  // namespace starling::membership
