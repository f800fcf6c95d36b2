// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/emulation.h"

#include <algorithm>
#include <optional>
#include <queue>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/check.h"
#include "trainer/transport/card.h"
#include "trainer/transport/frame.h"
#include "trainer/transport/shaper.h"

namespace starling::collectives {
namespace {

// What comes, to one rank from one other, in the order in which it was sent.
struct Stretch {
  std::vector<std::int64_t> arrivals;
  std::size_t taken = 0;
  std::int64_t last = 0;

  void Put(std::int64_t arrival) {
    if (taken == arrivals.size()) {
      arrivals.clear();
      taken = 0;
    }
    arrivals.push_back(arrival);
    last = arrival;
  }
  bool empty() const { return taken == arrivals.size(); }
  std::int64_t front() const { return arrivals[taken]; }
};

class Emulation {
 public:
  // `alone`: each message has a card of its own, so that nothing but what it is made of holds it
  // up.
  Emulation(const std::vector<Script>& scripts, std::size_t element,
            const transport::Shaping& shaping, bool alone)
      : scripts_(scripts),
        element_(element),
        per_host_(static_cast<std::size_t>(std::max(shaping.pods_per_host, 1))),
        delay_(absl::ToInt64Nanoseconds(shaping.delay)),
        per_byte_(shaping.bytes_per_second > 0 ? 1e9 / shaping.bytes_per_second : 0),
        alone_(alone),
        shaping_(shaping),
        ranks_(scripts.size()),
        cards_((scripts.size() + per_host_ - 1) / per_host_) {}

  // Until the last rank has all that it receives.
  double Seconds() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      Post(rank, 0);
      due_.push({0, rank});
    }
    std::int64_t end = 0;
    while (!due_.empty()) {
      const auto [now, rank] = due_.top();
      due_.pop();
      Receive(rank, now);
      end = std::max(end, now);
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      STARLING_CHECK(ranks_[rank].received == scripts_[rank].incoming.size(),
                     "nobody waits for ever");
    }
    return static_cast<double>(end) * 1e-9;
  }

 private:
  using Due = std::pair<std::int64_t, std::size_t>;  // nanoseconds, rank

  struct State {
    std::size_t sent = 0, received = 0;
    std::optional<std::size_t> waits_for;
    std::unordered_map<std::size_t, Stretch> from;
    std::unordered_map<std::size_t, transport::Wire> to;  // where links are shaped by themselves
  };

  // `left`: its card is done with it.
  std::int64_t PassWire(std::size_t rank, std::size_t peer, std::int64_t left, std::int64_t took,
                        std::size_t bytes) {
    if (shaping_.links.empty()) return left;
    const auto [wire, is_new] = ranks_[rank].to.try_emplace(peer);
    if (is_new || alone_) {
      wire->second = transport::WireBetween(absl::StrCat("worker-", rank),
                                            absl::StrCat("worker-", peer), shaping_);
    }
    return wire->second.Pass(left, took, bytes);
  }

  std::int64_t ArrivalOf(std::size_t rank, std::size_t peer, std::size_t bytes, std::int64_t now,
                         std::int64_t last) {
    const std::size_t host = rank / per_host_;
    if (host == peer / per_host_) return std::max(now, last);
    const std::size_t other = peer % ranks_.size() / per_host_;
    const auto takes = static_cast<std::int64_t>(static_cast<double>(bytes) * per_byte_);
    const std::int64_t sent = alone_ ? now + takes : cards_[host].Send(now, takes);
    const std::int64_t left = PassWire(rank, peer, sent, takes, bytes);
    if (alone_) return std::max(left + delay_, last);
    return cards_[other].Receive(std::max(left + delay_, last) - takes, takes);
  }

