// SPDX-License-Identifier: Apache-2.0
// The coordinator as a process sees it: the pure machine, its streams up and down, its clock.
//
// Everything runs on one event loop: an event is given to the machine, then whatever changed is
// told, before the next event is looked at. So a broken stream is a new view at the survivors
// without any timer between.
//
// A process waits until it is granted an incarnation to lead under. One that is granted one ahead
// of time is a standby meanwhile (membership/standby.h): it is called by the coordinator that
// leads, and leads itself, without another word of the controller, once that one is silent.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock/clock.h"
#include "common/metrics/metrics.h"
#include "common/tls/tls.h"
#include "trainer/coordinator/event_loop.h"
#include "trainer/coordinator/job_metrics.h"
#include "trainer/membership/coordinator.h"
#include "trainer/membership/standby.h"
#include "trainer/metric_export/exporter.h"
#include "trainer/metric_export/points.h"
#include "trainer/observe/activity_ledger.h"
#include "trainer/observe/stragglers.h"

namespace grpc {
class ChannelCredentials;
}

namespace starling::coordinator {

class ControllerService;
class MemberLink;
class StandbyLink;
class TraceDesk;

// A machine that nobody has granted anything, always with the same boot id. One process makes
// several where it is granted more than one incarnation.
using MachineFactory = std::function<std::unique_ptr<membership::Coordinator>()>;

struct ShellOptions {
  std::string listen;  // host:port of the controller's streams
  int member_port = 0;
  int standby_port = 0;    // where a standby listens
  tls::Identity identity;  // of the coordinator of job `job_uid`
  std::string job_uid;
  std::string job_name = {};  // for people
  std::string progress_file;  // where the newest settled step is written; empty: nowhere
  // Who tells others of the job's metrics, beside our report.
  std::vector<std::unique_ptr<metric_export::Exporter>> exporters;
  // Called once, on the loop: the job has ended and all members are gone, or have had
  // `finish_timeout` to go. There is nothing left to do.
  std::function<void()> on_done;
  absl::Duration finish_timeout = absl::Seconds(30);
};

// Thread-safe.
class CoordinatorShell {
 public:
  // `clock` and `registry` must outlive it.
  static absl::StatusOr<std::unique_ptr<CoordinatorShell>> Start(ShellOptions options,
                                                                 MachineFactory make_machine,
                                                                 const clock::Clock& clock,
                                                                 metrics::Registry& registry);
  ~CoordinatorShell();
  CoordinatorShell(const CoordinatorShell&) = delete;
  CoordinatorShell& operator=(const CoordinatorShell&) = delete;

  int port() const;
  membership::Summary Look();
  // Brings up to date what metrics show of seconds.
  void UpdateMetrics();

 private:
  CoordinatorShell(ShellOptions options, MachineFactory make_machine, const clock::Clock& clock,
                   metrics::Registry& registry);

  absl::Status Listen();
  void OnGrant(const membership::Grant& grant, const observe::Seconds& goodput);
  void StandBy(const membership::Grant& grant);
  void Lead(const membership::Grant& grant, const observe::Seconds& goodput);
  v1alpha1::ShadowReply OnShadow(const v1alpha1::Shadow& shadow);
  void TakeOverIfSilent();
  void Want(const membership::Desired& desired);
  void Tick();
  void Spread();
  void KeepLinks();
  void KeepStandby();
  std::optional<v1alpha1::Shadow> MakeShadow() const;
  void NoticeEnd();
  void RecordTrace();
  void End();
  void Tell();
  void Report();
  void ExportMetrics(const membership::Summary& summary, const v1alpha1::TrainingReport& training,
                     std::vector<metric_export::Event> events);
  std::string ExportProblem() const;
  std::vector<metric_export::Event> LogNews(const membership::Summary& summary);
  void TellTrace(const std::vector<metric_export::Event>& events);
  void Hear(const std::string& pod_uid, const std::string& role, const membership::Report& report);
  void CountAbsence(const membership::Summary& summary, absl::Time now);
  std::string RoleOf(const std::string& pod_uid) const;
  void PutStandby(v1alpha1::CoordinatorReport& to);
  void PutStragglers(const membership::Summary& summary, v1alpha1::Progress& to) const;
  void WriteProgress(std::int64_t settled_step);
  std::string AddressOf(const membership::Dial& pod) const;
  std::unique_ptr<MemberLink> MakeLink(const std::string& pod_uid, const membership::Dial& pod);

  const ShellOptions options_;
  const clock::Clock& clock_;
  const std::shared_ptr<grpc::ChannelCredentials> dial_as_;
  const std::shared_ptr<EventQueue> queue_ = std::make_shared<EventQueue>();

  // The loop's.
  bool ending_ = false;
  bool done_ = false;
  absl::Time finished_ = absl::InfiniteFuture();
  const MachineFactory make_machine_;
  std::unique_ptr<membership::Coordinator> machine_;
  const std::string boot_id_;
  membership::Standby standby_;    // while this process waits
  observe::Seconds told_goodput_;  // of the job, by the coordinator that leads
  std::map<std::string, std::unique_ptr<MemberLink>> links_;  // by pod UID
  std::map<std::string, std::string> roles_;                  // of those dialled, by pod UID
  // Of those whose seconds are counted: when they told them last, by pod UID.
  std::map<std::string, std::pair<membership::MemberId, absl::Time>> heard_;
  std::unique_ptr<TraceDesk> traces_;
  std::unique_ptr<StandbyLink> standby_link_;  // to ours, if there is one
  membership::ViewNumber shadowed_view_ = 0;   // the newest that it was told of
  std::unique_ptr<ControllerService> service_;
  std::uint64_t delivered_version_ = ~0ULL;
  std::uint64_t reported_ = ~0ULL;
  absl::Time report_due_ = absl::InfinitePast();
  membership::ViewNumber logged_view_ = 0;
  bool logged_superseded_ = false;
  absl::Time newest_incident_ = absl::InfinitePast();
  std::int64_t written_progress_ = -1;
  absl::Time progress_due_ = absl::InfinitePast();

  metrics::Registry& registry_;
  metrics::Gauge armed_;
  std::optional<JobMetrics> metrics_;  // once it leads: who waits knows nothing of the job
  metric_export::Pace export_pace_;
  observe::ActivityLedger seconds_;
  observe::Stragglers stragglers_;
  membership::Desired desired_;                  // the newest
  std::uint64_t incarnation_ = 0;                // that it leads under; 0: it waits
  absl::Time counted_ = absl::InfiniteFuture();  // absence, up to here

  std::unique_ptr<EventLoop> loop_;  // last: ends first
};

}  // namespace starling::coordinator
