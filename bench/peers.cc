// SPDX-License-Identifier: Apache-2.0
#include "bench/peers.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "trainer/transport/shm_transport.h"
#include "trainer/transport/tcp_transport.h"

namespace starling::bench {
namespace {

// What a thread copies out of the kernel at once: it stays in the core's own cache.
constexpr std::size_t kReceiveBytes = 256 << 10;

net::Address AddressOf(int rank) { return {rank == 0 ? "127.0.82.1" : "127.0.82.2", 0}; }

class MeshChannel final : public Channel {
 public:
  MeshChannel(std::unique_ptr<transport::Transport> transport,
              std::unique_ptr<transport::Mesh> mesh)
      : transport_(std::move(transport)), mesh_(std::move(mesh)) {}

  void Send(std::span<const std::byte> data) override {
    Require(mesh_->Send(peer(), kTag, data, Soon()));
  }
  void Receive(std::span<std::byte> data) override {
    Require(mesh_->Receive(peer(), kTag, data, Soon()));
  }
  transport::Mesh* mesh() override { return mesh_.get(); }
  int peer() const override { return 1 - mesh_->rank(); }

 private:
  std::unique_ptr<transport::Transport> transport_;
  std::unique_ptr<transport::Mesh> mesh_;
};

class SocketChannel final : public Channel {
 public:
  SocketChannel(net::FileDescriptor socket, int rank) : socket_(std::move(socket)), rank_(rank) {
    const int flags = ::fcntl(socket_.get(), F_GETFL);
    (void)::fcntl(socket_.get(), F_SETFL, flags & ~O_NONBLOCK);
  }

  void Send(std::span<const std::byte> data) override {
    while (!data.empty()) {
      const ssize_t sent = ::send(socket_.get(), data.data(), data.size(), MSG_NOSIGNAL);
      if (sent <= 0) Require(net::ErrnoStatus(errno, "cannot send"));
      data = data.subspan(static_cast<std::size_t>(sent));
    }
  }
  void Receive(std::span<std::byte> data) override {
    while (!data.empty()) {
      const ssize_t read =
          ::recv(socket_.get(), data.data(), std::min(data.size(), kReceiveBytes), 0);
      if (read <= 0) Require(net::ErrnoStatus(errno, "cannot receive"));
      data = data.subspan(static_cast<std::size_t>(read));
    }
  }
  int peer() const override { return 1 - rank_; }

 private:
  const net::FileDescriptor socket_;
  const int rank_;
};

net::FileDescriptor ConnectByHand(int rank, int control) {
  if (rank != 0) return Must(net::Connect(Must(net::ParseAddress(ReadLine(control))), Soon()));
  const net::FileDescriptor listener = Must(net::Listen(AddressOf(0)));
  WriteLine(control, net::ToString(Must(net::LocalAddress(listener))));
  while (true) {
    net::FileDescriptor socket = Must(net::Accept(listener));
    if (socket.valid()) return socket;
    (void)::usleep(1000);
  }
}

}  // namespace

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

bool ParseSizes(const std::string& text, std::vector<std::size_t>& sizes) {
  sizes.clear();
  bool good = true;
  for (const auto one : absl::StrSplit(text, ',')) {
    sizes.push_back(0);
    good = good && absl::SimpleAtoi(one, &sizes.back());
  }
  return good;
}

void WriteLine(int fd, const std::string& line) {
  const std::string text = line + "\n";
  (void)!::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
}

std::string ReadLine(int fd) {
  std::string line;
  for (char c = 0; ::recv(fd, &c, 1, 0) == 1 && c != '\n';) line.push_back(c);
  return line;
}

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::_Exit(1);
}

std::string MemberName(std::size_t rank) { return absl::StrCat("member-", rank); }

transport::Options OptionsOf(const std::string& member, absl::Duration spin) {
  transport::Options options;
  options.member = member;
  options.job = "bench";
  options.secret = "a measurement's secret";
  options.spin.time = spin;
  return options;
}

Fork::Fork(const std::function<void(int)>& body) {
  auto ends = Must(net::SocketPair());
  for (const auto* end : {&ends.first, &ends.second}) {
    (void)::fcntl(end->get(), F_SETFL, ::fcntl(end->get(), F_GETFL) & ~O_NONBLOCK);
  }
  std::fflush(stdout);
  pid_ = ::fork();
  if (pid_ < 0) Require(net::ErrnoStatus(errno, "cannot fork"));
  if (pid_ == 0) {
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ends.first.Reset();
    body(ends.second.get());
    std::_Exit(0);
  }
  control_ = std::move(ends.first);
}

Fork::~Fork() {
  if (pid_ <= 0) return;
  (void)::kill(pid_, SIGKILL);
  (void)::waitpid(pid_, nullptr, 0);
}

void Fork::Join() {
  int status = 0;
  (void)::waitpid(std::exchange(pid_, 0), &status, 0);
  if (status != 0) Require(absl::InternalError("the other process failed"));
}

Pinned::Pinned(bool wanted, int index) {
  (void)::sched_getaffinity(0, sizeof before_, &before_);
  if (!wanted) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &before_) || index-- != 0) continue;
    CPU_SET(core, &one);
    (void)::sched_setaffinity(0, sizeof one, &one);
  }
}

Pinned::~Pinned() { (void)::sched_setaffinity(0, sizeof before_, &before_); }

std::vector<Wire> Wires(absl::Duration spin) {
  std::vector<Wire> wires = {{Wire::Kind::kSocket, "sockets by hand", absl::ZeroDuration()},
                             {Wire::Kind::kTcp, "tcp", absl::ZeroDuration()},
                             {Wire::Kind::kShm, "shm", absl::ZeroDuration()}};
  if (spin > absl::ZeroDuration()) {
    wires.push_back({Wire::Kind::kTcp, "tcp, spinning", spin});
    wires.push_back({Wire::Kind::kShm, "shm, spinning", spin});
  }
  return wires;
}

std::unique_ptr<Channel> Connect(const Wire& wire, int rank, int control) {
  if (wire.kind == Wire::Kind::kSocket) {
    return std::make_unique<SocketChannel>(ConnectByHand(rank, control), rank);
  }
  const std::string name = MemberName(static_cast<std::size_t>(rank));
  const transport::Options options = OptionsOf(name, wire.spin);
  auto transport =
      Must(wire.kind == Wire::Kind::kShm ? transport::OpenShmTransport(options)
                                         : transport::OpenTcpTransport(AddressOf(rank), options));
  WriteLine(control, transport->address());
  std::vector<transport::Peer> peers(2);
  peers[static_cast<std::size_t>(rank)] = {name, transport->address()};
  peers[static_cast<std::size_t>(1 - rank)] = {MemberName(static_cast<std::size_t>(1 - rank)),
                                               ReadLine(control)};
  auto mesh = Must(transport->Open(1, peers, rank, Soon(), nullptr));
  return std::make_unique<MeshChannel>(std::move(transport), std::move(mesh));
}

void Barrier::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  const int generation = generation_;
  if (++waiting_ == threads_) {
    waiting_ = 0;
    ++generation_;
    changed_.notify_all();
    return;
  }
  changed_.wait(lock, [&] { return generation_ != generation; });
}

}  // namespace starling::bench
