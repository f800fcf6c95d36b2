// SPDX-License-Identifier: Apache-2.0
// A local copy of all objects of one kind, kept current by list and watch.
//
// Readers get immutable snapshots without asking the API server; handlers are told that an object
// changed and do no more than enqueue a key. The copy may be late, but it never misses anything:
// after a gap (410 Gone) everything is listed again and the differences are reported; after a
// broken connection the watch goes on where it was. The copy never goes back in time: an event or a
// list that is older than what is known is ignored.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/sync/mutex.h"
#include "controller/kube/kube_client.h"
#include "controller/runtime/back_off.h"
#include "controller/runtime/trim.h"
#include "controller/runtime/work_queue.h"

namespace starling::kube {
class Selector;
}

namespace starling::runtime {

struct InformerOptions {
  std::string ns;  // empty: all namespaces
  kube::Selection selection;
  std::int64_t page = 500;  // objects a list request, at most; 0: all at once
  Trim trim = nullptr;      // what the copy keeps; null: everything
  // The copy takes a fifth of the memory, and each read of it some more time. Of a change handlers
  // are then told what is, as `before` too.
  bool packed = false;
  // After events, until the next are looked for: one waking serves all that came.
  absl::Duration rest;
  // What of an object handlers want to hear of: a change that leaves this as it was is kept, and
  // not told of. Null: all of it.
  std::string (*news)(const kube::Json& object) = nullptr;
  std::string index_label;  // not empty: ListByLabel() finds objects by the value of this label
  BackOff back_off{.first = absl::Milliseconds(50), .longest = absl::Seconds(10), .jitter = 0.5};
};

// Thread-safe, except that Poll() and Run() are confined to one thread.
class Informer {
 public:
  using Object = std::shared_ptr<const kube::Json>;
  // `before` is null for a new object, `after` for one that is gone; never both.
  using Handler = std::function<void(const Object& before, const Object& after)>;

  Informer(kube::KubeClient& client, const kube::ResourceKind& kind, InformerOptions options);
  ~Informer();

  // Before the first Poll() or Run(). Handlers must not wait. They run on the informer's thread,
  // and on that of whoever calls Learn(). Who decides by what is there, and knows what it writes,
  // need not be told of that.
  enum class Hears { kAll, kNotOwnWrites };
  void AddHandler(Handler handler, Hears hears = Hears::kAll);

  // The snapshot of one object; null: not there.
  Object Get(const Key& key) const;
  // The same as objects of the caller's own.
  std::optional<kube::Json> Read(const Key& key) const;
  std::vector<kube::Json> ReadByLabel(const std::string& ns, const std::string& value) const;
  std::vector<Object> List() const;
  // Those of one namespace whose index label has this value, ordered by name.
  std::vector<Object> ListByLabel(const std::string& ns, const std::string& value) const;
  bool HasSynced() const;  // the first list is in

  // What a write of this process returned, or a read past the copy: readers see it immediately, the
  // watch will tell of it later. Not believed if the copy knows better by now, or does not select
  // such objects.
  enum class Source { kRead, kOwnWrite };
  void Learn(kube::Json object, Source source = Source::kRead);

  const InformerOptions& options() const { return options_; }

  // One turn: lists if there is no place to watch from, watches if there is no live watch, else
  // takes what the watch has, waiting up to `timeout` for the first event. After an error the next
  // turn takes up what was lost.
  absl::Status Poll(absl::Duration timeout);

  // Turns until Stop(), pausing after errors and between lists that follow one another. Stop() may
  // be called from any thread.
  void Run();
  void Stop();

 private:
  // An object as it is kept: whole or packed.
  struct Kept {
    Object whole;
    std::shared_ptr<const std::string> packed;
    std::string version;
    std::string label;  // its value
    std::size_t news = 0;
  };
  // A copy older than this many lists in a row is no copy of a newer state: the store was restored.
  static constexpr int kOldListsBelieved = 5;
  static constexpr int kResumes = 3;

  absl::Status Relist();
  absl::Status ReadPages(std::set<Key>& listed, std::string& version);
  absl::Status AcceptVersion(const std::string& version);
  void RemoveAllBut(const std::set<Key>& listed, const std::string& version);
  absl::Status StartWatch();
  absl::Status Drain(absl::Duration timeout);
  absl::Status AfterBreak(const absl::Status& status);
  Object Copy(kube::Json object) const;  // what is kept of it
  Kept Keep(const Object& object) const;
  std::vector<Kept> FindByLabel(const std::string& ns, const std::string& value) const;
  void Take(const kube::WatchEvent& event);
  // `seen`: the version up to which the watch has told by now; empty: no news of that.
  void Apply(const Key& key, const Object& after, const std::string& seen);
  void Remove(const Key& key, const std::string& version);
  void Store(const Key& key, Kept kept) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Erase(const Key& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Index(const Key& key, const std::string& label, bool add)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell(const Object& before, const Object& after, Source source = Source::kRead) const;
  void SawLocked(const std::string& version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  kube::KubeClient& client_;
  const kube::ResourceKind kind_;
  const InformerOptions options_;
  const std::unique_ptr<const kube::Selector> selector_;  // null: there is no such selector
  std::vector<std::pair<Handler, Hears>> handlers_;
  Jitter jitter_;      // of the running thread, as are the next four
  int gaps_ = 0;       // lists in a row that no event followed
  int old_lists_ = 0;  // refused in a row
  int resumes_ = 0;    // in a row, without an event
  bool listing_ = true;
  mutable sync::Mutex mutex_;
  sync::Condition stopping_;
  std::map<Key, Kept> objects_ ABSL_GUARDED_BY(mutex_);
  std::map<Key, std::set<std::string>> index_ ABSL_GUARDED_BY(mutex_);  // {ns, value} -> names
  std::string seen_ ABSL_GUARDED_BY(mutex_);        // version up to which all events have been seen
  bool rewinding_ ABSL_GUARDED_BY(mutex_) = false;  // until a list is in: it is to be believed
  bool synced_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<kube::WatchStream> watch_ ABSL_GUARDED_BY(mutex_);
};

// Whether version `a` of an object is older than `b`. Versions that are no numbers have no order:
// false.
bool IsOlder(std::string_view a, std::string_view b);

}  // namespace starling::runtime
