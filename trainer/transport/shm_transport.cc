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
  absl::StatusOr<std::unique_ptr<Stream>> Fit(net::FileDescriptor& socket, bool dialer,
                                              std::size_t members) override {
    return FitSharedMemory(socket, dialer, members, WithoutMemory::kFail);
  }
};

absl::StatusOr<std::unique_ptr<Stream>> MakeOffer(net::FileDescriptor& socket, std::size_t members,
                                                  WithoutMemory without_memory) {
  const std::size_t ring_bytes = RingBytesFor(members);
  auto made = ShmSegment::Make(ring_bytes);
  if (!made.ok()) {
    if (without_memory == WithoutMemory::kFail) return made.status();
    log::Warning("a link goes without shared memory", {{"error", made.status().ToString()}});
    RETURN_IF_ERROR(SendOffer(socket, {}));
    return std::make_unique<SocketStream>(std::move(socket));
  }
  RETURN_IF_ERROR(SendOffer(socket, {ring_bytes, std::move(made->file)}));
  return std::make_unique<ShmStream>(std::move(socket), std::move(made->segment), /*dialer=*/true);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Stream>> FitSharedMemory(net::FileDescriptor& socket, bool dialer,
                                                        std::size_t members,
                                                        WithoutMemory without_memory) {
  if (dialer) return MakeOffer(socket, members, without_memory);
  ASSIGN_OR_RETURN(const auto offer, ReceiveOffer(socket));
  if (!offer.has_value()) return nullptr;
  if (!offer->file.valid() && without_memory == WithoutMemory::kUseSocket) {
    return std::make_unique<SocketStream>(std::move(socket));
  }
  ASSIGN_OR_RETURN(ShmSegment segment, ShmSegment::Map(offer->file, offer->ring_bytes));
  return std::make_unique<ShmStream>(std::move(socket), std::move(segment), /*dialer=*/false);
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
