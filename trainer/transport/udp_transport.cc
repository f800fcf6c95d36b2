// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/udp_transport.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "common/bytes/bytes.h"
#include "common/net/socket.h"
#include "common/status/macros.h"
#include "trainer/transport/encrypted_stream.h"
#include "trainer/transport/fitting.h"
#include "trainer/transport/shm_segment.h"
#include "trainer/transport/stream_transport.h"
#include "trainer/transport/tcp_transport.h"
#include "trainer/transport/udp_relay.h"

namespace starling::transport {
namespace {

// What each end tells the other once, over the connection of the handshake.
struct Introduction {
  std::uint32_t port = 0;
  std::uint32_t window = 0;  // bytes that its socket holds at once
};

constexpr int kSocketBytes = 4 << 20;              // asked for; the system may give less
constexpr std::size_t kLargestPayload = 16 << 10;  // a lost one is sent again whole

// On the address of this end of the connection.
absl::StatusOr<net::FileDescriptor> DatagramSocket(const net::FileDescriptor& connection) {
  ASSIGN_OR_RETURN(net::Address address, net::LocalAddress(connection));
  address.port = 0;
  ASSIGN_OR_RETURN(const net::SocketAddress own, net::ToSocketAddress(address));
  net::FileDescriptor socket(
      ::socket(own.get()->sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return net::ErrnoStatus(errno, "cannot make a socket for datagrams");
  // Best effort: with less room more is lost, and sent again.
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &kSocketBytes, sizeof kSocketBytes);
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &kSocketBytes, sizeof kSocketBytes);
  // A path that takes less than this host's own links do cuts datagrams; they need not arrive
  // whole.
  const int cut = IP_PMTUDISC_DONT;
  if (own.get()->sa_family == AF_INET) {
    (void)::setsockopt(socket.get(), IPPROTO_IP, IP_MTU_DISCOVER, &cut, sizeof cut);
  }
  if (::bind(socket.get(), own.get(), own.size) != 0) {
    return net::ErrnoStatus(errno, "cannot use " + net::ToString(address) + " for datagrams");
  }
  return socket;
}

int Option(const net::FileDescriptor& socket, int level, int name, int otherwise) {
  int value = 0;
  socklen_t size = sizeof value;
  return ::getsockopt(socket.get(), level, name, &value, &size) == 0 ? value : otherwise;
}

// Of a connected socket: what fits into a packet of the link that leads to the peer.
std::size_t PayloadOf(const net::FileDescriptor& socket, bool is_ipv6) {
  constexpr int kUsual = 1500;
  const int mtu = is_ipv6 ? Option(socket, IPPROTO_IPV6, IPV6_MTU, kUsual)
                          : Option(socket, IPPROTO_IP, IP_MTU, kUsual);
  const int heads = (is_ipv6 ? 40 : 20) + 8 + static_cast<int>(UdpRelay::kHeaderBytes);
  return std::clamp<std::size_t>(static_cast<std::size_t>(std::max(mtu - heads, 0)), 512,
                                 kLargestPayload);
}

// What datagrams from one end of a link begin with.
std::uint64_t KeyOf(const std::string& link_key, bool from_dialer) {
  const auto digest =
      bytes::Hmac(link_key, from_dialer ? "datagrams of the dialer" : "datagrams of the acceptor");
  std::uint64_t key = 0;
  std::memcpy(&key, digest.data(), sizeof key);
  return key;
}

// A link's end of its pair, and the relay that holds the other end for as long as that.
class RelayedStream final : public SocketStream {
 public:
  RelayedStream(net::FileDescriptor socket, std::shared_ptr<UdpRelay> relay)
      : SocketStream(std::move(socket)), relay_(std::move(relay)) {}
  // The relay's end may wait for this one to close.
  ~RelayedStream() override { Finish({}, /*orderly=*/false); }
  bool datagrams() const override { return true; }

 private:
  const std::shared_ptr<UdpRelay> relay_;
};

class UdpFitting final : public Fitting {
 public:
  UdpFitting(Connection connection, std::size_t members, std::shared_ptr<UdpRelay> relay)
      : connection_(std::move(connection)), members_(members), relay_(std::move(relay)) {}

