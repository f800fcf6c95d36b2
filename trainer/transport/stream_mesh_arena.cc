// SPDX-License-Identifier: Apache-2.0
// The arena of a mesh over streams: how its ranks agree on one, and how they wait in it.
#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "trainer/transport/frame.h"
#include "trainer/transport/stream_mesh.h"

namespace starling::transport {
namespace {

// How often a rank looks, pausing, before it does anything that costs more: about 3 microseconds.
constexpr int kLooks = 100;

// For ranks that work on the same. A sleep and its end cost about 30 microseconds.
constexpr absl::Duration kWorkSpin = absl::Microseconds(60);

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// First all learn whether all are near; then rank 0 makes the memory and passes it over the links'
// sockets; then all learn whether all have it.
absl::StatusOr<Arena*> StreamMesh::ShareArena(net::Deadline deadline) {
  if (!arena_.has_value()) {
    bool near = size() <= Arena::kMostRanks && !shaping_.enabled();
    for (int peer = 0; peer < size(); ++peer) near = near && (peer == rank_ || near_[peer]);
    ASSIGN_OR_RETURN(near, AllAgree(near, 0, deadline));
    bool made = false;
    if (near) {
      ASSIGN_OR_RETURN(made, MakeArena(deadline));
      ASSIGN_OR_RETURN(made, AllAgree(made, 2, deadline));
    }
    if (!made) arena_.emplace(nullptr);
  }
  return arena_->get();
}

absl::StatusOr<bool> StreamMesh::AllAgree(bool mine, std::uint64_t round, net::Deadline deadline) {
  const Tag tag{round, kArenaChannel};
  const std::array<std::byte, 1> said = {static_cast<std::byte>(mine)};
  std::vector<std::array<std::byte, 1>> heard(members_.size(), said);
  std::vector<Ticket> tickets;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    tickets.push_back(PostReceive(peer, tag, heard[peer]));
    tickets.push_back(PostSend(peer, tag, said));
  }
  for (const Ticket ticket : tickets) RETURN_IF_ERROR(Wait(ticket, deadline));
  return std::all_of(heard.begin(), heard.end(),
                     [](const auto& one) { return one[0] == std::byte{1}; });
}

absl::StatusOr<bool> StreamMesh::MakeArena(net::Deadline deadline) {
  const Tag tag{1, kArenaChannel};
  std::array<std::byte, 1> passed = {};
  if (rank_ != 0) {
    RETURN_IF_ERROR(Receive(0, tag, passed, deadline));
    return passed[0] == std::byte{1} && TakeArena();
  }
  auto made = Arena::MakeMemory(size());
  if (made.ok()) {
    UseArena(std::move(made->memory));
    passed[0] = static_cast<std::byte>(PassArena(made->file));
  } else {
    log::Warning("ranks of this machine work without shared memory",
                 {{"error", made.status().ToString()}});
  }
  for (int peer = 1; peer < size(); ++peer) RETURN_IF_ERROR(Send(peer, tag, passed, deadline));
  return passed[0] == std::byte{1};
}

bool StreamMesh::PassArena(const net::FileDescriptor& file) {
  Drive drive(*this);
  bool passed = true;
  for (int peer = 1; peer < size(); ++peer) {
    Stream* const stream = links_[peer]->stream();
    passed = passed && stream != nullptr && stream->PassFile(file);
  }
  return passed;
}

bool StreamMesh::TakeArena() {
  Drive drive(*this);
  Stream* const stream = links_[0]->stream();
  const net::FileDescriptor file = stream == nullptr ? net::FileDescriptor() : stream->TakeFile();
  if (!file.valid()) return false;
  auto memory = Arena::MapMemory(file, size());
  if (!memory.ok()) {
    log::Warning("ranks of this machine work without shared memory",
                 {{"error", memory.status().ToString()}});
    return false;
  }
  UseArena(*std::move(memory));
  return true;
}

void StreamMesh::UseArena(SealedMemory memory) {
  ArenaOwner& owner = *this;
  arena_.emplace(std::make_unique<Arena>(std::move(memory), rank_, size(), owner));
}

absl::Status StreamMesh::AwaitRanks(absl::FunctionRef<int()> laggard, Patience patience,
                                    net::Deadline deadline) {
  const absl::Duration spin = patience == Patience::kWork ? std::max(spin_, kWorkSpin) : spin_;
  for (int look = 0; look < kLooks && !failed_.load(std::memory_order_acquire); ++look) {
    if (laggard() < 0) return absl::OkStatus();
    Pause();
  }
  std::int64_t idle_since = 0;
  Drive drive(*this);
  while (true) {
    if (failed_.load(std::memory_order_acquire)) return Fail(-1, absl::OkStatus());
    const int late = laggard();
    if (late < 0) return absl::OkStatus();
    // What it did before it said farewell is seen now, if it was not before.
    if (links_[late]->left() && laggard() == late) {
      return Fail(late, absl::UnavailableError(
                            absl::StrCat(links_[late]->name(), " has left view ", view_,
                                         " while this rank waited for its part of a sum")));
    }
    ASSIGN_OR_RETURN(const bool moved, Progress());
    if (moved) {
      idle_since = 0;
    } else if (!Spin(idle_since, spin)) {
      RETURN_IF_ERROR(SleepUntilRung(laggard, deadline));
    }
  }
}

absl::Status StreamMesh::SleepUntilRung(absl::FunctionRef<int()> laggard, net::Deadline deadline) {
  const bool expired = deadline.Expired();
  (*arena_)->Arm();
  absl::Status slept;
  if (laggard() >= 0) {
    // Even with the deadline behind us: has anybody died meanwhile?
    slept = Sleep(std::nullopt, expired ? net::Deadline::After(absl::ZeroDuration()) : deadline);
  }
  (*arena_)->Disarm();
  RETURN_IF_ERROR(slept);
  const int late = laggard();
  if (late < 0 || !expired) return absl::OkStatus();
  return Fail(late, absl::DeadlineExceededError(
                        absl::StrCat(links_[late]->name(), " in view ", view_,
                                     ": did not do its part in the shared memory in time")));
}

void StreamMesh::RingBell(int rank) {
  Drive drive(*this);
  if (Stream* const stream = links_[rank]->stream(); stream != nullptr) stream->RingBell();
}

void StreamMesh::CountShared(int rank, std::size_t sent, std::size_t received) {
  links_[rank]->Count(sent, received);
}

}  // namespace starling::transport
