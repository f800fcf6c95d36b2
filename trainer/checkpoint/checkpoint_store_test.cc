// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/checkpoint_store.h"

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/storage/memory_blob_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/test_states.h"

namespace starling::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::int64_t kAny = 1000;

class CheckpointStoreTest : public ::testing::Test {
 protected:
  CheckpointStore Store(std::size_t shard_bytes = CheckpointStore::kShardBytes) {
    return CheckpointStore(blobs_, "uid", shard_bytes);
  }

  // The newest that verifies, which must hold exactly what its id says.
  std::optional<StateId> Newest(const CheckpointStore& store, std::size_t count = 100) {
    const auto newest = store.NewestVerified(kAny);
    EXPECT_TRUE(newest.ok()) << newest.status();
    if (!newest.ok() || !newest->checkpoint.has_value()) return std::nullopt;
    const StateId id = newest->checkpoint->state().id;
    EXPECT_TRUE(SameBytes(TestState(id, count).get(), *newest->checkpoint));
    return id;
  }

  std::vector<std::string> Names(const std::string& prefix = "") { return *blobs_.List(prefix); }

  static std::string Manifest(const StateId& id) {
    return absl::StrCat("uid/", NameOf(id), "/manifest.json");
  }
  // Of the checkpoint of one shard.
  std::string Shard(const StateId& id) {
    const auto names = Names(absl::StrCat("uid/", NameOf(id), "/state-"));
    EXPECT_THAT(names, SizeIs(1));
    return names[0];
  }

  storage::MemoryBlobStore blobs_;
};

TEST(StateId, NamesSortAsIdsDo) {
  EXPECT_EQ(NameOf({3, 12, 456}), "0000000003-0000000012-000000000000000456");
  EXPECT_EQ(ParseName(NameOf({3, 12, 456})), (StateId{3, 12, 456}));
  EXPECT_LT(NameOf({9, 1, 1}), NameOf({10, 0, 0}));
  for (const char* bad :
       {"", "x", ".tmp-0000000003-0000000012-000000000000000456",
        "0000000003-0000000012-00000000000000045", "0000000003_0000000012-000000000000000456",
        "0000000003-0000000012_000000000000000456", "-000000003-0000000012-000000000000000456",
        "0000000003-0000000012-00000000000000045x"}) {
    EXPECT_FALSE(ParseName(bad).has_value()) << bad;
  }
}

TEST_F(CheckpointStoreTest, WhatIsWrittenIsReadBackWholeAndVerified) {
  CheckpointStore store = Store();
  const TestState state({1, 2, 3});
  ASSERT_TRUE(store.Write(state.get()).ok());
  const auto loaded = store.Load({1, 2, 3});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_TRUE(SameBytes(state.get(), *loaded));
  EXPECT_THAT(Names(), ElementsAre(Manifest({1, 2, 3}), Shard({1, 2, 3})));
  EXPECT_EQ(store.UriOf({1, 2, 3}), absl::StrCat("memory:///uid/", NameOf({1, 2, 3})));
}

TEST_F(CheckpointStoreTest, ManyShardsAreOneState) {
  CheckpointStore store = Store(/*shard_bytes=*/20);
  const TestState state({1, 2, 3});
  ASSERT_TRUE(store.Write(state.get()).ok());
  EXPECT_THAT(Names(absl::StrCat("uid/", NameOf({1, 2, 3}), "/state-00003-of-00003-")), SizeIs(1));
  EXPECT_TRUE(SameBytes(state.get(), *store.Load({1, 2, 3})));
}

