// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/udp_relay.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <functional>
#include <iterator>
#include <optional>
#include <random>
#include <span>
#include <utility>

#include "absl/time/time.h"
#include "common/net/deadline.h"
#include "trainer/transport/shaper.h"
#include "trainer/transport/udp_window.h"

namespace starling::transport {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

// Stands before the payload of every datagram; one without payload only acknowledges, or asks.
struct Header {
  std::uint64_t key = 0;
  std::uint64_t begin = 0;   // of the payload
  std::uint32_t length = 0;  // of it
  std::uint32_t asks = 0;    // 1: for an acknowledgement
  std::uint64_t expected = 0;
  std::uint64_t limit = 0;
  // Ranges, counted from `expected`.
  std::array<std::array<std::uint32_t, 2>, Acknowledgement::kRanges> ranges{};
};
static_assert(sizeof(Header) == 72);

constexpr std::size_t kBatch = 32;          // datagrams of one system call
constexpr int kBatchesAtOnce = 16;          // of one link: others have their turn between
constexpr std::size_t kLargest = 64 << 10;  // of a datagram
constexpr absl::Duration kLinger = absl::Seconds(3);

Header HeaderOf(std::uint64_t key, const Acknowledgement& told) {
  Header header{.key = key, .expected = told.expected, .limit = told.limit};
  for (std::size_t i = 0; i < told.ranges.size(); ++i) {
    header.ranges[i] = {static_cast<std::uint32_t>(told.ranges[i].begin - told.expected),
                        static_cast<std::uint32_t>(told.ranges[i].end - told.expected)};
    if (told.ranges[i] == ByteRange{}) header.ranges[i] = {};
  }
  return header;
}

Acknowledgement AcknowledgementOf(const Header& header) {
  Acknowledgement told{header.expected, header.limit, {}};
  for (std::size_t i = 0; i < told.ranges.size(); ++i) {
    told.ranges[i] = {header.expected + header.ranges[i][0], header.expected + header.ranges[i][1]};
  }
  return told;
}

// Whether the other end of a connection that carries nothing has ended it.
bool HasEnded(const net::FileDescriptor& socket) {
  std::byte byte;
  const ssize_t read = ::recv(socket.get(), &byte, 1, MSG_DONTWAIT);
  return read == 0 || (read < 0 && !net::NotNow(errno));
}

}  // namespace

const std::size_t UdpRelay::kHeaderBytes = sizeof(Header);

// One link. Confined to the relay's thread, but for its making.
class UdpRelay::Relayed {
 public:
  explicit Relayed(RelayedLink link)
      : link_(std::move(link)),
        sender_(link_.payload, link_.window / 2),
        receiver_(link_.buffer),
        outgoing_(link_.buffer) {}

  // Moves what can be moved now. `arrived` is room for a batch of datagrams.
  void Drive(Nanoseconds now, std::span<std::byte> arrived, const std::function<bool()>& is_lost) {
    if (!peer_ended_) peer_ended_ = HasEnded(link_.control);
    ReceiveDatagrams(now, arrived);
    Deliver();
    Collect();
    sender_.OnTimer(now);
    if (!peer_ended_) Send(now, is_lost);
    // All that the peer had to say was in the datagrams before: it waited until they had arrived.
    if (peer_ended_ && receiver_.Readable().empty()) link_.local.Reset();
    if (local_ended_ && since_ended_ == 0) since_ended_ = now;
  }

  // Nothing is left to do for it.
  bool done(Nanoseconds now) const {
    if (!link_.local.valid()) return true;
    if (!local_ended_) return false;
    return sender_.acknowledged() == collected_ || peer_ended_ ||
           now - since_ended_ > absl::ToInt64Nanoseconds(kLinger);
  }

  // What wakes the thread for this link.
  void Poll(std::vector<pollfd>& polls) const {
    short local = 0;
    if (!local_ended_ && Room() > 0) local |= POLLIN;
    if (!receiver_.Readable().empty()) local |= POLLOUT;
    if (local != 0) polls.push_back({link_.local.get(), local, 0});
    if (!peer_ended_) polls.push_back({link_.control.get(), POLLIN | POLLRDHUP, 0});
    polls.push_back({link_.datagrams.get(), POLLIN, 0});
  }
  std::optional<Nanoseconds> timer(Nanoseconds now) const {
    if (peer_ended_) return std::nullopt;
    if (sender_.blocked(collected_)) return asked_ + sender_.patience();
    if (const auto due = sender_.timer()) return due;
    if (local_ended_) return now + absl::ToInt64Nanoseconds(kLinger);
    return std::nullopt;
  }

