// SPDX-License-Identifier: Apache-2.0
// The exchange of a job with parameter servers: parameters are read as the consistency model
// allows, and of each lease's gradient every shard's part is pushed as soon as it is ready.
//
// A step is a run of leases that are pushed as one, so that they are applied once or not at all.
// Finish returns when all is sent; several pushes may be on their way, and the events say what
// became of them. What was refused in some shard (backup workers; or leases of which a shard had
// some already) is given back and worked off again, mostly by another worker; shards that have
// taken it skip it.
//
// What varies is chosen once, from the job file: how a part becomes an update (shard_gradient.h),
// when it is sent (consistency/eager_sender.h: within a budget, or at once), the clock at which a
// step reads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "common/clock/clock.h"
#include "trainer/client/parameter_reader.h"
#include "trainer/client/parameter_server_client.h"
#include "trainer/client/shard_gradient.h"
#include "trainer/consistency/eager_sender.h"
#include "trainer/exchange/exchange.h"
#include "trainer/parameter_server/job_tables.h"
#include "trainer/parameter_server/topology.h"
#include "trainer/workload/workload.h"

namespace starling::client {

// See Exchange. Add is confined to one thread at a time, and so is all else.
class ParameterServerExchange final : public exchange::Exchange {
 public:
  struct Parts {
    const v1alpha1::TrainingJobSpec& spec;
    membership::MemberId self;
    workload::Workload& workload;
    const parameter_server::JobTables& tables;
    const clock::Clock& clock;
  };
  // Leases whose push every shard has acknowledged.
  struct Done {
    consistency::LeaseRun leases{0};
    std::vector<double> statistics = {};  // that Finish was given
    std::size_t samples = 0;
  };
  // Called while this waits, sends or polls, on the same thread.
  struct Events {
    std::function<void(const Done&)> done;
    // All shards have answered, and some has not taken them.
    std::function<void(const consistency::LeaseRun&)> refused;
    // Whether these are still listed, and the lowest that this worker has: others may wait for
    // lower ones.
    std::function<bool(const consistency::LeaseRun&)> are_next;
    // Nothing that was sent counts, and what the workload held is void.
    std::function<void()> started_over;
  };
  ParameterServerExchange(const Parts& parts, Events events);

  absl::Status Enter(const membership::View& view, transport::Mesh* mesh) override;
  void Leave() override { pipe_.Leave(); }
  absl::Status Begin(const exchange::Step& step) override;
  // ABORTED when the leases are not wanted any more, or not now.
  absl::StatusOr<std::int64_t> Prepare() override;
  void Add(int group, int bucket) override;
  absl::StatusOr<exchange::Outcome> Finish(std::span<const double> statistics,
                                           int columns) override;
  void Cancel(const absl::Status& reason) override { cancelled_ = reason; }
  exchange::Volume volume() const override { return volume_; }
  std::vector<exchange::Path> paths() const override { return {path_}; }
  // Each push, by shard: encoding it and handing it to the link.
  void RecordTo(timeline::Recorder& recorder) override { recorder_ = &recorder; }

  // The lease kFirstValues: the parameters as they were when this was made.
  absl::Status AssignFirstValues();
  // All parameters as the shards have them now, read at `clock`, into the workload. Of a sparse
  // table all rows that any sample uses, or those of the validation set alone. ABORTED when
  // `wanted` says no more.
  absl::Status Fetch(parameter_server::Clock clock, const std::function<bool()>& wanted,
                     bool validation_only = false);
  bool FetchedAt(parameter_server::Version version) const { return reader_.ReadAt(version); }
  double fetch_seconds() const { return absl::ToDoubleSeconds(reader_.took()); }  // of the last one

  // Handles what has arrived, or arrives until then.
  absl::Status Poll() { return pipe_.Poll(); }
  absl::Status PollUntil(net::Deadline deadline);
  // Until nothing is on its way, or `timeout` has passed: OK.
  absl::Status AwaitAll(absl::Duration timeout);
  std::size_t on_their_way() const { return flights_.size(); }
  // Runs of leases that some shard has not taken, since this was made.
  std::int64_t refused() const { return refused_; }
  // Nothing is left to do, and nobody waits for this worker until its next step.
  void Rest();
  // Returns when a step may begin: the servers know this client, and not too many steps are on
  // their way. Begin waits for it too.
  absl::Status Ready();
  // Leases of a step.
  std::int64_t portions() const { return portions_; }
  ParameterServerClient& pipe() { return pipe_; }

 private:
  struct Flight {
    Done what;
    std::int64_t open = 0;  // pushes without an acknowledgement
    bool sealed = false;    // all are pushed
    bool refused = false;
  };
  using FlightNumber = std::uint64_t;

  void StartOver();
  void On(const parameter_server::Acknowledged& event);
  void FinishIfAllIn(FlightNumber number);
  parameter_server::Update WholeShard(std::size_t shard, std::span<const float> values) const;
  parameter_server::UpdatePtr Encoded(std::size_t shard);
  void Send(std::size_t shard, parameter_server::Entry entry);
  void Push(const std::vector<std::uint64_t>& shards);
  void SendTheRest();

  const Parts parts_;
  const Events events_;
  const parameter_server::Topology topology_;
  const std::int64_t portions_;
  workload::SparseTable* const sparse_;  // null: all parameters travel
  const std::vector<float> first_values_;
  // By shard: its part of the gradient is ready when so many of the flat buffer are.
  std::vector<std::uint64_t> ready_at_;
  ParameterServerClient pipe_;
  ParameterReader reader_;
  const std::unique_ptr<const compression::Codec> codec_;
  compression::Compressor compressor_;
  exchange::Volume volume_;
  exchange::Path path_;  // of the present view
  timeline::Recorder* recorder_ = nullptr;
  std::string_view transport_;  // of path_, for the recorder
  const ShardEncoder encode_;
  // The clock that a step belongs to, now.
  const std::function<parameter_server::Clock()> clock_of_step_;
  consistency::EagerSender send_;
  // How much a shard changes, and how large it is, where the sender goes by it.
  const std::function<std::pair<double, double>(std::size_t shard)> magnitudes_;

  parameter_server::Clock clock_ = 0;  // completed
  bool begun_ = false;                 // all shards have said where this client stands
  std::int64_t refused_ = 0;
  std::map<FlightNumber, Flight> flights_;
  std::map<std::pair<std::size_t, parameter_server::Sequence>, FlightNumber> sent_;

  // The present step.
  exchange::Step step_;
  std::span<const float> gradients_;
  FlightNumber flight_ = 0;
  parameter_server::Clock step_clock_ = 0;  // of all its pushes, whatever is heard meanwhile
  std::size_t next_ = 0;                    // the first shard that is not ready
  bool finite_ = true;
  absl::Status cancelled_;
};

}  // namespace starling::client