TEST_F(CheckpointStoreTest, ShardsAreCutInTheOrderOfNamesAsSoonAsTheyAreLargeEnough) {
  const std::vector<float> four(4, 1);  // 16 bytes
  State state{.id = {1, 1, 1}, .tensors = {}, .attributes = {}};
  for (const char* name : {"d", "b", "e", "a", "c"}) {
    state.tensors.push_back(MakeView(name, {4}, four));
  }
  for (const std::size_t limit : {17, 32}) {
    CheckpointStore store = Store(limit);
    ASSERT_TRUE(store.Write(state).ok());
    std::vector<std::string> names;
    for (const std::string& blob : Names(absl::StrCat("uid/", NameOf({1, 1, 1}), "/state-"))) {
      const std::string file = blobs_.Get(blob);
      const auto shard = Decode(std::as_bytes(std::span(file.data(), file.size())));
      ASSERT_TRUE(shard.ok()) << shard.status();
      std::string inside;
      for (const TensorView& tensor : shard->tensors) inside += tensor.name;
      names.push_back(inside);
      ASSERT_TRUE(blobs_.Delete(blob).ok());
    }
    EXPECT_THAT(names, ElementsAre("ab", "cd", "e")) << limit;
  }
}

TEST_F(CheckpointStoreTest, NoNameIsGivenTwiceNotEvenInTwoShards) {
  const std::vector<float> four(4, 1);
  const State state{.id = {1, 1, 1},
                    .tensors = {MakeView("a", {4}, four), MakeView("a", {4}, four)},
                    .attributes = {}};
  EXPECT_TRUE(absl::IsInvalidArgument(Store(/*shard_bytes=*/16).Write(state)));
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(CheckpointStoreTest, OnlyWholeCheckpointsCountAmongThoseThatAreKept) {
  CheckpointStore store = Store();
  for (const std::int64_t step : {3, 5}) {
    ASSERT_TRUE(store.Write(TestState({1, 1, step}).get()).ok());
  }
  ASSERT_TRUE(store.Prepare(TestState({1, 1, 4}).get()).ok());
  ASSERT_TRUE(store.Retain(2, {1, 1, 5}).ok());
  EXPECT_THAT(*store.List(), ElementsAre(StateId{1, 1, 5}, StateId{1, 1, 3}));
  EXPECT_THAT(Names(), SizeIs(4));
}

TEST_F(CheckpointStoreTest, NewestIsTheHighestNameAndNothingIsThereAtFirst) {
  CheckpointStore store = Store();
  EXPECT_EQ(Newest(store), std::nullopt);
  for (const StateId id : {StateId{1, 9, 90}, StateId{2, 1, 10}, StateId{1, 10, 95}}) {
    ASSERT_TRUE(store.Write(TestState(id).get()).ok());
  }
  EXPECT_EQ(Newest(store), (StateId{2, 1, 10}));
  EXPECT_THAT(*store.List(), ElementsAre(StateId{2, 1, 10}, StateId{1, 10, 95}, StateId{1, 9, 90}));
}

TEST_F(CheckpointStoreTest, AHigherIncarnationsCheckpointMeansThatWeAreFenced) {
  CheckpointStore store = Store();
  ASSERT_TRUE(store.Write(TestState({3, 1, 1}).get()).ok());
  EXPECT_TRUE(absl::IsAborted(store.NewestVerified(2).status()));
  EXPECT_TRUE(store.NewestVerified(3).ok());
}

TEST_F(CheckpointStoreTest, OtherPrefixesAreNeverLookedAt) {
  for (const char* prefix : {"other", "uid2", "uid/shards/shard-0"}) {
    CheckpointStore other(blobs_, prefix);
    ASSERT_TRUE(other.Write(TestState({1, 1, 1}).get()).ok());
  }
  EXPECT_EQ(Newest(Store()), std::nullopt);
}

TEST(JobPlace, IsBelowTheSpecsPlaceOrTheJobsFolder) {
  EXPECT_EQ(JobPlace("", "uid", "/jobs/a"), "/jobs/a");
  EXPECT_EQ(JobPlace("/store", "uid", "/jobs/a"), "/store/uid");
  EXPECT_EQ(JobPlace("file:///store/", "uid", "/jobs/a"), "file:///store/uid");
}

TEST_F(CheckpointStoreTest, EveryTruncationOfEveryFileFallsBackToTheOneBefore) {
  CheckpointStore store = Store();
  const StateId id{1, 1, 2};
  ASSERT_TRUE(store.Write(TestState({1, 1, 1}).get()).ok());
  ASSERT_TRUE(store.Write(TestState(id).get()).ok());
  int bad_loads = 0;
  for (const std::string& path : {Shard(id), Manifest(id)}) {
    const std::string whole = blobs_.Get(path);
    for (std::size_t size = 0; size < whole.size(); size += 1 + size / 40) {
      blobs_.Set(path, whole.substr(0, size));
      bad_loads += store.Load(id).ok();
    }
    blobs_.Set(path, whole.substr(0, whole.size() - 1));
    bad_loads += store.Load(id).ok();
    EXPECT_EQ(Newest(store), (StateId{1, 1, 1}));
    blobs_.Set(path, whole);
    EXPECT_EQ(Newest(store), id);
  }
  EXPECT_EQ(bad_loads, 0);
}

TEST_F(CheckpointStoreTest, EveryFlippedBitIsFound) {
  CheckpointStore store = Store();
  const StateId id{1, 1, 2};
  ASSERT_TRUE(store.Write(TestState(id, 20).get()).ok());
  int flips = 0;
  int undetected = 0;
  for (const std::string& path : {Shard(id), Manifest(id)}) {
    const std::string whole = blobs_.Get(path);
    for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
      std::string flipped = whole;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
      blobs_.Set(path, flipped);
      ++flips;
      undetected += store.Load(id).ok();
    }
    blobs_.Set(path, whole);
  }
  EXPECT_GT(flips, 5000);
  EXPECT_EQ(undetected, 0);
  EXPECT_EQ(Newest(store, 20), id);
}

