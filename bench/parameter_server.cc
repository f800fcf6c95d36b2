// SPDX-License-Identifier: Apache-2.0
// What moving parameters costs: transports between two processes, beside plain sockets; a whole
// server with its worker; and several of both on an emulated network.
//
//   starling-parameter-server-bench [--rounds N] [--spin MICROSECONDS] [--pin 0|1] [--executors N]
//   [--part NAME] [--side NAME]
//
// Prints one JSON object a measurement: the medians of five stretches of N rounds each, in seconds.
// bench/parameter_server.py reads them.

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bench/peers.h"
#include "trainer/kernels/span_math.h"
#include "trainer/optimizer/server_rules.h"
#include "trainer/parameter_server/server_loop.h"
#include "trainer/testing/client_loop.h"
#include "trainer/transport/inproc_transport.h"

namespace starling::bench {
namespace {

using parameter_server::ClientLoop;
using parameter_server::Ranks;
using parameter_server::ServerLoop;
using parameter_server::ShardView;

constexpr int kStretches = 5;
constexpr std::size_t kLarge = 16 << 20;
constexpr std::size_t kSmall = 4 << 10;
constexpr std::size_t kSlice = 256 << 10;

struct Settings {
  int rounds = 20;
  absl::Duration spin = absl::Microseconds(50);
  bool pin = false;   // each process to a core of its own
  int executors = 1;  // of a server
  std::string part;   // empty: all
  std::string side;   // likewise
};

std::vector<Wire> WiresOf(const Settings& settings) {
  std::vector<Wire> wires = Wires(settings.spin);
  std::erase_if(wires, [&](const Wire& wire) {
    return !settings.side.empty() && wire.name != settings.side;
  });
  return wires;
}

// Times `once`, after a warm-up; the medians of the stretches.
std::vector<double> Time(int rounds, const std::function<void()>& once) {
  for (int i = 0; i < rounds; ++i) once();
  std::vector<double> medians;
  for (int stretch = 0; stretch < kStretches; ++stretch) {
    std::vector<double> times;
    for (int i = 0; i < rounds; ++i) {
      const double begin = Now();
      once();
      times.push_back(Now() - begin);
    }
    medians.push_back(Median(std::move(times)));
  }
  return medians;
}

void Print(const std::string& part, const std::string& side, const std::string& what,
           std::size_t bytes, const std::vector<double>& seconds, double bound = 0) {
  std::printf(
      "{\"part\": \"%s\", \"side\": \"%s\", \"what\": \"%s\", \"bytes\": %zu, \"bound\": %.6f, "
      "\"seconds\": [%s]}\n",
      part.c_str(), side.c_str(), what.c_str(), bytes, bound,
      absl::StrJoin(seconds, ", ", [](std::string* out, double value) {
        absl::StrAppend(out, absl::SixDigits(value));
      }).c_str());
  std::fflush(stdout);
}

// --- Transports: a client (rank 1, which times) and a server (rank 0), a process each.

struct Buffers {
  std::vector<std::byte> out = std::vector<std::byte>(kLarge, std::byte{1});
  std::vector<std::byte> in = std::vector<std::byte>(kLarge, std::byte{2});
  std::vector<float> sum = std::vector<float>(kLarge / sizeof(float), 1.0F);
};

// One operation, seen from both sides.
struct Case {
  std::string what;
  std::size_t bytes;
  int rounds_factor;
  std::function<void(Channel&, Buffers&)> client, server;
  bool mesh_only = false;
};

void Echo(std::size_t bytes, Channel& channel, Buffers& buffers) {
  const auto part = std::span(buffers.in).first(bytes);
  channel.Receive(part);
  channel.Send(part);
}

void Ask(std::size_t bytes, Channel& channel, Buffers& buffers) {
  channel.Send(std::span(buffers.out).first(bytes));
  channel.Receive(std::span(buffers.in).first(bytes));
}

void PushAndHear(Channel& channel, Buffers& buffers) {
  channel.Send(buffers.out);
  channel.Receive(std::span(buffers.in).first(1));
}

// A server's work: receives slices into memory that stays in the cache and adds them to its sum.
void SumSlices(Channel& channel, Buffers& buffers) {
  transport::Mesh& mesh = *channel.mesh();
  constexpr std::size_t kCount = kLarge / kSlice;
  std::vector<transport::Ticket> tickets;
  const auto buffer = [&](std::size_t i) {
    return std::span(buffers.in).subspan(i % 2 * kSlice, kSlice);
  };
  for (std::size_t i = 0; i < 2; ++i) {
    tickets.push_back(mesh.PostReceive(channel.peer(), kTag, buffer(i)));
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    Require(mesh.Wait(tickets[i], Soon()));
    const auto* const values = reinterpret_cast<const float*>(buffer(i).data());
    constexpr std::size_t kFloats = kSlice / sizeof(float);
    kernels::Add(std::span(values, kFloats), std::span(buffers.sum).subspan(i * kFloats, kFloats));
    if (i + 2 < kCount) tickets.push_back(mesh.PostReceive(channel.peer(), kTag, buffer(i)));
  }
  channel.Send(std::span(buffers.out).first(1));
}

void SendSlices(Channel& channel, Buffers& buffers) {
  transport::Mesh& mesh = *channel.mesh();
  for (std::size_t at = 0; at < kLarge; at += kSlice) {
    (void)mesh.PostSend(channel.peer(), kTag, std::span(buffers.out).subspan(at, kSlice));
  }
  Require(mesh.WaitAll(Soon()));
  channel.Receive(std::span(buffers.in).first(1));
}

void BothWays(Channel& channel, Buffers& buffers) {
  transport::Mesh& mesh = *channel.mesh();
  (void)mesh.PostSend(channel.peer(), kTag, buffers.out);
  (void)mesh.PostReceive(channel.peer(), kTag, buffers.in);
  Require(mesh.WaitAll(Soon()));
}

std::vector<Case> Cases() {
  const auto hear_push = [](Channel& channel, Buffers& buffers) {
    channel.Receive(buffers.in);
    channel.Send(std::span(buffers.out).first(1));
  };
  const auto bind = [](auto function, std::size_t bytes) {
    return [=](Channel& channel, Buffers& buffers) { function(bytes, channel, buffers); };
  };
  return {
      {"push", kLarge, 1, PushAndHear, hear_push},
      {"push, summed in slices", kLarge, 1, SendSlices, SumSlices, true},
      {"push, then pull", kLarge, 1, bind(Ask, kLarge), bind(Echo, kLarge)},
      {"push and pull at once", kLarge, 1, BothWays, BothWays, true},
      {"round trip", kSmall, 50, bind(Ask, kSmall), bind(Echo, kSmall)},
  };
}

void MeasureTransport(const Wire& wire, const Settings& settings) {
  const std::vector<Case> cases = Cases();
  Fork server([&](int control) {
    const auto channel = Connect(wire, /*rank=*/0, control);
    const Pinned pinned(settings.pin, 0);
    Buffers buffers;
    for (const Case& one : cases) {
      if (one.mesh_only && channel->mesh() == nullptr) continue;
      const int times = settings.rounds * one.rounds_factor * (kStretches + 1);
      for (int i = 0; i < times; ++i) one.server(*channel, buffers);
    }
  });
  const auto channel = Connect(wire, /*rank=*/1, server.control());
  const Pinned pinned(settings.pin, 1);
  Buffers buffers;
  for (const Case& one : cases) {
    if (one.mesh_only && channel->mesh() == nullptr) continue;
    const auto times =
        Time(settings.rounds * one.rounds_factor, [&] { one.client(*channel, buffers); });
    Print("transport", wire.name, one.what, one.bytes, times);
  }
  server.Join();
}

// What two processes that copy through shared memory can reach: nothing but copies and counters.
struct Ring {
  static constexpr std::size_t kBytes = 1 << 20;
  static constexpr std::size_t kPiece = 32 << 10;

