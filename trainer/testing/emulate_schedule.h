// SPDX-License-Identifier: Apache-2.0
// How long a collective takes on an emulated network: plays what all ranks do, piece by piece as
// Execute carries it out, by a clock that nobody waits for. The cards are those of the transports
// (transport::Shaper), so it is what members on such a network would measure, on a machine that
// does nothing else and takes no time for its own part. The same on every machine, however loaded.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "common/status/check.h"
#include "trainer/collectives/execute.h"
#include "trainer/transport/frame.h"
#include "trainer/transport/shaper.h"

namespace starling::collectives::testing {

class Emulation {
 public:
  // `ranks`: what each does; elements are of `element` bytes.
  Emulation(std::vector<Pieces> ranks, std::size_t element, const transport::Shaping& network)
      : ranks_(ranks.size()), element_(element) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      ranks_[rank].pieces = std::move(ranks[rank]);
      ranks_[rank].card = transport::Shaper(network);
    }
  }

  // Until the last rank has all that it receives.
  double Seconds() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      Post(rank, kBegin);
      due_.push({kBegin, rank});
    }
    std::int64_t end = kBegin;
    while (!due_.empty()) {
      const auto [now, rank] = due_.top();
      due_.pop();
      Receive(rank, now);
      end = std::max(end, now);
    }
    for (const Rank& rank : ranks_) {
      STARLING_CHECK(rank.received == rank.pieces.incoming.size(), "nobody waits for ever");
    }
    return static_cast<double>(end - kBegin) * 1e-9;
  }

 private:
  static constexpr std::int64_t kBegin = 1'000'000'000;
  using Due = std::pair<std::int64_t, std::size_t>;  // nanoseconds, rank

  struct Rank {
    Pieces pieces;
    transport::Shaper card;
    std::size_t sent = 0, received = 0;
    std::optional<std::size_t> waits_for;
  };
  struct Link {
    std::deque<std::int64_t> arrivals;
    std::int64_t last = 0;
  };

  void Post(std::size_t rank, std::int64_t now) {
    Rank& self = ranks_[rank];
    while (self.sent < self.pieces.outgoing.size() &&
           self.pieces.outgoing[self.sent].receives_before <= self.received) {
      const Pieces::Outgoing& piece = self.pieces.outgoing[self.sent++];
      const auto peer = static_cast<std::size_t>(piece.peer);
      const std::size_t bytes = transport::kHeaderBytes + piece.range.size() * element_;
      Link& link = links_[{rank, peer}];
      link.last = ranks_[peer].card.Arrive(self.card.Depart(bytes, now), bytes, link.last);
      link.arrivals.push_back(link.last);
      if (ranks_[peer].waits_for == rank) {
        ranks_[peer].waits_for.reset();
        due_.push({now, peer});
      }
    }
  }

  void Receive(std::size_t rank, std::int64_t now) {
    Rank& self = ranks_[rank];
    while (self.received < self.pieces.incoming.size()) {
      const auto peer = static_cast<std::size_t>(self.pieces.incoming[self.received].peer);
      Link& link = links_[{peer, rank}];
      if (link.arrivals.empty()) {
        self.waits_for = peer;
        return;
      }
      if (link.arrivals.front() > now) return due_.push({link.arrivals.front(), rank});
      link.arrivals.pop_front();
      ++self.received;
      Post(rank, now);
    }
  }

  std::vector<Rank> ranks_;
  const std::size_t element_;
  std::map<std::pair<std::size_t, std::size_t>, Link> links_;  // from, to
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
};

}  // namespace starling::collectives::testing