TEST_F(CheckpointStoreTest, AMissingOrForeignShardIsNamed) {
  CheckpointStore store = Store(/*shard_bytes=*/20);
  const StateId id{1, 1, 2};
  ASSERT_TRUE(store.Write(TestState({1, 1, 1}).get()).ok());
  ASSERT_TRUE(store.Write(TestState(id).get()).ok());
  const auto second = [&](const StateId& of) {
    return Names(absl::StrCat("uid/", NameOf(of), "/state-00002-of-00003-"))[0];
  };
  const std::string shard = second(id);
  blobs_.Set(shard, blobs_.Get(second({1, 1, 1})));
  EXPECT_THAT(std::string(store.Load(id).status().message()),
              HasSubstr("shard state-00002-of-00003-"));
  ASSERT_TRUE(blobs_.Delete(shard).ok());
  EXPECT_THAT(std::string(store.Load(id).status().message()),
              HasSubstr("shard state-00002-of-00003-"));
  const auto newest = store.NewestVerified(kAny);
  ASSERT_TRUE(newest.ok());
  EXPECT_EQ(newest->checkpoint->state().id, (StateId{1, 1, 1}));
  ASSERT_THAT(newest->skipped, SizeIs(1));
  EXPECT_EQ(newest->skipped[0].name, NameOf(id));
}

// It may be whole: training must not go on from an older one because storage was slow once.
TEST_F(CheckpointStoreTest, ACheckpointThatCannotBeReadNowIsNotTakenForADamagedOne) {
  CheckpointStore store = Store();
  const StateId id{1, 1, 2};
  ASSERT_TRUE(store.Write(TestState({1, 1, 1}).get()).ok());
  ASSERT_TRUE(store.Write(TestState(id).get()).ok());
  for (const absl::Status& error :
       {absl::UnavailableError("no answer"), absl::DeadlineExceededError("too late"),
        absl::ResourceExhaustedError("too many requests"), absl::PermissionDeniedError("not you"),
        absl::InternalError("what?")}) {
    for (const std::string& part : {Manifest(id), Shard(id)}) {
      blobs_.FailReads(part, error);
      const absl::Status status = store.NewestVerified(kAny).status();
      EXPECT_EQ(status.code(), error.code()) << part;
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr(NameOf(id)), HasSubstr(std::string(error.message())),
                        HasSubstr("remove it to go on")));
      blobs_.FailReads("", absl::OkStatus());
      EXPECT_EQ(Newest(store), id) << "it was whole";
    }
  }
  // What shows that it is not whole is another matter.
  for (const absl::Status& error :
       {absl::DataLossError("I/O error"), absl::NotFoundError("gone"),
        absl::OutOfRangeError("ends early"), absl::InvalidArgumentError("a folder")}) {
    blobs_.FailReads(Shard(id), error);
    EXPECT_EQ(Newest(store), (StateId{1, 1, 1})) << error;
  }
  blobs_.FailReads("", absl::OkStatus());
  blobs_.Set(Shard(id), blobs_.Get(Shard(id)) + "more");
  EXPECT_EQ(Newest(store), (StateId{1, 1, 1})) << "too long";
}

