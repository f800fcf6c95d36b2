// SPDX-License-Identifier: Apache-2.0
// How much one caller may ask for: so many reads and writes a second, so many streams at once.
//
// What is over it is refused at once and holds nothing, so that one caller cannot take the service
// from the others. Callers are few: they have proved who they are.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/clock/clock.h"
#include "common/sync/mutex.h"

namespace starling::service {

struct CallLimitOptions {
  double reads_per_second = 50;  // 0: no limit. Twice as many may come at once
  double writes_per_second = 20;
  int streams = 64;
};

// Thread-safe.
class CallLimits {
 public:
  // Gives a stream's place back when it goes.
  using Ticket = std::shared_ptr<void>;

  CallLimits(const clock::Clock& clock, const CallLimitOptions& options)
      : clock_(clock), options_(options), state_(std::make_shared<State>()) {}

  // Zero: go on. Else how long to wait before asking again.
  absl::Duration Take(const std::string& caller, bool writes);
  // Null: the caller has as many as it may have.
  Ticket OpenStream(const std::string& caller);

 private:
  struct Tokens {
    double left = 0;
    absl::Time filled = absl::InfinitePast();
  };
  // Outlives this for as long as tickets do.
  struct State {
    sync::Mutex mutex;
    std::map<std::pair<std::string, bool>, Tokens> tokens ABSL_GUARDED_BY(mutex);
    std::map<std::string, int> streams ABSL_GUARDED_BY(mutex);
  };

  const clock::Clock& clock_;
  const CallLimitOptions options_;
  const std::shared_ptr<State> state_;
};

}  // namespace starling::service
