// SPDX-License-Identifier: Apache-2.0
// A worker of a job without servers: it holds the whole training state, computes its share of every
// batch and reduces gradients with its peers (docs/design/worker.md).
#pragma once

#include <memory>

#include "trainer/worker/worker.h"

namespace starling::worker {

// Thread-safe, except Run.
class PeerWorker final : public Worker {
 public:
  static absl::StatusOr<std::unique_ptr<Worker>> Create(WorkerConfig config, WorkerParts parts);
  ~PeerWorker() override;
  PeerWorker(const PeerWorker&) = delete;
  PeerWorker& operator=(const PeerWorker&) = delete;

  absl::Status Run() override;
  void OnDirective(const membership::Directive& directive) override;
  membership::Report MakeReport() const override;
  void Terminate() override;
  void GraceOver() override;
  void WaitForExit(absl::Duration timeout) override;

 private:
  // Brings the gauges that nobody pushes up to date.
  void RefreshMetrics() const;

  struct State;
  explicit PeerWorker(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace starling::worker
