// SPDX-License-Identifier: Apache-2.0
// A Transport over streams: what its kinds have in common, i.e. nearly all.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/transport/acceptor.h"
#include "trainer/transport/dialing.h"
#include "trainer/transport/host_card.h"
#include "trainer/transport/ledger.h"
#include "trainer/transport/transport.h"

namespace starling::transport {

// INVALID_ARGUMENT when ids or secret cannot be used.
absl::Status CheckOptions(const Options& options);

// Thread-safe.
class StreamTransport : public Transport {
 public:
  // Without listeners see Acceptor. The options have been checked.
  StreamTransport(std::vector<net::FileDescriptor> listeners, std::string address,
                  std::unique_ptr<Connector> connector, Options options);

  std::string address() const override { return address_; }
  absl::StatusOr<std::unique_ptr<Mesh>> Open(std::uint64_t view, const std::vector<Peer>& members,
                                             int rank, net::Deadline deadline,
                                             Cancellation* cancellation) override;
  void Fence(std::uint64_t view) override { acceptor_.Fence(view); }
  std::uint64_t fence() const override { return acceptor_.fence(); }
  const Ledger& ledger() const override { return *ledger_; }

  Acceptor& acceptor() { return acceptor_; }

 private:
  class Assembly;  // of one view's links

  const std::string address_;
  const Options options_;
  const std::unique_ptr<Connector> connector_;
  // The card that this member shares with others of `members`; null: none.
  absl::StatusOr<std::shared_ptr<HostCard>> CardOf(const std::vector<Peer>& members,
                                                   int rank) const;
  absl::Status CheckCard(HostCard& card, const std::vector<Peer>& members, int rank) const;

  const std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();
  Acceptor acceptor_;
};

}  // namespace starling::transport
