// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/object_cache.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/storage/test_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::data {
namespace {

namespace fs = std::filesystem;
using testing::SizeIs;

constexpr std::size_t kSize = 1000;       // of each blob
constexpr std::size_t kKept = 1000 + 32;  // of its file

// A store far away: blob 7's bytes are all 7. Counts how often it is asked.
class FarStore final : public storage::BlobStore {
 public:
  absl::Status Put(const std::string&, storage::Pieces, storage::IfPresent) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<std::size_t> Size(const std::string&) override { return kSize; }
  absl::Status Read(const std::string& name, std::size_t, std::span<std::byte> into) override {
    ++reads;
    if (away) return absl::UnavailableError("the store is away");
    std::ranges::fill(into, static_cast<std::byte>(std::stoi(name)));
    return absl::OkStatus();
  }
  absl::Status Delete(const std::string&) override { return absl::UnimplementedError(""); }
  absl::StatusOr<std::vector<std::string>> List(const std::string&) override {
    return absl::UnimplementedError("");
  }
  std::string UriOf(std::string_view name) const override {
    return "s3://bucket/" + std::string(name);
  }

  std::atomic<int> reads = 0;
  std::atomic<bool> away = false;
};

class ObjectCacheTest : public testing::Test {
 protected:
  std::unique_ptr<ObjectCache> Open(std::size_t blobs) {
    return std::make_unique<ObjectCache>(folder_, blobs * kKept);
  }
  // Whether the blob is what the store has.
  void Get(ObjectCache& cache, int blob, std::string_view version = "v1", std::size_t offset = 0) {
    std::vector<std::byte> into(kSize);
    const absl::Status status = cache.Read(store_, absl::StrCat(blob), version, offset, into);
    ASSERT_TRUE(status.ok()) << status;
    for (const std::byte byte : into) ASSERT_EQ(byte, static_cast<std::byte>(blob));
  }
  bool Asks(ObjectCache& cache, int blob, std::string_view version = "v1") {
    const int before = store_.reads;
    Get(cache, blob, version);
    return store_.reads > before;
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      if (entry.is_regular_file() && entry.path().filename() != ".lock") {
        files.push_back(entry.path().string());
      }
    }
    return files;
  }
  std::uint64_t Bytes() const {
    std::uint64_t bytes = 0;
    std::error_code gone;
    for (const std::string& file : Files()) bytes += fs::file_size(file, gone);
    return bytes;
  }

  storage::TestFolder home_;
  const std::string folder_ = home_.path() + "/deep/cache";
  FarStore store_;
};

TEST_F(ObjectCacheTest, WhatWasReadIsReadFromHereByAllAndLater) {
  const auto mine = Open(10);
  const auto yours = Open(10);
  EXPECT_TRUE(Asks(*mine, 1));
  EXPECT_FALSE(Asks(*mine, 1));
  EXPECT_FALSE(Asks(*yours, 1));
  EXPECT_FALSE(Asks(*Open(10), 1)) << "the next job";
  store_.away = true;
  Get(*mine, 1);
}

TEST_F(ObjectCacheTest, AnotherVersionOrStretchIsAnother) {
  const auto cache = Open(10);
  Get(*cache, 1);
  EXPECT_TRUE(Asks(*cache, 1, "v2"));
  EXPECT_FALSE(Asks(*cache, 1, "v1"));
  const int before = store_.reads;
  Get(*cache, 1, "v1", 5);
  EXPECT_EQ(store_.reads, before + 1);
  EXPECT_TRUE(Asks(*cache, 1, "")) << "of an unknown version nothing is kept";
  EXPECT_TRUE(Asks(*cache, 1, ""));
}

TEST_F(ObjectCacheTest, TheStoresErrorsAreToldAndNotKept) {
  const auto cache = Open(10);
  store_.away = true;
  std::vector<std::byte> into(kSize);
  EXPECT_TRUE(absl::IsUnavailable(cache->Read(store_, "1", "v1", 0, into)));
  store_.away = false;
  EXPECT_TRUE(Asks(*cache, 1));
}

TEST_F(ObjectCacheTest, WhatIsUsedStaysWhenThereIsNoRoom) {
  const auto cache = Open(3);
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (int blob = 0; blob < 6; ++blob) Get(*cache, blob);
  }
  EXPECT_EQ(store_.reads, 6 + 3 + 3);
  EXPECT_EQ(Bytes(), 3 * kKept);
}

