// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/state_copy.h"

#include <algorithm>
#include <array>
#include <future>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/bytes/checksum.h"
#include "common/ranges/ranges.h"
#include "common/status/macros.h"
#include "trainer/collectives/communicator.h"

namespace starling::worker {
namespace {

// Behind the sync ids, which use step 0 of the channel.
constexpr transport::Tag kShare = {.step = 1, .channel = collectives::kSyncChannel};
constexpr transport::Tag kChecksum = {.step = 2, .channel = collectives::kSyncChannel};

// Pieces are sent in messages of at most so many bytes, so that what has arrived is added up while
// the rest is on its way.
constexpr size_t kMessage = size_t{1} << 20;

// The messages in which share `index` of `shares` travels.
std::vector<std::span<std::byte>> MessagesOf(Segments segments, size_t index, size_t shares) {
  std::vector<std::span<std::byte>> messages;
  for (std::span<std::byte> piece : ShareOf(segments, index, shares)) {
    const ranges::Range<size_t> whole = {0, piece.size()};
    for (size_t i = 0; i < ranges::PiecesOf(whole, kMessage); ++i) {
      messages.push_back(ranges::PieceOf(whole, i, kMessage).Of(piece));
    }
  }
  return messages;
}

using Checksum = bytes::Checksum::Value;

std::span<const std::byte> BytesOf(const Checksum& checksum) {
  return std::as_bytes(std::span(checksum));
}

Checksum ChecksumOf(Segments segments) {
  bytes::Checksum checksum;
  for (std::span<std::byte> segment : segments) checksum.Update(segment);
  return checksum.Finish();
}

}  // namespace

std::vector<std::span<std::byte>> ShareOf(Segments segments, size_t index, size_t shares) {
  size_t total = 0;
  for (std::span<std::byte> segment : segments) total += segment.size();
  const size_t begin = total / shares * index + std::min(index, total % shares);
  const size_t end = begin + total / shares + (index < total % shares ? 1 : 0);
  std::vector<std::span<std::byte>> pieces;
  size_t offset = 0;
  for (std::span<std::byte> segment : segments) {
    const size_t first = std::max(begin, offset);
    const size_t last = std::min(end, offset + segment.size());
    if (first < last) pieces.push_back(segment.subspan(first - offset, last - first));
    offset += segment.size();
  }
  return pieces;
}

absl::Status ServeState(transport::Mesh& mesh, Segments segments, size_t index, size_t shares,
                        std::span<const int> copiers, net::Deadline deadline) {
  const std::vector<std::span<std::byte>> messages = MessagesOf(segments, index, shares);
  for (int copier : copiers) {
    for (std::span<std::byte> message : messages) mesh.PostSend(copier, kShare, message);
  }
  // On a thread of its own: the links are driven by this one.
  std::future<Checksum> computed = std::async(std::launch::async, ChecksumOf, segments);
  RETURN_IF_ERROR(mesh.WaitAll(deadline));
  const Checksum checksum = computed.get();
  for (int copier : copiers) mesh.PostSend(copier, kChecksum, BytesOf(checksum));
  return mesh.WaitAll(deadline);
}

absl::Status CopyState(transport::Mesh& mesh, Segments segments, std::span<const int> holders,
                       net::Deadline deadline) {
  std::vector<Checksum> checksums(holders.size());
  std::vector<std::pair<transport::Ticket, std::span<const std::byte>>> awaited;
  for (size_t i = 0; i < holders.size(); ++i) {
    for (std::span<std::byte> message : MessagesOf(segments, i, holders.size())) {
      awaited.emplace_back(mesh.PostReceive(holders[i], kShare, message), message);
    }
    mesh.PostReceive(holders[i], kChecksum, std::as_writable_bytes(std::span(checksums[i])));
  }
  bytes::Checksum received;
  for (const auto& [ticket, message] : awaited) {
    RETURN_IF_ERROR(mesh.Wait(ticket, deadline));
    received.Update(message);
  }
  RETURN_IF_ERROR(mesh.WaitAll(deadline));
  const Checksum mine = received.Finish();
  for (size_t i = 0; i < holders.size(); ++i) {
    if (checksums[i] == mine) continue;
    return absl::DataLossError(
        absl::StrCat("copy of the state: the checksum of ", mesh.member(holders[i]), " is ",
                     bytes::ToHex(checksums[i]), ", of the received bytes ", bytes::ToHex(mine),
                     ": the holders differ, or bytes were damaged on the way"));
  }
  return absl::OkStatus();
}

absl::Status SpreadState(transport::Mesh& mesh, Segments mine, Segments staged,
                         net::Deadline deadline) {
  if (mesh.rank() != 0) return CopyState(mesh, staged, std::array{0}, deadline);
  std::vector<int> others(static_cast<size_t>(mesh.size() - 1));
  std::iota(others.begin(), others.end(), 1);
  return ServeState(mesh, mine, /*index=*/0, /*shares=*/1, others, deadline);
}

}  // namespace starling::worker
