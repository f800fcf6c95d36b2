// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_session.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <chrono>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#include "common/http/body_stream.h"
#include "common/http/http_channel.h"
#include "common/http/http_rules.h"
#include "common/log/log.h"

namespace starling::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using Error = beast::error_code;
using Tcp = asio::ip::tcp;

constexpr std::size_t kDrainLimit = 1 << 20;
constexpr auto kDrainTime = std::chrono::seconds(1);
constexpr int kStreamBuffer = 64 << 10;  // what the kernel may hold for a reader that is slow
constexpr absl::Duration kBusyPause = absl::Milliseconds(50);

Response Refuse(const SessionHost& host, const Refusal& refusal) {
  if (host.options.refusal) return host.options.refusal(refusal.status, refusal.why);
  return PlainRefusal(refusal.status, refusal.why);
}

Response Busy(const SessionHost& host, std::string_view why) {
  Response response = Refuse(host, {503, why});
  response.headers.emplace_back("Retry-After", "1");
  return response;
}

Response Handle(const SessionHost& host, const Request& request) {
  try {
    return host.handler(request);
  } catch (const std::exception& exception) {
    log::Error("an HTTP handler threw; its answer was replaced by 500",
               {{"target", request.target}, {"error", exception.what()}});
    return Refuse(host, {500, "internal error"});
  }
}

// What throws ends without its end, so that the client knows that something is missing.
std::optional<BodyStream::Piece> AskFor(BodyStream& body) {
  try {
    return body.Next();
  } catch (const std::exception& exception) {
    log::Error("a stream of an HTTP answer threw; it was cut", {{"error", exception.what()}});
    return std::nullopt;
  }
}

// A connection's TLS and the context that it was begun with.
struct TlsStream {
  TlsStream(const std::shared_ptr<SSL_CTX>& shared, Tcp::socket socket)
      : context(Own(shared)), tls(std::move(socket), context) {}

  static SSL_CTX* Own(const std::shared_ptr<SSL_CTX>& shared) {
    SSL_CTX_up_ref(shared.get());
    return shared.get();
  }

  asio::ssl::context context;
  beast::ssl_stream<beast::tcp_stream> tls;
};

// Wakes a stream's session from any thread, for as long as there is one. Thread-safe.
class Waker {
 public:
  Waker(asio::io_context& context, std::function<void()> wake)
      : context_(context), wake_(std::move(wake)) {}

  void Wake() {
    sync::MutexLock lock(mutex_);
    if (wake_ == nullptr || pending_) return;
    pending_ = true;
    asio::post(context_, wake_);
  }
  void Taken() {
    sync::MutexLock lock(mutex_);
    pending_ = false;
  }
  void Detach() {
    sync::MutexLock lock(mutex_);
    wake_ = nullptr;
  }

 private:
  asio::io_context& context_;
  sync::Mutex mutex_;
  std::function<void()> wake_ ABSL_GUARDED_BY(mutex_);
  bool pending_ ABSL_GUARDED_BY(mutex_) = false;
};

