// SPDX-License-Identifier: Apache-2.0
// Whether anybody still wants a pod: a FIFO in the job's folder that controller and CLI hold open
// for writing, and whose writers the pod's supervisor looks for. The kernel closes it for them
// however they die, so a pod whose controller is gone for good notices without asking anyone.
//
// POSIX only, no Abseil: the static supervisor links this file.
#pragma once

#include <chrono>
#include <string>
#include <utility>

namespace starling::process {

// Holds the FIFO open until it is destroyed or assigned to.
class AliveHold {
 public:
  AliveHold() = default;
  ~AliveHold();
  AliveHold(AliveHold&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  AliveHold& operator=(AliveHold&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  // Makes the FIFO if it is missing; its folder is there. Returns 0 or an errno; EEXIST says that
  // something else has its name.
  static int Open(const std::string& path, AliveHold& hold);

 private:
  int descriptor_ = -1;
};

// Thread-compatible.
class AliveWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // An empty `path`: always wanted.
  explicit AliveWatch(std::string path) : path_(std::move(path)) {}
  ~AliveWatch();
  AliveWatch(const AliveWatch&) = delete;
  AliveWatch& operator=(const AliveWatch&) = delete;

  // Looks whether there is a writer; a FIFO that is not there has none.
  void Check(Time now);

  // Since when nobody held it open, by the checks; the largest time if somebody does.
  Time lonely_since() const { return lonely_since_; }
  bool lonely() const { return lonely_since_ != Time::max(); }

  // To be polled for POLLHUP: the last writer left. -1 while lonely, when it would report so
  // without end.
  int descriptor() const { return lonely() ? -1 : descriptor_; }
  bool watched() const { return !path_.empty(); }

 private:
  bool HasWriter();

  const std::string path_;
  int descriptor_ = -1;
  Time lonely_since_ = Time::max();
};

}  // namespace starling::process