 private:
  std::size_t Room() const { return outgoing_.size() - (collected_ - sender_.acknowledged()); }

  void ReceiveDatagrams(Nanoseconds now, std::span<std::byte> room) {
    std::array<mmsghdr, kBatch> messages{};
    std::array<iovec, kBatch> pieces;
    const std::size_t largest = room.size() / kBatch;
    for (std::size_t i = 0; i < kBatch; ++i) {
      pieces[i] = {room.data() + i * largest, largest};
      messages[i].msg_hdr.msg_iov = &pieces[i];
      messages[i].msg_hdr.msg_iovlen = 1;
    }
    for (int batch = 0; batch < kBatchesAtOnce; ++batch) {
      const int count =
          ::recvmmsg(link_.datagrams.get(), messages.data(), kBatch, MSG_DONTWAIT, nullptr);
      // An error tells of an earlier datagram of ours, that nobody heard it: it is sent again, or
      // the connection ends.
      if (count <= 0) return;
      for (int i = 0; i < count; ++i) {
        Take(now, room.subspan(static_cast<std::size_t>(i) * largest, messages[i].msg_len));
      }
      Deliver();
      if (static_cast<std::size_t>(count) < kBatch) return;
    }
  }

  // Whoever does not know the key is not heard; who knows it may say what it likes.
  void Take(Nanoseconds now, std::span<const std::byte> datagram) {
    Header header;
    if (datagram.size() < sizeof(header)) return;
    std::memcpy(&header, datagram.data(), sizeof(header));
    const auto payload = datagram.subspan(sizeof(header));
    if (header.key != link_.peer_key || header.length != payload.size()) return;
    sender_.OnAcknowledgement(now, AcknowledgementOf(header));
    receiver_.Take(header.begin, payload);
    owes_ = owes_ || !payload.empty() || header.asks != 0;
  }

  void Deliver() {
    while (link_.local.valid()) {
      const auto bytes = receiver_.Readable();
      if (bytes.empty()) return;
      const ssize_t written = local_gone_ ? static_cast<ssize_t>(bytes.size())
                                          : ::send(link_.local.get(), bytes.data(), bytes.size(),
                                                   MSG_NOSIGNAL | MSG_DONTWAIT);
      if (written < 0 && net::NotNow(errno)) return;
      local_gone_ = local_gone_ || written < 0;  // the link is closed: nobody reads the rest
      if (written <= 0) continue;
      receiver_.Consume(static_cast<std::size_t>(written));
      // The peer may have filled all the room that it knows of.
      owes_ = owes_ || receiver_.acknowledgement().limit >= told_limit_ + link_.buffer / 2;
    }
  }

  void Collect() {
    while (!local_ended_ && Room() > 0) {
      const std::size_t place = collected_ % outgoing_.size();
      const std::size_t straight = std::min(Room(), outgoing_.size() - place);
      const ssize_t read =
          ::recv(link_.local.get(), outgoing_.data() + place, straight, MSG_DONTWAIT);
      if (read < 0 && net::NotNow(errno)) return;
      local_ended_ = read <= 0;
      if (read > 0) collected_ += static_cast<std::uint64_t>(read);
    }
  }

