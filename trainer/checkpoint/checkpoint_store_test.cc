// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/checkpoint_store.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/faulty_file_system.h"
#include "trainer/testing/test_states.h"

namespace starling::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr std::int64_t kAny = 1000;

class CheckpointStoreTest : public ::testing::Test {
 protected:
  CheckpointStore Store(std::size_t shard_bytes = CheckpointStore::kShardBytes) {
    return CheckpointStore(*files_, folder_.path(), "uid", shard_bytes);
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

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    if (!fs::exists(folder_.path() + "/uid")) return names;
    for (const auto& entry : fs::directory_iterator(folder_.path() + "/uid")) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

  std::string Shard(const CheckpointStore& store, const StateId& id) const {
    return store.PathOf(id) + "/state-00001-of-00001.safetensors";
  }

  TestFolder folder_;
  const std::unique_ptr<FileSystem> files_ = MakePosixFileSystem();
};

TEST(StateId, NamesSortAsIdsDo) {
  EXPECT_EQ(NameOf({3, 12, 456}), "0000000003-0000000012-000000000000000456");
  EXPECT_EQ(ParseName(NameOf({3, 12, 456})), (StateId{3, 12, 456}));
  EXPECT_LT(NameOf({9, 1, 1}), NameOf({10, 0, 0}));
  for (const char* bad :
       {"", "x", ".tmp-0000000003-0000000012-000000000000000456",
        "0000000003-0000000012-00000000000000045", "0000000003_0000000012-000000000000000456",
        "-000000003-0000000012-000000000000000456", "0000000003-0000000012-00000000000000045x"}) {
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
  EXPECT_THAT(Names(), ElementsAre(NameOf({1, 2, 3})));
}

TEST_F(CheckpointStoreTest, ManyShardsAreOneState) {
  CheckpointStore store = Store(/*shard_bytes=*/20);
  const TestState state({1, 2, 3});
  ASSERT_TRUE(store.Write(state.get()).ok());
  EXPECT_TRUE(fs::exists(store.PathOf({1, 2, 3}) + "/state-00003-of-00003.safetensors"));
  EXPECT_TRUE(SameBytes(state.get(), *store.Load({1, 2, 3})));
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

TEST_F(CheckpointStoreTest, OtherJobsFoldersAreNeverLookedAt) {
  CheckpointStore other(*files_, "file://" + folder_.path(), "other");
  ASSERT_TRUE(other.Write(TestState({1, 1, 1}).get()).ok());
  EXPECT_EQ(Newest(Store()), std::nullopt);
}

TEST_F(CheckpointStoreTest, EveryTruncationOfEveryFileFallsBackToTheOneBefore) {
  CheckpointStore store = Store();
  const StateId id{1, 1, 2};
  ASSERT_TRUE(store.Write(TestState({1, 1, 1}).get()).ok());
  ASSERT_TRUE(store.Write(TestState(id).get()).ok());
  int bad_loads = 0;
  for (const std::string& path : {Shard(store, id), store.PathOf(id) + "/manifest.json"}) {
    const std::string whole = ReadAll(path);
    for (std::size_t size = 0; size < whole.size(); size += 1 + size / 40) {
      WriteAllOf(path, whole.substr(0, size));
      bad_loads += store.Load(id).ok();
    }
    WriteAllOf(path, whole.substr(0, whole.size() - 1));
    bad_loads += store.Load(id).ok();
    EXPECT_EQ(Newest(store), (StateId{1, 1, 1}));
    WriteAllOf(path, whole);
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
  for (const std::string& path : {Shard(store, id), store.PathOf(id) + "/manifest.json"}) {
    const std::string whole = ReadAll(path);
    for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
      std::string flipped = whole;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
      WriteAllOf(path, flipped);
      ++flips;
      undetected += store.Load(id).ok();
    }
    WriteAllOf(path, whole);
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
  const std::string shard = "/state-00002-of-00003.safetensors";
  fs::copy_file(store.PathOf({1, 1, 1}) + shard, store.PathOf(id) + shard,
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(std::string(store.Load(id).status().message()),
              HasSubstr("shard state-00002-of-00003.safetensors"));
  fs::remove(store.PathOf(id) + shard);
  EXPECT_THAT(std::string(store.Load(id).status().message()),
              HasSubstr("shard state-00002-of-00003.safetensors"));
  const auto newest = store.NewestVerified(kAny);
  ASSERT_TRUE(newest.ok());
  EXPECT_EQ(newest->checkpoint->state().id, (StateId{1, 1, 1}));
  ASSERT_THAT(newest->skipped, SizeIs(1));
  EXPECT_EQ(newest->skipped[0].name, NameOf(id));
}

TEST_F(CheckpointStoreTest, AFolderUnderAnotherNameIsRefused) {
  CheckpointStore store = Store();
  ASSERT_TRUE(store.Write(TestState({1, 1, 1}).get()).ok());
  fs::rename(store.PathOf({1, 1, 1}), store.PathOf({1, 1, 9}));
  EXPECT_THAT(std::string(store.Load({1, 1, 9}).status().message()),
              HasSubstr("its manifest is that of state"));
}

TEST_F(CheckpointStoreTest, RandomManifestsAreNeverMoreThanAnError) {
  CheckpointStore store = Store();
  const StateId id{1, 1, 1};
  ASSERT_TRUE(store.Write(TestState(id).get()).ok());
  const std::string path = store.PathOf(id) + "/manifest.json";
  const std::string whole = ReadAll(path);
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    std::string text = whole;
    const std::size_t begin = random() % text.size();
    text.replace(begin, random() % 40, whole, random() % whole.size(), random() % 40);
    if (text == whole) continue;
    WriteAllOf(path, text);
    EXPECT_FALSE(store.Load(id).ok());
  }
}

// S05: the process dies at any change that a write makes to the disk.
TEST_F(CheckpointStoreTest, DyingAtAnyPointLeavesTheOldOrTheNewOneNeverAHalf) {
  const StateId old_id{1, 1, 1};
  const StateId new_id{1, 1, 2};
  int with_new = 0;
  int changes = 1;
  for (int die_at = 0; die_at < changes; ++die_at) {
    const TestFolder folder;
    FaultyFileSystem faulty(*files_);
    CheckpointStore dying(faulty, folder.path(), "uid", /*shard_bytes=*/20);
    ASSERT_TRUE(dying.Write(TestState(old_id).get()).ok());
    faulty.FailAt(die_at, absl::UnavailableError("dead"), /*dead=*/true);
    const absl::Status status = dying.Write(TestState(new_id).get());
    if (die_at == 0) {
      faulty.FailAt(-1, absl::OkStatus(), false);
      ASSERT_TRUE(dying.Write(TestState({1, 1, 3}).get()).ok());
      changes = faulty.changes();
      ASSERT_GE(changes, 8);
      fs::remove_all(dying.PathOf({1, 1, 3}));
    }
    EXPECT_FALSE(status.ok());
    CheckpointStore successor(*files_, folder.path(), "uid");
    const auto newest = Newest(successor);
    EXPECT_TRUE(newest == old_id || newest == new_id) << die_at;
    with_new += newest == new_id;
    ASSERT_TRUE(successor.Write(TestState({1, 2, 2}).get()).ok());
    ASSERT_TRUE(successor.Retain(1, {1, 2, 2}).ok());
    EXPECT_THAT(*files_->List(successor.folder()), ElementsAre(NameOf({1, 2, 2}))) << die_at;
  }
  EXPECT_EQ(with_new, 1);  // dying between the rename and its sync
}

// S02, S03: the disk refuses any one change and works again afterwards.
TEST_F(CheckpointStoreTest, AFullOrFailingDiskKeepsTheOldOneAndGivesTheSpaceBack) {
  for (const absl::Status& error :
       {absl::ResourceExhaustedError("no space"), absl::DataLossError("I/O error"),
        absl::PermissionDeniedError("read-only")}) {
    for (int fail_at = 0; fail_at < 8; ++fail_at) {
      const TestFolder folder;
      FaultyFileSystem faulty(*files_);
      CheckpointStore store(faulty, folder.path(), "uid", /*shard_bytes=*/20);
      ASSERT_TRUE(store.Write(TestState({1, 1, 1}).get()).ok());
      faulty.FailAt(fail_at, error, /*dead=*/false);
      const absl::Status status = store.Write(TestState({1, 1, 2}).get());
      EXPECT_EQ(status.code(), error.code()) << fail_at;
      const auto names = *files_->List(store.folder());
      EXPECT_EQ(names.front(), NameOf({1, 1, 1}));
      for (const std::string& name : names) EXPECT_NE(name.substr(0, 4), ".tmp");
      EXPECT_TRUE(store.Write(TestState({1, 1, 3}).get()).ok());
      EXPECT_EQ(Newest(store), (StateId{1, 1, 3}));
    }
  }
}

TEST_F(CheckpointStoreTest, AFolderWithoutPermissionIsAnError) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  ::chmod(folder_.path().c_str(), 0500);
  EXPECT_TRUE(absl::IsPermissionDenied(Store().Write(TestState({1, 1, 1}).get())));
  ::chmod(folder_.path().c_str(), 0700);
}

TEST_F(CheckpointStoreTest, ARealFullDiskKeepsTheOldOneAndItsSpace) {
  if (::mount("starling", folder_.path().c_str(), "tmpfs", 0, "size=256k") != 0) {
    GTEST_SKIP() << "needs the right to mount a tmpfs";
  }
  const std::unique_ptr<const char, void (*)(const char*)> mounted(
      folder_.path().c_str(), [](const char* path) { ::umount2(path, MNT_DETACH); });
  CheckpointStore store = Store();
  ASSERT_TRUE(store.Write(TestState({1, 1, 1}, 10'000).get()).ok());
  const auto before = fs::space(folder_.path()).available;
  const absl::Status status = store.Write(TestState({1, 1, 2}, 100'000).get());
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(fs::space(folder_.path()).available, before);
  EXPECT_EQ(Newest(store, 10'000), (StateId{1, 1, 1}));
}

TEST_F(CheckpointStoreTest, CommittingTheSameStateTwiceKeepsOne) {
  CheckpointStore store = Store();
  const TestState state({1, 1, 1});
  ASSERT_TRUE(store.Write(state.get()).ok());
  ASSERT_TRUE(store.Write(state.get()).ok());
  EXPECT_THAT(Names(), SizeIs(1));
}

TEST_F(CheckpointStoreTest, ABrokenOneOfTheSameNameIsReplaced) {
  CheckpointStore store = Store();
  const TestState state({1, 1, 1});
  ASSERT_TRUE(store.Write(state.get()).ok());
  WriteAllOf(Shard(store, {1, 1, 1}), "broken");
  ASSERT_FALSE(store.Load({1, 1, 1}).ok());
  ASSERT_TRUE(store.Write(state.get()).ok());
  EXPECT_TRUE(store.Load({1, 1, 1}).ok());
  EXPECT_THAT(Names(), SizeIs(1));
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

TEST_F(CheckpointStoreTest, RetentionLeavesForeignNamesAndYoungTemporariesAlone) {
  CheckpointStore store = Store();
  ASSERT_TRUE(store.Write(TestState({1, 1, 1}).get()).ok());
  const auto young = store.Prepare(TestState({1, 1, 7}).get());
  const auto old = store.Prepare(TestState({1, 1, 0}).get());
  fs::create_directory(store.folder() + "/notes");
  ASSERT_TRUE(store.Retain(1, {1, 1, 1}).ok());
  EXPECT_TRUE(fs::exists(*young));
  EXPECT_FALSE(fs::exists(*old));
  EXPECT_TRUE(fs::exists(store.folder() + "/notes"));
}

// S10: the process dies at any change that retention makes.
TEST_F(CheckpointStoreTest, DyingWhileRemovingLeavesTheNewestIntact) {
  for (int die_at = 0; die_at < 8; ++die_at) {
    const TestFolder folder;
    FaultyFileSystem faulty(*files_);
    CheckpointStore dying(faulty, folder.path(), "uid");
    for (std::int64_t step = 1; step <= 5; ++step) {
      ASSERT_TRUE(dying.Write(TestState({1, 1, step}).get()).ok());
    }
    faulty.FailAt(die_at, absl::UnavailableError("dead"), /*dead=*/true);
    dying.Retain(2, {1, 1, 5}).IgnoreError();
    CheckpointStore successor(*files_, folder.path(), "uid");
    const std::vector<StateId> ids = *successor.List();
    for (const StateId& id : ids) EXPECT_TRUE(successor.Load(id).ok());
    EXPECT_TRUE(successor.Load({1, 1, 4}).ok());
    EXPECT_TRUE(successor.Load({1, 1, 5}).ok());
    ASSERT_TRUE(successor.Retain(2, {1, 1, 5}).ok());
    EXPECT_THAT(*files_->List(successor.folder()), SizeIs(2));
  }
}

TEST_F(CheckpointStoreTest, AModelIsReplacedAsAWholeAndEqualParametersGiveEqualDigests) {
  const std::string path = folder_.path() + "/job/model.safetensors";
  TestState state({1, 1, 1});
  const auto first = WriteModel(*files_, path, state.get().tensors, {{"model", "mlp"}});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*first, bytes::Sha256Hex(ReadAll(path)));
  const auto second =
      WriteModel(*files_, path, TestState({1, 1, 1}).get().tensors, {{"model", "mlp"}});
  EXPECT_EQ(*first, *second);
  state.weights()[5] += 1;
  EXPECT_NE(*first, *WriteModel(*files_, path, state.get().tensors, {{"model", "mlp"}}));
  EXPECT_THAT(*files_->List(folder_.path() + "/job"), ElementsAre("model.safetensors"));
}

TEST_F(CheckpointStoreTest, AModelThatCannotBeWrittenLeavesTheOldOne) {
  const std::string path = folder_.path() + "/model.safetensors";
  const TestState state({1, 1, 1});
  ASSERT_TRUE(WriteModel(*files_, path, state.get().tensors, {}).ok());
  const std::string before = ReadAll(path);
  FaultyFileSystem faulty(*files_);
  faulty.FailAt(1, absl::ResourceExhaustedError("no space"), /*dead=*/false);
  EXPECT_FALSE(WriteModel(faulty, path, TestState({1, 1, 2}).get().tensors, {}).ok());
  EXPECT_EQ(ReadAll(path), before);
  EXPECT_THAT(*files_->List(folder_.path()), ElementsAre("model.safetensors"));
}

}  // namespace
}  // namespace starling::checkpoint
