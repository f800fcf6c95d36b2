// SPDX-License-Identifier: Apache-2.0
// For tests of SlotPlan: a job whose processes do at once what they are told.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/parameter_server/slot_plan.h"

namespace starling::parameter_server::plan_testing {

inline constexpr std::size_t kSlots = 4;

// Thread-compatible.
class Job {
 public:
  explicit Job(int replication, std::uint64_t incarnation = 1, ViewNumber newest_view = 0,
               const Balance& balance = {})
      : plan_(OptionsOf(replication, incarnation, newest_view, balance)) {}

  MemberId Server(int index) {
    return Add({absl::StrCat("server-", index), 0}, index, /*server=*/true);
  }
  MemberId Worker(int index) {
    return Add({absl::StrCat("worker-", index), 0}, index, /*server=*/false);
  }
  Participant& At(const MemberId& id) {
    return *std::find_if(census_.participants.begin(), census_.participants.end(),
                         [&](const Participant& one) { return one.id == id; });
  }
  void End(const MemberId& id) {
    std::erase_if(census_.participants, [&](const Participant& one) { return one.id == id; });
  }
  Census& census() { return census_; }
  SlotPlan& plan() { return plan_; }

  std::optional<View> Plan() { return plan_.Plan(census_, now_); }
  void Pass(absl::Duration time) { now_ += time; }
  // Everybody installs the newest view, and every chain syncs.
  void Follow() {
    const View& view = plan_.newest();
    for (Participant& one : census_.participants) {
      if (one.liveness != Liveness::kReporting) continue;
      one.fence = view.number;
      one.broken = false;
      for (std::size_t slot = 0; slot < one.slots.size(); ++slot) {
        if (!view.groups[slot].Has(one.id)) continue;
        one.slots[slot] = {StateId{view.number, 7}, false, false};
      }
    }
  }
  // Plans and follows until nothing is left to be done; caches are filled as asked for.
  int Settle() {
    for (int views = 0;; ++views) {
      if (!Plan()) {
        bool fetched = false;
        for (Participant& one : census_.participants) {
          for (const std::size_t slot : plan_.FetchAhead(one.id)) {
            one.slots[slot].cached = fetched = true;
          }
        }
        if (!fetched || !Plan()) return views;
      }
      Follow();
    }
  }

 private:
  static SlotPlan::Options OptionsOf(int replication, std::uint64_t incarnation,
                                     ViewNumber newest_view, const Balance& balance) {
    SlotPlan::Options options;
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      options.slots.push_back({static_cast<std::uint32_t>(slot), {0, 100}});
    }
    options.placement.replication = replication;
    options.incarnation = incarnation;
    options.newest_view = newest_view;
    options.balance = balance;
    return options;
  }
  MemberId Add(const MemberId& id, int index, bool server) {
    Participant one;
    one.id = id;
    one.pod = id.pod_uid;
    one.index = index;
    one.server = server;
    one.liveness = Liveness::kReporting;
    if (server) one.slots.resize(kSlots);
    census_.participants.push_back(one);
    ++(server ? census_.servers : census_.clients);
    return id;
  }

  Census census_;
  SlotPlan plan_;
  absl::Time now_ = absl::UnixEpoch();
};

inline bool In(const std::vector<MemberId>& chain, const MemberId& id) {
  return std::find(chain.begin(), chain.end(), id) != chain.end();
}

}  // namespace starling::parameter_server::plan_testing
