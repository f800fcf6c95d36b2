// SPDX-License-Identifier: Apache-2.0
// The thread-safe shell around the pure membership machine.
//
// Events come from two sides: directives from the control service's threads, everything else from
// the training loop. Actions wait in one queue for the training loop, in order. Three kinds cannot
// wait, because the loop may be blocked in a collective: an unplanned Fence, AbortView and
// SendReport are carried out at once by whoever brought the event (an AbortView also goes through
// the queue, so that the loop drops what belongs to the view).
#pragma once

#include <deque>
#include <functional>
#include <optional>

#include "absl/time/time.h"
#include "common/sync/mutex.h"
#include "trainer/membership/member.h"

namespace starling::worker {

// Thread-safe.
class MemberShell {
 public:
  using Event = std::function<membership::Actions(membership::Member&)>;

  // What is done at once; called without the lock. `stop` is for actions that end the process.
  struct AtOnce {
    std::function<void(membership::ViewNumber)> fence;
    std::function<void(membership::ViewNumber)> abort_view;
    std::function<void()> report;
    std::function<void()> stop;
  };

  MemberShell(membership::Member::Options options, AtOnce at_once);

  // Lets the machine take an event.
  void Deliver(const Event& event);

  // The next action for the loop, if there is one.
  std::optional<membership::Action> Next();
  // Until an action is there, or `timeout` passed. True if one is.
  bool WaitForAction(absl::Duration timeout);
  // The same, and until Nudge was called: once for each call, also for one before this.
  bool WaitForNews(absl::Duration timeout);
  // Something else has changed that the loop waits for.
  void Nudge();

  // Reads from the machine.
  template <typename Read>
  auto Ask(const Read& read) const {
    sync::MutexLock lock(mutex_);
    return read(machine_);
  }
  membership::ControlWord NextControlWord();

 private:
  const AtOnce at_once_;
  mutable sync::Mutex mutex_;
  sync::Condition arrived_;
  membership::Member machine_ ABSL_GUARDED_BY(mutex_);
  std::deque<membership::Action> queue_ ABSL_GUARDED_BY(mutex_);
  bool nudged_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace starling::worker
