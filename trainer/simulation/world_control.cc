// SPDX-License-Identifier: Apache-2.0
// Coordinators, the streams between them and the members, and a controller that grants, lists pods
// and says what is wanted.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "trainer/simulation/world.h"

namespace starling::simulation {
namespace {

constexpr Micros kTick = 50'000;
constexpr Micros kControllerTick = 100'000;

std::string Describe(const membership::View& view) {
  std::string text = absl::StrCat("view ", Name(view.number), view.at_boundary ? " from " : "",
                                  view.at_boundary ? Name(view.from) : "");
  for (const membership::ReplicaGroup& group : view.groups) {
    absl::StrAppend(&text, group.restore ? " restore" : "", " {");
    for (const MemberId& id : group.members) absl::StrAppend(&text, " ", id.pod_uid, "/", id.start);
    absl::StrAppend(&text, " } since");
    for (const auto& past : group.since) absl::StrAppend(&text, " ", Name(past.number));
    if (!group.waived.empty()) absl::StrAppend(&text, " waived");
    for (const ViewNumber number : group.waived) absl::StrAppend(&text, " ", Name(number));
  }
  return text;
}

}  // namespace

// How often something that is told arrives.
int World::Copies() { return Late() ? 1 : Chance(0.05) ? 0 : Chance(0.05) ? 2 : 1; }

// That one which has the highest incarnation, whoever was started last.
World::Leader& World::Last() const {
  return **std::max_element(leaders_.begin(), leaders_.end(), [](const auto& a, const auto& b) {
    return a->incarnation < b->incarnation;
  });
}

std::size_t World::NewLeader(const std::string& boot_id, std::uint64_t incarnation) {
  auto leader = std::make_unique<Leader>();
  leader->index = leaders_.size();
  leader->boot_id = boot_id;
  leader->incarnation = incarnation;
  membership::CoordinatorOptions options;
  options.boot_id = boot_id;
  options.heartbeat_timeout = absl::Seconds(1) / ways_.speed;
  options.first_view_grace = absl::Milliseconds(200) / ways_.speed;
  options.takeover_timeout = absl::Seconds(8);
  options.takeover_timeout_with_witness = absl::Seconds(2);
  options.blame_hold = absl::Seconds(1) / ways_.speed;
  options.rules = options_.rules;
  leader->machine = job_->NewCoordinator(options);
  Count("coordinators");
  Trace(absl::StrCat("coordinator ", incarnation, " starts"));
  leaders_.push_back(std::move(leader));
  return leaders_.size() - 1;
}

// The controller finds it, swaps its boot id into the status, and tells it.
void World::StartCoordinator() {
  status_boot_id_ = absl::StrCat("boot", leaders_.size());
  const std::size_t index = NewLeader(status_boot_id_, ++status_incarnation_);
  // It does not reach everybody at first, but mostly those that the one before it did not reach:
  // who was left behind is heard before the others.
  for (const auto& pod : pods_) {
    const bool left_behind = index > 0 && leaders_[index - 1]->cut.contains(pod->uid);
    if (index > 0 && Disturbs(left_behind ? 0.1 : 0.5)) {
      CutOff(index, pod->uid, Long(1000, 2'000'000));
    }
  }
  GrantTo(index, Long(1000, 100'000));
  LeaderTick(index);
}

void World::GrantTo(std::size_t index, Micros delay) {
  membership::Grant grant;
  grant.incarnation = leaders_[index]->incarnation;
  grant.boot_id = leaders_[index]->boot_id;
  grant.newest_view = status_newest_view_;
  for (const auto& pod : pods_) {
    if (!pod->confirmed) grant.roster.push_back(RecordOf(*pod));
  }
  ToLeader(index, delay, [this, grant](Leader& leader) {
    leader.machine->OnGrant(grant, Now());
    for (const auto& [uid, pod] : leader.machine->PodsToDial()) Dial(leader, uid);
    AfterEvent(leader);
  });
  ToLeader(index, delay + 1, [this, index](Leader&) { SayDesired(index); });
}

void World::ToLeader(std::size_t index, Micros delay, std::function<void(Leader&)> event) {
  At(delay, [this, index, event = std::move(event)] {
    Leader& leader = *leaders_[index];
    if (!leader.alive) return;
    if (!leader.paused) return event(leader);
    leader.inbox.emplace_back([this, index, event] { ToLeader(index, 0, event); });
  });
}

// What the shell does after every event: whoever is concerned learns of it.
void World::AfterEvent(Leader& leader) {
  for (const std::string& uid : leader.machine->assumed_terminated()) {
    given_up_.insert(uid);
    invariants_.OnGivenUp(uid);
  }
  if (const membership::View* view = leader.machine->view()) {
    invariants_.OnPublished(*view);
    if (published_.insert(view->number).second) {
      Trace(Describe(*view));
      Count("views");
      if (&leader != &Last()) Count("late views");
      job_->OnPublished(*view);
    }
  }
  if (options_.standby) SendNewView(leader);
  const std::uint64_t version = leader.machine->directives_version();
  if (version == leader.told) return;
  leader.told = version;
  TellAll(leader);
}

void World::TellAll(Leader& leader) {
  for (const auto& [uid, stream] : leader.streams) {
    if (!stream.open || leader.cut.contains(uid)) continue;
    for (int i = Copies(); i > 0; --i) {
      const Micros delay = Disturbs(0.05) ? Long(10'000, 400'000) : Long(100, 2000);
      ToProcess(stream.to, delay,
                [this, directive = leader.machine->DirectiveFor(uid)](Process& process) {
                  job_->OnDirective(process, directive);
                });
    }
  }
}

void World::Dial(Leader& leader, const std::string& uid) {
  Stream& stream = leader.streams[uid];
  if (stream.open || leader.cut.contains(uid)) return;
  const Pod& pod = PodOf(uid);
  Process* process = pod.terminated ? nullptr : Find(pod.process);
  if (process == nullptr) {
    leader.machine->OnRefused(uid, Now());
    AfterEvent(leader);
    return;
  }
  stream.open = true;
  ++stream.number;
  stream.to = process->id;
  leader.machine->OnConnected(uid, Now());
  // The first directive carries the incarnation.
  ToProcess(stream.to, Long(100, 2000),
            [this, directive = leader.machine->DirectiveFor(uid)](Process& told) {
              job_->OnDirective(told, directive);
              if (told.alive) Report(told);
            });
  AfterEvent(leader);
}

void World::LeaderTick(std::size_t index) {
  Leader& leader = *leaders_[index];
  if (!leader.alive) return;
  At(kTick / ways_.speed, [this, index] { LeaderTick(index); });
  if (leader.paused) return;
  if (options_.standby) SendShadow(leader);
  job_->OnTick();
  const std::map<std::string, membership::Dial> dial = leader.machine->PodsToDial();
  for (auto& [uid, stream] : leader.streams) {
    const bool over = stream.open && (Find(stream.to) == nullptr || !dial.contains(uid));
    if (!over) continue;
    stream.open = false;
    ++stream.number;
    leader.machine->OnDisconnected(uid, Now());
  }
  for (const auto& [uid, pod] : dial) Dial(leader, uid);
  leader.machine->OnTick(Now());
  AfterEvent(leader);
  TellAll(leader);
}

// Every stream that is open to this process carries its report up.
void World::Report(Process& process) {
  const membership::Report report = job_->ReportOf(process);
  const std::string& uid = process.id.pod_uid;
  for (const auto& leader : leaders_) {
    const auto stream = leader->streams.find(uid);
    if (!leader->alive || stream == leader->streams.end() || leader->cut.contains(uid)) continue;
    if (!stream->second.open || stream->second.to != process.id) continue;
    for (int i = Copies(); i > 0; --i) {
      const Micros delay = Disturbs(0.05) ? Long(10'000, 300'000) : Long(100, 2000);
      ToLeader(leader->index, delay, [this, report, number = stream->second.number](Leader& to) {
        const std::string& from = report.id.pod_uid;
        if (to.streams[from].number != number) return;
        to.machine->OnReport(from, report, Now());
        AfterEvent(to);
      });
    }
  }
}

membership::Pod World::RecordOf(const Pod& pod) const {
  membership::Pod record;
  record.uid = record.name = pod.uid;
  record.role = pod.role == Role::kServer ? membership::kServerRole : membership::kWorkerRole;
  record.index = pod.index;
  record.ip = "127.0.0.9";
  record.state = pod.confirmed  ? membership::PodState::kTerminated
                 : pod.draining ? membership::PodState::kDraining
                                : membership::PodState::kLive;
  return record;
}

void World::SayDesired(std::size_t index) {
  membership::Desired desired;
  desired.sequence = ++sequence_sent_;
  desired.workers = wanted_[Role::kWorker];
  desired.servers = wanted_[Role::kServer];
  desired.checkpoint_interval_ms = 200;
  desired.settings.generation = settings_generation_;
  desired.settings.halt = halt_;
  desired.finished = finished_;
  if (options_.standby) NameStandby(*leaders_[index], desired);
  // A pod object goes away some time after its end was confirmed; here at once for some.
  for (const auto& pod : pods_) {
    if (!pod->confirmed || pod->index % 2 == 0) desired.pods.push_back(RecordOf(*pod));
  }
  ToLeader(index, Long(500, 5000), [this, desired](Leader& leader) {
    leader.machine->OnDesired(desired, Now());
    AfterEvent(leader);
  });
}

// As many pods of a role as are wanted: those that are missing are made, the newest drained.
void World::KeepPods(Role role) {
  std::set<std::int64_t> taken;
  std::int64_t live = 0;
  for (const auto& pod : pods_) {
    if (pod->confirmed || pod->role != role) continue;
    taken.insert(pod->index);
    live += pod->draining ? 0 : 1;
  }
  for (std::int64_t index = 0; live < wanted_[role]; ++index) {
    if (taken.contains(index)) continue;
    AddPod(role, index);
    ++live;
  }
  for (auto pod = pods_.rbegin(); pod != pods_.rend() && live > wanted_[role]; ++pod) {
    if ((*pod)->confirmed || (*pod)->draining || (*pod)->role != role) continue;
    (*pod)->draining = true;
    Count("drained");
    --live;
  }
}

void World::ControllerTick() {
  At(kControllerTick / ways_.speed, [this] { ControllerTick(); });
  if (now_ < away_until_) return;
  if (options_.standby) KeepStandby();
  for (const Role role : {Role::kServer, Role::kWorker}) KeepPods(role);
  for (const auto& leader : leaders_) {
    if (!leader->alive || leader->paused) continue;
    const bool leads = leader->boot_id == status_boot_id_;
    // An old one may still hear from a controller that does not know better.
    if (!leads && !Chance(0.3)) continue;
    SayDesired(leader->index);
    if (!leads) continue;
    status_newest_view_ =
        std::max(status_newest_view_, leader->machine->MakeSummary(Now()).newest_view);
    finished_ = finished_ || job_->Finished(*leader->machine);
  }
  // The leading coordinator is gone, or has been cut off for too long.
  const Leader& last = Last();
  const bool gone = !last.alive || last.machine->superseded();
  if (!gone) gone_since_ = 0;
  if (gone && gone_since_ == 0) gone_since_ = now_;
  if (gone && !StandbyMayLead()) StartCoordinator();
}

}  // namespace starling::simulation
