// SPDX-License-Identifier: Apache-2.0
// Tells users what a controller did: events.k8s.io/v1 Events about an object.
//
// Best effort by nature: an event that cannot be written is logged and forgotten, and no decision
// ever reads one. Repetitions of one event (same object, type, reason, action, note) become one
// Event with a series count, as kubectl shows them. Against an API server events are queued and
// written by Flush(), so that telling of a thing never delays doing it.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "common/clock/clock.h"
#include "common/sync/mutex.h"
#include "controller/kube/kube_client.h"

namespace starling::kubernetes {
class Event;
}

namespace starling::runtime {

enum class EventType { kNormal, kWarning };
enum class EventWrites { kAtOnce, kQueued };

// Thread-safe.
class EventRecorder {
 public:
  // `controller` such as "starling.dev/trainingjob-controller", `instance` such as its host name.
  EventRecorder(kube::KubeClient& client, const clock::Clock& clock, std::string controller,
                std::string instance, EventWrites writes = EventWrites::kAtOnce);

  // `reason` and `action` are CamelCase words ("WorkerLost", "ReplacePod"); `note` is one sentence
  // of at most 1024 bytes (longer ones are cut). `regarding` is the object that it is about.
  void Record(const kube::Json& regarding, EventType type, std::string_view reason,
              std::string_view action, std::string_view note);

  // Writes what is queued, in order. Of more than 4096 that wait the newest are dropped.
  void Flush();
  // Ends Flush() after the event that it is writing; what is still queued is dropped.
  void Close();

 private:
  struct Known {
    kube::ObjectKey key;
    std::int64_t count = 1;
    absl::Time last;
    std::list<std::string>::iterator age;
  };

  // An event that has not been written yet; a thousand jobs may have thousands of them waiting.
  struct Waiting {
    std::string identity;
    kube::ObjectKey key;  // of the object that it is about
    std::string api_version;
    std::string kind;
    std::string uid;
    std::string resource_version;
    bool warning = false;
    std::string reason;
    std::string action;
    std::string note;
    absl::Time time;
  };
  kubernetes::Event Make(const Waiting& waiting) const;

  void Write(const Waiting& waiting);
  absl::Status Repeat(Known& known) ABSL_EXCLUSIVE_LOCKS_REQUIRED(writing_);
  absl::Status RecordNew(const Waiting& waiting) ABSL_EXCLUSIVE_LOCKS_REQUIRED(writing_);

  kube::KubeClient& client_;
  const clock::Clock& clock_;
  const std::string controller_;
  const std::string instance_;
  const EventWrites writes_;
  sync::Mutex writing_;  // held while the API server is asked
  absl::flat_hash_map<std::string, Known> known_ ABSL_GUARDED_BY(writing_);
  std::list<std::string> by_age_ ABSL_GUARDED_BY(writing_);  // oldest first, at most 1024
  sync::Mutex mutex_;
  std::deque<Waiting> queue_ ABSL_GUARDED_BY(mutex_);
  std::int64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

// Deletes events older than `age`, as an API server does after an hour. Returns how many.
absl::StatusOr<int> DeleteOldEvents(kube::KubeClient& client, const clock::Clock& clock,
                                    absl::Duration age);

}  // namespace starling::runtime
