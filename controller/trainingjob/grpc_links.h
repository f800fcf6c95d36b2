// SPDX-License-Identifier: Apache-2.0
// CoordinatorLinks over gRPC: CoordinatorControl.Supervise, one stream a coordinator.
//
// A stream without a report for a while is cancelled and dialled anew over a new connection, until
// Release() or another target; how long is too long is the decision's business, not this one's.
//
// Both ends prove who they are: the controller with a leaf that it makes for itself in memory, the
// coordinator with the one of its pod. Who is no coordinator of this very job is not spoken with.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/clock/clock.h"
#include "common/net/ports.h"
#include "common/sync/mutex.h"
#include "controller/trainingjob/coordinator_links.h"

namespace starling::trainingjob {

struct GrpcLinkOptions {
  int port = net::kCoordinatorPort;
  // Rises with every controller process: what an older one says later is not obeyed.
  std::int64_t lease_transition = 1;
  // What the jobs' credentials are derived from (resources/credentials.h).
  std::string seed = {};
  absl::Duration tick = absl::Milliseconds(20);
  absl::Duration redial = absl::Milliseconds(50);     // pause after a failed call
  absl::Duration answer = absl::Seconds(1);           // for the first report of a call
  absl::Duration silence = absl::Milliseconds(1500);  // between two reports
  absl::Duration repeat = absl::Seconds(1);           // of what is wanted
  absl::Duration notify = absl::Milliseconds(250);    // of reports that bring only progress
};

// Thread-safe. Has a thread of its own until it is destroyed.
class GrpcCoordinatorLinks final : public CoordinatorLinks {
 public:
  // `on_report` is called from threads of gRPC when a job should be looked at; it must not wait.
  // `clock` must outlive the object.
  GrpcCoordinatorLinks(const clock::Clock& clock, GrpcLinkOptions options,
                       std::function<void(const runtime::Key&)> on_report);
  ~GrpcCoordinatorLinks() override;

  void Supervise(const runtime::Key& job, const std::vector<Supervision>& supervisions,
                 std::string_view job_uid) override;
  std::vector<ObservedLink> Look(const runtime::Key& job) const override;

  // Streams that are kept: to coordinators that report, and to those that do not (any more).
  struct Counts {
    int reporting = 0;
    int silent = 0;
  };
  Counts Count() const;

 private:
  class Link;
  using Links = std::vector<std::shared_ptr<Link>>;

  Links AllLinks() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tick();

  const clock::Clock& clock_;
  const GrpcLinkOptions options_;
  const std::function<void(const runtime::Key&)> on_report_;
  mutable sync::Mutex mutex_;
  sync::Condition changed_;
  std::map<runtime::Key, Links> links_ ABSL_GUARDED_BY(mutex_);
  Links closing_ ABSL_GUARDED_BY(mutex_);  // until their calls end
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread ticker_;
};

}  // namespace starling::trainingjob
