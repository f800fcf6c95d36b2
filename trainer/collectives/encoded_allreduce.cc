// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/encoded_allreduce.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "common/ranges/ranges.h"
#include "common/status/macros.h"
#include "trainer/collectives/allreduce.h"
#include "trainer/kernels/span_math.h"

namespace starling::collectives {
namespace {

using compression::Codec;
using Range = ranges::Range<std::size_t>;

// One rank's part in one call by owners. Between two ranks the share of the receiver's part comes
// first, then the sum of the sender's: one tag serves both.
class Reduction {
 public:
  Reduction(const Communicator& communicator, compression::Compressor& compressor,
            std::uint64_t update, std::size_t first, std::span<float> data)
      : communicator_(communicator),
        compressor_(compressor),
        codec_(compressor.codec()),
        level_sums_(codec_.level_sums()),
        update_(update),
        first_(first),
        data_(data),
        size_(communicator.size()),
        own_(RangeOf(communicator.rank())),
        incoming_(static_cast<std::size_t>(size_)),
        scales_(static_cast<std::size_t>(size_)) {}

  absl::StatusOr<std::size_t> Run() {
    if (level_sums_ != nullptr) RETURN_IF_ERROR(AgreeOnScales());
    LayOut();
    if (codec_.fixed_size()) PostReceives();
    RETURN_IF_ERROR(SendShares());
    RETURN_IF_ERROR(SumUp());
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != communicator_.rank()) RETURN_IF_ERROR(TakeSum(peer));
    }
    for (const transport::Ticket send : sends_) {
      RETURN_IF_ERROR(communicator_.mesh.Wait(send, communicator_.deadline));
    }
    return sent_;
  }

 private:
  // What comes from a peer: its share of my part, and the sum of its own.
  struct Incoming {
    std::span<std::byte> share, sum;
    transport::Ticket share_ticket = 0, sum_ticket = 0;
  };

  Range RangeOf(int rank) const {
    return ranges::PartOf(data_.size(), static_cast<std::size_t>(rank),
                          static_cast<std::size_t>(size_));
  }

  // Of the pieces of all parts; one allreduce, of few numbers.
  absl::Status AgreeOnScales() {
    std::vector<float> mine;
    for (int rank = 0; rank < size_; ++rank) {
      const Range range = RangeOf(rank);
      if (range.size() == 0) continue;
      ASSIGN_OR_RETURN(scales_[rank], compressor_.Scales({first_ + range.begin}, DataOf(range)));
      mine.insert(mine.end(), scales_[rank].begin(), scales_[rank].end());
    }
    std::vector<float> agreed = mine;
    constexpr Algorithm kFewRounds = Algorithm::kRecursiveDoubling;
    RETURN_IF_ERROR(Allreduce(kFewRounds, communicator_, std::span(agreed), ReduceOp::kMaximum));
    for (const Round& round : PlanOf(kFewRounds, {size_, communicator_.rank()}, agreed.size())) {
      for (const Transfer& send : round.sends) sent_ += send.range.size() * sizeof(float);
    }
    for (std::size_t i = 0; i < mine.size(); ++i) {
      if (!(agreed[i] >= mine[i])) {
        return absl::InvalidArgumentError(
            "the ranks' largest scale is below this rank's; all must be of one version");
      }
    }
    auto next = agreed.begin();
    for (std::vector<float>& scales : scales_) {
      std::copy_n(next, scales.size(), scales.begin());
      next += static_cast<std::ptrdiff_t>(scales.size());
    }
    return absl::OkStatus();
  }

  std::span<const float> DataOf(const Range& range) const {
    return range.Of(std::span<const float>(data_));
  }

