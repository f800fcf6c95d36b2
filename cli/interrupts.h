// SPDX-License-Identifier: Apache-2.0
// Ctrl-C and other signals to end: the program asks whether one has come and is not interrupted.
#pragma once

#include <atomic>

#include "absl/time/time.h"

namespace starling::cli {

// Thread-safe.
class Interrupts {
 public:
  virtual ~Interrupts() = default;
  // How often SIGINT, SIGTERM or SIGHUP has come so far.
  virtual int count() const = 0;
  // Waits for the next one, at most `timeout`.
  virtual void Wait(absl::Duration timeout) const = 0;
};

// Catches the process's signals while it lives; there may be one at a time.
class SignalInterrupts final : public Interrupts {
 public:
  SignalInterrupts();
  ~SignalInterrupts() override;
  SignalInterrupts(const SignalInterrupts&) = delete;

  int count() const override;
  void Wait(absl::Duration timeout) const override;

 private:
  int descriptor_ = -1;  // a signalfd: nothing runs in a handler
  mutable std::atomic<int> count_ = 0;
};

}  // namespace starling::cli