  void Send(Nanoseconds now, const std::function<bool()>& is_lost) {
    struct Datagram {
      Header header;
      std::array<iovec, 3> pieces;
    };
    std::array<Datagram, kBatch> datagrams;
    std::array<mmsghdr, kBatch> messages{};
    while (true) {
      const Acknowledgement told = receiver_.acknowledgement();
      std::size_t count = 0;
      const auto add = [&](const ByteRange& bytes, bool asks) {
        owes_ = false;
        told_limit_ = told.limit;
        if (is_lost()) return;
        Datagram& datagram = datagrams[count];
        datagram.header = HeaderOf(link_.own_key, told);
        datagram.header.begin = bytes.begin;
        datagram.header.length = static_cast<std::uint32_t>(bytes.end - bytes.begin);
        datagram.header.asks = asks ? 1 : 0;
        const std::size_t place = bytes.begin % outgoing_.size();
        const std::size_t straight =
            std::min<std::size_t>(datagram.header.length, outgoing_.size() - place);
        datagram.pieces = {iovec{&datagram.header, sizeof(Header)},
                           iovec{outgoing_.data() + place, straight},
                           iovec{outgoing_.data(), datagram.header.length - straight}};
        messages[count].msg_hdr.msg_iov = datagram.pieces.data();
        messages[count].msg_hdr.msg_iovlen = datagram.pieces.size();
        ++count;
      };
      bool more = false;
      for (std::size_t i = 0; i < kBatch; ++i) {
        const auto bytes = sender_.Next(now, collected_);
        more = bytes.has_value();
        if (!more) break;
        add(*bytes, false);
      }
      if (sender_.blocked(collected_) && now >= asked_ + sender_.patience()) {
        asked_ = now;
        if (count < kBatch) add({}, true);
      }
      if (owes_ && count < kBatch) add({}, false);
      // What the system does not take now is lost to us, like what is lost on the way.
      if (count > 0)
        (void)::sendmmsg(link_.datagrams.get(), messages.data(), static_cast<unsigned>(count),
                         MSG_DONTWAIT | MSG_NOSIGNAL);
      if (!more) return;
    }
  }

  RelayedLink link_;
  DatagramSender sender_;
  DatagramReceiver receiver_;
  std::vector<std::byte> outgoing_;  // byte b lies at b % size, from the first not acknowledged
  std::uint64_t collected_ = 0;      // bytes that the link has written
  std::uint64_t told_limit_ = 0;
  Nanoseconds asked_ = 0;
  Nanoseconds since_ended_ = 0;
  bool owes_ = true;  // an acknowledgement: the first one says how much room there is
  bool local_ended_ = false;
  bool local_gone_ = false;
  bool peer_ended_ = false;
};

UdpRelay::UdpRelay(double loss) : loss_(loss), thread_([this] { Run(); }) {}

UdpRelay::~UdpRelay() {
  ending_.store(true, std::memory_order_release);
  wake_.Signal();
  thread_.join();
}

void UdpRelay::Add(RelayedLink link) {
  auto relayed = std::make_unique<Relayed>(std::move(link));
  {
    const sync::MutexLock lock(mutex_);
    added_.push_back(std::move(relayed));
  }
  wake_.Signal();
}

void UdpRelay::Run() {
  std::vector<std::unique_ptr<Relayed>> links;
  std::vector<std::byte> arrived(kBatch * kLargest);
  std::vector<pollfd> polls;
  std::minstd_rand chance;
  const std::function<bool()> is_lost = [&] {
    return loss_ > 0 && std::uniform_real_distribution<>()(chance) < loss_;
  };
  while (true) {
    {
      const sync::MutexLock lock(mutex_);
      std::ranges::move(added_, std::back_inserter(links));
      added_.clear();
    }
    const Nanoseconds now = MonotonicNanoseconds();
    for (const auto& link : links) link->Drive(now, arrived, is_lost);
    std::erase_if(links, [&](const auto& link) { return link->done(now); });
    if (ending_.load(std::memory_order_acquire) && links.empty()) return;
    polls.assign(1, {wake_.get(), POLLIN, 0});
    std::optional<Nanoseconds> wake;
    for (const auto& link : links) {
      link->Poll(polls);
      const auto due = link->timer(now);
      if (due && (!wake || *due < *wake)) wake = due;
    }
    const Nanoseconds left = wake ? std::max<Nanoseconds>(*wake - MonotonicNanoseconds(), 0) : 0;
    const timespec timeout = absl::ToTimespec(absl::Nanoseconds(left));
    (void)::ppoll(polls.data(), polls.size(), wake ? &timeout : nullptr, nullptr);
    if ((polls[0].revents & POLLIN) != 0) wake_.Drain();
  }
}

}  // namespace starling::transport