  // Room for every share and sum, each at a multiple of 8 bytes.
  void LayOut() {
    constexpr std::size_t kAligned = 8;
    std::size_t total = 0;
    const auto room = [&](const Range& range) {
      const std::size_t begin = total;
      total += (codec_.MaxBytes(range.size()) + kAligned - 1) / kAligned * kAligned;
      return begin;
    };
    for (int peer = 0; peer < size_; ++peer) {
      (void)room(own_), (void)room(RangeOf(peer)), (void)room(RangeOf(peer));
    }
    const std::span<std::byte> bytes = communicator_.workspace.Bytes(total);
    total = 0;
    for (int peer = 0; peer < size_; ++peer) {
      const Range theirs = RangeOf(peer);
      incoming_[peer].share = bytes.subspan(room(own_), codec_.MaxBytes(own_.size()));
      incoming_[peer].sum = bytes.subspan(room(theirs), codec_.MaxBytes(theirs.size()));
      outgoing_.push_back(bytes.subspan(room(theirs), codec_.MaxBytes(theirs.size())));
    }
  }

  void PostReceives() {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == communicator_.rank()) continue;
      Incoming& from = incoming_[peer];
      const auto post = [&](std::span<std::byte> bytes) {
        return bytes.empty() ? 0 : communicator_.mesh.PostReceive(peer, communicator_.tag, bytes);
      };
      from.share_ticket = post(from.share);
      from.sum_ticket = post(from.sum);
    }
  }

  // Waits for what was posted; bytes of another size than the largest are received whole, and kept
  // in `message`.
  absl::StatusOr<std::span<const std::byte>> Received(int peer, transport::Ticket ticket,
                                                      std::span<const std::byte> bytes,
                                                      std::string& message) {
    transport::Mesh& mesh = communicator_.mesh;
    if (codec_.fixed_size()) {
      RETURN_IF_ERROR(mesh.Wait(ticket, communicator_.deadline));
      return bytes;
    }
    ASSIGN_OR_RETURN(message, mesh.ReceiveMessage(peer, communicator_.tag, bytes.size(),
                                                  communicator_.deadline));
    return std::as_bytes(std::span(message));
  }

  // Of the part of `owner`.
  absl::StatusOr<std::span<const std::byte>> Encoded(int owner, std::span<const float> values,
                                                     std::span<std::byte> bytes) {
    ASSIGN_OR_RETURN(const std::size_t size,
                     compressor_.Encode(update_, {first_ + RangeOf(owner).begin}, values, bytes,
                                        scales_[owner]));
    return bytes.first(size);
  }

  void Send(int peer, std::span<const std::byte> bytes) {
    sent_ += bytes.size();
    sends_.push_back(communicator_.mesh.PostSend(peer, communicator_.tag, bytes));
  }

  // The next rank's first, so that not all begin with rank 0.
  absl::Status SendShares() {
    for (int i = 1; i < size_; ++i) {
      const int peer = (communicator_.rank() + i) % size_;
      const Range range = RangeOf(peer);
      if (range.size() == 0) continue;
      ASSIGN_OR_RETURN(const auto bytes, Encoded(peer, DataOf(range), outgoing_[peer]));
      Send(peer, bytes);
    }
    return absl::OkStatus();
  }

  absl::Status SumUp() {
    if (own_.size() == 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(const auto bytes, level_sums_ != nullptr ? SumOfLevels() : EncodedSum());
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != communicator_.rank()) Send(peer, bytes);
    }
    return DecodeSum(bytes, own_.Of(data_));
  }

  // Of the own part.
  absl::StatusOr<std::span<const std::byte>> EncodedSum() {
    const std::span<float> mine = own_.Of(data_);
    const std::span<float> scratch = communicator_.workspace.Floats(2 * own_.size());
    const std::span<float> sum = scratch.first(own_.size()), share = scratch.last(own_.size());
    for (int peer = 0; peer < size_; ++peer) {
      const bool is_own = peer == communicator_.rank();
      const std::span<float> into = peer == 0 ? sum : share;
      if (is_own) {
        kernels::Copy(mine, into);
      } else {
        std::string message;
        ASSIGN_OR_RETURN(const auto bytes, Received(peer, incoming_[peer].share_ticket,
                                                    incoming_[peer].share, message));
        RETURN_IF_ERROR(codec_.Decode(bytes, into));
      }
      if (peer > 0) kernels::Add(share, sum);
    }
    return Encoded(communicator_.rank(), sum, outgoing_[communicator_.rank()]);
  }

  absl::StatusOr<std::span<const std::byte>> SumOfLevels() {
    const int self = communicator_.rank();
    std::vector<std::string> messages(static_cast<std::size_t>(size_));
    std::vector<std::span<const std::byte>> shares(messages.size());
    ASSIGN_OR_RETURN(shares[self], Encoded(self, DataOf(own_), incoming_[self].share));
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == self) continue;
      const Incoming& from = incoming_[peer];
      ASSIGN_OR_RETURN(shares[peer], Received(peer, from.share_ticket, from.share, messages[peer]));
    }
    const std::span<std::byte> sum = outgoing_[self];
    ASSIGN_OR_RETURN(const std::size_t size, level_sums_->Add(shares, own_.size(), sum));
    return sum.first(size);
  }

  absl::Status DecodeSum(std::span<const std::byte> bytes, std::span<float> values) const {
    if (level_sums_ == nullptr) return codec_.Decode(bytes, values);
    return level_sums_->Decode(bytes, size_, values);
  }

  absl::Status TakeSum(int peer) {
    const Range range = RangeOf(peer);
    if (range.size() == 0) return absl::OkStatus();
    std::string message;
    ASSIGN_OR_RETURN(const auto bytes,
                     Received(peer, incoming_[peer].sum_ticket, incoming_[peer].sum, message));
    return DecodeSum(bytes, range.Of(data_));
  }

  const Communicator& communicator_;
  compression::Compressor& compressor_;
  const Codec& codec_;
  const compression::LevelSums* const level_sums_;  // null: shares are decoded
  const std::uint64_t update_;
  const std::size_t first_;
  const std::span<float> data_;
  const int size_;
  const Range own_;
  std::vector<Incoming> incoming_;              // by rank
  std::vector<std::span<std::byte>> outgoing_;  // shares by rank; my own place: the sum
  std::vector<std::vector<float>> scales_;      // by the owner of the part; empty without levels
  std::vector<transport::Ticket> sends_;
  std::size_t sent_ = 0;  // bytes
};

