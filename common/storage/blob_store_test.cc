// SPDX-License-Identifier: Apache-2.0
// What every store promises, run against each of them; a store that can only be read runs the
// reading half.
#include "common/storage/blob_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utime.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/bytes/bytes.h"
#include "common/http/http_server.h"
#include "common/status/macros.h"
#include "common/storage/file_blob_store.h"
#include "common/storage/http_blob_store.h"
#include "common/storage/memory_blob_store.h"
#include "common/storage/place.h"
#include "common/storage/test_folder.h"
#include "common/sync/mutex.h"

namespace {

// The folders and files that were synced, by their paths.
class Synced {
 public:
  void Add(int file) {
    std::error_code error;
    const auto path = std::filesystem::read_symlink(absl::StrCat("/proc/self/fd/", file), error);
    const starling::sync::MutexLock lock(mutex_);
    paths_.insert(path.string());
    for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
      names_.insert(entry.path().string());
    }
  }
  std::set<std::string> Take() {
    const starling::sync::MutexLock lock(mutex_);
    names_.clear();
    return std::exchange(paths_, {});
  }
  // What stood in folders when they were synced: these names last.
  std::set<std::string> Names() {
    const starling::sync::MutexLock lock(mutex_);
    return names_;
  }

 private:
  starling::sync::Mutex mutex_;
  std::set<std::string> paths_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> names_ ABSL_GUARDED_BY(mutex_);
};

Synced& AllSynced() {
  static Synced& all = *new Synced();
  return all;
}

}  // namespace

// In place of the C library's: what a power cut would leave is not to be seen otherwise.
extern "C" int fsync(int file) {
  AllSynced().Add(file);
  return static_cast<int>(::syscall(SYS_fsync, file));
}

namespace starling::storage {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Text(BlobStore& store, const std::string& name) {
  const auto content = ReadAll(store, name, 1 << 20);
  EXPECT_TRUE(content.ok()) << content.status();
  if (!content.ok()) return "";
  return {reinterpret_cast<const char*>(content->data()), content->size()};
}

// Our own server over a store: GET with ranges, and HEAD.
http::Response Serve(BlobStore& store, const http::Request& request) {
  const auto place = ParsePlace(absl::StrCat("file://", request.target));
  http::Response response;
  const std::string name = place.ok() ? place->path.substr(1) : "";
  const auto content = ReadAll(store, name, 64 << 20);
  if (!content.ok()) {
    response.status = 404;
    return response;
  }
  response.body.assign(reinterpret_cast<const char*>(content->data()), content->size());
  const std::string range(request.Header("Range"));
  if (range.empty()) return response;
  const std::vector<std::string> ends =
      absl::StrSplit(range.substr(std::string("bytes=").size()), '-');
  std::size_t first = 0;
  std::size_t last = 0;
  EXPECT_TRUE(absl::SimpleAtoi(ends[0], &first) && absl::SimpleAtoi(ends[1], &last)) << range;
  if (first >= response.body.size()) {
    response.status = 416;
    return response;
  }
  response.status = 206;
  response.headers = {
      {"Content-Range", absl::StrCat("bytes ", first, "-", last, "/", response.body.size())}};
  response.body = response.body.substr(first, last - first + 1);
  return response;
}

// One way to have a store. What is put into `written` is to be seen through `store`.
struct Subject {
  BlobStore* written = nullptr;
  BlobStore* store = nullptr;
  std::vector<std::shared_ptr<void>> keeps;
};

template <typename T>
T* Keep(Subject& subject, std::shared_ptr<T> what) {
  subject.keeps.push_back(what);
  return what.get();
}

Subject Memory() {
  Subject subject;
  subject.store = subject.written = Keep(subject, std::make_shared<MemoryBlobStore>());
  return subject;
}

Subject OnDisk() {
  Subject subject;
  const auto* folder = Keep(subject, std::make_shared<TestFolder>());
  std::shared_ptr<BlobStore> store = *Open("file://" + folder->path() + "/not/yet/there");
  subject.store = subject.written = Keep(subject, std::move(store));
  return subject;
}

Subject OverHttp() {
  Subject subject;
  auto* memory = Keep(subject, std::make_shared<MemoryBlobStore>());
  std::shared_ptr<http::HttpServer> server = *http::HttpServer::Start(
      {}, [memory](const http::Request& request) { return Serve(*memory, request); });
  const std::string url = absl::StrCat("http://127.0.0.1:", Keep(subject, server)->port());
  std::shared_ptr<BlobStore> store = *Open(url);
  subject.written = memory;
  subject.store = Keep(subject, std::move(store));
  return subject;
}

// Beside an object store alone (tests/storage/with_object_store.py): the environment tells which.
Subject OnS3() {
  Subject subject;
  const char* const bucket = ::getenv("STARLING_TEST_BUCKET");
  if (bucket == nullptr) ADD_FAILURE() << "runs beside an object store: ctest -R storage_s3";
  std::shared_ptr<BlobStore> store =
      *Open(absl::StrCat("s3://", bucket == nullptr ? "none" : bucket, "/", bytes::RandomUuid()));
  subject.store = subject.written = Keep(subject, std::move(store));
  return subject;
}

struct Named {
  const char* name;
  Subject (*make)();
};
void PrintTo(const Named& named, std::ostream* out) { *out << named.name; }
std::string NameOf(const testing::TestParamInfo<Named>& info) { return info.param.name; }

class Readable : public testing::TestWithParam<Named> {
 protected:
  Subject subject_ = GetParam().make();
  BlobStore& store_ = *subject_.store;
};
INSTANTIATE_TEST_SUITE_P(BlobStore, Readable,
                         testing::Values(Named{"memory", Memory}, Named{"file", OnDisk},
                                         Named{"http", OverHttp}),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(S3, Readable, testing::Values(Named{"s3", OnS3}), NameOf);

TEST_P(Readable, GivesAWholeBlobAndAnyRangeOfIt) {
  std::string content;
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&content, i, " ");
  ASSERT_TRUE(Put(*subject_.written, "a/b", content, IfPresent::kReplace).ok());
  ASSERT_TRUE(Put(*subject_.written, "empty", "", IfPresent::kReplace).ok());

  EXPECT_EQ(*store_.Size("a/b"), content.size());
  EXPECT_EQ(Text(store_, "a/b"), content);
  EXPECT_EQ(*store_.Size("empty"), 0u);
  EXPECT_EQ(Text(store_, "empty"), "");
  for (const auto& [offset, size] :
       {std::pair<std::size_t, std::size_t>{0, 1}, {0, 0}, {17, 100}, {content.size() - 1, 1}}) {
    std::vector<std::byte> part(size);
    ASSERT_TRUE(store_.Read("a/b", offset, part).ok());
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(part.data()), size),
              content.substr(offset, size));
  }
}

