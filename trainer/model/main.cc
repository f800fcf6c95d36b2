// SPDX-License-Identifier: Apache-2.0
// starling-model             all searches, some minutes
// starling-model --quick     those of the test suite
// starling-model groups ...  one search with these bounds (searches.h)
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "trainer/model/searches.h"

namespace starling::model {
namespace {

void Print(const Result& result) {
  if (result.violation.empty()) {
    std::printf("nothing found in %llu states%s\n", static_cast<unsigned long long>(result.states),
                result.exhausted ? ", all that there are" : "; there are more");
    return;
  }
  std::printf("found among %llu states: %s\n", static_cast<unsigned long long>(result.states),
              result.violation.c_str());
  int number = 0;
  for (const std::string& event : result.events) std::printf("  %2d %s\n", ++number, event.c_str());
}

// Whether it came out as it should.
bool Play(const NamedSearch& search, const char* kind) {
  const absl::Time began = absl::Now();
  const absl::StatusOr<Result> result = Run(search.line);
  if (!result.ok()) {
    std::printf("%s: %s\n", search.name.c_str(), std::string(result.status().message()).c_str());
    return false;
  }
  std::printf("%s %s (%s), %.0f s: ", kind, search.name.c_str(), search.line.c_str(),
              absl::ToDoubleSeconds(absl::Now() - began));
  Print(*result);
  std::fflush(stdout);
  const bool as_told = search.finds.empty()
                           ? result->violation.empty()
                           : result->violation.find(search.finds) != std::string::npos;
  if (!as_told) std::printf("THAT SHOULD HAVE BEEN: \"%s\"\n", search.finds.c_str());
  return as_told;
}

int PlayAll(bool quick) {
  int wrong = 0, played = 0;
  for (const NamedSearch& search : NegativeControls()) {
    ++played;
    wrong += Play(search, "without") ? 0 : 1;
  }
  for (const NamedSearch& search : CleanSearches()) {
    if (quick && !search.quick) continue;
    ++played;
    wrong += Play(search, "with all rules,") ? 0 : 1;
  }
  std::printf("%d searches, %d not as they should be\n", played, wrong);
  return wrong == 0 ? 0 : 1;
}

int Main(const std::vector<std::string>& words) {
  if (words.empty()) return PlayAll(/*quick=*/false);
  if (words.front() == "--quick") return PlayAll(/*quick=*/true);
  const absl::StatusOr<Result> result = Run(absl::StrJoin(words, " "));
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", std::string(result.status().message()).c_str());
    return 2;
  }
  Print(*result);
  return result->violation.empty() ? 0 : 1;
}

}  // namespace
}  // namespace starling::model

int main(int argc, char** argv) { return starling::model::Main({argv + 1, argv + argc}); }
