// SPDX-License-Identifier: Apache-2.0
#include "trainer/consistency/clocks.h"

#include <algorithm>
#include <string>

namespace starling::consistency {

void Encode(const Client& client, bytes::Writer& out) {
  out.PutText(client.id.pod_uid);
  out.Put(client.id.start);
  out.Put(client.joined);
}

Client DecodeClient(bytes::Reader& in) {
  Client client;
  client.id.pod_uid = std::string(in.GetText());
  client.id.start = in.Get<std::int64_t>();
  client.joined = in.Get<std::uint64_t>();
  return client;
}

void Clocks::OnView(const std::vector<Client>& clients) {
  std::map<Client, Clock> kept;
  for (const auto& [client, clock] : clocks_) {
    const bool stays = std::find(clients.begin(), clients.end(), client) != clients.end();
    if (stays || !rules_.drop_departed) kept[client] = clock;
  }
  clocks_ = std::move(kept);
  std::erase_if(resting_, [this](const Client& client) { return !clocks_.contains(client); });
  const Clock start = rules_.admit_at_minimum ? Minimum().value_or(highest_) : 0;
  for (const Client& client : clients) clocks_.emplace(client, start);
}

void Clocks::Advance(const Client& client, Clock completed) {
  const auto clock = clocks_.find(client);
  if (clock == clocks_.end()) return;
  clock->second = std::max(clock->second, completed);
  highest_ = std::max(highest_, clock->second);
}

void Clocks::Rest(const Client& client) {
  if (clocks_.contains(client)) resting_.insert(client);
}

void Clocks::Wake(const Client& client) {
  if (resting_.erase(client) == 0) return;
  const Clock others = MinimumBut(client).value_or(highest_);
  if (rules_.admit_at_minimum) Advance(client, others);
}

std::optional<Clock> Clocks::Of(const Client& client) const {
  const auto clock = clocks_.find(client);
  if (clock == clocks_.end()) return std::nullopt;
  return clock->second;
}

std::optional<Clock> Clocks::Minimum() const {
  std::optional<Clock> minimum;
  for (const auto& [client, clock] : clocks_) {
    if (!Rests(client)) minimum = minimum ? std::min(*minimum, clock) : clock;
  }
  return minimum;
}

std::optional<Clock> Clocks::MinimumBut(const Client& except) const {
  std::optional<Clock> minimum;
  for (const auto& [client, clock] : clocks_) {
    if (client == except || Rests(client)) continue;
    minimum = minimum ? std::min(*minimum, clock) : clock;
  }
  return minimum;
}

void Clocks::Save(bytes::Writer& out) const {
  out.Put(highest_);
  out.Put(static_cast<std::uint64_t>(clocks_.size()));
  for (const auto& [client, clock] : clocks_) {
    Encode(client, out);
    out.Put(clock);
    out.Put(static_cast<std::uint8_t>(Rests(client)));
  }
}

void Clocks::Load(bytes::Reader& in) {
  clocks_.clear();
  resting_.clear();
  highest_ = in.Get<Clock>();
  for (std::uint64_t left = in.GetCount(33); left > 0; --left) {
    const Client client = DecodeClient(in);
    clocks_[client] = in.Get<Clock>();
    if (in.Get<std::uint8_t>() != 0) resting_.insert(client);
  }
}

}  // namespace starling::consistency