TEST_P(Readable, SaysWhatIsNotThereAndWhereItEnds) {
  ASSERT_TRUE(Put(*subject_.written, "short", "12345", IfPresent::kReplace).ok());
  for (const char* name : {"none", "short/none", "none/none"}) {
    const absl::Status status = store_.Size(name).status();
    EXPECT_TRUE(absl::IsNotFound(status)) << name << ": " << status;
    EXPECT_THAT(status.message(), HasSubstr(name));
    std::vector<std::byte> into(1);
    EXPECT_TRUE(absl::IsNotFound(store_.Read(name, 0, into))) << name;
  }
  for (const std::size_t offset : {3, 5, 100}) {
    std::vector<std::byte> into(3);
    const absl::Status status = store_.Read("short", offset, into);
    EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("short"));
  }
  EXPECT_TRUE(absl::IsOutOfRange(ReadAll(store_, "short", 4).status()));
}

TEST_P(Readable, TakesEveryNameThatMayBeAndNoOther) {
  for (const std::string name :
       {"a b/c%20d", "Ünïcode", ".hidden", "a..b", "x?y#z&=", "c:d", "1/2/3/4/5", "~+'\"<>\\"}) {
    ASSERT_TRUE(Put(*subject_.written, name, name, IfPresent::kReplace).ok()) << name;
    EXPECT_EQ(Text(store_, name), name);
  }
  std::vector<std::byte> none;
  for (const std::string& name :
       {std::string(), std::string("/a"), std::string("a/"), std::string("a//b"), std::string("."),
        std::string(".."), std::string("../a"), std::string("a/../b"), std::string("a/."),
        std::string("a\nb"), std::string("a\0b", 3), std::string(".tmp/a"), std::string(256, 'x'),
        absl::StrCat(std::string(200, 'x'), "/", std::string(200, 'x'), "/", std::string(200, 'x'),
                     "/", std::string(200, 'x'), "/", std::string(200, 'x'), "/",
                     std::string(200, 'x'))}) {
    EXPECT_TRUE(absl::IsInvalidArgument(store_.Size(name).status())) << name;
    EXPECT_TRUE(absl::IsInvalidArgument(store_.Read(name, 0, none))) << name;
  }
}

