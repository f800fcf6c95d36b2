// SPDX-License-Identifier: Apache-2.0
// A local copy of all objects of one kind, kept current by list and watch: JSON of custom kinds,
// messages of Kubernetes' own (controller/kube/messages.h).
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
#include "controller/runtime/work_queue.h"

namespace starling::kube {
class Selector;
}

namespace starling::runtime {

template <typename T>
struct InformerOptionsOf {
  using Object = std::shared_ptr<const T>;

  std::string ns;  // empty: all namespaces
  kube::Selection selection;
  std::int64_t page = 500;                  // objects a list request, at most; 0: all at once
  Object (*trim)(Object object) = nullptr;  // what the copy keeps (trim.h); null: everything
  // The copy takes a fifth of the memory, and each read of it some more time.
  bool packed = false;
  // Handlers compare what is with what was. Of a change in a packed copy they are told what is as
  // `before` too unless they do, for it takes a read.
  bool tells_before = false;
  // After events, until the next are looked for: one waking serves all that came.
  absl::Duration rest;
  // What of an object handlers want to hear of: a change that leaves this as it was is kept, and
  // not told of. Null: all of it.
  std::string (*news)(const T& object) = nullptr;
  std::string index_label;  // not empty: ListByLabel() finds objects by the value of this label
  BackOff back_off{.first = absl::Milliseconds(50), .longest = absl::Seconds(10), .jitter = 0.5};
};

// What runs and is waited for, whatever its objects are.
class Copying {
 public:
  virtual ~Copying() = default;
  virtual void Run() = 0;
  virtual void Stop() = 0;
  virtual bool HasSynced() const = 0;  // the first list is in
};

// Of objects of type T: kube::Json or kube::Message. Thread-safe, except that Poll() and Run() are
// confined to one thread.
template <typename T>
class InformerOf final : public Copying {
 public:
  using Object = std::shared_ptr<const T>;
  using Options = InformerOptionsOf<T>;
  // `before` is null for a new object, `after` for one that is gone; never both.
  using Handler = std::function<void(const Object& before, const Object& after)>;

  InformerOf(kube::KubeClient& client, const kube::ResourceKind& kind, Options options);
  ~InformerOf() override;

  // Before the first Poll() or Run(). Handlers must not wait. They run on the informer's thread,
  // and on that of whoever calls Learn(). Who decides by what is there, and knows what it writes,
  // need not be told of that.
  enum class Hears { kAll, kNotOwnWrites };
  void AddHandler(Handler handler, Hears hears = Hears::kAll);

  // The snapshot of one object; null: not there.
  Object Get(const Key& key) const;
  std::vector<Object> List() const;
  // Those of one namespace whose index label has this value, ordered by name.
  std::vector<Object> ListByLabel(const std::string& ns, const std::string& value) const;
  bool HasSynced() const override;
  // All changes up to this version have been told; empty: nothing has.
  std::string seen() const;

  // What a write of this process returned, or a read past the copy: readers see it immediately, the
  // watch will tell of it later. Not believed if the copy knows better by now, or does not select
  // such objects.
  enum class Source { kRead, kOwnWrite };
  void Learn(Object object, Source source = Source::kRead);

  const Options& options() const { return options_; }

  // One turn: lists if there is no place to watch from, watches if there is no live watch, else
  // takes what the watch has, waiting up to `timeout` for the first event. After an error the next
  // turn takes up what was lost.
  absl::Status Poll(absl::Duration timeout);

  // Turns until Stop(), pausing after errors and between lists that follow one another. Stop() may
  // be called from any thread.
  void Run() override;
  void Stop() override;

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
  Object Trimmed(Object object) const;
  Object Open(const Kept& kept) const;
  Object Before(const Kept& kept, const Object& after) const;
  Kept Keep(const Object& object) const;
  std::vector<Kept> FindByLabel(const std::string& ns, const std::string& value) const;
  void Take(kube::EventOf<T> event);
  // Whether the watch tells what is known: most often what a write of this process returned.
  bool Knows(const Key& key, const std::string& version);
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
  const Options options_;
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
  std::shared_ptr<kube::StreamOf<T>> watch_ ABSL_GUARDED_BY(mutex_);
};

extern template class InformerOf<kube::Json>;
extern template class InformerOf<kube::Message>;
using Informer = InformerOf<kube::Json>;
using InformerOptions = InformerOptionsOf<kube::Json>;
using MessageInformer = InformerOf<kube::Message>;
using MessageInformerOptions = InformerOptionsOf<kube::Message>;

// Whether version `a` of an object is older than `b`. Versions that are no numbers have no order:
// false.
bool IsOlder(std::string_view a, std::string_view b);

}  // namespace starling::runtime
