// SPDX-License-Identifier: Apache-2.0
#include "trainer/server/slot_snapshots.h"

#include <span>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/status/macros.h"

namespace starling::server {
namespace {

constexpr const char* kTensor = "slot";
constexpr const char* kSlots = "slots";

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

SlotSnapshots::SlotSnapshots(storage::BlobStore& blobs, std::size_t slots)
    : uri_(blobs.UriOf(kSlots)) {
  for (std::size_t slot = 0; slot < slots; ++slot) {
    stores_.push_back(
        std::make_unique<checkpoint::CheckpointStore>(blobs, absl::StrCat(kSlots, "/slot-", slot)));
  }
}

absl::StatusOr<checkpoint::Prepared> SlotSnapshots::Prepare(std::size_t slot,
                                                            const membership::StateId& id,
                                                            std::string_view bytes) {
  checkpoint::State state;
  state.id = NameOf(id);
  checkpoint::TensorView& view = state.tensors.emplace_back();
  view.name = kTensor;
  view.type = checkpoint::DType::kU8;
  view.shape = {static_cast<std::int64_t>(bytes.size())};
  view.data = std::as_bytes(std::span(bytes.data(), bytes.size()));
  return stores_[slot]->Prepare(state);
}

absl::Status SlotSnapshots::Commit(std::size_t slot, const checkpoint::Prepared& prepared,
                                   int keep) {
  RETURN_IF_ERROR(stores_[slot]->Commit(prepared));
  return stores_[slot]->Retain(keep, prepared.id);
}

absl::StatusOr<std::optional<membership::StateId>> SlotSnapshots::Newest(
    std::size_t slot, std::uint64_t incarnation) const {
  ASSIGN_OR_RETURN(const checkpoint::NewestResult newest,
                   stores_[slot]->NewestVerified(static_cast<std::int64_t>(incarnation)));
  for (const checkpoint::Skipped& skipped : newest.skipped) {
    log::Warning(
        "snapshot skipped",
        {{"slot", slot}, {"snapshot", skipped.name}, {"why", std::string(skipped.why.message())}});
  }
  if (!newest.checkpoint) return std::nullopt;
  return IdOf(newest.checkpoint->state().id);
}

absl::StatusOr<std::string> SlotSnapshots::Load(std::size_t slot,
                                                const membership::StateId& id) const {
  ASSIGN_OR_RETURN(const checkpoint::LoadedCheckpoint loaded, stores_[slot]->Load(NameOf(id)));
  const checkpoint::TensorView* view = loaded.Find(kTensor);
  if (view == nullptr) {
    return absl::DataLossError(
        absl::StrCat("the snapshot ", stores_[slot]->UriOf(NameOf(id)), " holds no slot"));
  }
  return std::string(reinterpret_cast<const char*>(view->data.data()), view->data.size());
}

}  // namespace starling::server
