// SPDX-License-Identifier: Apache-2.0
// The controller of one machine, put together: store, reconciler, garbage collector, kubelet.
//
// The composition root: the only place that knows which implementation stands behind each
// interface. To add a controller, add its queue, reconciler and informer handlers here.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock/clock.h"
#include "controller/manager/options.h"

namespace starling::manager {

// Confined to the main thread.
class Controller {
 public:
  // Opens the store and starts everything; writes HOME/controller.json when it is ready.
  // `program_folder` is where the programs of pods lie. The home's lock must be held.
  static absl::StatusOr<std::unique_ptr<Controller>> Start(const Options& options,
                                                           const std::string& program_folder,
                                                           const clock::Clock& clock);

  // Ends all pods in order and then everything else.
  ~Controller();

  bool IsIdle() const;

 private:
  struct Parts;
  explicit Controller(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace starling::manager