TEST_F(CheckpointStoreTest, AManifestUnderAnotherNameIsRefused) {
  CheckpointStore store = Store();
  ASSERT_TRUE(store.Write(TestState({1, 1, 1}).get()).ok());
  blobs_.Set(Manifest({1, 1, 9}), blobs_.Get(Manifest({1, 1, 1})));
  EXPECT_THAT(std::string(store.Load({1, 1, 9}).status().message()),
              HasSubstr("its manifest is that of state"));
}

TEST_F(CheckpointStoreTest, RandomManifestsAreNeverMoreThanAnError) {
  CheckpointStore store = Store();
  const StateId id{1, 1, 1};
  ASSERT_TRUE(store.Write(TestState(id).get()).ok());
  const std::string path = Manifest(id);
  const std::string whole = blobs_.Get(path);
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    std::string text = whole;
    const std::size_t begin = random() % text.size();
    text.replace(begin, random() % 40, whole, random() % whole.size(), random() % 40);
    if (text == whole) continue;
    blobs_.Set(path, text);
    EXPECT_FALSE(store.Load(id).ok());
  }
}

// S05: the process dies at any change that a write makes, before or after the change.
TEST_F(CheckpointStoreTest, DyingAtAnyPointLeavesTheOldOrTheNewOneNeverAHalf) {
  const StateId old_id{1, 1, 1};
  const StateId new_id{1, 1, 2};
  int with_new = 0;
  for (int die_at = 0; die_at < 4; ++die_at) {
    for (const bool happens : {false, true}) {
      storage::MemoryBlobStore blobs;
      CheckpointStore dying(blobs, "uid", /*shard_bytes=*/20);
      ASSERT_TRUE(dying.Write(TestState(old_id).get()).ok());
      blobs.Fail({.at = die_at,
                  .status = absl::UnavailableError("dead"),
                  .happens = happens,
                  .dead = true});
      EXPECT_FALSE(dying.Write(TestState(new_id).get()).ok()) << die_at;
      blobs.Fail({});
      CheckpointStore successor(blobs, "uid");
      const auto newest = Newest(successor);
      EXPECT_TRUE(newest == old_id || newest == new_id) << die_at;
      with_new += newest == new_id;
      ASSERT_TRUE(successor.Write(TestState({1, 2, 2}).get()).ok());
      ASSERT_TRUE(successor.Retain(1, {1, 2, 2}).ok());
      EXPECT_THAT(*blobs.List(""), SizeIs(2)) << die_at;
    }
  }
  EXPECT_EQ(with_new, 1);  // dying when the manifest is there and nobody has heard of it
}

TEST_F(CheckpointStoreTest, AWriteIsThreeShardsAndAManifestAtTheEnd) {
  CheckpointStore store = Store(/*shard_bytes=*/20);
  blobs_.Fail({});
  ASSERT_TRUE(store.Write(TestState({1, 1, 1}).get()).ok());
  EXPECT_EQ(blobs_.changes(), 4) << "the tests of faults go through all of them";
}

// S02, S03: the store refuses any one change and works again afterwards.
TEST_F(CheckpointStoreTest, AFullOrFailingStoreKeepsTheOldOneAndGivesTheSpaceBack) {
  for (const absl::Status& error :
       {absl::ResourceExhaustedError("no space"), absl::DataLossError("I/O error"),
        absl::PermissionDeniedError("read-only")}) {
    for (int fail_at = 0; fail_at < 4; ++fail_at) {
      storage::MemoryBlobStore blobs;
      CheckpointStore store(blobs, "uid", /*shard_bytes=*/20);
      ASSERT_TRUE(store.Write(TestState({1, 1, 1}).get()).ok());
      blobs.Fail({.at = fail_at, .status = error});
      const absl::Status status = store.Write(TestState({1, 1, 2}).get());
      EXPECT_EQ(status.code(), error.code()) << fail_at;
      EXPECT_THAT(*blobs.List(absl::StrCat("uid/", NameOf({1, 1, 2}))), IsEmpty()) << fail_at;
      EXPECT_TRUE(store.Write(TestState({1, 1, 3}).get()).ok());
      EXPECT_EQ(Newest(store), (StateId{1, 1, 3}));
    }
  }
}