// Read a request, answer it, and again while both sides keep the connection alive; a stream is the
// last answer of its connection. Stream is PlainStream or TlsStream.
template <typename Stream>
class StreamSession final : public Session,
                            public std::enable_shared_from_this<StreamSession<Stream>> {
 public:
  template <typename... Arguments>
  explicit StreamSession(SessionHost& host, Arguments&&... arguments)
      : host_(host),
        deadline_(absl::ToChronoMilliseconds(host.options.deadline)),
        stream_(std::forward<Arguments>(arguments)...),
        buffer_(host.options.header_limit + host.options.body_limit + kSlack),
        timer_(host.context) {
    host_.table.Enter(*this);
  }
  ~StreamSession() override {
    ReleaseBody();
    host_.table.Leave(*this);
  }

  void Start() override {
    if constexpr (kTls) {
      Lowest().expires_after(deadline_);
      stream_.tls.async_handshake(asio::ssl::stream_base::server,
                                  [self = this->shared_from_this()](const Error& error) {
                                    if (!error) self->Read(/*first=*/true);
                                  });
    } else {
      Read(/*first=*/true);
    }
  }

  void Close() override {
    closed_ = true;
    ReleaseBody();
    host_.table.Leave(*this);
    timer_.cancel();
    Lowest().close();
  }

  void Drain() override {
    if (body_ != nullptr) {
      drain_wanted_ = true;
      if (sending_ == Sending::kWaiting) Ask();
    } else if (reading_ && buffer_.size() == 0) {
      Close();
    }
  }

  void Detach() override {
    if (waker_ != nullptr) waker_->Detach();
  }

 private:
  static constexpr std::size_t kSlack = 4096;
  static constexpr bool kTls = std::is_same_v<Stream, TlsStream>;
  // What a stream's session does.
  enum class Sending { kWriting, kAsking, kWaiting };

  auto& Bytes() {
    if constexpr (kTls) {
      return stream_.tls;
    } else {
      return stream_;
    }
  }
  beast::tcp_stream& Lowest() { return beast::get_lowest_layer(Bytes()); }

  // The time of the handshake is part of the first request's.
  void Read(bool first = false) {
    if (host_.draining && buffer_.size() == 0) return Close();
    reading_ = true;
    host_.table.Keep(*this, /*dispensable=*/true);
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(host_.options.header_limit));
    parser_->body_limit(host_.options.body_limit);
    if (!kTls || !first) Lowest().expires_after(deadline_);
    beast::http::async_read_header(Bytes(), buffer_, *parser_,
                                   [self = this->shared_from_this()](
                                       const Error& error, std::size_t) { self->OnHeader(error); });
  }

  void OnHeader(const Error& error) {
    reading_ = false;
    if (error) return Fail(error);
    if (const auto refusal = CheckHead(*parser_)) {
      return Write(Refuse(host_, *refusal), /*keep_alive=*/false);
    }
    beast::http::async_read(
        Bytes(), buffer_, *parser_,
        [self = this->shared_from_this()](const Error& read_error, std::size_t) {
          self->OnRequest(read_error);
        });
  }

  void OnRequest(const Error& error) {
    if (error) return Fail(error);
    head_ = parser_->get().method() == beast::http::verb::head;
    version_ = parser_->get().version();
    const bool keep_alive = parser_->get().keep_alive();
    Request request = ToRequest(*parser_);
    parser_.reset();
    if (known_) host_.table.Keep(*this, /*dispensable=*/false);
    if (host_.pool == nullptr) return Answer(Handle(host_, request), keep_alive);
    Lowest().expires_never();
    // Only `self` as it is handed back to the server's thread may be the last of this session.
    const bool taken = host_.pool->Add([self = this->shared_from_this(), &host = host_,
                                        request = std::move(request), keep_alive]() mutable {
      Response response = Handle(host, request);
      asio::post(host.context, [self = std::move(self), response = std::move(response),
                                keep_alive]() mutable { self->Answer(response, keep_alive); });
    });
    if (!taken) Write(Busy(host_, "too many requests wait for their answers"), keep_alive);
  }

  void Answer(const Response& response, bool keep_alive) {
    if (closed_) return;
    known_ = response.known_caller;
    host_.table.Keep(*this, /*dispensable=*/!known_);
    if (response.stream == nullptr) return Write(response, keep_alive);
    if (host_.streams >= host_.options.max_streams) {
      return Write(Busy(host_, "too many streams are open"), keep_alive);
    }
    StartStream(response);
  }

  void Fail(const Error& error) {
    if (const auto refusal = RefusalOf(error)) {
      return Write(Refuse(host_, *refusal), /*keep_alive=*/false);
    }
    Error ignored;
    Lowest().socket().shutdown(Tcp::socket::shutdown_both, ignored);
  }

  void Write(const Response& response, bool keep_alive) {
    keep_alive = keep_alive && !host_.draining;
    Lowest().expires_after(deadline_);
    const Framing framing{.keep_alive = keep_alive, .length = response.body.size()};
    outgoing_ = HeadOf(response, framing);
    if (!head_) outgoing_ += response.body;
    asio::async_write(
        Bytes(), asio::buffer(outgoing_),
        [self = this->shared_from_this(), keep_alive](const Error& error, std::size_t) {
          if (error) return;
          self->head_ = false;
          self->outgoing_.clear();
          keep_alive ? self->Read() : self->SayGoodbye();
        });
  }

  // In TLS first; whatever comes of that, the rest is as without it.
  void SayGoodbye() {
    if constexpr (kTls) {
      Lowest().expires_after(kDrainTime);
      stream_.tls.async_shutdown(
          [self = this->shared_from_this()](const Error&) { self->DrainInput(); });
    } else {
      DrainInput();
    }
  }

  // What the peer still sends is read for a moment: closing on unread bytes would reset the
  // connection and could destroy our answer on its way.
  void DrainInput() {
    Error ignored;
    Lowest().socket().shutdown(Tcp::socket::shutdown_send, ignored);
    Lowest().expires_after(kDrainTime);
    DrainMore();
  }

  void DrainMore() {
    Lowest().async_read_some(asio::buffer(scrap_), [self = this->shared_from_this()](
                                                       const Error& error, std::size_t count) {
      self->drained_ += count;
      if (!error && self->drained_ < kDrainLimit) self->DrainMore();
    });
  }

  void StartStream(const Response& response) {
    body_ = response.stream;
    ++host_.streams;
    const std::optional<std::uint64_t> length = body_->Length();
    chunked_ = !length && version_ == 11;
    outgoing_ = HeadOf(response, {.keep_alive = false, .chunked = chunked_, .length = length});
    last_written_ = head_;
    // From here on the timer below holds the deadline: of what is written, not of the silence.
    Lowest().expires_never();
    const int socket = Lowest().socket().native_handle();
    SetOption(socket, SOL_SOCKET, SO_SNDBUF, kStreamBuffer);
    SetOption(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    SetOption(socket, IPPROTO_TCP, TCP_USER_TIMEOUT,
              static_cast<int>(absl::ToInt64Milliseconds(host_.options.stream_patience)));
    waker_ = std::make_shared<Waker>(host_.context, [weak = this->weak_from_this()] {
      if (const auto self = weak.lock()) self->OnWake();
    });
    body_->Start([waker = waker_] { waker->Wake(); });
    AwaitTheirEnd();
    WriteMore();
  }

  // A client that goes is noticed by what it no longer sends.
  void AwaitTheirEnd() {
    Bytes().async_read_some(asio::buffer(scrap_), [self = this->shared_from_this()](
                                                      const Error& error, std::size_t count) {
      self->drained_ += count;
      if (error || self->drained_ > kDrainLimit) return self->Close();
      self->AwaitTheirEnd();
    });
  }

  void WriteMore() {
    sending_ = Sending::kWriting;
    After(host_.options.stream_patience, [](StreamSession& self) { self.Close(); });
    Bytes().async_write_some(
        asio::buffer(outgoing_.data() + written_, outgoing_.size() - written_),
        [self = this->shared_from_this()](const Error& error, std::size_t count) {
          if (self->closed_) return;
          if (error) return self->Close();
          self->written_ += count;
          if (self->written_ < self->outgoing_.size()) return self->WriteMore();
          self->outgoing_.clear();
          self->written_ = 0;
          self->last_written_ ? self->EndStream() : self->PauseFor(self->pause_);
        });
  }

  void PauseFor(absl::Duration pause) {
    pause_ = absl::ZeroDuration();
    if (pause <= absl::ZeroDuration() || woken_ || drain_wanted_) return Ask();
    sending_ = Sending::kWaiting;
    After(pause, [](StreamSession& self) { self.Ask(); });
  }

  void OnWake() {
    if (closed_ || waker_ == nullptr) return;
    waker_->Taken();
    woken_ = true;
    if (sending_ == Sending::kWaiting) Ask();
  }

  void Ask() {
    ++turn_;
    timer_.cancel();
    sending_ = Sending::kAsking;
    woken_ = false;
    if (std::exchange(drain_wanted_, false)) body_->Drain();
    if (host_.pool == nullptr || !body_->ReadsFiles()) return Take(AskFor(*body_));
    const bool taken = host_.pool->Add(
        [self = this->shared_from_this(), body = body_, &context = host_.context]() mutable {
          auto piece = AskFor(*body);
          body.reset();
          asio::post(context, [self = std::move(self), piece = std::move(piece)]() mutable {
            self->Take(std::move(piece));
          });
        });
    if (!taken) PauseFor(kBusyPause);
  }

  void Take(std::optional<BodyStream::Piece> piece) {
    if (closed_) return;
    if (!piece) return Close();
    pause_ = piece->pause;
    last_written_ = piece->ended;
    if (!piece->bytes.empty()) outgoing_ = chunked_ ? ChunkOf(piece->bytes) : piece->bytes;
    if (piece->ended && chunked_) outgoing_ += ChunkOf("");
    if (!outgoing_.empty()) return WriteMore();
    piece->ended ? EndStream() : PauseFor(pause_);
  }

  // All is written: the client is given a moment to take it and to end the connection first.
  void EndStream() {
    ReleaseBody();
    Error ignored;
    Lowest().socket().shutdown(Tcp::socket::shutdown_send, ignored);
    After(absl::FromChrono(kDrainTime), [](StreamSession& self) { self.Close(); });
  }

  void ReleaseBody() {
    if (waker_ != nullptr) waker_->Detach();
    waker_ = nullptr;
    if (body_ == nullptr) return;
    body_ = nullptr;
    --host_.streams;
  }

  // Does `what` after `wait`, unless this is said again before, or something else begins.
  template <typename Function>
  void After(absl::Duration wait, Function what) {
    timer_.expires_after(absl::ToChronoMilliseconds(std::min(wait, absl::Hours(24))));
    timer_.async_wait([self = this->shared_from_this(), turn = ++turn_, what](const Error& error) {
      if (!error && turn == self->turn_ && !self->closed_) what(*self);
    });
  }

  SessionHost& host_;
  const std::chrono::milliseconds deadline_;
  Stream stream_;
  beast::flat_buffer buffer_;
  std::optional<RequestParser> parser_;
  bool reading_ = false;  // the head of a request
  bool head_ = false;
  unsigned version_ = 11;
  bool known_ = false;
  bool closed_ = false;
  std::string outgoing_;
  std::size_t drained_ = 0;
  std::array<char, 4096> scrap_;

  // Of a stream.
  std::shared_ptr<BodyStream> body_;
  std::shared_ptr<Waker> waker_;
  Sending sending_ = Sending::kWriting;
  asio::steady_timer timer_;
  std::uint64_t turn_ = 0;
  std::size_t written_ = 0;
  absl::Duration pause_;
  bool chunked_ = false;
  bool last_written_ = false;  // what is being written ends the stream
  bool woken_ = false;
  bool drain_wanted_ = false;
};

}  // namespace

