// SPDX-License-Identifier: Apache-2.0
// Where a piece of work belongs among that of other programs, as they tell one another in the
// header traceparent and in the variable TRACEPARENT: W3C Trace Context, level 1
// (https://www.w3.org/TR/trace-context/).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace starling::trace {

struct TraceContext {
  std::string trace_id;   // 32 hexadecimal digits, lower case
  std::string parent_id;  // 16: the span that asked for this work
  bool sampled = false;   // somebody records the trace
  bool operator==(const TraceContext&) const = default;
};

// Nothing: it is not one, and the trace begins anew, as the standard has it. Of a later version
// what this one knows is read.
std::optional<TraceContext> ParseTraceparent(std::string_view text);

std::string ToTraceparent(const TraceContext& context);

}  // namespace starling::trace
