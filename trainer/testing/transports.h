// SPDX-License-Identifier: Apache-2.0
// Many ranks in one test: transports for n members, a thread for each rank.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock/patience.h"
#include "common/status/check.h"
#include "trainer/transport/inproc_transport.h"
#include "trainer/transport/mixed_transport.h"
#include "trainer/transport/shm_transport.h"
#include "trainer/transport/tcp_transport.h"
#include "trainer/transport/transport.h"
#include "trainer/transport/udp_transport.h"

namespace starling::transport::testing {

inline net::Deadline Soon() { return net::Deadline::After(clock::Patience(absl::Seconds(60))); }

enum class Kind { kTcp, kInproc, kShm, kMixed, kEncrypted, kUdp, kLossyUdp };
inline std::string KindName(Kind kind) {
  switch (kind) {
    case Kind::kTcp:
      return "Tcp";
    case Kind::kInproc:
      return "Inproc";
    case Kind::kShm:
      return "Shm";
    case Kind::kMixed:
      return "Mixed";
    case Kind::kEncrypted:
      return "Encrypted";
    case Kind::kUdp:
      return "Udp";
    case Kind::kLossyUdp:
      return "LossyUdp";
  }
  return "";
}

// Calls `body(rank)` on a thread of its own for each rank and waits for all.
inline void OnEachRank(int size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

inline absl::Status SendText(Mesh& mesh, int peer, Tag tag, std::string_view text,
                             net::Deadline deadline) {
  return mesh.Send(peer, tag, std::as_bytes(std::span(text)), deadline);
}

// The transports of members "member-0" ... of one job. Thread-compatible.
class Members {
 public:
  Members(Kind kind, int size, const Options& options = {}) : kind_(kind) {
    for (int rank = 0; rank < size; ++rank) {
      Options mine = options;
      mine.member = absl::StrCat("member-", rank);
      Add(mine);
    }
  }

  // One more; returns its index. Empty fields of `options` get the others' values.
  int Add(Options options) {
    if (options.job.empty()) options.job = "job-a";
    if (options.secret.empty()) options.secret = "secret of the tests";
    auto transport = OpenTransport(options);
    STARLING_CHECK(transport.ok(), transport.status().ToString().c_str());
    peers_.push_back({options.member, (*transport)->address(), options.member});
    transports_.push_back(*std::move(transport));
    return static_cast<int>(peers_.size()) - 1;
  }

  int size() const { return static_cast<int>(peers_.size()); }
  Transport& operator[](int index) { return *transports_[index]; }
  const std::vector<Peer>& peers() const { return peers_; }
  void Kill(int index) { transports_[index].reset(); }

  absl::StatusOr<std::unique_ptr<Mesh>> Open(std::uint64_t view, int rank,
                                             net::Deadline deadline = Soon(),
                                             Cancellation* cancellation = nullptr) {
    return transports_[rank]->Open(view, peers_, rank, deadline, cancellation);
  }

  // `view` of all members; ends the process if it cannot be opened.
  std::vector<std::unique_ptr<Mesh>> OpenAll(std::uint64_t view) {
    std::vector<std::unique_ptr<Mesh>> meshes(size());
    OnEachRank(size(), [&](int rank) {
      auto mesh = Open(view, rank);
      STARLING_CHECK(mesh.ok(), mesh.status().ToString().c_str());
      meshes[rank] = *std::move(mesh);
    });
    return meshes;
  }

 private:
  absl::StatusOr<std::unique_ptr<Transport>> OpenTransport(const Options& options) {
    const net::Address address{"127.0.81.1", 0};
    switch (kind_) {
      case Kind::kTcp:
        return OpenTcpTransport(address, options);
      case Kind::kInproc:
        return network_.OpenTransport(options);
      case Kind::kShm:
        return OpenShmTransport(options);
      case Kind::kMixed:
        return OpenMixedTransport(address, options);
      case Kind::kEncrypted: {
        Options encrypted = options;
        encrypted.encrypted = true;
        return OpenTcpTransport(address, encrypted);
      }
      case Kind::kUdp:
        return OpenUdpTransport(address, options);
      case Kind::kLossyUdp:  // one datagram in a hundred is lost
        return OpenUdpTransport(address, options, 0.01);
    }
    return absl::InternalError("no such kind");
  }

  const Kind kind_;
  InprocNetwork network_;
  std::vector<Peer> peers_;
  std::vector<std::unique_ptr<Transport>> transports_;
};

}  // namespace starling::transport::testing
