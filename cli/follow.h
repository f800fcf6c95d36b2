// SPDX-License-Identifier: Apache-2.0
// Watches a job to its end and tells its story on the terminal; Ctrl-C suspends it.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/status/statusor.h"
#include "cli/control_plane.h"
#include "cli/session.h"
#include "cli/story.h"
#include "common/process/alive_fifo.h"

namespace starling::cli {

enum class FollowEnd {
  kFinished,   // Succeeded or Failed
  kSuspended,  // by whoever it was, and not by us
  kLeft,       // by Ctrl-C; suspended if all went well
  kDeleted,
};

struct Followed {
  FollowEnd end;
  kube::Json job;  // as it was last
};

// Confined to the main thread.
class Follower {
 public:
  // Both must outlive it. With `only_watch` Ctrl-C leaves the job as it is.
  Follower(Session& session, ControllerKeeper& keeper, bool only_watch = false)
      : session_(session), keeper_(keeper), only_watch_(only_watch) {}

  // From `job` on. An error is one of the store or of the controller, never the job's.
  absl::StatusOr<Followed> Follow(kube::Json job);

 private:
  absl::Status Open();
  absl::Status Take(absl::Duration timeout);
  absl::Status Relist();
  void Show();
  void See(const kube::Json& job);
  std::optional<FollowEnd> End() const;
  absl::Status AskToSuspend();
  absl::StatusOr<bool> PodsHaveEnded();
  absl::Status SettleDown();

  Session& session_;
  ControllerKeeper& keeper_;
  const bool only_watch_;
  kube::KubeClient* store_ = nullptr;
  std::unique_ptr<kube::WatchStream> watch_;
  kube::Json job_;
  Story story_;
  process::AliveHold alive_;  // while we follow, its pods are wanted
  bool deleted_ = false;
  int interrupts_ = 0;
};

}  // namespace starling::cli
