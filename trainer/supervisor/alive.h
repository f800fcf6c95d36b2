// SPDX-License-Identifier: Apache-2.0
// Whether anybody still wants this pod: a FIFO that controller and CLI hold open for writing.
//
// The kernel closes it for them however they die, so a pod whose controller is gone for good
// notices without asking anyone.
#pragma once

#include <chrono>
#include <string>

namespace starling::supervisor {

using SteadyTime = std::chrono::steady_clock::time_point;

// Thread-compatible.
class AliveFifo {
 public:
  // An empty `path`: always wanted.
  explicit AliveFifo(std::string path) : path_(std::move(path)) {}
  ~AliveFifo();
  AliveFifo(const AliveFifo&) = delete;
  AliveFifo& operator=(const AliveFifo&) = delete;

  // Looks whether there is a writer; a FIFO that is not there has none.
  void Check(SteadyTime now);

  // Since when nobody held it open, by the checks; the largest time if somebody does.
  SteadyTime lonely_since() const { return lonely_since_; }
  bool lonely() const { return lonely_since_ != SteadyTime::max(); }

  // To be polled for POLLHUP: the last writer left. -1 while lonely, when it would report so
  // without end.
  int descriptor() const { return lonely() ? -1 : descriptor_; }
  bool watched() const { return !path_.empty(); }

 private:
  bool HasWriter();

  const std::string path_;
  int descriptor_ = -1;
  SteadyTime lonely_since_ = SteadyTime::max();
};

}  // namespace starling::supervisor
