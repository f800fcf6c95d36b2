// SPDX-License-Identifier: Apache-2.0
// What a job's pods have written: their logs, and the model.
//
// On one machine both are files of the job's folder. A cluster implements the same by its API
// server's logs and its object store.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock/clock.h"
#include "common/http/body_stream.h"
#include "controller/kube/http_kube_client.h"
#include "controller/rest/beneath.h"
#include "controller/rest/call_limits.h"
#include "controller/rest/permit.h"

namespace starling::service {

struct LogRequest {
  std::string pod = {};                             // empty: all of the job's
  bool follow = false;                              // until `over` says so
  std::optional<std::int64_t> tail = std::nullopt;  // lines of each pod; nothing: all
  bool previous = false;                            // of pods that were replaced
  bool events = false;                              // server-sent events instead of text
  absl::Duration timeout = absl::Hours(1);
  std::function<bool()> over = nullptr;  // the job has ended; asked by any thread
  CallLimits::Ticket ticket = nullptr;
  std::shared_ptr<kube::HttpKubeClient> client = nullptr;  // the caller's, in a cluster
  std::shared_ptr<const Permit> permit = nullptr;          // null: it needs none
};

// Thread-safe, all implementations.
class JobFiles {
 public:
  virtual ~JobFiles() = default;

  // NotFound: there is no such pod, and none is waited for.
  virtual absl::StatusOr<std::shared_ptr<http::BodyStream>> Logs(const kube::Json& job,
                                                                 LogRequest request) const = 0;
  // The file that status.result.model names. FailedPrecondition: it cannot be had from here, with
  // the remedy; what an object names is opened nowhere but in its own job's folder.
  virtual absl::StatusOr<OpenFile> Model(const kube::Json& job) const = 0;
};

class LocalJobFiles final : public JobFiles {
 public:
  // `jobs_folder` is that of all jobs. `clock` must outlive it and the logs that it opens.
  LocalJobFiles(std::string jobs_folder, const clock::Clock& clock)
      : jobs_folder_(std::move(jobs_folder)), clock_(clock) {}

  absl::StatusOr<std::shared_ptr<http::BodyStream>> Logs(const kube::Json& job,
                                                         LogRequest request) const override;
  absl::StatusOr<OpenFile> Model(const kube::Json& job) const override;

 private:
  std::string FolderOf(const kube::Json& job) const;

  const std::string jobs_folder_;
  const clock::Clock& clock_;
};

}  // namespace starling::service
