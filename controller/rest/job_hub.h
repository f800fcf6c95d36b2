// SPDX-License-Identifier: Apache-2.0
// The newest state of every job, and those who want to hear of changes.
//
// A listener has a set of jobs that it has not been told of yet, never a queue of events: however
// slowly it reads, it gets the newest state of each job, once, in the order of their versions. So
// what a listener costs is bounded by the jobs there are. A state is put into words once, for all
// listeners, and a change costs only those that it concerns: a thousand listeners of other jobs are
// not looked at. Deleted jobs are remembered for a while, for listeners that come back.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/clock/clock.h"
#include "common/metrics/metrics.h"
#include "common/sync/mutex.h"
#include "controller/history/curves.h"
#include "controller/kube/kube_client.h"
#include "controller/kube/selector.h"

namespace starling::service {

// One job as it was at one version. Thread-safe; it does not change.
class JobState {
 public:
  JobState(std::shared_ptr<const kube::Json> job, std::int64_t version, std::int64_t added,
           bool deleted);

  const kube::Json& job() const { return *job_; }
  const std::string& uid() const { return uid_; }
  std::int64_t version() const { return version_; }
  std::int64_t added() const { return added_; }  // the first version that there was of it
  bool deleted() const { return deleted_; }

  // JSON on one line: {"uid", "summary"} and {"object"}.
  const std::string& Summary() const;
  const std::string& Object() const;

 private:
  struct Words;
  const std::shared_ptr<const kube::Json> job_;
  const std::string uid_;
  const std::int64_t version_;
  const std::int64_t added_;
  const bool deleted_;
  const std::shared_ptr<Words> words_;
};
using JobStatePtr = std::shared_ptr<const JobState>;

// Which jobs somebody is interested in.
struct JobFilter {
  std::string ns;    // empty: all
  std::string name;  // empty: all
  kube::Selector selector;

  bool Matches(const kube::Json& job) const;
};

// What a listener is told next.
struct JobNews {
  enum class Kind { kAdded, kModified, kDeleted, kBookmark };
  Kind kind;
  std::int64_t version;  // of the event; a listener that comes back names it
  JobStatePtr state;     // null for a bookmark
};

class JobHub;

// Confined to one thread at a time.
class JobListener {
 public:
  ~JobListener();
  JobListener(const JobListener&) = delete;
  JobListener& operator=(const JobListener&) = delete;

  // Nothing: everything has been told.
  std::optional<JobNews> Next();

 private:
  friend class JobHub;
  struct Unheard {
    JobStatePtr state;
    bool entered = false;  // it did not match before
    bool left = false;     // it does not match any more
  };

  JobListener(JobHub& hub, JobFilter filter, std::function<void()> wake)
      : hub_(hub), filter_(std::move(filter)), wake_(std::move(wake)) {}

  JobHub& hub_;
  const JobFilter filter_;
  const std::function<void()> wake_;
  // The rest is guarded by the hub's mutex.
  std::map<std::int64_t, Unheard> unheard_;       // by version
  std::map<std::string, std::int64_t> versions_;  // of each job in it, by UID
  std::int64_t told_ = 0;                         // everything up to here
  std::optional<std::int64_t> bookmark_;          // once all is told
};

// Thread-safe. It must outlive its listeners.
class JobHub {
 public:
  static constexpr std::size_t kRememberedDeletions = 1000;
  static constexpr absl::Duration kRememberedFor = absl::Hours(1);

  // `coalesced` counts states that a listener was never told, for a newer one had come.
  explicit JobHub(const clock::Clock& clock, metrics::Counter coalesced = {})
      : clock_(clock), coalesced_(coalesced) {}

  // A job has changed: as an informer's handler is told. Older news than what is known is ignored.
  using Object = std::shared_ptr<const kube::Json>;
  void Take(const Object& before, const Object& after);
  // All jobs that there are at the version `seen` have been told: from here on listeners may come
  // back. What was deleted before that this process has never heard of.
  void Begin(std::int64_t seen = 0);

  // `wake` is called whenever there is news; it must not wait and not call back. A listener that
  // knows the state `since` hears of changes after it; otherwise of all that is, then a bookmark.
  std::unique_ptr<JobListener> Listen(JobFilter filter, std::optional<std::int64_t> since,
                                      std::function<void()> wake);

  std::vector<JobStatePtr> Live(const JobFilter& filter) const;
  std::int64_t newest() const;

  // How metrics of a job went since this process has seen it; empty `name`: all of them.
  std::map<std::string, history::Points> Points(const std::string& uid,
                                                const std::string& name) const;

 private:
  friend class JobListener;
  using Wakes = std::vector<std::function<void()>>;

  // Adds to `wakes` those of the listeners that it was told to.
  void Add(const Object& before, JobStatePtr state, Wakes& wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether it concerns the listener.
  bool Tell(JobListener& listener, const Object& before, const JobStatePtr& state)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Put(JobListener& listener, std::int64_t version, JobListener::Unheard unheard)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const clock::Clock& clock_;
  metrics::Counter coalesced_;
  mutable sync::Mutex mutex_;
  std::map<kube::ObjectKey, JobStatePtr> live_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, history::Curves> curves_ ABSL_GUARDED_BY(mutex_);  // by UID
  std::deque<std::pair<absl::Time, JobStatePtr>> deleted_ ABSL_GUARDED_BY(mutex_);
  std::int64_t newest_ ABSL_GUARDED_BY(mutex_) = 0;
  // What was deleted up to here is not known; nothing: not even what there is.
  std::optional<std::int64_t> floor_ ABSL_GUARDED_BY(mutex_);
  // By namespace and name of their filters; either may be empty, for all.
  std::map<kube::ObjectKey, std::set<JobListener*>> listeners_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::service
