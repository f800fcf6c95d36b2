// SPDX-License-Identifier: Apache-2.0
// The only door to the cluster: objects in Kubernetes' form, read, watched and written.
//
// The controller, the process kubelet and the CLI know nothing else of where objects live, so one
// state machine serves a real API server and a single machine alike. Every implementation passes
// tests/contract/kube_client_contract.h; to add one, implement this interface and instantiate that
// suite for it.
//
// Objects are JSON in Kubernetes' form, complete with apiVersion and kind. Those of Kubernetes' own
// kinds are messages too (messages.h): an API server is asked for them in protobuf, and neither
// side has a tree of JSON to build. Controllers use messages wherever there are some; JSON is for
// custom kinds, for patches, for pods that are made from a user's template, and for who shows or
// stores whole objects (CLI, process kubelet). Errors of all methods, with the HTTP status that an
// API server gives:
//   NotFound            404  the object (or its status or scale subresource) is not there
//   AlreadyExists       409  a create, of a name that is taken
//   Aborted             409  a conflict: the resourceVersion or UID given is not the current one;
//                            read again, decide again
//   OutOfRange          410  the watch or the continue token is older than what is remembered; list
//                            again
//   InvalidArgument     422  the object or the request is wrong; asking again will not help
//   PermissionDenied    403  this user, or this file system, does not allow it
//   ResourceExhausted   429  too many requests, or no space left; later it may work
//   Unavailable         503  not reachable or busy. The write may or may not have happened
//   DataLoss            500  the store is damaged
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "controller/kube/resource_kind.h"

namespace google::protobuf {
class Message;
}

namespace starling::kube {

using Json = nlohmann::json;
using google::protobuf::Message;
using MessagePtr = std::shared_ptr<const Message>;

struct ObjectKey {
  std::string ns;  // "namespace" is a C++ keyword
  std::string name;

  friend auto operator<=>(const ObjectKey&, const ObjectKey&) = default;  // NOLINT(*-use-nullptr)
  template <typename H>
  friend H AbslHashValue(H state, const ObjectKey& key) {
    return H::combine(std::move(state), key.ns, key.name);
  }
  std::string ToString() const { return ns + "/" + name; }
};

// Which objects a list or watch shows. Both selectors in kubectl's syntax; empty selects all.
struct Selection {
  std::string labels;  // "app=x,tier!=web,env in (a,b),env notin (c),key,!key"
  std::string fields;  // "metadata.name=x,spec.nodeName!=y"
};

struct ListOptions {
  Selection selection;
  std::int64_t limit = 0;      // at most so many a page; 0: all
  std::string continue_token;  // ObjectList::continue_token of the page before
};

template <typename Item>
struct ListOf {
  std::vector<Item> items;       // ordered by namespace, then name
  std::string resource_version;  // the state that the list shows: watch from here
  std::string continue_token;    // not empty: there is more
};
using ObjectList = ListOf<Json>;
using MessageList = ListOf<MessagePtr>;

struct WatchOptions {
  Selection selection;
  // Changes after this version are reported. Empty: the present objects first, as ADDED.
  std::string resource_version;
};

enum class WatchEventType { kAdded, kModified, kDeleted, kBookmark };
// Of the API's word for it, such as ADDED; nothing for a word that is newer than we are.
std::optional<WatchEventType> EventTypeOf(std::string_view name);

template <typename Object>
struct EventOf {
  WatchEventType type;
  // The object after the change; of a deletion, its last state with the deletion's version. Of a
  // bookmark, an object with nothing but metadata.resourceVersion.
  std::shared_ptr<const Object> object;
};
using WatchEvent = EventOf<Json>;
using MessageEvent = EventOf<Message>;

// A stream of changes, in the order in which they happened, none left out. Next() is confined to
// one thread; Stop() may be called from any. It must not outlive its client.
template <typename Object>
class StreamOf {
 public:
  virtual ~StreamOf() = default;

  // The next event, waiting up to `timeout` for it; nothing if there was none. OutOfRange: events
  // were missed, list again. Cancelled: after Stop().
  virtual absl::StatusOr<std::optional<EventOf<Object>>> Next(absl::Duration timeout) = 0;

  // Ends this and every later Next().
  virtual void Stop() = 0;
};
using WatchStream = StreamOf<Json>;
using MessageStream = StreamOf<Message>;

struct ApplyOptions {
  std::string field_manager;  // who applies; required. Owns the fields that it applies
  // Take fields from other managers instead of failing. For fields that are ours alone: always.
  bool force = false;
  bool dry_run = false;  // all checks, defaults and admission, but nothing is stored
};

struct DeleteOptions {
  // Both are preconditions: the delete is refused (Aborted) if they differ.
  std::string uid;
  std::string resource_version;
  // Pods only: how long the containers may take. Not given: the pod's
  // spec.terminationGracePeriodSeconds, by default 30. 0 removes the pod at once, which only the
  // kubelet that has seen its processes end should ask for.
  std::optional<std::int64_t> grace_period_seconds;
};

// Thread-safe, all implementations.
//
// Writes of the main resource ignore `status`; writes of the status ignore everything else but
// the resourceVersion. metadata.generation grows when the spec changes (and when the object is
// marked for deletion). A write that changes nothing changes no version and sends no event.
// metadata.managedFields need not be shown, and counts for nothing in what is written.
class KubeClient {
 public:
  virtual ~KubeClient() = default;

