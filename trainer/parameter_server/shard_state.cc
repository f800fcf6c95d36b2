// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/shard_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status/check.h"
#include "common/status/macros.h"

namespace starling::parameter_server {
namespace {

constexpr Sequence kAnyNext = -1;    // without rule S6: nothing is known of the client
constexpr Sequence kRecent = 256;    // a client's window is smaller
constexpr Lease kMostLeases = 4096;  // of a push

// As the model sees them; `tag` names the bytes of all.
std::vector<consistency::Contribution> ContributionsOf(const Entry& aggregate, std::int64_t tag) {
  std::vector<consistency::Contribution> parts;
  for (const Constituent& part : aggregate.parts) {
    parts.push_back({part.client,
                     part.clock,
                     part.completes,
                     part.read,
                     part.weight,
                     tag,
                     {},
                     part.lease,
                     part.leases});
  }
  return parts;
}

// They are looked up one by one.
bool LeasesAreFew(const Entry& entry) {
  const auto few = [](Lease count) { return count >= 1 && count <= kMostLeases; };
  return few(entry.leases) && std::all_of(entry.parts.begin(), entry.parts.end(),
                                          [&](const Constituent& one) { return few(one.leases); });
}

Selection SelectionOf(const Update& update) { return {update.first, update.rows, update.keys}; }

}  // namespace

ShardState::ShardState(const ShardOptions& options)
    : options_(options),
      range_(options.range),
      store_(MakeShard(options.table, options.range)),
      model_(consistency::MakeConsistency(options.consistency, options.rules.clocks)) {}

void ShardState::OnView(const std::vector<Client>& clients) {
  std::map<Client, Record> kept;
  for (const Client& client : clients) {
    const auto known = clients_.find(client);
    Record& record = kept[client];
    if (known != clients_.end()) record = known->second;
    if (!options_.rules.one_object) record.last = kAnyNext;
  }
  clients_ = std::move(kept);
  if (!options_.rules.one_object) ledger_.Clear();
  store_->KeepOnly(clients);
  ApplyAll(model_->OnView(clients));
}

Standing ShardState::StandingOf(const Client& client, Sequence sequence) const {
  const auto record = clients_.find(client);
  if (record == clients_.end()) return Standing::kStranger;
  const Sequence last = record->second.last;
  if (last == kAnyNext) return Standing::kNext;
  if (sequence <= last) return Standing::kOld;
  if (!options_.rules.in_order || sequence == last + 1) return Standing::kNext;
  return Standing::kGap;
}

absl::StatusOr<DecodedUpdate> ShardState::Check(const Entry& entry) const {
  switch (entry.kind) {
    case EntryKind::kStart:
    case EntryKind::kRest:
    case EntryKind::kWake:
      return DecodedUpdate();
    case EntryKind::kPush:
    case EntryKind::kRemember:
    case EntryKind::kAssign:
    case EntryKind::kAggregate:
      break;
  }
  if (!entry.update) return absl::InvalidArgumentError("a push holds an update; this one has none");
  if (!LeasesAreFew(entry)) {
    return absl::InvalidArgumentError("a push holds 1 to 4096 leases; push those of one step");
  }
  ASSIGN_OR_RETURN(DecodedUpdate decoded, Decode(entry.update, options_.table->width));
  const Update& update = decoded.update;
  if (entry.kind == EntryKind::kAssign && update.kind == UpdateKind::kFactors) {
    return absl::InvalidArgumentError(
        "values are assigned as they are: push a range, rows or pairs");
  }
  RETURN_IF_ERROR(entry.kind == EntryKind::kRemember ? store_->Check(SelectionOf(update))
                                                     : store_->Check(update));
  return decoded;
}

bool ShardState::TakesWhole(const Entry& aggregate) const {
  const optimizer::Optimizer* rule = options_.table->rule.get();
  if (aggregate.parts.empty() || rule == nullptr || !clients_.contains(aggregate.client)) {
    return false;
  }
  // What such a rule remembers is each client's.
  if (rule->remembered() != optimizer::Optimizer::kNothing) return false;
  std::set<Client> clients;
  LeaseLedger leases;
  for (const Constituent& part : aggregate.parts) {
    if (StandingOf(part.client, part.sequence) != Standing::kNext) return false;
    if (!clients.insert(part.client).second) return false;
    if (part.lease == 0) continue;
    if (ledger_.CountIn(part.lease, part.lease + part.leases) > 0) return false;
    if (leases.CountIn(part.lease, part.lease + part.leases) > 0) return false;
    leases.Add(part.lease, part.lease + part.leases);
  }
  return model_->Combines(ContributionsOf(aggregate, index_ + 1));
}

Outcome ShardState::AppendAggregate(const Entry& aggregate, DecodedUpdate update) {
  for (const Constituent& part : aggregate.parts) {
    clients_[part.client].last = part.sequence;
    if (part.lease != 0) ledger_.Add(part.lease, part.lease + part.leases);
  }
  held_[index_] = std::move(update);
  ApplyAll(model_->OnAggregate(ContributionsOf(aggregate, index_)).ready);
  return Outcome::kTaken;
}

Outcome ShardState::Append(const Entry& entry) {
  absl::StatusOr<DecodedUpdate> update = Check(entry);
  STARLING_CHECK(update.ok(), "what this process has made itself is an update of the shard");
  return Append(entry, *std::move(update));
}

Outcome ShardState::Append(const Entry& entry, DecodedUpdate update) {
  ++index_;
  if (entry.kind == EntryKind::kAggregate) return AppendAggregate(entry, std::move(update));
  Record& record = clients_[entry.client];
  record.last = entry.sequence;
  switch (entry.kind) {
    case EntryKind::kStart:
      ApplyAll(model_->OnStart(entry.client, entry.clock));
      return Outcome::kTaken;
    case EntryKind::kRemember:
      store_->Remember(entry.client, SelectionOf(update.update));
      return Outcome::kTaken;
    case EntryKind::kAssign:
      return Assign(entry, update.update);
    case EntryKind::kRest:
      ApplyAll(model_->OnRest(entry.client));
      return Outcome::kTaken;
    case EntryKind::kWake:
      ApplyAll(model_->OnWake(entry.client));
      return Outcome::kTaken;
    case EntryKind::kPush:
    case EntryKind::kAggregate:
      break;
  }
  const Outcome outcome = AppendPush(entry, std::move(update));
  if (outcome != Outcome::kTaken) {
    record.not_taken[entry.sequence] = outcome;
    record.not_taken.erase(record.not_taken.begin(),
                           record.not_taken.lower_bound(entry.sequence - kRecent));
  }
  return outcome;
}

Outcome ShardState::AppendPush(const Entry& entry, DecodedUpdate update) {
  const Lease end = entry.lease + entry.leases;
  const Lease in =
      options_.rules.lease_dedupe && entry.lease != 0 ? ledger_.CountIn(entry.lease, end) : 0;
  if (in > 0 && in < entry.leases && options_.rules.whole_pushes) return Outcome::kRefused;
  if (in == entry.leases) {
    if (entry.completes) ApplyAll(model_->OnSkip(entry.client, entry.clock));
    return Outcome::kSkipped;
  }
  held_[index_] = std::move(update);
  const consistency::Verdict verdict = model_->OnPush({entry.client,
                                                       entry.clock,
                                                       entry.completes,
                                                       entry.read,
                                                       entry.weight,
                                                       index_,
                                                       {},
                                                       entry.lease,
                                                       entry.leases});
  if (!verdict.accepted) held_.erase(index_);
  if (verdict.accepted && entry.lease != 0) ledger_.Add(entry.lease, end);
  ApplyAll(verdict.ready);
  return verdict.accepted ? Outcome::kTaken : Outcome::kRefused;
}

Outcome ShardState::Assign(const Entry& entry, const Update& update) {
  if (options_.rules.lease_dedupe && ledger_.Has(entry.lease)) return Outcome::kSkipped;
  const std::int64_t next = model_->version() + 1;
  store_->Assign({options_.table->learning_rate(next), next}, update);
  if (entry.lease != 0) ledger_.Add(entry.lease);
  return Outcome::kTaken;
}

void ShardState::ApplyAll(const std::vector<consistency::Batch>& batches) {
  std::int64_t number = model_->version() - static_cast<std::int64_t>(batches.size());
  for (const consistency::Batch& batch : batches) {
    ++number;
    std::vector<Part> parts;
    for (const consistency::Contribution& member : batch.members) {
      parts.push_back({&held_.at(member.tag).update, member.weight, &member.client});
    }
    const double rate = options_.table->learning_rate(number) * batch.rate_factor;
    store_->Apply({rate, number}, parts);
    for (const consistency::Contribution& member : batch.members) held_.erase(member.tag);
  }
}

bool ShardState::MayRead(const Client& client, Clock clock, Sequence sequence) const {
  const auto record = clients_.find(client);
  if (record == clients_.end()) return false;
  if (record->second.last != kAnyNext && record->second.last < sequence) return false;
  if (clock == consistency::kAtRest) return model_->clocks().awake() == 0;
  return model_->MayRead(client, clock);
}

absl::StatusOr<std::string> ShardState::Read(const Selection& selection) const {
  RETURN_IF_ERROR(store_->Check(selection));
  return store_->Read(selection);
}

absl::StatusOr<std::string> ShardState::ReadRemembered(const Client& client,
                                                       const Selection& selection) const {
  RETURN_IF_ERROR(store_->Check(selection));
  return store_->ReadRemembered(client, selection);
}

Sequence ShardState::LastOf(const Client& client) const {
  const auto record = clients_.find(client);
  return record == clients_.end() ? 0 : std::max<Sequence>(0, record->second.last);
}

Outcomes ShardState::NotTakenOf(const Client& client) const {
  const auto record = clients_.find(client);
  return record == clients_.end() ? Outcomes() : record->second.not_taken;
}

std::string ShardState::SaveObject() const {
  bytes::Writer out;
  out.Put(range_.begin);
  out.Put(range_.end);
  out.Put(index_);
  out.Put(static_cast<std::uint64_t>(clients_.size()));
  for (const auto& [client, record] : clients_) {
    consistency::Encode(client, out);
    out.Put(record.last);
    out.Put(static_cast<std::uint64_t>(record.not_taken.size()));
    for (const auto& [sequence, outcome] : record.not_taken) {
      out.Put(sequence);
      out.Put(static_cast<std::uint8_t>(outcome));
    }
  }
  ledger_.Save(out);
  model_->Save(out);
  out.Put(static_cast<std::uint64_t>(held_.size()));
  for (const auto& [tag, update] : held_) {
    out.Put(tag);
    Put(*update.from, out);
    out.PutText(update.from->text());
  }
  return out.Take();
}

std::string ShardState::Save() const {
  const std::string object = SaveObject();
  Tensors tensors;
  store_->Save(tensors);
  checkpoint::TensorView view;
  view.name = "object";
  view.type = checkpoint::DType::kU8;
  view.shape = {static_cast<std::int64_t>(object.size())};
  view.data = std::as_bytes(std::span(object));
  tensors.views.push_back(view);
  absl::StatusOr<std::string> file =
      checkpoint::Encode(tensors.views, {{"table", options_.table->name}});
  STARLING_CHECK(file.ok(), "a shard's snapshot has good names and shapes");
  return *std::move(file);
}

absl::Status ShardState::LoadObject(std::string_view object) {
  bytes::Reader in(object);
  const RowRange range{in.Get<std::uint64_t>(), in.Get<std::uint64_t>()};
  if (range != range_) {
    return absl::DataLossError(absl::StrCat("the snapshot is of rows [", range.begin, ", ",
                                            range.end, "), this shard holds [", range_.begin, ", ",
                                            range_.end, "); choose the snapshot of this range"));
  }
  index_ = in.Get<std::int64_t>();
  clients_.clear();
  for (std::uint64_t left = in.GetCount(40); left > 0; --left) {
    Record& record = clients_[consistency::DecodeClient(in)];
    record.last = in.Get<Sequence>();
    for (std::uint64_t more = in.GetCount(9); more > 0; --more) {
      const auto sequence = in.Get<Sequence>();
      record.not_taken[sequence] = static_cast<Outcome>(in.Get<std::uint8_t>() % 3);
    }
  }
  ledger_.Load(in);
  model_->Load(in);
  held_.clear();
  for (std::uint64_t left = in.GetCount(16); left > 0; --left) {
    const auto tag = in.Get<std::int64_t>();
    EncodedUpdate update = *GetUpdate(in, nullptr);
    update.body = std::make_shared<const std::string>(in.GetText());
    if (!in.ok()) break;
    ASSIGN_OR_RETURN(held_[tag], Decode(std::make_shared<const EncodedUpdate>(std::move(update)),
                                        options_.table->width));
  }
  if (in.done()) return absl::OkStatus();
  return absl::DataLossError("the snapshot's object is cut off; take another snapshot");
}

absl::Status ShardState::Load(std::string_view snapshot) {
  // The format wants aligned bytes, which a message's middle is not.
  const std::string aligned(snapshot);
  ASSIGN_OR_RETURN(const checkpoint::Decoded decoded,
                   checkpoint::Decode(std::as_bytes(std::span(aligned))));
  const checkpoint::TensorView* object = decoded.Find("object");
  if (object == nullptr) {
    return absl::DataLossError("the snapshot is no shard's: it has no object; take another one");
  }
  RETURN_IF_ERROR(
      LoadObject({reinterpret_cast<const char*>(object->data.data()), object->data.size()}));
  return store_->Load(decoded);
}

}  // namespace starling::parameter_server
