// SPDX-License-Identifier: Apache-2.0
// Texts for absl's functions: Debian builds absl with a string_view of its own, to which std's does
// not convert. Mostly met where the text of a status is put together.
#pragma once

#include <string_view>

#include "absl/strings/string_view.h"

namespace starling {

inline absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace starling
