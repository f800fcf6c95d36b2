// SPDX-License-Identifier: Apache-2.0
// What is to be done: batches, validations, checkpoints, the end.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "starling/v1alpha1/membership.pb.h"
#include "trainer/membership/convert.h"
#include "trainer/parameter_server/slot_coordinator.h"

namespace starling::parameter_server {
namespace {

using membership::ViewMember;

// What workers are told of progress need not be newer.
constexpr absl::Duration kTellSettled = absl::Milliseconds(50);
constexpr absl::Duration kPaceWindow = absl::Milliseconds(200);
// One lease is being worked on while the next waits.
constexpr std::size_t kFewest = 2;
constexpr std::size_t kMost = 256;

}  // namespace

// What reports say of leases, held against the newest view.
void SlotCoordinator::LearnWork(absl::Time now) {
  if (view() == nullptr) return;
  const std::size_t outstanding = book_->outstanding();
  for (auto& [uid, heard] : heard_) {
    if (!std::exchange(heard.fresh, false)) continue;
    for (const auto& [slot, ledger] : heard.ledgers) {
      book_->OnLedger(heard.installed, slot, ledger);
    }
    if (heard.self.id.pod_uid.empty()) continue;
    for (const Lease lease : heard.done) book_->OnDone(lease, heard.self);
    for (const Lease lease : heard.returned) {
      if (book_->OnReturned(lease, heard.self, now)) Changed();
    }
    for (const Lease lease : heard.held) book_->OnHeld(lease, heard.self);
    CountPace(heard.self, now);
  }
  const std::size_t done = book_->done();
  if (done > done_count_ && plan_->running()) progress_in_view_ = true;
  if (done != done_count_ || outstanding != book_->outstanding()) Changed();
  done_count_ = done;
  const bool was_informed = std::exchange(informed_, book_->Informed());
  if (!informed_) return;
  settled_ = work_.BatchesBelow(book_->FirstOpen());
  if (!was_informed) NoteRepeated();
  if (progress_in_view_) failed_views_ = 0;
  const bool over = work_.total > 0 && settled_ >= work_.total;
  if (settled_ != told_settled_ && (now >= settled_due_ || over)) {
    told_settled_ = settled_;
    settled_due_ = now + kTellSettled;
    Changed();
  }
  FollowRecovery(now);
}

// After a restore the ledgers say what it cost.
void SlotCoordinator::NoteRepeated() {
  const std::int64_t before = std::exchange(before_restore_, -1);
  if (before < 0) return;
  const std::int64_t leases = before - static_cast<std::int64_t>(book_->done());
  const std::int64_t lost = (leases + work_.portions - 1) / work_.portions;
  if (lost <= 0) return;
  for (membership::Incident& incident : detector_.incidents()) {
    if (incident.record.recovery || incident.repaired_by == 0) continue;
    incident.record.repeated_steps = lost;
    absl::StrAppend(&incident.record.message, "; ", lost, lost == 1 ? " batch is" : " batches are",
                    " done again");
  }
}

// A loss is over with the first batch that is done in a view that goes on without the lost one, or
// when such a view runs and nobody has anything to do.
void SlotCoordinator::FollowRecovery(absl::Time now) {
  const bool works = progress_in_view_ || (plan_->running() && book_->outstanding() == 0 &&
                                           (over_since_ <= now || Halted()));
  if (!works) return;
  for (membership::Incident& incident : detector_.incidents()) {
    if (incident.record.recovery || incident.repaired_by == 0) continue;
    if (incident.repaired_by > view()->number) continue;
    incident.record.recovery = now - incident.record.time;
  }
}

void SlotCoordinator::CountPace(const Client& client, absl::Time now) {
  Pace& pace = paces_[client];
  const std::int64_t finished = book_->FinishedBy(client);
  if (pace.since == absl::InfinitePast()) {
    pace.since = now;
    pace.counted = finished;
    return;
  }
  const absl::Duration window = now - pace.since;
  if (window < kPaceWindow) return;
  const double lately =
      static_cast<double>(finished - pace.counted) / absl::ToDoubleSeconds(window);
  pace.per_second = pace.per_second == 0 ? lately : (pace.per_second + lately) / 2;
  pace.counted = finished;
  pace.since = now;
}

const ViewMember* SlotCoordinator::FirstClient() const {
  if (view() == nullptr) return nullptr;
  const std::span<const ViewMember> clients = view()->workers();
  for (const ViewMember& client : clients) {
    if (!detector_.IsLeaving(client.id)) return &client;
  }
  return clients.empty() ? nullptr : clients.data();
}

// How many leases this client is to hold: enough for a while at its pace, but of what is left never
// more than half of its share, so that all are finished at about the same time.
std::size_t SlotCoordinator::Wanted(const Client& client, std::int64_t left) const {
  const auto pace = paces_.find(client);
  std::size_t wanted = kFewest;
  if (pace != paces_.end() && pace->second.per_second > 0) {
    const double ahead = pace->second.per_second * absl::ToDoubleSeconds(slot_options_.work_ahead);
    wanted = std::clamp(static_cast<std::size_t>(std::ceil(ahead)) + 1, kFewest, kMost);
  }
  const auto clients =
      static_cast<std::int64_t>(std::max<std::size_t>(1, view()->workers().size()));
  const std::int64_t share = (left + 2 * clients - 1) / (2 * clients);
  return std::min(wanted, static_cast<std::size_t>(std::max<std::int64_t>(1, share)));
}

void SlotCoordinator::UpdateWork() {
  const membership::Settings& settings = detector_.desired()->settings;
  if (work_.total != 0 && settings.values == settings_) return;
  settings_ = settings.values;
  const absl::StatusOr<v1alpha1::Settings> changed = membership::ParseSettings(settings);
  const bool given = changed.ok() && changed->has_stop();
  work_ = WorkOf(*spec_, given ? changed->stop() : spec_->stop(), layout_->samples);
}

void SlotCoordinator::GiveWork(absl::Time now) {
  if (view() == nullptr || !informed_ || ended_ || conclude_ || ServersLeave()) return;
  if (Halted()) {
    if (Begun() == 0) return;
    book_->Limit(work_.LastOf(Begun()));
    return Deal(Able(nullptr), Begun());
  }
  if (!EnoughIn(*view(), census_)) {
    waiting_ = absl::StrCat("waits for more members: ", view()->workers().size(), " workers and ",
                            view()->servers().size(), " parameter servers are there, at least ",
                            census_.min_clients, " and ", census_.min_servers, " are needed");
    return;
  }
  std::erase_if(paces_, [&](const auto& pace) { return !HasClient(*view(), pace.first); });
  const ViewMember* first = FirstClient();
  // The first values before anything else, then what is to be one client's alone.
  const bool alone = !book_->Done(kFirstValues) || settled_ < work_.warm_start;
  std::int64_t limit = work_.Limit(made_);
  if (settled_ < work_.warm_start) limit = std::min(limit, work_.warm_start);
  if (!book_->Done(kFirstValues)) limit = 0;
  limit = std::max(limit, Begun());
  book_->Limit(work_.LastOf(limit));
  const std::vector<Client> able = Able(alone ? first : nullptr);
  book_->ForgetReturned(able.size() > 1 ? now - slot_options_.return_patience
                                        : absl::InfiniteFuture());
  if (work_.in_step) return Deal(able, settled_ + BatchesAhead());
  const std::int64_t left = std::max<std::int64_t>(
      0, static_cast<std::int64_t>(work_.LastOf(limit)) - static_cast<std::int64_t>(book_->done()));
  for (const Client& client : able) {
    const std::size_t holds = book_->HeldBy(client).size();
    const std::size_t wanted = Wanted(client, left);
    if (holds < wanted && !book_->Take(client, wanted - holds).empty()) Changed();
  }
}

// Who may be given work; `alone`: nobody else.
std::vector<Client> SlotCoordinator::Able(const ViewMember* alone) const {
  std::vector<Client> able;
  for (const ViewMember& member : view()->workers()) {
    if (detector_.IsLeaving(member.id) || (alone != nullptr && alone != &member)) continue;
    able.push_back({member.id, member.joined});
  }
  return able;
}

// The last batch of which somebody has a portion: who has can only end it when all of its portions,
// and all batches before, are given out too. 0: there is none, or leases do not wait for others.
std::int64_t SlotCoordinator::Begun() const {
  const Lease held = book_->HighestHeld();
  return !work_.in_step || held <= kFirstValues ? 0 : work_.BatchesBelow(held) + 1;
}

// As many batches as are done in a while.
std::int64_t SlotCoordinator::BatchesAhead() const {
  double per_second = 0;  // batches
  for (const auto& [client, pace] : paces_) per_second += pace.per_second;
  per_second /= static_cast<double>(work_.portions);
  const double ahead = per_second * absl::ToDoubleSeconds(slot_options_.work_ahead);
  constexpr std::int64_t kLeast = kFewest, kMostListed = 4 * kMost;
  return std::clamp(static_cast<std::int64_t>(std::ceil(ahead)) + 1, kLeast,
                    std::max(kLeast, kMostListed / work_.portions));
}

// Of the batches up to this one, what is free. Each is shared by all who can work, so that none is
// one client's while the others wait for it.
void SlotCoordinator::Deal(const std::vector<Client>& able, std::int64_t batch) {
  const auto clients = static_cast<std::int64_t>(able.size());
  const auto rank = [&](Lease lease) {
    return static_cast<std::size_t>(lease == kFirstValues ? 0 : work_.RankOf(lease, clients));
  };
  if (book_->Deal(work_.LastOf(batch) + 1, able, rank) > 0) Changed();
}

bool SlotCoordinator::NobodyHolds() const {
  return std::ranges::all_of(view()->workers(), [this](const ViewMember& one) {
    const Heard* said = HeardOf(one.id);
    return said == nullptr || said->held.empty();
  });
}

// Which turn is due, and whether training is over.
void SlotCoordinator::Judge(absl::Time now) {
  if (view() == nullptr) return;
  UpdateWork();
  for (const auto& [uid, heard] : heard_) {
    made_ = std::max(made_, heard.turn);
    if (heard.ends_training && !std::exchange(ended_, true)) Changed();
  }
  if (!informed_) return;
  const std::int64_t due = ended_ || Halted() ? 0 : work_.TurnDue(made_, settled_);
  if (std::exchange(evaluate_, due) != due) Changed();
  const bool over = ended_ || work_.Over(made_, settled_);
  over_since_ = over ? std::min(over_since_, now) : absl::InfiniteFuture();
  const bool conclude =
      over && !Halted() && (NobodyHolds() || now - over_since_ >= slot_options_.conclude_patience);
  if (std::exchange(conclude_, conclude || (conclude_ && over)) != conclude_) Changed();
}

bool SlotCoordinator::SavedByAll(std::int64_t turn) const {
  return std::ranges::all_of(view()->servers(), [&](const ViewMember& server) {
    const membership::Report* report = detector_.ReportOf(server.id);
    return report != nullptr && report->checkpoint_turn >= turn;
  });
}

// Everyone who holds anything was asked to go: nobody takes over what they have.
bool SlotCoordinator::ServersLeave() const {
  return view() != nullptr &&
         std::ranges::all_of(view()->servers(), [this](const ViewMember& server) {
           return detector_.IsLeaving(server.id);
         });
}

void SlotCoordinator::AskForCheckpoint(absl::Time now) {
  if (view() == nullptr || !informed_) return;
  const bool saved = SavedByAll(rounds_.number());
  if (saved && rounds_.asked()) saved_settled_ = rounds_.settled();
  if (Halted() || ServersLeave()) {
    if (halt_round_ == 0 && plan_->running() && (book_->outstanding() == 0 || ServersLeave())) {
      halt_round_ = rounds_.Ask(settled_, rounds_.due());
      Changed();
    }
    stopped_ = Halted() && halt_round_ != 0 && SavedByAll(halt_round_);
    return;
  }
  halt_round_ = 0;
  stopped_ = false;
  const bool outstanding = !saved && rounds_.asked();
  if (!rounds_.Due(CheckpointInterval(), settled_, outstanding, now) || !plan_->running()) return;
  rounds_.Ask(settled_, now + CheckpointInterval());
  Changed();
}

}  // namespace starling::parameter_server
