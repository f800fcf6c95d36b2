// SPDX-License-Identifier: Apache-2.0
// Standbys: processes that wait to be coordinators, what the controller does with them, and what
// goes wrong with them.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "trainer/simulation/world.h"

namespace starling::simulation {
namespace {

constexpr Micros kStandbyTick = 50'000;
// So long the controller leaves it to a standby to follow a coordinator that is gone.
constexpr Micros kToLead = 4'000'000;

}  // namespace

void World::StartStandby() {
  auto standby = std::make_unique<Waiting>();
  const std::size_t index = standby->index = standbys_.size();
  standby->boot_id = absl::StrCat("standby", index);
  membership::Standby::Options options;
  options.boot_id = standby->boot_id;
  options.silence /= ways_.speed;
  options.rules = options_.rules;
  standby->machine = std::make_unique<membership::Standby>(options);
  standbys_.push_back(std::move(standby));
  Count("standbys");
  GrantStandby(*standbys_.back());
  StandbyTick(index);
}

// In the status first; some time later it hears of it.
void World::GrantStandby(Waiting& standby) {
  standby.incarnation = ++status_incarnation_;
  standby.primary = Last().incarnation;
  status_standby_ = standby.index;
  Trace(absl::StrCat(standby.boot_id, " stands by as ", standby.incarnation));
  TellGrant(standby);
}

void World::TellGrant(const Waiting& standby) {
  At(Long(1000, 200'000),
     [this, index = standby.index, incarnation = standby.incarnation, primary = standby.primary] {
       Waiting& told = *standbys_[index];
       if (told.alive && !told.paused) told.machine->OnGrant(incarnation, primary);
     });
}

// The controller's part: one that leads is told of in the status, one that has ended is replaced,
// one that is below the coordinator that leads is granted anew.
void World::KeepStandby() {
  if (!status_standby_) return StartStandby();
  Waiting& standby = *standbys_[*status_standby_];
  const Leader& last = Last();
  if (standby.leader && standby.alive && !leaders_[*standby.leader]->paused) {
    const Leader& leads = *leaders_[*standby.leader];
    // Too late: another was granted meanwhile. Its pod is taken away.
    if (leads.incarnation < last.incarnation) return EndStandby(standby);
    status_standby_.reset();
    status_boot_id_ = leads.boot_id;
    Count("promoted");
  } else if (standby.confirmed) {
    status_standby_.reset();
    // B4: it may have led before it ended. Who had it for a standby goes on under a grant above it.
    if (last.standby == standby.index) StartCoordinator();
  } else if (standby.primary != last.incarnation && !standby.leader) {
    // Or left to itself, without a word.
    if (Chance(0.5)) return GrantStandby(standby);
    status_standby_.reset();
  } else if (standby.machine->incarnation() != standby.incarnation) {
    TellGrant(standby);
  }
}

// A coordinator that has gone is followed by its standby, if that comes soon enough.
bool World::StandbyMayLead() const {
  if (!options_.standby || !status_standby_ || Late()) return false;
  const Waiting& standby = *standbys_[*status_standby_];
  return standby.alive && standby.machine->armed() && now_ - gone_since_ < kToLead / ways_.speed;
}

// B4: a coordinator that has one is never told that it has none.
void World::NameStandby(Leader& leader, membership::Desired& desired) {
  const bool leads = leader.boot_id == status_boot_id_;
  if (leads && !leader.standby && status_standby_ && !standbys_[*status_standby_]->confirmed) {
    const Waiting& standby = *standbys_[*status_standby_];
    if (standby.primary != leader.incarnation) return;
    leader.standby = status_standby_;
    leader.standby_incarnation = standby.incarnation;
  }
  if (!leader.standby) return;
  desired.standby = membership::StandbyPod{leader.standby_incarnation,
                                           standbys_[*leader.standby]->boot_id, "127.0.0.9"};
}

// On change; and every tick (SendShadow).
void World::SendNewView(Leader& leader) {
  const membership::View* view = leader.machine->view();
  if (view == nullptr || std::exchange(leader.shadowed, view->number) == view->number) return;
  SendShadow(leader);
}

void World::SendShadow(Leader& leader) {
  const std::optional<membership::Shadow> shadow = leader.machine->MakeShadow();
  if (!shadow || !leader.standby || standbys_[*leader.standby]->cut) return;
  for (int i = Copies(); i > 0; --i) {
    At(Long(100, 3000), [this, shadow, from = leader.index, to = *leader.standby] {
      Waiting& standby = *standbys_[to];
      if (!standby.alive || standby.paused || standby.cut) return;
      const membership::ShadowReply reply = standby.machine->OnShadow(*shadow, Now());
      ToLeader(from, Long(100, 3000), [this, reply](Leader& told) {
        told.machine->OnShadowReply(reply, Now());
        AfterEvent(told);
      });
    });
  }
}

void World::StandbyTick(std::size_t index) {
  Waiting& standby = *standbys_[index];
  if (!standby.alive || standby.leader) return;
  At(kStandbyTick / ways_.speed, [this, index] { StandbyTick(index); });
  if (standby.paused) return;
  if (const auto succession = standby.machine->TakeOver(Now())) Succeed(standby, *succession);
}

void World::Succeed(Waiting& standby, const membership::Standby::Succession& succession) {
  Count("successions");
  Trace(absl::StrCat(standby.boot_id, " takes over"));
  const std::size_t index = NewLeader(standby.boot_id, succession.grant.incarnation);
  standby.leader = index;
  Leader& leader = *leaders_[index];
  if (!Late() && now_ < standby.far_until) {
    for (const std::string& uid : standby.far) CutOff(index, uid, standby.far_until - now_);
  }
  leader.machine->OnGrant(succession.grant, Now());
  leader.machine->OnDesired(succession.desired, Now());
  for (const auto& [uid, pod] : leader.machine->PodsToDial()) Dial(leader, uid);
  AfterEvent(leader);
  LeaderTick(index);
}

void World::EndStandby(Waiting& standby) {
  Trace(absl::StrCat(standby.boot_id, " killed"));
  standby.alive = false;
  if (standby.leader) leaders_[*standby.leader]->alive = false;
  At(Long(10'000, 4'000'000),
     [this, index = standby.index] { standbys_[index]->confirmed = true; });
}

void World::StandbyFault(std::int64_t kind) {
  if (standbys_.empty()) return;
  Waiting& standby = *standbys_.back();
  if (kind <= 14) {
    // Loss in company: controller, coordinator and, mostly, members.
    away_until_ = now_ + Long(2'000'000, 8'000'000);
    Trace("no controller");
    Count("losses in company");
    KillLeader();
    const std::vector<Process*> living = Living();
    for (std::size_t i = 0; i < living.size() / 2; ++i) {
      if (Chance(0.7)) Kill(*living[i]);
    }
  } else if (kind == 15) {
    EndStandby(standby);
  } else if (kind == 16) {
    Trace(absl::StrCat(standby.boot_id, " paused"));
    standby.paused = true;
    At(Long(200'000, 4'000'000),
       [this, index = standby.index] { standbys_[index]->paused = false; });
  } else if (kind == 17) {
    Trace(absl::StrCat(standby.boot_id, " cut off"));
    standby.cut = true;
    At(Long(500'000, 4'000'000), [this, index = standby.index] { standbys_[index]->cut = false; });
  } else {
    Part(standby);
  }
}

// The network is cut in the middle: coordinator and some members on one side, standby and the
// others on the other.
void World::Part(Waiting& standby) {
  Trace(absl::StrCat("a partition before ", standby.boot_id));
  Count("partitions");
  const Micros length = Long(2'500'000, 6'000'000);
  standby.cut = true;
  standby.far.clear();
  standby.far_until = now_ + length;
  away_until_ = now_ + Long(0, 6'000'000);
  // The two hear each other again before all others do, now and then.
  At(Chance(0.4) ? length / 2 : length,
     [this, index = standby.index] { standbys_[index]->cut = false; });
  // It ends before that, mostly when it has led.
  if (Chance(0.3)) {
    At(length * 3 / 4, [this, index = standby.index] {
      if (!Late() && standbys_[index]->alive) EndStandby(*standbys_[index]);
    });
  }
  std::vector<std::string> near;
  for (const auto& pod : pods_) {
    if (Chance(0.5)) {
      standby.far.insert(pod->uid);
    } else {
      near.push_back(pod->uid);
      CutOff(Last().index, pod->uid, length);
    }
  }
  for (const std::string& a : standby.far) {
    for (const std::string& b : near) {
      data_cuts_[std::pair<std::string, std::string>(std::minmax(a, b))] = now_ + length;
    }
  }
}

}  // namespace starling::simulation
