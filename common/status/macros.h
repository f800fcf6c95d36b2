// SPDX-License-Identifier: Apache-2.0
// Early return of absl::Status and absl::StatusOr: the two macros that every fallible function
// uses.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define STARLING_CONCAT_INNER(a, b) a##b
#define STARLING_CONCAT(a, b) STARLING_CONCAT_INNER(a, b)

// Returns from the enclosing function if `expression` is not OK.
#define RETURN_IF_ERROR(expression)                                         \
  do {                                                                      \
    if (absl::Status starling_status = (expression); !starling_status.ok()) \
      return starling_status;                                               \
  } while (false)

// Assigns the value of the StatusOr `expression` to `target` (which may be a declaration), or
// returns its status from the enclosing function.
#define ASSIGN_OR_RETURN(target, expression) \
  STARLING_ASSIGN_OR_RETURN(STARLING_CONCAT(starling_result_, __LINE__), target, expression)
// `target` may be a declaration, so it cannot stand in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define STARLING_ASSIGN_OR_RETURN(result, target, expression) \
  auto result = (expression);                                 \
  if (!result.ok()) return std::move(result).status();        \
  target = *std::move(result)
// NOLINTEND(bugprone-macro-parentheses)
