// SPDX-License-Identifier: Apache-2.0
// The history in a file: the contract, and what happens to files.
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "common/sqlite/sqlite.h"
#include "controller/history/sql_history.h"
#include "tests/contract/history/history_contract.h"

namespace starling::history {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class SqliteStore final : public HistoryStore {
 public:
  SqliteStore() {
    std::string pattern = (fs::temp_directory_path() / "starling-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~SqliteStore() override { fs::remove_all(folder_); }

  std::unique_ptr<History> Open() override { return OpenSqliteHistory(File()); }
  std::string File() const { return folder_ / "history.db"; }
  const fs::path& folder() const { return folder_; }

 private:
  fs::path folder_;
};

INSTANTIATE_TEST_SUITE_P(Sqlite, HistoryContract,
                         testing::Values(HistoryFactory{
                             "File", [] { return std::make_unique<SqliteStore>(); }}),
                         NameOfHistory);

class SqliteHistoryTest : public testing::Test {
 protected:
  void Change(const char* sql) {
    const auto database = sqlite::Database::Open(store_.File(), {});
    ASSERT_TRUE(database.ok()) << database.status();
    ASSERT_TRUE((*database)->Execute(sql).ok());
  }

  SqliteStore store_;
};

TEST_F(SqliteHistoryTest, TheFileIsForItsOwnerAlone) {
  ASSERT_TRUE(store_.Open()->Record({UpdateOf({})}).ok());
  struct stat status {};
  ASSERT_EQ(::stat(store_.File().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST_F(SqliteHistoryTest, ANewerSchemaIsRefusedWithARemedyAndLeftAlone) {
  const auto history = store_.Open();
  ASSERT_TRUE(history->Record({UpdateOf({})}).ok());
  Change("UPDATE history_schema SET version = 99");

  for (const auto mode : {SqlHistory::Mode::kReadWrite, SqlHistory::Mode::kReadOnly}) {
    const auto newer = OpenSqliteHistory(store_.File(), mode);
    const absl::Status status = newer->Find({"default", "", "digits", ""}).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("newer Starling"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("--history-url"));
  }
  Change("UPDATE history_schema SET version = 1");
  EXPECT_TRUE(store_.Open()->Find({"default", "", "digits", ""}).ok());
}

TEST_F(SqliteHistoryTest, AnotherProgramsDatabaseIsNotTouched) {
  Change("CREATE TABLE t(x)");
  const absl::Status status = store_.Open()->Record({UpdateOf({})}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("some other program's"));
  Change("INSERT INTO t VALUES(1)");
}

TEST_F(SqliteHistoryTest, ANewFileThatSeveralBeginAtTheSameTimeIsOursForAllOfThem) {
  for (int round = 0; round < 100; ++round) {
    const std::string file = absl::StrCat(store_.File(), round);
    std::vector<std::thread> beginners;
    for (int number = 1; number <= 4; ++number) {
      beginners.emplace_back([&file, number] {
        const auto history = OpenSqliteHistory(file, SqlHistory::Mode::kReadWrite);
        const absl::Status status = history->Record({UpdateOf({.number = number})}).status();
        EXPECT_TRUE(status.ok()) << status;
      });
    }
    for (std::thread& beginner : beginners) beginner.join();
  }
}

TEST_F(SqliteHistoryTest, ADamagedFileIsMovedAsideAndToldOf) {
  std::ofstream(store_.File()) << std::string(10'000, 'x');
  const auto history = store_.Open();

  const absl::Status status = history->Record({UpdateOf({})}).status();

  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(".damaged-"));
  EXPECT_TRUE(history->Record({UpdateOf({})}).ok());
  EXPECT_TRUE(history->Find({"default", "", "digits", ""}).ok());
  int aside = 0;
  for (const auto& entry : fs::directory_iterator(store_.folder())) {
    aside += entry.path().string().find(".damaged-") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(aside, 1);
}

// The head is whole, so that it opens; what lies behind it is not.
TEST_F(SqliteHistoryTest, DamageThatIsFoundLaterIsTakenTheSame) {
  std::vector<JobUpdate> updates;
  for (int i = 0; i < 300; ++i) updates.push_back(UpdateOf({.number = i}));
  ASSERT_TRUE(store_.Open()->Record(updates).ok());
  const auto size = fs::file_size(store_.File());
  ASSERT_GT(size, 100'000U);
  {
    std::fstream file(store_.File(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);
    file << std::string(size - 4096, '\x5a');
  }
  const auto history = store_.Open();
  const std::int64_t before = history->incarnation();
  absl::Status status;
  for (int i = 0; i < 3 && !absl::IsDataLoss(status); ++i) {
    status = history->Record({UpdateOf({.number = 7, .version = 9 + i})}).status();
  }
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_TRUE(history->Record({UpdateOf({})}).ok());
  EXPECT_GT(history->incarnation(), before + 1) << "who records is told to tell all again";
}

TEST_F(SqliteHistoryTest, AFullDiskIsToldAndLosesNothing) {
  if (::mount("starling", store_.folder().c_str(), "tmpfs", 0, "size=600k") != 0) {
    GTEST_SKIP() << "needs the right to mount a tmpfs";
  }
  const std::unique_ptr<const char, void (*)(const char*)> mounted(
      store_.folder().c_str(), [](const char* path) { ::umount2(path, MNT_DETACH); });
  auto history = store_.Open();
  ASSERT_TRUE(history->Record({UpdateOf({.name = "before"})}).ok());
  absl::Status status;
  for (int i = 2; i < 100 && status.ok(); ++i) {
    JobUpdate update = UpdateOf({.number = i, .name = absl::StrCat("j", i)});
    update.logs = {{"w", false, std::string(50'000, 'x') + "\n"}};
    status = history->Record({update}).status();
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("make room"));
  EXPECT_TRUE(history->Find({"default", "", "before", ""}).ok());

  // Room, and it goes on.
  ASSERT_EQ(::mount("starling", store_.folder().c_str(), "tmpfs", MS_REMOUNT, "size=2m"), 0);
  EXPECT_TRUE(history->Record({UpdateOf({.number = 100, .name = "after"})}).ok());
  EXPECT_TRUE(history->Find({"default", "", "after", ""}).ok());
  history.reset();
}

TEST_F(SqliteHistoryTest, ALockedFileIsUnavailableUntilItIsFree) {
  const auto history = OpenSqliteHistory(store_.File());
  ASSERT_TRUE(history->Record({UpdateOf({.version = 1})}).ok());
  const auto other = *sqlite::Database::Open(store_.File(), {});
  ASSERT_TRUE(other->Execute("BEGIN IMMEDIATE").ok());

  const absl::Status status = history->Record({UpdateOf({.version = 2})}).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(history->Find({"default", "", "digits", ""}).ok()) << "reading goes on";

  ASSERT_TRUE(other->Execute("ROLLBACK").ok());
  EXPECT_TRUE(history->Record({UpdateOf({.version = 2})}).ok());
}

TEST_F(SqliteHistoryTest, WhoOnlyReadsMakesNothingAndSeesWhatIsWritten) {
  const auto reader = OpenSqliteHistory(store_.File(), SqlHistory::Mode::kReadOnly);
  EXPECT_TRUE(absl::IsNotFound(reader->List({}).status()));
  EXPECT_FALSE(fs::exists(store_.File()));
  {
    const auto writer = store_.Open();
    ASSERT_TRUE(writer->Record({Gone(UpdateOf({}))}).ok());
    EXPECT_EQ(reader->List({})->size(), 1U) << "while it is written";
  }
  const auto later = OpenSqliteHistory(store_.File(), SqlHistory::Mode::kReadOnly);
  EXPECT_EQ(later->List({})->size(), 1U) << "when nobody writes";
  EXPECT_FALSE(later->Record({UpdateOf({.number = 2})}).ok());
}

TEST_F(SqliteHistoryTest, SpaceIsGivenBack) {
  const auto history = store_.Open();
  for (int i = 0; i < 40; ++i) {
    JobUpdate update = UpdateOf({.number = i});
    update.logs = {{"w", false, std::string(100'000, 'x') + "\n"}};
    ASSERT_TRUE(history->Record({Gone(update)}).ok());
  }
  Change("PRAGMA wal_checkpoint(TRUNCATE)");
  const auto full = fs::file_size(store_.File());
  ASSERT_TRUE(history->Trim({.jobs = 1}, absl::FromUnixSeconds(1'800'000'001)).ok());
  Change("PRAGMA wal_checkpoint(TRUNCATE)");
  EXPECT_LT(fs::file_size(store_.File()), full / 4);
}

}  // namespace
}  // namespace starling::history
