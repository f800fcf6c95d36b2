// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/object_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/clock/clock.h"
#include "common/sqlite/sqlite.h"
#include "common/status/macros.h"
#include "common/storage/test_folder.h"
#include "controller/kube/objects.h"
#include "controller/kube/sync_counter_testing.h"

namespace starling::kube {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Transaction = ObjectStore::Transaction;

class ObjectStoreTest : public testing::Test {
 protected:
  std::string Path() const { return folder_.path() + "/store.db"; }

  static std::unique_ptr<ObjectStore> Open(const std::string& path, std::int64_t limit = 4096) {
    auto store = ObjectStore::Open(path, absl::ZeroDuration(), limit);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }

  static Json Object(const std::string& name) {
    return {{"metadata", {{"name", name}, {"namespace", "default"}}}};
  }

  // Puts new objects of that kind, in one transaction.
  static absl::Status Put(ObjectStore& store, int count, const std::string& kind = "pods",
                          ObjectStore::Durability durability = ObjectStore::Durability::kSoon) {
    return store.Write(
        [&](Transaction& transaction) -> absl::Status {
          for (int i = 0; i < count; ++i) {
            const Json object = Object("x" + std::to_string(i));
            RETURN_IF_ERROR(transaction.Put(kind, nullptr, object).status());
          }
          return absl::OkStatus();
        },
        durability);
  }

  // The changes of pods after a version.
  static std::vector<Change> ChangesAfter(ObjectStore& store, std::int64_t version) {
    std::vector<Change> changes;
    const auto read = [&](Transaction& transaction) -> absl::Status {
      ASSIGN_OR_RETURN(changes, transaction.ChangesAfter("pods", "", version, 1000));
      return absl::OkStatus();
    };
    EXPECT_TRUE(store.Read(read).ok());
    return changes;
  }

  static bool ChangedSince(ObjectStore& store, const std::string& kind, std::int64_t version) {
    bool changed = false;
    const auto read = [&](Transaction& transaction) -> absl::Status {
      ASSIGN_OR_RETURN(changed, transaction.ChangedSince(kind, version));
      return absl::OkStatus();
    };
    EXPECT_TRUE(store.Read(read).ok());
    return changed;
  }

  static std::int64_t Compacted(ObjectStore& store) {
    std::int64_t compacted = -1;
    const auto read = [&](Transaction& transaction) -> absl::Status {
      ASSIGN_OR_RETURN(compacted, transaction.Compacted());
      return absl::OkStatus();
    };
    EXPECT_TRUE(store.Read(read).ok());
    return compacted;
  }

  // How long it waits for a commit after a version.
  static absl::Duration WaitedFor(ObjectStore& store, std::int64_t version,
                                  absl::Duration timeout) {
    const clock::SystemClock real;
    const std::atomic<bool> stop = false;
    const absl::Time start = real.Now();
    store.AwaitCommit(version, timeout, stop);
    return real.Now() - start;
  }

  const storage::TestFolder folder_;
};

TEST_F(ObjectStoreTest, AReaderDoesNotHoldBackAWriter) {
  const auto reader = Open(Path());
  const auto writer = Open(Path());

  absl::Status written = absl::UnknownError("not tried");
  const auto read = [&](Transaction& transaction) -> absl::Status {
    RETURN_IF_ERROR(transaction.Version().status());
    written = Put(*writer, 1);
    return absl::OkStatus();
  };

  EXPECT_TRUE(reader->Read(read).ok());
  EXPECT_TRUE(written.ok()) << written;
}

TEST_F(ObjectStoreTest, AnotherProgramsDatabaseThatIsStillEmptyIsNotTaken) {
  ASSERT_TRUE((*sqlite::Database::Open(Path(), {}))->Execute("PRAGMA application_id = 7").ok());

  const auto status = ObjectStore::Open(Path(), absl::ZeroDuration(), 64).status();

  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
}

TEST_F(ObjectStoreTest, AStoreInMemoryNeedsNoFile) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);

  const auto store = ObjectStore::Open(":memory:", absl::ZeroDuration(), 64);

  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(store.ok()) << store.status();
}