class Writable : public Readable {};
INSTANTIATE_TEST_SUITE_P(BlobStore, Writable,
                         testing::Values(Named{"memory", Memory}, Named{"file", OnDisk}), NameOf);
INSTANTIATE_TEST_SUITE_P(S3, Writable, testing::Values(Named{"s3", OnS3}), NameOf);

TEST_P(Writable, ReplacesOrRefusesWhatIsThere) {
  EXPECT_TRUE(Put(store_, "a/x", "one", IfPresent::kFail).ok());
  const absl::Status taken = Put(store_, "a/x", "two", IfPresent::kFail);
  EXPECT_TRUE(absl::IsAlreadyExists(taken)) << taken;
  EXPECT_THAT(taken.message(), HasSubstr("a/x"));
  EXPECT_EQ(Text(store_, "a/x"), "one");
  EXPECT_TRUE(Put(store_, "a/x", "three", IfPresent::kReplace).ok());
  EXPECT_EQ(Text(store_, "a/x"), "three");
  EXPECT_TRUE(absl::IsInvalidArgument(Put(store_, "../x", "", IfPresent::kReplace)));
  EXPECT_TRUE(absl::IsInvalidArgument(store_.Delete("../x")));
}

TEST_P(Writable, JoinsThePieces) {
  const std::string head = "head";
  const std::string body(1 << 20, 'x');
  const std::span<const std::byte> pieces[] = {
      std::as_bytes(std::span(head)), {}, std::as_bytes(std::span(body))};
  ASSERT_TRUE(store_.Put("big", pieces, IfPresent::kReplace).ok());
  EXPECT_EQ(*store_.Size("big"), head.size() + body.size());
}

TEST_P(Writable, ListsByPrefixAndForgetsWhatIsDeleted) {
  EXPECT_THAT(*store_.List(""), IsEmpty());
  for (const char* name : {"b", "a/1/x", "a/1/y", "a/2", "ab"}) {
    ASSERT_TRUE(Put(store_, name, "", IfPresent::kFail).ok());
  }
  EXPECT_THAT(*store_.List(""), ElementsAre("a/1/x", "a/1/y", "a/2", "ab", "b"));
  EXPECT_THAT(*store_.List("a"), ElementsAre("a/1/x", "a/1/y", "a/2", "ab"));
  EXPECT_THAT(*store_.List("a/"), ElementsAre("a/1/x", "a/1/y", "a/2"));
  EXPECT_THAT(*store_.List("a/1/x"), ElementsAre("a/1/x"));
  EXPECT_THAT(*store_.List("a/1/xx"), IsEmpty());
  EXPECT_THAT(*store_.List("c/"), IsEmpty());
  EXPECT_TRUE(store_.Delete("a/1/x").ok());
  EXPECT_TRUE(store_.Delete("a/1/x").ok()) << "it is not there, which is what was wanted";
  EXPECT_TRUE(store_.Delete("a/1/y").ok());
  EXPECT_THAT(*store_.List("a/"), ElementsAre("a/2"));
  EXPECT_TRUE(absl::IsNotFound(store_.Size("a/1/x").status()));
}

