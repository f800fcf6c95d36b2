// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/cancellation.h"

#include "common/status/check.h"

namespace starling::transport {

void Cancellation::Cancel(const absl::Status& reason) {
  STARLING_CHECK(!reason.ok(), "a cancellation has a reason");
  sync::MutexLock lock(mutex_);
  if (!reason_.ok()) return;
  reason_ = reason;
  event_.Signal();
}

absl::Status Cancellation::status() const {
  sync::MutexLock lock(mutex_);
  return reason_;
}

}  // namespace starling::transport
