// SPDX-License-Identifier: Apache-2.0
// What a sum of the processes of one machine could take at best, written by hand for this alone:
// no view, no failure, no header, one way for each medium. bench/allreduce.py holds the product
// against it.
//
//   starling-allreduce-limit --ranks N --transport shm|tcp --seconds S --bytes A,B,...
//
// shm: all arrays are in one shared mapping; each rank sums up its part in all of them. tcp: a
// ring over plain sockets, in which a chunk goes on as soon as it is added. Prints lines as
// starling-allreduce-bench does.
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/peers.h"
#include "common/ranges/ranges.h"
#include "trainer/kernels/span_math.h"

namespace starling::bench {
namespace {

struct Settings {
  int ranks = 2;
  bool shares_memory = true;
  double seconds = 0.5;  // of calls for each size
  std::vector<std::size_t> sizes;
};

// Processes wait for one another as briefly as they can.
struct SharedBarrier {
  std::atomic<int> waiting = 0, generation = 0;

  void Wait(int ranks) {
    const int mine = generation.load();
    if (waiting.fetch_add(1) + 1 == ranks) {
      waiting.store(0);
      generation.fetch_add(1);
      return;
    }
    constexpr int kSpins = 2000;
    for (int spin = 0; generation.load(std::memory_order_acquire) == mine; ++spin) {
      if (spin > kSpins) ::sched_yield();
    }
  }
};

// What all processes see, made before they are forked.
struct Shared {
  SharedBarrier barrier;
  std::atomic<int> calls = 0;
};

template <typename Number>
Number* SharedMapping(std::size_t count) {
  void* const memory = ::mmap(nullptr, count * sizeof(Number), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) Require(net::ErrnoStatus(errno, "cannot map memory"));
  (void)::madvise(memory, count * sizeof(Number), MADV_HUGEPAGE);
  return static_cast<Number*>(memory);
}

class Summer {
 public:
  virtual ~Summer() = default;
  virtual void Sum(std::span<float> data) = 0;
};

class SharedSummer final : public Summer {
 public:
  SharedSummer(Shared& shared, float* arrays, std::size_t room, int ranks, int rank)
      : shared_(shared), arrays_(arrays), room_(room), ranks_(ranks), rank_(rank) {}

  void Sum(std::span<float> data) override {
    constexpr std::size_t kPiece = 4096;  // numbers: those of all ranks stay in a core's own cache
    const auto of = [&](int rank, std::size_t begin, std::size_t size) {
      return std::span<float>(arrays_ + room_ * static_cast<std::size_t>(rank) + begin, size);
    };
    shared_.barrier.Wait(ranks_);
    const auto mine = ranges::PartOf(data.size(), static_cast<std::size_t>(rank_),
                                     static_cast<std::size_t>(ranks_));
    for (std::size_t begin = mine.begin; begin < mine.end; begin += kPiece) {
      const std::size_t size = std::min(kPiece, mine.end - begin);
      for (int i = 1; i < ranks_; ++i) kernels::Add(of(i, begin, size), of(0, begin, size));
      for (int i = 1; i < ranks_; ++i) kernels::Copy(of(0, begin, size), of(i, begin, size));
    }
    shared_.barrier.Wait(ranks_);
  }

 private:
  Shared& shared_;
  float* const arrays_;
  const std::size_t room_;
  const int ranks_, rank_;
};

// In step s a rank sends part (rank - s), and receives the one before: adds it in the first
// ranks - 1 steps, and takes it in the others. What it sends in a step is what it received in the
// one before, so that it may send as much as is there.
class RingSummer final : public Summer {
 public:
  RingSummer(net::FileDescriptor next, net::FileDescriptor previous, int ranks, int rank)
      : next_(std::move(next)), previous_(std::move(previous)), ranks_(ranks), rank_(rank) {}

  void Sum(std::span<float> data) override {
    const int steps = 2 * (ranks_ - 1);
    const auto part_of = [&](int step, int back) {
      const int index = (rank_ - step - back) % ranks_;
      const auto part =
          ranges::PartOf(data.size(), static_cast<std::size_t>(index < 0 ? index + ranks_ : index),
                         static_cast<std::size_t>(ranks_));
      return std::as_writable_bytes(part.Of(data));
    };
    Cursor out, in;
    while (out.step < steps || in.step < steps) {
      bool moved = false;
      if (out.step < steps) {
        const auto bytes = part_of(out.step, 0);
        const bool all = out.step == 0 || in.step >= out.step;
        moved |= Send(bytes.first(all ? bytes.size() : in.step + 1 == out.step ? in.done : 0), out);
        if (out.done == bytes.size()) out = {out.step + 1, 0};
      }
      if (in.step < steps) {
        const auto bytes = part_of(in.step, 1);
        moved |= Receive(bytes, in, in.step < ranks_ - 1);
        if (in.done == bytes.size()) in = {in.step + 1, 0};
      }
      if (!moved) ::sched_yield();
    }
  }

 private:
  static constexpr std::size_t kChunk = 128 << 10;
  struct Cursor {
    int step = 0;
    std::size_t done = 0;  // bytes of this step
  };

  bool Send(std::span<const std::byte> ready, Cursor& out) {
    const auto bytes = ready.subspan(out.done);
    if (bytes.empty()) return false;
    const ssize_t sent = ::send(next_.get(), bytes.data(), std::min(bytes.size(), 2 * kChunk),
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN) Require(net::ErrnoStatus(errno, "cannot send"));
    if (sent > 0) out.done += static_cast<std::size_t>(sent);
    return sent > 0;
  }

