// SPDX-License-Identifier: Apache-2.0
// Threads that serve shards. Each shard belongs to one executor for as long as a view is served:
// its messages are handled there one after another, as they came, and nobody else touches its
// machine, so shards need no locks and share none. What is common to all shards reaches them
// through the executors' queues.
//
// Executor 0 is the thread that carries the messages. It serves by itself what is small, since
// handing that over would take longer than the work; the others are threads of their own, for
// shards whose updates are worth it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "common/net/deadline.h"
#include "common/sync/mutex.h"
#include "trainer/parameter_server/wire.h"

namespace starling::parameter_server {

struct Executors {
  int count = 1;
  // Shards of fewer bytes stay on executor 0: receiving 256 KB takes about as long as waking a
  // thread.
  std::uint64_t least_bytes = 256 << 10;
};

// How much a shard may have to do, for ExecutorsOf.
struct ExecutorWork {
  std::uint64_t bytes = 0;
  bool served = true;  // this server is in its chain
};

// The executor of each shard: the largest first, each to the executor that has the least. A
// function of the view; with one executor all zeros.
std::vector<int> ExecutorsOf(const std::vector<ExecutorWork>& shards, const Executors& executors);

// A packet on its way out, left by an executor for the thread that carries.
struct Outgoing {
  int rank = 0;
  std::shared_ptr<const Packet> packet;
};

// A queue and the thread that works it off. Thread-safe.
class Executor {
 public:
  // `rest` is called on the executor's thread whenever nothing waits, and says how long it may
  // sleep before it is called again.
  explicit Executor(std::function<absl::Duration()> rest);
  // Drops the messages that wait; the calls are made.
  ~Executor();

  // Waits while too many bytes are queued: a peer that sends faster than this executor works must
  // feel it. False: that is still so at `deadline`, and `handle` is left as it was.
  bool PutMessage(std::function<void()>& handle, std::size_t bytes, net::Deadline deadline);
  void PutCall(std::function<void()> call);

  void Send(Outgoing outgoing);
  std::vector<Outgoing> TakeSent();

 private:
  struct Task {
    std::function<void()> run;
    std::size_t bytes = 0;
    bool message = false;
  };

  void Run();

  const std::function<absl::Duration()> rest_;
  sync::Mutex mutex_;
  sync::Condition changed_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  std::size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  sync::Mutex sent_mutex_;
  std::vector<Outgoing> sent_ ABSL_GUARDED_BY(sent_mutex_);
  std::thread thread_;  // last: it uses the others
};

}  // namespace starling::parameter_server
