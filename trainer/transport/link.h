// SPDX-License-Identifier: Apache-2.0
// One end of a connection of a mesh: queues of frames to send and of receives that wait.
//
// A link never blocks: Write and Read move what the stream takes or has. Frames whose receive is
// not posted yet stay in the stream (the sender feels it), unless a posted receive waits behind
// them: then they are kept in memory, up to the mesh's allowance.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "trainer/transport/frame.h"
#include "trainer/transport/ledger.h"
#include "trainer/transport/mesh.h"
#include "trainer/transport/shaper.h"
#include "trainer/transport/stream.h"

namespace starling::transport {

// What the links of one mesh share. Confined to the mesh.
class LinkOwner {
 public:
  virtual ~LinkOwner() = default;
  virtual void OnSent(Ticket ticket) = 0;
  // The payload is complete and may be looked at from `ready` (monotonic nanoseconds) on.
  virtual void OnReceived(Ticket ticket, std::int64_t ready) = 0;

  Shaper shaper;
  std::size_t early_allowance = 0;  // bytes that early frames may still take
};

// Confined to its mesh.
class Link {
 public:
  // `name` is the peer's, for messages: "rank 2 (member x)". `counters` are the mesh's and the
  // transport's. `wire`: what passes goes through the owner's shaper, and then this.
  Link(std::unique_ptr<Stream> stream, std::uint64_t view, std::string name,
       std::optional<Wire> wire, LinkOwner& owner, TrafficCounter& counter,
       std::shared_ptr<TrafficCounter> total);

  void PostSend(Ticket ticket, Tag tag, std::span<const std::byte> data);
  absl::Status PostReceive(Ticket ticket, Tag tag, std::span<std::byte> data);
  // `message` gets the frame's size, at most `limit`.
  absl::Status PostReceiveMessage(Ticket ticket, Tag tag, std::string* message, std::size_t limit);

  // Once. True when something moved. An error names the peer and means that the link is unusable.
  absl::StatusOr<bool> Write();
  absl::StatusOr<bool> Read();

  // The peer has closed its side: reads all that is left, to learn whether it said farewell.
  absl::Status Drain();

  bool WantsRead() const { return !receives_.empty() && !left_; }
  // Whether bytes in the stream would be taken from it.
  bool WantsInput() const { return WantsRead() && !Stuck(); }
  bool WantsHangup() const { return !hung_up_ && !left_; }
  bool WantsWrite() const { return !outgoing_.empty(); }
  bool left() const { return left_; }
  // The peer took its leave, and transfers with it are pending.
  bool WaitsInVain() const { return left_ && (!receives_.empty() || !outgoing_.empty()); }
  // Of an aborting peer's farewell: the rank that it lost.
  std::optional<int> blamed() const { return blamed_; }
  // The peer said farewell before its time.
  bool gave_up() const { return gave_up_; }
  int fd() const { return stream_ == nullptr ? -1 : stream_->fd(); }
  Stream* stream() { return stream_.get(); }  // null once closed
  // See Stream.
  Attention Await(bool bell) {
    return stream_->Await({WantsInput(), WantsWrite(), WantsHangup(), bell && WantsHangup()});
  }
  void OnWoken(short events) { stream_->OnWoken(events); }
  const std::string& name() const { return name_; }

  // What went to and from the peer beside the stream, in memory that both share.
  void Count(std::size_t sent, std::size_t received);

  // Says farewell if a frame boundary allows, and closes. Posted buffers are forgotten.
  void Close(std::uint64_t farewell);

 private:
  struct Outgoing {
    Ticket ticket;
    std::array<std::byte, kHeaderBytes> header;
    std::span<const std::byte> data;
    std::size_t written = 0;  // header included
  };
  struct Receive {
    Ticket ticket;
    Tag tag;
    std::span<std::byte> data;
    std::string* message = nullptr;
    std::size_t limit = 0;
  };
  struct Early {
    Tag tag;
    std::string data;
    std::int64_t ready = 0;
  };
  // The frame that is being received.
  struct Incoming {
    FrameHeader header;
    std::size_t filled = 0;
    std::byte* target = nullptr;   // null while no receive matches
    std::optional<Ticket> ticket;  // none: `early` takes it
    std::string early;
  };

  // The next frame stays in the stream until its receive is posted.
  bool Stuck() const { return incoming_.has_value() && incoming_->target == nullptr; }
  absl::Status Post(const Receive& receive);
  absl::StatusOr<bool> ReadFromStream();
  void CountOverhead();
  // Consumes staged bytes as far as possible; true when some were.
  absl::StatusOr<bool> Advance(bool keep_early);
  absl::Status Begin(const FrameHeader& header);
  absl::Status Match(bool keep_early);
  absl::Status Complete();
  absl::Status Deliver(const Early& frame, const Receive& receive);
  // Where a payload of `length` bytes goes.
  absl::StatusOr<std::byte*> Target(const Receive& receive, std::uint64_t length) const;
  absl::Status OnFarewell(std::uint64_t reason);
  absl::Status Error(absl::StatusCode code, std::string_view what) const;
  absl::Status Error(const absl::Status& status) const;

  std::unique_ptr<Stream> stream_;  // null once closed
  const std::uint64_t view_;
  const std::string name_;
  std::optional<Wire> wire_;  // none: nothing is emulated
  LinkOwner& owner_;
  TrafficCounter& counter_;
  const std::shared_ptr<TrafficCounter> total_;

  std::deque<Outgoing> outgoing_;
  std::deque<Receive> receives_;
  std::deque<Early> early_;
  std::optional<Incoming> incoming_;
  std::array<std::byte, 4096> staged_;  // read, not yet consumed: [staged_begin_, staged_end_)
  std::size_t staged_begin_ = 0;
  std::size_t staged_end_ = 0;
  std::int64_t arrived_ = 0;  // when the last frame had, in monotonic nanoseconds
  bool hung_up_ = false;
  bool left_ = false;
  bool gave_up_ = false;
  std::optional<int> blamed_;
};

}  // namespace starling::transport
