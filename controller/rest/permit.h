// SPDX-License-Identifier: Apache-2.0
// Whether what was allowed once still is: for streams, which outlast the request that began them.
#pragma once

#include <atomic>

namespace starling::service {

// Thread-safe.
class Permit {
 public:
  // Null: it goes on. Else the reason with which the stream ends: TokenExpired or Forbidden.
  const char* ended() const { return ended_; }
  // `reason` is a literal.
  void End(const char* reason) { ended_ = reason; }

 private:
  std::atomic<const char*> ended_ = nullptr;
};

}  // namespace starling::service
