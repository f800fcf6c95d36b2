// SPDX-License-Identifier: Apache-2.0
#include "tests/techniques/rounds.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "common/status/check.h"
#include "tests/techniques/cluster.h"
#include "trainer/data/batches.h"

namespace starling::techniques {
namespace {

using parameter_server::Entry;
using parameter_server::ShardState;

constexpr parameter_server::Lease kPortions = 16;  // of every step: no more workers than that

// Pushes of one step, in the order of `arrival`.
void Step(const Rounds& rounds, std::int64_t step, const std::vector<Client>& clients,
          const std::vector<int>& shares, std::map<Client, std::int64_t>& sequences,
          std::mt19937_64& random, ShardState& shard) {
  // The step is cut in as many portions, whoever has how many samples: the first has its own and
  // those that nobody else has.
  const auto spare = static_cast<parameter_server::Lease>(kPortions - clients.size());
  const std::size_t parameters = rounds.problem->parameters();
  const data::Batches batches(rounds.problem->samples(),
                              std::accumulate(shares.begin(), shares.end(), std::int64_t{0}),
                              rounds.seed);
  // Not the epoch's last batch, which is short: its shares' means would not be exact.
  const std::vector<std::int64_t> ids = batches.SampleIds(step % (batches.StepsPerEpoch() - 1) + 1);
  const std::vector<float> values = ValuesOf(shard, parameters);
  std::vector<std::size_t> arrival(clients.size());
  std::iota(arrival.begin(), arrival.end(), std::size_t{0});
  std::shuffle(arrival.begin(), arrival.end(), random);
  const Clock clock = shard.StartOf(clients.front());
  for (const std::size_t i : arrival) {
    STARLING_CHECK(shard.MayRead(clients[i], clock, sequences[clients[i]]),
                   "the step before is complete");
    const auto before = static_cast<std::size_t>(
        std::accumulate(shares.begin(), shares.begin() + static_cast<std::ptrdiff_t>(i), 0));
    const auto count =
        std::min(static_cast<std::size_t>(shares[i]), ids.size() - std::min(ids.size(), before));
    std::vector<float> gradient(parameters);
    if (count > 0) {
      rounds.problem->Gradient(values, std::span(ids).subspan(before, count), gradient);
    }
    Entry entry;
    entry.client = clients[i];
    entry.sequence = ++sequences[clients[i]];
    entry.clock = clock;
    entry.lease = consistency::kFirstPortion +
                  static_cast<parameter_server::Lease>(step) * kPortions + (i == 0 ? 0 : i + spare);
    entry.leases = i == 0 ? 1 + spare : 1;
    entry.read = shard.model().version();
    entry.weight = rounds.weighted ? static_cast<double>(count) : 1;
    entry.update = Encoded(gradient);
    (void)shard.Append(entry);
  }
}

}  // namespace

std::vector<float> Synchronous(const Rounds& rounds) {
  TableOptions table;
  table.parameters = rounds.problem->parameters();
  table.rule = Sgd();
  table.rate = [&rounds](std::int64_t) { return rounds.rate; };
  table.initial_scale = rounds.initial_scale;
  table.seed = rounds.seed;
  table.model = consistency::BulkSynchronous{kPortions};
  ShardState shard(ShardOf(table));
  AssignFirst(*rounds.problem, rounds.seed, shard);
  std::mt19937_64 random(rounds.arrival_seed);
  std::map<Client, std::int64_t> sequences;
  std::vector<Client> clients;
  for (std::int64_t step = 0; step < rounds.steps; ++step) {
    const std::vector<int> shares = rounds.shares(step);
    if (shares.size() != clients.size()) {
      clients.clear();
      for (std::size_t i = 0; i < shares.size(); ++i) {
        clients.push_back(ClientOf(static_cast<int>(i)));
      }
      // Who left and comes back is another client to the shard: its numbers start again.
      std::erase_if(sequences, [&](const auto& one) {
        return std::find(clients.begin(), clients.end(), one.first) == clients.end();
      });
      shard.OnView(clients);
    }
    Step(rounds, step, clients, shares, sequences, random, shard);
  }
  return ValuesOf(shard, table.parameters);
}

}  // namespace starling::techniques
