// SPDX-License-Identifier: Apache-2.0
// A watch of the embedded store: reads the log of changes from its place in it.
//
// It holds no events beyond one small batch, so a slow reader costs nothing; one that falls behind
// the log's end gets OutOfRange, as from an API server.
#pragma once

#include <atomic>
#include <deque>
#include <string>
#include <vector>

#include "controller/kube/object_store.h"
#include "controller/kube/selector.h"

namespace starling::kube {

// Next() is confined to one thread; Stop() is thread-safe.
class EmbeddedWatch final : public WatchStream {
 public:
  EmbeddedWatch(ObjectStore& store, const ResourceKind& kind, std::string table, std::string ns,
                Selector selector, std::int64_t version)
      : store_(store),
        kind_(kind),
        table_(std::move(table)),
        ns_(std::move(ns)),
        selector_(std::move(selector)),
        version_(version),
        announced_(version) {}

  // `present` are reported as ADDED first. OutOfRange: the version is no longer, or not yet, known.
  absl::Status Start(std::vector<Json> present);

  absl::StatusOr<std::optional<WatchEvent>> Next(absl::Duration timeout) override;
  void Stop() override;

 private:
  absl::Status Fetch();
  std::optional<WatchEvent> Translate(const Change& change) const;

  ObjectStore& store_;
  const ResourceKind kind_;
  const std::string table_;
  const std::string ns_;
  const Selector selector_;
  std::int64_t version_;    // everything up to here has been seen
  std::int64_t announced_;  // the reader knows that
  std::deque<WatchEvent> events_;
  std::atomic<bool> stopped_ = false;
};

}  // namespace starling::kube