  virtual absl::StatusOr<Json> Get(const ResourceKind& kind, const ObjectKey& key) = 0;

  // The objects of one namespace, or of all if `ns` is empty.
  virtual absl::StatusOr<ObjectList> List(const ResourceKind& kind, std::string_view ns,
                                          const ListOptions& options) = 0;
  virtual absl::StatusOr<std::unique_ptr<WatchStream>> Watch(const ResourceKind& kind,
                                                             std::string_view ns,
                                                             const WatchOptions& options) = 0;

  // The namespace is metadata.namespace, by default "default". metadata.generateName stands in for
  // a name. Returns the object as stored, as all writes do.
  virtual absl::StatusOr<Json> Create(const ResourceKind& kind, const Json& object) = 0;

  // Replaces the object whose metadata.resourceVersion is given; without one: InvalidArgument.
  virtual absl::StatusOr<Json> Update(const ResourceKind& kind, const Json& object) = 0;
  virtual absl::StatusOr<Json> UpdateStatus(const ResourceKind& kind, const Json& object) = 0;

  // Merges `patch` into the object (RFC 7386: null removes, lists are replaced). A
  // metadata.resourceVersion or metadata.uid in it is a precondition.
  virtual absl::StatusOr<Json> Patch(const ResourceKind& kind, const ObjectKey& key,
                                     const Json& patch) = 0;
  virtual absl::StatusOr<Json> PatchStatus(const ResourceKind& kind, const ObjectKey& key,
                                           const Json& patch) = 0;

  // Server-side apply: makes the object if it is not there, else sets the fields that `object` has
  // and removes those that `field_manager` applied before, no longer applies and nobody else owns.
  // Everything else stays. Needs apiVersion, kind and name; a metadata.uid in it is a
  // precondition. Aborted: other managers own fields that would get another value; the message
  // names both. (Merge patches and applying are all the ways to write a part of an object here:
  // JSON patches and strategic merges have no user.)
  virtual absl::StatusOr<Json> Apply(const ResourceKind& kind, const Json& object,
                                     const ApplyOptions& options) = 0;

  // What Create would return, its errors included, with nothing stored.
  virtual absl::StatusOr<Json> DryRunCreate(const ResourceKind& kind, const Json& object) = 0;

  // Whether objects of this kind, in this version, can be had here: false where a CRD is not
  // installed. Asked of the server each time; a caller that asks often remembers the answer for a
  // minute or so. All other methods return NotFound for a kind that is not served.
  virtual absl::StatusOr<bool> Serves(const ResourceKind& kind) = 0;

  // Marks the object for deletion, or removes it if nothing holds it (finalizers; a pod's grace
  // period). Returns its last state. Objects it owns follow by garbage collection.
  virtual absl::StatusOr<Json> Delete(const ResourceKind& kind, const ObjectKey& key,
                                      const DeleteOptions& options) = 0;

  // An autoscaling/v1 Scale: spec.replicas is wanted, status.replicas and status.selector are.
  virtual absl::StatusOr<Json> GetScale(const ResourceKind& kind, const ObjectKey& key) = 0;
  // Sets the wanted replicas; metadata.resourceVersion in it is a precondition.
  virtual absl::StatusOr<Json> UpdateScale(const ResourceKind& kind, const Json& scale) = 0;

  // The same with messages, for the kinds of messages.h; InvalidArgument for any other. What a
  // store of JSON does is what these do by default: they convert. There is no Update: a message is
  // only a part of its object. Of a deleted object the last state may be no more than its key.
  virtual absl::StatusOr<MessagePtr> GetMessage(const ResourceKind& kind, const ObjectKey& key);
  virtual absl::StatusOr<MessageList> ListMessages(const ResourceKind& kind, std::string_view ns,
                                                   const ListOptions& options);
  virtual absl::StatusOr<std::unique_ptr<MessageStream>> WatchMessages(const ResourceKind& kind,
                                                                       std::string_view ns,
                                                                       const WatchOptions& options);
  virtual absl::StatusOr<MessagePtr> CreateMessage(const ResourceKind& kind, const Message& object);
  // Of what has no message in full, as a pod from a template, with the answer as a message.
  virtual absl::StatusOr<MessagePtr> CreateFromJson(const ResourceKind& kind, const Json& object);
  virtual absl::StatusOr<MessagePtr> DeleteMessage(const ResourceKind& kind, const ObjectKey& key,
                                                   const DeleteOptions& options);
};

}  // namespace starling::kube
