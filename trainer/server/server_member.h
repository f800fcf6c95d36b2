// SPDX-License-Identifier: Apache-2.0
// A parameter server as a member of its job: from the coordinator's directives to ShardServer, and
// from what that says to reports.
//
// What the tables are follows from the job's spec and from the layout of the model, which workers
// know and the coordinator tells: until it does, a server waits and holds nothing. It leaves when
// it is released, when the job has finished, when a newer process of its pod has come, or when its
// grace is over.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/clock/clock.h"
#include "common/metrics/metrics.h"
#include "common/storage/blob_store.h"
#include "common/sync/mutex.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/membership/session.h"
#include "trainer/observe/activity_metrics.h"
#include "trainer/observe/seconds_report.h"
#include "trainer/parameter_server/job_tables.h"
#include "trainer/server/server_metrics.h"
#include "trainer/server/shard_server.h"
#include "trainer/timeline/recorder.h"

namespace starling::server {

struct ServerConfig {
  v1alpha1::TrainingJobSpec spec;
  std::string job_uid;
  std::string job_dir;  // checkpoints are in <job_dir>/checkpoints unless the spec says where
  membership::MemberId self;
  std::optional<membership::LastExit> last_exit;
  std::string progress_file;                  // for the supervisor; empty: none
  int executors = 1;                          // threads that serve shards
  absl::Time began = absl::InfiniteFuture();  // this process, by the parts' clock; if later: now
};

// All outlive the member.
struct ServerParts {
  transport::Transport& transport;
  storage::BlobStore& storage;  // the job's place (checkpoint::JobPlace)
  const clock::Clock& clock;
  metrics::Registry& registry;
  control::Failpoints& failpoints;
  std::function<void()> notify;  // report now
  // This server hangs in that thread, and its process is to end now; empty: a test's does not.
  std::function<void(std::int64_t thread)> on_hung = {};
  timeline::Recorder* recorder = nullptr;  // of its activities; null: nowhere
};

// Thread-safe.
class ServerMember {
 public:
  ServerMember(ServerConfig config, ServerParts parts);
  ~ServerMember();

  // Serves until this process is to end: OK, or why it cannot go on.
  absl::Status Run();

  void OnDirective(const membership::Directive& directive);
  membership::Report MakeReport();
  // Brings up to date what metrics show of this process's seconds. By one thread at a time.
  void UpdateMetrics() { activities_.Show(stopwatch_.Read()); }
  // Leave in an orderly way, or at once.
  void Terminate();
  void GraceOver();

 private:
  std::shared_ptr<ShardServer> server() const;
  absl::StatusOr<std::shared_ptr<ShardServer>> MakeServer(const parameter_server::Layout& layout);
  void Watch(const parameter_server::ServerLoop& loop);
  v1alpha1::CheckpointStatus CheckpointOf(const ServerReport& from) const;
  void End();
  bool IsHung(const membership::Directive& directive) const;

  const ServerConfig config_;
  const ServerParts parts_;
  observe::Stopwatch stopwatch_;
  observe::SecondsReport seconds_{stopwatch_};
  observe::ActivityMetrics activities_;
  ServerMetrics metrics_;  // of Run's thread
  std::int64_t progress_ = -1;
  std::unique_ptr<ShardSnapshots> snapshots_;

  mutable sync::Mutex mutex_;
  sync::Condition changed_;
  membership::Session session_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<parameter_server::Layout> layout_ ABSL_GUARDED_BY(mutex_);
  ServerDirective newest_ ABSL_GUARDED_BY(mutex_);
  std::int64_t settings_generation_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string failure_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<ShardServer> server_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::server
