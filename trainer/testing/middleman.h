// SPDX-License-Identifier: Apache-2.0
// Somebody on the way between members: hears all that one dials, changes it, holds it, ends it.
//
// Members are led to it by giving a dialer its address instead of the acceptor's. It lets both
// recognise one another, for it cannot do their handshake itself; from then on it does what a test
// tells it.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/net/socket.h"
#include "common/status/check.h"
#include "common/sync/mutex.h"
#include "trainer/testing/transports.h"
#include "trainer/transport/handshake.h"

namespace starling::transport::testing {

// Thread-safe.
class Middleman {
 public:
  // What becomes of bytes behind the handshake; nothing: both connections end. On its thread.
  using Meddle = std::function<std::optional<std::string>(bool from_dialer, std::string bytes)>;
  static std::optional<std::string> Pass(bool, std::string bytes) { return bytes; }

  // In front of the member at `target`. With `cross` it waits for two dialers to be recognised, and
  // gives each the other's acceptor end.
  explicit Middleman(const std::string& target, Meddle meddle = Pass, bool cross = false)
      : target_(*net::ParseAddress(target)),
        meddle_(std::move(meddle)),
        cross_(cross),
        listener_(*net::Listen({"127.0.81.2", 0})),
        thread_([this] { Run(); }) {}
  ~Middleman() {
    stop_.Signal();
    thread_.join();
  }
  Middleman(const Middleman&) = delete;
  Middleman& operator=(const Middleman&) = delete;

  std::string address() const { return net::ToString(*net::LocalAddress(listener_)); }

  // All that travelled behind handshakes, as it came.
  std::string Heard() const {
    sync::MutexLock lock(mutex_);
    return heard_;
  }

 private:
  struct Pipe {
    net::FileDescriptor dialer, acceptor;
    std::size_t from_dialer = kHelloBytes + kProofBytes;  // of the handshake, still to come
    std::size_t from_acceptor = kChallengeBytes + kVerdictBytes;
    bool known() const { return from_dialer + from_acceptor == 0; }
  };

  void Run() {
    while (true) {
      std::vector<pollfd> polls = {{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      for (const Pipe& pipe : pipes_) {
        polls.push_back({pipe.dialer.get(), Events(pipe.from_dialer), 0});
        polls.push_back({pipe.acceptor.get(), Events(pipe.from_acceptor), 0});
      }
      if (::poll(polls.data(), polls.size(), -1) < 0) continue;
      if (polls[0].revents != 0) return;
      std::size_t at = 2;
      for (auto pipe = pipes_.begin(); pipe != pipes_.end(); at += 2) {
        const bool stays = (polls[at].revents == 0 || Carry(*pipe, true)) &&
                           (polls[at + 1].revents == 0 || Carry(*pipe, false));
        pipe = stays ? std::next(pipe) : pipes_.erase(pipe);
      }
      if (polls[1].revents != 0) Accept();
      if (cross_ && !crossed_ && pipes_.size() == 2 && Known()) {
        std::swap(pipes_.front().acceptor, pipes_.back().acceptor);
        crossed_ = true;
      }
    }
  }

  bool Known() const { return pipes_.front().known() && pipes_.back().known(); }
  // Whoever is recognised waits until all are.
  short Events(std::size_t left) const {
    return left == 0 && cross_ && !crossed_ ? std::int16_t{0} : std::int16_t{POLLIN};
  }

  void Accept() {
    auto dialer = net::Accept(listener_);
    if (!dialer.ok() || !dialer->valid()) return;
    auto acceptor = net::Connect(target_, Soon());
    if (!acceptor.ok()) return;
    Pipe& pipe = pipes_.emplace_back();
    pipe.dialer = *std::move(dialer);
    pipe.acceptor = *std::move(acceptor);
  }

  // False when an end has closed, or is to be.
  bool Carry(Pipe& pipe, bool from_dialer) {
    std::size_t& left = from_dialer ? pipe.from_dialer : pipe.from_acceptor;
    std::array<char, 65536> buffer;
    const std::size_t limit = left > 0 ? left : buffer.size();
    const int from = from_dialer ? pipe.dialer.get() : pipe.acceptor.get();
    const int to = from_dialer ? pipe.acceptor.get() : pipe.dialer.get();
    const ssize_t read = ::recv(from, buffer.data(), limit, 0);
    if (read <= 0) return read < 0 && errno == EAGAIN;
    std::string bytes(buffer.data(), static_cast<std::size_t>(read));
    if (left > 0) {
      left -= bytes.size();
      return SendAll(to, bytes);
    }
    {
      sync::MutexLock lock(mutex_);
      heard_ += bytes;
    }
    const auto meddled = meddle_(from_dialer, std::move(bytes));
    return meddled.has_value() && SendAll(to, *meddled);
  }

  static bool SendAll(int fd, absl::string_view bytes) {
    const net::Deadline deadline = Soon();
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno != EAGAIN) return false;
      if (sent > 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
      pollfd poll{fd, POLLOUT, 0};
      if (sent < 0 && ::poll(&poll, 1, deadline.PollTimeout()) != 1) return false;
    }
    return true;
  }

  const net::Address target_;
  const Meddle meddle_;
  const bool cross_;
  const net::FileDescriptor listener_;
  net::EventFd stop_;
  bool crossed_ = false;
  std::list<Pipe> pipes_;  // of the thread
  mutable sync::Mutex mutex_;
  std::string heard_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace starling::transport::testing
