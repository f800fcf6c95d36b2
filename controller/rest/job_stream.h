// SPDX-License-Identifier: Apache-2.0
// The answer to watch=1: what a listener hears, as server-sent events.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/clock/clock.h"
#include "common/http/body_stream.h"
#include "controller/rest/call_limits.h"
#include "controller/rest/job_hub.h"
#include "controller/rest/permit.h"

namespace starling::service {

struct JobStreamOptions {
  JobFilter filter = {};
  bool whole = false;  // of one job: its whole object, its progress, and the end with its end
  std::optional<std::int64_t> since = std::nullopt;
  absl::Duration timeout = absl::Hours(1);
  std::shared_ptr<const Permit> permit = nullptr;  // null: it needs none
};

class JobStream final : public http::BodyStream {
 public:
  static constexpr absl::Duration kHeartbeatEvery = absl::Seconds(15);
  static constexpr absl::Duration kProgressEvery = absl::Milliseconds(500);
  static constexpr absl::Duration kPermitEvery = absl::Seconds(2);

  // `hub` and `clock` must outlive it.
  JobStream(JobHub& hub, const clock::Clock& clock, CallLimits::Ticket ticket,
            JobStreamOptions options);

  void Start(std::function<void()> wake) override;
  Piece Next() override;
  void Drain() override { draining_ = true; }

 private:
  std::string TextOf(const JobNews& news);
  std::string ProgressText(const kube::Json& job);

  JobHub& hub_;
  const clock::Clock& clock_;
  const CallLimits::Ticket ticket_;
  JobStreamOptions options_;
  const absl::Time deadline_;
  std::unique_ptr<JobListener> listener_;
  absl::Time last_said_;
  absl::Time last_progress_ = absl::InfinitePast();
  std::string progress_;  // as it was last told
  bool begun_ = false;
  bool job_over_ = false;
  bool draining_ = false;
};

}  // namespace starling::service
