// SPDX-License-Identifier: Apache-2.0
// A KubeClient that answers reads from informers, and reads its own writes.
//
// A reconciler asks for the same few objects again and again; from the copies that is free. What a
// write returned goes into the copy immediately, so that nobody decides on a state from before
// their own last write. Where the result of a write is unknown, or it failed because the copy is
// old (a conflict, a name that is taken), the object is read from the API server before the copy is
// used again. So a late watch never leads to a second pod.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "common/sync/mutex.h"
#include "controller/runtime/forwarding_kube_client.h"
#include "controller/runtime/informer.h"

namespace starling::runtime {

// Thread-safe, but Serve() is for one thread, before the first read.
class CachedKubeClient final : public ForwardingKubeClient {
 public:
  explicit CachedKubeClient(kube::KubeClient& inner) : ForwardingKubeClient(inner) {}

  // From now on Get and List of this kind are answered by `informer`, once it has synced;
  // GetMessage and ListMessages by one of messages. A kind has one copy: reads in its other form go
  // to the API server. Its selection must cover what callers ask for; lists by page or by fields go
  // to the API server too. It must outlive the client.
  void Serve(const kube::ResourceKind& kind, Informer& informer);
  void Serve(const kube::ResourceKind& kind, MessageInformer& informer);

  absl::StatusOr<Json> Get(const kube::ResourceKind& kind, const kube::ObjectKey& key) override;
  absl::StatusOr<kube::ObjectList> List(const kube::ResourceKind& kind, std::string_view ns,
                                        const kube::ListOptions& options) override;
  absl::StatusOr<kube::MessagePtr> GetMessage(const kube::ResourceKind& kind,
                                              const kube::ObjectKey& key) override;
  absl::StatusOr<kube::MessageList> ListMessages(const kube::ResourceKind& kind,
                                                 std::string_view ns,
                                                 const kube::ListOptions& options) override;

 protected:
  absl::StatusOr<Written> Write(const kube::ResourceKind& kind, const kube::ObjectKey& key,
                                std::string_view verb, const Call& call) override;

 private:
  using KindName = std::pair<std::string_view, std::string_view>;  // group, plural

  // One of them, or none.
  struct Copy {
    Informer* json = nullptr;
    MessageInformer* messages = nullptr;
  };
  // Null members: not served from a copy, or not yet.
  Copy CopyOf(const kube::ResourceKind& kind) const;
  // Reads from the API server what is doubtful in that namespace.
  absl::Status SettleDoubts(const kube::ResourceKind& kind, std::string_view ns);
  absl::Status ReadAnew(const kube::ResourceKind& kind, const kube::ObjectKey& key);
  void Doubt(const kube::ResourceKind& kind, const kube::ObjectKey& key);

  std::map<KindName, Copy> copies_;
  sync::Mutex mutex_;
  // Objects that are to be read past the copy.
  std::map<KindName, std::set<kube::ObjectKey>> doubts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::runtime
