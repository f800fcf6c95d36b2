// SPDX-License-Identifier: Apache-2.0
// Tells users what a controller did: events.k8s.io/v1 Events about an object.
//
// Best effort by nature: an event that cannot be written is logged and forgotten, and no decision
// ever reads one. Repetitions of one event (same object, type, reason, action, note) become one
// Event with a series count, as kubectl shows them.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "common/clock/clock.h"
#include "common/sync/mutex.h"
#include "controller/kube/kube_client.h"

namespace starling::runtime {

enum class EventType { kNormal, kWarning };

// Thread-safe.
class EventRecorder {
 public:
  // `controller` such as "starling.dev/trainingjob-controller", `instance` such as its host name.
  EventRecorder(kube::KubeClient& client, const clock::Clock& clock, std::string controller,
                std::string instance);

  // `reason` and `action` are CamelCase words ("WorkerLost", "ReplacePod"); `note` is one sentence
  // of at most 1024 bytes (longer ones are cut). `regarding` is the object that it is about.
  void Record(const kube::Json& regarding, EventType type, std::string_view reason,
              std::string_view action, std::string_view note);

 private:
  struct Known {
    kube::ObjectKey key;
    std::int64_t count = 1;
    absl::Time last;
    std::list<std::string>::iterator age;
  };

  absl::Status Repeat(Known& known) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RecordNew(const std::string& identity, const kube::Json& event)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  kube::KubeClient& client_;
  const clock::Clock& clock_;
  const std::string controller_;
  const std::string instance_;
  sync::Mutex mutex_;
  absl::flat_hash_map<std::string, Known> known_ ABSL_GUARDED_BY(mutex_);
  std::list<std::string> by_age_ ABSL_GUARDED_BY(mutex_);  // oldest first, at most 1024
};

// Deletes events older than `age`, as an API server does after an hour. Returns how many.
absl::StatusOr<int> DeleteOldEvents(kube::KubeClient& client, const clock::Clock& clock,
                                    absl::Duration age);

}  // namespace starling::runtime
