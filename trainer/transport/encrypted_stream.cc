// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/encrypted_stream.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "common/status/macros.h"

namespace starling::transport {
namespace {

using tls::Channel;

// What one call encrypts or decrypts at most: other links have their turn between, and the system
// takes that much in one call.
constexpr std::size_t kSealBatch = 8 * Channel::kRecordBytes;
constexpr std::size_t kOpenBatch = 16 * Channel::kRecordBytes;

class EncryptedFitting final : public Fitting {
 public:
  EncryptedFitting(std::unique_ptr<Fitting> below, std::unique_ptr<Channel> channel)
      : below_(std::move(below)), channel_(std::move(channel)) {}

  absl::StatusOr<std::unique_ptr<Stream>> Step() override {
    if (stream_ == nullptr) {
      ASSIGN_OR_RETURN(std::unique_ptr<Stream> plain, below_->Step());
      if (plain == nullptr) return nullptr;
      stream_ = std::make_unique<EncryptedStream>(std::move(plain), std::move(channel_));
    }
    ASSIGN_OR_RETURN(const bool done, stream_->Shake());
    if (!done) return nullptr;
    return std::move(stream_);
  }
  int fd() const override { return stream_ == nullptr ? below_->fd() : stream_->fd(); }
  short events() const override {
    return stream_ == nullptr ? below_->events() : stream_->events();
  }

 private:
  const std::unique_ptr<Fitting> below_;
  std::unique_ptr<Channel> channel_;         // until there is a stream
  std::unique_ptr<EncryptedStream> stream_;  // that shakes hands
};

class EncryptedConnector final : public Connector {
 public:
  explicit EncryptedConnector(std::unique_ptr<Connector> below) : below_(std::move(below)) {}

  absl::StatusOr<net::FileDescriptor> Start(const std::string& address) override {
    return below_->Start(address);
  }
  absl::Status Result(const net::FileDescriptor& socket, const std::string& address) override {
    return below_->Result(socket, address);
  }
  std::unique_ptr<Fitting> Fit(Connection connection, std::size_t members) override {
    const auto side = connection.dialer ? Channel::Side::kClient : Channel::Side::kServer;
    auto channel = channels_.Make(side, connection.handshake.LinkKey());
    return std::make_unique<EncryptedFitting>(below_->Fit(std::move(connection), members),
                                              std::move(channel));
  }

 private:
  const std::unique_ptr<Connector> below_;
  const tls::Channels channels_;
};

}  // namespace

std::unique_ptr<Connector> WithEncryption(std::unique_ptr<Connector> below) {
  return std::make_unique<EncryptedConnector>(std::move(below));
}

absl::StatusOr<std::size_t> EncryptedStream::ReadBelow(std::span<std::byte> bytes) {
  const iovec piece{bytes.data(), bytes.size()};
  return below_->Read(std::span(&piece, 1));
}

absl::StatusOr<bool> EncryptedStream::Flush() {
  while (!channel_->outgoing().empty()) {
    const auto left = channel_->outgoing();
    const iovec piece{const_cast<std::byte*>(left.data()), left.size()};
    ASSIGN_OR_RETURN(const std::size_t written, below_->Write(std::span(&piece, 1)));
    if (written == 0) return false;
    channel_->Sent(written);
  }
  return true;
}

absl::StatusOr<bool> EncryptedStream::Shake() {
  const auto shaken =
      channel_->Shake([this](std::span<std::byte> into) { return ReadBelow(into); });
  // Also after a failure: it tells the peer why.
  const auto flushed = Flush();
  RETURN_IF_ERROR(shaken.status());
  RETURN_IF_ERROR(flushed.status());
  return *shaken && *flushed;
}

short EncryptedStream::events() {
  const bool output = !channel_->outgoing().empty();
  return below_->Await({.input = true, .output = output, .hangup = false, .bell = false}).events;
}

absl::StatusOr<std::size_t> EncryptedStream::Seal(std::span<const iovec> pieces, std::size_t skip) {
  std::array<std::byte, Channel::kRecordBytes> gathered;  // a record of several pieces
  std::size_t filled = 0;
  std::size_t sealed = 0;
  for (const iovec& piece : pieces) {
    auto left = std::span(static_cast<const std::byte*>(piece.iov_base), piece.iov_len);
    left = left.subspan(std::min(skip, left.size()));
    skip -= piece.iov_len - left.size();
    while (!left.empty() && sealed + filled < kSealBatch) {
      std::size_t part = std::min(left.size(), Channel::kRecordBytes - filled);
      if (part == Channel::kRecordBytes) {  // a whole record from where it lies
        RETURN_IF_ERROR(channel_->Encrypt(left.first(part)));
        sealed += part;
      } else {
        std::memcpy(gathered.data() + filled, left.data(), part);
        filled += part;
      }
      if (filled == Channel::kRecordBytes) {
        RETURN_IF_ERROR(channel_->Encrypt(gathered));
        sealed += std::exchange(filled, 0);
      }
      left = left.subspan(part);
    }
  }
  RETURN_IF_ERROR(channel_->Encrypt(std::span(gathered).first(filled)));
  return sealed + filled;
}

// Bytes count as written when they have left as a whole batch: what the link takes for sent must
// not wait here for its next call. It calls again with the same bytes until then.
absl::StatusOr<std::size_t> EncryptedStream::Write(std::span<const iovec> pieces) {
  ASSIGN_OR_RETURN(bool left, Flush());
  if (!left) return 0;
  const std::size_t before = std::exchange(sealed_, 0);
  ASSIGN_OR_RETURN(sealed_, Seal(pieces, before));
  const auto flushed = Flush();
  // What left before the peer closed was sent.
  if (!flushed.ok() && before == 0) return flushed.status();
  if (!flushed.ok() || !*flushed) return before;
  return before + std::exchange(sealed_, 0);
}

absl::StatusOr<std::size_t> EncryptedStream::Read(std::span<const iovec> pieces) {
  std::size_t total = 0;
  for (const iovec& piece : pieces) {
    auto left = std::span(static_cast<std::byte*>(piece.iov_base), piece.iov_len);
    while (!left.empty() && total < kOpenBatch) {
      if (total > 0 && !channel_->HasMore()) return total;
      const auto read =
          channel_->Decrypt(left, [this](std::span<std::byte> into) { return ReadBelow(into); });
      // The error comes again in the next call.
      if (!read.ok() && total == 0) {
        (void)Flush();  // tells the peer why
        return read.status();
      }
      waits_ = !read.ok() || *read == 0;
      if (waits_) return total;
      total += *read;
      left = left.subspan(*read);
    }
  }
  return total;
}

Attention EncryptedStream::Await(const Interest& interest) {
  Attention attention = below_->Await(interest);
  attention.ready = attention.ready || (interest.input && !waits_ && channel_->HasMore());
  return attention;
}

void EncryptedStream::Finish(std::span<const std::byte> last, bool orderly) {
  // Behind half a batch nothing can be said.
  const bool says = !last.empty() && channel_->outgoing().empty() && channel_->Encrypt(last).ok();
  below_->Finish(says ? channel_->outgoing() : std::span<const std::byte>(), orderly);
}

Overhead EncryptedStream::TakeOverhead() {
  const std::uint64_t sent = channel_->records_encrypted();
  const std::uint64_t received = channel_->records_decrypted();
  const Overhead overhead{
      (sent - std::exchange(told_sent_, sent)) * Channel::kOverheadBytes,
      (received - std::exchange(told_received_, received)) * Channel::kOverheadBytes};
  return overhead;
}

}  // namespace starling::transport
