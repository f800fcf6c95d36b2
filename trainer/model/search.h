// SPDX-License-Identifier: Apache-2.0
// Breadth-first search over all states of a small model. Breadth-first, so that the first violation
// found is one with the fewest events. A model is a class with
//
//   using State = ...;                      // trivially copyable; no padding, no pointers
//   State Initial() const;
//   void Next(const State&, Successors<State>& next) const;  // one Add for each event
//   std::string Violation(const State&) const;    // of a state that is reached; empty: none
//   std::string Stuck(const State&) const;        // why no run without faults finishes from here
//
// Visited states are kept as 64-bit hashes: a search of N states misses one with a probability of
// about N * N / 2^65 (for ten million: 3 in a million). States that wait are kept with their runs
// of zero bytes squeezed out.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace starling::model {

struct Limits {
  std::uint64_t states = 20'000'000;
  // Stuck() is asked of one state in so many (chosen by hash); 0: of none.
  std::uint64_t liveness_every = 1;
};

struct Result {
  std::uint64_t states = 0;
  bool exhausted = false;           // all states that the bounds allow were seen
  std::string violation;            // empty: none found
  std::vector<std::string> events;  // that lead to it, in words
};

template <typename State>
class Successors {
 public:
  explicit Successors(int told = -1) : told_(told) {}

  // `words` says what happened. It is called only where it is told: most events never are.
  template <typename Words>
  void Add(const State& next, Words&& words) {
    if (told_ == static_cast<int>(states_.size())) text_ = words();
    states_.push_back(next);
  }
  const std::vector<State>& states() const { return states_; }
  const std::string& text() const { return text_; }
  void Clear() { states_.clear(); }

 private:
  int told_;  // which of them is to be put in words; -1: none
  std::vector<State> states_;
  std::string text_;
};

namespace internal {

class HashSet {
 public:
  HashSet() : slots_(std::size_t{1} << 16) {}

  // False if it was in already.
  bool Insert(std::uint64_t hash) {
    if (hash == 0) hash = 1;
    if ((count_ + 1) * 10 > slots_.size() * 7) Grow();
    if (!Put(hash)) return false;
    ++count_;
    return true;
  }

 private:
  bool Put(std::uint64_t hash) {
    std::size_t at = hash & (slots_.size() - 1);
    for (; slots_[at] != 0; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at] == hash) return false;
    }
    slots_[at] = hash;
    return true;
  }

  void Grow() {
    const std::vector<std::uint64_t> old =
        std::exchange(slots_, std::vector<std::uint64_t>(slots_.size() * 2));
    for (const std::uint64_t hash : old) {
      if (hash != 0) Put(hash);
    }
  }

  std::vector<std::uint64_t> slots_;
  std::size_t count_ = 0;
};

// Words of eight bytes that are not zero, after a bitmap of which they are.
template <typename State>
std::string Pack(const State& state) {
  constexpr std::size_t kWords = sizeof(State) / 8;
  static_assert(sizeof(State) % 8 == 0);
  std::uint64_t words[kWords];
  std::memcpy(words, &state, sizeof(State));
  std::string packed((kWords + 7) / 8, '\0');
  for (std::size_t i = 0; i < kWords; ++i) {
    if (words[i] == 0) continue;
    packed[i / 8] = static_cast<char>(packed[i / 8] | 1 << (i % 8));
    packed.append(reinterpret_cast<const char*>(&words[i]), 8);
  }
  return packed;
}

template <typename State>
State Unpack(const std::string& packed) {
  constexpr std::size_t kWords = sizeof(State) / 8;
  std::uint64_t words[kWords];
  std::size_t at = (kWords + 7) / 8;
  for (std::size_t i = 0; i < kWords; ++i) {
    words[i] = 0;
    if ((packed[i / 8] >> (i % 8) & 1) == 0) continue;
    std::memcpy(&words[i], packed.data() + at, 8);
    at += 8;
  }
  State state;
  std::memcpy(&state, words, sizeof(State));
  return state;
}

inline std::uint64_t HashOf(const std::string& bytes) {
  std::uint64_t hash = 0x9E3779B97F4A7C15U ^ bytes.size();
  const auto mix = [&](std::uint64_t word) {
    hash = (hash ^ word) * 0xff51afd7ed558ccdU;
    hash ^= hash >> 32;
  };
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + at, 8);
    mix(word);
  }
  std::uint64_t rest = 0;
  std::memcpy(&rest, bytes.data() + at, bytes.size() - at);
  mix(rest);
  mix(0);
  return hash;
}

}  // namespace internal

template <typename Model>
Result Search(const Model& model, const Limits& limits) {
  using State = typename Model::State;
  struct Step {
    std::uint32_t parent;
    std::uint32_t event;  // index among the parent's successors
  };
  Result result;
  internal::HashSet seen;
  std::vector<Step> steps;
  std::deque<std::pair<std::string, std::uint32_t>> waiting;
  Successors<State> next;

  const auto tell = [&](std::uint32_t id, const std::string& violation) {
    std::vector<std::uint32_t> events;
    for (; id != 0; id = steps[id].parent) events.push_back(steps[id].event);
    State state = model.Initial();
    for (auto event = events.rbegin(); event != events.rend(); ++event) {
      Successors<State> replay(static_cast<int>(*event));
      model.Next(state, replay);
      result.events.push_back(replay.text());
      state = replay.states()[*event];
    }
    result.violation = violation;
    result.states = steps.size();
    return result;
  };

  const State initial = model.Initial();
  std::string packed = internal::Pack(initial);
  seen.Insert(internal::HashOf(packed));
  steps.push_back({0, 0});
  waiting.emplace_back(std::move(packed), 0);
  while (!waiting.empty()) {
    const auto [bytes, id] = std::move(waiting.front());
    waiting.pop_front();
    const State state = internal::Unpack<State>(bytes);
    if (limits.liveness_every != 0 && internal::HashOf(bytes) % limits.liveness_every == 0) {
      const std::string stuck = model.Stuck(state);
      if (!stuck.empty()) return tell(id, stuck);
    }
    next.Clear();
    model.Next(state, next);
    for (std::size_t event = 0; event < next.states().size(); ++event) {
      std::string one = internal::Pack(next.states()[event]);
      if (!seen.Insert(internal::HashOf(one))) continue;
      const auto child = static_cast<std::uint32_t>(steps.size());
      steps.push_back({id, static_cast<std::uint32_t>(event)});
      const std::string violation = model.Violation(next.states()[event]);
      if (!violation.empty()) return tell(child, violation);
      waiting.emplace_back(std::move(one), child);
    }
    if (steps.size() >= limits.states) {
      result.states = steps.size();
      return result;
    }
  }
  result.exhausted = true;
  result.states = steps.size();
  return result;
}

}  // namespace starling::model
