// SPDX-License-Identifier: Apache-2.0
// One controller for each STARLING_HOME: a lock that ends with its process, however that ends.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace starling::manager {

// Holds the lock while it lives. Movable. Thread-compatible.
class HomeLock {
 public:
  // Makes the folder if it is not there. AlreadyExists: another controller holds the lock.
  static absl::StatusOr<HomeLock> Take(const std::string& home);

  ~HomeLock();
  HomeLock(HomeLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  HomeLock& operator=(HomeLock&&) = delete;

 private:
  explicit HomeLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

}  // namespace starling::manager
