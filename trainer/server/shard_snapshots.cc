// SPDX-License-Identifier: Apache-2.0
#include "trainer/server/shard_snapshots.h"

#include <span>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/status/macros.h"

namespace starling::server {
namespace {

constexpr const char* kTensor = "shard";
constexpr const char* kShards = "shards";

checkpoint::StateId NameOf(const membership::StateId& id) {
  return {static_cast<std::int64_t>(membership::IncarnationOf(id.view)),
          static_cast<std::int64_t>(membership::EpochOf(id.view)), id.step};
}

membership::StateId IdOf(const checkpoint::StateId& name) {
  return {membership::MakeViewNumber(static_cast<std::uint64_t>(name.incarnation),
                                     static_cast<std::uint64_t>(name.epoch)),
          name.step};
}

}  // namespace

ShardSnapshots::ShardSnapshots(storage::BlobStore& blobs, std::size_t shards)
    : uri_(blobs.UriOf(kShards)) {
  for (std::size_t shard = 0; shard < shards; ++shard) {
    stores_.push_back(std::make_unique<checkpoint::CheckpointStore>(
        blobs, absl::StrCat(kShards, "/shard-", shard)));
  }
}

absl::StatusOr<checkpoint::Prepared> ShardSnapshots::Prepare(std::size_t shard,
                                                             const membership::StateId& id,
                                                             std::string_view bytes) {
  checkpoint::State state;
  state.id = NameOf(id);
  checkpoint::TensorView& view = state.tensors.emplace_back();
  view.name = kTensor;
  view.type = checkpoint::DType::kU8;
  view.shape = {static_cast<std::int64_t>(bytes.size())};
  view.data = std::as_bytes(std::span(bytes.data(), bytes.size()));
  return stores_[shard]->Prepare(state);
}

absl::Status ShardSnapshots::Commit(std::size_t shard, const checkpoint::Prepared& prepared,
                                    int keep) {
  RETURN_IF_ERROR(stores_[shard]->Commit(prepared));
  return stores_[shard]->Retain(keep, prepared.id);
}

absl::StatusOr<std::optional<membership::StateId>> ShardSnapshots::Newest(
    std::size_t shard, std::uint64_t incarnation) const {
  ASSIGN_OR_RETURN(const checkpoint::NewestResult newest,
                   stores_[shard]->NewestVerified(static_cast<std::int64_t>(incarnation)));
  for (const checkpoint::Skipped& skipped : newest.skipped) {
    log::Warning("snapshot skipped", {{"shard", shard},
                                      {"snapshot", skipped.name},
                                      {"why", std::string(skipped.why.message())}});
  }
  if (!newest.checkpoint) return std::nullopt;
  return IdOf(newest.checkpoint->state().id);
}

absl::StatusOr<std::string> ShardSnapshots::Load(std::size_t shard,
                                                 const membership::StateId& id) const {
  ASSIGN_OR_RETURN(const checkpoint::LoadedCheckpoint loaded, stores_[shard]->Load(NameOf(id)));
  const checkpoint::TensorView* view = loaded.Find(kTensor);
  if (view == nullptr) {
    return absl::DataLossError(
        absl::StrCat("the snapshot ", stores_[shard]->UriOf(NameOf(id)), " holds no shard"));
  }
  return std::string(reinterpret_cast<const char*>(view->data.data()), view->data.size());
}

}  // namespace starling::server
