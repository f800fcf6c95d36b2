// SPDX-License-Identifier: Apache-2.0
// For tests: a table of cases, each of which arranges a scene and checks what is decided.
#pragma once

#include <functional>
#include <ostream>
#include <string>

#include "controller/testing/test_scene.h"
#include "gtest/gtest.h"

namespace starling::trainingjob {

struct Case {
  const char* name;
  std::function<void(Scene&)> arrange;
  std::function<void(const Decision&)> check;
};

inline void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

inline std::string NameOf(const testing::TestParamInfo<Case>& info) { return info.param.name; }

}  // namespace starling::trainingjob
