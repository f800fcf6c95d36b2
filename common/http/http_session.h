// SPDX-License-Identifier: Apache-2.0
// The connections of one server: each a session, and the table of all of them.
//
// Internal to this folder. Confined to the server's thread.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <list>
#include <memory>

#include "common/http/http_server.h"
#include "common/http/worker_pool.h"

typedef struct ssl_ctx_st SSL_CTX;

namespace starling::http {

class Session {
 public:
  virtual ~Session() = default;
  virtual void Start() = 0;
  // At once, whatever is under way.
  virtual void Close() = 0;
  // After what is under way; a stream is told to end.
  virtual void Drain() = 0;
  // The server is gone: wakes of its stream must not reach for it any more.
  virtual void Detach() = 0;

 private:
  friend class SessionTable;
  bool listed_ = false;
  bool dispensable_ = false;
  std::list<Session*>::iterator place_;
};

// Who is there, and who can be dispensed with: idle connections and those of callers unknown, the
// one first that has been so for the longest.
class SessionTable {
 public:
  void Enter(Session& session);  // as one that can be dispensed with
  void Leave(Session& session);  // may be said twice
  // Either way it counts as the youngest of its kind.
  void Keep(Session& session, bool dispensable);

  Session* Oldest() const { return dispensable_.empty() ? nullptr : dispensable_.front(); }
  int size() const { return size_; }
  std::list<Session*> All() const;

 private:
  std::list<Session*> kept_;
  std::list<Session*> dispensable_;
  std::atomic<int> size_ = 0;
};

// What sessions need of their server.
struct SessionHost {
  const HttpServerOptions& options;
  const Handler& handler;
  boost::asio::io_context& context;
  WorkerPool* pool;  // null: handlers run on the server's thread
  SessionTable table;
  std::atomic<int> streams = 0;
  bool draining = false;
};

// `tls` is the context of an HTTPS connection, null: HTTP. `host` must outlive the session.
std::shared_ptr<Session> MakeSession(SessionHost& host, boost::asio::ip::tcp::socket socket,
                                     const std::shared_ptr<SSL_CTX>& tls);

}  // namespace starling::http
