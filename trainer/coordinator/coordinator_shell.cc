// SPDX-License-Identifier: Apache-2.0
#include "trainer/coordinator/coordinator_shell.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/telemetry/metric_table.h"
#include "common/log/log.h"
#include "common/net/address.h"
#include "common/rpc/credentials.h"
#include "starling/v1alpha1/membership.pb.h"
#include "trainer/coordinator/controller_service.h"
#include "trainer/coordinator/member_link.h"
#include "trainer/coordinator/standby_link.h"
#include "trainer/coordinator/trace_desk.h"
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

membership::Standby::Options StandbyOptions(const std::string& boot_id) {
  membership::Standby::Options options;
  options.boot_id = boot_id;
  return options;
}

}  // namespace

CoordinatorShell::CoordinatorShell(ShellOptions options, MachineFactory make_machine,
                                   const clock::Clock& clock, metrics::Registry& registry)
    : options_(std::move(options)),
      clock_(clock),
      dial_as_(rpc::ChannelCredentials(options_.identity)),
      make_machine_(std::move(make_machine)),
      machine_(make_machine_()),
      boot_id_(machine_->MakeSummary(clock_.Now()).boot_id),
      standby_(StandbyOptions(boot_id_)),
      traces_(std::make_unique<TraceDesk>(queue_, clock_, options_.job_name,
                                          [this] {
                                            report_due_ = absl::InfinitePast();
                                            Spread();
                                          })),
      registry_(registry),
      armed_(telemetry::AddGauge(registry, "starling_coordinator_standby_armed")) {}

absl::StatusOr<std::unique_ptr<CoordinatorShell>> CoordinatorShell::Start(
    ShellOptions options, MachineFactory make_machine, const clock::Clock& clock,
    metrics::Registry& registry) {
  std::unique_ptr<CoordinatorShell> shell(
      new CoordinatorShell(std::move(options), std::move(make_machine), clock, registry));
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
    standby_link_.reset();
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
             Want(desired);
             Spread();
           },
       .on_stream =
           [this] {
             report_due_ = absl::InfinitePast();
             Spread();
           },
       .on_shadow = [this](const v1alpha1::Shadow& shadow) { return OnShadow(shadow); }});
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
  loop_->Run([this] {
    if (metrics_) metrics_->ShowSeconds(seconds_);
  });
}

void CoordinatorShell::OnGrant(const membership::Grant& grant, const observe::Seconds& goodput) {
  if (grant.boot_id != boot_id_) return;
  if (grant.follows != 0) {
    StandBy(grant);
  } else {
    // A coordinator in the same process has counted since the status was written.
    Lead(grant, incarnation_ == 0 ? goodput : seconds_.sum());
  }
}

void CoordinatorShell::StandBy(const membership::Grant& grant) {
  if (incarnation_ != 0 || grant.incarnation <= standby_.incarnation()) return;
  standby_.OnGrant(grant.incarnation, grant.follows);
  report_due_ = absl::InfinitePast();
  log::Info("standing by", {{"incarnation", static_cast<std::int64_t>(grant.incarnation)},
                            {"follows", static_cast<std::int64_t>(grant.follows)}});
}

// Under a higher incarnation it is another coordinator, which knows nothing of what the one before
// it in this process was about to do: whoever has lost its standby begins anew like that (B4).
void CoordinatorShell::Lead(const membership::Grant& grant, const observe::Seconds& goodput) {
  if (grant.incarnation <= incarnation_) return;  // said again
  standby_.Cease();
  if (incarnation_ != 0) {
    links_.clear();
    heard_.clear();
    standby_link_.reset();
    machine_ = make_machine_();
    delivered_version_ = reported_ = ~0ULL;
    logged_superseded_ = false;
  }
  incarnation_ = grant.incarnation;
  if (!metrics_) metrics_.emplace(registry_);
  const absl::Time now = clock_.Now();
  machine_->OnGrant(grant, now);
  seconds_.Start(goodput);
  counted_ = now;
}

