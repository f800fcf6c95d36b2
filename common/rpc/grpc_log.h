// SPDX-License-Identifier: Apache-2.0
// What gRPC itself has to say, as lines of our log.
//
// gRPC writes plain text to stderr, and a peer that fails to connect ten times a second makes it
// write as often. Here its text becomes log lines of the usual form: of each place in its source at
// most one in every kLogEvery, with the number of lines left out. Called once by main, after
// log::Start and before the first channel.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/time/time.h"

namespace starling::rpc {

inline constexpr absl::Duration kLogEvery = absl::Seconds(10);

// gRPC keeps one log function for the whole process, so this holds for all of it.
void RouteGrpcLog();

// Decides which lines are written. Thread-compatible.
class LogLimit {
 public:
  // How many lines of this place were left out since the last one; nothing: leave this one out too.
  std::optional<std::int64_t> Admit(std::string_view file, int line, absl::Time now);

 private:
  struct Place {
    absl::Time written;
    std::int64_t left_out = 0;
  };
  std::map<std::pair<std::string, int>, Place> places_;
};

}  // namespace starling::rpc
