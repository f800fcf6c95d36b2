// SPDX-License-Identifier: Apache-2.0
// The emulated network and the simulator, beside one another; see bench/network.py.
//
//   starling-network-bench real     one link, a card that two share, and sums of 2 to 8 ranks, by
//                                   real clocks over TCP, beside what the model says
//   starling-network-bench curves   what the model says of 2 to 4,096 ranks
//
// Prints one JSON object a line. Ranks of `real` are threads of this process; its network is so
// slow that it, and not the machine, is what is measured. Each time is the fastest of three.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/peers.h"
#include "trainer/collectives/allreduce.h"
#include "trainer/collectives/emulation.h"
#include "trainer/testing/transports.h"
#include "trainer/transport/frame.h"

namespace starling::bench {
namespace {

using collectives::Algorithm;
using transport::Shaping;

constexpr Algorithm kAlgorithms[] = {Algorithm::kNaive, Algorithm::kRing,
                                     Algorithm::kHalvingDoubling, Algorithm::kRecursiveDoubling,
                                     Algorithm::kTree};
constexpr int kRepeats = 3;

// Ranks on an emulated network, whose hosts find their cards in a folder of their own.
class Ranks {
 public:
  Ranks(int size, Shaping shaping)
      : size_(size),
        folder_(std::filesystem::temp_directory_path() /
                absl::StrCat("starling-network-bench-", ::getpid())) {
    std::filesystem::create_directories(folder_);
    shaping.card_folder = folder_.string();
    transport::Options options;
    options.shaping = shaping;
    members_ = std::make_unique<transport::testing::Members>(transport::testing::Kind::kTcp, size,
                                                             options);
    meshes_ = members_->OpenAll(1);
  }
  ~Ranks() {
    meshes_.clear();
    std::filesystem::remove_all(folder_);
  }

  // From when all may begin until the last is done: the fastest time of all.
  double Fastest(const std::function<void(transport::Mesh&)>& body) {
    double fastest = 1e9, begun = 0;
    std::vector<double> ended(static_cast<std::size_t>(size_));
    const auto start = [&begun]() noexcept { begun = Now(); };
    std::barrier barrier(size_, start);
    for (int turn = 0; turn < kRepeats; ++turn) {
      transport::testing::OnEachRank(size_, [&](int rank) {
        barrier.arrive_and_wait();
        body(*meshes_[static_cast<std::size_t>(rank)]);
        ended[static_cast<std::size_t>(rank)] = Now();
      });
      fastest = std::min(fastest, *std::max_element(ended.begin(), ended.end()) - begun);
    }
    return fastest;
  }

