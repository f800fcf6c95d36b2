// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/shm_transport.h"

#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "trainer/transport/shm_segment.h"
#include "trainer/transport/shm_stream.h"
#include "trainer/transport/socket_stream.h"
#include "trainer/transport/stream_transport.h"
#include "trainer/transport/unix_socket.h"

namespace starling::transport {
namespace {

constexpr std::string_view kPrefix = "shm:";
constexpr std::size_t kNameBytes = 16;

class ShmConnector final : public Connector {
 public:
  absl::StatusOr<net::FileDescriptor> Start(const std::string& address) override {
    if (!std::string_view(address).starts_with(kPrefix)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", address, "\" is no address of shared memory (shm:NAME)"));
    }
    return ConnectToName(std::string_view(address).substr(kPrefix.size()));
  }
  absl::Status Result(const net::FileDescriptor&, const std::string&) override {
    return absl::OkStatus();
  }
  std::unique_ptr<Fitting> Fit(Connection connection, std::size_t members) override {
    return FitSharedMemory(std::move(connection.socket), connection.dialer, members,
                           WithoutMemory::kFail);
  }
};

// The dialer makes the memory and offers it.
class ShmFitting final : public Fitting {
 public:
  ShmFitting(net::FileDescriptor socket, bool dialer, std::size_t members,
             WithoutMemory without_memory)
      : socket_(std::move(socket)),
        dialer_(dialer),
        members_(members),
        without_memory_(without_memory) {}

  absl::StatusOr<std::unique_ptr<Stream>> Step() override {
    return dialer_ ? MakeOffer() : AwaitOffer();
  }
  int fd() const override { return socket_.get(); }

 private:
  absl::StatusOr<std::unique_ptr<Stream>> MakeOffer() {
    const std::size_t ring_bytes = RingBytesFor(members_);
    auto made = ShmSegment::Make(ring_bytes);
    if (!made.ok()) {
      if (without_memory_ == WithoutMemory::kFail) return made.status();
      log::Warning("a link goes without shared memory", {{"error", made.status().ToString()}});
      RETURN_IF_ERROR(SendOffer(socket_, {}));
      return std::make_unique<SocketStream>(std::move(socket_));
    }
    RETURN_IF_ERROR(SendOffer(socket_, {ring_bytes, std::move(made->file)}));
    return std::make_unique<ShmStream>(std::move(socket_), std::move(made->segment),
                                       /*dialer=*/true);
  }

  absl::StatusOr<std::unique_ptr<Stream>> AwaitOffer() {
    ASSIGN_OR_RETURN(const auto offer, ReceiveOffer(socket_));
    if (!offer.has_value()) return nullptr;
    if (!offer->file.valid() && without_memory_ == WithoutMemory::kUseSocket) {
      return std::make_unique<SocketStream>(std::move(socket_));
    }
    ASSIGN_OR_RETURN(ShmSegment segment, ShmSegment::Map(offer->file, offer->ring_bytes));
    return std::make_unique<ShmStream>(std::move(socket_), std::move(segment), /*dialer=*/false);
  }

  net::FileDescriptor socket_;
  const bool dialer_;
  const std::size_t members_;
  const WithoutMemory without_memory_;
};

}  // namespace

std::unique_ptr<Fitting> FitSharedMemory(net::FileDescriptor socket, bool dialer,
                                         std::size_t members, WithoutMemory without_memory) {
  return std::make_unique<ShmFitting>(std::move(socket), dialer, members, without_memory);
}

absl::StatusOr<std::unique_ptr<Transport>> OpenShmTransport(Options options) {
  RETURN_IF_ERROR(CheckOptions(options));
  const std::string name =
      absl::StrCat("starling-", absl::BytesToHexString(bytes::RandomBytes(kNameBytes)));
  std::vector<net::FileDescriptor> listeners(1);
  ASSIGN_OR_RETURN(listeners[0], ListenAtName(name));
  return std::make_unique<StreamTransport>(std::move(listeners),
                                           absl::StrCat(std::string(kPrefix), name),
                                           std::make_unique<ShmConnector>(), std::move(options));
}

}  // namespace starling::transport