  void Post(std::size_t rank, std::int64_t now) {
    State& self = ranks_[rank];
    const std::vector<Script::Sent>& outgoing = scripts_[rank].outgoing;
    for (; self.sent < outgoing.size() && outgoing[self.sent].receives_before <= self.received;
         ++self.sent) {
      const auto peer = static_cast<std::size_t>(outgoing[self.sent].peer);
      const std::size_t bytes = transport::kHeaderBytes + outgoing[self.sent].elements * element_;
      const std::size_t player = peer % ranks_.size();
      Stretch& stretch = ranks_[player].from[rank];
      stretch.Put(ArrivalOf(rank, peer, bytes, now, stretch.last));
      if (ranks_[player].waits_for == rank) {
        ranks_[player].waits_for.reset();
        due_.push({now, player});
      }
    }
  }

  void Receive(std::size_t rank, std::int64_t now) {
    State& self = ranks_[rank];
    const std::vector<std::int32_t>& incoming = scripts_[rank].incoming;
    while (self.received < incoming.size()) {
      const std::size_t peer = static_cast<std::size_t>(incoming[self.received]) % ranks_.size();
      Stretch& stretch = self.from[peer];
      if (stretch.empty()) {
        self.waits_for = peer;
        return;
      }
      if (stretch.front() > now) return due_.push({stretch.front(), rank});
      ++stretch.taken;
      ++self.received;
      Post(rank, now);
    }
  }

  const std::vector<Script>& scripts_;
  const std::size_t element_;
  const std::size_t per_host_;
  const std::int64_t delay_;
  const double per_byte_;
  const bool alone_;
  const transport::Shaping& shaping_;
  std::vector<State> ranks_;
  std::vector<transport::Card> cards_;  // by host
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
};

// The next rank's copy leaves first, and all are added in the order of ranks.
Script NaiveScript(Place place, std::size_t length) {
  Script script;
  for (int i = 1; i < place.size; ++i) {
    script.outgoing.push_back(
        {(place.rank + i) % place.size, 0, static_cast<std::uint32_t>(length)});
  }
  for (int peer = 0; peer < place.size; ++peer) {
    if (peer != place.rank) script.incoming.push_back(peer);
  }
  return script;
}

}  // namespace

Script ScriptOf(const Schedule& schedule, std::size_t piece) {
  Script script;
  for (const Pieces::Outgoing& sent : OutgoingPieces(schedule, piece)) {
    script.outgoing.push_back({sent.peer, static_cast<std::uint32_t>(sent.receives_before),
                               static_cast<std::uint32_t>(sent.range.size())});
  }
  for (const Round& round : schedule) {
    for (const Receipt& receipt : round.receipts) {
      script.incoming.insert(script.incoming.end(), PieceCount(receipt.range, piece), receipt.peer);
    }
  }
  return script;
}

Script ScriptOf(Algorithm algorithm, Place place, std::size_t length, std::size_t element) {
  if (algorithm == Algorithm::kNaive) return NaiveScript(place, length);
  return ScriptOf(PlanOf(algorithm, place, length), kPieceBytes / element);
}

EmulatedTime Emulate(const std::vector<Script>& ranks, std::size_t element,
                     const transport::Shaping& shaping) {
  EmulatedTime time;
  const auto per_host = static_cast<std::size_t>(std::max(shaping.pods_per_host, 1));
  std::vector<double> sends(ranks.size() / per_host + 1), receives(sends.size());
  const double per_byte = shaping.bytes_per_second > 0 ? 1 / shaping.bytes_per_second : 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const Script::Sent& sent : ranks[rank].outgoing) {
      const std::size_t to = static_cast<std::size_t>(sent.peer) / per_host;
      if (to == rank / per_host) continue;
      const std::size_t receiver = static_cast<std::size_t>(sent.peer) % ranks.size() / per_host;
      const double seconds =
          static_cast<double>(transport::kHeaderBytes + sent.elements * element) * per_byte;
      sends[rank / per_host] += seconds;
      receives[receiver] += seconds;
      time.work += seconds;
    }
  }
  time.busiest_card = std::max(std::ranges::max(sends), std::ranges::max(receives));
  time.longest_path = Emulation(ranks, element, shaping, /*alone=*/true).Seconds();
  time.seconds = Emulation(ranks, element, shaping, /*alone=*/false).Seconds();
  return time;
}

}  // namespace starling::collectives
