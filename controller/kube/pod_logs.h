// SPDX-License-Identifier: Apache-2.0
// What a pod's container wrote, as an API server hands it out.
//
// Not a part of KubeClient, because on one machine logs are files in the job's folder and have
// nothing to do with the store. HttpKubeClient is the only implementation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "controller/kube/kube_client.h"

namespace starling::kube {

struct LogOptions {
  std::string container;                   // empty: the pod's only one
  bool follow = false;                     // go on as the container writes, until it ends
  bool previous = false;                   // of the container's run before this one
  std::optional<std::int64_t> tail_lines;  // only so many of the last lines
};

// Next() is confined to one thread; Stop() is thread-safe. It must not outlive its source.
class LogStream {
 public:
  virtual ~LogStream() = default;

  // The next piece of text, cut anywhere; nothing if none came within `timeout`. OutOfRange: the
  // end. Cancelled: after Stop().
  virtual absl::StatusOr<std::optional<std::string>> Next(absl::Duration timeout) = 0;
  virtual void Stop() = 0;
};

// Thread-safe.
class PodLogs {
 public:
  virtual ~PodLogs() = default;

  // NotFound: no such pod or container. InvalidArgument: the container has not started yet.
  virtual absl::StatusOr<std::unique_ptr<LogStream>> ReadLogs(const ObjectKey& pod,
                                                              const LogOptions& options) = 0;
};

}  // namespace starling::kube
