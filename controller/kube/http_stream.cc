// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/http_stream.h"

#include <utility>

#include "absl/time/clock.h"
#include "common/status/macros.h"
#include "controller/kube/http_status.h"

namespace starling::kube {
namespace {

constexpr std::size_t kReadAhead = 1U << 20U;
constexpr std::size_t kLargestError = 1U << 20U;

}  // namespace

HttpStream::HttpStream(HttpTransport& transport, HttpRequest request, absl::Duration lifetime)
    : transport_(transport), request_(std::move(request)), lifetime_(lifetime) {
  thread_ = std::thread([this] {
    const absl::Status status = Read();
    sync::MutexLock lock(mutex_);
    ended_ = true;
    end_ = status;
    connection_.reset();
    changed_.NotifyAll();
  });
}

HttpStream::~HttpStream() {
  Stop();
  thread_.join();
}

void HttpStream::Stop() {
  std::shared_ptr<HttpConnection> connection;
  {
    sync::MutexLock lock(mutex_);
    stopped_ = true;
    connection = connection_;
    changed_.NotifyAll();
  }
  if (connection) connection->Cut();
}

bool HttpStream::TakeHead(const HttpHead& head) {
  sync::MutexLock lock(mutex_);
  error_.head = head;
  has_head_ = true;
  changed_.NotifyAll();
  return !stopped_;
}

bool HttpStream::TakeBody(const char* data, std::size_t size) {
  sync::MutexLock lock(mutex_);
  if (error_.head.status != 200) {
    if (error_.body.size() + size > kLargestError) return false;
    error_.body.append(data, size);
    return !stopped_;
  }
  while (held_ >= kReadAhead && !stopped_) changed_.WaitFor(mutex_, absl::Seconds(1));
  if (stopped_) return false;
  pieces_.emplace_back(data, size);
  held_ += size;
  changed_.NotifyAll();
  return true;
}

absl::Status HttpStream::Read() {
  const absl::Time deadline = absl::Now() + lifetime_;
  transport_.Throttle(deadline);
  ASSIGN_OR_RETURN(const HttpRequest request, transport_.Authorized(request_, false));
  ASSIGN_OR_RETURN(std::shared_ptr<HttpConnection> connection, transport_.Borrow(/*fresh=*/false));
  {
    sync::MutexLock lock(mutex_);
    connection_ = connection;
    if (stopped_) connection->Cut();
  }
  const absl::Time begin = absl::Now();
  absl::Duration latency;
  int code = 0;
  absl::Status status = connection->Exchange(
      request, deadline,
      [&](const HttpHead& head) {
        code = head.status;
        latency = absl::Now() - begin;
        return TakeHead(head);
      },
      [&](const char* data, std::size_t size) { return TakeBody(data, size); });
  transport_.Observe(request, code, code == 0 ? absl::Now() - begin : latency);
  transport_.Release(std::move(connection));
  sync::MutexLock lock(mutex_);
  if (stopped_) return absl::CancelledError("stopped");
  if (has_head_ && error_.head.status != 200) return StatusOfAnswer(error_);
  if (!status.ok()) return absl::UnavailableError(status.message());
  return status;
}

absl::Status HttpStream::AwaitHead(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  sync::MutexLock lock(mutex_);
  while (!ended_ && !stopped_ && !(has_head_ && error_.head.status == 200)) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) {
      return absl::UnavailableError("API server: no answer in time");
    }
    changed_.WaitFor(mutex_, left);
  }
  if (stopped_) return absl::CancelledError("stopped");
  return has_head_ && error_.head.status == 200 ? absl::OkStatus() : end_;
}

absl::StatusOr<HttpStream::Piece> HttpStream::Next(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  sync::MutexLock lock(mutex_);
  while (true) {
    if (stopped_) return absl::CancelledError("stopped");
    if (!pieces_.empty()) {
      Piece piece{Piece::Kind::kData, std::move(pieces_.front())};
      pieces_.pop_front();
      held_ -= piece.text.size();
      changed_.NotifyAll();
      return piece;
    }
    if (ended_) {
      RETURN_IF_ERROR(end_);
      return Piece{Piece::Kind::kEnd, ""};
    }
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return Piece{};
    changed_.WaitFor(mutex_, left);
  }
}

}  // namespace starling::kube
