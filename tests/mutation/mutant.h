// SPDX-License-Identifier: Apache-2.0
// Included first by every rewritten source: which of its mutants is alive. STARLING_MUTANT names it
// by its number; without it all lines are as they were written. With STARLING_MUTANT_REACHED the
// process writes the numbers of all mutants that it came by into that file when it ends.
#pragma once

namespace starling::mutant {

extern const int kAlive;
extern unsigned char reached[];

inline bool On(int id) {
  reached[id] = 1;
  return id == kAlive;
}
inline bool Not(int id, bool value) { return On(id) ? !value : value; }

// Comparisons whose mutant is the next one; where a type has none, the opposite.
template <typename A, typename B>
bool Less(int id, const A& a, const B& b) {
  if constexpr (requires { a <= b; }) {
    return On(id) ? a <= b : a < b;
  } else {
    return Not(id, a < b);
  }
}
template <typename A, typename B>
bool LessEqual(int id, const A& a, const B& b) {
  return On(id) ? a < b : a <= b;
}
template <typename A, typename B>
bool Greater(int id, const A& a, const B& b) {
  if constexpr (requires { a >= b; }) {
    return On(id) ? a >= b : a > b;
  } else {
    return Not(id, a > b);
  }
}
template <typename A, typename B>
bool GreaterEqual(int id, const A& a, const B& b) {
  return On(id) ? a > b : a >= b;
}
template <typename A, typename B>
bool Equal(int id, const A& a, const B& b) {
  return Not(id, a == b);
}
template <typename A, typename B>
bool Unequal(int id, const A& a, const B& b) {
  return Not(id, a != b);
}

}  // namespace starling::mutant