  absl::StatusOr<std::unique_ptr<Stream>> Step() override {
    if (!datagrams_.valid()) RETURN_IF_ERROR(Introduce());
    ASSIGN_OR_RETURN(const bool heard, Hear());
    if (!heard) return nullptr;
    RETURN_IF_ERROR(Connect());
    ASSIGN_OR_RETURN(auto pair, net::SocketPair());
    const std::string key = connection_.handshake.LinkKey();
    const bool is_ipv6 = Option(datagrams_, SOL_SOCKET, SO_DOMAIN, AF_INET) == AF_INET6;
    const std::size_t payload = PayloadOf(datagrams_, is_ipv6);
    relay_->Add({.local = std::move(pair.first),
                 .control = std::move(connection_.socket),
                 .datagrams = std::move(datagrams_),
                 .own_key = KeyOf(key, connection_.dialer),
                 .peer_key = KeyOf(key, !connection_.dialer),
                 .payload = payload,
                 .window = peer_.window,
                 .buffer = RingBytesFor(members_)});
    return std::make_unique<RelayedStream>(std::move(pair.second), std::move(relay_));
  }
  int fd() const override { return connection_.socket.get(); }

 private:
  absl::Status Introduce() {
    ASSIGN_OR_RETURN(datagrams_, DatagramSocket(connection_.socket));
    ASSIGN_OR_RETURN(const net::Address own, net::LocalAddress(datagrams_));
    const Introduction mine{
        own.port, static_cast<std::uint32_t>(Option(datagrams_, SOL_SOCKET, SO_RCVBUF, 0)) / 2};
    const ssize_t sent =
        ::send(connection_.socket.get(), &mine, sizeof mine, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == sizeof mine) return absl::OkStatus();
    return absl::UnavailableError("closed the connection before it named a port for datagrams");
  }

  absl::StatusOr<bool> Hear() {
    auto* const into = reinterpret_cast<std::byte*>(&peer_) + heard_;
    const ssize_t read =
        ::recv(connection_.socket.get(), into, sizeof peer_ - heard_, MSG_DONTWAIT);
    if (read < 0 && net::NotNow(errno)) return false;
    if (read <= 0) {
      return absl::UnavailableError("closed the connection before it named a port for datagrams");
    }
    heard_ += static_cast<std::size_t>(read);
    if (heard_ < sizeof peer_) return false;
    if (peer_.port == 0 || peer_.port > 65535) {
      return absl::InternalError("named no port for datagrams");
    }
    return true;
  }

  absl::Status Connect() {
    ASSIGN_OR_RETURN(net::Address address, net::PeerAddress(connection_.socket));
    address.port = static_cast<std::uint16_t>(peer_.port);
    ASSIGN_OR_RETURN(const net::SocketAddress target, net::ToSocketAddress(address));
    if (::connect(datagrams_.get(), target.get(), target.size) == 0) return absl::OkStatus();
    return net::ErrnoStatus(errno, "cannot send datagrams to " + net::ToString(address));
  }

  Connection connection_;
  const std::size_t members_;
  std::shared_ptr<UdpRelay> relay_;
  net::FileDescriptor datagrams_;
  Introduction peer_;
  std::size_t heard_ = 0;
};

class UdpConnector final : public Connector {
 public:
  UdpConnector(const net::Address& source, double loss)
      : tcp_(MakeTcpConnector(source, /*encrypted=*/false)),
        relay_(std::make_shared<UdpRelay>(loss)) {}

  absl::StatusOr<net::FileDescriptor> Start(const std::string& address) override {
    return tcp_->Start(address);
  }
  absl::Status Result(const net::FileDescriptor& socket, const std::string& address) override {
    return tcp_->Result(socket, address);
  }
  std::unique_ptr<Fitting> Fit(Connection connection, std::size_t members) override {
    return std::make_unique<UdpFitting>(std::move(connection), members, relay_);
  }

 private:
  const std::unique_ptr<Connector> tcp_;
  const std::shared_ptr<UdpRelay> relay_;  // links hold it too
};

}  // namespace

std::unique_ptr<Connector> MakeUdpConnector(const net::Address& source, bool encrypted,
                                            double loss) {
  auto plain = std::make_unique<UdpConnector>(source, loss);
  if (!encrypted) return plain;
  return WithEncryption(std::move(plain));
}

absl::StatusOr<std::unique_ptr<Transport>> OpenUdpTransport(const net::Address& address,
                                                            Options options, double loss) {
  RETURN_IF_ERROR(CheckOptions(options));
  std::vector<net::FileDescriptor> listeners(1);
  ASSIGN_OR_RETURN(listeners[0], net::Listen(address));
  ASSIGN_OR_RETURN(const net::Address bound, net::LocalAddress(listeners[0]));
  auto connector = MakeUdpConnector(net::Address{bound.host, 0}, options.encrypted, loss);
  return std::make_unique<StreamTransport>(std::move(listeners), net::ToString(bound),
                                           std::move(connector), std::move(options));
}

}  // namespace starling::transport
