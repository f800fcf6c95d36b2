// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/shm_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "common/status/macros.h"
#include "trainer/transport/frame.h"
#include "trainer/transport/unix_socket.h"

namespace starling::transport {
namespace {

constexpr unsigned kReadsPerLook = 256;
static_assert(kHeaderBytes <= kReservedForLast, "a farewell finds room in a full ring");

}  // namespace

ShmStream::ShmStream(net::FileDescriptor socket, ShmSegment segment, bool dialer)
    : socket_(std::move(socket)),
      segment_(std::move(segment)),
      writer_(segment_.ring(dialer ? 0 : 1)),
      reader_(segment_.ring(dialer ? 1 : 0)) {}

absl::StatusOr<std::size_t> ShmStream::Write(std::span<const iovec> pieces) {
  if (ended_) return absl::UnavailableError("cannot send: the process is gone");
  ASSIGN_OR_RETURN(const Moved moved, writer_.Write(pieces));
  if (moved.ring) RingBell();
  return moved.bytes;
}

absl::StatusOr<std::size_t> ShmStream::Read(std::span<const iovec> pieces) {
  // Known before the ring is looked at: what the peer wrote before it ended is read first.
  const bool ended = ended_;
  ASSIGN_OR_RETURN(const Moved moved, reader_.Read(pieces));
  if (moved.ring) RingBell();
  if (moved.bytes > 0) return moved.bytes;
  if (ended) {
    return absl::UnavailableError("the connection ended without a farewell: the process is gone");
  }
  // Who never sleeps, spinning or busy with others, notices a death here.
  if (++empty_reads_ % kReadsPerLook == 0) EmptySocket();
  return 0;
}

Attention ShmStream::Await(const Interest& interest) {
  Attention attention;
  if (interest.input) {
    reader_.Arm();
    attention.ready = ended_ || reader_.Ready();
  }
  if (interest.output) {
    writer_.Arm();
    attention.ready = attention.ready || ended_ || writer_.Ready();
  }
  int events = 0;
  if (interest.input || interest.output || interest.bell) events |= POLLIN;
  if (interest.hangup) events |= POLLRDHUP;
  attention.events = static_cast<short>(events);
  return attention;
}

void ShmStream::OnWoken(short events) {
  reader_.Disarm();
  writer_.Disarm();
  if ((events & POLLIN) != 0) EmptySocket();
}

void ShmStream::Finish(std::span<const std::byte> last, bool) {
  if (!last.empty()) (void)writer_.WriteLast(last);
  // That the socket ends wakes the peer, which then reads the rest: it has the memory mapped.
  (void)::shutdown(socket_.get(), SHUT_RDWR);
  socket_.Reset();
}

void ShmStream::RingBell() {
  const std::byte bell{1};
  // A socket that is full of rings wakes the peer as well.
  (void)!::send(socket_.get(), &bell, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool ShmStream::PassFile(const net::FileDescriptor& file) {
  const std::byte bell{1};
  return SendWithFile(socket_, std::span(&bell, 1), file);
}

net::FileDescriptor ShmStream::TakeFile() {
  EmptySocket();
  return std::move(file_);
}

void ShmStream::EmptySocket() {
  std::array<std::byte, 4096> rings;
  // Bounded: a peer that rings without end must not keep us here.
  for (int i = 0; i < 1024; ++i) {
    const ssize_t read = ReceiveWithFile(socket_, rings, file_);
    if (read > 0) continue;
    ended_ = ended_ || read == 0 || !net::NotNow(errno);
    return;
  }
}

}  // namespace starling::transport
