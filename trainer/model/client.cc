// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/client.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "trainer/model/bits.h"

namespace starling::model {
ClientState ClientModel::Initial() const { return {}; }

int ClientModel::Pushed(const State& state) const {
  const auto& leases = state.leases[state.life];
  return static_cast<int>(
      std::count_if(leases.begin(), leases.end(), [](std::uint8_t lease) { return lease != 0; }));
}

// The next push of the client's life, for a lease that this life has not pushed yet.
bool ClientModel::Push(State& state, int lease) const {
  auto& leases = state.leases[state.life];
  const int push = Pushed(state);
  if (push >= options_.pushes || std::count(leases.begin(), leases.end(), lease + 1) > 0) {
    return false;
  }
  leases[push] = static_cast<std::uint8_t>(lease + 1);
  return true;
}

// A push arrives at the shard. What is old is answered again; what is not the next waits.
bool ClientModel::Take(State& state, int life, int push) const {
  if (state.leases[life][push] == 0) return false;
  if (options_.rules.admitted_first && life != state.admitted) return false;
  if (push < state.last) {
    if (Has(state.answered[life], push)) return false;
    state.answered[life] |= Bit(push);
    return true;
  }
  if (push != state.last) return false;
  state.last = static_cast<std::uint8_t>(push + 1);
  state.ledger |= Bit(state.leases[life][push] - 1);
  state.answered[life] |= Bit(push);
  return true;
}

bool ClientModel::Believe(State& state, int life, int push) const {
  if (!Has(state.answered[life], push)) return false;
  if (options_.rules.acknowledged_to_whom && life != state.life) return false;
  const std::uint8_t lease = state.leases[state.life][push];
  if (lease == 0 || Has(state.believed, push)) return false;
  state.believed |= Bit(push);
  if (!Has(state.ledger, lease - 1)) state.lost = 1;
  return true;
}

void ClientModel::Next(const State& state, Successors<State>& next) const {
  State after = state;
  const auto attempt = [&](bool done, auto&& words) {
    if (!done) return;
    next.Add(after, words);
    after = state;
  };
  if (state.published + 1 < options_.lives) {
    ++after.published;
    attempt(true, [] { return std::string("a view restores another shard: all start over"); });
  }
  if (state.life < state.published) {
    ++after.life;
    after.believed = 0;
    attempt(true, [] { return std::string("the client installs it, and starts over"); });
  }
  if (state.admitted < state.published) {
    ++after.admitted;
    after.last = 0;
    attempt(true, [] { return std::string("the shard's head orders the new list of clients"); });
  }
  for (int lease = 0; lease < options_.pushes; ++lease) {
    attempt(Push(after, lease), [&] {
      return absl::StrCat("the client sends push ", Pushed(state) + 1, " of life ", state.life + 1,
                          ", lease ", lease);
    });
  }
  for (int life = 0; life < options_.lives; ++life) {
    for (int push = 0; push < options_.pushes; ++push) {
      attempt(Take(after, life, push), [&] {
        return absl::StrCat("the shard gets push ", push + 1, " of life ", life + 1,
                            " and answers");
      });
      attempt(Believe(after, life, push),
              [&] { return absl::StrCat("the client hears that push ", push + 1, " is in"); });
    }
  }
}

std::string ClientModel::Violation(const State& state) const {
  return state.lost == 0 ? ""
                         : "the client believes that a push is in which the shard does not have";
}

std::string ClientModel::Stuck(const State& state) const {
  State end = state;
  end.life = end.published;
  if (end.life != state.life) end.believed = 0;
  if (end.admitted != end.published) end.last = 0;
  end.admitted = end.published;
  for (int round = 0; round < options_.pushes; ++round) {
    for (int lease = 0; lease < options_.pushes; ++lease) Push(end, lease);
    for (int push = 0; push < options_.pushes; ++push) {
      Take(end, end.life, push);
      Believe(end, end.life, push);
    }
  }
  if (end.believed == Bit(options_.pushes) - 1) return Violation(end);
  return "the client never hears that all of its pushes are in";
}

}  // namespace starling::model
