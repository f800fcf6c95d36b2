// SPDX-License-Identifier: Apache-2.0
// Both ways at once: some tensors of the model lie on parameter servers (an embedding, say), and
// the gradients of the others are summed up among the workers, who hold them (Parallax calls it the
// hybrid architecture; spec.exchange.parameterServer.tensors).
//
// The workers make every step together. A step's batch is cut into portions, which are the units of
// both ways: each is computed by itself, its part for the servers is pushed under the lease of this
// portion, and its part for the workers is a group of the reproducible sum. A portion means the
// same samples for the job's whole life, whoever computes it, so servers skip what they have when a
// step is made again (rules H1 and H2 of docs/design/protocol.md). Finish contributes to the
// workers' sum only after every server has acknowledged this worker's portions (H3): so a step that
// somebody has applied is whole on the servers. Servers may be ahead of a step that is made again;
// Outcome::of_state_before tells.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "trainer/client/parameter_server_exchange.h"
#include "trainer/data/batches.h"
#include "trainer/exchange/exchange.h"

namespace starling::client {

// See Exchange; each group is a portion.
class HybridExchange final : public exchange::Exchange {
 public:
  struct Parts {
    workload::Workload& workload;
    const data::Batches& batches;
    const parameter_server::JobTables& tables;  // of what lies on the servers
    // Whether this step is still to be made; false where something else comes first, and Prepare
    // returns ABORTED.
    std::function<bool()> wanted;
  };
  // `servers` outlives this; whoever owns it enters views with it, before this, and leaves them.
  // Its events tell what became of the portions.
  HybridExchange(Parts parts, ParameterServerExchange& servers);

  // `mesh`: of the workers.
  absl::Status Enter(const membership::View& view, transport::Mesh* mesh) override {
    return workers_->Enter(view, mesh);
  }
  void Leave() override { workers_->Leave(); }
  absl::Status Begin(const exchange::Step& step) override;
  absl::StatusOr<std::int64_t> Prepare() override;
  void Add(int group, int bucket) override;
  absl::StatusOr<exchange::Outcome> Finish(std::span<const double> statistics,
                                           int columns) override;
  void Cancel(const absl::Status& reason) override { cancelled_ = reason; }
  exchange::Volume volume() const override {
    const exchange::Volume pushed = servers_.volume(), summed = workers_->volume();
    return {pushed.sent + summed.sent, pushed.dense + summed.dense};
  }
  std::vector<exchange::Path> paths() const override {
    std::vector<exchange::Path> all = servers_.paths();
    for (exchange::Path& path : workers_->paths()) all.push_back(std::move(path));
    return all;
  }
  void RecordTo(timeline::Recorder& recorder) override {
    servers_.RecordTo(recorder);
    workers_->RecordTo(recorder);
  }
  ranges::Range<int> Groups(int rank, int size, int groups) const override {
    return workers_->Groups(rank, size, groups);
  }

 private:
  // Of the flat buffer, what the workers hold of a bucket, and where it lies in packed_.
  struct Piece {
    std::size_t from = 0;
    std::size_t to = 0;
    std::size_t size = 0;
  };
  struct Bucket {
    int packed = -1;  // its number among those of which the workers hold anything; -1: of none
    std::vector<Piece> pieces;
  };

  std::vector<std::size_t> Pack();
  absl::Status BeginPortion(int group);
  absl::Status FinishPortion();
  absl::Status BeginSum();
  absl::Status Acknowledge();

  const Parts parts_;
  ParameterServerExchange& servers_;
  std::vector<Bucket> buckets_;
  std::vector<float> packed_;                          // gradients of what the workers hold
  const std::unique_ptr<exchange::Exchange> workers_;  // sums packed_

  // The present step.
  exchange::Step step_;
  std::span<float> gradients_;
  std::vector<std::int64_t>
      control_;  // the step's, and whether this worker has read the state before
  bool prepared_ = false;
  bool summing_ = false;      // workers_ has begun
  int portion_ = -1;          // that is being pushed
  std::int64_t refused_ = 0;  // by servers, before this step
  std::size_t computed_ = 0;  // samples of the portions before it
  bool finite_ = true;
  absl::Status cancelled_;
  absl::Status failed_;  // on the way to the servers
};

}  // namespace starling::client
