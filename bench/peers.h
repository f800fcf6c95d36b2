// SPDX-License-Identifier: Apache-2.0
// What measurements share: the clock, the median, sizes of a flag; and two processes that talk:
// over a transport's mesh, or over a plain TCP socket written by hand, which is the limit that tcp
// is held against.
//
// Whatever goes wrong ends the program with a message: a measurement has nothing to recover.
#pragma once

#include <sched.h>

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/net/socket.h"
#include "trainer/transport/transport.h"

namespace starling::bench {

inline constexpr transport::Tag kTag{1, 20};

// Seconds of a clock that only goes forward.
double Now();
// Of one value or more.
double Median(std::vector<double> values);
// "A,B,...", a flag's value. False if one of them is no number.
bool ParseSizes(const std::string& text, std::vector<std::size_t>& sizes);

inline net::Deadline Soon() { return net::Deadline::After(absl::Seconds(60)); }
void Require(const absl::Status& status);
template <typename Value>
Value Must(absl::StatusOr<Value> value) {
  Require(value.status());
  return *std::move(value);
}

// Over a Fork's connection.
void WriteLine(int control, const std::string& line);
std::string ReadLine(int control);

std::string MemberName(std::size_t rank);
transport::Options OptionsOf(const std::string& member, absl::Duration spin);

// A process that runs `body` with its end of a connection to this one, and then exits. Made while
// this process has no other threads.
class Fork {
 public:
  explicit Fork(const std::function<void(int control)>& body);
  ~Fork();
  int control() const { return control_.get(); }
  // Waits for the end; it must have been a good one.
  void Join();

 private:
  net::FileDescriptor control_;
  pid_t pid_ = 0;
};

// Keeps this thread on the `index`-th of its cores while it lives, if asked to.
class Pinned {
 public:
  Pinned(bool wanted, int index);
  ~Pinned();
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  cpu_set_t before_;
};

// What connects the two processes.
struct Wire {
  enum class Kind { kSocket, kTcp, kShm };
  Kind kind;
  std::string name;
  absl::Duration spin;
};
// All there are: waiting asleep, and spinning for `spin` first.
std::vector<Wire> Wires(absl::Duration spin);

// One end. Confined to one thread.
class Channel {
 public:
  virtual ~Channel() = default;
  virtual void Send(std::span<const std::byte> data) = 0;
  virtual void Receive(std::span<std::byte> data) = 0;
  virtual transport::Mesh* mesh() { return nullptr; }  // none: a plain socket
  virtual int peer() const = 0;
};

// Rank 0 is the forked process; `control` connects the two.
std::unique_ptr<Channel> Connect(const Wire& wire, int rank, int control);

// Thread-safe.
class Barrier {
 public:
  explicit Barrier(int threads) : threads_(threads) {}
  void Wait();

 private:
  const int threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  int generation_ = 0;
};

}  // namespace starling::bench
