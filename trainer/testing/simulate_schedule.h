// SPDX-License-Identifier: Apache-2.0
// Plays the schedules of all ranks of a collective on arrays in this process, round by round: what
// they compute, by the definition of a schedule, without a network.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "common/status/check.h"
#include "trainer/collectives/schedule.h"

namespace starling::collectives::testing {

// `from` and `to` are by rank, and the same where a collective works in place. Ends the process if
// a rank waits for what nobody sends, or gets what nobody wants.
template <typename T>
void Simulate(const std::vector<Schedule>& schedules, const std::vector<std::vector<T>>& from,
              std::vector<std::vector<T>>& to, const std::function<T(T, T)>& combine) {
  const bool in_place = &from == &to;
  const auto ranks = static_cast<int>(schedules.size());
  for (std::size_t round = 0; round < schedules[0].size(); ++round) {
    std::map<std::pair<int, int>, std::deque<std::vector<T>>> on_the_way;
    const std::vector<std::vector<T>> before = in_place ? to : from;
    for (int rank = 0; rank < ranks; ++rank) {
      STARLING_CHECK(schedules[rank].size() == schedules[0].size(), "as many rounds at every rank");
      for (const Transfer& send : schedules[rank][round].sends) {
        const auto part = send.range.Of(std::span(before[rank]));
        on_the_way[{rank, send.peer}].emplace_back(part.begin(), part.end());
      }
    }
    for (int rank = 0; rank < ranks; ++rank) {
      for (const Receipt& receipt : schedules[rank][round].receipts) {
        auto& waiting = on_the_way[{receipt.peer, rank}];
        STARLING_CHECK(!waiting.empty(), "what is received was sent in the same round");
        const std::vector<T> came = std::move(waiting.front());
        waiting.pop_front();
        STARLING_CHECK(came.size() == receipt.range.size(), "both mean as many elements");
        for (std::size_t i = 0; i < came.size(); ++i) {
          T& here = to[rank][receipt.range.begin + i];
          here = receipt.combine ? combine(came[i], here) : came[i];
        }
      }
    }
    for (const auto& [pair, left] : on_the_way) {
      STARLING_CHECK(left.empty(), "what is sent is received in the same round");
    }
  }
}

inline std::size_t ElementsSent(const Schedule& schedule) {
  std::size_t sent = 0;
  for (const Round& round : schedule) {
    for (const Transfer& send : round.sends) sent += send.range.size();
  }
  return sent;
}

}  // namespace starling::collectives::testing
