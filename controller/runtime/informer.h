// SPDX-License-Identifier: Apache-2.0
// A local copy of all objects of one kind, kept current by list and watch.
//
// Readers get immutable snapshots without asking the API server; handlers are told that an object
// changed and do no more than enqueue a key. What the copy lacks is only ever late, never lost:
// after a gap (410 Gone, a broken stream) everything is listed again and the differences reported.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/sync/mutex.h"
#include "controller/kube/kube_client.h"
#include "controller/runtime/work_queue.h"

namespace starling::runtime {

struct InformerOptions {
  std::string ns;  // empty: all namespaces
  kube::Selection selection;
};

// Thread-safe, except that Poll() and Run() are confined to one thread.
class Informer {
 public:
  using Object = std::shared_ptr<const kube::Json>;
  // `before` is null for a new object, `after` for one that is gone; never both.
  using Handler = std::function<void(const Object& before, const Object& after)>;

  Informer(kube::KubeClient& client, const kube::ResourceKind& kind, InformerOptions options);
  ~Informer();

  // Before the first Poll() or Run(). Handlers run on the informer's thread and must not wait.
  void AddHandler(Handler handler);

  // The snapshot of one object; null: not there.
  Object Get(const Key& key) const;
  std::vector<Object> List() const;
  bool HasSynced() const;  // the first list is in

  // One turn: lists if there is no live watch, else takes what the watch has, waiting up to
  // `timeout` for the first event. An error means that the next turn lists again.
  absl::Status Poll(absl::Duration timeout);

  // Turns until Stop(), pausing briefly after errors. Stop() may be called from any thread.
  void Run();
  void Stop();

 private:
  absl::Status Relist();
  absl::Status Drain(absl::Duration timeout);
  void Apply(const Key& key, Object after);
  absl::Duration Pause(int failures) const;

  kube::KubeClient& client_;
  const kube::ResourceKind kind_;
  const InformerOptions options_;
  std::vector<Handler> handlers_;
  mutable sync::Mutex mutex_;
  sync::Condition stopping_;
  std::map<Key, Object> objects_ ABSL_GUARDED_BY(mutex_);
  bool synced_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<kube::WatchStream> watch_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::runtime
