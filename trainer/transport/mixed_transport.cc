// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/mixed_transport.h"

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "trainer/transport/handshake.h"
#include "trainer/transport/shm_transport.h"
#include "trainer/transport/stream_transport.h"
#include "trainer/transport/tcp_transport.h"
#include "trainer/transport/udp_transport.h"
#include "trainer/transport/unix_socket.h"

namespace starling::transport {
namespace {

// Nobody who does not know the secret can guess it, and take it first.
std::string NameBeside(const std::string& address, const Options& options) {
  const auto digest = bytes::Hmac(Handshake::Key(options.secret, options.job),
                                  absl::StrCat("shared memory beside ", address));
  const std::string text(reinterpret_cast<const char*>(digest.data()), digest.size());
  return absl::StrCat("starling-", absl::BytesToHexString(text));
}

class MixedConnector final : public Connector {
 public:
  MixedConnector(std::unique_ptr<Connector> far, Options options)
      : far_(std::move(far)), options_(std::move(options)) {}

  absl::StatusOr<net::FileDescriptor> Start(const std::string& address) override {
    auto near = ConnectToName(NameBeside(address, options_));
    return near.ok() ? std::move(near) : far_->Start(address);
  }
  absl::Status Result(const net::FileDescriptor& socket, const std::string& address) override {
    return IsUnixSocket(socket) ? absl::OkStatus() : far_->Result(socket, address);
  }
  std::unique_ptr<Fitting> Fit(Connection connection, std::size_t members) override {
    if (!IsUnixSocket(connection.socket)) return far_->Fit(std::move(connection), members);
    return FitSharedMemory(std::move(connection.socket), connection.dialer, members,
                           WithoutMemory::kUseSocket);
  }

 private:
  const std::unique_ptr<Connector> far_;
  const Options options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> OpenMixedTransport(const net::Address& address,
                                                              Options options) {
  if (!options.share_memory) {
    return options.datagrams ? OpenUdpTransport(address, std::move(options))
                             : OpenTcpTransport(address, std::move(options));
  }
  RETURN_IF_ERROR(CheckOptions(options));
  std::vector<net::FileDescriptor> listeners(1);
  ASSIGN_OR_RETURN(listeners[0], net::Listen(address));
  ASSIGN_OR_RETURN(const net::Address bound, net::LocalAddress(listeners[0]));
  const std::string shown = net::ToString(bound);
  auto near = ListenAtName(NameBeside(shown, options));
  if (near.ok()) {
    listeners.push_back(*std::move(near));
  } else {
    log::Warning("no shared memory with members of this machine",
                 {{"error", near.status().ToString()}});
  }
  const net::Address source{bound.host, 0};
  auto far = options.datagrams ? MakeUdpConnector(source, options.encrypted)
                               : MakeTcpConnector(source, options.encrypted);
  auto connector = std::make_unique<MixedConnector>(std::move(far), options);
  return std::make_unique<StreamTransport>(std::move(listeners), shown, std::move(connector),
                                           std::move(options));
}

absl::StatusOr<bool> ParseShareMemory(std::string_view text) {
  if (text.empty()) return true;
  if (text == "0") return false;
  return absl::InvalidArgumentError(
      absl::StrCat("STARLING_SHARED_MEMORY is \"", std::string(text),
                   "\"; it must be 0 (no shared memory), or not be there"));
}

absl::StatusOr<bool> ShareMemoryOfJob() {
  const char* const text = std::getenv("STARLING_SHARED_MEMORY");
  return ParseShareMemory(text == nullptr ? "" : text);
}

}  // namespace starling::transport
