// SPDX-License-Identifier: Apache-2.0
// A stream of bytes over datagrams that may be lost, repeated or overtaken: what each end
// remembers.
//
// DatagramSender says which bytes to send next; DatagramReceiver puts them in order. Both are pure:
// they have no socket, and are told the time. Bytes are numbered from 0. The receiver acknowledges
// the first byte that it lacks, and the ranges behind it that it has (as TCP's SACK); the sender
// repeats what three later datagrams have overtaken, or what was not acknowledged in time, and
// keeps as many bytes on the way as arrive: it doubles them in each round trip until one is lost,
// then halves them, and adds a datagram in each round trip (RFC 5681, 6298 and, for overtaking,
// 9002).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace starling::transport {

using Nanoseconds = std::int64_t;  // monotonic

struct ByteRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool operator==(const ByteRange&) const = default;
};

struct Acknowledgement {
  static constexpr std::size_t kRanges = 4;

  std::uint64_t expected = 0;               // all before it has come
  std::uint64_t limit = 0;                  // there is room for all before this
  std::array<ByteRange, kRanges> ranges{};  // that came too, behind `expected`; empty ones: none
};

// Thread-compatible.
class DatagramSender {
 public:
  // Datagrams carry at most `payload` bytes; at first `window` bytes are thought to arrive at once.
  DatagramSender(std::size_t payload, std::size_t window);

  // The next bytes to send, of those before `end`, if any may be sent now. They count as sent.
  std::optional<ByteRange> Next(Nanoseconds now, std::uint64_t end);

  // What the peer says cannot be (bytes that were never sent) is passed over.
  void OnAcknowledgement(Nanoseconds now, const Acknowledgement& told);
  // At timer() or later: what is the longest on the way is taken for lost.
  void OnTimer(Nanoseconds now);

  // When OnTimer is due; none while nothing is on the way.
  std::optional<Nanoseconds> timer() const;
  // Whether the peer has no room, so that a larger limit may have been lost on the way here.
  bool blocked(std::uint64_t end) const {
    return on_way_.empty() && next_ == limit_ && next_ < end;
  }

  std::uint64_t acknowledged() const { return acknowledged_; }  // all before it has arrived
  std::size_t window() const { return window_; }
  std::size_t repeated() const { return repeated_; }  // datagrams
  Nanoseconds patience() const { return patience_; }  // for an acknowledgement

 private:
  struct Datagram {
    ByteRange bytes;
    std::uint64_t order = 0;  // of sending; a repeated one gets a new one
    Nanoseconds sent = 0;
    bool repeated = false;
  };

  // Of on_way_, by where its bytes begin: it has arrived. Returns the next.
  std::map<std::uint64_t, Datagram>::iterator Arrived(
      std::map<std::uint64_t, Datagram>::iterator at, Nanoseconds now);
  void FindOvertaken();
  void Lose(std::map<std::uint64_t, Datagram>::iterator at);
  void Measure(Nanoseconds round_trip);

  const std::size_t payload_;
  std::size_t window_;       // bytes that may be on the way
  std::size_t threshold_;    // up to which the window doubles
  std::uint64_t next_ = 0;   // the first byte never sent
  std::uint64_t limit_ = 0;  // of the peer's room
  std::uint64_t acknowledged_ = 0;
  std::uint64_t order_ = 0;     // of the next datagram
  std::uint64_t newest_ = 0;    // order of the newest that arrived
  std::uint64_t recovery_ = 0;  // losses of datagrams before this order have halved the window
  std::size_t flying_ = 0;      // bytes of on_way_
  std::size_t repeated_ = 0;
  std::map<std::uint64_t, Datagram> on_way_;  // by where their bytes begin
  std::map<std::uint64_t, Datagram> lost_;    // to be sent again, likewise
  Nanoseconds smoothed_ = 0;                  // round trip; 0: not measured
  Nanoseconds deviation_ = 0;
  Nanoseconds patience_;
};

// Thread-compatible.
class DatagramReceiver {
 public:
  // Holds `capacity` bytes that nobody has consumed yet.
  explicit DatagramReceiver(std::size_t capacity) : ring_(capacity) {}

  // Bytes that were known or have no room are passed over.
  void Take(std::uint64_t begin, std::span<const std::byte> bytes);

  // What can be read: some of it, where it lies in two pieces.
  std::span<const std::byte> Readable() const;
  void Consume(std::size_t count) { consumed_ += count; }

  Acknowledgement acknowledgement() const;

 private:
  std::vector<std::byte> ring_;  // byte b lies at b % size
  std::uint64_t consumed_ = 0;
  std::uint64_t expected_ = 0;
  std::deque<ByteRange> behind_;  // what came before its turn, in order, none touching
};

}  // namespace starling::transport
