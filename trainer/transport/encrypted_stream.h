// SPDX-License-Identifier: Apache-2.0
// A Stream whose bytes another one carries, encrypted by TLS 1.3 (common/tls/channel.h).
//
// The ends have recognised one another by a Handshake before, and share the key that belongs to it
// (Handshake::LinkKey), so a stranger costs no TLS at all, and nobody who sits between can join the
// two ends of different links. Over which streams it lies is the composition's affair:
// WithEncryption does it for those of a Connector.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "common/tls/channel.h"
#include "trainer/transport/dialing.h"
#include "trainer/transport/stream.h"

namespace starling::transport {

// Confined to its link.
class EncryptedStream final : public Stream {
 public:
  EncryptedStream(std::unique_ptr<Stream> below, std::unique_ptr<tls::Channel> channel)
      : below_(std::move(below)), channel_(std::move(channel)) {}

  // Goes on with TLS's handshake as far as it can: whether it is done.
  absl::StatusOr<bool> Shake();
  // What to poll fd() for meanwhile.
  short events();

  absl::StatusOr<std::size_t> Write(std::span<const iovec> pieces) override;
  absl::StatusOr<std::size_t> Read(std::span<const iovec> pieces) override;
  Attention Await(const Interest& interest) override;
  void OnWoken(short events) override { below_->OnWoken(events); }
  void OnHangup() override { below_->OnHangup(); }
  void Finish(std::span<const std::byte> last, bool orderly) override;
  int fd() const override { return below_->fd(); }
  bool shares_cores() const override { return below_->shares_cores(); }
  bool encrypted() const override { return true; }
  bool datagrams() const override { return below_->datagrams(); }
  Overhead TakeOverhead() override;

 private:
  // Whether all that is encrypted has left.
  absl::StatusOr<bool> Flush();
  // Encrypts a batch of what lies behind the first `skip` bytes; how many bytes that were.
  absl::StatusOr<std::size_t> Seal(std::span<const iovec> pieces, std::size_t skip);
  absl::StatusOr<std::size_t> ReadBelow(std::span<std::byte> bytes);

  const std::unique_ptr<Stream> below_;
  const std::unique_ptr<tls::Channel> channel_;
  std::size_t sealed_ = 0;  // bytes of the writer's that are encrypted and have not all left
  bool waits_ = true;       // the stream below had nothing more when it was last asked
  std::uint64_t told_sent_ = 0;
  std::uint64_t told_received_ = 0;
};

// The streams of `below`, encrypted.
std::unique_ptr<Connector> WithEncryption(std::unique_ptr<Connector> below);

}  // namespace starling::transport