v1alpha1::ShadowReply CoordinatorShell::OnShadow(const v1alpha1::Shadow& shadow) {
  const bool armed = standby_.armed();
  const membership::ShadowReply reply =
      standby_.OnShadow(membership::FromProto(shadow), clock_.Now());
  if (shadow.incarnation() == standby_.primary() && !reply.leads) {
    told_goodput_ = {shadow.goodput().begin(), shadow.goodput().end()};
  }
  if (standby_.armed() != armed) {
    report_due_ = absl::InfinitePast();
    Spread();
  }
  return membership::ToProto(reply);
}

void CoordinatorShell::TakeOverIfSilent() {
  const auto succession = standby_.TakeOver(clock_.Now());
  if (!succession) return;
  log::Warning("takes over: the coordinator that led has fallen silent",
               {{"incarnation", static_cast<std::int64_t>(succession->grant.incarnation)},
                {"follows", static_cast<std::int64_t>(standby_.primary())}});
  Lead(succession->grant, told_goodput_);
  Want(succession->desired);
}

// Who waits has nobody to lead, and nobody to let go.
void CoordinatorShell::Want(const membership::Desired& desired) {
  if (incarnation_ == 0) {
    if (desired.finished) End();
    return;
  }
  desired_ = desired;
  metrics_->Want(desired);
  traces_->Want(desired.trace_request);
  machine_->OnDesired(desired, clock_.Now());
}

void CoordinatorShell::Tick() {
  TakeOverIfSilent();
  machine_->OnTick(clock_.Now());
  for (const auto& [uid, link] : links_) link->Tick();
  RecordTrace();
  Spread();
  NoticeEnd();
}

void CoordinatorShell::NoticeEnd() {
  if (!machine_->finished()) return;
  const absl::Time now = clock_.Now();
  finished_ = std::min(finished_, now);
  // What somebody waits for is told first, as long as there is anybody to tell it.
  const bool all_told = machine_->AllGone() && !traces_->owes();
  if (all_told || now - finished_ >= options_.finish_timeout) End();
}

void CoordinatorShell::RecordTrace() {
  if (ending_ || !traces_->records()) return;
  const membership::Summary summary = machine_->MakeSummary(clock_.Now());
  std::map<std::string, std::string> nodes;
  for (const membership::Pod& pod : desired_.pods) nodes[pod.uid] = pod.node;
  std::map<std::string, TraceDesk::Member> members;
  for (const membership::MemberState& member : summary.members) {
    const std::string& uid = member.id.pod_uid;
    const auto link = links_.find(uid);
    if (!member.connected || link == links_.end()) continue;
    members[uid] = {
        {.pod = member.pod, .node = nodes[uid], .works = RoleOf(uid) == membership::kWorkerRole},
        link->second.get()};
  }
  traces_->Tick(members, summary.training.has_result || machine_->finished());
}

void CoordinatorShell::TellTrace(const std::vector<metric_export::Event>& events) {
  if (!traces_->records()) return;
  const absl::Duration wall_ahead = clock_.WallNow() - clock_.Now();
  for (const metric_export::Event& event : events) {
    timeline::News news{.time = event.time - wall_ahead, .name = event.name};
    for (const auto& [name, value] : event.attributes) news.details[name] = value;
    traces_->OnNews(std::move(news));
  }
}

void CoordinatorShell::End() {
  if (ending_ || std::exchange(done_, true)) return;
  if (options_.on_done) options_.on_done();
}

// After every event: whoever is concerned learns of it.
void CoordinatorShell::Spread() {
  if (ending_) return;
  KeepLinks();
  KeepStandby();
  Tell();
  Report();
}

// It hears of a new view at once: nobody else is told of it before (B1).
void CoordinatorShell::KeepStandby() {
  const std::optional<membership::StandbyPod> standby = machine_->standby();
  if (!standby || machine_->superseded()) {
    standby_link_.reset();
    return;
  }
  const std::string address =
      net::ToString({standby->ip, static_cast<std::uint16_t>(options_.standby_port)});
  if (standby_link_ == nullptr) {
    standby_link_ = std::make_unique<StandbyLink>(
        queue_, clock_,
        StandbyLinkOptions{.address = address,
                           .peer = tls::PeerName("coordinator", options_.job_uid),
                           .credentials = dial_as_},
        StandbyLink::Handlers{.make_shadow = [this] { return MakeShadow(); },
                              .on_reply =
                                  [this](const membership::ShadowReply& reply) {
                                    machine_->OnShadowReply(reply, clock_.Now());
                                    Spread();
                                  }});
  }
  const membership::ViewNumber newest = machine_->view() == nullptr ? 0 : machine_->view()->number;
  if (std::exchange(shadowed_view_, newest) == newest) {
    standby_link_->Tick();
  } else {
    standby_link_->Hurry();
  }
}

