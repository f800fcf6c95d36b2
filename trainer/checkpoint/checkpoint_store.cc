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
#include "trainer/checkpoint/manifest.h"

namespace starling::checkpoint {
namespace {

constexpr std::string_view kFileScheme = "file://";
constexpr std::string_view kTemporary = ".tmp-";
constexpr std::size_t kIncarnationDigits = 10;
constexpr std::size_t kEpochDigits = 10;
constexpr std::size_t kStepDigits = 18;
constexpr std::size_t kNameSize = kIncarnationDigits + kEpochDigits + kStepDigits + 2;

absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }

std::string TemporaryName(std::string_view name) {
  const std::string random = bytes::RandomBytes(8);
  const std::span<const std::uint8_t> view(reinterpret_cast<const std::uint8_t*>(random.data()),
                                           random.size());
  return absl::StrCat(ToAbsl(kTemporary), ToAbsl(name), "-", bytes::ToHex(view));
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

// Writes one file of tensors; what the manifest says of it.
absl::StatusOr<Shard> WriteShard(FileSystem& files, const std::string& path, std::string file,
                                 std::span<const TensorView> tensors, const Metadata& metadata) {
  ASSIGN_OR_RETURN(const Layout layout, LayOut(tensors, metadata));
  std::vector<std::span<const std::byte>> pieces = {bytes::View(layout.header)};
  for (const std::size_t index : layout.order) pieces.push_back(tensors[index].data);
  bytes::Sha256 digest;
  Shard shard{.file = std::move(file), .size = 0, .sha256 = ""};
  for (const auto& piece : pieces) {
    digest.Update(piece);
    shard.size += piece.size();
  }
  shard.sha256 = bytes::ToHex(digest.Finish());
  RETURN_IF_ERROR(files.WriteFile(path, pieces));
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

absl::Status WriteAll(FileSystem& files, const std::string& folder, const State& state,
                      std::size_t shard_bytes) {
  RETURN_IF_ERROR(files.MakeFolder(folder));
  Manifest manifest{.id = state.id, .shards = {}, .attributes = state.attributes};
  std::set<std::string_view> names;
  for (const TensorView& tensor : state.tensors) {
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("tensor \"", tensor.name, "\" given twice"));
    }
  }
  const auto shards = CutIntoShards(state, shard_bytes);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    std::string file = absl::StrFormat("state-%05d-of-%05d.safetensors", i + 1, shards.size());
    const std::string path = absl::StrCat(folder, "/", file);
    ASSIGN_OR_RETURN(Shard shard, WriteShard(files, path, std::move(file), shards[i],
                                             {{"state", NameOf(state.id)}}));
    manifest.shards.push_back(std::move(shard));
  }
  const std::string text = ToText(manifest);
  const std::span<const std::byte> piece = bytes::View(text);
  RETURN_IF_ERROR(files.WriteFile(folder + "/" + kManifestName, std::span(&piece, 1)));
  return files.SyncFolder(folder);
}

