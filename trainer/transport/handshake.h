// SPDX-License-Identifier: Apache-2.0
// How two members recognise one another before a link carries anything.
//
//   dialer                                acceptor
//     Hello{view, nonce, both ids,  ->
//           emulated network}
//                                   <-    Challenge{nonce, proof that I know the key}
//     Proof{that I know the key}    ->
//                                   <-    Verdict{accepted, or why not and my fence; authenticated}
//
// Messages have fixed sizes, so a stranger can make nobody allocate. Proofs are keyed hashes over
// everything that was said, with a label for each direction, so that none can be replayed or
// reflected. The key is derived from the job's secret and UID. The verdict comes when the acceptor
// has installed the view: until then the Hello is parked.
//
// A Hello says, in its first bytes, whether its member's links are encrypted. An acceptor whose
// links differ in that refuses it; proofs are about these bytes too, so nobody on the way can
// change them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/bytes/bytes.h"

namespace starling::transport {

inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kMemberFieldBytes = 128;
inline constexpr std::size_t kHelloBytes = 8 + 8 + 8 + kNonceBytes + 2 * kMemberFieldBytes;
inline constexpr std::size_t kProofBytes = 32;
inline constexpr std::size_t kChallengeBytes = kNonceBytes + kProofBytes;
inline constexpr std::size_t kVerdictBytes = 8 + 8 + kProofBytes;

using HelloBytes = std::array<std::byte, kHelloBytes>;
using ProofBytes = std::array<std::byte, kProofBytes>;
using ChallengeBytes = std::array<std::byte, kChallengeBytes>;
using VerdictBytes = std::array<std::byte, kVerdictBytes>;

struct Hello {
  bool encrypted = false;  // what the link will be
  std::uint64_t view = 0;
  std::uint64_t network = 0;  // which is emulated: NetworkOf(shaping)
  std::array<std::byte, kNonceBytes> nonce = {};
  std::string dialer;    // member ids, at most kMaxMemberIdBytes
  std::string acceptor;  // whom the dialer means to reach
};

enum class Answer : std::uint64_t {
  kAccepted = 1,
  kFenced = 2,       // the view is below the acceptor's fence
  kWrongMember = 3,  // another member lives at this address now
  kNotMember = 4,    // the acceptor's view of that number has no such member
  kClosed = 5,       // the acceptor had this link already, or is done with the view
  kBusy = 6,         // too many parked
  kEncryption = 7,   // the acceptor's links are encrypted and the dialer's not, or the reverse
  kNetwork = 8,      // another network is emulated here, or by another machine's clock
};

struct Verdict {
  Answer answer = Answer::kAccepted;
  std::uint64_t fence = 0;
};

HelloBytes Encode(const Hello& hello);
// INVALID_ARGUMENT when it is not a Hello.
absl::StatusOr<Hello> DecodeHello(const HelloBytes& bytes);

// Computes and checks the proofs of one handshake. Thread-compatible.
class Handshake {
 public:
  // The key of a job's data plane.
  static std::string Key(std::string_view secret, std::string_view job);

  Handshake(std::string key, const HelloBytes& hello) : key_(std::move(key)), hello_(hello) {}

  // The acceptor's side.
  ChallengeBytes MakeChallenge();
  bool CheckProof(const ProofBytes& proof) const;
  VerdictBytes MakeVerdict(const Verdict& verdict) const;

  // The dialer's side. UNAUTHENTICATED when the other does not know the key.
  absl::StatusOr<ProofBytes> AnswerChallenge(const ChallengeBytes& challenge);
  absl::StatusOr<Verdict> ReadVerdict(const VerdictBytes& bytes) const;

  // Once both have proved: a key of this connection alone. Who joins the halves of two connections
  // has two keys that differ.
  std::string LinkKey() const;

 private:
  // Both ends' messages so far, behind a label.
  std::string Said(std::string_view label) const;
  bytes::Digest ProofOf(std::string_view label, std::span<const std::byte> extra = {}) const;

  std::string key_;
  HelloBytes hello_;
  std::array<std::byte, kNonceBytes> nonce_ = {};  // the acceptor's
};

}  // namespace starling::transport
