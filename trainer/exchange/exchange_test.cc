// SPDX-License-Identifier: Apache-2.0
#include "trainer/exchange/exchange.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/exchange/step_exchange.h"
#include "trainer/testing/transports.h"

namespace starling::exchange {
namespace {

using ::starling::collectives::Algorithm;
using ::starling::transport::testing::Kind;
using ::starling::transport::testing::Members;
using ::starling::transport::testing::OnEachRank;
using ::starling::transport::testing::Soon;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Some empty, some worth a wake-up of the communication thread (256 KiB).
const std::vector<std::size_t> kBuckets = {70'000, 5, 0, 80'000, 1, 90'000};

std::size_t Total(const std::vector<std::size_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
}

std::vector<float> Gradient(std::size_t length, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(length);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<std::unique_ptr<Exchange>> AllReduces(int ranks) {
  std::vector<std::unique_ptr<Exchange>> all;
  all.reserve(static_cast<std::size_t>(ranks));
  for (int i = 0; i < ranks; ++i) all.push_back(NewAllReduceExchange(kBuckets, {Algorithm::kRing}));
  return all;
}

TEST(AllReduceExchange, SumsGradientsControlWordsAndStatistics) {
  constexpr int kRanks = 3;
  Members members(Kind::kInproc, kRanks);
  const auto meshes = members.OpenAll(1);
  const auto exchanges = AllReduces(kRanks);
  OnEachRank(kRanks, [&](int rank) {
    for (std::uint64_t number = 1; number <= 5; ++number) {
      std::vector<float> gradients(Total(kBuckets), static_cast<float>(rank + 1));
      const std::vector<std::int64_t> control = {static_cast<std::int64_t>(number), rank};
      ASSERT_EQ(exchanges[rank]->Enter({}, meshes[rank].get()), absl::OkStatus());
      Step step{number, gradients, control};
      step.deadline = Soon();
      ASSERT_EQ(exchanges[rank]->Begin(step), absl::OkStatus());
      for (int bucket = 0; bucket < 6; ++bucket) exchanges[rank]->Add(rank, bucket);
      const auto outcome = exchanges[rank]->Finish(std::vector<double>{1.5, rank * 1.0}, 2);
      ASSERT_EQ(outcome.status(), absl::OkStatus());
      EXPECT_THAT(gradients, Each(6));
      EXPECT_THAT(outcome->min, ElementsAre(number, 0));
      EXPECT_THAT(outcome->max, ElementsAre(number, kRanks - 1));
      EXPECT_THAT(outcome->statistics, ElementsAre(4.5, 3));
    }
  });
}

TEST(AllReduceExchange, SumsByTheAlgorithmThatItIsGivenAndTellsItsBytes) {
  constexpr int kRanks = 4;
  const std::vector<std::size_t> bucket = {1000};
  const std::pair<Algorithm, std::uint64_t> sent[] = {
      {Algorithm::kRing, 6000},               // 2 * 3/4 of 4000 bytes
      {Algorithm::kHalvingDoubling, 6000},    // as a ring
      {Algorithm::kRecursiveDoubling, 8000},  // all of it in 2 rounds
      {Algorithm::kTree, 16000},              // by the root: 2 rounds up, 2 down
      {Algorithm::kNaive, 12000},             // all of it to 3 others
  };
  Members members(Kind::kInproc, kRanks);
  std::uint64_t view = 0;
  for (const auto& [algorithm, bytes] : sent) {
    const auto meshes = members.OpenAll(++view);
    OnEachRank(kRanks, [&, algorithm = algorithm, bytes = bytes](int rank) {
      const auto exchange = NewAllReduceExchange(bucket, {algorithm});
      std::vector<float> gradients(1000, static_cast<float>(rank + 1));
      ASSERT_EQ(exchange->Enter({}, meshes[rank].get()), absl::OkStatus());
      Step step{1, gradients, {}};
      step.deadline = Soon();
      ASSERT_EQ(exchange->Begin(step), absl::OkStatus());
      exchange->Add(rank, 0);
      ASSERT_EQ(exchange->Finish({}, 0).status(), absl::OkStatus());
      EXPECT_THAT(gradients, Each(10));
      EXPECT_EQ(exchange->volume().sent, bytes);
    });
  }
}

TEST(AllReduceExchange, EveryRankMayAddInItsOwnOrderFromItsOwnThreads) {
  constexpr int kRanks = 4;
  Members members(Kind::kInproc, kRanks);
  const auto meshes = members.OpenAll(1);
  const auto exchanges = AllReduces(kRanks);
  std::vector<std::vector<float>> gradients(kRanks);
  OnEachRank(kRanks, [&](int rank) {
    std::mt19937 random(rank);
    for (std::uint64_t number = 1; number <= 10; ++number) {
      gradients[rank] = Gradient(Total(kBuckets), rank + 100);
      ASSERT_EQ(exchanges[rank]->Enter({}, meshes[rank].get()), absl::OkStatus());
      Step step{number, gradients[rank], {}};
      step.deadline = Soon();
      ASSERT_EQ(exchanges[rank]->Begin(step), absl::OkStatus());
      std::vector<int> order = {0, 1, 2, 3, 4, 5};
      std::shuffle(order.begin(), order.end(), random);
      std::thread autograd([&] {
        for (int i = 0; i < 3; ++i) exchanges[rank]->Add(rank, order[i]);
      });
      for (int i = 3; i < 6; ++i) exchanges[rank]->Add(rank, order[i]);
      autograd.join();
      ASSERT_EQ(exchanges[rank]->Finish({}, 0).status(), absl::OkStatus());
    }
  });
  for (int rank = 1; rank < kRanks; ++rank) EXPECT_EQ(gradients[rank], gradients[0]);
  // And it is the sum: element 0 is in the first rank's chunk.
  float sum = 0;
  for (int rank = 0; rank < kRanks; ++rank) sum += Gradient(1, rank + 100)[0];
  EXPECT_EQ(gradients[0][0], sum);
}

TEST(AllReduceExchange, ReducesWhileBackwardStillRuns) {
  Members members(Kind::kInproc, 2);
  const auto meshes = members.OpenAll(1);
  const auto exchanges = AllReduces(2);
  OnEachRank(2, [&](int rank) {
    std::vector<float> gradients(Total(kBuckets), 1);
    ASSERT_EQ(exchanges[rank]->Enter({}, meshes[rank].get()), absl::OkStatus());
    Step step{1, gradients, {}};
    step.deadline = Soon();
    ASSERT_EQ(exchanges[rank]->Begin(step), absl::OkStatus());
    exchanges[rank]->Add(rank, 0);
    const net::Deadline limit = Soon();
    // The bucket travels although Finish was not called: the ledger shows it.
    while (meshes[rank]->traffic(1 - rank).payload_received < 70'000 * sizeof(float)) {
      ASSERT_FALSE(limit.Expired());
      std::this_thread::yield();
    }
    for (int bucket = 1; bucket < 6; ++bucket) exchanges[rank]->Add(rank, bucket);
    ASSERT_EQ(exchanges[rank]->Finish({}, 0).status(), absl::OkStatus());
    EXPECT_THAT(gradients, Each(2));
  });
}

TEST(Exchange, TellsByWhatItReachesItsPeers) {
  const std::vector<int> ranks = {0, 1, 2};
  const std::pair<Kind, const char*> expected[] = {{Kind::kMixed, "shared memory"},
                                                   {Kind::kTcp, "TCP"},
                                                   {Kind::kEncrypted, "TCP with TLS"},
                                                   {Kind::kUdp, "UDP"}};
  for (const auto& [kind, text] : expected) {
    Members members(kind, 3);
    EXPECT_EQ(TransportTo(*members.OpenAll(1)[0], ranks), text);
  }
}

TEST(AllReduceExchange, WhileSomebodyLooksEachBucketIsRecordedWithTheBytesOfTheLedger) {
  Members members(Kind::kInproc, 2);
  const auto meshes = members.OpenAll(1);
  const auto exchanges = AllReduces(2);
  OnEachRank(2, [&](int rank) {
    clock::FakeClock clock;
    timeline::Recorder recorder(clock);
    exchanges[rank]->RecordTo(recorder);
    v1alpha1::TraceQuery query;
    query.set_request("r");
    ASSERT_EQ(exchanges[rank]->Enter({}, meshes[rank].get()), absl::OkStatus());
    for (std::uint64_t number = 1; number <= 2; ++number) {
      std::vector<float> gradients(Total(kBuckets), 1);
      Step step{number, gradients, {}};
      step.deadline = Soon();
      ASSERT_EQ(exchanges[rank]->Begin(step), absl::OkStatus());
      for (int bucket = 5; bucket >= 0; --bucket) exchanges[rank]->Add(rank, bucket);
      ASSERT_EQ(exchanges[rank]->Finish({}, 0).status(), absl::OkStatus());
      if (number == 1) {
        (void)recorder.Answer(query);  // nobody looked until now
      }
    }
    const v1alpha1::TraceAnswer answer = recorder.Answer(query);
    std::uint64_t bytes = 0;
    std::vector<std::int64_t> reduced, ready;
    for (const v1alpha1::TraceEvent& event : answer.events()) {
      EXPECT_EQ(event.step(), 2);
      (event.name() == "ready" ? ready : reduced).push_back(event.bucket());
      if (event.name() == "ready") continue;
      EXPECT_EQ(event.algorithm(), "Ring");
      EXPECT_EQ(event.dense_bytes(), kBuckets[event.bucket()] * sizeof(float));
      bytes += event.bytes();
    }
    EXPECT_THAT(reduced, ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_THAT(ready, ElementsAre(5, 4, 3, 2, 1, 0));
    EXPECT_GT(bytes, 0U);
    EXPECT_EQ(2 * bytes, exchanges[rank]->volume().sent);
  });
}

// Steps with gradients of ones, until they are decided upon a size and a little longer.
void TuneBuckets(Exchange& exchange, transport::Mesh& mesh, const std::vector<std::size_t>& sizes) {
  const int rank = mesh.rank();
  ASSERT_EQ(exchange.Enter({}, &mesh), absl::OkStatus());
  EXPECT_EQ(exchange.volume().merged, 0);
  std::vector<float> gradients(Total(sizes));
  for (std::uint64_t number = 1; number <= 20; ++number) {
    std::ranges::fill(gradients, 1.0F);
    const std::vector<std::int64_t> control = {static_cast<std::int64_t>(number), rank};
    Step step{number, gradients, control};
    step.deadline = Soon();
    ASSERT_EQ(exchange.Begin(step), absl::OkStatus());
    for (int bucket = 0; bucket < static_cast<int>(sizes.size()); ++bucket) {
      exchange.Add(rank, bucket);
    }
    const auto outcome = exchange.Finish({}, 0);
    ASSERT_EQ(outcome.status(), absl::OkStatus());
    ASSERT_THAT(gradients, Each(static_cast<float>(mesh.size()))) << number;
    EXPECT_THAT(outcome->min, ElementsAre(number, 0));
    EXPECT_THAT(outcome->max, ElementsAre(number, mesh.size() - 1));
  }
  EXPECT_GE(exchange.volume().merged, std::size_t{1} << 20);
}

TEST(AllReduceExchange, AllRanksMergeBucketsAlikeAlsoThoseThatJoinLater) {
  constexpr int kRanks = 2;
  const std::vector<std::size_t> sizes(2, 1 << 18);  // 1 MiB each
  AllReduceOptions options{Algorithm::kRing};
  options.tune_buckets = true;
  Members members(Kind::kInproc, kRanks);
  std::vector<std::unique_ptr<Exchange>> exchanges(kRanks);
  for (auto& one : exchanges) one = NewAllReduceExchange(sizes, options);
  for (const std::uint64_t view : {1, 2}) {
    const auto meshes = members.OpenAll(view);
    OnEachRank(kRanks, [&](int rank) { TuneBuckets(*exchanges[rank], *meshes[rank], sizes); });
    EXPECT_EQ(exchanges[0]->volume().merged, exchanges[1]->volume().merged);
    exchanges[0] = NewAllReduceExchange(sizes, options);
  }
}

TEST(AllReduceExchange, EmptyStepSettlesWithoutGradients) {
  Members members(Kind::kInproc, 2);
  const auto meshes = members.OpenAll(1);
  const auto exchanges = AllReduces(2);
  OnEachRank(2, [&](int rank) {
    const std::vector<std::int64_t> control = {7};
    ASSERT_EQ(exchanges[rank]->Enter({}, meshes[rank].get()), absl::OkStatus());
    Step step{9, {}, control};
    step.deadline = Soon();
    ASSERT_EQ(exchanges[rank]->Begin(step), absl::OkStatus());
    const auto outcome = exchanges[rank]->Finish(std::vector<double>{0.5}, 1);
    ASSERT_EQ(outcome.status(), absl::OkStatus());
    EXPECT_THAT(outcome->max, ElementsAre(7));
    EXPECT_THAT(outcome->statistics, ElementsAre(1));
  });
}

TEST(AllReduceExchange, AloneItReturnsWhatItWasGiven) {
  const auto exchange = NewAllReduceExchange({3, 2}, {});
  std::vector<float> gradients = {1, 2, 3, 4, 5};
  const std::vector<std::int64_t> control = {3, -1};
  ASSERT_EQ(exchange->Begin({1, gradients, control}), absl::OkStatus());
  exchange->Add(0, 1);
  exchange->Add(0, 0);
  const auto outcome = exchange->Finish(std::vector<double>{0.25}, 1);
  ASSERT_EQ(outcome.status(), absl::OkStatus());
  EXPECT_THAT(gradients, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(outcome->min, control);
  EXPECT_EQ(outcome->max, control);
  EXPECT_THAT(outcome->statistics, ElementsAre(0.25));
}

TEST(Exchange, MissingBucketIsNamedAndEndsTheOtherRanksToo) {
  Members members(Kind::kInproc, 2);
  const auto meshes = members.OpenAll(1);
  const auto exchanges = AllReduces(2);
  OnEachRank(2, [&](int rank) {
    std::vector<float> gradients(Total(kBuckets), 1);
    ASSERT_EQ(exchanges[rank]->Enter({}, meshes[rank].get()), absl::OkStatus());
    Step step{1, gradients, {}};
    step.deadline = Soon();
    ASSERT_EQ(exchanges[rank]->Begin(step), absl::OkStatus());
    for (const int bucket : {0, 2, 4, 5}) exchanges[rank]->Add(rank, bucket);
    if (rank == 1) {
      for (const int bucket : {1, 3}) exchanges[rank]->Add(rank, bucket);
    }
    const auto outcome = exchanges[rank]->Finish({}, 0);
    if (rank == 0) {
      EXPECT_EQ(outcome.status().code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(outcome.status().message(), HasSubstr("1, 3"));
    } else {
      EXPECT_EQ(outcome.status().code(), absl::StatusCode::kUnavailable);
    }
    // The mesh is dead: the next step says why, and that the view has ended.
    const absl::Status next = exchanges[rank]->Begin(step);
    EXPECT_EQ(next, absl::UnavailableError(outcome.status().message()));
  });
}

TEST(Exchange, BucketsThatMakeNoSenseAreErrorsOfTheStep) {
  const auto finish = [](int group, int bucket) {
    const auto exchange = NewAllReduceExchange({2}, {});
    std::vector<float> gradients(2);
    EXPECT_EQ(exchange->Begin({1, gradients, {}}), absl::OkStatus());
    exchange->Add(0, 0);
    exchange->Add(group, bucket);
    return exchange->Finish({}, 0).status().code();
  };
  EXPECT_EQ(finish(0, 0), absl::StatusCode::kInvalidArgument);  // twice
  EXPECT_EQ(finish(0, 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(finish(0, -1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(finish(1, 0), absl::StatusCode::kInvalidArgument);
}

TEST(Exchange, GradientsAndStatisticsOfTheWrongSizeAreRefused) {
  const auto exchange = NewAllReduceExchange({2}, {});
  std::vector<float> gradients(3);
  EXPECT_EQ(exchange->Begin({1, gradients, {}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(exchange->Begin({1, {}, {}}), absl::OkStatus());
  EXPECT_EQ(exchange->Finish(std::vector<double>{1, 2, 3}, 2).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Sums nothing, and says whether the mesh was told that others are idle.
class SaysWhoIsIdle final : public Reduction {
 public:
  SaysWhoIsIdle(std::atomic<int>& reduced, std::vector<bool>& idle, absl::Status last)
      : reduced_(reduced), idle_(idle), last_(std::move(last)) {}
  absl::Status Reduce(const HostStep& step, transport::Tag, const Bucket& bucket) override {
    idle_.push_back(step.mesh->others_idle());
    ++reduced_;
    return bucket.index == 0 ? absl::OkStatus() : last_;
  }

 private:
  std::atomic<int>& reduced_;
  std::vector<bool>& idle_;
  const absl::Status last_;
};

// A step of two buckets, the first of which the communication thread reduces, while the second is
// computed; `last` is how the second's reduction ends.
void TakeAStep(int rank, transport::Mesh& mesh, const absl::Status& last) {
  std::atomic<int> reduced{0};
  std::vector<bool> idle;
  const std::vector<std::size_t> buckets = {100'000, 5};
  StepExchange exchange(buckets, std::make_unique<SaysWhoIsIdle>(reduced, idle, last), false);
  ASSERT_EQ(exchange.Enter({}, &mesh), absl::OkStatus());
  std::vector<float> gradients(Total(buckets));
  Step step{1, gradients, {}};
  step.deadline = Soon();
  ASSERT_EQ(exchange.Begin(step), absl::OkStatus());
  exchange.Add(rank, 0);
  while (reduced == 0) std::this_thread::yield();
  exchange.Add(rank, 1);
  EXPECT_EQ(exchange.Finish({}, 0).status().code(), last.code());
  EXPECT_THAT(idle, ElementsAre(false, true));
  EXPECT_FALSE(mesh.others_idle());
}

TEST(Exchange, OthersCountAsIdleFromFinishToItsEnd) {
  Members members(Kind::kInproc, 2);
  const auto meshes = members.OpenAll(1);
  OnEachRank(2, [&](int rank) { TakeAStep(rank, *meshes[rank], absl::OkStatus()); });
}

TEST(Exchange, OthersCountAsIdleNoMoreAfterAFinishThatFails) {
  Members members(Kind::kInproc, 2);
  const auto meshes = members.OpenAll(1);
  TakeAStep(0, *meshes[0], absl::InternalError("a sum fails"));
}

TEST(Exchange, CancelEndsAReductionThatIsUnderWay) {
  Members members(Kind::kInproc, 2);
  const auto meshes = members.OpenAll(1);
  const auto exchanges = AllReduces(2);
  std::vector<float> gradients(Total(kBuckets), 1);
  ASSERT_EQ(exchanges[0]->Enter({}, meshes[0].get()), absl::OkStatus());
  Step step{1, gradients, {}};
  step.deadline = Soon();
  ASSERT_EQ(exchanges[0]->Begin(step), absl::OkStatus());
  for (int bucket = 0; bucket < 6; ++bucket) exchanges[0]->Add(0, bucket);  // rank 1 never comes
  std::thread canceller([&] {
    while (meshes[0]->traffic(1).payload_sent == 0) std::this_thread::yield();
    exchanges[0]->Cancel(absl::AbortedError("view 2"));
  });
  const auto outcome = exchanges[0]->Finish({}, 0);
  canceller.join();
  EXPECT_EQ(outcome.status(), absl::UnavailableError("view 2"));
}

TEST(Exchange, CancelBeforeFinishEndsItAtOnceAndTheNextViewWorks) {
  Members members(Kind::kInproc, 2);
  const auto first = members.OpenAll(1);
  const auto second = members.OpenAll(2);
  const auto exchanges = AllReduces(2);
  OnEachRank(2, [&](int rank) {
    std::vector<float> gradients(Total(kBuckets), 1);
    ASSERT_EQ(exchanges[rank]->Enter({}, first[rank].get()), absl::OkStatus());
    Step step{1, gradients, {}};
    step.deadline = Soon();
    ASSERT_EQ(exchanges[rank]->Begin(step), absl::OkStatus());
    exchanges[rank]->Add(rank, 0);
    exchanges[rank]->Cancel(absl::AbortedError("view 2"));
    EXPECT_FALSE(exchanges[rank]->Finish({}, 0).ok());

    std::fill(gradients.begin(), gradients.end(), 1.0F);
    exchanges[rank]->Leave();
    ASSERT_EQ(exchanges[rank]->Enter({}, second[rank].get()), absl::OkStatus());
    ASSERT_EQ(exchanges[rank]->Begin(step), absl::OkStatus());
    for (int bucket = 5; bucket >= 0; --bucket) exchanges[rank]->Add(rank, bucket);
    ASSERT_EQ(exchanges[rank]->Finish({}, 0).status(), absl::OkStatus());
    EXPECT_THAT(gradients, Each(2));
  });
}

TEST(Exchange, CancelWithoutAStepDoesNothing) {
  const auto exchange = NewNoExchange({1});
  exchange->Cancel(absl::AbortedError("nothing runs"));
  EXPECT_EQ(exchange->Begin({1, {}, {}}), absl::OkStatus());
  EXPECT_EQ(exchange->Finish({}, 0).status(), absl::OkStatus());
}

TEST(Exchange, DeathOfARankEndsTheStepAndNamesIt) {
  Members members(Kind::kTcp, 2);
  auto meshes = members.OpenAll(1);
  const auto exchanges = AllReduces(2);
  std::vector<float> gradients(Total(kBuckets), 1);
  ASSERT_EQ(exchanges[0]->Enter({}, meshes[0].get()), absl::OkStatus());
  Step step{1, gradients, {}};
  step.deadline = Soon();
  ASSERT_EQ(exchanges[0]->Begin(step), absl::OkStatus());
  for (int bucket = 0; bucket < 6; ++bucket) exchanges[0]->Add(0, bucket);
  std::vector<std::byte> never(8);
  (void)meshes[1]->PostReceive(0, {99, 99}, never);
  meshes[1].reset();
  const auto outcome = exchanges[0]->Finish({}, 0);
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(transport::UnreachableRanks(outcome.status()), ElementsAre(1));
}

TEST(NoExchange, RefusesAViewOfMoreThanOne) {
  Members members(Kind::kInproc, 2);
  const auto meshes = members.OpenAll(1);
  const auto exchange = NewNoExchange({1});
  ASSERT_EQ(exchange->Enter({}, meshes[0].get()), absl::OkStatus());
  const auto begun = exchange->Begin({1, {}, {}});
  EXPECT_EQ(begun.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(begun.message(), HasSubstr("allReduce"));
}

// One step of `groups` groups over `ranks` ranks; the gradients, statistics of each rank.
struct Reproduced {
  std::vector<float> gradients;
  std::vector<double> statistics;
  friend bool operator==(const Reproduced&, const Reproduced&) = default;
};

std::vector<Reproduced> Reproduce(int ranks, int groups, const std::vector<std::size_t>& buckets) {
  Members members(Kind::kInproc, ranks);
  auto meshes = members.OpenAll(1);
  std::vector<Reproduced> results(ranks);
  OnEachRank(ranks, [&](int rank) {
    const auto exchange = NewReproducibleExchange(buckets);
    auto& [gradients, statistics] = results[rank];
    gradients.resize(Total(buckets));
    const ranges::Range<int> mine = exchange->Groups(rank, ranks, groups);
    for (std::uint64_t number = 1; number <= 2; ++number) {
      ASSERT_EQ(exchange->Enter({}, ranks == 1 ? nullptr : meshes[rank].get()), absl::OkStatus());
      Step step{number, gradients, {}};
      step.groups = groups;
      step.deadline = Soon();
      ASSERT_EQ(exchange->Begin(step), absl::OkStatus());
      std::vector<double> rows;
      for (int group = mine.begin; group < mine.end; ++group) {
        // Backward of one group after the other writes into the same gradients.
        const auto gradient =
            Gradient(gradients.size(), 1000 * static_cast<std::uint32_t>(number) + group);
        std::copy(gradient.begin(), gradient.end(), gradients.begin());
        for (int bucket = 0; bucket < static_cast<int>(buckets.size()); ++bucket) {
          exchange->Add(group, bucket);
        }
        rows.push_back(std::sqrt(group + 0.1));
      }
      const auto outcome = exchange->Finish(rows, 1);
      ASSERT_EQ(outcome.status(), absl::OkStatus());
      statistics = outcome->statistics;
    }
  });
  return results;
}

TEST(ReproducibleExchange, GivesTheSameBitsForAnyNumberOfWorkers) {
  for (const int groups : {1, 3, 16}) {
    const auto alone = Reproduce(1, groups, kBuckets).front();
    for (const int ranks : {2, 3, 5, 8}) {
      EXPECT_THAT(Reproduce(ranks, groups, kBuckets), Each(alone)) << groups << " on " << ranks;
    }
  }
}

TEST(ReproducibleExchange, AllReduceDoesNotSoTheCheckCanFail) {
  const auto sum_over = [](int ranks) {
    Members members(Kind::kInproc, ranks);
    auto meshes = members.OpenAll(1);
    std::vector<float> result;
    OnEachRank(ranks, [&](int rank) {
      const auto exchange = NewAllReduceExchange({1000}, {Algorithm::kRing});
      std::vector<float> gradients(1000, 0);
      const ranges::Range<int> mine = ranges::PartOf(16, rank, ranks);
      for (int group = mine.begin; group < mine.end; ++group) {
        const auto part = Gradient(1000, group);
        for (std::size_t i = 0; i < 1000; ++i) gradients[i] += part[i];
      }
      ASSERT_EQ(exchange->Enter({}, meshes[rank].get()), absl::OkStatus());
      Step step{1, gradients, {}};
      step.deadline = Soon();
      ASSERT_EQ(exchange->Begin(step), absl::OkStatus());
      exchange->Add(rank, 0);
      ASSERT_EQ(exchange->Finish({}, 0).status(), absl::OkStatus());
      if (rank == 0) result = gradients;
    });
    return result;
  };
  EXPECT_NE(sum_over(2), sum_over(3));
}

TEST(ReproducibleExchange, AloneRefusesGroupsOutOfOrder) {
  const auto exchange = NewReproducibleExchange({2});
  std::vector<float> gradients(2);
  Step step{1, gradients, {}};
  step.groups = 2;
  ASSERT_EQ(exchange->Begin(step), absl::OkStatus());
  exchange->Add(1, 0);
  exchange->Add(0, 0);
  EXPECT_EQ(exchange->Finish({}, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

// Gradients that travel encoded.

// The ranks of a job, with float16 or bfloat16 between them.
class EncodedExchangeTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kLength = 6000;
  static const std::vector<std::size_t>& Buckets() {
    static const std::vector<std::size_t> sizes = {4000, 0, 2000};
    return sizes;
  }
  std::vector<std::unique_ptr<Exchange>> NewExchanges(int ranks, const char* codec,
                                                      bool error_feedback) {
    AllReduceOptions options{Algorithm::kRing, nullptr, {.error_feedback = error_feedback}};
    if (codec != nullptr)
      options.codec = compression::CodecKinds()[*compression::CodecNumberOf(codec)].make({});
    std::vector<std::unique_ptr<Exchange>> all(static_cast<std::size_t>(ranks));
    for (auto& one : all) one = NewAllReduceExchange(Buckets(), options);
    return all;
  }
  // One step of all ranks; each rank's gradients after it.
  static std::vector<std::vector<float>> Step(std::vector<std::unique_ptr<Exchange>>& exchanges,
                                              std::vector<std::unique_ptr<transport::Mesh>>& meshes,
                                              std::uint64_t number) {
    std::vector<std::vector<float>> gradients(exchanges.size());
    OnEachRank(static_cast<int>(exchanges.size()), [&](int rank) {
      gradients[rank] = Gradient(kLength, static_cast<std::uint32_t>(rank + 50));
      transport::Mesh* mesh = exchanges.size() == 1 ? nullptr : meshes[rank].get();
      ASSERT_EQ(exchanges[rank]->Enter({}, mesh), absl::OkStatus());
      exchange::Step step{number, gradients[rank], {}};
      step.deadline = Soon();
      ASSERT_EQ(exchanges[rank]->Begin(step), absl::OkStatus());
      for (int bucket = 0; bucket < 3; ++bucket) exchanges[rank]->Add(rank, bucket);
      ASSERT_EQ(exchanges[rank]->Finish({}, 0).status(), absl::OkStatus());
    });
    return gradients;
  }
  static void SettleAll(std::vector<std::unique_ptr<Exchange>>& exchanges, Fate fate) {
    for (auto& exchange : exchanges) exchange->Settle(fate);
  }
};

TEST_F(EncodedExchangeTest, HalvesTheBytesAndGivesAllRanksTheSameBitsCloseToTheSum) {
  constexpr int kRanks = 4;
  Members members(Kind::kInproc, kRanks);
  auto first = members.OpenAll(1), second = members.OpenAll(2);
  auto whole = NewExchanges(kRanks, nullptr, false), half = NewExchanges(kRanks, "float16", false);
  const auto exact = Step(whole, first, 1), sums = Step(half, second, 1);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(sums[rank], sums[0]);
    std::uint64_t of_whole = 0, of_half = 0;
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer == rank) continue;
      of_whole += first[rank]->traffic(peer).payload_sent;
      of_half += second[rank]->traffic(peer).payload_sent;
    }
    EXPECT_EQ(of_whole, 2 * of_half);
    EXPECT_EQ(of_half, 2 * (kRanks - 1) * kLength / kRanks * 2);
  }
  double worst = 0;
  for (std::size_t i = 0; i < kLength; ++i) {
    worst = std::max(worst, std::abs(double{exact[0][i]} - double{sums[0][i]}));
  }
  EXPECT_GT(worst, 0) << "it is not the codec that was asked for";
  EXPECT_LT(worst, 0.02) << "of numbers about 1, five roundings of 2^-11 each";
}

TEST_F(EncodedExchangeTest, AStepThatIsDoneAgainIsTheSameAndOneThatWasMissedLeavesNothing) {
  constexpr int kRanks = 2;
  Members members(Kind::kInproc, kRanks);
  auto meshes = members.OpenAll(1);
  auto exchanges = NewExchanges(kRanks, "bfloat16", true);
  const auto first = Step(exchanges, meshes, 1);
  SettleAll(exchanges, Fate::kApplied);
  const auto second = Step(exchanges, meshes, 2);
  EXPECT_NE(second, first) << "what was lost is sent later";
  SettleAll(exchanges, Fate::kDropped);
  EXPECT_EQ(Step(exchanges, meshes, 2), second);
  // Not settled at all, it is dropped by the next.
  EXPECT_EQ(Step(exchanges, meshes, 2), second);
  SettleAll(exchanges, Fate::kMissed);
  EXPECT_EQ(Step(exchanges, meshes, 3), first) << "whoever starts empty starts as at first";
}

TEST_F(EncodedExchangeTest, WhoeverIsLeftAloneDeliversWhatItHadKept) {
  Members members(Kind::kInproc, 2);
  auto meshes = members.OpenAll(1);
  auto exchanges = NewExchanges(2, "bfloat16", true);
  (void)Step(exchanges, meshes, 1);
  SettleAll(exchanges, Fate::kApplied);
  const std::vector<float> kept(exchanges[0]->residual().begin(), exchanges[0]->residual().end());
  EXPECT_EQ(kept.size(), kLength);
  exchanges.pop_back();
  const auto alone = Step(exchanges, meshes, 2);
  SettleAll(exchanges, Fate::kApplied);
  const std::vector<float> given = Gradient(kLength, 50);
  for (std::size_t i = 0; i < kLength; ++i) ASSERT_EQ(alone[0][i], given[i] + kept[i]);
  EXPECT_THAT(exchanges[0]->residual(), Each(0));
}

TEST_F(EncodedExchangeTest, TheResidualOfACheckpointIsTakenAndThatOfACopyIsNot) {
  Members members(Kind::kInproc, 2);
  auto meshes = members.OpenAll(1);
  auto exchanges = NewExchanges(2, "bfloat16", true), others = NewExchanges(2, "bfloat16", true);
  (void)Step(exchanges, meshes, 1);
  SettleAll(exchanges, Fate::kApplied);
  for (int rank = 0; rank < 2; ++rank) {
    std::ranges::copy(exchanges[rank]->residual(), others[rank]->residual().begin());
    others[rank]->Adopted(/*from_checkpoint=*/true);
    std::ranges::fill(exchanges[rank]->residual(), 0.0F);
    exchanges[rank]->Adopted(/*from_checkpoint=*/false);
  }
  EXPECT_EQ(Step(exchanges, meshes, 2), Step(others, meshes, 3));
}

TEST(AllReduceExchange, TakesFloatsOfTheHostAlone) {
  const auto exchange = NewAllReduceExchange({2}, {});
  std::vector<double> doubles(2);
  EXPECT_EQ(exchange->Begin({1, doubles, {}}).code(), absl::StatusCode::kInvalidArgument);
  const buffer::View remote(buffer::DType::kF32, buffer::Device::kCuda, nullptr, 2);
  EXPECT_EQ(exchange->Begin({1, remote, {}}).code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace starling::exchange