  alignas(64) std::atomic<std::uint64_t> written = 0;
  alignas(64) std::atomic<std::uint64_t> read = 0;
  alignas(64) std::atomic<int> heard = 0;
  alignas(64) std::byte data[kBytes];

  // By copy(place in the ring, offset, length), as far as `room` says that it may.
  template <typename Room, typename Copy>
  static void Move(std::size_t bytes, std::atomic<std::uint64_t>& count, const Room& room,
                   const Copy& copy) {
    std::uint64_t at = count.load(std::memory_order_relaxed);
    for (std::size_t done = 0, idle = 0; done < bytes;) {
      const std::size_t part = std::min({kPiece, bytes - done, room(at)});
      if (part == 0) {
        if (++idle % 4096 == 0) (void)::sched_yield();
        continue;
      }
      copy(at % kBytes, done, part);
      done += part;
      at += part;
      count.store(at, std::memory_order_release);
    }
  }
};

void MeasureRing(const Settings& settings) {
  const std::string side = "ring by hand";
  if (!settings.side.empty() && settings.side != side) return;
  void* const memory = ::mmap(nullptr, sizeof(Ring), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) Require(absl::ResourceExhaustedError("no memory to share"));
  Ring& ring = *new (memory) Ring;
  Fork reader([&](int) {
    const Pinned pinned(settings.pin, 0);
    std::vector<std::byte> in(kLarge, std::byte{2});
    for (int i = 0; i < settings.rounds * (kStretches + 1); ++i) {
      Ring::Move(
          kLarge, ring.read, [&](std::uint64_t at) { return ring.written.load() - at; },
          [&](std::size_t from, std::size_t to, std::size_t bytes) {
            std::memcpy(in.data() + to, ring.data + from, bytes);
          });
      ++ring.heard;
    }
  });
  {
    const Pinned pinned(settings.pin, 1);
    const std::vector<std::byte> out(kLarge, std::byte{1});
    int pushed = 0;
    Print("transport", side, "push", kLarge, Time(settings.rounds, [&] {
            Ring::Move(
                kLarge, ring.written,
                [&](std::uint64_t at) { return Ring::kBytes - (at - ring.read.load()); },
                [&](std::size_t to, std::size_t from, std::size_t bytes) {
                  std::memcpy(ring.data + to, out.data() + from, bytes);
                });
            ++pushed;
            while (ring.heard.load() < pushed) (void)::sched_yield();
          }));
  }
  reader.Join();
  (void)::munmap(memory, sizeof(Ring));
}

void MeasureTransports(const Settings& settings) {
  Buffers buffers;
  Print("transport", "memcpy", "push", kLarge,
        Time(settings.rounds, [&] { std::memcpy(buffers.in.data(), buffers.out.data(), kLarge); }));
  MeasureRing(settings);
  for (const Wire& wire : WiresOf(settings)) MeasureTransport(wire, settings);
}

// --- Whole servers and workers.

parameter_server::ShardOptions ShardOf(std::uint64_t rows) {
  auto table = std::make_shared<parameter_server::TableSpec>();
  table->name = "parameters";
  table->kind = parameter_server::TableKind::kDense;
  table->rows = rows;
  table->combine = parameter_server::Combine::kSum;
  table->rule = optimizer::MakeAdd();
  return {table, {0, rows}, consistency::Asynchronous{}, {}};
}

// `servers`, then `workers`; server i alone holds the shards i, i + servers, ...
struct Layout {
  int servers = 1, workers = 1, shards = 1;
  std::uint64_t rows = 0;  // of each shard

