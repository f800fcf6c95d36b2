// SPDX-License-Identifier: Apache-2.0
// The coordinator whose views are parameter_server::SlotPlan's: it knows what is reported to it,
// late and now and then not at all, and is replaced by one that knows nothing.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/simulation/slot_world.h"

namespace starling::simulation {
namespace {

constexpr std::int64_t kTick = 10'000;
constexpr std::int64_t kHeartbeat = 200'000;  // longer without a report is silence

}  // namespace

void SlotWorld::TakeOver() {
  ps::SlotPlan::Options options;
  if (plan_ != nullptr) {
    options.newest_view = jobs_.empty() ? 0 : jobs_.rbegin()->first;
    ++incarnation_;
    ++outcome_.takeovers;
    absent_until_ = now_ + Random(0, 100'000);
    Trace(absl::StrCat("a new coordinator, ", incarnation_));
  }
  for (std::size_t slot = 0; slot < pushes_.size(); ++slot) {
    options.slots.push_back({static_cast<std::uint32_t>(slot), {0, table_->rows}});
  }
  options.placement.replication = options_.replication;
  options.incarnation = incarnation_;
  options.ahead_patience = absl::Milliseconds(300);
  options.rules = options_.plan;
  plan_ = std::make_unique<ps::SlotPlan>(std::move(options));
  book_ = std::make_unique<ps::LeaseBook>(leases_.size(), pushes_.size());
  heard_.clear();
  for (const auto& [id, process] : processes_) {
    dialled_[id] = absent_until_ + (Chance(0.3) ? Random(0, 300'000) : 0);
  }
}

void SlotWorld::PlanTick() {
  At(kTick, [this] { PlanTick(); });
  if (Chance(0.1)) Snapshot();
  if (now_ < absent_until_) return;
  const absl::Time now = absl::FromUnixMicros(now_);
  if (const std::optional<ps::JobView> view = plan_->Plan(MakeCensus(), now)) Publish(*view);
  if (plan_->running()) {
    const ps::JobView& newest = plan_->newest();
    book_->OnView(newest);
    for (const auto& [id, heard] : heard_) {
      for (const auto& [slot, ledger] : heard.ledgers) {
        book_->OnLedger(heard.participant.fence, slot, ledger);
      }
      for (const ps::Lease lease : heard.held) book_->OnHeld(lease, heard.self);
    }
  }
  const ViewNumber newest = plan_->newest().number;
  for (const auto& [id, process] : processes_) {
    if (!Late() && Chance(0.05)) continue;
    const Micros delay = Chance(0.1) ? Random(1'000, 100'000) : Random(100, 3'000);
    Deliver(id, delay,
            [this, newest, incarnation = incarnation_, ahead = plan_->FetchAhead(id)](Process& p) {
              if (incarnation < p.incarnation && options_.rules.sync.refuse_lower_incarnation) {
                return;
              }
              p.incarnation = incarnation;
              if (membership::IncarnationOf(newest) == incarnation) Install(p, views_.at(newest));
              for (const std::size_t slot : ahead) {
                SendFrom(p.id, slot, servers_.at(p.id).slots[slot]->Prefetch());
              }
            });
  }
}

// A process reports every so often, as long as it lives.
void SlotWorld::Live(const MemberId& id) {
  Deliver(id, Random(5'000, 15'000), [this, id](Process& process) {
    const Micros delay = Chance(0.1) ? Random(1'000, 60'000) : Random(100, 3'000);
    if (Late() || !Chance(0.05)) {
      At(delay, [this, id, incarnation = process.incarnation, heard = ReportOf(process)] {
        OnReport(id, incarnation, heard);
      });
    }
    Live(id);
  });
}

SlotWorld::Heard SlotWorld::ReportOf(const Process& process) const {
  Heard heard;
  heard.made = now_;
  ps::Participant& one = heard.participant;
  one.id = process.id;
  one.pod = process.id.pod_uid;
  one.index = process.id.pod_uid.back() - '0';
  one.server = process.server;
  one.fence = process.view;
  if (!process.server) {
    const Client& client = clients_.at(process.id);
    heard.self = client.machine->self();
    for (const auto& [lease, slots] : client.missing) heard.held.push_back(lease + 1);
    return heard;
  }
  for (const auto& machine : servers_.at(process.id).slots) {
    const bool here = machine->fence() == process.view;
    if (here && machine->open()) heard.ledgers[one.slots.size()] = machine->state()->ledger();
    one.slots.push_back({machine->state_id(), machine->cached(),
                         here && machine->phase() == ps::ServerPhase::kLost});
    one.broken = one.broken || (here && machine->phase() == ps::ServerPhase::kAborted);
  }
  return heard;
}

void SlotWorld::OnReport(const MemberId& id, std::uint64_t incarnation, const Heard& heard) {
  // Until it has heard of this incarnation it might still follow an older one.
  if (incarnation < incarnation_ && options_.rules.sync.refuse_lower_incarnation) return;
  if (ended_.contains(id) || now_ < absent_until_ || now_ < dialled_[id]) return;
  Heard& known = heard_[id];
  if (known.made > heard.made) return;
  known = heard;
  known.at = now_;
  const auto view = jobs_.find(heard.participant.fence);
  if (view != jobs_.end()) plan_->Learn(view->second);
  for (const auto& [other, process] : processes_) {
    if (other.pod_uid == id.pod_uid && other.start < id.start) ended_.insert(other);
  }
}

ps::Census SlotWorld::MakeCensus() const {
  ps::Census census;
  census.servers = options_.servers;
  census.clients = options_.clients;
  for (const auto& [id, process] : processes_) {
    if (ended_.contains(id)) continue;
    ps::Participant& one = census.participants.emplace_back();
    one.id = id;
    one.pod = id.pod_uid;
    one.server = process.server;
    const auto heard = heard_.find(id);
    if (heard == heard_.end()) continue;
    one = heard->second.participant;
    const bool silent = process.suspected || now_ - heard->second.at > kHeartbeat;
    one.presence = silent ? ps::Presence::kSilent : ps::Presence::kReporting;
  }
  return census;
}

void SlotWorld::Publish(const ps::JobView& job) {
  View view;
  view.number = job.number;
  for (std::size_t slot = 0; slot < job.slots.size(); ++slot) {
    view.slots.push_back(SlotViewOf(job, slot));
    const bool all_copies_gone = std::any_of(views_.begin(), views_.end(), [&](const auto& past) {
      const auto& chain = past.second.slots[slot].group.members;
      return std::all_of(chain.begin(), chain.end(),
                         [this](const auto& member) { return Terminated(member.id); });
    });
    if (!job.slots[slot].restore || !all_copies_gone) continue;
    view.restored.insert(slot);
    restored_[slot].insert(view.number);
  }
  ++outcome_.views;
  jobs_.emplace(job.number, job);
  book_->OnView(job);
  const View& published = views_.emplace(view.number, std::move(view)).first->second;
  Trace(absl::StrCat("view ", published.number, ": ", job.clients.size(), " clients"));
  for (const ps::SlotPart& part : job.slots) {
    std::string line = "  slot:";
    for (const MemberId& id : part.chain) absl::StrAppend(&line, " ", id.pod_uid, "/", id.start);
    Trace(part.restore ? line + " restore" : line);
  }
}

}  // namespace starling::simulation
