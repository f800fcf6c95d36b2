// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/allreduce.h"

#include <algorithm>
#include <vector>

#include "common/status/check.h"
#include "common/status/macros.h"
#include "trainer/kernels/span_math.h"

namespace starling::collectives {

absl::Status NaiveAllreduce(const Communicator& communicator, std::span<float> data) {
  const int size = communicator.size();
  if (size == 1) return absl::OkStatus();
  transport::Mesh& mesh = communicator.mesh;
  const std::size_t length = data.size();
  const std::span<float> scratch =
      communicator.workspace.Floats(static_cast<std::size_t>(size) * length);
  const auto slot = [&](int rank) { return scratch.subspan(rank * length, length); };

  std::vector<transport::Ticket> sends;
  std::vector<transport::Ticket> receives(size, 0);
  for (int peer = 0; peer < size; ++peer) {
    if (peer == communicator.rank()) continue;
    receives[peer] = mesh.PostReceive(peer, communicator.tag, std::as_writable_bytes(slot(peer)));
    sends.push_back(mesh.PostSend(peer, communicator.tag, std::as_bytes(data)));
  }
  kernels::Copy(data, slot(communicator.rank()));
  for (int peer = 0; peer < size; ++peer) {
    if (peer != communicator.rank()) {
      RETURN_IF_ERROR(mesh.Wait(receives[peer], communicator.deadline));
    }
    if (peer > 0) kernels::Add(slot(peer), slot(0));
  }
  for (const transport::Ticket send : sends) {
    RETURN_IF_ERROR(mesh.Wait(send, communicator.deadline));
  }
  kernels::Copy(slot(0), data);
  return absl::OkStatus();
}

double Cost(Algorithm algorithm, int size, std::size_t bytes, const LinkCost& link) {
  if (size <= 1) return 0;
  const double others = size - 1;
  const double m = static_cast<double>(bytes);
  switch (algorithm) {
    case Algorithm::kNaive:
      return link.latency_seconds +
             others * m * (link.seconds_per_byte + link.seconds_per_byte_added) +
             2 * m * link.seconds_per_byte_added;  // copied into scratch memory and back
    case Algorithm::kRing:
      return 2 * others * link.latency_seconds +
             others / size * m * (2 * link.seconds_per_byte + link.seconds_per_byte_added);
    case Algorithm::kSharedMemory:
    case Algorithm::kAuto:
      break;
  }
  STARLING_CHECK(false, "only algorithms that send frames have a cost");
}

Algorithm Choose(int size, std::size_t bytes, const LinkCost& link) {
  return Cost(Algorithm::kRing, size, bytes, link) < Cost(Algorithm::kNaive, size, bytes, link)
             ? Algorithm::kRing
             : Algorithm::kNaive;
}

absl::Status Allreduce(Algorithm algorithm, const Communicator& communicator,
                       std::span<float> data) {
  if (communicator.size() == 1) return absl::OkStatus();
  if (algorithm == Algorithm::kAuto) {
    ASSIGN_OR_RETURN(const transport::Arena* const arena,
                     communicator.mesh.ShareArena(communicator.deadline));
    algorithm = arena != nullptr ? Algorithm::kSharedMemory
                                 : Choose(communicator.size(), data.size_bytes());
  }
  switch (algorithm) {
    case Algorithm::kNaive:
      return NaiveAllreduce(communicator, data);
    case Algorithm::kRing:
      return RingAllreduce(communicator, data);
    case Algorithm::kSharedMemory:
      return SharedMemoryAllreduce(communicator, data);
    case Algorithm::kAuto:
      break;
  }
  STARLING_CHECK(false, "Auto was resolved above");
}

}  // namespace starling::collectives
