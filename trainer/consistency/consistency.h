// SPDX-License-Identifier: Apache-2.0
// Who may read, and what may be applied when: the consistency models of parameter servers.
//
// A model is a pure state machine beside the parameters of one key shard. It is told of every view,
// of every push in the shard's order, and answers whether a read may be served. All replicas of a
// shard feed it the same sequence and so agree without a word; its state is part of the shard's one
// object (Save, Load). Nothing here knows of threads, sockets or time.
//
//   model              a read at clock c waits for            a push is applied
//   bulkSynchronous    all steps before step c                with all other portions of its step
//   backupWorkers      step >= c                              with the first n - backups; later
//   ones
//                                                             are refused by their step
//   asynchronous       nobody                                 at once
//   boundedDelay       all tasks but the last `delay`         at once
//   staleSynchronous   everyone's clock >= c - staleness      at once
//   eager...           the same                               at once; EagerSender sends early
//   softSync           nobody                                 as one of max(1, clients / n)
//   hogwild            nobody                                 at once; a push is what threads of a
//                                                             worker have changed in shared memory
//
// A bulk-synchronous step is one batch, cut into a fixed number of portions, and a lease names its
// portion: 2 + t * portions + j is portion j of step t. Who pushes it, and how many clients there
// are, does not matter: step t is applied when all of its portions are in, each once (the shard's
// ledger sees to that), in the order of leases. Clocks, rests and views hold nobody up there.
//
// An aggregate is the push of several clients as one. It is one contribution: of bulkSynchronous
// all of its parts are of one step, softSync counts its gradients and never divides it, backup
// workers take none (which push is late is asked of each), all others apply it at once.
//
// A clock is one round of a client: it reads at clock c (it has completed c clocks), computes, and
// pushes with clock c; the push that `completes` the clock makes it c + 1.
//
// A client that has no work says so (OnRest) and is not waited for until it has some (OnWake): the
// end of a job, and whatever else leaves some without work, must not stop those that have it.
//
// To add a model: a struct in Options, a class beside the others (one file a kind), a case in
// MakeConsistency, a row above, and its line in consistency_test.cc's property tests.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "trainer/consistency/clocks.h"
#include "trainer/consistency/lease_ledger.h"
#include "trainer/consistency/rules.h"

namespace starling::consistency {

using Version = std::int64_t;  // updates applied to a shard

// The job file's exchange.parameterServer.consistency, field by field.
struct BulkSynchronous {
  std::int64_t portions = 1;  // of a step
};
struct Asynchronous {};
struct BoundedDelay {
  std::int64_t delay = 0;
};
struct StaleSynchronous {
  std::int64_t staleness = 3;
};
enum class Priority { kFifo, kRandom, kRelativeMagnitude };
struct EagerStaleSynchronous {
  std::int64_t staleness = 3;
  double bytes_per_second = 5e6;
  Priority priority = Priority::kRelativeMagnitude;
};
struct BackupWorkers {
  std::int64_t backups = 1;
};
struct SoftSync {
  std::int64_t n = 1;
  bool staleness_aware = true;  // the learning rate is divided by the mean staleness
};
using Options = std::variant<BulkSynchronous, Asynchronous, BoundedDelay, StaleSynchronous,
                             EagerStaleSynchronous, BackupWorkers, SoftSync>;

// A push as the model sees it. `tag` is the caller's name for its bytes.
struct Contribution {
  Client client;
  Clock clock = 0;
  bool completes = true;
  Version read = 0;   // the shard's version that it was computed from
  double weight = 1;  // samples in it
  std::int64_t tag = 0;
  // Of an aggregate, which stands for several gradients: what the others were computed from.
  std::vector<Version> others{};
  // Those that it holds: so many from the first on. Of an aggregate, the lowest part's.
  Lease lease = 0;
  Lease leases = 1;
  std::int64_t gradients() const { return 1 + static_cast<std::int64_t>(others.size()); }
  bool operator==(const Contribution&) const = default;
};

// Contributions that become one update: sum(weight * gradient) / sum(weight), added in this order.
struct Batch {
  std::vector<Contribution> members;
  std::vector<Version> staleness;  // of each gradient: updates between its read and now
  double rate_factor = 1;          // the learning rate is multiplied by it
};

struct Verdict {
  bool accepted = true;  // false: too late, never applied; the client takes it back
  std::vector<Batch> ready;
};

// How stale the applied updates were. Measured, never assumed. Thread-compatible.
class Staleness {
 public:
  void Add(Version staleness) { ++counts_[staleness]; }
  const std::map<Version, std::int64_t>& counts() const { return counts_; }
  std::int64_t total() const;
  double Mean() const;
  Version Maximum() const { return counts_.empty() ? 0 : counts_.rbegin()->first; }

