// SPDX-License-Identifier: Apache-2.0
// An answer's body that comes piece by piece: server-sent events, logs that grow, large files.
//
// The server asks for the next piece when the client has taken the one before. So nothing piles up
// behind a slow reader, and a source that tells of states gives the newest one at that moment. To
// add a source: implement Next(), and call what Start() was given whenever there is something new.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace starling::http {

// Start, Next and Drain are called one at a time. The destructor may run on any thread.
class BodyStream {
 public:
  struct Piece {
    std::string bytes;   // about 64 KiB at most
    bool ended = false;  // these are the last ones
    // Not asked again before this long, or a wake, has passed. It must not be 0 where neither
    // bytes nor the end are given: that says when to look again.
    absl::Duration pause = absl::ZeroDuration();
  };

  virtual ~BodyStream() = default;

  // `wake` makes the server ask for the next piece. It may be called from any thread, at any time,
  // and does not wait.
  virtual void Start(std::function<void()> wake) { (void)wake; }

  virtual Piece Next() = 0;

  // The server is about to end: the pieces that follow should say goodbye.
  virtual void Drain() {}

  // Of the whole body in bytes, where it is known; else the body is sent in chunks.
  virtual std::optional<std::uint64_t> Length() const { return std::nullopt; }

  // Whether Next() may wait for a disk: it is then called by the threads that answer late. One that
  // answers from memory is called by the server's own thread.
  virtual bool ReadsFiles() const { return false; }
};

}  // namespace starling::http
