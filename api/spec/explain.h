// SPDX-License-Identifier: Apache-2.0
// The documentation of any field of the contract, as `kubectl explain` gives it: from the comments
// and rules of the protos, which are compiled into the program.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace starling::spec {

// `path` is empty for the whole object, or spec.optimizer.sgd.momentum and so on; a leading
// "tj." or "trainingjob." is allowed, and so are list indices. Several lines, ending in a newline.
// NotFound, with a suggestion, if there is no such field.
absl::StatusOr<std::string> Explain(std::string_view path);

}  // namespace starling::spec
