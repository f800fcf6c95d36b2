// SPDX-License-Identifier: Apache-2.0
// An answer without an end, such as a watch or a log, read in pieces by whoever has time for it.
//
// The library pushes; a thread of the stream takes what comes and holds at most a megabyte of it
// ahead of its reader, so a slow reader slows the server and nothing else.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/sync/mutex.h"
#include "controller/kube/http_transport.h"

namespace starling::kube {

// Next() and AwaitHead() are confined to one thread; Stop() is thread-safe. It must not outlive the
// transport.
class HttpStream {
 public:
  // Begins immediately. The whole stream is cut after `lifetime`.
  HttpStream(HttpTransport& transport, HttpRequest request, absl::Duration lifetime);
  ~HttpStream();
  HttpStream(const HttpStream&) = delete;
  HttpStream& operator=(const HttpStream&) = delete;

  struct Piece {
    enum class Kind { kNothing, kData, kEnd };
    Kind kind = Kind::kNothing;
    std::string text;  // of kData
  };

  // Waits for the server's first word: OK, or what the answer's status says, as of all requests.
  absl::Status AwaitHead(absl::Duration timeout);

  // Unavailable: broken off. Cancelled: stopped. An answer that is an error is its status.
  absl::StatusOr<Piece> Next(absl::Duration timeout);

  void Stop();

 private:
  absl::Status Read();
  bool TakeHead(const HttpHead& head);
  bool TakeBody(const char* data, std::size_t size);

  HttpTransport& transport_;
  const HttpRequest request_;
  const absl::Duration lifetime_;

  sync::Mutex mutex_;
  sync::Condition changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_head_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> pieces_ ABSL_GUARDED_BY(mutex_);
  std::size_t held_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes in pieces_
  HttpAnswer error_ ABSL_GUARDED_BY(mutex_);      // if its status is not 200
  std::shared_ptr<HttpConnection> connection_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace starling::kube
