// SPDX-License-Identifier: Apache-2.0
// How fast the ranks of one machine sum up an array: a process a rank, as workers of a job are.
//
//   starling-allreduce-bench [--ranks N] [--transport auto|tcp|udp|tls] [--algorithm
//   auto|naive|ring| halving-doubling|recursive-doubling|tree] [--bytes A,B,...] [--seconds S]
//
// Prints one JSON object for each size: rank 0's median time of a call, from a barrier to its
// return, and its mean processor time, barrier included. Arrays lie where a worker's gradients do:
// in the rank's window. bench/allreduce.py runs it beside its peers.
#include "trainer/collectives/allreduce.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "bench/peers.h"
#include "trainer/collectives/selector.h"
#include "trainer/transport/mixed_transport.h"
#include "trainer/transport/tcp_transport.h"
#include "trainer/transport/udp_transport.h"
#include "trainer/transport/window.h"

namespace starling::bench {
namespace {

using collectives::Algorithm;

constexpr transport::Tag kBarrierTag{1, collectives::kFirstFreeChannel};
constexpr transport::Tag kSumTag{1, collectives::kFirstBucketChannel};
constexpr int kWarmUp = 3;
constexpr int kFewestCalls = 5;
constexpr int kMostCalls = 2000;

struct Settings {
  int ranks = 2;
  std::string transport = "auto";
  std::optional<Algorithm> algorithm;  // not given: as a job with Auto
  std::vector<std::size_t> sizes = {4 << 10, 64 << 10, 1 << 20, 16 << 20, 128 << 20};
  double seconds = 0.5;  // of calls for each size
};

// Of all threads of this process.
double CpuSeconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

absl::StatusOr<std::optional<Algorithm>> ParseAlgorithm(const std::string& name) {
  const std::pair<const char*, std::optional<Algorithm>> known[] = {
      {"auto", std::nullopt},
      {"naive", Algorithm::kNaive},
      {"ring", Algorithm::kRing},
      {"halving-doubling", Algorithm::kHalvingDoubling},
      {"recursive-doubling", Algorithm::kRecursiveDoubling},
      {"tree", Algorithm::kTree}};
  for (const auto& [text, algorithm] : known) {
    if (name == text) return algorithm;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--algorithm ", name,
                   " is none of auto, naive, ring, halving-doubling, recursive-doubling, tree"));
}

// As a worker of a job does.
absl::StatusOr<std::unique_ptr<transport::Transport>> OpenTransport(
    const Settings& settings, int rank, std::shared_ptr<const transport::Window> window) {
  transport::Options options = OptionsOf(MemberName(static_cast<std::size_t>(rank)), {});
  options.spin = Must(transport::SpinOfJob());
  options.window = std::move(window);
  const net::Address address{absl::StrCat("127.0.83.", rank + 1), 0};
  options.encrypted = settings.transport == "tls";
  if (settings.transport == "udp") return transport::OpenUdpTransport(address, options);
  return settings.transport == "auto" ? transport::OpenMixedTransport(address, options)
                                      : transport::OpenTcpTransport(address, options);
}

class Rank {
 public:
  Rank(const Settings& settings, int rank, int control)
      : settings_(settings),
        window_(Must(transport::Window::Make(std::ranges::max(settings.sizes)))),
        transport_(Must(OpenTransport(settings, rank, window_))) {
    WriteLine(control, transport_->address());
    std::vector<transport::Peer> peers;
    for (const auto address : absl::StrSplit(ReadLine(control), ' ')) {
      peers.push_back({MemberName(peers.size()), std::string(address)});
    }
    mesh_ = Must(transport_->Open(1, peers, rank, Soon(), nullptr));
    selection_ = settings_.algorithm ? collectives::Always(*settings_.algorithm)
                                     : Must(collectives::AgreeOnSelection(At(kBarrierTag)));
  }

  void Measure(std::size_t bytes) {
    const std::span<float> data = window_->floats().first(bytes / sizeof(float));
    std::ranges::fill(data, 1.0F);
    Sum(data);
    const auto expected = static_cast<float>(settings_.ranks);
    if (!std::all_of(data.begin(), data.end(), [&](float one) { return one == expected; })) {
      Require(absl::InternalError("the sum is wrong"));
    }
    std::vector<double> times;
    for (int call = 0; call < kWarmUp; ++call) times.push_back(Timed(data));
    const int calls = CallsFor(times.back());
    times.clear();
    const double before = CpuSeconds();
    for (int call = 0; call < calls; ++call) times.push_back(Timed(data));
    const double cpu = (CpuSeconds() - before) / calls;
    if (mesh_->rank() == 0) Print(bytes, Median(std::move(times)), cpu);
  }

