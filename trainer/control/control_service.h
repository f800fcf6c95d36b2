// SPDX-License-Identifier: Apache-2.0
// The gRPC face of a member: the coordinator dials it, directives come down, reports go up.
//
// Every message is the whole state, so loss and repetition do not matter. The newest report is sent
// every 100 ms and immediately after a change, one write at a time; changes during a write are sent
// together afterwards. Only the job's coordinator may call, by its certificate. Directives are
// received from the start, but nothing is reported until Ready().
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/tls/tls.h"
#include "starling/v1alpha1/membership.pb.h"
#include "trainer/membership/types.h"

namespace starling::control {

struct ControlServiceOptions {
  std::string address;  // host:port; port 0 takes any free one
  tls::Identity identity;
  std::string job_uid;  // only the coordinator's leaf of this job may call
};

// Thread-safe.
class ControlService {
 public:
  struct Handlers {
    // Called on gRPC's threads.
    std::function<void(const membership::Directive&)> on_directive;
    std::function<membership::Report()> make_report;
    // Where a timeline is recorded; empty: nowhere, and who asks for one is told so.
    std::function<v1alpha1::TraceAnswer(const v1alpha1::TraceQuery&)> on_trace = {};
  };

  static absl::StatusOr<std::unique_ptr<ControlService>> Start(const ControlServiceOptions& options,
                                                               Handlers handlers);
  // As Stop.
  ~ControlService();
  ControlService(const ControlService&) = delete;
  ControlService& operator=(const ControlService&) = delete;

  int port() const;
  // From now on reports flow.
  void Ready();
  // Something changed: report now.
  void Notify();
  // Waits until a report that was made after this call was handed to the network, or `timeout`.
  bool Flush(absl::Duration timeout);
  // Ends all calls: from here on no handler is called, and Notify does nothing. For whoever the
  // handlers use and who notifies: it ends between this and the destructor.
  void Stop();

 private:
  class Core;
  explicit ControlService(std::shared_ptr<Core> core);
  std::shared_ptr<Core> core_;
};

}  // namespace starling::control
