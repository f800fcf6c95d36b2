// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/read_ahead.h"

#include <atomic>
#include <set>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::data {
namespace {

using testing::ElementsAre;

// A gate that samples pass when it is open, and what has passed.
class Gate {
 public:
  absl::StatusOr<RawSample> Pass(const SampleKey& key) {
    const sync::MutexLock lock(mutex_);
    begun_.push_back(key.id);
    changed_.NotifyAll();
    while (!open_) changed_.Wait(mutex_);
    if (key.id < 0) return absl::InvalidArgumentError("no such sample");
    return RawSample{.values = {static_cast<std::uint8_t>(key.id)}, .label = key.epoch};
  }
  void Open() {
    const sync::MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  std::vector<std::int64_t> AwaitBegun(std::size_t count) {
    const sync::MutexLock lock(mutex_);
    while (begun_.size() < count) changed_.Wait(mutex_);
    return begun_;
  }

 private:
  sync::Mutex mutex_;
  sync::Condition changed_;
  bool open_ = false;
  std::vector<std::int64_t> begun_;
};

std::vector<SampleKey> Keys(std::initializer_list<std::int64_t> ids, std::int64_t epoch = 1) {
  std::vector<SampleKey> keys;
  for (const std::int64_t id : ids) keys.push_back({id, epoch});
  return keys;
}

TEST(ReadAhead, WhatIsExpectedIsMadeBeforeItIsAskedFor) {
  Gate gate;
  gate.Open();
  ReadAhead ahead(2, [&](const SampleKey& key) { return gate.Pass(key); });
  ahead.Expect(Keys({3, 4}));
  gate.AwaitBegun(2);
  const auto sample = ahead.Take({3, 1});
  ASSERT_TRUE(sample.ok());
  EXPECT_THAT(sample->values, ElementsAre(3));
  EXPECT_EQ(sample->label, 1);
  EXPECT_EQ(gate.AwaitBegun(2).size(), 2U) << "and it is not made once more";
}

TEST(ReadAhead, WhatIsWantedGoesBeforeWhatIsOnlyExpected) {
  Gate gate;
  ReadAhead ahead(1, [&](const SampleKey& key) { return gate.Pass(key); });
  ahead.Expect(Keys({1, 2, 3}));
  gate.AwaitBegun(1);
  ahead.Want(Keys({3, 9}));
  gate.Open();
  EXPECT_THAT(gate.AwaitBegun(4), ElementsAre(1, 3, 9, 2));
}

TEST(ReadAhead, WhatNobodyExpectedIsMadeWhenItIsTaken) {
  Gate gate;
  gate.Open();
  ReadAhead ahead(1, [&](const SampleKey& key) { return gate.Pass(key); });
  EXPECT_EQ(ahead.Take({7, 2})->label, 2);
  EXPECT_EQ(ahead.size(), 0U);
}

TEST(ReadAhead, AnErrorIsTheSamplesAndTheNextAttemptIsAnother) {
  Gate gate;
  gate.Open();
  ReadAhead ahead(1, [&](const SampleKey& key) { return gate.Pass(key); });
  EXPECT_TRUE(absl::IsInvalidArgument(ahead.Take({-1, 1}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ahead.Take({-1, 1}).status()));
  EXPECT_THAT(gate.AwaitBegun(2), ElementsAre(-1, -1));
}

TEST(ReadAhead, WhatIsNotTakenGoesTwoCallsLater) {
  Gate gate;
  gate.Open();
  ReadAhead ahead(1, [&](const SampleKey& key) { return gate.Pass(key); });
  for (std::int64_t step = 0; step < 100; ++step) {
    ahead.Expect(Keys({3 * step, 3 * step + 1, 3 * step + 2}, step));
    // One that is just being made may stay for a moment longer.
    EXPECT_LE(ahead.size(), 7U) << "step " << step;
  }
}

TEST(ReadAhead, WhatSomebodyWaitsForStaysHoweverMuchElseIsExpected) {
  Gate gate;
  ReadAhead ahead(1, [&](const SampleKey& key) { return gate.Pass(key); });
  ahead.Expect(Keys({1}));
  gate.AwaitBegun(1);
  std::thread asker([&] { EXPECT_TRUE(ahead.Take({9, 1}).ok()); });
  while (ahead.size() < 2) std::this_thread::yield();
  for (int call = 0; call < 3; ++call) ahead.Expect({});
  EXPECT_EQ(ahead.size(), 2U) << "the one that is being made, and the one that is waited for";
  gate.Open();
  asker.join();
  EXPECT_THAT(gate.AwaitBegun(2), ElementsAre(1, 9));
  EXPECT_EQ(ahead.size(), 1U);
}

TEST(ReadAhead, SeveralThreadsMayAskForTheSameSamples) {
  std::atomic<int> made = 0;
  ReadAhead ahead(3, [&](const SampleKey& key) -> absl::StatusOr<RawSample> {
    ++made;
    return RawSample{.values = {static_cast<std::uint8_t>(key.id)}};
  });
  std::vector<std::thread> askers;
  for (int asker = 0; asker < 4; ++asker) {
    askers.emplace_back([&] {
      for (std::int64_t step = 0; step < 200; ++step) {
        ahead.Expect(Keys({step % 7, step % 5}));
        ahead.Want(Keys({step % 3, step % 7}));
        EXPECT_LE(ahead.size(), 7U) << "there are no others";
        const auto sample = ahead.Take({step % 7, 1});
        ASSERT_TRUE(sample.ok());
        EXPECT_THAT(sample->values, ElementsAre(static_cast<std::uint8_t>(step % 7)));
      }
    });
  }
  for (std::thread& asker : askers) asker.join();
  EXPECT_GE(made, 7);
}

TEST(ReadAhead, ItEndsWithSamplesThatNobodyHasTaken) {
  Gate gate;
  gate.Open();
  ReadAhead ahead(2, [&](const SampleKey& key) { return gate.Pass(key); });
  for (std::int64_t id = 0; id < 50; ++id) ahead.Expect(Keys({id}));
}

}  // namespace
}  // namespace starling::data