  std::size_t size() const { return Worker(workers); }
  std::size_t Worker(int index) const {
    return static_cast<std::size_t>(servers) + static_cast<std::size_t>(index);
  }
  Ranks ranks() const {
    Ranks ranks;
    for (std::size_t rank = 0; rank < size(); ++rank) ranks.push_back({MemberName(rank), 0});
    return ranks;
  }
  std::vector<ShardView> views() const {
    const Ranks ids = ranks();
    std::vector<ShardView> views(static_cast<std::size_t>(shards));
    for (std::size_t shard = 0; shard < views.size(); ++shard) {
      views[shard].group.epoch = 1;
      const auto server = shard % static_cast<std::size_t>(servers);
      views[shard].group.members.push_back(ids[server]);
      for (int i = 0; i < workers; ++i) {
        views[shard].clients.push_back({ids[Worker(i)], 1});
      }
    }
    return views;
  }
};

void Serve(const Layout& layout, int rank, transport::Mesh& mesh, int executors) {
  const std::vector<parameter_server::ShardOptions> shards(static_cast<std::size_t>(layout.shards),
                                                           ShardOf(layout.rows));
  ServerLoop loop(layout.ranks()[static_cast<std::size_t>(rank)], shards, {.count = executors});
  (void)loop.Serve(layout.views(), layout.ranks(), mesh);  // until the worker has left
}

class Worker {
 public:
  Worker(const Layout& layout, int rank, transport::Mesh& mesh)
      : layout_(layout),
        first_(static_cast<std::size_t>(rank - layout.servers)),
        loop_(layout.ranks()[static_cast<std::size_t>(rank)],
              static_cast<std::size_t>(layout.shards)) {
    parameter_server::ClientView view{1, 1, {}};
    for (const ShardView& shard : layout.views()) {
      view.shards.push_back({shard.group.members.front(), shard.group.members.back()});
    }
    Require(loop_.Enter(view, layout.ranks(), mesh));
    Require(loop_.WaitUntilReady(Soon()).status());
    const std::vector<float> ones(layout.rows, 1);
    update_ = parameter_server::Encode(
        {parameter_server::UpdateKind::kRange, 0, 0, layout.rows, {}, ones, {}});
  }