// Whether the manifest is there is not known then, so what it names must stay.
TEST_F(CheckpointStoreTest, AManifestThatWasPutInSpiteOfAnErrorKeepsItsShards) {
  CheckpointStore store = Store(/*shard_bytes=*/20);
  blobs_.Fail({.at = 3, .status = absl::UnavailableError("no answer"), .happens = true});
  EXPECT_FALSE(store.Write(TestState({1, 1, 2}).get()).ok());
  EXPECT_EQ(Newest(store), (StateId{1, 1, 2}));
}

TEST_F(CheckpointStoreTest, CommittingTheSameStateTwiceKeepsOne) {
  CheckpointStore store = Store();
  const TestState state({1, 1, 1});
  ASSERT_TRUE(store.Write(state.get()).ok());
  ASSERT_TRUE(store.Write(state.get()).ok());
  EXPECT_THAT(Names(), SizeIs(2));
}

TEST_F(CheckpointStoreTest, ABrokenOneOfTheSameNameIsReplaced) {
  CheckpointStore store = Store();
  const TestState state({1, 1, 1});
  ASSERT_TRUE(store.Write(state.get()).ok());
  blobs_.Set(Shard({1, 1, 1}), "broken");
  ASSERT_FALSE(store.Load({1, 1, 1}).ok());
  ASSERT_TRUE(store.Write(state.get()).ok());
  EXPECT_TRUE(store.Load({1, 1, 1}).ok());
}

