// SPDX-License-Identifier: Apache-2.0
// Which data leases are open, who holds which, which are done (rule S11 of
// docs/design/parameter-server.md). The coordinator's copy is soft: what is done stands in the
// shards' ledgers, who holds what is known to the clients, and a lease that is given out twice is
// applied once. So a successor needs only to hear the servers before it gives out anything.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "trainer/consistency/lease_ledger.h"
#include "trainer/parameter_server/shard_placement.h"

namespace starling::parameter_server {

using consistency::Lease;
using consistency::LeaseLedger;

// Thread-compatible.
class LeaseTable {
 public:
  // Leases 1 to `leases` of `shards` shards.
  LeaseTable(Lease leases, std::size_t shards) : leases_(leases), ledgers_(shards) {}

  // A view was published, or adopted from a predecessor: leases of clients that are not in it are
  // free. What was done before a restore is not known to be done any more.
  void OnView(const membership::View& view);
  // The ledger of a shard, of the open tail of `view`.
  void OnLedger(ViewNumber view, std::size_t shard, const LeaseLedger& ledger);
  // A client of the newest view says that it holds a lease, as its coordinator's predecessor knew.
  void OnHeld(Lease lease, const Client& client);
  // All shards have acknowledged it to this client. Only clients of the newest view are believed:
  // another may not have heard yet that a shard was restored without what it was told there.
  void OnDone(Lease lease, const Client& client);

  // A client of the newest view gives a lease back: all shards have answered its push, and one has
  // refused it. From now on it is free for the others. False: it was not this client's to give.
  bool OnReturned(Lease lease, const Client& client, absl::Time now);
  // What was returned before `then` may be given to whoever returned it, too.
  void ForgetReturned(absl::Time then);

  // From now on leases above `leases` are given to nobody.
  void Limit(Lease leases) { leases_ = leases; }
  // Those above `leases` are not to be done by who holds them. Whether anybody does.
  bool Recall(Lease leases) {
    return std::erase_if(holders_, [&](const auto& one) { return one.first > leases; }) > 0;
  }
  // Up to `most` leases for a client of the newest view, the lowest first, but none that it has
  // returned. None before the shards' ledgers are known.
  std::vector<Lease> Take(const Client& client, std::size_t most);
  // Every free lease below `end` to one of `clients`, all of the newest view: to the one whose rank
  // it says, or, where that one has returned it, to the next. How many were given out.
  std::size_t Deal(Lease end, const std::vector<Client>& clients,
                   const std::function<std::size_t(Lease)>& rank);
  bool Done(Lease lease) const { return done_.Has(lease); }
  bool AllDone() const;
  // The lowest lease that is not done: all before it are.
  Lease FirstOpen() const { return done_.NotIn(1); }
  // How many are done, and how many are given out and not done.
  std::size_t done() const;
  std::size_t outstanding() const { return holders_.size(); }
  // Of those; 0: none is.
  Lease HighestHeld() const { return holders_.empty() ? 0 : holders_.rbegin()->first; }
  // What this client is to do, the lowest first.
  std::vector<Lease> HeldBy(const Client& client) const;
  // How many a client of the newest view was given that are done.
  std::int64_t FinishedBy(const Client& client) const;
  // Whether the ledgers of all shards are known, of this view's history.
  bool Informed() const;

 private:
  void Finish(Lease lease);
  bool ReturnedBy(Lease lease, const Client& client) const;

  Lease leases_;
  membership::View view_;
  ViewNumber since_ = 0;  // ledgers of this view and later ones count
  LeaseLedger done_;
  std::map<Lease, Client> holders_;
  std::map<Client, std::int64_t> finished_;
  struct Returned {
    Client by;
    absl::Time at;
  };
  std::map<Lease, Returned> returned_;  // and not done
  struct Known {
    ViewNumber view = 0;
    LeaseLedger ledger;
  };
  std::vector<Known> ledgers_;
};

}  // namespace starling::parameter_server
