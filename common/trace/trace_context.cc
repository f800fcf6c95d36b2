// SPDX-License-Identifier: Apache-2.0
#include "common/trace/trace_context.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace starling::trace {
namespace {

constexpr std::size_t kVersionEnd = 2;
constexpr std::size_t kTraceEnd = kVersionEnd + 1 + 32;
constexpr std::size_t kParentEnd = kTraceEnd + 1 + 16;
constexpr std::size_t kLength = kParentEnd + 1 + 2;  // of version 00; later ones may go on

bool IsHex(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsId(std::string_view text) {
  return IsHex(text) && text.find_first_not_of('0') != std::string_view::npos;
}

// The flags' lowest bit.
bool IsSampled(char digit) {
  const int value = digit <= '9' ? digit - '0' : digit - 'a' + 10;
  return value % 2 == 1;
}

}  // namespace

std::optional<TraceContext> ParseTraceparent(std::string_view text) {
  if (text.size() < kLength) return std::nullopt;
  for (const std::size_t dash : {kVersionEnd, kTraceEnd, kParentEnd}) {
    if (text[dash] != '-') return std::nullopt;
  }
  const std::string_view version = text.substr(0, kVersionEnd);
  const std::string_view trace = text.substr(kVersionEnd + 1, kTraceEnd - kVersionEnd - 1);
  const std::string_view parent = text.substr(kTraceEnd + 1, kParentEnd - kTraceEnd - 1);
  const std::string_view flags = text.substr(kParentEnd + 1, 2);
  if (!IsHex(version) || version == "ff" || !IsId(trace) || !IsId(parent) || !IsHex(flags)) {
    return std::nullopt;
  }
  if (text.size() > kLength && (version == "00" || text[kLength] != '-')) return std::nullopt;
  return TraceContext{std::string(trace), std::string(parent), IsSampled(flags[1])};
}

std::string ToTraceparent(const TraceContext& context) {
  return absl::StrCat("00-", context.trace_id, "-", context.parent_id, "-",
                      context.sampled ? "01" : "00");
}

}  // namespace starling::trace