std::optional<v1alpha1::Shadow> CoordinatorShell::MakeShadow() const {
  const std::optional<membership::Shadow> shadow = machine_->MakeShadow();
  if (!shadow) return std::nullopt;
  v1alpha1::Shadow said = membership::ToProto(*shadow);
  *said.mutable_goodput() = {seconds_.sum().begin(), seconds_.sum().end()};
  return said;
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
  v1alpha1::CoordinatorReport report = ToProto(summary, clock_.WallNow() - now);
  PutStandby(report);
  std::vector<metric_export::Event> news = LogNews(summary);
  TellTrace(news);
  traces_->Put(report);
  ExportMetrics(summary, training, std::move(news));
  report.set_export_problem(ExportProblem());
  if (service_ != nullptr) service_->Report(report);
  if (metrics_) {
    metrics_->Show(summary, training, [this](const std::string& uid) { return RoleOf(uid); });
  }
  if (now >= progress_due_) {
    progress_due_ = now + kProgressEvery;
    WriteProgress(summary.settled_step);
  }
}

// By the one who leads: who waits has heard of nothing, and who was superseded is behind.
void CoordinatorShell::ExportMetrics(const membership::Summary& summary,
                                     const v1alpha1::TrainingReport& training,
                                     std::vector<metric_export::Event> events) {
  if (options_.exporters.empty() || !metrics_ || summary.superseded) return;
  const auto points = metric_export::PointsOf(training, clock_.WallNow(), std::move(events));
  if (!points || !export_pace_.Tells(*points)) return;
  for (const auto& exporter : options_.exporters) exporter->Tell(*points);
}

std::string CoordinatorShell::ExportProblem() const {
  for (const auto& exporter : options_.exporters) {
    if (std::string problem = exporter->problem(); !problem.empty()) return problem;
  }
  return "";
}

// What is new in it, for those who are told beside the log.
std::vector<metric_export::Event> CoordinatorShell::LogNews(const membership::Summary& summary) {
  using Kind = metric_export::Event::Kind;
  const absl::Time now = clock_.WallNow();
  std::vector<metric_export::Event> events;
  if (summary.newest_view != logged_view_) {
    logged_view_ = summary.newest_view;
    const auto members = std::count_if(
        summary.members.begin(), summary.members.end(),
        [](const membership::MemberState& one) { return one.in_view && one.connected; });
    const std::string number = absl::StrCat(membership::IncarnationOf(logged_view_), "-",
                                            membership::EpochOf(logged_view_));
    log::Info("view", {{"number", number}, {"members", members}});
    events.push_back(
        {Kind::kView, now, "view " + number, {{"starling.members", absl::StrCat(members)}}});
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
    events.push_back({Kind::kIncident,
                      incident.time + (now - clock_.Now()),
                      incident.reason,
                      {{"starling.pod", incident.pod}, {"message", incident.message}}});
  }
  // What somebody's loss ended is the view before.
  std::ranges::stable_sort(events, {}, &metric_export::Event::time);
  return events;
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

void CoordinatorShell::PutStandby(v1alpha1::CoordinatorReport& to) {
  const bool waits = incarnation_ == 0;
  armed_.Set(waits && standby_.armed() ? 1 : 0);
  if (!waits || standby_.incarnation() == 0) return;
  v1alpha1::StandbyStatus& standby = *to.mutable_standby();
  standby.set_incarnation(standby_.incarnation());
  standby.set_follows(standby_.primary());
  standby.set_armed(standby_.armed());
  if (standby_.armed()) {
    standby.set_silent_seconds(absl::ToDoubleSeconds(standby_.Silence(clock_.Now())));
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