void SessionTable::Enter(Session& session) {
  ++size_;
  session.listed_ = true;
  session.dispensable_ = true;
  session.place_ = dispensable_.insert(dispensable_.end(), &session);
}

void SessionTable::Leave(Session& session) {
  if (!std::exchange(session.listed_, false)) return;
  --size_;
  (session.dispensable_ ? dispensable_ : kept_).erase(session.place_);
}

void SessionTable::Keep(Session& session, bool dispensable) {
  if (!session.listed_) return;
  std::list<Session*>& to = dispensable ? dispensable_ : kept_;
  to.splice(to.end(), session.dispensable_ ? dispensable_ : kept_, session.place_);
  session.dispensable_ = dispensable;
}

std::list<Session*> SessionTable::All() const {
  std::list<Session*> all = kept_;
  all.insert(all.end(), dispensable_.begin(), dispensable_.end());
  return all;
}

std::shared_ptr<Session> MakeSession(SessionHost& host, Tcp::socket socket,
                                     const std::shared_ptr<SSL_CTX>& tls) {
  if (tls == nullptr) {
    return std::make_shared<StreamSession<beast::tcp_stream>>(host, std::move(socket));
  }
  return std::make_shared<StreamSession<TlsStream>>(host, tls, std::move(socket));
}

}  // namespace starling::http
