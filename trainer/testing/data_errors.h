// SPDX-License-Identifier: Apache-2.0
// What is wrong with a job's data, as those say it who read it all and who only look at its
// beginning.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/load_datasets.h"

namespace starling::data {

// A worker's words; whoever checks the job file must say the same, with the field apart.
inline std::string DataErrorOf(const v1alpha1::TrainingJobSpec& spec) {
  const auto loaded = LoadDatasets(spec);
  EXPECT_FALSE(loaded.ok());
  const auto problems = CheckData(spec);
  EXPECT_THAT(problems, ::testing::SizeIs(1));
  if (!problems.empty()) {
    EXPECT_EQ(absl::StrCat(problems[0].path, ": ", problems[0].message),
              std::string(loaded.status().message()));
  }
  return std::string(loaded.status().message());
}

}  // namespace starling::data
