// SPDX-License-Identifier: Apache-2.0
// A watch of an API server that outlives the connections it needs.
//
// The server ends each request after a while and connections break; the watch then goes on from the
// last version it has seen, which bookmarks keep fresh. No connection is believed to be alive for
// longer than its request may last, so one that hangs half open costs a minute at most. Only what
// the reader must know reaches it: that versions are forgotten (OutOfRange), that it may not, or
// that the server has been away for longer than patience lasts.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/http/http_client.h"
#include "common/sync/mutex.h"
#include "controller/kube/kube_client.h"
#include "controller/kube/protobuf_wire.h"

namespace starling::kube {

struct HttpWatchOptions {
  absl::Duration request = absl::Seconds(45);   // after which the server ends one request
  absl::Duration grace = absl::Seconds(10);     // after which we do
  absl::Duration patience = absl::Seconds(30);  // with a server that cannot be reached
};

// Makes events of what a stream brings, in pieces that are cut anywhere. Confined to one thread.
template <typename Object>
class EventReader;

// One JSON object a line.
template <>
class EventReader<Json> {
 public:
  explicit EventReader(const ResourceKind& /*kind*/) {}

  static const char* accept() { return "application/json"; }
  void Clear() { line_.clear(); }  // another stream begins
  // Adds the events that are whole now. An error, after those before it: the stream is of no use.
  absl::Status Take(std::string_view piece, std::vector<WatchEvent>& events);

 private:
  std::string line_;  // the beginning of an event
};

// Frames of protobuf.
template <>
class EventReader<Message> {
 public:
  explicit EventReader(const ResourceKind& kind);

  static const char* accept() { return kProtobuf; }
  void Clear() { frames_.Clear(); }
  absl::Status Take(std::string_view piece, std::vector<MessageEvent>& events);

 private:
  const ResourceKind kind_;
  FrameBuffer frames_;
};

// Next() is confined to one thread; Stop() is thread-safe.
template <typename Object>
class HttpWatch final : public StreamOf<Object> {
 public:
  using Event = EventOf<Object>;

  HttpWatch(http::HttpClient& http, const ResourceKind& kind, std::string ns, Selection selection,
            std::string version, const HttpWatchOptions& options);

  // `present` are reported as ADDED first. Waits until the server has accepted the watch.
  absl::Status Start(std::vector<std::shared_ptr<const Object>> present);

  // Unavailable: out of patience; the next call goes on trying.
  absl::StatusOr<std::optional<Event>> Next(absl::Duration timeout) override;
  void Stop() override;

 private:
  std::shared_ptr<http::HttpStream> Open();
  absl::Status Await(absl::Time deadline);
  absl::StatusOr<bool> TakeStream(absl::Time deadline);
  absl::Status Take(std::string_view piece);
  absl::Status Broken(const absl::Status& status);
  void TryLater();

  http::HttpClient& http_;
  const ResourceKind kind_;
  const std::string ns_;
  const Selection selection_;
  const HttpWatchOptions options_;

  std::string version_;  // everything up to here has been seen
  EventReader<Object> reader_;
  std::deque<Event> events_;
  int failures_ = 0;  // in a row
  absl::Time failing_since_ = absl::InfiniteFuture();
  absl::Time next_try_ = absl::InfinitePast();

  sync::Mutex mutex_;
  sync::Condition woken_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<http::HttpStream> stream_ ABSL_GUARDED_BY(mutex_);
};

extern template class HttpWatch<Json>;
extern template class HttpWatch<Message>;

}  // namespace starling::kube