TEST_P(Writable, OfManyThatPutOneNameOneWinsAndReadersSeeWholeBlobs) {
  constexpr int kWriters = 4;
  constexpr int kRounds = 30;
  std::atomic<int> winners = 0;
  std::vector<std::thread> threads;
  for (int writer = 0; writer < kWriters; ++writer) {
    threads.emplace_back([&, writer] {
      const std::string mine(10'000, static_cast<char>('a' + writer));
      for (int round = 0; round < kRounds; ++round) {
        winners += Put(store_, absl::StrCat("one/", round), mine, IfPresent::kFail).ok();
        EXPECT_TRUE(Put(store_, "all/x", mine, IfPresent::kReplace).ok());
        const std::string seen = Text(store_, "all/x");
        EXPECT_EQ(seen, std::string(10'000, seen[0])) << "a mixture";
        // Folders come and go meanwhile.
        const std::string own = absl::StrCat("brief/", writer % 2);
        EXPECT_TRUE(Put(store_, own, mine, IfPresent::kReplace).ok());
        EXPECT_TRUE(store_.Delete(own).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(winners, kRounds);
}

// What is the file store's own.

class FileBlobStoreTest : public testing::Test {
 protected:
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
      files.push_back(fs::relative(entry.path(), folder_.path()).string());
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  TestFolder folder_;
  FileBlobStore store_{folder_.path()};
};

TEST_F(FileBlobStoreTest, LeavesNothingButBlobsAndTheirFolders) {
  ASSERT_TRUE(Put(store_, "a/b/c", "1", IfPresent::kReplace).ok());
  ASSERT_FALSE(Put(store_, "a/b/c", "2", IfPresent::kFail).ok());
  EXPECT_THAT(Files(), ElementsAre("a", "a/b", "a/b/c"));
  ASSERT_TRUE(store_.Delete("a/b/c").ok());
  EXPECT_THAT(Files(), IsEmpty());
  EXPECT_TRUE(fs::exists(folder_.path()));
}

// The one that made the folders may be dead before it has synced them.
TEST_F(FileBlobStoreTest, FoldersThatAnotherHasMadeAreSyncedWithTheBlob) {
  const std::string root = folder_.path() + "/deep/root";
  fs::create_directories(root + "/a/b");
  FileBlobStore store(root);
  AllSynced().Take();
  ASSERT_TRUE(Put(store, "a/b/c", "1", IfPresent::kFail).ok());
  EXPECT_THAT(AllSynced().Take(),
              testing::IsSupersetOf(
                  {root + "/a/b", root + "/a", root, folder_.path() + "/deep", folder_.path()}));
  // Below the root folders come and go; above it they stay.
  ASSERT_TRUE(store.Delete("a/b/c").ok());
  fs::create_directories(root + "/a/b");
  AllSynced().Take();
  ASSERT_TRUE(Put(store, "a/b/c", "1", IfPresent::kFail).ok());
  EXPECT_THAT(AllSynced().Take(), testing::IsSupersetOf({root + "/a/b", root + "/a", root}));
}

TEST_F(FileBlobStoreTest, ABlobsBytesAreSyncedAndItsFolderOnceItHasItsName) {
  for (const IfPresent if_present : {IfPresent::kFail, IfPresent::kReplace}) {
    AllSynced().Take();
    ASSERT_TRUE(Put(store_, "a", "1", if_present).ok());
    EXPECT_THAT(AllSynced().Names(), testing::Contains(folder_.path() + "/a"));
    EXPECT_THAT(AllSynced().Take(),
                testing::Contains(testing::StartsWith(folder_.path() + "/.tmp/")));
  }
}

// A whole blob would be written and synced before its name shows to be impossible.
TEST_F(FileBlobStoreTest, AFileWhereAFolderShouldBeShowsBeforeAnythingIsWritten) {
  ASSERT_TRUE(Put(store_, "a", "1", IfPresent::kReplace).ok());
  for (const char* name : {"a/b", "a/b/c"}) {
    AllSynced().Take();
    const absl::Status status = Put(store_, name, "2", IfPresent::kReplace);
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr(folder_.path() + "/a"));
    EXPECT_THAT(AllSynced().Take(), IsEmpty()) << "something was written";
  }
  EXPECT_EQ(Text(store_, "a"), "1");
  EXPECT_THAT(Files(), ElementsAre("a"));
}

TEST_F(FileBlobStoreTest, WhatADeadWriterLeftIsNeverListedAndGoesAfterAnHour) {
  fs::create_directory(folder_.path() + "/.tmp");
  for (const char* name : {"/.tmp/old", "/.tmp/young"}) std::ofstream(folder_.path() + name) << "h";
  const utimbuf long_ago{1, 1};
  ::utime((folder_.path() + "/.tmp/old").c_str(), &long_ago);
  EXPECT_THAT(*store_.List(""), IsEmpty());
  ASSERT_TRUE(Put(store_, "a", "1", IfPresent::kReplace).ok());
  EXPECT_THAT(*store_.List(""), ElementsAre("a"));
  EXPECT_THAT(Files(), ElementsAre(".tmp", ".tmp/young", "a"));
}

TEST_F(FileBlobStoreTest, WhatIsNoFileIsNoBlob) {
  fs::create_directory(folder_.path() + "/folder");
  ::mkfifo((folder_.path() + "/pipe").c_str(), 0600);
  std::vector<std::byte> into(1);
  for (const char* name : {"folder", "pipe"}) {
    const absl::Status status = store_.Size(name).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("name the file itself"));
    EXPECT_FALSE(store_.Read(name, 0, into).ok());
  }
  EXPECT_FALSE(Put(store_, "folder", "x", IfPresent::kReplace).ok());
  EXPECT_THAT(*store_.List(""), IsEmpty());
}

TEST_F(FileBlobStoreTest, AFullDiskIsAnErrorAndGivesItsSpaceBack) {
  if (::mount("starling", folder_.path().c_str(), "tmpfs", 0, "size=256k") != 0) {
    GTEST_SKIP() << "needs the right to mount a tmpfs";
  }
  const std::unique_ptr<const char, void (*)(const char*)> mounted(
      folder_.path().c_str(), [](const char* path) { ::umount2(path, MNT_DETACH); });
  ASSERT_TRUE(Put(store_, "a", std::string(10'000, 'x'), IfPresent::kReplace).ok());
  const auto before = fs::space(folder_.path()).available;
  const absl::Status status = Put(store_, "b", std::string(1'000'000, 'x'), IfPresent::kReplace);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("make space"));
  EXPECT_EQ(fs::space(folder_.path()).available, before);
  EXPECT_THAT(*store_.List(""), ElementsAre("a"));
}

// That is over as soon as another file is closed, and says nothing about the blob.
TEST_F(FileBlobStoreTest, WithoutAFreeDescriptorABlobIsUnavailableAndNotLost) {
  ASSERT_TRUE(Put(store_, "a", "1", IfPresent::kReplace).ok());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  std::vector<std::byte> into(1);
  const absl::Status status = store_.Read("a", 0, into);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(store_.Read("a", 0, into).ok());
}

TEST_F(FileBlobStoreTest, AFolderWithoutPermissionIsAnError) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  ::chmod(folder_.path().c_str(), 0500);
  EXPECT_TRUE(absl::IsPermissionDenied(Put(store_, "a", "", IfPresent::kReplace)));
  ::chmod(folder_.path().c_str(), 0700);
}

// What is the web's own.

TEST(HttpBlobStore, OnlyReadsAndSaysSo) {
  const Subject subject = OverHttp();
  BlobStore& store = *subject.store;
  EXPECT_TRUE(absl::IsUnimplemented(Put(store, "a", "", IfPresent::kReplace)));
  EXPECT_TRUE(absl::IsUnimplemented(store.Delete("a")));
  EXPECT_TRUE(absl::IsUnimplemented(store.List("").status()));
}

TEST(HttpBlobStore, ReadsALargeBlobInRanges) {
  const Subject subject = OverHttp();
  std::string content(17 << 20, 'x');
  for (std::size_t i = 0; i < content.size(); i += 1000) content[i] = static_cast<char>(i / 1000);
  static_cast<MemoryBlobStore*>(subject.written)->Set("large", content);
  const auto read = ReadAll(*subject.store, "large", content.size());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(0, std::memcmp(read->data(), content.data(), content.size()));
}

TEST(HttpBlobStore, AServerWithoutRangesServesBeginningsOnly) {
  auto server = *http::HttpServer::Start({}, [](const http::Request&) {
    http::Response response;
    response.body = "0123456789";
    return response;
  });
  auto store = *Open(absl::StrCat("http://127.0.0.1:", server->port(), "/x/"));
  std::vector<std::byte> into(4);
  EXPECT_TRUE(store->Read("a", 0, into).ok());
  const absl::Status status = store->Read("a", 2, into);
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("/x/a: the server does not hand out ranges"));
}

TEST(Locate, SplitsAFilesUriIntoItsStoreAndItsName) {
  const TestFolder folder;
  std::ofstream(folder.path() + "/a b.csv") << "x";
  for (const std::string& uri :
       {folder.path() + "/a b.csv", "file://" + folder.path() + "/a%20b.csv"}) {
    const auto located = Locate(uri);
    ASSERT_TRUE(located.ok()) << located.status();
    EXPECT_EQ(located->name, "a b.csv");
    EXPECT_EQ(*located->store->Size(located->name), 1u);
  }
  EXPECT_EQ(Locate("https://h/a/b%20c")->name, "b c");
  EXPECT_TRUE(absl::IsInvalidArgument(Locate("/a/").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Locate("/").status()));
}

}  // namespace
}  // namespace starling::storage
