// SPDX-License-Identifier: Apache-2.0
// What stands for parameters in the simulation: the running hash of everything that made them.
#pragma once

#include <cstdint>
#include <vector>

namespace starling::simulation {

inline std::uint64_t Mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a ^ (b + 0x9e3779b97f4a7c15ULL + (a << 6) + (a >> 2));
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Remembers the hash after every step, so that one content can be asked whether it descends from
// another.
struct Content {
  std::vector<std::uint64_t> prefix = {1};  // prefix[k]: after k steps

  std::int64_t step() const { return static_cast<std::int64_t>(prefix.size()) - 1; }
  std::uint64_t hash() const { return prefix.back(); }
  void Apply(std::uint64_t update) { prefix.push_back(Mix(prefix.back(), update)); }
  bool Holds(std::int64_t step, std::uint64_t hash) const {
    return step < static_cast<std::int64_t>(prefix.size()) &&
           prefix[static_cast<std::size_t>(step)] == hash;
  }
};

}  // namespace starling::simulation
