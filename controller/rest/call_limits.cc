// SPDX-License-Identifier: Apache-2.0
#include "controller/rest/call_limits.h"

#include <algorithm>

namespace starling::service {

absl::Duration CallLimits::Take(const std::string& caller, bool writes) {
  const double rate = writes ? options_.writes_per_second : options_.reads_per_second;
  if (rate <= 0) return absl::ZeroDuration();
  const double burst = std::max(1.0, 2 * rate);
  const absl::Time now = clock_.Now();
  sync::MutexLock lock(state_->mutex);
  Tokens& tokens = state_->tokens[{caller, writes}];
  const double gained = absl::ToDoubleSeconds(now - tokens.filled) * rate;
  tokens.left = std::min(burst, tokens.left + gained);
  tokens.filled = now;
  if (tokens.left < 1) return absl::Seconds((1 - tokens.left) / rate);
  tokens.left -= 1;
  return absl::ZeroDuration();
}

CallLimits::Ticket CallLimits::OpenStream(const std::string& caller) {
  {
    sync::MutexLock lock(state_->mutex);
    int& open = state_->streams[caller];
    if (open >= options_.streams) return nullptr;
    ++open;
  }
  return {new int(0), [state = state_, caller](void* marker) {
            delete static_cast<int*>(marker);
            sync::MutexLock lock(state->mutex);
            --state->streams[caller];
          }};
}

}  // namespace starling::service
