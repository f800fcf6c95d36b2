// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/checkpoint_store.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/bytes/bytes.h"
#include "common/status/macros.h"
#include "common/status/to_absl.h"
#include "common/storage/place.h"
#include "trainer/checkpoint/manifest.h"

namespace starling::checkpoint {
namespace {

constexpr std::size_t kAttemptBytes = 8;
constexpr std::size_t kIncarnationDigits = 10;
constexpr std::size_t kEpochDigits = 10;
constexpr std::size_t kStepDigits = 18;
constexpr std::size_t kNameSize = kIncarnationDigits + kEpochDigits + kStepDigits + 2;

// What tells the shards of one attempt to write a checkpoint from those of another.
std::string NewAttempt() {
  const std::string random = bytes::RandomBytes(kAttemptBytes);
  const std::span<const std::uint8_t> view(reinterpret_cast<const std::uint8_t*>(random.data()),
                                           random.size());
  return bytes::ToHex(view);
}

std::optional<std::int64_t> ParseDigits(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text[0] == '-') {
    return std::nullopt;
  }
  return value;
}

absl::Status Annotate(const absl::Status& status, std::string_view what) {
  return absl::Status(status.code(), absl::StrCat(ToAbsl(what), ": ", status.message()));
}

// Puts one file of tensors; what a manifest in its folder says of it.
absl::StatusOr<Shard> PutTensors(storage::BlobStore& blobs, const std::string& name,
                                 std::span<const TensorView> tensors, const Metadata& metadata) {
  ASSIGN_OR_RETURN(const Layout layout, LayOut(tensors, metadata));
  std::vector<std::span<const std::byte>> pieces = {bytes::View(layout.header)};
  for (const std::size_t index : layout.order) pieces.push_back(tensors[index].data);
  bytes::Sha256 digest;
  Shard shard{.file = name.substr(name.rfind('/') + 1), .size = 0, .sha256 = ""};
  for (const auto& piece : pieces) {
    digest.Update(piece);
    shard.size += piece.size();
  }
  shard.sha256 = bytes::ToHex(digest.Finish());
  RETURN_IF_ERROR(blobs.Put(name, pieces, storage::IfPresent::kReplace));
  return shard;
}

// Cuts the tensors, in the order of their names, into shards of about `limit` bytes.
std::vector<std::vector<TensorView>> CutIntoShards(const State& state, std::size_t limit) {
  std::vector<TensorView> sorted = state.tensors;
  std::sort(sorted.begin(), sorted.end(),
            [](const TensorView& a, const TensorView& b) { return a.name < b.name; });
  std::vector<std::vector<TensorView>> shards(1);
  std::size_t size = 0;
  for (TensorView& tensor : sorted) {
    if (size >= limit) {
      shards.emplace_back();
      size = 0;
    }
    size += tensor.data.size();
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

absl::StatusOr<std::vector<std::byte>> ReadShard(storage::BlobStore& blobs,
                                                 const std::string& folder, const Shard& shard) {
  if (shard.file.empty() || absl::StrContains(shard.file, "/") || shard.file[0] == '.') {
    return absl::DataLossError("its manifest names a shard outside of its folder");
  }
  auto content = storage::ReadAll(blobs, absl::StrCat(folder, "/", shard.file), shard.size);
  if (!content.ok()) return Annotate(content.status(), absl::StrCat("shard ", shard.file));
  if (content->size() != shard.size || bytes::ToHex(bytes::Sha256Of(*content)) != shard.sha256) {
    return absl::DataLossError(
        absl::StrCat("shard ", shard.file, " is not the one that the manifest names"));
  }
  return content;
}

// Whether an error of reading a checkpoint says that it is not whole: a part is missing, too short,
// too long, or not what its manifest says. Other errors say nothing about it.
bool IsDamage(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kInvalidArgument:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string NameOf(const StateId& id) {
  return absl::StrFormat("%010d-%010d-%018d", id.incarnation, id.epoch, id.step);
}

std::optional<StateId> ParseName(std::string_view name) {
  if (name.size() != kNameSize || name[kIncarnationDigits] != '-' ||
      name[kIncarnationDigits + 1 + kEpochDigits] != '-') {
    return std::nullopt;
  }
  const auto incarnation = ParseDigits(name.substr(0, kIncarnationDigits));
  const auto epoch = ParseDigits(name.substr(kIncarnationDigits + 1, kEpochDigits));
  const auto step = ParseDigits(name.substr(kNameSize - kStepDigits));
  if (!incarnation.has_value() || !epoch.has_value() || !step.has_value()) return std::nullopt;
  return StateId{*incarnation, *epoch, *step};
}

const TensorView* LoadedCheckpoint::Find(std::string_view name) const {
  const auto found = std::find_if(state_.tensors.begin(), state_.tensors.end(),
                                  [&](const TensorView& tensor) { return tensor.name == name; });
  return found != state_.tensors.end() ? &*found : nullptr;
}

std::string JobPlace(std::string_view uri, std::string_view job_uid, std::string_view job_dir) {
  return uri.empty() ? std::string(job_dir) : storage::Below(uri, job_uid);
}

absl::StatusOr<std::unique_ptr<storage::BlobStore>> OpenJobPlace(std::string_view uri,
                                                                 std::string_view job_uid,
                                                                 std::string_view job_dir) {
  const std::string place = JobPlace(uri, job_uid, job_dir);
  auto store = storage::Open(place);
  if (!store.ok()) return Annotate(store.status(), "spec.checkpoint.uri");
  const auto parsed = storage::ParsePlace(place);
  if (!parsed.ok() || parsed->kind != storage::Place::Kind::kS3) return store;
  const absl::Status answer = (*store)->Size(kModel).status();
  if (answer.ok() || absl::IsNotFound(answer) || absl::IsUnavailable(answer)) return store;
  return Annotate(answer, "spec.checkpoint.uri");
}

CheckpointStore::CheckpointStore(storage::BlobStore& blobs, std::string prefix,
                                 std::size_t shard_bytes)
    : blobs_(blobs), prefix_(std::move(prefix)), shard_bytes_(shard_bytes) {}

std::string CheckpointStore::FolderOf(const StateId& id) const {
  return absl::StrCat(prefix_, "/", NameOf(id));
}
std::string CheckpointStore::ManifestOf(const StateId& id) const {
  return absl::StrCat(FolderOf(id), "/", kManifestName);
}
std::string CheckpointStore::UriOf(const StateId& id) const { return blobs_.UriOf(FolderOf(id)); }
std::string CheckpointStore::Uri() const { return blobs_.UriOf(prefix_); }

absl::Status CheckpointStore::WriteShards(const State& state, Prepared& prepared) {
  Manifest manifest{.id = state.id, .shards = {}, .attributes = state.attributes};
  std::set<std::string_view> names;
  for (const TensorView& tensor : state.tensors) {
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("tensor \"", tensor.name, "\" given twice"));
    }
  }
  const std::string attempt = NewAttempt();
  const auto shards = CutIntoShards(state, shard_bytes_);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    prepared.shards.push_back(absl::StrFormat("%s/state-%05d-of-%05d-%s.safetensors",
                                              FolderOf(state.id), i + 1, shards.size(), attempt));
    ASSIGN_OR_RETURN(Shard shard, PutTensors(blobs_, prepared.shards.back(), shards[i],
                                             {{"state", NameOf(state.id)}}));
    manifest.shards.push_back(std::move(shard));
  }
  prepared.manifest = ToText(manifest);
  return absl::OkStatus();
}

absl::StatusOr<Prepared> CheckpointStore::Prepare(const State& state) {
  Prepared prepared{.id = state.id, .shards = {}, .manifest = ""};
  const absl::Status status = WriteShards(state, prepared);
  if (status.ok()) return prepared;
  // The space comes back now; what cannot be removed now, Retain removes later.
  Discard(prepared).IgnoreError();
  return Annotate(status, absl::StrCat("checkpoint ", NameOf(state.id), " is not written"));
}

// Another writer's Retain may have listed the shards before there was a manifest. It removes them
// and then the manifest; so either it still sees ours, or we see here that shards are missing.
absl::Status CheckpointStore::CheckShards(const Prepared& prepared) const {
  for (const std::string& shard : prepared.shards) {
    const absl::Status status = blobs_.Size(shard).status();
    if (absl::IsNotFound(status)) {
      return absl::AbortedError(
          "a later view has removed its shards; this process has been replaced");
    }
    RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::Status CheckpointStore::Commit(const Prepared& prepared) {
  const std::string name = ManifestOf(prepared.id);
  absl::Status status = storage::Put(blobs_, name, prepared.manifest, storage::IfPresent::kFail);
  if (absl::IsAlreadyExists(status)) {
    if (Read(prepared.id).ok()) return Discard(prepared);
    status = storage::Put(blobs_, name, prepared.manifest, storage::IfPresent::kReplace);
  }
  if (status.ok()) {
    status = CheckShards(prepared);
    if (absl::IsAborted(status)) blobs_.Delete(name).IgnoreError();
  }
  if (status.ok()) return status;
  // An error does not say that the manifest is not there; shards that it names must stay.
  if (absl::IsNotFound(blobs_.Size(name).status())) Discard(prepared).IgnoreError();
  return Annotate(status, absl::StrCat("checkpoint ", NameOf(prepared.id), " is not committed"));
}

absl::Status CheckpointStore::Discard(const Prepared& prepared) {
  for (const std::string& shard : prepared.shards) RETURN_IF_ERROR(blobs_.Delete(shard));
  return absl::OkStatus();
}

absl::Status CheckpointStore::Write(const State& state) {
  ASSIGN_OR_RETURN(const Prepared prepared, Prepare(state));
  return Commit(prepared);
}

absl::StatusOr<std::map<StateId, std::vector<std::string>>> CheckpointStore::Names() const {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, blobs_.List(prefix_ + "/"));
  std::map<StateId, std::vector<std::string>> by_state;
  for (const std::string& name : names) {
    const std::string_view below = std::string_view(name).substr(prefix_.size() + 1);
    const auto id = ParseName(below.substr(0, below.find('/')));
    if (id && below.size() > kNameSize) by_state[*id].push_back(name);
  }
  return by_state;
}

// The manifest first: without it the rest is no checkpoint, whenever we may die. And once more at
// the end: its writer may have put it after the shards were listed.
absl::Status CheckpointStore::Remove(const StateId& id, const std::vector<std::string>& names) {
  RETURN_IF_ERROR(blobs_.Delete(ManifestOf(id)));
  for (const std::string& name : names) RETURN_IF_ERROR(blobs_.Delete(name));
  return blobs_.Delete(ManifestOf(id));
}

absl::Status CheckpointStore::Retain(int keep, const StateId& newest_own) {
  ASSIGN_OR_RETURN(const auto by_state, Names());
  int kept = 0;
  for (auto at = by_state.rbegin(); at != by_state.rend(); ++at) {
    const auto& [id, names] = *at;
    if (id > newest_own) continue;
    const bool committed = std::find(names.begin(), names.end(), ManifestOf(id)) != names.end();
    if (committed && ++kept <= std::max(1, keep)) continue;
    if (committed || id < newest_own) RETURN_IF_ERROR(Remove(id, names));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StateId>> CheckpointStore::List() const {
  ASSIGN_OR_RETURN(const auto by_state, Names());
  std::vector<StateId> ids;
  for (auto at = by_state.rbegin(); at != by_state.rend(); ++at) {
    const auto& [id, names] = *at;
    if (std::find(names.begin(), names.end(), ManifestOf(id)) != names.end()) ids.push_back(id);
  }
  return ids;
}

absl::StatusOr<LoadedCheckpoint> CheckpointStore::Load(const StateId& id) const {
  auto loaded = Read(id);
  if (loaded.ok()) return loaded;
  return Annotate(loaded.status(), absl::StrCat("checkpoint ", UriOf(id)));
}

absl::StatusOr<LoadedCheckpoint> CheckpointStore::Read(const StateId& id) const {
  ASSIGN_OR_RETURN(const std::vector<std::byte> text,
                   storage::ReadAll(blobs_, ManifestOf(id), kManifestLimit));
  ASSIGN_OR_RETURN(Manifest manifest,
                   ParseManifest({reinterpret_cast<const char*>(text.data()), text.size()}));
  if (manifest.id != id) {
    return absl::DataLossError(absl::StrCat("its manifest is that of state ", NameOf(manifest.id)));
  }
  State state{.id = id, .tensors = {}, .attributes = std::move(manifest.attributes)};
  std::vector<std::vector<std::byte>> shards;
  for (const Shard& shard : manifest.shards) {
    ASSIGN_OR_RETURN(std::vector<std::byte> content, ReadShard(blobs_, FolderOf(id), shard));
    shards.push_back(std::move(content));
    auto decoded = Decode(shards.back());
    if (!decoded.ok()) return Annotate(decoded.status(), absl::StrCat("shard ", shard.file));
    const auto origin = decoded->metadata.find("state");
    if (origin == decoded->metadata.end() || origin->second != NameOf(id)) {
      return absl::DataLossError(absl::StrCat("shard ", shard.file, " is of another state"));
    }
    for (TensorView& tensor : decoded->tensors) state.tensors.push_back(std::move(tensor));
  }
  return LoadedCheckpoint(std::move(state), std::move(shards));
}

absl::StatusOr<NewestResult> CheckpointStore::NewestVerified(std::int64_t max_incarnation) const {
  ASSIGN_OR_RETURN(const std::vector<StateId> ids, List());
  if (!ids.empty() && ids.front().incarnation > max_incarnation) {
    return absl::AbortedError(absl::StrCat("checkpoint ", NameOf(ids.front()), " in ", Uri(),
                                           " is of a higher incarnation than ", max_incarnation,
                                           ": this process has been replaced and must stop"));
  }
  NewestResult result;
  for (const StateId& id : ids) {
    auto loaded = Load(id);
    if (loaded.ok()) {
      result.checkpoint = *std::move(loaded);
      return result;
    }
    if (!IsDamage(loaded.status())) {
      return absl::Status(
          loaded.status().code(),
          absl::StrCat(loaded.status().message(),
                       "; it is the newest and may be whole, so no older one is taken: make it "
                       "readable, or remove it to go on from the one before"));
    }
    result.skipped.push_back({NameOf(id), loaded.status()});
  }
  return result;
}

absl::StatusOr<std::string> WriteModel(storage::BlobStore& blobs, const std::string& name,
                                       std::span<const TensorView> tensors,
                                       const Metadata& metadata) {
  const auto shard = PutTensors(blobs, name, tensors, metadata);
  if (!shard.ok()) return Annotate(shard.status(), "the model is not written");
  return shard->sha256;
}

}  // namespace starling::checkpoint
