// SPDX-License-Identifier: Apache-2.0
// The client that sums up the pushes of its group, as a pure machine: the inner node of a tree of
// aggregators (Rudra), or the first level of a two-level store (MXNet's KVStore), according to how
// groups are made (topology.h).
//
// Members give it their pushes of a shard; when all that are expected have come, or the shell's
// patience ends (Flush), one entry that stands for all goes to the shard's head, which takes it as
// a whole or tells every owner to push by itself (rule S12 of docs/design/parameter-server.md). It
// holds nothing that is not also its owner's: when it dies or sleeps, time is lost, never an
// update. Parts are added in the order of their clients, so that the sum's bits depend on who took
// part and not on who came first.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "trainer/parameter_server/messages.h"
#include "trainer/parameter_server/topology.h"

namespace starling::parameter_server {

// For the head of `shard`.
struct Gathered {
  std::size_t shard = 0;
  Entry entry;
};

// Thread-compatible.
class Aggregator {
 public:
  // A view: what was gathered is dropped, all of `group` are expected. `reductions`, one a shard:
  // of a shard without one nothing is gathered.
  void OnView(const Client& self, const std::vector<MemberId>& group,
              const std::vector<std::optional<Reduction>>& reductions);

  // A push of one of the group, this client's own too. What is complete now.
  std::vector<Gathered> Add(std::size_t shard, const Entry& entry);
  // Not expected until its next push.
  std::vector<Gathered> Leave(const MemberId& member, bool withdraws);
  // What is here, whoever is missing.
  std::vector<Gathered> Flush();

  // 0: nothing waits for others; else a number that changes whenever something was sent.
  std::uint64_t gathering() const;

 private:
  using Parts = std::map<Client, Entry>;

  bool Complete(const Parts& parts) const;
  bool Fits(std::size_t shard, const Parts& parts, const Entry& entry) const;
  void Take(std::size_t shard, std::vector<Gathered>& gathered);

  std::vector<std::optional<Reduction>> reductions_;
  Client self_;
  std::set<MemberId> group_;
  std::set<MemberId> expected_;
  std::vector<Parts> shards_;
  std::uint64_t taken_ = 0;
};

// The entry that stands for `parts`, not empty, as `self` sends it: their sum, or their mean by
// weight, encoded as the first of them is; nothing if some part is no range of rows,
// or the sum would have far more rows than its parts.
std::optional<Entry> Aggregate(const Client& self, const std::map<Client, Entry>& parts,
                               const Reduction& reduction);

}  // namespace starling::parameter_server
