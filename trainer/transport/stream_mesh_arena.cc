// SPDX-License-Identifier: Apache-2.0
// The arena of a mesh over streams: how its ranks agree on one, and how they wait in it.
#include <algorithm>
#include <array>
#include <span>
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

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

bool AllSayYes(const std::vector<std::uint64_t>& words) {
  return std::ranges::all_of(words, [](std::uint64_t one) { return one == 1; });
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
    if (made) {
      RETURN_IF_ERROR(ShareWindows(deadline));
    } else {
      arena_.emplace(nullptr);
    }
  }
  return arena_->get();
}

absl::StatusOr<std::vector<std::uint64_t>> StreamMesh::Tell(std::vector<std::uint64_t> mine,
                                                            std::uint64_t round,
                                                            net::Deadline deadline) {
  const Tag tag{round, kArenaChannel};
  std::vector<std::uint64_t> heard = mine;
  std::vector<Ticket> tickets;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    tickets.push_back(
        PostReceive(peer, tag, std::as_writable_bytes(std::span(&heard[peer], std::size_t{1}))));
    tickets.push_back(PostSend(peer, tag, std::as_bytes(std::span(&mine[peer], std::size_t{1}))));
  }
  for (const Ticket ticket : tickets) RETURN_IF_ERROR(Wait(ticket, deadline));
  return heard;
}

absl::StatusOr<bool> StreamMesh::AllAgree(bool mine, std::uint64_t round, net::Deadline deadline) {
  ASSIGN_OR_RETURN(
      const std::vector<std::uint64_t> heard,
      Tell(std::vector<std::uint64_t>(members_.size(), mine ? 1 : 0), round, deadline));
  return AllSayYes(heard);
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
    bool to_all = true;
    for (int peer = 1; peer < size(); ++peer) to_all = to_all && PassFile(peer, made->file);
    passed[0] = static_cast<std::byte>(to_all);
  } else {
    log::Warning("ranks of this machine work without shared memory",
                 {{"error", made.status().ToString()}});
  }
  for (int peer = 1; peer < size(); ++peer) RETURN_IF_ERROR(Send(peer, tag, passed, deadline));
  return passed[0] == std::byte{1};
}

bool StreamMesh::PassFile(int peer, const net::FileDescriptor& file) {
  Drive drive(*this);
  Stream* const stream = links_[peer]->stream();
  return stream != nullptr && stream->PassFile(file);
}

net::FileDescriptor StreamMesh::TakeFile(int peer) {
  Drive drive(*this);
  Stream* const stream = links_[peer]->stream();
  return stream == nullptr ? net::FileDescriptor() : stream->TakeFile();
}

bool StreamMesh::TakeArena() {
  const net::FileDescriptor file = TakeFile(0);
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

// Each rank passes its window's file to the others and tells them how large it is; then it hears
// who could map it.
absl::Status StreamMesh::ShareWindows(net::Deadline deadline) {
  std::vector<std::uint64_t> bytes(members_.size(), 0);
  for (int peer = 0; peer < size() && window_ != nullptr; ++peer) {
    const bool passed = peer != rank_ && PassFile(peer, window_->file());
    if (passed) bytes[peer] = window_->memory().size();
  }
  ASSIGN_OR_RETURN(const std::vector<std::uint64_t> offered, Tell(std::move(bytes), 3, deadline));
  std::vector<SealedMemory> windows(members_.size());
  std::vector<std::uint64_t> mapped(members_.size(), 1);  // this rank sees its own
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    windows[peer] = TakeWindow(peer, offered[peer]);
    mapped[peer] = windows[peer].data() != nullptr ? 1 : 0;
  }
  ASSIGN_OR_RETURN(const std::vector<std::uint64_t> seen, Tell(std::move(mapped), 4, deadline));
  std::span<const std::byte> own;
  if (window_ != nullptr && AllSayYes(seen)) own = window_->memory();
  (*arena_)->UseWindows(own, std::move(windows));
  return absl::OkStatus();
}

// None if the peer offers none, or it cannot be mapped.
SealedMemory StreamMesh::TakeWindow(int peer, std::uint64_t bytes) {
  if (bytes == 0) return {};
  const net::FileDescriptor file = TakeFile(peer);
  if (!file.valid()) return {};
  auto memory = SealedMemory::Map(file, bytes, SealedMemory::Others::kRead);
  if (memory.ok()) return *std::move(memory);
  log::Warning("sums of this machine's ranks take a copy more",
               {{"peer", members_[peer].member}, {"error", memory.status().ToString()}});
  return {};
}

absl::Status StreamMesh::AwaitRanks(absl::FunctionRef<int()> laggard, Patience patience,
                                    net::Deadline deadline) {
  const bool at_sum = patience == Patience::kWork || spin_.oversubscribed();
  const int looks = spin_.oversubscribed() ? 1 : kLooks;
  for (int look = 0; look < looks && !failed_.load(std::memory_order_acquire); ++look) {
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
    } else if (!Spin(idle_since, at_sum)) {
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
