// SPDX-License-Identifier: Apache-2.0
#include "mutant.h"

#include <cstdio>
#include <cstdlib>

namespace starling::mutant {

const int kAlive = [] {
  const char* id = std::getenv("STARLING_MUTANT");
  return id == nullptr ? -1 : std::atoi(id);
}();
unsigned char reached[STARLING_MUTANTS];

namespace {

struct AtExit {
  ~AtExit() {
    const char* path = std::getenv("STARLING_MUTANT_REACHED");
    std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "w");
    if (file == nullptr) return;
    for (int id = 0; id < STARLING_MUTANTS; ++id) {
      if (reached[id] != 0) std::fprintf(file, "%d\n", id);
    }
    std::fclose(file);
  }
} at_exit;

}  // namespace
}  // namespace starling::mutant
