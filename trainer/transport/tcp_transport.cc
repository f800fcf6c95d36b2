// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/tcp_transport.h"

#include <optional>
#include <utility>
#include <vector>

#include "common/net/socket.h"
#include "common/status/macros.h"
#include "trainer/transport/encrypted_stream.h"
#include "trainer/transport/fitting.h"
#include "trainer/transport/stream_transport.h"

namespace starling::transport {
namespace {

// Dials from our own address: with an address for each process of a machine, peers see who it is.
class TcpConnector final : public Connector {
 public:
  explicit TcpConnector(net::Address source) : source_(std::move(source)) {}

  absl::StatusOr<net::FileDescriptor> Start(const std::string& address) override {
    ASSIGN_OR_RETURN(const net::Address target, net::ParseAddress(address));
    return net::StartConnect(target, source_);
  }

  absl::Status Result(const net::FileDescriptor& socket, const std::string& address) override {
    ASSIGN_OR_RETURN(const net::Address target, net::ParseAddress(address));
    return net::ConnectResult(socket, target);
  }

  std::unique_ptr<Fitting> Fit(Connection connection, std::size_t) override {
    net::SendUnpacedOnOneMachine(connection.socket);
    return std::make_unique<SocketFitting>(std::move(connection.socket));
  }

 private:
  const net::Address source_;
};

}  // namespace

std::unique_ptr<Connector> MakeTcpConnector(const net::Address& source, bool encrypted) {
  auto plain = std::make_unique<TcpConnector>(source);
  if (!encrypted) return plain;
  return WithEncryption(std::move(plain));
}

absl::StatusOr<std::unique_ptr<Transport>> OpenTcpTransport(const net::Address& address,
                                                            Options options) {
  RETURN_IF_ERROR(CheckOptions(options));
  std::vector<net::FileDescriptor> listeners(1);
  ASSIGN_OR_RETURN(listeners[0], net::Listen(address));
  ASSIGN_OR_RETURN(const net::Address bound, net::LocalAddress(listeners[0]));
  auto connector = MakeTcpConnector(net::Address{bound.host, 0}, options.encrypted);
  return std::make_unique<StreamTransport>(std::move(listeners), net::ToString(bound),
                                           std::move(connector), std::move(options));
}

}  // namespace starling::transport
