// SPDX-License-Identifier: Apache-2.0
// A client and one shard whose epoch goes on while the client starts over, since another shard was
// restored: may it believe what it hears? The client numbers its pushes from 1 in each of its
// lives; a life begins with the view in which it starts over (`joined`). Each push is for a lease.
// Pushes and acknowledgements arrive at any time, in any order, again and again, or never.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

#include "trainer/model/search.h"

namespace starling::model {

struct ClientRules {
  bool acknowledged_to_whom = true;  // G5: an acknowledgement names the client's life
  bool admitted_first = true;        // G4: a shard takes pushes of lives that its log has admitted
};

struct ClientOptions {
  int lives = 2;
  int pushes = 2;  // of each life, and leases
  ClientRules rules;
};

constexpr int kMostLives = 3;
constexpr int kMostPushes = 3;

struct ClientState {
  std::array<std::array<std::uint8_t, kMostPushes>, kMostLives> leases;  // of each push, plus 1
  std::array<std::uint8_t, kMostLives> answered;  // pushes of each life, bit mask
  std::uint8_t published;                         // lives that some view has begun
  std::uint8_t life, believed;                    // the client's; its pushes acknowledged
  std::uint8_t admitted, last, ledger;            // the shard's
  std::uint8_t lost;                              // a push was believed that the shard lacks
  std::array<std::uint8_t, 5> unused;
};
static_assert(std::has_unique_object_representations_v<ClientState>);

class ClientModel {
 public:
  using State = ClientState;

  explicit ClientModel(ClientOptions options) : options_(options) {}

  State Initial() const;
  void Next(const State& state, Successors<State>& next) const;
  std::string Violation(const State& state) const;
  std::string Stuck(const State& state) const;

 private:
  int Pushed(const State& state) const;
  bool Push(State& state, int lease) const;
  bool Take(State& state, int life, int push) const;
  bool Believe(State& state, int life, int push) const;

  const ClientOptions options_;
};

}  // namespace starling::model
