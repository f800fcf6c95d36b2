// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/lease_source.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "starling/v1alpha1/membership.pb.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/membership/convert.h"
#include "trainer/parameter_server/convert.h"

namespace starling::parameter_server {
namespace {

using membership::ViewMember;

// What workers are told of progress need not be newer.
constexpr absl::Duration kTellSettled = absl::Milliseconds(50);
constexpr absl::Duration kPaceWindow = absl::Milliseconds(200);
// One lease is being worked on while the next waits.
constexpr std::size_t kFewest = 2;
constexpr std::size_t kMostAhead = 256;

}  // namespace

LeaseSource::LeaseSource(Options options, const v1alpha1::TrainingJobSpec& spec)
    : options_(options), spec_(std::make_unique<v1alpha1::TrainingJobSpec>(spec)) {}

LeaseSource::~LeaseSource() = default;

void LeaseSource::Begin(std::size_t shards, std::int64_t samples) {
  book_.emplace(Lease{1}, shards);
  samples_ = samples;
  work_ = WorkOf(*spec_, spec_->stop(), samples);
}

void LeaseSource::OnView(const View& view) {
  // Only a restore loses any of them.
  if (book_->Informed()) done_before_ = book_->done();
  view_ = view;
  book_->OnView(view);
  progressed_ = false;
  // Who is in no view any more has nothing to say; what is new may be of a view that comes.
  std::erase_if(heard_, [&](const auto& one) {
    return !one.second.fresh && !HasClient(view, one.second.self);
  });
}

void LeaseSource::OnReport(const membership::Report& report,
                           const v1alpha1::ParameterServerReport& said) {
  Heard& heard = heard_[report.id.pod_uid];
  const Heard before = std::exchange(heard, Heard());
  heard.fresh = true;
  heard.installed = report.installed ? report.installed->number : 0;
  const ViewMember* self = report.installed ? report.installed->Find(report.id) : nullptr;
  if (self != nullptr) heard.self = {report.id, self->joined};
  for (const v1alpha1::ShardLedger& ledger : said.ledgers()) {
    heard.ledgers.emplace_back(static_cast<std::size_t>(ledger.shard()), FromProto(ledger));
  }
  heard.done.assign(said.done().begin(), said.done().end());
  heard.held.assign(said.held().begin(), said.held().end());
  const bool same = heard.installed == view_.number && before.installed == heard.installed &&
                    before.self == heard.self;
  for (const Lease lease : same ? before.held : std::vector<Lease>()) {
    const bool holds = std::ranges::find(heard.held, lease) != heard.held.end();
    if (!holds) heard.returned.push_back(lease);
  }
  made_ = std::max(made_, said.evaluation().turn());
  if (said.evaluation().ends_training() && !std::exchange(ended_, true)) changed_ = true;
}

bool LeaseSource::Update(const Standing& standing, absl::Time now) {
  repeated_ = 0;
  if (view_.number != 0) {
    Learn(standing, now);
    Judge(standing, now);
    Give(standing, now);
  }
  return std::exchange(changed_, false);
}

void LeaseSource::Fill(const Client& client, v1alpha1::ParameterServerDirective& part) const {
  part.set_settled(told_settled_);
  if (!ended_ && !conclude_) {
    for (const Lease lease : book_->HeldBy(client)) part.add_leases(lease);
  }
  part.set_begun(informed_ && book_->Done(kFirstValues));
  if (first_ != client.id) return;
  if (!informed_) return;  // after a restore: what was done may not be any more
  part.set_evaluate(evaluate_);
  part.set_conclude(conclude_);
}

// What reports say of leases, held against the newest view.
void LeaseSource::Learn(const Standing& standing, absl::Time now) {
  const std::size_t outstanding = book_->outstanding();
  for (auto& [uid, heard] : heard_) {
    if (std::exchange(heard.fresh, false)) Take(heard, now);
  }
  const std::size_t done = book_->done();
  // What is heard of for the first time, as after a restore, was done before.
  if (informed_ && done > done_count_ && standing.running) progressed_ = true;
  if (done != done_count_ || outstanding != book_->outstanding()) changed_ = true;
  done_count_ = done;
  informed_ = book_->Informed();
  if (!informed_) return;
  settled_ = work_.BatchesBelow(book_->FirstOpen());
  if (const auto before = std::exchange(done_before_, std::nullopt)) {
    // The ledgers say what a restore has cost.
    const auto leases = static_cast<std::int64_t>(*before) - static_cast<std::int64_t>(done);
    repeated_ = std::max<std::int64_t>(0, (leases + work_.portions - 1) / work_.portions);
  }
  if (settled_ == told_settled_ || (now < settled_due_ && !AllDone())) return;
  told_settled_ = settled_;
  settled_due_ = now + kTellSettled;
  changed_ = true;
}

void LeaseSource::Take(const Heard& heard, absl::Time now) {
  for (const auto& [shard, ledger] : heard.ledgers) {
    book_->OnLedger(heard.installed, shard, ledger);
  }
  // Before those that are given back: one that is done is not.
  for (const Lease lease : heard.done) book_->OnDone(lease, heard.self);
  for (const Lease lease : heard.returned) {
    if (book_->OnReturned(lease, heard.self, now)) changed_ = true;
  }
  for (const Lease lease : heard.held) book_->OnHeld(lease, heard.self);
  CountPace(heard.self, now);
}

void LeaseSource::CountPace(const Client& client, absl::Time now) {
  const std::int64_t finished = book_->FinishedBy(client);
  Pace& pace = paces_.try_emplace(client, Pace{finished, now}).first->second;
  const absl::Duration window = now - pace.since;
  if (window < kPaceWindow) return;
  const double lately =
      static_cast<double>(finished - pace.counted) / absl::ToDoubleSeconds(window);
  pace.per_second = pace.per_second == 0 ? lately : (pace.per_second + lately) / 2;
  pace.counted = finished;
  pace.since = now;
}

void LeaseSource::UpdateWork(const membership::Settings& settings) {
  if (settings.values == settings_) return;
  settings_ = settings.values;
  const absl::StatusOr<v1alpha1::Settings> changed = membership::ParseSettings(settings);
  const bool given = changed.ok() && changed->has_stop();
  work_ = WorkOf(*spec_, given ? changed->stop() : spec_->stop(), samples_);
}

bool LeaseSource::NobodyHolds() const {
  return std::ranges::all_of(view_.workers(), [this](const ViewMember& one) {
    const auto said = heard_.find(one.id.pod_uid);
    return said == heard_.end() || said->second.self.id != one.id || said->second.held.empty();
  });
}

// Which turn is due, and whether training is over.
void LeaseSource::Judge(const Standing& standing, absl::Time now) {
  UpdateWork(standing.settings);
  const std::span<const ViewMember> clients = view_.workers();
  const auto first = std::ranges::find_if(
      clients, [&](const ViewMember& client) { return !standing.leaving(client.id); });
  if (!clients.empty()) first_ = (first == clients.end() ? clients.front() : *first).id;
  if (informed_) {
    const bool none_due = ended_ || standing.halted || standing.lockstep;
    const std::int64_t due = none_due ? 0 : work_.TurnDue(made_, settled_);
    if (std::exchange(evaluate_, due) != due) changed_ = true;
    const bool over = IsOver(standing);
    over_since_ = over ? std::min(over_since_, now) : absl::InfiniteFuture();
    const bool conclude = over && !standing.halted &&
                          (NobodyHolds() || now - over_since_ >= options_.conclude_patience);
    if (std::exchange(conclude_, conclude || (conclude_ && over)) != conclude_) changed_ = true;
  }
  recovered_ = informed_ && (progressed_ || (standing.running && !Outstanding() &&
                                             (over_since_ <= now || standing.halted)));
}

bool LeaseSource::IsOver(const Standing& standing) const {
  if (!standing.lockstep) return ended_ || work_.Over(made_, settled_);
  return standing.lockstep->over && book_->Done(kFirstValues) &&
         settled_ >= standing.lockstep->settled;
}

// What the ledgers lack of what the workers have, lowest first, shared by all. Of what they had
// before they went back to a checkpoint nothing is to be caught up: whoever waited to read for such
// a step would keep the others from the steps before it.
void LeaseSource::CatchUp(const Standing& standing) {
  const bool begun = book_->Done(kFirstValues);
  const std::int64_t steps = begun ? standing.lockstep->base : 0;
  book_->Limit(work_.LastOf(steps));
  if (book_->Recall(work_.LastOf(steps))) changed_ = true;
  book_->ForgetReturned(absl::InfiniteFuture());
  Deal(Able(/*alone=*/!begun, standing), std::min(steps, settled_ + BatchesAhead()));
}

void LeaseSource::Give(const Standing& standing, absl::Time now) {
  if (ended_ || standing.paused) return;
  std::erase_if(paces_, [this](const auto& pace) { return !HasClient(view_, pace.first); });
  if (standing.lockstep) return CatchUp(standing);
  if (standing.halted) {
    if (Begun() == 0) return;
    book_->Limit(work_.LastOf(Begun()));
    return Deal(Able(/*alone=*/false, standing), Begun());
  }
  // The first values before anything else, then what is to be one client's alone.
  const bool begun = book_->Done(kFirstValues);
  const bool warm = settled_ < work_.warm_start;
  std::int64_t limit = work_.Limit(made_);
  if (warm) limit = std::min(limit, work_.warm_start);
  if (!begun) limit = 0;
  limit = std::max(limit, Begun());
  book_->Limit(work_.LastOf(limit));
  const std::vector<Client> able = Able(/*alone=*/!begun || warm, standing);
  book_->ForgetReturned(able.size() > 1 ? now - options_.return_patience : absl::InfiniteFuture());
  if (work_.in_step) return Deal(able, settled_ + BatchesAhead());
  const std::int64_t left =
      static_cast<std::int64_t>(work_.LastOf(limit)) - static_cast<std::int64_t>(book_->done());
  for (const Client& client : able) {
    const std::size_t holds = book_->HeldBy(client).size();
    const std::size_t wanted = Wanted(client, left);
    if (holds < wanted && !book_->Take(client, wanted - holds).empty()) changed_ = true;
  }
}

// Who may be given work; `alone`: only the first.
std::vector<Client> LeaseSource::Able(bool alone, const Standing& standing) const {
  std::vector<Client> able;
  for (const ViewMember& member : view_.workers()) {
    if (standing.leaving(member.id) || (alone && first_ != member.id)) continue;
    able.push_back({member.id, member.joined});
  }
  return able;
}

// How many leases this client is to hold: enough for a while at its pace, but of what is left never
// more than half of its share, so that all are finished at about the same time.
std::size_t LeaseSource::Wanted(const Client& client, std::int64_t left) const {
  const auto pace = paces_.find(client);
  std::size_t wanted = kFewest;
  if (pace != paces_.end()) {
    const double ahead = pace->second.per_second * absl::ToDoubleSeconds(options_.work_ahead);
    wanted = std::clamp(static_cast<std::size_t>(std::ceil(ahead)) + 1, kFewest, kMostAhead);
  }
  const auto clients = static_cast<std::int64_t>(view_.workers().size());
  const std::int64_t share = (left + 2 * clients - 1) / (2 * clients);
  return std::min(wanted, static_cast<std::size_t>(std::max<std::int64_t>(1, share)));
}

// The last batch of which somebody has a portion: who has can only end it when all of its portions,
// and all batches before, are given out too. 0: there is none, or leases do not wait for others.
std::int64_t LeaseSource::Begun() const {
  const Lease held = book_->HighestHeld();
  return !work_.in_step || held <= kFirstValues ? 0 : work_.BatchesBelow(held) + 1;
}

// As many batches as are done in a while.
std::int64_t LeaseSource::BatchesAhead() const {
  double per_second = 0;  // batches
  for (const auto& [client, pace] : paces_) per_second += pace.per_second;
  per_second /= static_cast<double>(work_.portions);
  const double ahead = per_second * absl::ToDoubleSeconds(options_.work_ahead);
  constexpr std::int64_t kLeast = kFewest, kMostListed = 4 * kMostAhead;
  return std::clamp(static_cast<std::int64_t>(std::ceil(ahead)) + 1, kLeast,
                    std::max(kLeast, kMostListed / work_.portions));
}

// Of the batches up to this one, what is free. Each is shared by all who can work, so that none is
// one client's while the others wait for it.
void LeaseSource::Deal(const std::vector<Client>& able, std::int64_t batch) {
  const auto clients = static_cast<std::int64_t>(able.size());
  const auto rank = [&](Lease lease) {
    return static_cast<std::size_t>(lease == kFirstValues ? 0 : work_.RankOf(lease, clients));
  };
  if (book_->Deal(work_.LastOf(batch) + 1, able, rank) > 0) changed_ = true;
}

}  // namespace starling::parameter_server
