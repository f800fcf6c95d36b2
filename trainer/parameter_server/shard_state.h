// SPDX-License-Identifier: Apache-2.0
// The one object that a shard's servers replicate: parameters and the rule's state, each client's
// last sequence number, the consistency model with its clocks and what it holds back, and the
// ledger of data leases. They change together, are copied together and are saved together: a
// snapshot at any moment restores to every push exactly once (rule S6).
//
// It is a deterministic state machine: servers that append the same entries after the same views
// hold the same bytes. What is pushed is kept as it was received, and decoded once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/consistency/consistency.h"
#include "trainer/consistency/lease_ledger.h"
#include "trainer/parameter_server/rules.h"
#include "trainer/parameter_server/table.h"

namespace starling::parameter_server {

using consistency::Clock;
using consistency::Lease;
using consistency::LeaseLedger;
using consistency::Version;
using Sequence = std::int64_t;  // a client's pushes to one shard, from 1

enum class EntryKind : std::uint8_t {
  kPush = 0,
  kStart = 1,      // the client starts at `clock`
  kRemember = 2,   // the client reads what `update` selects: the rule wants to know what it was
  kAssign = 3,     // the rows get the values of `update`: at once, and no clock moves
  kRest = 4,       // the client has no work: nobody waits for it
  kWake = 5,       // it has some again: the acknowledgement says at which clock it goes on
  kAggregate = 6,  // the pushes of several clients as one (rule S12)
};

inline constexpr std::uint8_t kEntryKinds = 7;

// One of the pushes that an aggregate stands for.
struct Constituent {
  Client client;
  Sequence sequence = 0;
  Lease lease = 0;
  Lease leases = 1;
  Clock clock = 0;
  bool completes = true;
  Version read = 0;
  double weight = 1;
};

// One line of a shard's log, as the client made it.
struct Entry {
  EntryKind kind = EntryKind::kPush;
  Client client;
  Sequence sequence = 0;
  Lease lease = 0;
  Lease leases = 1;  // it holds so many from `lease` on: portions of one step
  Clock clock = 0;
  bool completes = true;  // the last push of that clock
  Version read = 0;       // the version that it was computed from
  double weight = 1;      // samples in it
  UpdatePtr update;
  // Of an aggregate, by client; `client` is whoever summed them up, the other fields say nothing.
  std::vector<Constituent> parts{};
};

enum class Outcome : std::uint8_t {
  kTaken = 0,    // applied, or held until its batch is complete
  kSkipped = 1,  // its leases were in the ledger: only the clock went on
  kRefused = 2,  // too late for its step, or only some of its leases were in the ledger: the client
                 // takes it back
};

using Outcomes = std::map<Sequence, Outcome>;

// Where a push stands before it is appended.
enum class Standing {
  kNext,
  kOld,       // it has been appended
  kGap,       // an earlier one has not come yet
  kStranger,  // of no client of this view
};

struct ShardOptions {
  std::shared_ptr<const TableSpec> table;
  RowRange range;
  consistency::Options consistency;
  Rules rules;
};

// Thread-compatible.
class ShardState {
 public:
  explicit ShardState(const ShardOptions& options);

  // The clients of the view whose sync round has just ended; on the base, before anything is
  // appended in that view. Who is not among them is forgotten, with what it was remembered for.
  void OnView(const std::vector<Client>& clients);

  Standing StandingOf(const Client& client, Sequence sequence) const;
  // The entry's update, decoded; of an entry that has none, nothing. INVALID_ARGUMENT when it is no
  // update of this shard. The head asks before it appends, so that no replica ever holds what
  // cannot be applied.
  absl::StatusOr<DecodedUpdate> Check(const Entry& entry) const;
  // Whether an aggregate, whose update is good, may be appended (rule S12): each of its parts is
  // the next of its client, no lease of it is in the ledger, the model and the update rule take
  // them as one.
  bool TakesWhole(const Entry& aggregate) const;
  // The next entry (StandingOf: kNext; of an aggregate TakesWhole), and what Check has made of it.
  Outcome Append(const Entry& entry, DecodedUpdate update);
  // The same of an entry that this process has made itself, for tests and studies: an update that
  // Check refuses ends the program.
  Outcome Append(const Entry& entry);

  // Whether the last pushes up to `sequence` are in and the model lets the client read at `clock`;
  // at consistency::kAtRest, whether every client rests.
  bool MayRead(const Client& client, Clock clock, Sequence sequence) const;
  absl::StatusOr<std::string> Read(const Selection& selection) const;
  absl::StatusOr<std::string> ReadRemembered(const Client& client,
                                             const Selection& selection) const;

  std::int64_t index() const { return index_; }  // entries appended, ever
  Sequence LastOf(const Client& client) const;
  // Of the client's recent pushes those that were not taken, for whoever asks again.
  Outcomes NotTakenOf(const Client& client) const;
  // Where the client goes on, when it has just come or woken.
  Clock StartOf(const Client& client) const { return model_->StartOf(client); }
  const consistency::Consistency& model() const { return *model_; }
  const LeaseLedger& ledger() const { return ledger_; }
  // The updates that are taken and not applied yet, by the index at which they came.
  const std::map<std::int64_t, DecodedUpdate>& held() const { return held_; }
  const RowRange& range() const { return range_; }
  std::uint64_t bytes() const { return store_->bytes(); }

  // A safetensors file: the numbers by name, all else as one tensor of bytes, "object".
  std::string Save() const;
  absl::Status Load(std::string_view snapshot);

 private:
  struct Record {
    Sequence last = 0;
    Outcomes not_taken;
  };

  Outcome AppendPush(const Entry& entry, DecodedUpdate update);
  Outcome Assign(const Entry& entry, const Update& update);
  Outcome AppendAggregate(const Entry& aggregate, DecodedUpdate update);
  void ApplyAll(const std::vector<consistency::Batch>& batches);
  std::string SaveObject() const;
  absl::Status LoadObject(std::string_view object);

  ShardOptions options_;
  const RowRange range_;
  std::unique_ptr<ShardStore> store_;
  std::unique_ptr<consistency::Consistency> model_;
  std::map<Client, Record> clients_;
  LeaseLedger ledger_;
  std::map<std::int64_t, DecodedUpdate> held_;  // by the index they came at
  std::int64_t index_ = 0;
};

}  // namespace starling::parameter_server
