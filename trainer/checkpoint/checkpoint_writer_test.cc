// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/checkpoint_writer.h"

#include <latch>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "common/storage/memory_blob_store.h"
#include "common/sync/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/test_states.h"

namespace starling::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Duration kLong = absl::Seconds(20);

// Collects the reports of the writer's thread. Thread-safe.
class Results {
 public:
  void Add(const WriteResult& result) {
    sync::MutexLock lock(mutex_);
    results_.push_back(result);
    changed_.NotifyAll();
  }
  // The first `count` reports, or fewer when they do not come.
  std::vector<WriteResult> Wait(std::size_t count) {
    sync::MutexLock lock(mutex_);
    while (results_.size() < count) {
      if (!changed_.WaitFor(mutex_, kLong)) break;
    }
    return results_;
  }

 private:
  sync::Mutex mutex_;
  sync::Condition changed_;
  std::vector<WriteResult> results_ ABSL_GUARDED_BY(mutex_);
};

class CheckpointWriterTest : public ::testing::Test {
 protected:
  CheckpointWriter MakeWriter(int keep = 3) {
    return CheckpointWriter(Store(), keep, [this](const WriteResult& r) { results_.Add(r); });
  }
  CheckpointStore Store() { return CheckpointStore(blobs_, "uid"); }
  // Begins, waiting for the one before to end.
  static bool BeginSoon(CheckpointWriter& writer, const State& state) {
    return writer.Flush(kLong) && writer.Begin(state);
  }

  storage::MemoryBlobStore blobs_;
  Results results_;
};

TEST_F(CheckpointWriterTest, ASettledStateIsCommittedAsItWasWhenItsTurnCame) {
  CheckpointWriter writer = MakeWriter();
  TestState state({1, 1, 1});
  ASSERT_TRUE(writer.Begin(state.get()));
  state.weights()[0] = 1e9F;  // training goes on
  writer.Commit({1, 1, 1});
  ASSERT_TRUE(writer.Flush(kLong));
  const auto results = results_.Wait(1);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_TRUE(results[0].status.ok()) << results[0].status;
  EXPECT_EQ(results[0].uri, Store().UriOf({1, 1, 1}));
  EXPECT_TRUE(SameBytes(TestState({1, 1, 1}).get(), *Store().Load({1, 1, 1})));
}

TEST_F(CheckpointWriterTest, AStateThatIsNeverSettledLeavesNothing) {
  CheckpointWriter writer = MakeWriter();
  ASSERT_TRUE(writer.Begin(TestState({1, 1, 1}).get()));
  writer.Discard({1, 1, 1});
  ASSERT_TRUE(writer.Flush(kLong));
  EXPECT_TRUE(absl::IsCancelled(results_.Wait(1)[0].status));
  EXPECT_THAT(*blobs_.List(""), IsEmpty());
}

TEST_F(CheckpointWriterTest, NothingIsCommittedBeforeItIsSettledNorByAnothersSettling) {
  {
    CheckpointWriter writer = MakeWriter();
    ASSERT_TRUE(writer.Begin(TestState({1, 1, 1}).get()));
    writer.Commit({1, 2, 1});
    EXPECT_TRUE(writer.Flush(kLong));  // nothing that was decided is under way
    EXPECT_FALSE(writer.Begin(TestState({1, 1, 2}).get()));
    EXPECT_THAT(*Store().List(), IsEmpty());
  }
  EXPECT_THAT(*Store().List(), IsEmpty());
  EXPECT_TRUE(absl::IsCancelled(results_.Wait(1)[0].status));
}

TEST_F(CheckpointWriterTest, WhatIsNotSettledYetIsWrittenMeanwhile) {
  CheckpointWriter writer = MakeWriter();
  for (std::int64_t step = 1; step <= 3; ++step) {
    const std::size_t before = blobs_.List("")->size();
    ASSERT_TRUE(writer.Begin(TestState({1, 1, step}).get()));
    const absl::Time deadline = absl::Now() + kLong;
    while (blobs_.List("")->size() == before && absl::Now() < deadline) std::this_thread::yield();
    EXPECT_THAT(*blobs_.List(""), SizeIs(before + 1)) << "its shard";
    EXPECT_THAT(*Store().List(), SizeIs(step - 1));
    writer.Commit({1, 1, step});
    ASSERT_TRUE(writer.Flush(kLong));
  }
}

TEST_F(CheckpointWriterTest, FlushSaysWhetherWhatWasDecidedIsDone) {
  std::latch told(1), go_on(1);
  CheckpointWriter writer(Store(), 3, [&](const WriteResult& /*result*/) {
    told.count_down();
    go_on.wait();
  });
  EXPECT_TRUE(writer.Flush(absl::ZeroDuration())) << "nothing is under way";
  ASSERT_TRUE(writer.Begin(TestState({1, 1, 1}).get()));
  writer.Commit({1, 1, 1});
  told.wait();
  EXPECT_FALSE(writer.Flush(absl::ZeroDuration()));
  EXPECT_FALSE(writer.Flush(absl::Milliseconds(1)));
  go_on.count_down();
  EXPECT_TRUE(writer.Flush(kLong));
}

TEST_F(CheckpointWriterTest, EndingFinishesWhatIsCommitted) {
  {
    CheckpointWriter writer = MakeWriter();
    ASSERT_TRUE(writer.Begin(TestState({1, 1, 1}).get()));
    writer.Commit({1, 1, 1});
  }
  EXPECT_THAT(*Store().List(), ElementsAre(StateId{1, 1, 1}));
}

TEST_F(CheckpointWriterTest, BuffersAreReusedForStatesOfOtherSizes) {
  CheckpointWriter writer = MakeWriter(/*keep=*/10);
  for (const std::size_t count : {1000, 10, 5000, 1}) {
    const StateId id{1, 1, static_cast<std::int64_t>(count)};
    const TestState state(id, count);
    ASSERT_TRUE(BeginSoon(writer, state.get()));
    writer.Commit(id);
    ASSERT_TRUE(writer.Flush(kLong));
    EXPECT_TRUE(SameBytes(state.get(), *Store().Load(id)));
  }
}

TEST_F(CheckpointWriterTest, OnlyTheNewestAreKept) {
  CheckpointWriter writer = MakeWriter(/*keep=*/3);
  for (std::int64_t step = 1; step <= 6; ++step) {
    if (step == 6) writer.SetKeep(2);
    ASSERT_TRUE(BeginSoon(writer, TestState({1, 1, step}).get()));
    writer.Commit({1, 1, step});
  }
  ASSERT_TRUE(writer.Flush(kLong));
  EXPECT_THAT(*Store().List(), ElementsAre(StateId{1, 1, 6}, StateId{1, 1, 5}));
}

TEST_F(CheckpointWriterTest, AFailureIsReportedOnceAndTheNextWriteIsAsGoodAsEver) {
  CheckpointWriter writer = MakeWriter();
  blobs_.Fail({.at = 1, .status = absl::ResourceExhaustedError("no space")});
  ASSERT_TRUE(writer.Begin(TestState({1, 1, 1}).get()));
  writer.Commit({1, 1, 1});
  ASSERT_TRUE(absl::IsResourceExhausted(results_.Wait(1)[0].status));
  ASSERT_TRUE(BeginSoon(writer, TestState({1, 1, 2}).get()));
  writer.Commit({1, 1, 2});
  ASSERT_TRUE(writer.Flush(kLong));
  EXPECT_THAT(*Store().List(), ElementsAre(StateId{1, 1, 2}));
}

}  // namespace
}  // namespace starling::checkpoint
