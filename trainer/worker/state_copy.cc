// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/state_copy.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/status/macros.h"
#include "trainer/collectives/communicator.h"

namespace starling::worker {
namespace {

// Behind the sync ids, which use step 0 of the channel.
constexpr transport::Tag kShare = {.step = 1, .channel = collectives::kSyncChannel};
constexpr transport::Tag kDigest = {.step = 2, .channel = collectives::kSyncChannel};

std::span<const std::byte> BytesOf(const bytes::Digest& digest) {
  return std::as_bytes(std::span(digest));
}

bytes::Digest DigestOf(Segments segments) {
  bytes::Sha256 digest;
  for (std::span<std::byte> segment : segments) digest.Update(segment);
  return digest.Finish();
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
  const std::vector<std::span<std::byte>> pieces = ShareOf(segments, index, shares);
  for (int copier : copiers) {
    for (std::span<std::byte> piece : pieces) mesh.PostSend(copier, kShare, piece);
  }
  const bytes::Digest digest = DigestOf(segments);  // while the links are busy
  for (int copier : copiers) mesh.PostSend(copier, kDigest, BytesOf(digest));
  return mesh.WaitAll(deadline);
}

absl::Status CopyState(transport::Mesh& mesh, Segments segments, std::span<const int> holders,
                       net::Deadline deadline) {
  std::vector<bytes::Digest> digests(holders.size());
  for (size_t i = 0; i < holders.size(); ++i) {
    for (std::span<std::byte> piece : ShareOf(segments, i, holders.size())) {
      mesh.PostReceive(holders[i], kShare, piece);
    }
    mesh.PostReceive(holders[i], kDigest, std::as_writable_bytes(std::span(digests[i])));
  }
  RETURN_IF_ERROR(mesh.WaitAll(deadline));
  const bytes::Digest mine = DigestOf(segments);
  for (size_t i = 0; i < holders.size(); ++i) {
    if (digests[i] == mine) continue;
    return absl::DataLossError(
        absl::StrCat("copy of the state: the digest of ", mesh.member(holders[i]), " is ",
                     bytes::ToHex(digests[i]), ", of the received bytes ", bytes::ToHex(mine),
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