// Everybody sends what it has encoded to everybody, and adds up all in the order of ranks; its own
// as it arrives elsewhere.
absl::StatusOr<std::size_t> SumOfAll(const Communicator& communicator,
                                     compression::Compressor& compressor, std::uint64_t update,
                                     std::size_t first, std::span<float> data) {
  const Codec& codec = compressor.codec();
  transport::Mesh& mesh = communicator.mesh;
  const std::size_t most = codec.MaxBytes(data.size());
  const std::span<std::byte> room = communicator.workspace.Bytes(most);
  ASSIGN_OR_RETURN(const std::size_t size, compressor.Encode(update, {first}, data, room));
  const std::span<const std::byte> mine = room.first(size);
  std::vector<transport::Ticket> sends;
  for (int i = 1; i < mesh.size(); ++i) {
    sends.push_back(mesh.PostSend((mesh.rank() + i) % mesh.size(), communicator.tag, mine));
  }
  const std::span<float> one = communicator.workspace.Floats(data.size());
  for (int rank = 0; rank < mesh.size(); ++rank) {
    std::string message;
    if (rank != mesh.rank()) {
      ASSIGN_OR_RETURN(message,
                       mesh.ReceiveMessage(rank, communicator.tag, most, communicator.deadline));
    }
    const auto theirs = std::as_bytes(std::span(message));
    RETURN_IF_ERROR(codec.Decode(rank == mesh.rank() ? mine : theirs, rank == 0 ? data : one));
    if (rank > 0) kernels::Add(one, data);
  }
  for (const transport::Ticket send : sends) {
    RETURN_IF_ERROR(mesh.Wait(send, communicator.deadline));
  }
  return size * sends.size();
}

}  // namespace

absl::StatusOr<std::size_t> EncodedAllreduce(const Communicator& communicator,
                                             compression::Compressor& compressor,
                                             std::uint64_t update, std::size_t first,
                                             std::span<float> data) {
  if (communicator.size() == 1 || data.empty()) return 0;
  if (compressor.codec().summing() == compression::Summing::kByAll) {
    return SumOfAll(communicator, compressor, update, first, data);
  }
  return Reduction(communicator, compressor, update, first, data).Run();
}

}  // namespace starling::collectives