  void Push() {
    for (std::size_t i = 0; i < shards(); ++i) {
      const std::size_t shard = (first_ + i) % shards();
      parameter_server::Entry entry;
      entry.clock = clock_;
      entry.update = update_;
      (void)loop_.Push(shard, entry);
    }
    ++clock_;
    Require(loop_.Drain(Soon()));
  }
  void Pull() {
    for (std::size_t i = 0; i < shards(); ++i) {
      const std::size_t shard = (first_ + i) % shards();
      parameter_server::Read read;
      read.clock = clock_;
      read.rows = layout_.rows;
      Require(loop_.Pull(shard, read, Soon()).status());
    }
  }

 private:
  std::size_t shards() const { return static_cast<std::size_t>(layout_.shards); }

  const Layout layout_;
  const std::size_t first_;  // another for each worker, or all would queue at one server
  ClientLoop loop_;
  parameter_server::UpdatePtr update_;
  parameter_server::Clock clock_ = 0;
};

void MeasureServer(const Wire& wire, const Settings& settings, std::size_t bytes, int shards) {
  const Layout layout{1, 1, shards, bytes / sizeof(float) / static_cast<std::size_t>(shards)};
  Fork server([&](int control) {
    const auto channel = Connect(wire, 0, control);
    const Pinned pinned(settings.pin, 0);
    Serve(layout, 0, *channel->mesh(), settings.executors);
  });
  {
    const auto channel = Connect(wire, 1, server.control());
    const Pinned pinned(settings.pin, 1);
    Worker worker(layout, 1, *channel->mesh());
    const int rounds = settings.rounds * (bytes < kLarge ? 20 : 1);
    const std::string shape = shards == 1 ? "" : absl::StrCat(" (", shards, " shards)");
    Print("server", wire.name, absl::StrCat("push", shape), bytes,
          Time(rounds, [&] { worker.Push(); }));
    Print("server", wire.name, absl::StrCat("pull", shape), bytes,
          Time(rounds, [&] { worker.Pull(); }));
    Print("server", wire.name, absl::StrCat("push, then pull", shape), bytes, Time(rounds, [&] {
            worker.Push();
            worker.Pull();
          }));
  }
  server.Join();
}

void MeasureServers(const Settings& settings) {
  for (const Wire& wire : WiresOf(settings)) {
    if (wire.kind == Wire::Kind::kSocket) continue;
    MeasureServer(wire, settings, kLarge, 1);
    MeasureServer(wire, settings, kLarge, 16);
    MeasureServer(wire, settings, kSmall, 1);
  }
}

// --- An emulated network: every rank has a card of `bytes_per_second` each way.

void MeasureNetwork(int servers, int workers, double bytes_per_second, const std::string& name,
                    int rounds) {
  constexpr std::size_t kBytes = 4 << 20;
  const int shards = servers;
  const Layout layout{servers, workers, shards,
                      kBytes / sizeof(float) / static_cast<std::size_t>(shards)};
  transport::InprocNetwork network;
  std::vector<std::unique_ptr<transport::Transport>> transports;
  std::vector<transport::Peer> peers;
  for (std::size_t rank = 0; rank < layout.size(); ++rank) {
    transport::Options options = OptionsOf(MemberName(rank), absl::ZeroDuration());
    options.shaping.bytes_per_second = bytes_per_second;
    transports.push_back(Must(network.OpenTransport(options)));
    peers.push_back({options.member, transports.back()->address()});
  }
  Barrier barrier(workers);
  std::vector<double> times;
  std::vector<std::thread> threads;
  threads.reserve(layout.size());
  for (int rank = 0; rank < static_cast<int>(layout.size()); ++rank) {
    threads.emplace_back([&, rank] {
      const auto mesh =
          Must(transports[static_cast<std::size_t>(rank)]->Open(1, peers, rank, Soon(), nullptr));
      if (rank < servers) return Serve(layout, rank, *mesh, /*executors=*/1);
      Worker worker(layout, rank, *mesh);
      const auto measured = Time(rounds, [&] {
        barrier.Wait();
        worker.Push();
        worker.Pull();
        barrier.Wait();  // all have: the slowest one's time
      });
      if (rank == servers) times = measured;
      barrier.Wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Out of the workers' cards, or into the servers', and back.
  const double busiest = std::max(1.0, static_cast<double>(workers) / servers);
  Print("network", absl::StrCat(servers, " servers, ", workers, " workers, ", name),
        "push, then pull", kBytes, times, 2 * busiest * kBytes / bytes_per_second);
}

void MeasureNetworks(const Settings& settings) {
  const int rounds = std::max(1, settings.rounds / 10);
  for (const int servers : {1, 2, 4}) {
    for (const int workers : {1, 2, 4, 8}) {
      MeasureNetwork(servers, workers, 1e9 / 8, "1 Gbit/s", rounds);
    }
  }
  MeasureNetwork(1, 1, 10e9 / 8, "10 Gbit/s", rounds);
}

int Main(int count, char** arguments) {
  Settings settings;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string name = arguments[i], value = arguments[i + 1];
    int number = 0;
    if (name == "--part" || name == "--side") {
      (name == "--part" ? settings.part : settings.side) = value;
    } else if (absl::SimpleAtoi(value, &number) && name == "--rounds" && number > 0) {
      settings.rounds = number;
    } else if (absl::SimpleAtoi(value, &number) && name == "--pin") {
      settings.pin = number != 0;
    } else if (absl::SimpleAtoi(value, &number) && name == "--executors" && number > 0) {
      settings.executors = number;
    } else if (absl::SimpleAtoi(value, &number) && name == "--spin" && number >= 0) {
      settings.spin = absl::Microseconds(number);
    } else {
      std::fprintf(stderr, "%s %s: unknown, or no number\n", arguments[i], arguments[i + 1]);
      return 2;
    }
  }
  const auto wanted = [&](std::string_view part) {
    return settings.part.empty() || settings.part == part;
  };
  if (wanted("transport")) MeasureTransports(settings);
  if (wanted("server")) MeasureServers(settings);
  if (wanted("network")) MeasureNetworks(settings);
  return 0;
}

}  // namespace
}  // namespace starling::bench

int main(int count, char** arguments) { return starling::bench::Main(count, arguments); }