  // A chunk counts when it is there as a whole.
  bool Receive(std::span<std::byte> bytes, Cursor& in, bool adds) {
    const auto place = bytes.subspan(in.done, std::min(kChunk, bytes.size() - in.done));
    if (place.empty()) return true;
    const auto chunk = adds ? std::span(scratch_).first(place.size()) : place;
    const ssize_t got =
        ::recv(previous_.get(), chunk.data() + filled_, chunk.size() - filled_, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN)) {
      Require(net::ErrnoStatus(errno, "cannot receive"));
    }
    if (got > 0) filled_ += static_cast<std::size_t>(got);
    if (filled_ < chunk.size()) return got > 0;
    if (adds) {
      const auto floats = [](auto some) {
        return std::span(reinterpret_cast<float*>(some.data()), some.size() / sizeof(float));
      };
      kernels::Add(floats(chunk), floats(place));
    }
    filled_ = 0;
    in.done += place.size();
    return true;
  }

  const net::FileDescriptor next_, previous_;
  const int ranks_, rank_;
  std::size_t filled_ = 0;  // of the chunk that is arriving
  alignas(64) std::array<std::byte, kChunk> scratch_;
};

class Measurement {
 public:
  Measurement(const Settings& settings, int rank, Shared& shared, Summer& summer, float* data)
      : settings_(settings), rank_(rank), shared_(shared), summer_(summer), data_(data) {}

  void Of(std::size_t bytes) {
    const std::span<float> data(data_, bytes / sizeof(float));
    std::ranges::fill(data, 1.0F);
    shared_.barrier.Wait(settings_.ranks);
    summer_.Sum(data);
    const auto expected = static_cast<float>(settings_.ranks);
    if (!std::ranges::all_of(data, [&](float one) { return one == expected; })) {
      Require(absl::InternalError("the sum is wrong"));
    }
    double last = 0;
    for (int call = 0; call < 3; ++call) last = Timed(data);
    if (rank_ == 0) shared_.calls = std::clamp(static_cast<int>(settings_.seconds / last), 5, 2000);
    shared_.barrier.Wait(settings_.ranks);
    std::vector<double> times;
    for (int left = shared_.calls; left > 0; --left) times.push_back(Timed(data));
    shared_.barrier.Wait(settings_.ranks);
    if (rank_ != 0) return;
    std::printf("{\"bytes\": %zu, \"seconds\": %.9f}\n", bytes, Median(std::move(times)));
    std::fflush(stdout);
  }

 private:
  // As gradients are: a rank has written its array, and nobody else has any of it in a cache.
  double Timed(std::span<float> data) {
    std::ranges::fill(data, 1.0F);
    shared_.barrier.Wait(settings_.ranks);
    const double begin = Now();
    summer_.Sum(data);
    return Now() - begin;
  }

  const Settings& settings_;
  const int rank_;
  Shared& shared_;
  Summer& summer_;
  float* const data_;
};

// Of each rank the socket to the next, and of each the one from the previous.
struct Ring {
  std::vector<net::FileDescriptor> to_next, from_previous;
};
Ring Connected(int ranks) {
  Ring ring;
  ring.from_previous.resize(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    const net::FileDescriptor listener = Must(net::Listen({"127.0.84.1", 0}));
    ring.to_next.push_back(Must(net::Connect(Must(net::LocalAddress(listener)), Soon())));
    net::FileDescriptor& other = ring.from_previous[static_cast<std::size_t>((rank + 1) % ranks)];
    while (!other.valid()) other = Must(net::Accept(listener));
  }
  return ring;
}

void Run(const Settings& settings) {
  const std::size_t room = std::ranges::max(settings.sizes) / sizeof(float);
  auto* const shared = new (SharedMapping<Shared>(1)) Shared;
  auto* const arrays = SharedMapping<float>(room * static_cast<std::size_t>(settings.ranks));
  Ring ring;
  if (!settings.shares_memory) ring = Connected(settings.ranks);
  std::vector<std::unique_ptr<Fork>> ranks;
  for (int rank = 0; rank < settings.ranks; ++rank) {
    ranks.push_back(std::make_unique<Fork>([&, rank](int /*control*/) {
      const auto index = static_cast<std::size_t>(rank);
      std::unique_ptr<Summer> summer;
      if (settings.shares_memory) {
        summer = std::make_unique<SharedSummer>(*shared, arrays, room, settings.ranks, rank);
      } else {
        summer = std::make_unique<RingSummer>(std::move(ring.to_next[index]),
                                              std::move(ring.from_previous[index]), settings.ranks,
                                              rank);
      }
      Measurement self(settings, rank, *shared, *summer, arrays + room * index);
      for (const std::size_t bytes : settings.sizes) self.Of(bytes);
    }));
  }
  for (const auto& rank : ranks) rank->Join();
}

absl::StatusOr<Settings> Parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    bool good = true;
    if (flag == "--ranks") {
      good = absl::SimpleAtoi(value, &settings.ranks) && settings.ranks >= 2;
    } else if (flag == "--transport") {
      settings.shares_memory = value == "shm";
      good = value == "shm" || value == "tcp";
    } else if (flag == "--seconds") {
      good = absl::SimpleAtod(value, &settings.seconds) && settings.seconds > 0;
    } else if (flag == "--bytes") {
      good = ParseSizes(value, settings.sizes);
    } else {
      good = false;
    }
    if (!good) return absl::InvalidArgumentError(absl::StrCat(argv[i], " ", argv[i + 1]));
  }
  if (settings.sizes.empty()) return absl::InvalidArgumentError("--bytes are missing");
  return settings;
}

}  // namespace
}  // namespace starling::bench

int main(int argc, char** argv) {
  starling::bench::Run(starling::bench::Must(starling::bench::Parse(argc, argv)));
  return 0;
}
