// SPDX-License-Identifier: Apache-2.0
#include "trainer/coordinator/coordinator_shell.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/log/log.h"
#include "common/net/address.h"
#include "common/rpc/credentials.h"
#include "starling/v1alpha1/membership.pb.h"
#include "trainer/coordinator/controller_service.h"
#include "trainer/coordinator/member_link.h"
#include "trainer/membership/convert.h"

namespace starling::coordinator {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(10);
// Reports are sent immediately when something happened, and this often for progress.
constexpr absl::Duration kReportEvery = absl::Milliseconds(250);
constexpr absl::Duration kProgressEvery = absl::Seconds(1);
constexpr int kMostStragglers = 16;  // as many as the status may have

std::string PrefixOf(const std::string& role) {
  return role == membership::kServerRole ? observe::kOfServers : "";
}

}  // namespace

CoordinatorShell::CoordinatorShell(ShellOptions options,
                                   std::unique_ptr<membership::Coordinator> machine,
                                   const clock::Clock& clock, metrics::Registry& registry)
    : options_(std::move(options)),
      clock_(clock),
      dial_as_(rpc::ChannelCredentials(options_.identity)),
      machine_(std::move(machine)),
      metrics_(registry) {}

absl::StatusOr<std::unique_ptr<CoordinatorShell>> CoordinatorShell::Start(
    ShellOptions options, std::unique_ptr<membership::Coordinator> machine,
    const clock::Clock& clock, metrics::Registry& registry) {
  std::unique_ptr<CoordinatorShell> shell(
      new CoordinatorShell(std::move(options), std::move(machine), clock, registry));
  CoordinatorShell* self = shell.get();
  shell->loop_ = std::make_unique<EventLoop>(shell->queue_, kTick, [self] { self->Tick(); });
  absl::Status listening;
  shell->loop_->Run([self, &listening] { listening = self->Listen(); });
  if (!listening.ok()) return listening;
  return shell;
}

CoordinatorShell::~CoordinatorShell() {
  // The loop must run while the service ends its streams, and nothing may report to it any more.
  std::unique_ptr<ControllerService> service;
  loop_->Run([&] {
    ending_ = true;
    links_.clear();
    service = std::move(service_);
  });
  if (service != nullptr) service->Stop();
  loop_->Run([&] { service.reset(); });
  loop_.reset();
}

absl::Status CoordinatorShell::Listen() {
  absl::StatusOr<std::unique_ptr<ControllerService>> service = ControllerService::Start(
      {options_.listen, options_.identity, options_.job_uid}, queue_,
      {.on_grant =
           [this](const membership::Grant& grant, const observe::Seconds& goodput) {
             OnGrant(grant, goodput);
             Spread();
           },
       .on_desired =
           [this](const membership::Desired& desired) {
             desired_ = desired;
             metrics_.Want(desired);
             machine_->OnDesired(desired, clock_.Now());
             Spread();
           },
       .on_stream =
           [this] {
             report_due_ = absl::InfinitePast();
             Spread();
           }});
  if (!service.ok()) return service.status();
  service_ = *std::move(service);
  return absl::OkStatus();
}

int CoordinatorShell::port() const { return service_->port(); }

membership::Summary CoordinatorShell::Look() {
  membership::Summary summary;
  loop_->Run([&] { summary = machine_->MakeSummary(clock_.Now()); });
  return summary;
}

void CoordinatorShell::UpdateMetrics() {
  loop_->Run([this] { metrics_.ShowSeconds(seconds_); });
}

void CoordinatorShell::OnGrant(const membership::Grant& grant, const observe::Seconds& goodput) {
  const absl::Time now = clock_.Now();
  machine_->OnGrant(grant, now);
  const std::uint64_t incarnation = machine_->MakeSummary(now).incarnation;
  if (std::exchange(incarnation_, incarnation) == incarnation) return;  // said again
  seconds_.Start(goodput);
  counted_ = now;
}

void CoordinatorShell::Tick() {
  machine_->OnTick(clock_.Now());
  for (const auto& [uid, link] : links_) link->Tick();
  Spread();
  NoticeEnd();
}

