// SPDX-License-Identifier: Apache-2.0
// A thread that tells a sink of a job's metrics, so that whoever has them never waits: a disk that
// is full or a server that is dead costs points and nothing else.
//
// Few points wait; where there are too many the oldest go, for the newest say the most.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/clock/clock.h"
#include "trainer/metric_export/sink.h"

namespace starling::metric_export {

// Thread-safe.
class Exporter {
 public:
  struct Options {
    std::string name = {};                      // of the sink, for people
    std::size_t most_waiting = 64;              // points
    absl::Duration calm = absl::Seconds(30);    // after the last failure, for problem()
    absl::Duration goodbye = absl::Seconds(2);  // for what waits at the end
  };

  // `clock` must outlive it by the time that a call of the sink takes.
  Exporter(std::unique_ptr<Sink> sink, const clock::Clock& clock, Options options);
  // Waits for what waits, within limits: a sink that is stuck is left behind.
  ~Exporter();
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  // Never waits.
  void Tell(Points points);

  // What went wrong lately, and what to do about it; empty: nothing.
  std::string problem() const;

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace starling::metric_export