 private:
  std::map<Version, std::int64_t> counts_;
};

// Thread-compatible.
class Consistency {
 public:
  explicit Consistency(Rules rules) : rules_(rules), clocks_(rules) {}
  virtual ~Consistency() = default;

  // A new view's clients, after the shard's sync round. What is ready now that some have left.
  std::vector<Batch> OnView(const std::vector<Client>& clients);
  // The next push in the shard's order.
  Verdict OnPush(const Contribution& contribution);
  // Pushes of several clients as one, which holds all of their gradients and has one tag: their
  // clocks go on together. Only what Combines.
  Verdict OnAggregate(std::span<const Contribution> parts);
  // Whether these may be taken as one.
  virtual bool Combines(std::span<const Contribution> /*parts*/) const { return true; }
  // `client` starts at `clock`, which is the maximum of what it was given by all shards: until its
  // first push arrives nobody needs to wait for less.
  std::vector<Batch> OnStart(const Client& client, Clock clock);
  // The push of `clock` held nothing that is not applied already: only the clock goes on.
  std::vector<Batch> OnSkip(const Client& client, Clock clock);
  // `client` has nothing to do for a while: nobody waits for it, and what waited for its share goes
  // without. It may still read.
  std::vector<Batch> OnRest(const Client& client);
  // It goes on; where, StartOf says.
  std::vector<Batch> OnWake(const Client& client);
  // Whether a read of `client`, which has completed `clock` clocks, may be served now. (That its
  // own pushes are in, the shard sees to.)
  virtual bool MayRead(const Client& client, Clock clock) const = 0;
  // Where a client of the view starts in this shard; over several shards it takes the maximum.
  virtual Clock StartOf(const Client& client) const;

  // What was accepted and is not applied yet, in the shard's order.
  const std::vector<Contribution>& held() const { return held_; }
  Version version() const { return version_; }
  const Clocks& clocks() const { return clocks_; }
  const Staleness& staleness() const { return staleness_; }

  void Save(bytes::Writer& out) const;
  void Load(bytes::Reader& in);

 protected:
  virtual bool Accepts(const Contribution& contribution) const;
  virtual void Taken(const Contribution& /*part*/) {}
  // Moves what is ready out of held_, by Apply.
  virtual void Gather(std::vector<Batch>& ready) = 0;
  virtual void ViewChanged() {}
  virtual void Completed(const Client& /*client*/) {}
  virtual void Skipped(Clock /*clock*/) {}
  virtual void Rested(const Client& /*client*/) {}
  virtual void Woken(const Client& /*client*/) {}
  virtual void Started(Clock /*clock*/) {}
  virtual void SaveMore(bytes::Writer& /*out*/) const {}
  virtual void LoadMore(bytes::Reader& /*in*/) {}

  // Takes the first `count` of held_ as one update.
  Batch Apply(std::size_t count);

  const Rules rules_;
  Clocks clocks_;
  std::vector<Contribution> held_;
  Version version_ = 0;

 private:
  Staleness staleness_;
};

std::unique_ptr<Consistency> MakeConsistency(const Options& options, Rules rules = {});

// The models, one file a kind.
std::unique_ptr<Consistency> MakeBulkSynchronous(const BulkSynchronous& options, Rules rules);
std::unique_ptr<Consistency> MakeBackupWorkers(const BackupWorkers& options, Rules rules);
std::unique_ptr<Consistency> MakeStaleSynchronous(std::optional<std::int64_t> staleness,
                                                  Rules rules);
std::unique_ptr<Consistency> MakeBoundedDelay(const BoundedDelay& options, Rules rules);
std::unique_ptr<Consistency> MakeSoftSync(const SoftSync& options, Rules rules);

}  // namespace starling::consistency