void CoordinatorShell::NoticeEnd() {
  if (done_ || ending_ || !machine_->finished()) return;
  const absl::Time now = clock_.Now();
  finished_ = std::min(finished_, now);
  if (!machine_->AllGone() && now - finished_ < options_.finish_timeout) return;
  done_ = true;
  if (options_.on_done) options_.on_done();
}

// After every event: whoever is concerned learns of it.
void CoordinatorShell::Spread() {
  if (ending_) return;
  KeepLinks();
  Tell();
  Report();
}

void CoordinatorShell::KeepLinks() {
  const std::map<std::string, membership::Dial> wanted = machine_->PodsToDial();
  roles_.clear();
  for (const auto& [uid, pod] : wanted) roles_[uid] = pod.role;
  std::erase_if(heard_, [&](const auto& one) { return !wanted.contains(one.first); });
  std::erase_if(links_, [&](const auto& link) {
    const auto pod = wanted.find(link.first);
    return pod == wanted.end() || link.second->address() != AddressOf(pod->second);
  });
  for (const auto& [uid, pod] : wanted) {
    if (links_.contains(uid)) continue;
    const auto& link = links_[uid] = MakeLink(uid, pod);
    link->Tell(machine_->DirectiveFor(uid));
    link->Tick();
  }
}

std::string CoordinatorShell::AddressOf(const membership::Dial& pod) const {
  return net::ToString({pod.ip, static_cast<std::uint16_t>(options_.member_port)});
}

std::unique_ptr<MemberLink> CoordinatorShell::MakeLink(const std::string& pod_uid,
                                                       const membership::Dial& pod) {
  return std::make_unique<MemberLink>(
      queue_, clock_,
      MemberLinkOptions{.address = AddressOf(pod),
                        .peer = tls::PeerName(pod.role, options_.job_uid),
                        .credentials = dial_as_},
      MemberLink::Handlers{
          .on_connected = [this, pod_uid] { machine_->OnConnected(pod_uid, clock_.Now()); },
          .on_report =
              [this, pod_uid, role = pod.role](const membership::Report& report) {
                Hear(pod_uid, role, report);
                machine_->OnReport(pod_uid, report, clock_.Now());
                Spread();
              },
          .on_disconnected =
              [this, pod_uid, role = pod.role] {
                if (const auto last = heard_.extract(pod_uid); !last.empty()) {
                  const auto& [process, time] = last.mapped();
                  seconds_.OnBroken(process, PrefixOf(role), clock_.Now() - time);
                }
                machine_->OnDisconnected(pod_uid, clock_.Now());
                log::Debug("stream to a member broke", {{"pod", pod_uid}});
              },
          .on_refused =
              [this, pod_uid] {
                machine_->OnRefused(pod_uid, clock_.Now());
                Spread();
              }});
}

void CoordinatorShell::Tell() {
  if (delivered_version_ == machine_->directives_version()) return;
  delivered_version_ = machine_->directives_version();
  for (const auto& [uid, link] : links_) link->Tell(machine_->DirectiveFor(uid));
}

void CoordinatorShell::Report() {
  const absl::Time now = clock_.Now();
  if (reported_ == machine_->report_version() && now < report_due_) return;
  reported_ = machine_->report_version();
  report_due_ = now + kReportEvery;
  membership::Summary summary = machine_->MakeSummary(now);
  CountAbsence(summary, now);
  v1alpha1::TrainingReport training;
  training.ParseFromString(summary.training.bytes);
  training.clear_goodput_before();
  *training.mutable_goodput() = {seconds_.sum().begin(), seconds_.sum().end()};
  if (training.has_progress()) PutStragglers(summary, *training.mutable_progress());
  summary.training.bytes = training.SerializeAsString();
  if (service_ != nullptr) service_->Report(ToProto(summary, clock_.WallNow() - now));
  metrics_.Show(summary, training, [this](const std::string& uid) { return RoleOf(uid); });
  LogNews(summary);
  if (now >= progress_due_) {
    progress_due_ = now + kProgressEvery;
    WriteProgress(summary.settled_step);
  }
}

