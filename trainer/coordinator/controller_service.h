// SPDX-License-Identifier: Apache-2.0
// The gRPC face of the coordinator: the controller dials it, grants and wishes come down, reports
// go up. Where it is a standby, the coordinator that leads calls it too.
//
// Each of the two may call what is its own, by its certificate, and nobody else. The newest stream
// is the one that counts; an older one is ended, so that a controller that was replaced does not
// keep its successor out. Reports are whole states: only the newest is worth sending, one write at
// a time.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/tls/tls.h"
#include "trainer/membership/types.h"

namespace starling::v1alpha1 {
class CoordinatorReport;
class Shadow;
class ShadowReply;
}  // namespace starling::v1alpha1

namespace starling::coordinator {

class EventQueue;

struct ControllerServiceOptions {
  std::string address;  // host:port; port 0 takes any free one
  tls::Identity identity;
  std::string job_uid;  // only leaves for this job may call
};

// Confined to its event loop, but for Start and Stop.
class ControllerService {
 public:
  // Called on the loop.
  struct Handlers {
    // `goodput`: the job's seconds so far, by activity.
    std::function<void(const membership::Grant&, const std::map<std::string, double>& goodput)>
        on_grant;
    std::function<void(const membership::Desired&)> on_desired;
    // A new stream is there: it wants a report.
    std::function<void()> on_stream;
    // The coordinator that leads says how things stand; returns the answer.
    std::function<v1alpha1::ShadowReply(const v1alpha1::Shadow&)> on_shadow;
  };

  static absl::StatusOr<std::unique_ptr<ControllerService>> Start(
      const ControllerServiceOptions& options, std::shared_ptr<EventQueue> queue,
      Handlers handlers);
  // After Stop(), on the loop.
  ~ControllerService();
  ControllerService(const ControllerService&) = delete;
  ControllerService& operator=(const ControllerService&) = delete;

  // Ends all streams and waits for that; while the loop still runs, not on it.
  void Stop();
  int port() const;
  // To the stream that counts, if there is one.
  void Report(const v1alpha1::CoordinatorReport& report);

 private:
  class Core;
  explicit ControllerService(std::unique_ptr<Core> core);
  const std::unique_ptr<Core> core_;
};

}  // namespace starling::coordinator
