// SPDX-License-Identifier: Apache-2.0
// The searches that this project runs: bounds within which nothing may be found, and for each rule
// the bounds within which its absence must be. A search is a line of text, so that whoever changes
// a rule can try others from the command line:
//
//   starling-model groups first=01 second=12 views=3 crashes=1 evictions=1 without=witness
//
// To add a rule: its switch in the model, its name in searches.cc, a line in NegativeControls().
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/model/search.h"

namespace starling::model {

struct NamedSearch {
  std::string name;
  std::string line;        // what Run() is given
  std::string finds = {};  // a part of the violation's words; empty: nothing may be found
  bool quick = true;       // in the test suite; the others take minutes and are for `make model`
};

std::vector<NamedSearch> CleanSearches();
// One rule off in each.
std::vector<NamedSearch> NegativeControls();

// InvalidArgument names a word that is not understood, and what is.
absl::StatusOr<Result> Run(const std::string& line);

}  // namespace starling::model
