// SPDX-License-Identifier: Apache-2.0
// How many clocks each client of a view has completed: the vector clock under every consistency
// model, with the rules for joining and leaving that keep it from standing still or from breaking
// a promise.
//
// The minimum is computed, never cached: a departure may raise it.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "common/bytes/encoding.h"
#include "trainer/consistency/rules.h"
#include "trainer/membership/types.h"

namespace starling::consistency {

using Clock = std::int64_t;

// The clock of a read that waits until every client rests.
inline constexpr Clock kAtRest = std::numeric_limits<Clock>::max();

// One life of a worker as a client: a process that missed a view is another client.
struct Client {
  membership::MemberId id;
  membership::ViewNumber joined = 0;
  auto operator<=>(const Client&) const = default;  // NOLINT(modernize-use-nullptr)
};

void Encode(const Client& client, bytes::Writer& out);
Client DecodeClient(bytes::Reader& in);

// Thread-compatible.
class Clocks {
 public:
  explicit Clocks(Rules rules = {}) : rules_(rules) {}

  // The clients of a view: drops the clocks of all others, admits new ones at the minimum of those
  // that stay, or at the highest clock ever seen if nobody stays.
  void OnView(const std::vector<Client>& clients);

  // `client` has completed `completed` clocks. Never goes back. Unknown clients are ignored.
  void Advance(const Client& client, Clock completed);

  // `client` has nothing to do: until it wakes nobody waits for it.
  void Rest(const Client& client);
  // It goes on at the minimum of those that do not rest, or at the highest clock ever seen if all
  // do; never below its own.
  void Wake(const Client& client);
  bool Rests(const Client& client) const { return resting_.contains(client); }

  std::optional<Clock> Of(const Client& client) const;
  // Over all clients that do not rest, or all of those but `except`; nothing if there are none.
  std::optional<Clock> Minimum() const;
  std::optional<Clock> MinimumBut(const Client& except) const;
  Clock highest() const { return highest_; }
  std::size_t size() const { return clocks_.size(); }
  std::size_t awake() const { return clocks_.size() - resting_.size(); }
  const std::map<Client, Clock>& all() const { return clocks_; }

  void Save(bytes::Writer& out) const;
  void Load(bytes::Reader& in);

 private:
  Rules rules_;
  std::map<Client, Clock> clocks_;
  std::set<Client> resting_;  // of those
  Clock highest_ = 0;
};

}  // namespace starling::consistency