 private:
  double Timed(std::span<float> data) {
    float nothing = 0;
    std::ranges::fill(data, 1.0F);
    SumOne(nothing);
    const double begin = Now();
    Sum(data);
    return Now() - begin;
  }

  // The same at every rank.
  int CallsFor(double seconds) {
    float calls = 0;
    if (mesh_->rank() == 0) calls = static_cast<float>(settings_.seconds / seconds);
    SumOne(calls);
    return std::clamp(static_cast<int>(calls), kFewestCalls, kMostCalls);
  }

  void SumOne(float& value) {
    Require(collectives::Allreduce(selection_.Of(sizeof(float)), At(kBarrierTag),
                                   std::span(&value, 1)));
  }

  void Sum(std::span<float> data) {
    Require(collectives::Allreduce(selection_.Of(data.size_bytes()), At(kSumTag), data));
  }

  collectives::Communicator At(transport::Tag tag) { return {*mesh_, tag, Soon(), workspace_}; }

  void Print(std::size_t bytes, double seconds, double cpu_seconds) {
    const Algorithm algorithm = selection_.Of(bytes);
    const bool shared = algorithm == Algorithm::kSharedMemory;
    std::printf(
        "{\"library\": \"Starling\", \"transport\": \"%s\", \"ranks\": %d, \"bytes\": %zu, "
        "\"algorithm\": \"%s\", \"seconds\": %.9f, \"cpuSeconds\": %.9f}\n",
        shared                          ? "shm"
        : settings_.transport == "auto" ? "shm links"
                                        : settings_.transport.c_str(),
        settings_.ranks, bytes, std::string(collectives::NameOf(algorithm)).c_str(), seconds,
        cpu_seconds);
    std::fflush(stdout);
  }

  const Settings& settings_;
  const std::shared_ptr<transport::Window> window_;
  std::unique_ptr<transport::Transport> transport_;
  std::unique_ptr<transport::Mesh> mesh_;
  collectives::Workspace workspace_;
  collectives::Selection selection_;
};

void Run(const Settings& settings) {
  std::vector<std::unique_ptr<Fork>> ranks;
  for (int rank = 0; rank < settings.ranks; ++rank) {
    ranks.push_back(std::make_unique<Fork>([&settings, rank](int control) {
      Rank self(settings, rank, control);
      for (const std::size_t bytes : settings.sizes) self.Measure(bytes);
    }));
  }
  std::vector<std::string> addresses;
  for (const auto& rank : ranks) addresses.push_back(ReadLine(rank->control()));
  for (const auto& rank : ranks) WriteLine(rank->control(), absl::StrJoin(addresses, " "));
  for (const auto& rank : ranks) rank->Join();
}

absl::StatusOr<Settings> Parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const std::string value = argv[i + 1];
    bool good = true;
    if (flag == "--ranks") {
      good =
          absl::SimpleAtoi(value, &settings.ranks) && settings.ranks >= 1 && settings.ranks <= 64;
    } else if (flag == "--transport") {
      settings.transport = value;
      good = value == "auto" || value == "tcp" || value == "udp" || value == "tls";
    } else if (flag == "--algorithm") {
      const auto algorithm = ParseAlgorithm(value);
      if (!algorithm.ok()) return algorithm.status();
      settings.algorithm = *algorithm;
    } else if (flag == "--seconds") {
      good = absl::SimpleAtod(value, &settings.seconds) && settings.seconds > 0;
    } else if (flag == "--bytes") {
      good = ParseSizes(value, settings.sizes);
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, ": no such flag; see bench/allreduce.cc"));
    }
    if (!good) return absl::InvalidArgumentError(absl::StrCat(flag, " ", value, " is no value"));
  }
  if (argc % 2 == 0) return absl::InvalidArgumentError("every flag has a value");
  return settings;
}

}  // namespace
}  // namespace starling::bench

int main(int argc, char** argv) {
  starling::bench::Run(starling::bench::Must(starling::bench::Parse(argc, argv)));
  return 0;
}
