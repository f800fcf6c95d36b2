// SPDX-License-Identifier: Apache-2.0
// A parameter server process without its link to the coordinator: it is told directives, serves
// the newest view, and has a report ready at any time. Whoever owns it carries both.
//
// One thread (Run) fences, opens the view's mesh and serves until the mesh ends or a newer view
// comes; between messages it fetches ahead what it is asked to and saves snapshots.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/sync/mutex.h"
#include "trainer/parameter_server/server_loop.h"
#include "trainer/parameter_server/slot_plan.h"
#include "trainer/server/failpoints.h"
#include "trainer/server/slot_snapshots.h"
#include "trainer/transport/transport.h"

namespace starling::server {

inline constexpr const char* kFailCheckpoint = "checkpoint";

// From the coordinator: the whole of what a server is to know.
struct ServerDirective {
  std::uint64_t incarnation = 0;
  std::optional<parameter_server::JobView> view;
  std::vector<std::size_t> fetch_ahead;
  bool released = false;
};

// To the coordinator: the whole of what a server knows.
struct ServerReport {
  std::uint64_t incarnation = 0;  // of the coordinators that it has heard of, the highest
  std::optional<parameter_server::JobView> installed;
  bool broken = false;  // the installed view's links have ended
  std::vector<parameter_server::SlotReport> slots;
  // Of the slots that it answers for.
  std::map<std::size_t, parameter_server::LeaseLedger> ledgers;
  std::int64_t snapshots = 0;     // written
  absl::Status snapshot_failure;  // of the last one that could not be written, until one can
};

// Thread-safe.
class SlotServer {
 public:
  struct Options {
    membership::MemberId id;
    std::vector<parameter_server::SlotOptions> slots;
    // The mesh's name of a member.
    std::function<std::string(const membership::MemberId&)> peer_name;
    absl::Duration open_timeout = absl::Seconds(10);
    // How often a slot that has changed is saved; infinite: never.
    absl::Duration snapshot_interval = absl::InfiniteDuration();
    int keep_snapshots = 2;
  };

  // `transport`, `snapshots` and `failpoints` outlive it.
  SlotServer(Options options, transport::Transport& transport, SlotSnapshots& snapshots,
             Failpoints& failpoints);

  void OnDirective(const ServerDirective& directive);
  ServerReport Report() const;

  // Serves until it is released (OK), stopped (OK) or made to fail (CANCELLED).
  absl::Status Run();
  void Stop();

 private:
  absl::Status ServeView(const parameter_server::JobView& view, transport::Cancellation& ended);
  void Tick();
  void SaveSnapshots();
  absl::Status Save(std::size_t slot);
  void Tell(bool broken);

  const Options options_;
  transport::Transport& transport_;
  SlotSnapshots& snapshots_;
  Failpoints& failpoints_;
  // Of Run's thread.
  parameter_server::ServerLoop loop_;
  bool failed_ = false;
  net::Deadline next_snapshot_ = net::Deadline::Never();
  std::vector<membership::StateId> saved_;
  std::int64_t snapshots_written_ = 0;
  absl::Status snapshot_failure_;
  std::optional<parameter_server::JobView> installed_;

  mutable sync::Mutex mutex_;
  sync::Condition changed_;
  ServerDirective directive_ ABSL_GUARDED_BY(mutex_);
  ServerReport report_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  // Of the view that is being opened or served: cancelled when a newer one comes.
  std::function<void(const absl::Status&)> interrupt_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::server