 private:
  const int size_;
  const std::filesystem::path folder_;
  std::unique_ptr<transport::testing::Members> members_;
  std::vector<std::unique_ptr<transport::Mesh>> meshes_;
};

collectives::EmulatedTime Model(Algorithm algorithm, int ranks, std::size_t bytes,
                                const Shaping& shaping) {
  std::vector<collectives::Script> scripts;
  for (int rank = 0; rank < ranks; ++rank) {
    scripts.push_back(
        collectives::ScriptOf(algorithm, {ranks, rank}, bytes / sizeof(float), sizeof(float)));
  }
  return collectives::Emulate(scripts, sizeof(float), shaping);
}

// `faster`: what the model says of a network that is twice as fast, which must be wrong.
void Print(const std::string& what, const Shaping& shaping, int ranks, std::size_t bytes,
           double measured, double model, double faster) {
  std::printf(
      "{\"what\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"bytesPerSecond\": %g, \"delay\": %g, "
      "\"perHost\": %d, \"measured\": %.6f, \"model\": %.6f, \"ofFasterNetwork\": %.6f}\n",
      what.c_str(), ranks, bytes, shaping.bytes_per_second, absl::ToDoubleSeconds(shaping.delay),
      shaping.pods_per_host, measured, model, faster);
  std::fflush(stdout);
}

Shaping TwiceAsFast(Shaping shaping) {
  shaping.bytes_per_second *= 2;
  shaping.delay /= 2;
  return shaping;
}

// Ranks `from` send `bytes` each to another one.
void MeasureTransfers(const std::string& what, const Shaping& shaping, int ranks,
                      const std::map<int, int>& from, std::size_t bytes) {
  const auto model = [&](const Shaping& network) {
    const auto on_a_card = network.pods_per_host > 1 ? static_cast<double>(from.size()) : 1;
    return absl::ToDoubleSeconds(network.delay) +
           on_a_card * static_cast<double>(bytes + transport::kHeaderBytes) /
               network.bytes_per_second;
  };
  const double measured = Ranks(ranks, shaping).Fastest([&](transport::Mesh& mesh) {
    std::vector<std::byte> buffer(bytes);
    for (const auto& [sender, receiver] : from) {
      if (mesh.rank() == sender) Require(mesh.Send(receiver, kTag, buffer, Soon()));
      if (mesh.rank() == receiver) Require(mesh.Receive(sender, kTag, buffer, Soon()));
    }
  });
  Print(what, shaping, ranks, bytes, measured, model(shaping), model(TwiceAsFast(shaping)));
}

void MeasureSums(const Shaping& shaping, int ranks, std::size_t bytes) {
  Ranks real(ranks, shaping);
  for (const Algorithm algorithm : kAlgorithms) {
    const double measured = real.Fastest([&](transport::Mesh& mesh) {
      collectives::Workspace workspace;
      std::vector<float> data(bytes / sizeof(float), 1.0F);
      Require(collectives::Allreduce(
          algorithm, {mesh, {1, collectives::kFirstBucketChannel}, Soon(), workspace}, data));
      if (data.back() != static_cast<float>(ranks)) {
        Require(absl::InternalError("the sum is wrong"));
      }
    });
    Print(std::string(collectives::NameOf(algorithm)), shaping, ranks, bytes, measured,
          Model(algorithm, ranks, bytes, shaping).seconds,
          Model(algorithm, ranks, bytes, TwiceAsFast(shaping)).seconds);
  }
}

int Real() {
  const Shaping slow{.delay = absl::Milliseconds(20), .bytes_per_second = 2.5e6};
  for (const std::size_t bytes : {1000, 100'000, 1'000'000}) {
    MeasureTransfers("link", slow, 2, {{0, 1}}, bytes);
  }
  Shaping hosts = slow;
  hosts.pods_per_host = 2;
  // Ranks 0 and 1 send through one card; 2 and 4 have one each.
  MeasureTransfers("shared card", hosts, 6, {{0, 2}, {1, 4}}, 500'000);
  // They receive through one card.
  MeasureTransfers("shared card", hosts, 6, {{2, 0}, {4, 1}}, 500'000);
  for (const int per_host : {1, 2, 4}) {
    hosts.pods_per_host = per_host;
    for (int ranks = 2; ranks <= 8; ++ranks) {
      if (ranks <= per_host) continue;
      for (const std::size_t bytes : {4 << 10, 1 << 20}) MeasureSums(hosts, ranks, bytes);
    }
  }
  return 0;
}

// Of a power of two of ranks: one host plays for all where all do the same.
collectives::EmulatedTime LargeModel(Algorithm algorithm, int ranks, std::size_t bytes,
                                     const Shaping& shaping) {
  const bool alike = algorithm == Algorithm::kRing || algorithm == Algorithm::kRecursiveDoubling;
  if (!alike) return Model(algorithm, ranks, bytes, shaping);
  const int played = std::min(ranks, shaping.pods_per_host);
  std::vector<collectives::Script> scripts;
  for (int rank = 0; rank < played; ++rank) {
    scripts.push_back(
        collectives::ScriptOf(algorithm, {ranks, rank}, bytes / sizeof(float), sizeof(float)));
  }
  collectives::EmulatedTime time = collectives::Emulate(scripts, sizeof(float), shaping);
  time.work *= ranks / played;
  return time;
}

int Curves() {
  for (const int per_host : {1, 8}) {
    for (const double gigabits : {1.0, 10.0}) {
      const Shaping shaping{.delay = absl::Microseconds(50),
                            .bytes_per_second = gigabits * 1e9 / 8,
                            .pods_per_host = per_host};
      for (const std::size_t bytes : {64 << 10, 100 << 20}) {
        for (int ranks = 2; ranks <= 4096; ranks *= 2) {
          for (const Algorithm algorithm : kAlgorithms) {
            // n(n-1) whole arrays: the oracle of the tests, of no use for many.
            if (algorithm == Algorithm::kNaive) continue;
            const double begun = Now();
            const collectives::EmulatedTime time = LargeModel(algorithm, ranks, bytes, shaping);
            rusage usage = {};
            ::getrusage(RUSAGE_SELF, &usage);
            std::printf(
                "{\"algorithm\": \"%s\", \"ranks\": %d, \"perHost\": %d, \"bytes\": %zu, "
                "\"bytesPerSecond\": %g, \"delay\": %g, \"seconds\": %.9g, \"work\": %.9g, "
                "\"longestPath\": %.9g, \"busiestCard\": %.9g, \"tookSeconds\": %.3f, "
                "\"mostMebibytes\": %ld}\n",
                std::string(collectives::NameOf(algorithm)).c_str(), ranks, per_host, bytes,
                shaping.bytes_per_second, absl::ToDoubleSeconds(shaping.delay), time.seconds,
                time.work, time.longest_path, time.busiest_card, Now() - begun,
                usage.ru_maxrss / 1024);
            std::fflush(stdout);
          }
        }
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace starling::bench

int main(int argc, char** argv) {
  const std::string what = argc == 2 ? argv[1] : "";
  if (what == "real") return starling::bench::Real();
  if (what == "curves") return starling::bench::Curves();
  std::fprintf(stderr, "usage: starling-network-bench real|curves\n");
  return 2;
}
