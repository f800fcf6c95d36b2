// SPDX-License-Identifier: Apache-2.0
// The sum of arrays that travel encoded, by any codec.
//
// By owners: the array is cut into a part for each rank, its owner. Every rank encodes its share of
// part j and sends it to owner j. The owner decodes each share once, adds them in float in the
// order of ranks (its own as it is), encodes the sum once, and every rank, the owner too, takes the
// decoded sum: so all ranks have equal bits, whatever the codec loses. Each rank sends 2 (n-1)/n
// times the encoded array, as a ring would; a ring itself would encode every partial sum anew and
// lose something in each of its rounds.
//
// In levels, where a codec asks for it: by owners, but before that the ranks agree on scales, the
// largest of theirs for each piece, by an allreduce of their own. Then shares are integers times
// these scales, the owner's own like all others; it adds the integers up, and sends their sum in as
// few bits as it needs. So nothing is decoded on the way, each number is rounded once, and the sum
// is exactly that of what all have sent.
//
// By all, where a codec asks for it (compression::Summing): every rank sends its encoding of the
// whole array to every other, decodes all, its own too, and adds them up in the order of ranks. It
// sends n-1 times the encoded array, which is less only while that is small beside the array: at a
// hundredth of the numbers, 8 bytes each, a ring sends 50 times as much with 2 ranks, and twice as
// much with 50.
//
// With error feedback what a rank's encoding loses of its shares, and of the sum that it owns, goes
// to this rank's residual: one encoding an element, so one residual an element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "trainer/collectives/communicator.h"
#include "trainer/compression/compressor.h"

namespace starling::collectives {

// `data` lies in the flat gradient from element `first` on; what is lost is pending in `compressor`
// under `update`. All ranks call with the same length, codec and order. As in allreduce.h, a rank's
// failure, and bytes that are not the codec's, end the call with a status.
// The bytes that this rank has sent.
absl::StatusOr<std::size_t> EncodedAllreduce(const Communicator& communicator,
                                             compression::Compressor& compressor,
                                             std::uint64_t update, std::size_t first,
                                             std::span<float> data);

}  // namespace starling::collectives
