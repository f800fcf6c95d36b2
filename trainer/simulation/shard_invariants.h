// SPDX-License-Identifier: Apache-2.0
// What must hold after every event of a simulated history of parameter servers: the invariants of
// docs/design/parameter-server.md, told of what happens. Work comes in units; each adds 1 to its
// own element of every shard's table, so that a shard's contents say what it has applied, and how
// often.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trainer/parameter_server/chain_server.h"
#include "trainer/simulation/invariants.h"

namespace starling::simulation {

// One unit's push to one shard, as its client made it.
struct UnitPush {
  parameter_server::Client client;
  parameter_server::Clock clock = 0;
  std::size_t unit = 0;
};

// Thread-compatible.
class ShardInvariants : public Invariants {
 public:
  explicit ShardInvariants(std::size_t shards) : shards_(shards) {}

  // 1: one content per state id. Also: no unit is in a state twice.
  void OnState(std::size_t shard, const parameter_server::StateId& id,
               const parameter_server::ShardState& state);
  // 6: a server has synced `view` and starts from this state.
  void OnBase(std::size_t shard, parameter_server::ViewNumber view,
              const parameter_server::ShardState& state, bool restored);
  // 6: a client believes that the unit is in.
  void OnAcknowledged(std::size_t shard, parameter_server::ViewNumber view, std::size_t unit);
  // 7: a client was given this to read at `clock`, where all updates below `floor` are promised.
  void OnRead(std::size_t shard, const parameter_server::ShardView& view,
              parameter_server::Clock floor, const std::vector<float>& values,
              const std::vector<UnitPush>& pushes);
  // 7: what was read for step `step` holds all steps before, and of no step a part: unit u is lease
  // u + 1.
  void OnReadInStep(std::size_t shard, std::int64_t portions, parameter_server::Clock step,
                    std::size_t leases, const std::vector<float>& values);
  // 7: what was read for a step that the workers make, after `step` of them: no part of any step,
  // and just as many as the server says, so that who reads a step too many knows it. Without
  // `several`, one too many at most.
  void OnReadForStep(std::size_t shard, std::int64_t portions, parameter_server::Clock step,
                     bool several, std::size_t leases, parameter_server::Version version,
                     const std::vector<float>& values);
  // 9: somebody has applied this step of `view` to what workers hold: every shard has it.
  void OnStepApplied(std::size_t shard, parameter_server::ViewNumber view, std::int64_t portions,
                     parameter_server::Clock step);
  // 7: none comes later. `view` is the server's.
  void OnAppended(std::size_t shard, parameter_server::ViewNumber view,
                  const parameter_server::Entry& entry, parameter_server::Outcome outcome);
  // 9: a shard takes no portion of a step before it has the first values, which would overwrite
  // what the portion has added. `state` is the shard's after the entry.
  void OnAppendedInStep(std::size_t shard, const parameter_server::ShardState& state,
                        const parameter_server::Entry& entry, parameter_server::Outcome outcome);
  // The end: every unit of a lease is in every shard once.
  void OnEnd(std::size_t shard, const std::vector<float>& values, std::size_t leases);

  // What the state has taken: applied, or held until its batch is complete.
  static std::vector<float> ContentOf(const parameter_server::ShardState& state);

 private:
  struct Shard {
    std::map<parameter_server::StateId, std::uint64_t> states;
    // Units that somebody was told are in, and the lowest view in which.
    std::map<std::size_t, parameter_server::ViewNumber> acknowledged;
    // What reads were promised, by the view in which: none below comes later in it or after it.
    std::map<parameter_server::ViewNumber, parameter_server::Clock> floors;
    // The last view that restored it: what anyone still hears from before is void.
    parameter_server::ViewNumber restored = 0;
  };
  std::vector<Shard> shards_;
};

}  // namespace starling::simulation
