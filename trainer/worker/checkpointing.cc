// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/checkpointing.h"

#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "trainer/membership/convert.h"

namespace starling::worker {
namespace {

constexpr char kAgreed[] = "agreed";  // what the control words had decided, in hexadecimal

}  // namespace

checkpoint::StateId ToCheckpointId(const membership::StateId& id) {
  return {.incarnation = static_cast<int64_t>(membership::IncarnationOf(id.view)),
          .epoch = static_cast<int64_t>(membership::EpochOf(id.view)),
          .step = id.step};
}

membership::StateId FromCheckpointId(const checkpoint::StateId& id) {
  return {.view = membership::MakeViewNumber(static_cast<uint64_t>(id.incarnation),
                                             static_cast<uint64_t>(id.epoch)),
          .step = id.step};
}

v1alpha1::CheckpointStatus ToStatus(const checkpoint::WriteResult& result,
                                    const clock::Clock& clock) {
  v1alpha1::CheckpointStatus status;
  status.set_name(checkpoint::NameOf(result.id));
  status.set_uri(result.uri);
  status.set_step(result.id.step);
  status.mutable_time()->set_seconds(absl::ToUnixSeconds(clock.WallNow()));
  return status;
}

Checkpointing::Checkpointing(checkpoint::CheckpointStore store, int64_t keep,
                             std::map<std::string, std::string> attributes, OnWritten on_written)
    : store_(store),
      attributes_(std::move(attributes)),
      writer_(std::move(store), static_cast<int>(keep),
              [on_written = std::move(on_written)](const checkpoint::WriteResult& result) {
                if (!absl::IsCancelled(result.status)) on_written(result);
              }) {}

bool Checkpointing::Commit(const membership::StateId& id) {
  if (begun_ != id) return false;
  writer_.Commit(ToCheckpointId(id));
  return true;
}

bool Checkpointing::Begin(const checkpoint::StateParts& state, const membership::StateId& id,
                          const membership::Agreed& agreed, absl::Duration patience) {
  checkpoint::State view{
      .id = ToCheckpointId(id), .tensors = state.Views(), .attributes = attributes_};
  const std::string encoded = membership::EncodeAgreed(agreed);
  view.attributes[kAgreed] = std::string(absl::BytesToHexString(encoded));
  const bool begun = writer_.Begin(view) || (writer_.Flush(patience) && writer_.Begin(view));
  if (begun) begun_ = id;
  return begun;
}

absl::StatusOr<std::optional<membership::CheckpointOffer>> Checkpointing::FindNewest() {
  // Also one of a higher incarnation: the membership machine halts on it.
  ASSIGN_OR_RETURN(checkpoint::NewestResult newest,
                   store_.NewestVerified(std::numeric_limits<int64_t>::max()));
  for (const checkpoint::Skipped& skipped : newest.skipped) {
    log::Warning("checkpoint skipped",
                 {{"checkpoint", skipped.name}, {"why", std::string(skipped.why.message())}});
  }
  found_ = std::move(newest.checkpoint);
  if (!found_) return std::nullopt;
  const checkpoint::State& state = found_->state();
  membership::CheckpointOffer offer{.name = FromCheckpointId(state.id), .agreed = {}};
  const auto agreed = state.attributes.find(kAgreed);
  if (agreed != state.attributes.end()) {
    ASSIGN_OR_RETURN(offer.agreed,
                     membership::DecodeAgreed(std::string(absl::HexStringToBytes(agreed->second))));
  }
  return offer;
}

absl::StatusOr<checkpoint::StateParts> Checkpointing::Load(const checkpoint::StateParts& state,
                                                           const membership::StateId& id,
                                                           bool own) {
  if (!found_ || found_->state().id != ToCheckpointId(id)) {
    ASSIGN_OR_RETURN(found_, store_.Load(ToCheckpointId(id)));
  }
  const auto& attributes = found_->state().attributes;
  const auto data = attributes.find(kDataDigest);
  const auto mine = attributes_.find(kDataDigest);
  if (data != attributes.end() && mine != attributes_.end() && data->second != mine->second) {
    log::Warning("the checkpoint was trained on other data; its step is counted in theirs",
                 {{"checkpoint", checkpoint::NameOf(found_->state().id)}});
  }
  absl::StatusOr<checkpoint::StateParts> staging = state.Read(*found_, own);
  found_.reset();
  return staging;
}

}  // namespace starling::worker
