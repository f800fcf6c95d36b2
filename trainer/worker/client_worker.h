// SPDX-License-Identifier: Apache-2.0
// A worker of a job with parameter servers: it holds no state that others need, works leases off,
// and pushes to the servers and pulls from them (docs/design/parameter-server.md).
#pragma once

#include <memory>

#include "trainer/worker/worker.h"

namespace starling::worker {

// Thread-safe, except Run.
class ClientWorker final : public Worker {
 public:
  // INVALID_ARGUMENT when spec and model do not fit.
  static absl::StatusOr<std::unique_ptr<Worker>> Create(WorkerConfig config, WorkerParts parts);
  ~ClientWorker() override;
  ClientWorker(const ClientWorker&) = delete;
  ClientWorker& operator=(const ClientWorker&) = delete;

  absl::Status Run() override;
  void OnDirective(const membership::Directive& directive) override;
  membership::Report MakeReport() const override;
  void Terminate() override;
  void GraceOver() override;
  void WaitForExit(absl::Duration timeout) override;

 private:
  struct State;
  explicit ClientWorker(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace starling::worker
