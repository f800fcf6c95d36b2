// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/state_parts.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/ranges/ranges.h"
#include "common/status/check.h"

namespace starling::checkpoint {
namespace {

constexpr std::size_t kPartAlignment = 16;  // of each part in a staging, as `new` gives it

std::size_t Aligned(std::size_t size) {
  return (size + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

absl::Status Foreign(const StateId& id, std::string_view part, std::string_view what) {
  return absl::FailedPreconditionError(absl::StrCat(
      "checkpoint ", NameOf(id), ": part ", absl::string_view(part.data(), part.size()), " ",
      absl::string_view(what.data(), what.size()),
      ": it belongs to another model, optimizer or compression than the job's; delete the job's "
      "checkpoints or restore the job's spec"));
}

}  // namespace

void StateParts::Add(StatePart part) {
  const bool known = std::any_of(parts_.begin(), parts_.end(),
                                 [&](const StatePart& other) { return other.name == part.name; });
  STARLING_CHECK(!known, "a part of the state is registered once");
  std::size_t bytes = SizeOf(part.type);
  for (const std::int64_t side : part.shape) bytes *= static_cast<std::size_t>(side);
  STARLING_CHECK(bytes == part.data.size(), "a part of the state has the bytes of its shape");
  parts_.push_back(std::move(part));
}

std::vector<std::span<std::byte>> StateParts::Replicated() const {
  std::vector<std::span<std::byte>> segments;
  for (const StatePart& part : parts_) {
    if (part.scope == Scope::kReplicated) segments.push_back(part.data);
  }
  return segments;
}

std::vector<TensorView> StateParts::Views() const {
  std::vector<TensorView> views;
  views.reserve(parts_.size());
  for (const StatePart& part : parts_) {
    views.push_back({part.name, part.type, part.shape, part.data});
  }
  return views;
}

StateParts StateParts::NewStaging() const {
  StateParts staging;
  std::size_t size = 0;
  for (const StatePart& part : parts_) size += Aligned(part.data.size());
  staging.memory_ = bytes::ZeroPages(size);
  staging.parts_ = parts_;
  std::size_t offset = 0;
  for (StatePart& part : staging.parts_) {
    part.data = staging.memory_.bytes().subspan(offset, part.data.size());
    offset += Aligned(part.data.size());
  }
  return staging;
}

void StateParts::Adopt(const StateParts& staging) {
  STARLING_CHECK(staging.parts_.size() == parts_.size(), "a staging has the parts of its state");
  const auto copy = [&](std::size_t thread, std::size_t threads) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const std::span<const std::byte> from = staging.parts_[i].data;
      const auto range = ranges::PartOf(from.size(), thread, threads);
      std::ranges::copy(range.Of(from), range.Of(parts_[i].data).begin());
    }
  };
  // All others of the view wait for it, and one thread does not use up the memory's bandwidth.
  constexpr std::size_t kWorthAThread = 64 << 20, kMostThreads = 4;
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  const std::size_t threads = std::clamp<std::size_t>(
      staging.memory_.bytes().size() / kWorthAThread, 1, std::min(kMostThreads, cores));
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < threads; ++i) others.emplace_back(copy, i, threads);
  copy(0, threads);
  for (std::thread& other : others) other.join();
}

absl::StatusOr<StateParts> StateParts::Read(const LoadedCheckpoint& checkpoint, bool own) const {
  const StateId& id = checkpoint.state().id;
  StateParts staging = NewStaging();
  for (const StatePart& part : staging.parts_) {
    const TensorView* found = checkpoint.Find(part.name);
    if (found == nullptr) return Foreign(id, part.name, "is missing");
    if (found->type != part.type || found->shape != part.shape) {
      return Foreign(id, part.name, "has another type or shape");
    }
    if (part.scope == Scope::kOwn && !own) continue;
    std::copy(found->data.begin(), found->data.end(), part.data.begin());
  }
  for (const TensorView& tensor : checkpoint.state().tensors) {
    const bool known = std::any_of(parts_.begin(), parts_.end(),
                                   [&](const StatePart& part) { return part.name == tensor.name; });
    if (!known) return Foreign(id, tensor.name, "is not known to this job");
  }
  return staging;
}

}  // namespace starling::checkpoint