void CoordinatorShell::LogNews(const membership::Summary& summary) {
  if (summary.newest_view != logged_view_) {
    logged_view_ = summary.newest_view;
    const auto members = std::count_if(
        summary.members.begin(), summary.members.end(),
        [](const membership::MemberState& one) { return one.in_view && one.connected; });
    log::Info("view", {{"number", absl::StrCat(membership::IncarnationOf(logged_view_), "-",
                                               membership::EpochOf(logged_view_))},
                       {"members", members}});
  }
  if (summary.superseded && !std::exchange(logged_superseded_, true)) {
    log::Warning("superseded: a member has heard of a later coordinator; publishing no more");
  }
  for (const membership::IncidentRecord& incident : summary.incidents) {
    if (incident.time <= newest_incident_) continue;
    newest_incident_ = incident.time;
    log::Warning("incident", {{"reason", incident.reason},
                              {"pod", incident.pod},
                              {"what", incident.message},
                              {"detectionSeconds", absl::ToDoubleSeconds(incident.detection)}});
  }
}

// A report that answers an earlier coordinator speaks of seconds that it may have counted.
void CoordinatorShell::Hear(const std::string& pod_uid, const std::string& role,
                            const membership::Report& report) {
  if (report.id.pod_uid != pod_uid || report.highest_incarnation == 0 ||
      report.highest_incarnation != incarnation_) {
    return;
  }
  v1alpha1::TrainingReport training;
  if (!training.ParseFromString(report.training.bytes)) return;
  const auto seconds = [](const auto& map) { return observe::Seconds(map.begin(), map.end()); };
  seconds_.OnReport(report.id, PrefixOf(role), seconds(training.goodput()),
                    seconds(training.goodput_before()));
  heard_[pod_uid] = {report.id, clock_.Now()};
  if (role == membership::kWorkerRole) {
    stragglers_.OnReport(report.id, seconds(training.goodput()), clock_.Now());
  }
}

void CoordinatorShell::PutStragglers(const membership::Summary& summary,
                                     v1alpha1::Progress& to) const {
  for (const observe::Straggler& one : stragglers_.Find(clock_.Now())) {
    const auto member =
        std::ranges::find(summary.members, one.process, &membership::MemberState::id);
    if (member == summary.members.end() || !member->in_view) continue;
    v1alpha1::Straggler& straggler = *to.add_stragglers();
    straggler.set_pod(member->pod);
    straggler.set_ratio(one.ratio);
    if (to.stragglers_size() == kMostStragglers) return;
  }
}

std::string CoordinatorShell::RoleOf(const std::string& pod_uid) const {
  const auto link = roles_.find(pod_uid);
  return link == roles_.end() ? membership::kWorkerRole : link->second;
}

void CoordinatorShell::CountAbsence(const membership::Summary& summary, absl::Time now) {
  std::map<std::string, std::int64_t> absent = {{membership::kWorkerRole, desired_.workers},
                                                {membership::kServerRole, desired_.servers}};
  for (const membership::MemberState& member : summary.members) {
    if (member.connected) --absent[RoleOf(member.id.pod_uid)];
  }
  const absl::Duration since = now - std::exchange(counted_, now);
  // Whoever is not needed any more is not missed.
  if (desired_.finished || desired_.settings.halt || summary.training.has_result) return;
  for (const auto& [role, members] : absent) seconds_.OnAbsence(PrefixOf(role), members, since);
}

// The supervisor reads it: a settled step more means that restarting us was worth it.
void CoordinatorShell::WriteProgress(std::int64_t settled_step) {
  if (options_.progress_file.empty() || settled_step <= written_progress_) return;
  const std::string draft = options_.progress_file + ".new";
  {
    std::ofstream file(draft, std::ios::trunc);
    file << settled_step;
    if (!file.flush()) return;
  }
  if (std::rename(draft.c_str(), options_.progress_file.c_str()) == 0) {
    written_progress_ = settled_step;
  }
}

}  // namespace starling::coordinator
