// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/dialing.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"

namespace starling::transport {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(10);

absl::Status SendWhole(int fd, std::span<const std::byte> message) {
  const ssize_t sent = ::send(fd, message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent == static_cast<ssize_t>(message.size())) return absl::OkStatus();
  return absl::UnavailableError(
      sent < 0 ? absl::StrCat("cannot send a Hello: ", std::generic_category().message(errno))
               : std::string("cannot send a Hello: the connection takes no bytes"));
}

absl::Status Refusal(const Verdict& verdict, const Hello& hello) {
  switch (verdict.answer) {
    case Answer::kAccepted:
      return absl::OkStatus();
    case Answer::kFenced:
      return absl::FailedPreconditionError(
          absl::StrCat("refused view ", hello.view, ": its fence is ", verdict.fence));
    case Answer::kWrongMember:
      return absl::UnavailableError(
          absl::StrCat("is gone: another member than ", hello.acceptor, " lives at its address"));
    case Answer::kNotMember:
      return absl::FailedPreconditionError(
          absl::StrCat("refused: its view ", hello.view, " has no member ", hello.dialer));
    case Answer::kClosed:
      return absl::FailedPreconditionError(
          absl::StrCat("refused: it is done with view ", hello.view, ", or has this link already"));
    case Answer::kEncryption:
      return absl::FailedPreconditionError(
          hello.encrypted ? "refused: its links are not encrypted, this member's are"
                          : "refused: its links are encrypted, this member's are not");
    case Answer::kNetwork:
      return absl::UnimplementedError(
          "refused: it runs on another machine, or emulates another network; all members of a job "
          "with spec.experiment.network run on one machine");
    case Answer::kBusy:
      return absl::UnavailableError("refused: too many Hellos of later views wait there");
  }
  return absl::UnavailableError(
      absl::StrCat("refused with the unknown answer ", static_cast<std::uint64_t>(verdict.answer)));
}

}  // namespace

short Dialing::events() const {
  if (stage_ == Stage::kIdle || stage_ == Stage::kDone) return 0;
  return stage_ == Stage::kConnecting ? POLLOUT : POLLIN;
}

absl::Status Dialing::Step() {
  switch (stage_) {
    case Stage::kIdle:
      if (wake_ != net::Deadline::Never() && !wake_.Expired()) return absl::OkStatus();
      return Connect();
    case Stage::kConnecting:
      return SendHello();
    case Stage::kChallenge:
      return OnChallenge();
    case Stage::kVerdict:
      return OnVerdict();
    case Stage::kDone:
      break;
  }
  return absl::OkStatus();
}

absl::Status Dialing::Connect() {
  wake_ = net::Deadline::Never();
  auto socket = connector_.Start(address_);
  if (absl::IsInvalidArgument(socket.status())) return socket.status();
  if (!socket.ok()) return TryAgain(socket.status());
  socket_ = *std::move(socket);
  stage_ = Stage::kConnecting;
  return absl::OkStatus();
}

absl::Status Dialing::SendHello() {
  pollfd poll{socket_.get(), POLLOUT, 0};
  if (::poll(&poll, 1, 0) == 0) return absl::OkStatus();
  const absl::Status connected = connector_.Result(socket_, address_);
  if (!connected.ok()) return TryAgain(connected);
  const std::string nonce = bytes::RandomBytes(kNonceBytes);
  std::memcpy(hello_.nonce.data(), nonce.data(), kNonceBytes);
  const HelloBytes hello = Encode(hello_);
  const absl::Status sent = SendWhole(socket_.get(), hello);
  if (!sent.ok()) return TryAgain(sent);
  handshake_ = std::make_unique<Handshake>(key_, hello);
  received_ = 0;
  stage_ = Stage::kChallenge;
  return absl::OkStatus();
}

absl::Status Dialing::OnChallenge() {
  const auto full = Fill(challenge_);
  // A crowded acceptor drops the oldest strangers: that can be us.
  if (!full.ok()) return TryAgain(full.status());
  if (!*full) return absl::OkStatus();
  ASSIGN_OR_RETURN(const ProofBytes proof, handshake_->AnswerChallenge(challenge_));
  RETURN_IF_ERROR(SendWhole(socket_.get(), proof));
  received_ = 0;
  stage_ = Stage::kVerdict;
  return absl::OkStatus();
}

absl::Status Dialing::OnVerdict() {
  ASSIGN_OR_RETURN(const bool full, Fill(verdict_));
  if (!full) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Verdict verdict, handshake_->ReadVerdict(verdict_));
  RETURN_IF_ERROR(Refusal(verdict, hello_));
  stage_ = Stage::kDone;
  return absl::OkStatus();
}

absl::Status Dialing::TryAgain(absl::Status why) {
  socket_.Reset();
  if (deadline_.Expired()) return why;
  stage_ = Stage::kIdle;
  wake_ = net::Deadline::After(kPause);
  return absl::OkStatus();
}

absl::StatusOr<bool> Dialing::Fill(std::span<std::byte> due) {
  const ssize_t read =
      ::recv(socket_.get(), due.data() + received_, due.size() - received_, MSG_DONTWAIT);
  if (read < 0 && net::NotNow(errno)) return false;
  if (read <= 0) {
    return absl::UnavailableError("closed the connection during the handshake");
  }
  received_ += static_cast<std::size_t>(read);
  return received_ == due.size();
}

}  // namespace starling::transport
