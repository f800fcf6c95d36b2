// SPDX-License-Identifier: Apache-2.0
// Whether Auto chooses well: its choice beside the fastest algorithm, as measured, on emulated
// networks (transport::Shaping), for many sizes and numbers of ranks.
//
//   starling-selector-bench [--repeats N]
//
// Prints one JSON object for each point: what was chosen and took how long, what was fastest, and
// what would have been chosen by figures that are wrong (a network with a thousand times less delay
// and a hundredth of the bandwidth). At the end the share of points at which each is within a tenth
// of the fastest. Fails if that is less than 95 % of the points for the choice, or if the wrong
// figures are as good: then the check shows nothing.
//
// Ranks are threads of this process. Delays are of milliseconds, so that they, and not the machine,
// are what is measured; a loaded machine still makes it worse.
#include "trainer/collectives/selector.h"

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/peers.h"
#include "trainer/testing/transports.h"

namespace starling::bench {
namespace {

using collectives::Algorithm;
using collectives::Selection;

constexpr Algorithm kAll[] = {Algorithm::kNaive, Algorithm::kRing, Algorithm::kHalvingDoubling,
                              Algorithm::kRecursiveDoubling, Algorithm::kTree};
constexpr std::size_t kSizes[] = {64,        4 << 10,   16 << 10,  32 << 10, 64 << 10,
                                  128 << 10, 256 << 10, 512 << 10, 1 << 20,  2 << 20};
constexpr int kMostRanks = 8;
constexpr double kTolerance = 1.1;
constexpr double kWanted = 0.95;

const transport::Shaping kNetworks[] = {
    {absl::Milliseconds(1), 125e6},  // 1 Gbit/s
    {absl::Milliseconds(5), 125e6},
    {absl::Milliseconds(2), 25e6},
};

// Seconds of the fastest of `repeats` sums by each algorithm for each size, which take turns; and
// what the ranks have chosen.
struct Measured {
  Selection selection;
  std::map<std::size_t, std::map<Algorithm, double>> seconds;
};

struct StartClock {
  double* begun;
  void operator()() const noexcept { *begun = Now(); }
};

class Ranks {
 public:
  Ranks(int size, const transport::Shaping& network)
      : size_(size), start_(size, StartClock{&begun_}), ended_(static_cast<std::size_t>(size)) {
    transport::Options options;
    options.shaping = network;
    members_ = std::make_unique<transport::testing::Members>(transport::testing::Kind::kInproc,
                                                             size, options);
  }

  Measured Measure(int repeats) {
    Measured measured;
    const auto meshes = members_->OpenAll(1);
    transport::testing::OnEachRank(size_, [&](int rank) {
      collectives::Workspace workspace;
      const collectives::Communicator communicator{
          *meshes[rank], {1, collectives::kFirstBucketChannel}, Soon(), workspace};
      const Selection selection = Must(collectives::AgreeOnSelection(communicator));
      if (rank == 0) measured.selection = selection;
      for (const std::size_t bytes : kSizes) {
        for (int turn = 0; turn < repeats; ++turn) {
          for (const Algorithm algorithm : kAll) {
            const double seconds = Timed(rank, algorithm, *meshes[rank], workspace, bytes);
            if (rank != 0) continue;
            const auto found = measured.seconds[bytes].emplace(algorithm, seconds).first;
            found->second = std::min(found->second, seconds);
          }
        }
      }
    });
    return measured;
  }

 private:
  // From when all ranks may begin until the last has its sum.
  double Timed(int rank, Algorithm algorithm, transport::Mesh& mesh,
               collectives::Workspace& workspace, std::size_t bytes) {
    std::vector<float> data(bytes / sizeof(float), 1.0F);
    const collectives::Communicator communicator{
        mesh, {1, collectives::kFirstBucketChannel}, Soon(), workspace};
    start_.arrive_and_wait();
    const double begun = begun_;
    Require(collectives::Allreduce(algorithm, communicator, data));
    ended_[static_cast<std::size_t>(rank)] = Now();
    if (data.back() != static_cast<float>(size_)) {
      Require(absl::InternalError("the sum is wrong"));
    }
    start_.arrive_and_wait();
    return *std::max_element(ended_.begin(), ended_.end()) - begun;
  }

  const int size_;
  double begun_ = 0;
  std::barrier<StartClock> start_;
  std::vector<double> ended_;
  std::unique_ptr<transport::testing::Members> members_;
};

// Of the points so far.
struct Share {
  int good = 0;
  int all = 0;

  void Count(double seconds, double best) {
    ++all;
    if (seconds <= kTolerance * best) ++good;
  }
  double value() const { return all == 0 ? 0 : static_cast<double>(good) / all; }
};

std::string Text(Algorithm algorithm) { return std::string(collectives::NameOf(algorithm)); }

void Judge(int ranks, const transport::Shaping& network, const Measured& measured, Share& chosen,
           Share& misled) {
  collectives::LinkCost wrong = measured.selection.link;
  wrong.latency_seconds /= 1000;
  wrong.seconds_per_message /= 1000;
  wrong.seconds_per_byte *= 100;
  const Selection by_wrong = collectives::SelectBy(wrong, ranks);
  for (const auto& [bytes, seconds] : measured.seconds) {
    const auto best =
        std::min_element(seconds.begin(), seconds.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    const Algorithm choice = measured.selection.Of(bytes);
    const Algorithm wrong_choice = by_wrong.Of(bytes);
    chosen.Count(seconds.at(choice), best->second);
    misled.Count(seconds.at(wrong_choice), best->second);
    std::string all;
    for (const auto& [algorithm, one] : seconds) {
      absl::StrAppend(&all, all.empty() ? "" : ", ", "\"", Text(algorithm), "\": ", one);
    }
    std::printf(
        "{\"ranks\": %d, \"delay\": %g, \"bytesPerSecond\": %g, \"bytes\": %zu, \"chosen\": "
        "\"%s\", \"expected\": %g, \"fastest\": \"%s\", \"ratio\": %.3f, \"byWrongFigures\": "
        "\"%s\", \"wrongRatio\": %.3f, \"seconds\": {%s}}\n",
        ranks, absl::ToDoubleSeconds(network.delay), network.bytes_per_second, bytes,
        Text(choice).c_str(), collectives::Cost(choice, ranks, bytes, measured.selection.link),
        Text(best->first).c_str(), seconds.at(choice) / best->second, Text(wrong_choice).c_str(),
        seconds.at(wrong_choice) / best->second, all.c_str());
    std::fflush(stdout);
  }
}

int Run(int repeats) {
  Share chosen, misled;
  for (const transport::Shaping& network : kNetworks) {
    for (int ranks = 2; ranks <= kMostRanks; ++ranks) {
      Judge(ranks, network, Ranks(ranks, network).Measure(repeats), chosen, misled);
    }
  }
  std::printf(
      "{\"points\": %d, \"withinATenth\": %.3f, \"wanted\": %.2f, \"byWrongFigures\": %.3f}\n",
      chosen.all, chosen.value(), kWanted, misled.value());
  return chosen.value() >= kWanted && misled.value() < kWanted ? 0 : 1;
}

}  // namespace
}  // namespace starling::bench

int main(int argc, char** argv) {
  int repeats = 3;
  const bool told = argc == 3 && std::string(argv[1]) == "--repeats" &&
                    absl::SimpleAtoi(argv[2], &repeats) && repeats > 0;
  if (argc != 1 && !told) {
    std::fprintf(stderr, "usage: starling-selector-bench [--repeats N]\n");
    return 2;
  }
  return starling::bench::Run(repeats);
}