TEST_F(ObjectCacheTest, WhatEarlierJobsLeftGoesLeastRecentlyUsedFirst) {
  {
    const auto earlier = Open(4);
    for (const int blob : {1, 2, 3, 4}) Get(*earlier, blob);
    Get(*earlier, 1);  // again, so that 2 is the oldest
  }
  const auto cache = Open(4);
  Get(*cache, 5);
  EXPECT_EQ(Bytes(), 4 * kKept);
  store_.reads = 0;
  for (const int blob : {1, 3, 4, 5}) Get(*cache, blob);
  EXPECT_EQ(store_.reads, 0);
  EXPECT_TRUE(Asks(*cache, 2));
}

TEST_F(ObjectCacheTest, TheBoundHoldsWhileManyWrite) {
  std::vector<std::unique_ptr<ObjectCache>> caches;
  for (int i = 0; i < 4; ++i) caches.push_back(Open(20));
  std::vector<std::thread> threads;
  for (auto& cache : caches) {
    threads.emplace_back([&, mine = cache.get()] {
      for (int blob = 0; blob < 60; ++blob) Get(*mine, blob);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Bytes(), 20 * kKept);
  for (auto& cache : caches) {
    for (int blob = 0; blob < 60; ++blob) Get(*cache, blob);
  }
}

TEST_F(ObjectCacheTest, AHalfOrRottenFileIsNeverTakenForWhole) {
  Get(*Open(10), 7);
  const std::string file = Files()[0];
  const std::string content = storage::TestFolder::Read(file);
  ASSERT_EQ(content.size(), kKept);
  const auto cache = Open(10);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kSize, kKept - 1}) {
    fs::resize_file(file, size);
    EXPECT_TRUE(Asks(*cache, 7)) << size;
    EXPECT_FALSE(Asks(*cache, 7));
  }
  std::string rotten = content;
  rotten[500] ^= 1;
  fs::remove(file);
  std::ofstream(file, std::ios::binary) << rotten;
  EXPECT_TRUE(Asks(*cache, 7));
  EXPECT_EQ(storage::TestFolder::Read(file), content);
}

// A process that dies wherever it is leaves nothing that is taken for whole, and the bound holds.
TEST_F(ObjectCacheTest, AKilledWriterLeavesNothingThatCounts) {
  for (int round = 0; round < 20; ++round) {
    int told[2];
    ASSERT_EQ(::pipe(told), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ObjectCache cache(folder_, 50 * kKept);
      std::vector<std::byte> into(kSize);
      for (int blob = 0;; ++blob) {
        (void)cache.Read(store_, absl::StrCat(blob % 200), absl::StrCat(round), 0, into);
        if (::write(told[1], "x", 1) != 1) ::_exit(1);
      }
    }
    // Somewhere in its next ones.
    std::vector<char> written(static_cast<std::size_t>(3 + 4 * round));
    for (std::size_t have = 0; have < written.size();) {
      const ssize_t count = ::read(told[0], written.data() + have, written.size() - have);
      ASSERT_GT(count, 0);
      have += static_cast<std::size_t>(count);
    }
    ::kill(child, SIGKILL);
    ::close(told[0]);
    ::close(told[1]);
    int state = 0;
    ::waitpid(child, &state, 0);
    EXPECT_LE(Bytes(), 50 * kKept) << round;
  }
  const auto cache = Open(50);
  for (int round = 0; round < 20; ++round) {
    for (int blob = 0; blob < 200; blob += 7) Get(*cache, blob, absl::StrCat(round));
  }
  EXPECT_LE(Bytes(), 50 * kKept);
}

TEST_F(ObjectCacheTest, ADiskThatIsFullCostsTimeAndIsTold) {
  const auto cache = Open(10);
  Get(*cache, 1);
  // Files of this process may not grow beyond what a small disk would hold.
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = kKept - 1;  // what is logged must fit as well
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  log::Start("test");
  testing::internal::CaptureStderr();
  EXPECT_TRUE(Asks(*cache, 2));
  EXPECT_TRUE(Asks(*cache, 2));
  EXPECT_FALSE(Asks(*cache, 1)) << "what is there serves";
  const std::string told = testing::internal::GetCapturedStderr();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(told, testing::HasSubstr("the cache of data cannot be written"));
  EXPECT_THAT(Files(), SizeIs(1)) << "and nothing half written stays";
}

TEST_F(ObjectCacheTest, AFolderThatCannotBeMadeCostsTime) {
  home_.Write("deep", "a file");
  const auto cache = Open(10);
  EXPECT_TRUE(Asks(*cache, 1));
  EXPECT_TRUE(Asks(*cache, 1));
}

TEST_F(ObjectCacheTest, WhatOneFileCannotHoldIsNotKept) {
  ObjectCache cache(folder_, kKept - 1);
  Get(cache, 1);
  EXPECT_FALSE(fs::exists(folder_));
}

}  // namespace
}  // namespace starling::data
