// SPDX-License-Identifier: Apache-2.0
// The gRPC face of a member: the coordinator dials it, directives come down, reports go up.
//
// Every message is the whole state, so loss and repetition do not matter: the newest report is sent
// every 100 ms and at once on change, one write at a time; changes during a write are one write
// afterwards. A call that cannot prove the job's secret is refused. The coordinator is heard, but
// nothing is reported, until Ready().
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/membership/types.h"

namespace starling::worker {

struct ControlServiceOptions {
  std::string address;  // host:port; port 0 takes any free one
  std::string secret;   // the job's
};

// Thread-safe.
class ControlService {
 public:
  struct Handlers {
    // Called on gRPC's threads.
    std::function<void(const membership::Directive&)> on_directive;
    std::function<membership::Report()> make_report;
  };

  static absl::StatusOr<std::unique_ptr<ControlService>> Start(const ControlServiceOptions& options,
                                                               Handlers handlers);
  // Ends all calls.
  ~ControlService();
  ControlService(const ControlService&) = delete;
  ControlService& operator=(const ControlService&) = delete;

  int port() const;
  // From now on reports flow.
  void Ready();
  // Something changed: report now.
  void Poke();
  // Waits until a report that was made after this call was handed to the network, or `timeout`.
  bool Flush(absl::Duration timeout);

 private:
  class Core;
  explicit ControlService(std::shared_ptr<Core> core);
  std::shared_ptr<Core> core_;
};

// What a call must carry as metadata `x-starling-auth`.
std::string ControlToken(const std::string& secret);

}  // namespace starling::worker