TEST_F(CheckpointStoreTest, TwoWritersNeverMixTheirShards) {
  std::vector<std::thread> writers;
  for (std::int64_t incarnation = 1; incarnation <= 2; ++incarnation) {
    writers.emplace_back([this, incarnation] {
      CheckpointStore store = Store(/*shard_bytes=*/20);
      for (std::int64_t step = 1; step <= 30; ++step) {
        const StateId id{incarnation, 1, step};
        const absl::Status status = store.Write(TestState(id).get());
        // The newer side may remove what the older one is just writing, never the reverse.
        EXPECT_TRUE(status.ok() || incarnation == 1) << status;
        store.Retain(2, id).IgnoreError();
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  const CheckpointStore store = Store();
  int verified = 0;
  const std::vector<StateId> ids = *store.List();
  for (const StateId& id : ids) {
    const auto loaded = store.Load(id);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_TRUE(SameBytes(TestState(id).get(), *loaded));
    ++verified;
  }
  EXPECT_GE(verified, 2);
  EXPECT_EQ(Newest(store), (StateId{2, 1, 30}));
}

TEST_F(CheckpointStoreTest, RetentionKeepsTheNewestAndNothingOfALaterView) {
  CheckpointStore store = Store();
  for (std::int64_t step = 1; step <= 5; ++step) {
    ASSERT_TRUE(store.Write(TestState({1, 2, step}).get()).ok());
  }
  ASSERT_TRUE(store.Write(TestState({1, 3, 4}).get()).ok());
  ASSERT_TRUE(store.Retain(2, {1, 2, 5}).ok());
  EXPECT_THAT(*store.List(), ElementsAre(StateId{1, 3, 4}, StateId{1, 2, 5}, StateId{1, 2, 4}));
  ASSERT_TRUE(store.Retain(1, {1, 3, 4}).ok());
  EXPECT_THAT(*store.List(), ElementsAre(StateId{1, 3, 4}));
}

TEST_F(CheckpointStoreTest, RetentionLeavesForeignNamesAndYoungShardsAlone) {
  CheckpointStore store = Store();
  ASSERT_TRUE(store.Write(TestState({1, 1, 1}).get()).ok());
  const auto young = store.Prepare(TestState({1, 1, 7}).get());
  const auto old = store.Prepare(TestState({1, 1, 0}).get());
  blobs_.Set("uid/notes", "mine");
  const std::string no_folder = absl::StrCat("uid/", NameOf({1, 0, 0}));
  blobs_.Set(no_folder, "mine");
  ASSERT_TRUE(store.Retain(1, {1, 1, 1}).ok());
  EXPECT_TRUE(blobs_.Size(no_folder).ok());
  EXPECT_TRUE(blobs_.Size(young->shards[0]).ok());
  EXPECT_TRUE(absl::IsNotFound(blobs_.Size(old->shards[0]).status()));
  EXPECT_TRUE(blobs_.Size("uid/notes").ok());
  EXPECT_TRUE(store.Commit(*young).ok());
}

// The other half of what keeps two writers apart; the first is in TwoWritersNeverMixTheirShards.
TEST_F(CheckpointStoreTest, AManifestIsTakenBackIfALaterViewHasRemovedItsShards) {
  CheckpointStore store = Store();
  const auto prepared = store.Prepare(TestState({1, 1, 1}).get());
  ASSERT_TRUE(store.Write(TestState({2, 1, 1}).get()).ok());
  ASSERT_TRUE(store.Retain(1, {2, 1, 1}).ok());
  const absl::Status status = store.Commit(*prepared);
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_THAT(*store.List(), ElementsAre(StateId{2, 1, 1}));
  EXPECT_THAT(Names(), SizeIs(2));
}

// S10: the process dies at any change that retention makes.
TEST_F(CheckpointStoreTest, DyingWhileRemovingLeavesTheNewestIntact) {
  for (int die_at = 0; die_at < 12; ++die_at) {
    storage::MemoryBlobStore blobs;
    CheckpointStore dying(blobs, "uid");
    for (std::int64_t step = 1; step <= 5; ++step) {
      ASSERT_TRUE(dying.Write(TestState({1, 1, step}).get()).ok());
    }
    blobs.Fail({.at = die_at, .status = absl::UnavailableError("dead"), .dead = true});
    EXPECT_FALSE(dying.Retain(2, {1, 1, 5}).ok());
    blobs.Fail({});
    CheckpointStore successor(blobs, "uid");
    const std::vector<StateId> ids = *successor.List();
    for (const StateId& id : ids) EXPECT_TRUE(successor.Load(id).ok());
    EXPECT_TRUE(successor.Load({1, 1, 4}).ok());
    EXPECT_TRUE(successor.Load({1, 1, 5}).ok());
    ASSERT_TRUE(successor.Retain(2, {1, 1, 5}).ok());
    EXPECT_THAT(*blobs.List(""), SizeIs(4));
  }
}

TEST_F(CheckpointStoreTest, AModelIsReplacedAsAWholeAndEqualParametersGiveEqualDigests) {
  TestState state({1, 1, 1});
  const auto first = WriteModel(blobs_, kModel, state.get().tensors, {{"model", "mlp"}});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*first, bytes::Sha256Hex(blobs_.Get(kModel)));
  EXPECT_EQ(*first,
            *WriteModel(blobs_, kModel, TestState({1, 1, 1}).get().tensors, {{"model", "mlp"}}));
  state.weights()[5] += 1;
  EXPECT_NE(*first, *WriteModel(blobs_, kModel, state.get().tensors, {{"model", "mlp"}}));
  EXPECT_THAT(Names(), ElementsAre(kModel));
}

TEST_F(CheckpointStoreTest, AModelThatCannotBeWrittenLeavesTheOldOne) {
  ASSERT_TRUE(WriteModel(blobs_, kModel, TestState({1, 1, 1}).get().tensors, {}).ok());
  const std::string before = blobs_.Get(kModel);
  blobs_.Fail({.at = 0, .status = absl::ResourceExhaustedError("no space")});
  EXPECT_FALSE(WriteModel(blobs_, kModel, TestState({1, 1, 2}).get().tensors, {}).ok());
  EXPECT_EQ(blobs_.Get(kModel), before);
}

}  // namespace
}  // namespace starling::checkpoint
