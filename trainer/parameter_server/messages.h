// SPDX-License-Identifier: Apache-2.0
// What the servers of a shard and its clients tell one another. Every message names its view; on
// the data plane a connection belongs to one, so messages of a later view are parked until the
// receiver installs it and those of an earlier one are refused before they are read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "trainer/membership/types.h"
#include "trainer/parameter_server/shard_state.h"

namespace starling::parameter_server {

using membership::MemberId;
using membership::StateId;
using membership::ViewNumber;

// Server to server. ------------------------------------------------------------------------------

// The sync round: what I hold, with the log's index for the step. `cache` is a copy that was
// fetched ahead: it shortens a copy, and is neither a state nor a witness.
struct SyncMessage {
  ViewNumber view = 0;
  membership::SyncId id;
  std::optional<StateId> cache;
};
// What changed a shard, and its state id afterwards: an entry, or a view's clients.
struct LogRecord {
  StateId after;
  std::optional<Entry> entry;
  std::vector<Client> clients;
};
struct CopyRequest {
  ViewNumber view = 0;
  MemberId from;
};
// The base, before anything of this view: whole, or what has come since `since`.
struct CopyReply {
  ViewNumber view = 0;
  StateId state;
  std::shared_ptr<const std::string> snapshot;
  StateId since;
  std::vector<LogRecord> records;
};
// A server that is not in the chain fills its cache.
struct PrefetchRequest {
  ViewNumber view = 0;
  MemberId from;
};
struct PrefetchReply {
  ViewNumber view = 0;
  StateId state;
  std::shared_ptr<const std::string> snapshot;
};
struct Synced {  // to the tail
  ViewNumber view = 0;
  MemberId from;
};
// Down the chain, in order. `old`: it has been appended before; it only asks for its answer.
struct Forward {
  ViewNumber view = 0;
  std::int64_t index = 0;  // that it got
  bool old = false;
  Entry entry;
};

// Client to server. ------------------------------------------------------------------------------

struct Push {  // to the head, or to the client that sums up (aggregator.h)
  ViewNumber view = 0;
  Entry entry;
  std::uint64_t list = 0;  // its rows' name (filters.h); 0: none
};
struct Read {  // to the tail
  ViewNumber view = 0;
  Client client;
  std::int64_t request = 0;
  Clock clock = 0;        // clocks that the client has completed
  Sequence sequence = 0;  // its last push: it reads what it wrote
  bool remembered = false;
  std::uint64_t first = 0;
  std::uint64_t rows = 0;
  std::vector<std::uint64_t> keys;
  std::uint64_t list = 0;  // its keys' name, as in a push
  // By which the values of the reply are encoded.
  compression::CodecNumber codec = compression::kIdentity;
};
struct Hello {  // to the tail, first thing in a view
  ViewNumber view = 0;
  Client client;
};

// Client to client. ------------------------------------------------------------------------------

// To the client that sums up: do not wait for me until I push again.
struct Absent {
  ViewNumber view = 0;
  Client client;
  bool withdraws = false;  // what I gave you, I push myself
};

// Server to client. ------------------------------------------------------------------------------

struct Individually {  // an aggregate was not taken: push this by itself
  ViewNumber view = 0;
  Client client;
  Sequence sequence = 0;
};

// The server does not know this list of rows: the push, or the read, is to be sent whole.
struct KeysUnknown {
  ViewNumber view = 0;
  Client client;
  std::uint64_t list = 0;
  Sequence sequence = 0;     // of the push; 0: it was a read
  std::int64_t request = 0;  // of the read
};

struct Acknowledgement {
  ViewNumber view = 0;
  Client client;
  Sequence sequence = 0;
  Outcome outcome = Outcome::kTaken;
  Clock start = 0;  // of the running step, for whoever was refused
};
struct Rejection {  // the push was malformed: nothing was appended, and nothing will be
  ViewNumber view = 0;
  Client client;
  Sequence sequence = 0;
  absl::Status why;
};
struct ReadReply {
  ViewNumber view = 0;
  Client client;
  std::int64_t request = 0;
  Version version = 0;
  absl::Status status;
  std::shared_ptr<const std::string> values;
};
struct Welcome {
  ViewNumber view = 0;
  Client client;
  Sequence last = 0;   // all of the client's pushes up to this one are in
  Outcomes not_taken;  // of those, as far back as the client may ask; all others were taken
  Clock start = 0;     // where the client was admitted
};

using Message = std::variant<SyncMessage, CopyRequest, CopyReply, PrefetchRequest, PrefetchReply,
                             Synced, Forward, Push, Read, Hello, Acknowledgement, Rejection,
                             ReadReply, Welcome, Absent, Individually, KeysUnknown>;

// Who a message says it is from; nobody for what only answers.
inline const MemberId* SenderOf(const SyncMessage& message) { return &message.id.member; }
inline const MemberId* SenderOf(const CopyRequest& request) { return &request.from; }
inline const MemberId* SenderOf(const PrefetchRequest& request) { return &request.from; }
inline const MemberId* SenderOf(const Synced& synced) { return &synced.from; }
inline const MemberId* SenderOf(const Push& push) { return &push.entry.client.id; }
inline const MemberId* SenderOf(const Read& read) { return &read.client.id; }
inline const MemberId* SenderOf(const Hello& hello) { return &hello.client.id; }
inline const MemberId* SenderOf(const Absent& absent) { return &absent.client.id; }
template <typename Answer>
const MemberId* SenderOf(const Answer& /*answer*/) {
  return nullptr;
}

struct Send {
  MemberId to;
  Message message;
};
using Sends = std::vector<Send>;

// The view that a message belongs to.
inline ViewNumber ViewOf(const Message& message) {
  return std::visit([](const auto& one) { return one.view; }, message);
}

}  // namespace starling::parameter_server