TEST_F(ObjectStoreTest, OnlyAWriteThatMustOutliveAPowerCutWaitsForTheDisk) {
  const SyncCounter syncs;
  const auto store = Open(Path());

  const auto syncs_of_write = [&](ObjectStore::Durability durability) {
    const int before = syncs.count();
    EXPECT_TRUE(Put(*store, 1, "pods", durability).ok());
    return syncs.count() - before;
  };

  EXPECT_EQ(syncs_of_write(ObjectStore::Durability::kSoon), 0);
  EXPECT_GT(syncs_of_write(ObjectStore::Durability::kNow), 0);
  EXPECT_GT(syncs_of_write(ObjectStore::Durability::kNow), 0);
  EXPECT_EQ(syncs_of_write(ObjectStore::Durability::kSoon), 0);
}

TEST_F(ObjectStoreTest, ACommitBeforeTheWaitEndsItAtOnce) {
  const auto store = Open(":memory:");
  ASSERT_TRUE(Put(*store, 1).ok());  // version 2

  EXPECT_LT(WaitedFor(*store, 1, absl::Seconds(10)), absl::Seconds(5));
}

TEST_F(ObjectStoreTest, WithoutANewCommitAWaitLastsAsLongAsAsked) {
  const auto store = Open(":memory:");
  ASSERT_TRUE(Put(*store, 1).ok());  // version 2

  EXPECT_GE(WaitedFor(*store, 2, absl::Milliseconds(10)), absl::Milliseconds(9));
}

TEST_F(ObjectStoreTest, EachChangeSaysWhatItDidAndItsVersion) {
  const auto store = Open(":memory:");
  const auto write = [](Transaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(const Json added, transaction.Put("pods", nullptr, Object("x")));
    ASSIGN_OR_RETURN(const Json modified, transaction.Put("pods", &added, added));
    return transaction.Remove("pods", modified).status();
  };
  ASSERT_TRUE(store->Write(write, ObjectStore::Durability::kSoon).ok());

  std::vector<std::int64_t> versions;
  std::vector<WatchEventType> types;
  for (const Change& change : ChangesAfter(*store, 0)) {
    versions.push_back(change.version);
    types.push_back(change.type);
  }
  EXPECT_THAT(versions, ElementsAre(2, 3, 4));
  EXPECT_THAT(types, ElementsAre(WatchEventType::kAdded, WatchEventType::kModified,
                                 WatchEventType::kDeleted));
}

TEST_F(ObjectStoreTest, AStoreWithoutItsVersionCounterIsDamaged) {
  Open(Path());
  ASSERT_TRUE((*sqlite::Database::Open(Path(), {}))->Execute("DELETE FROM counters").ok());

  const auto status = Put(*Open(Path()), 1);

  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("version counter"));
}

TEST_F(ObjectStoreTest, ForgottenChangesAreThoseBeyondTheLimitAtEachSixtyFourthVersion) {
  struct Case {
    std::int64_t limit;
    int version;  // the newest
    std::int64_t compacted;
  };
  for (const Case& c : {Case{4096, 64, 0}, {64, 64, 0}, {63, 64, 1}, {64, 130, 64}}) {
    SCOPED_TRACE(testing::Message() << "limit " << c.limit << ", version " << c.version);
    const auto store = Open(":memory:", c.limit);
    ASSERT_TRUE(Put(*store, c.version - 1).ok());

    EXPECT_EQ(Compacted(*store), c.compacted);
    EXPECT_EQ(ChangesAfter(*store, 0).size(), c.version - std::max<std::int64_t>(c.compacted, 1));
  }
}

TEST_F(ObjectStoreTest, WhatIsForgottenCountsAsChanged) {
  const auto store = Open(":memory:", /*limit=*/64);
  ASSERT_TRUE(Put(*store, 127).ok());  // version 128, of which those up to 64 are forgotten

  EXPECT_TRUE(ChangedSince(*store, "services", 63));
  EXPECT_FALSE(ChangedSince(*store, "services", 64));
  EXPECT_TRUE(ChangedSince(*store, "pods", 64));
}

}  // namespace
}  // namespace starling::kube