absl::StatusOr<std::vector<std::byte>> ReadShard(FileSystem& files, const std::string& folder,
                                                 const Shard& shard) {
  if (shard.file.empty() || absl::StrContains(shard.file, "/") || shard.file[0] == '.') {
    return absl::DataLossError("its manifest names a shard outside of its folder");
  }
  auto content = files.ReadFile(folder + "/" + shard.file, shard.size);
  if (!content.ok()) return Annotate(content.status(), absl::StrCat("shard ", shard.file));
  if (content->size() != shard.size || bytes::ToHex(bytes::Sha256Of(*content)) != shard.sha256) {
    return absl::DataLossError(
        absl::StrCat("shard ", shard.file, " is not the one that the manifest names"));
  }
  return content;
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

std::string JobFolder(std::string_view root, std::string_view job_uid) {
  if (absl::StartsWith(ToAbsl(root), ToAbsl(kFileScheme))) root.remove_prefix(kFileScheme.size());
  return absl::StrCat(ToAbsl(root), "/", ToAbsl(job_uid));
}

CheckpointStore::CheckpointStore(FileSystem& files, std::string_view root, std::string_view job_uid,
                                 std::size_t shard_bytes)
    : files_(files), folder_(JobFolder(root, job_uid)), shard_bytes_(shard_bytes) {}

std::string CheckpointStore::PathOf(const StateId& id) const { return folder_ + "/" + NameOf(id); }

absl::StatusOr<std::string> CheckpointStore::Prepare(const State& state) {
  const std::string path = folder_ + "/" + TemporaryName(NameOf(state.id));
  absl::Status status = files_.MakeFolder(folder_);
  if (status.ok()) status = WriteAll(files_, path, state, shard_bytes_);
  if (status.ok()) return path;
  // The space comes back at once; what cannot be removed now, Retain removes later.
  files_.Remove(path).IgnoreError();
  return Annotate(status, absl::StrCat("checkpoint ", NameOf(state.id), " is not written"));
}

absl::Status CheckpointStore::Commit(const std::string& prepared, const StateId& id) {
  const std::string path = PathOf(id);
  absl::Status renamed = files_.Rename(prepared, path);
  if (absl::IsAlreadyExists(renamed)) {
    if (LoadFrom(path, id).ok()) return Discard(prepared);
    RETURN_IF_ERROR(RemoveNamed(NameOf(id)));
    renamed = files_.Rename(prepared, path);
  }
  if (!renamed.ok()) {
    files_.Remove(prepared).IgnoreError();
    return Annotate(renamed, absl::StrCat("checkpoint ", NameOf(id), " is not committed"));
  }
  return files_.SyncFolder(folder_);
}

absl::Status CheckpointStore::Discard(const std::string& prepared) {
  return files_.Remove(prepared);
}

absl::Status CheckpointStore::Write(const State& state) {
  ASSIGN_OR_RETURN(const std::string prepared, Prepare(state));
  return Commit(prepared, state.id);
}

absl::Status CheckpointStore::RemoveNamed(const std::string& name) {
  // Renamed first: a crash in the midst of removal leaves no name that is half there.
  const std::string away = folder_ + "/" + TemporaryName(name);
  const absl::Status renamed = files_.Rename(folder_ + "/" + name, away);
  if (absl::IsNotFound(renamed)) return absl::OkStatus();  // another writer was faster
  RETURN_IF_ERROR(renamed);
  return files_.Remove(away);
}

absl::Status CheckpointStore::Retain(int keep, const StateId& newest_own) {
  ASSIGN_OR_RETURN(const std::vector<StateId> ids, List());
  int kept = 0;
  for (const StateId& id : ids) {
    if (id > newest_own) continue;
    if (++kept > std::max(1, keep)) RETURN_IF_ERROR(RemoveNamed(NameOf(id)));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files_.List(folder_));
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, ToAbsl(kTemporary))) continue;
    const auto id = ParseName(std::string_view(name).substr(kTemporary.size(), kNameSize));
    if (id.has_value() && *id < newest_own) RETURN_IF_ERROR(files_.Remove(folder_ + "/" + name));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StateId>> CheckpointStore::List() const {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files_.List(folder_));
  std::vector<StateId> ids;
  for (const std::string& name : names) {
    if (const auto id = ParseName(name); id.has_value()) ids.push_back(*id);
  }
  std::sort(ids.rbegin(), ids.rend());
  return ids;
}

absl::StatusOr<LoadedCheckpoint> CheckpointStore::Load(const StateId& id) const {
  auto loaded = LoadFrom(PathOf(id), id);
  if (loaded.ok()) return loaded;
  return Annotate(loaded.status(), absl::StrCat("checkpoint ", NameOf(id), " in ", folder_));
}

absl::StatusOr<LoadedCheckpoint> CheckpointStore::LoadFrom(const std::string& path,
                                                           const StateId& id) const {
  ASSIGN_OR_RETURN(const std::vector<std::byte> text,
                   files_.ReadFile(path + "/" + kManifestName, kManifestLimit));
  ASSIGN_OR_RETURN(Manifest manifest,
                   ParseManifest({reinterpret_cast<const char*>(text.data()), text.size()}));
  if (manifest.id != id) {
    return absl::DataLossError(absl::StrCat("its manifest is that of state ", NameOf(manifest.id)));
  }
  State state{.id = id, .tensors = {}, .attributes = std::move(manifest.attributes)};
  std::vector<std::vector<std::byte>> shards;
  for (const Shard& shard : manifest.shards) {
    ASSIGN_OR_RETURN(std::vector<std::byte> content, ReadShard(files_, path, shard));
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
    return absl::AbortedError(absl::StrCat("checkpoint ", NameOf(ids.front()), " in ", folder_,
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
    result.skipped.push_back({NameOf(id), loaded.status()});
  }
  return result;
}

absl::StatusOr<std::string> WriteModel(FileSystem& files, const std::string& path,
                                       std::span<const TensorView> tensors,
                                       const Metadata& metadata) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const std::string temporary = folder + TemporaryName("model");
  RETURN_IF_ERROR(files.MakeFolder(slash == 0 ? "/" : path.substr(0, slash)));
  auto shard = WriteShard(files, temporary, path, tensors, metadata);
  absl::Status status = shard.status();
  if (status.ok()) status = files.Rename(temporary, path);
  if (status.ok()) status = files.SyncFolder(folder);
  if (!status.ok()) {
    files.Remove(temporary).IgnoreError();
    return Annotate(status, "the model is not written");
  }
  return shard->sha256;
}

}  // namespace starling::checkpoint
