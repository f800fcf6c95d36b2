// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/acceptor.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "trainer/transport/unix_socket.h"

namespace starling::transport {
namespace {

// After the system refused us a descriptor: strangers time out meanwhile.
constexpr int kOutOfDescriptorsPauseMs = 100;

// A message of a handshake is far smaller than any socket buffer: it goes immediately, or not at
// all.
template <std::size_t kSize>
bool SendAnswer(int fd, const std::array<std::byte, kSize>& message) {
  return ::send(fd, message.data(), kSize, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(kSize);
}

// A parked dialer must not send anything; one that does is dropped like one that has closed.
bool HasEnded(int fd) {
  std::byte byte;
  return ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || !net::NotNow(errno);
}

}  // namespace

Acceptor::Acceptor(std::vector<net::FileDescriptor> listeners, const Options& options)
    : listeners_(std::move(listeners)),
      member_(options.member),
      network_(NetworkOf(options.shaping)),
      key_(Handshake::Key(options.secret, options.job)),
      encrypted_(options.encrypted),
      max_half_open_(static_cast<std::size_t>(options.max_half_open)),
      max_parked_(static_cast<std::size_t>(options.max_parked)),
      handshake_timeout_(options.handshake_timeout),
      thread_([this] { Run(); }) {}

Acceptor::~Acceptor() {
  {
    sync::MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.Signal();
  thread_.join();
}

void Acceptor::Inject(net::FileDescriptor socket) {
  {
    sync::MutexLock lock(mutex_);
    Admit(std::move(socket));
  }
  wake_.Signal();
}

absl::StatusOr<std::shared_ptr<Opening>> Acceptor::Open(std::uint64_t view,
                                                        std::map<std::string, int> expected) {
  auto opening = std::make_shared<Opening>();
  opening->expected = std::move(expected);
  sync::MutexLock lock(mutex_);
  if (view < fence_) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot open view ", view, ": this member's fence is ", fence_));
  }
  if (opened_ && view == opened_view_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot open view ", view, " again: connections belong to one view, wait for a higher"));
  }
  RaiseFence(view);
  opened_ = true;
  opened_view_ = view;
  opening_ = opening;
  for (auto parked = parked_.begin(); parked != parked_.end() && parked->first.first == view;) {
    AcceptInto(*opening, parked->first.second, std::move(parked->second.socket),
               parked->second.handshake);
    parked = parked_.erase(parked);
  }
  // The thread may poll them: as long as it does, closing them would not end the connections.
  wake_.Signal();
  return opening;
}

std::vector<std::pair<int, Connection>> Acceptor::Take(Opening& opening) {
  sync::MutexLock lock(mutex_);
  opening.event.Drain();
  return std::exchange(opening.arrived, {});
}

std::vector<int> Acceptor::Missing(const Opening& opening) const {
  sync::MutexLock lock(mutex_);
  std::vector<int> ranks;
  for (const auto& [member, rank] : opening.expected) ranks.push_back(rank);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void Acceptor::Finish(const std::shared_ptr<Opening>& opening) {
  sync::MutexLock lock(mutex_);
  opening->arrived.clear();
  if (opening_ == opening) opening_ = nullptr;
}

void Acceptor::Fence(std::uint64_t view) {
  sync::MutexLock lock(mutex_);
  RaiseFence(view);
  wake_.Signal();  // see Open
}

std::uint64_t Acceptor::fence() const {
  sync::MutexLock lock(mutex_);
  return fence_;
}

void Acceptor::RaiseFence(std::uint64_t view) {
  if (view <= fence_) return;
  fence_ = view;
  if (opening_ != nullptr && opened_view_ < view) {
    opening_->event.Signal();  // whoever waits in Open gives up
    opening_ = nullptr;
  }
  while (!parked_.empty() && parked_.begin()->first.first < fence_) {
    Parked& parked = parked_.begin()->second;
    Refuse(std::move(parked.socket), parked.handshake, Answer::kFenced);
    parked_.erase(parked_.begin());
  }
}

void Acceptor::Run() {
  while (true) {
    {
      sync::MutexLock lock(mutex_);
      if (stopping_) return;
    }
    const std::vector<int> ready = PollAll();
    const auto is_ready = [&ready](int fd) {
      return std::find(ready.begin(), ready.end(), fd) != ready.end();
    };
    sync::MutexLock lock(mutex_);
    // Before the strangers, some of whom will be parked with bytes already read.
    std::erase_if(parked_, [&](const auto& entry) {
      const int fd = entry.second.socket.get();
      return is_ready(fd) && HasEnded(fd);
    });
    for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
      const Next next = is_ready(stranger->socket.get()) ? Advance(*stranger) : Next::kWait;
      if (next == Next::kProved) Decide(std::move(*stranger));
      const bool stays = next == Next::kWait && !stranger->deadline.Expired();
      stranger = stays ? std::next(stranger) : strangers_.erase(stranger);
    }
    for (const auto& listener : listeners_) {
      if (is_ready(listener.get())) AcceptAll(listener);
    }
  }
}

std::vector<int> Acceptor::PollAll() {
  std::vector<pollfd> polls = {{wake_.get(), POLLIN, 0}};
  net::Deadline soonest = net::Deadline::Never();
  for (const auto& listener : listeners_) polls.push_back({listener.get(), POLLIN, 0});
  {
    sync::MutexLock lock(mutex_);
    for (const Stranger& stranger : strangers_) {
      polls.push_back({stranger.socket.get(), POLLIN, 0});
      soonest = std::min(soonest, stranger.deadline);
    }
    for (const auto& [key, parked] : parked_) polls.push_back({parked.socket.get(), POLLIN, 0});
  }
  std::vector<int> ready;
  if (::poll(polls.data(), polls.size(), soonest.PollTimeout()) <= 0) return ready;
  for (const pollfd& poll : polls) {
    if (poll.revents != 0) ready.push_back(poll.fd);
  }
  if (polls.front().revents != 0) wake_.Drain();
  return ready;
}

void Acceptor::AcceptAll(const net::FileDescriptor& listener) {
  // A flood must not keep this thread from those who are already here.
  for (std::size_t i = 0; i < max_half_open_; ++i) {
    auto socket = net::Accept(listener);
    if (!socket.ok()) {
      log::Warning("data plane cannot accept", {{"error", socket.status().ToString()}});
      if (!strangers_.empty()) strangers_.pop_front();
      pollfd wake{wake_.get(), POLLIN, 0};
      (void)::poll(&wake, 1, kOutOfDescriptorsPauseMs);
      return;
    }
    if (!socket->valid()) return;
    Admit(*std::move(socket));
  }
}

void Acceptor::Admit(net::FileDescriptor socket) {
  if (IsUnixSocket(socket) && !PeerIsSameUser(socket)) return;
  // A handshake takes about a millisecond, so when there are too many the oldest is dropped.
  if (strangers_.size() >= max_half_open_) strangers_.pop_front();
  Stranger& stranger = strangers_.emplace_back();
  stranger.socket = std::move(socket);
  stranger.deadline = net::Deadline::After(handshake_timeout_);
}

Acceptor::Next Acceptor::Advance(Stranger& stranger) const {
  const bool greeted = stranger.handshake != nullptr;
  const std::span<std::byte> due =
      greeted ? std::span<std::byte>(stranger.proof) : std::span<std::byte>(stranger.hello_bytes);
  const ssize_t read = ::recv(stranger.socket.get(), due.data() + stranger.received,
                              due.size() - stranger.received, MSG_DONTWAIT);
  if (read < 0 && net::NotNow(errno)) return Next::kWait;
  if (read <= 0) return Next::kDrop;
  stranger.received += static_cast<std::size_t>(read);
  if (stranger.received < due.size()) return Next::kWait;

  stranger.received = 0;
  if (greeted) {
    return stranger.handshake->CheckProof(stranger.proof) ? Next::kProved : Next::kDrop;
  }
  auto hello = DecodeHello(stranger.hello_bytes);
  if (!hello.ok()) return Next::kDrop;
  stranger.hello = *std::move(hello);
  stranger.handshake = std::make_unique<Handshake>(key_, stranger.hello_bytes);
  return SendAnswer(stranger.socket.get(), stranger.handshake->MakeChallenge()) ? Next::kWait
                                                                                : Next::kDrop;
}

void Acceptor::Decide(Stranger stranger) {
  const Hello& hello = stranger.hello;
  const auto refuse = [&](Answer answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    log::Info("data plane refused a member", {{"peer", hello.dialer},
                                              {"view", hello.view},
                                              {"fence", fence_},
                                              {"answer", static_cast<std::uint64_t>(answer)}});
    Refuse(std::move(stranger.socket), *stranger.handshake, answer);
  };
  if (hello.acceptor != member_) return refuse(Answer::kWrongMember);
  if (hello.encrypted != encrypted_) return refuse(Answer::kEncryption);
  if (hello.view < fence_) return refuse(Answer::kFenced);
  if (hello.network != 0 && network_ != 0 && hello.network != network_) {
    return refuse(Answer::kNetwork);
  }
  if (opened_ && hello.view == opened_view_) {
    if (opening_ == nullptr) return refuse(Answer::kClosed);
    return AcceptInto(*opening_, hello.dialer, std::move(stranger.socket), *stranger.handshake);
  }
  const ParkedKey key{hello.view, hello.dialer};
  parked_.erase(key);  // it dials again: the older connection is dead
  if (parked_.size() >= max_parked_) return refuse(Answer::kBusy);
  parked_.emplace(key, Parked{std::move(stranger.socket), *stranger.handshake});
}

void Acceptor::AcceptInto(Opening& opening, const std::string& member, net::FileDescriptor socket,
                          const Handshake& handshake) {
  const auto expected = opening.expected.find(member);
  if (expected == opening.expected.end()) {
    return Refuse(std::move(socket), handshake, Answer::kNotMember);
  }
  if (!SendAnswer(socket.get(), handshake.MakeVerdict({Answer::kAccepted, fence_}))) return;
  opening.arrived.emplace_back(expected->second,
                               Connection{std::move(socket), handshake, /*dialer=*/false});
  opening.expected.erase(expected);
  opening.event.Signal();
}

void Acceptor::Refuse(net::FileDescriptor socket, const Handshake& handshake, Answer answer) const {
  // Best effort: a dialer that does not hear it sees the connection end.
  (void)SendAnswer(socket.get(), handshake.MakeVerdict({answer, fence_}));
}

}  // namespace starling::transport
