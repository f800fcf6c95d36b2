// SPDX-License-Identifier: Apache-2.0
// For tests of ShardPlacement under ViewPlan: a job whose processes do at once what they are told.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/membership/view_plan.h"
#include "trainer/parameter_server/shard_placement.h"

namespace starling::parameter_server::plan_testing {

using membership::Participant;
using membership::Phase;
using membership::Role;
using membership::Roster;
using membership::ViewPlan;

inline constexpr std::size_t kShards = 4;

// Thread-compatible.
class Job {
 public:
  explicit Job(int replication, std::uint64_t incarnation = 1, ViewNumber newest_view = 0,
               const Balance& balance = {})
      : placement_(std::make_shared<ShardPlacement>(OptionsOf(replication, balance))),
        plan_(RulesOf(incarnation), {placement_}) {
    plan_.OnTakenOver(newest_view);
  }

  MemberId Server(int index) {
    return Add({absl::StrCat("server-", index), 0}, index, Role::kServer);
  }
  MemberId Worker(int index) {
    return Add({absl::StrCat("worker-", index), 0}, index, Role::kWorker);
  }
  Participant& At(const MemberId& id) { return roster_.participants.at(id); }
  void End(const MemberId& id) { roster_.participants.erase(id); }
  Roster& roster() { return roster_; }
  ViewPlan& plan() { return plan_; }
  const View& newest() const { return *plan_.Newest(); }
  std::vector<std::size_t> FetchAhead(const MemberId& server) const {
    const auto found = placement_->ahead().find(server);
    const bool runs = plan_.running() && newest().Has(server);
    return !runs || found == placement_->ahead().end() ? std::vector<std::size_t>() : found->second;
  }
  // Nobody needs it any more.
  bool Released(const MemberId& id) { return plan_.synced() && !newest().Has(id); }

  std::optional<View> Plan() { return plan_.Next(roster_, now_); }
  void Pass(absl::Duration time) { now_ += time; }
  // Everybody installs the newest view, and every chain syncs.
  void Follow() {
    const View& view = newest();
    for (auto& [id, one] : roster_.participants) {
      if (one.liveness != Liveness::kReporting) continue;
      one.fence = one.installed = view.number;
      one.phase = Phase::kRun;
      for (std::size_t shard = 0; shard < one.groups.size(); ++shard) {
        if (!view.groups[shard].Has(id)) continue;
        one.groups[shard] = {StateId{view.number, 7}, false, false};
      }
    }
  }
  // Plans and follows until nothing is left to be done; caches are filled as asked for.
  int Settle() {
    for (int views = 0;; ++views) {
      if (!Plan()) {
        bool fetched = false;
        for (auto& [id, one] : roster_.participants) {
          for (const std::size_t shard : FetchAhead(id)) {
            one.groups[shard].cached = fetched = true;
          }
        }
        if (!fetched || !Plan()) return views;
      }
      Follow();
    }
  }

 private:
  static ShardPlacement::Options OptionsOf(int replication, const Balance& balance) {
    ShardPlacement::Options options;
    for (std::size_t shard = 0; shard < kShards; ++shard) {
      options.shards.push_back({static_cast<std::uint32_t>(shard), {0, 100}});
    }
    options.replication = replication;
    options.balance = balance;
    return options;
  }
  static ViewPlan::Options RulesOf(std::uint64_t incarnation) {
    ViewPlan::Options options;
    options.incarnation = incarnation;
    options.first_view_grace = absl::ZeroDuration();
    return options;
  }
  MemberId Add(const MemberId& id, int index, Role role) {
    Participant& one = roster_.participants[id];
    one.id = id;
    one.pod = id.pod_uid;
    one.index = index;
    one.role = role;
    one.liveness = Liveness::kReporting;
    if (role == Role::kServer) one.groups.resize(kShards);
    ++(role == Role::kServer ? roster_.servers : roster_.workers).most;
    return id;
  }

  Roster roster_;
  std::shared_ptr<ShardPlacement> placement_;
  ViewPlan plan_;
  absl::Time now_ = absl::UnixEpoch();
};

inline bool In(const std::vector<MemberId>& chain, const MemberId& id) {
  return std::find(chain.begin(), chain.end(), id) != chain.end();
}

}  // namespace starling::parameter_server::plan_testing
