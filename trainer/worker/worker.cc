// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/worker.h"

#include <utility>

#include "trainer/worker/client_worker.h"
#include "trainer/worker/peer_worker.h"

namespace starling::worker {

absl::StatusOr<std::unique_ptr<Worker>> Worker::Create(WorkerConfig config, WorkerParts parts) {
  if (config.spec.exchange().has_parameter_server()) {
    return ClientWorker::Create(std::move(config), std::move(parts));
  }
  return PeerWorker::Create(std::move(config), std::move(parts));
}

}  // namespace starling::worker
