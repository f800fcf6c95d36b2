// SPDX-License-Identifier: Apache-2.0
// A KubeClient that fails on purpose, for tests of what happens after every single write.
//
//   FaultyKubeClient client(store);
//   client.FailWrite(3, Fault::kCrashAfter);   // the process "dies" once its third write is stored
//   ... run until client.crashed(), then start anew on `store` itself ...
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "common/sync/mutex.h"
#include "controller/kube/kube_client.h"

namespace starling::kube {

enum class Fault {
  kRefuse,         // Unavailable, and nothing was stored
  kConflict,       // Aborted, and nothing was stored
  kUnknownResult,  // stored, but the caller is told Unavailable
  kCrashBefore,    // from this write on, it included, every call fails and does nothing
  kCrashAfter,     // stored; the caller is told Cancelled, and so is every later call
};

// Thread-safe. `inner` must outlive it.
class FaultyKubeClient final : public KubeClient {
 public:
  explicit FaultyKubeClient(KubeClient& inner) : inner_(inner) {}

  // The `nth` write from now on (1 is the next) fails in this way; one plan at a time.
  void FailWrite(std::int64_t nth, Fault fault);

  // Every write for which `matches` is true fails so, until Heal(). Kind and verb ("create",
  // "update", "updateStatus", "patch", "patchStatus", "apply", "delete", "updateScale").
  using Matcher = std::function<bool(const ResourceKind& kind, std::string_view verb)>;
  void FailWritesThat(Matcher matches, Fault fault);

  // Asked before every object or list is read, until Heal(): what it returns is what the reader is
  // told, unless it is OK. It may wait, as an API server may.
  using Reader = std::function<absl::Status(const ResourceKind& kind)>;
  void AskBeforeReads(Reader ask);

  // Forgets plans and crashes.
  void Heal();

  bool crashed() const;
  std::int64_t writes() const;  // attempted so far, failed ones included

  absl::StatusOr<Json> Get(const ResourceKind& kind, const ObjectKey& key) override;
  absl::StatusOr<ObjectList> List(const ResourceKind& kind, std::string_view ns,
                                  const ListOptions& options) override;
  absl::StatusOr<std::unique_ptr<WatchStream>> Watch(const ResourceKind& kind, std::string_view ns,
                                                     const WatchOptions& options) override;
  absl::StatusOr<Json> Create(const ResourceKind& kind, const Json& object) override;
  absl::StatusOr<Json> Update(const ResourceKind& kind, const Json& object) override;
  absl::StatusOr<Json> UpdateStatus(const ResourceKind& kind, const Json& object) override;
  absl::StatusOr<Json> Patch(const ResourceKind& kind, const ObjectKey& key,
                             const Json& patch) override;
  absl::StatusOr<Json> PatchStatus(const ResourceKind& kind, const ObjectKey& key,
                                   const Json& patch) override;
  absl::StatusOr<Json> Apply(const ResourceKind& kind, const Json& object,
                             const ApplyOptions& options) override;
  absl::StatusOr<Json> DryRunCreate(const ResourceKind& kind, const Json& object) override;
  absl::StatusOr<bool> Serves(const ResourceKind& kind) override;
  absl::StatusOr<Json> Delete(const ResourceKind& kind, const ObjectKey& key,
                              const DeleteOptions& options) override;
  absl::StatusOr<Json> GetScale(const ResourceKind& kind, const ObjectKey& key) override;
  absl::StatusOr<Json> UpdateScale(const ResourceKind& kind, const Json& scale) override;

 private:
  using Call = std::function<absl::StatusOr<Json>()>;

  absl::Status Alive() const;
  absl::Status Readable(const ResourceKind& kind) const;
  std::optional<Fault> NextFault(const ResourceKind& kind, std::string_view verb);
  absl::StatusOr<Json> Write(const ResourceKind& kind, std::string_view verb, const Call& call);

  KubeClient& inner_;
  mutable sync::Mutex mutex_;
  std::int64_t writes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t failing_write_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: none
  Fault fault_ ABSL_GUARDED_BY(mutex_) = Fault::kRefuse;
  Matcher matches_ ABSL_GUARDED_BY(mutex_);
  Fault matched_fault_ ABSL_GUARDED_BY(mutex_) = Fault::kRefuse;
  Reader ask_ ABSL_GUARDED_BY(mutex_);
  bool crashed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace starling::kube
