// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/udp_window.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

namespace starling::transport {
namespace {

constexpr Nanoseconds kMillisecond = 1'000'000;
constexpr Nanoseconds kFirstPatience = 50 * kMillisecond;
// A busy machine's peer acknowledges when it is its turn to run.
constexpr Nanoseconds kLeastPatience = 10 * kMillisecond;
constexpr Nanoseconds kMostPatience = 1000 * kMillisecond;
constexpr std::uint64_t kOvertakenBy = 3;
constexpr std::size_t kLeastWindow = 2;        // datagrams
constexpr std::size_t kMostBehind = 64;        // ranges; more are passed over, and sent again
constexpr std::size_t kMostWindow = 64 << 20;  // bytes

}  // namespace

DatagramSender::DatagramSender(std::size_t payload, std::size_t window)
    : payload_(payload),
      window_(std::max(window, kLeastWindow * payload)),
      threshold_(kMostWindow),
      patience_(kFirstPatience) {}

std::optional<ByteRange> DatagramSender::Next(Nanoseconds now, std::uint64_t end) {
  const auto send = [&](Datagram datagram) {
    datagram.order = order_++;
    datagram.sent = now;
    const ByteRange bytes = datagram.bytes;
    flying_ += bytes.end - bytes.begin;
    on_way_.emplace(bytes.begin, datagram);
    return bytes;
  };
  const auto fits = [&](std::size_t count) { return flying_ == 0 || flying_ + count <= window_; };
  if (!lost_.empty()) {
    Datagram datagram = lost_.begin()->second;
    if (!fits(datagram.bytes.end - datagram.bytes.begin)) return std::nullopt;
    lost_.erase(lost_.begin());
    datagram.repeated = true;
    ++repeated_;
    return send(datagram);
  }
  const std::uint64_t last = std::min({end, limit_, next_ + payload_});
  if (last <= next_ || !fits(last - next_)) return std::nullopt;
  return send({.bytes = {std::exchange(next_, last), last}});
}

auto DatagramSender::Arrived(std::map<std::uint64_t, Datagram>::iterator at, Nanoseconds now)
    -> std::map<std::uint64_t, Datagram>::iterator {
  const Datagram& datagram = at->second;
  const std::size_t count = datagram.bytes.end - datagram.bytes.begin;
  flying_ -= count;
  newest_ = std::max(newest_, datagram.order);
  // Of a repeated one nobody knows which was acknowledged (Karn's rule).
  if (!datagram.repeated) Measure(now - datagram.sent);
  if (datagram.order >= recovery_) {
    window_ += window_ < threshold_ ? count : std::max<std::size_t>(payload_ * count / window_, 1);
    window_ = std::min(window_, kMostWindow);
  }
  return on_way_.erase(at);
}

void DatagramSender::OnAcknowledgement(Nanoseconds now, const Acknowledgement& told) {
  if (told.expected > next_) return;
  const bool advances = told.expected > acknowledged_;
  acknowledged_ = std::max(acknowledged_, told.expected);
  limit_ = std::max(limit_, told.limit);
  const auto has = [&](const ByteRange& bytes) {
    return bytes.end <= acknowledged_ ||
           std::ranges::any_of(told.ranges, [&](const ByteRange& range) {
             return range.begin <= bytes.begin && bytes.end <= range.end;
           });
  };
  for (auto at = on_way_.begin(); at != on_way_.end();) {
    at = has(at->second.bytes) ? Arrived(at, now) : std::next(at);
  }
  std::erase_if(lost_, [&](const auto& one) { return has(one.second.bytes); });
  if (advances && smoothed_ > 0) {  // patience that has grown by waiting shrinks again
    patience_ = std::clamp(smoothed_ + 4 * deviation_, kLeastPatience, kMostPatience);
  }
  FindOvertaken();
}

void DatagramSender::FindOvertaken() {
  for (auto at = on_way_.begin(); at != on_way_.end();) {
    const auto next = std::next(at);
    if (at->second.order + kOvertakenBy <= newest_) Lose(at);
    at = next;
  }
}

void DatagramSender::Lose(std::map<std::uint64_t, Datagram>::iterator at) {
  const Datagram datagram = at->second;
  flying_ -= datagram.bytes.end - datagram.bytes.begin;
  on_way_.erase(at);
  lost_.emplace(datagram.bytes.begin, datagram);
  if (datagram.order < recovery_) return;
  recovery_ = order_;
  threshold_ = window_ = std::max(window_ / 2, kLeastWindow * payload_);
}

void DatagramSender::OnTimer(Nanoseconds now) {
  const std::optional<Nanoseconds> due = timer();
  if (!due || now < *due) return;
  // All that is on the way as long as that: a whole window may be gone.
  for (auto at = on_way_.begin(); at != on_way_.end();) {
    const auto next = std::next(at);
    if (now - at->second.sent >= patience_) Lose(at);
    at = next;
  }
  patience_ = std::min(2 * patience_, kMostPatience);
}

std::optional<Nanoseconds> DatagramSender::timer() const {
  if (on_way_.empty()) return std::nullopt;
  const auto oldest =
      std::ranges::min_element(on_way_, {}, [](const auto& one) { return one.second.sent; });
  return oldest->second.sent + patience_;
}

void DatagramSender::Measure(Nanoseconds round_trip) {
  if (smoothed_ == 0) {
    smoothed_ = std::max<Nanoseconds>(round_trip, 1);
    deviation_ = round_trip / 2;
  } else {
    deviation_ += (std::abs(round_trip - smoothed_) - deviation_) / 4;
    smoothed_ = std::max<Nanoseconds>(smoothed_ + (round_trip - smoothed_) / 8, 1);
  }
}

void DatagramReceiver::Take(std::uint64_t begin, std::span<const std::byte> bytes) {
  if (begin < expected_) {
    const auto known = std::min<std::uint64_t>(expected_ - begin, bytes.size());
    bytes = bytes.subspan(known);
    begin += known;
  }
  if (bytes.empty() || bytes.size() > ring_.size() ||
      begin > consumed_ + (ring_.size() - bytes.size())) {
    return;
  }
  const std::uint64_t end = begin + bytes.size();
  if (begin > expected_ && behind_.size() >= kMostBehind) return;
  const std::size_t place = begin % ring_.size();
  const std::size_t straight = std::min(bytes.size(), ring_.size() - place);
  std::memcpy(ring_.data() + place, bytes.data(), straight);
  if (straight < bytes.size()) {
    std::memcpy(ring_.data(), bytes.data() + straight, bytes.size() - straight);
  }
  // One range of it and all that it touches.
  ByteRange whole{begin, end};
  const auto touches = [&](const ByteRange& other) {
    return other.begin <= whole.end && whole.begin <= other.end;
  };
  for (auto other = behind_.begin(); other != behind_.end();) {
    if (!touches(*other)) {
      ++other;
      continue;
    }
    whole = {std::min(whole.begin, other->begin), std::max(whole.end, other->end)};
    other = behind_.erase(other);
  }
  if (whole.begin == expected_) {
    expected_ = whole.end;
  } else {
    behind_.insert(std::ranges::lower_bound(behind_, whole.begin, {}, &ByteRange::begin), whole);
  }
}

std::span<const std::byte> DatagramReceiver::Readable() const {
  const std::size_t place = consumed_ % ring_.size();
  const std::size_t count = expected_ - consumed_;
  return std::span(ring_).subspan(place, std::min(count, ring_.size() - place));
}

Acknowledgement DatagramReceiver::acknowledgement() const {
  Acknowledgement told{expected_, consumed_ + ring_.size(), {}};
  std::copy_n(behind_.begin(), std::min(behind_.size(), Acknowledgement::kRanges),
              told.ranges.begin());
  return told;
}

}  // namespace starling::transport
