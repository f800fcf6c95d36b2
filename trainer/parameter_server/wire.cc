// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/wire.h"

#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/bytes/encoding.h"

namespace starling::parameter_server {
namespace {

using bytes::Reader;
using bytes::Writer;
using Body = std::shared_ptr<const std::string>;

void Put(const MemberId& id, Writer& out) {
  out.PutText(id.pod_uid);
  out.Put(id.start);
}
MemberId GetMember(Reader& in) {
  MemberId id;
  id.pod_uid = std::string(in.GetText());
  id.start = in.Get<std::int64_t>();
  return id;
}

void Put(const StateId& id, Writer& out) {
  out.Put(id.view);
  out.Put(id.step);
}
StateId GetState(Reader& in) {
  const auto view = in.Get<ViewNumber>();
  return {view, in.Get<std::int64_t>()};
}

void Put(const absl::Status& status, Writer& out) {
  out.Put(static_cast<std::int32_t>(status.code()));
  out.PutText(std::string_view(status.message().data(), status.message().size()));
}
absl::Status GetStatus(Reader& in) {
  const auto code = static_cast<absl::StatusCode>(in.Get<std::int32_t>());
  const std::string_view text = in.GetText();
  return absl::Status(code, absl::string_view(text.data(), text.size()));
}

// What an entry says of its own push, and an aggregate of each of its parts.
template <class PushOrPart>
void PutShare(const PushOrPart& share, Writer& out) {
  Encode(share.client, out);
  out.Put(share.sequence);
  out.Put(share.lease);
  out.Put(static_cast<std::uint16_t>(share.leases));
  out.Put(share.clock);
  out.Put(static_cast<std::uint8_t>(share.completes));
  out.Put(share.read);
  out.Put(share.weight);
}
template <class PushOrPart>
void GetShare(Reader& in, PushOrPart& share) {
  share.client = consistency::DecodeClient(in);
  share.sequence = in.Get<Sequence>();
  share.lease = in.Get<Lease>();
  share.leases = in.Get<std::uint16_t>();
  share.clock = in.Get<Clock>();
  share.completes = in.Get<std::uint8_t>() != 0;
  share.read = in.Get<Version>();
  share.weight = in.Get<double>();
}

void Put(const Entry& entry, Writer& out) {
  out.Put(static_cast<std::uint8_t>(entry.kind));
  PutShare(entry, out);
  out.Put(static_cast<std::uint8_t>(entry.update != nullptr));
  if (entry.update) Put(*entry.update, out);
  if (entry.kind != EntryKind::kAggregate) return;
  out.Put(static_cast<std::uint64_t>(entry.parts.size()));
  for (const Constituent& part : entry.parts) PutShare(part, out);
}
Body BodyOf(const Entry& entry) { return entry.update ? entry.update->body : nullptr; }
Entry GetEntry(Reader& in, Body body) {
  Entry entry;
  entry.kind = static_cast<EntryKind>(in.Get<std::uint8_t>() % kEntryKinds);
  GetShare(in, entry);
  if (in.Get<std::uint8_t>() != 0) entry.update = GetUpdate(in, std::move(body));
  if (entry.kind != EntryKind::kAggregate) return entry;
  for (std::uint64_t left = in.GetCount(67); left > 0; --left) {
    GetShare(in, entry.parts.emplace_back());
  }
  return entry;
}

void Put(const LogRecord& record, Writer& out) {
  Put(record.after, out);
  out.Put(static_cast<std::uint8_t>(record.entry.has_value()));
  if (record.entry) {
    const Body body = BodyOf(*record.entry);
    out.PutText(body ? std::string_view(*body) : std::string_view());
    Put(*record.entry, out);
    return;
  }
  out.Put(static_cast<std::uint64_t>(record.clients.size()));
  for (const Client& client : record.clients) Encode(client, out);
}
LogRecord GetRecord(Reader& in) {
  LogRecord record;
  record.after = GetState(in);
  if (in.Get<std::uint8_t>() != 0) {
    auto body = std::make_shared<const std::string>(in.GetText());
    record.entry = GetEntry(in, std::move(body));
    return record;
  }
  for (std::uint64_t left = in.GetCount(24); left > 0; --left) {
    record.clients.push_back(consistency::DecodeClient(in));
  }
  return record;
}

// The head of each message; returns the body.
Body EncodeHead(const SyncMessage& message, Writer& out) {
  const membership::SyncId& sync_id = message.id;
  out.Put(message.view);
  out.Put(static_cast<std::uint8_t>(message.cache.has_value()));
  Put(message.cache.value_or(StateId()), out);
  Put(sync_id.member, out);
  out.Put(static_cast<std::uint8_t>(sync_id.state.has_value()));
  Put(sync_id.state.value_or(StateId()), out);
  out.Put(static_cast<std::uint8_t>(sync_id.checkpoint.has_value()));
  Put(sync_id.checkpoint ? sync_id.checkpoint->name : StateId(), out);
  return nullptr;
}
Body EncodeHead(const CopyRequest& request, Writer& out) {
  out.Put(request.view);
  Put(request.from, out);
  return nullptr;
}
Body EncodeHead(const CopyReply& reply, Writer& out) {
  out.Put(reply.view);
  Put(reply.state, out);
  out.Put(static_cast<std::uint8_t>(reply.snapshot != nullptr));
  Put(reply.since, out);
  out.Put(static_cast<std::uint64_t>(reply.records.size()));
  for (const LogRecord& record : reply.records) Put(record, out);
  return reply.snapshot;
}
Body EncodeHead(const PrefetchRequest& request, Writer& out) {
  out.Put(request.view);
  Put(request.from, out);
  return nullptr;
}
Body EncodeHead(const PrefetchReply& reply, Writer& out) {
  out.Put(reply.view);
  Put(reply.state, out);
  return reply.snapshot;
}
Body EncodeHead(const Synced& synced, Writer& out) {
  out.Put(synced.view);
  Put(synced.from, out);
  return nullptr;
}
Body EncodeHead(const Forward& forward, Writer& out) {
  out.Put(forward.view);
  out.Put(forward.index);
  out.Put(static_cast<std::uint8_t>(forward.old));
  Put(forward.entry, out);
  return BodyOf(forward.entry);
}
Body EncodeHead(const Push& push, Writer& out) {
  out.Put(push.view);
  Put(push.entry, out);
  out.Put(push.list);
  return BodyOf(push.entry);
}
Body EncodeHead(const Read& read, Writer& out) {
  out.Put(read.view);
  Encode(read.client, out);
  out.Put(read.request);
  out.Put(read.clock);
  out.Put(read.sequence);
  out.Put(static_cast<std::uint8_t>(read.remembered));
  out.Put(read.first);
  out.Put(read.rows);
  out.PutSpan(std::span<const std::uint64_t>(read.keys));
  out.Put(read.list);
  out.Put(read.codec);
  return nullptr;
}
Body EncodeHead(const Hello& hello, Writer& out) {
  out.Put(hello.view);
  Encode(hello.client, out);
  return nullptr;
}
Body EncodeHead(const Acknowledgement& acknowledgement, Writer& out) {
  out.Put(acknowledgement.view);
  Encode(acknowledgement.client, out);
  out.Put(acknowledgement.sequence);
  out.Put(static_cast<std::uint8_t>(acknowledgement.outcome));
  out.Put(acknowledgement.start);
  return nullptr;
}
Body EncodeHead(const Rejection& rejection, Writer& out) {
  out.Put(rejection.view);
  Encode(rejection.client, out);
  out.Put(rejection.sequence);
  Put(rejection.why, out);
  return nullptr;
}
Body EncodeHead(const ReadReply& reply, Writer& out) {
  out.Put(reply.view);
  Encode(reply.client, out);
  out.Put(reply.request);
  out.Put(reply.version);
  Put(reply.status, out);
  return reply.values;
}
Body EncodeHead(const Welcome& welcome, Writer& out) {
  out.Put(welcome.view);
  Encode(welcome.client, out);
  out.Put(welcome.last);
  out.Put(welcome.start);
  out.Put(static_cast<std::uint64_t>(welcome.not_taken.size()));
  for (const auto& [sequence, outcome] : welcome.not_taken) {
    out.Put(sequence);
    out.Put(static_cast<std::uint8_t>(outcome));
  }
  return nullptr;
}
Body EncodeHead(const Absent& absent, Writer& out) {
  out.Put(absent.view);
  Encode(absent.client, out);
  out.Put(static_cast<std::uint8_t>(absent.withdraws));
  return nullptr;
}
Body EncodeHead(const Individually& individually, Writer& out) {
  out.Put(individually.view);
  Encode(individually.client, out);
  out.Put(individually.sequence);
  return nullptr;
}
Body EncodeHead(const KeysUnknown& unknown, Writer& out) {
  out.Put(unknown.view);
  Encode(unknown.client, out);
  out.Put(unknown.list);
  out.Put(unknown.sequence);
  out.Put(unknown.request);
  return nullptr;
}

void DecodeHead(Reader& in, const Body& /*body*/, SyncMessage& message) {
  membership::SyncId& sync_id = message.id;
  message.view = sync_id.view = in.Get<ViewNumber>();
  const bool has_cache = in.Get<std::uint8_t>() != 0;
  const StateId cache = GetState(in);
  if (has_cache) message.cache = cache;
  sync_id.member = GetMember(in);
  const bool has_state = in.Get<std::uint8_t>() != 0;
  const StateId state = GetState(in);
  if (has_state) sync_id.state = state;
  const bool has_checkpoint = in.Get<std::uint8_t>() != 0;
  const StateId name = GetState(in);
  if (has_checkpoint) sync_id.checkpoint = {name, {}};
}
void DecodeHead(Reader& in, const Body& /*body*/, CopyRequest& request) {
  request.view = in.Get<ViewNumber>();
  request.from = GetMember(in);
}
void DecodeHead(Reader& in, const Body& body, CopyReply& reply) {
  reply.view = in.Get<ViewNumber>();
  reply.state = GetState(in);
  if (in.Get<std::uint8_t>() != 0) {
    reply.snapshot = body ? body : std::make_shared<const std::string>();
  }
  reply.since = GetState(in);
  for (std::uint64_t left = in.GetCount(25); left > 0; --left) {
    reply.records.push_back(GetRecord(in));
  }
}
void DecodeHead(Reader& in, const Body& /*body*/, PrefetchRequest& request) {
  request.view = in.Get<ViewNumber>();
  request.from = GetMember(in);
}
void DecodeHead(Reader& in, const Body& body, PrefetchReply& reply) {
  reply.view = in.Get<ViewNumber>();
  reply.state = GetState(in);
  reply.snapshot = body ? body : std::make_shared<const std::string>();
}
void DecodeHead(Reader& in, const Body& /*body*/, Synced& synced) {
  synced.view = in.Get<ViewNumber>();
  synced.from = GetMember(in);
}
void DecodeHead(Reader& in, const Body& body, Forward& forward) {
  forward.view = in.Get<ViewNumber>();
  forward.index = in.Get<std::int64_t>();
  forward.old = in.Get<std::uint8_t>() != 0;
  forward.entry = GetEntry(in, body);
}
void DecodeHead(Reader& in, const Body& body, Push& push) {
  push.view = in.Get<ViewNumber>();
  push.entry = GetEntry(in, body);
  push.list = in.Get<std::uint64_t>();
}
void DecodeHead(Reader& in, const Body& /*body*/, Read& read) {
  read.view = in.Get<ViewNumber>();
  read.client = consistency::DecodeClient(in);
  read.request = in.Get<std::int64_t>();
  read.clock = in.Get<Clock>();
  read.sequence = in.Get<Sequence>();
  read.remembered = in.Get<std::uint8_t>() != 0;
  read.first = in.Get<std::uint64_t>();
  read.rows = in.Get<std::uint64_t>();
  read.keys = in.GetVector<std::uint64_t>();
  read.list = in.Get<std::uint64_t>();
  read.codec = in.Get<compression::CodecNumber>();
}
void DecodeHead(Reader& in, const Body& /*body*/, Hello& hello) {
  hello.view = in.Get<ViewNumber>();
  hello.client = consistency::DecodeClient(in);
}
void DecodeHead(Reader& in, const Body& /*body*/, Acknowledgement& acknowledgement) {
  acknowledgement.view = in.Get<ViewNumber>();
  acknowledgement.client = consistency::DecodeClient(in);
  acknowledgement.sequence = in.Get<Sequence>();
  acknowledgement.outcome = static_cast<Outcome>(in.Get<std::uint8_t>() % 3);
  acknowledgement.start = in.Get<Clock>();
}
void DecodeHead(Reader& in, const Body& /*body*/, Rejection& rejection) {
  rejection.view = in.Get<ViewNumber>();
  rejection.client = consistency::DecodeClient(in);
  rejection.sequence = in.Get<Sequence>();
  rejection.why = GetStatus(in);
}
void DecodeHead(Reader& in, const Body& body, ReadReply& reply) {
  reply.view = in.Get<ViewNumber>();
  reply.client = consistency::DecodeClient(in);
  reply.request = in.Get<std::int64_t>();
  reply.version = in.Get<Version>();
  reply.status = GetStatus(in);
  reply.values = body;
}
void DecodeHead(Reader& in, const Body& /*body*/, Welcome& welcome) {
  welcome.view = in.Get<ViewNumber>();
  welcome.client = consistency::DecodeClient(in);
  welcome.last = in.Get<Sequence>();
  welcome.start = in.Get<Clock>();
  for (std::uint64_t left = in.GetCount(9); left > 0; --left) {
    const auto sequence = in.Get<Sequence>();
    welcome.not_taken[sequence] = static_cast<Outcome>(in.Get<std::uint8_t>() % 3);
  }
}
void DecodeHead(Reader& in, const Body& /*body*/, Absent& absent) {
  absent.view = in.Get<ViewNumber>();
  absent.client = consistency::DecodeClient(in);
  absent.withdraws = in.Get<std::uint8_t>() != 0;
}
void DecodeHead(Reader& in, const Body& /*body*/, Individually& individually) {
  individually.view = in.Get<ViewNumber>();
  individually.client = consistency::DecodeClient(in);
  individually.sequence = in.Get<Sequence>();
}
void DecodeHead(Reader& in, const Body& /*body*/, KeysUnknown& unknown) {
  unknown.view = in.Get<ViewNumber>();
  unknown.client = consistency::DecodeClient(in);
  unknown.list = in.Get<std::uint64_t>();
  unknown.sequence = in.Get<Sequence>();
  unknown.request = in.Get<std::int64_t>();
}

// The message of this type; monostate-like, all fields unset.
template <std::size_t... kTypes>
Message Blank(std::size_t type, std::index_sequence<kTypes...>) {
  Message message;
  (void)((type == kTypes ? (message.emplace<kTypes>(), true) : false) || ...);
  return message;
}

}  // namespace

Packet EncodePacket(std::uint64_t shard, const Message& message) {
  Packet packet;
  Writer out;
  packet.body = std::visit([&](const auto& one) { return EncodeHead(one, out); }, message);
  packet.head = out.Take();
  Prefix prefix;
  prefix.type = static_cast<std::uint16_t>(message.index());
  prefix.shard = shard;
  prefix.head_bytes = packet.head.size();
  prefix.body_bytes = packet.body ? packet.body->size() : 0;
  packet.prefix = std::bit_cast<std::array<std::byte, kPrefixBytes>>(prefix);
  return packet;
}

absl::StatusOr<Prefix> DecodePrefix(std::span<const std::byte> bytes) {
  const auto bad = [](std::string_view what) {
    return absl::DataLossError(
        absl::StrCat("a message for parameter servers is malformed: ", std::string(what),
                     "; the peer must be of this version"));
  };
  Prefix prefix;
  if (bytes.size() != kPrefixBytes) return bad("its prefix is incomplete");
  std::memcpy(&prefix, bytes.data(), kPrefixBytes);
  if (prefix.magic != Prefix::kMagic) return bad("it is none");
  if (prefix.version != Prefix::kVersion) return bad(absl::StrCat("version ", prefix.version));
  if (prefix.type >= std::variant_size_v<Message>) return bad(absl::StrCat("type ", prefix.type));
  if (prefix.head_bytes > kMaxHeadBytes) return bad("its head is too long");
  if (prefix.body_bytes > kMaxBodyBytes) return bad("its body is too long");
  return prefix;
}

absl::StatusOr<Message> DecodeMessage(const Prefix& prefix, std::string_view head,
                                      std::shared_ptr<const std::string> body) {
  Reader in(head);
  Message message = Blank(prefix.type, std::make_index_sequence<std::variant_size_v<Message>>());
  std::visit([&](auto& one) { DecodeHead(in, body, one); }, message);
  if (in.done()) return message;
  return absl::DataLossError(absl::StrCat("the head of a message of type ", prefix.type,
                                          " has the wrong length: ", head.size(),
                                          " bytes; the peer must be of this version"));
}

}  // namespace starling::parameter_server
