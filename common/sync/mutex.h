// SPDX-License-Identifier: Apache-2.0
// A mutex whose discipline the compiler checks.
//
// std::mutex with Clang's thread-safety attributes: clang-tidy rejects unlocked access to a member
// that carries ABSL_GUARDED_BY. absl::Mutex is not used: ThreadSanitizer cannot see into Debian's
// build of it.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace starling::sync {

// Thread-safe.
class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class Condition;
  std::mutex mutex_;
};

// Holds `mutex` while it lives.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Thread-safe. Waits need the mutex held; they may wake for no reason, so wait in a loop.
class Condition {
 public:
  void Wait(Mutex& mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }

  // Returns false when `timeout` passed without a notification.
  bool WaitFor(Mutex& mutex, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const auto limit = absl::ToChronoNanoseconds(std::min(timeout, absl::Hours(24)));
    // On the system clock on purpose: ThreadSanitizer of GCC 12 does not see a wait on the steady
    // one (pthread_cond_clockwait) and would report races that are none.
    const auto result = condition_.wait_until(
        lock, std::chrono::system_clock::now() +
                  std::chrono::duration_cast<std::chrono::system_clock::duration>(limit));
    lock.release();
    return result == std::cv_status::no_timeout;
  }

  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace starling::sync
