// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/handshake.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status/check.h"
#include "common/status/macros.h"
#include "common/tls/tls.h"
#include "trainer/transport/transport.h"

namespace starling::transport {
namespace {

static_assert(kMaxMemberIdBytes < kMemberFieldBytes);

constexpr std::string_view kPlainMagic = "STRLNG-2";
constexpr std::string_view kEncryptedMagic = "STRLNGE2";
constexpr std::string_view kAcceptorLabel = "acceptor";
constexpr std::string_view kDialerLabel = "dialer";
constexpr std::string_view kVerdictLabel = "verdict";
constexpr std::string_view kLinkLabel = "starling link";
constexpr std::size_t kLinkKeyBytes = 32;
static_assert(kPlainMagic.size() == 8 && kEncryptedMagic.size() == 8);

// Text, then zeros.
void PutMember(const std::string& member, std::byte* field) {
  STARLING_CHECK(member.size() <= kMaxMemberIdBytes, "member ids have been checked");
  std::memcpy(field, member.data(), member.size());
}

absl::StatusOr<std::string> GetMember(const std::byte* field) {
  const auto* text = reinterpret_cast<const char*>(field);
  const std::size_t size =
      static_cast<std::size_t>(std::find(text, text + kMemberFieldBytes, '\0') - text);
  const bool padded =
      std::all_of(text + size, text + kMemberFieldBytes, [](char c) { return c == 0; });
  const bool printable = std::all_of(text, text + size, [](char c) { return c > ' ' && c <= '~'; });
  if (size == 0 || size > kMaxMemberIdBytes || !padded || !printable) {
    return absl::InvalidArgumentError("a Hello names no member");
  }
  return std::string(text, size);
}

ProofBytes ToBytes(const bytes::Digest& digest) { return std::bit_cast<ProofBytes>(digest); }

bool Equal(const bytes::Digest& expected, const std::byte* proof) {
  return bytes::ConstantTimeEqual(
      expected, std::span(reinterpret_cast<const std::uint8_t*>(proof), kProofBytes));
}

}  // namespace

HelloBytes Encode(const Hello& hello) {
  HelloBytes out = {};
  const std::string_view magic = hello.encrypted ? kEncryptedMagic : kPlainMagic;
  std::memcpy(out.data(), magic.data(), magic.size());
  std::memcpy(out.data() + 8, &hello.view, 8);
  std::memcpy(out.data() + 16, &hello.network, 8);
  std::memcpy(out.data() + 24, hello.nonce.data(), kNonceBytes);
  PutMember(hello.dialer, out.data() + 24 + kNonceBytes);
  PutMember(hello.acceptor, out.data() + 24 + kNonceBytes + kMemberFieldBytes);
  return out;
}

absl::StatusOr<Hello> DecodeHello(const HelloBytes& bytes) {
  Hello hello;
  const std::string_view magic(reinterpret_cast<const char*>(bytes.data()), kPlainMagic.size());
  hello.encrypted = magic == kEncryptedMagic;
  if (!hello.encrypted && magic != kPlainMagic) return absl::InvalidArgumentError("not a Hello");
  std::memcpy(&hello.view, bytes.data() + 8, 8);
  std::memcpy(&hello.network, bytes.data() + 16, 8);
  std::memcpy(hello.nonce.data(), bytes.data() + 24, kNonceBytes);
  ASSIGN_OR_RETURN(hello.dialer, GetMember(bytes.data() + 24 + kNonceBytes));
  ASSIGN_OR_RETURN(hello.acceptor, GetMember(bytes.data() + 24 + kNonceBytes + kMemberFieldBytes));
  return hello;
}

std::string Handshake::Key(std::string_view secret, std::string_view job) {
  const auto digest =
      bytes::Hmac(secret, absl::StrCat("starling data plane, job ", std::string(job)));
  return std::string(reinterpret_cast<const char*>(digest.data()), digest.size());
}

std::string Handshake::Said(std::string_view label) const {
  std::string said(label);
  said.push_back('\0');
  said.append(reinterpret_cast<const char*>(hello_.data()), hello_.size());
  said.append(reinterpret_cast<const char*>(nonce_.data()), nonce_.size());
  return said;
}

bytes::Digest Handshake::ProofOf(std::string_view label, std::span<const std::byte> extra) const {
  std::string said = Said(label);
  said.append(reinterpret_cast<const char*>(extra.data()), extra.size());
  return bytes::Hmac(key_, said);
}

std::string Handshake::LinkKey() const {
  return tls::DeriveBytes(key_, Said(kLinkLabel), kLinkKeyBytes);
}

ChallengeBytes Handshake::MakeChallenge() {
  const std::string random = bytes::RandomBytes(kNonceBytes);
  std::memcpy(nonce_.data(), random.data(), kNonceBytes);
  ChallengeBytes out;
  const ProofBytes proof = ToBytes(ProofOf(kAcceptorLabel));
  std::memcpy(out.data(), nonce_.data(), kNonceBytes);
  std::memcpy(out.data() + kNonceBytes, proof.data(), kProofBytes);
  return out;
}

bool Handshake::CheckProof(const ProofBytes& proof) const {
  return Equal(ProofOf(kDialerLabel), proof.data());
}

VerdictBytes Handshake::MakeVerdict(const Verdict& verdict) const {
  VerdictBytes out;
  std::memcpy(out.data(), &verdict.answer, 8);
  std::memcpy(out.data() + 8, &verdict.fence, 8);
  const ProofBytes proof = ToBytes(ProofOf(kVerdictLabel, std::span(out).first(16)));
  std::memcpy(out.data() + 16, proof.data(), kProofBytes);
  return out;
}

absl::StatusOr<ProofBytes> Handshake::AnswerChallenge(const ChallengeBytes& challenge) {
  std::memcpy(nonce_.data(), challenge.data(), kNonceBytes);
  if (!Equal(ProofOf(kAcceptorLabel), challenge.data() + kNonceBytes)) {
    return absl::UnauthenticatedError("does not know this job's secret");
  }
  return ToBytes(ProofOf(kDialerLabel));
}

absl::StatusOr<Verdict> Handshake::ReadVerdict(const VerdictBytes& bytes) const {
  if (!Equal(ProofOf(kVerdictLabel, std::span(bytes).first(16)), bytes.data() + 16)) {
    return absl::UnauthenticatedError("does not know this job's secret");
  }
  Verdict verdict;
  std::memcpy(&verdict.answer, bytes.data(), 8);
  std::memcpy(&verdict.fence, bytes.data() + 8, 8);
  return verdict;
}

}  // namespace starling::transport
