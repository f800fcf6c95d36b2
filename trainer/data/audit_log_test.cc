// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/audit_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "common/storage/test_folder.h"
#include "gtest/gtest.h"

namespace starling::data {
namespace {

class AuditLogTest : public ::testing::Test {
 protected:
  std::unique_ptr<AuditLog> Open() {
    auto log = AuditLog::Open(folder_.path(), batches_);
    EXPECT_TRUE(log.ok()) << log.status();
    return *std::move(log);
  }

  std::string Lines(std::int64_t steps) const {
    std::string lines;
    for (std::int64_t step = 1; step <= steps; ++step) lines += batches_.AuditLine(step) + "\n";
    return lines;
  }

  void Put(const std::string& content) {
    std::filesystem::create_directories(folder_.path() + "/audit");
    folder_.Write("audit/steps.jsonl", content);
  }

  std::string Content() const { return storage::TestFolder::Read(Path()); }
  std::string Path() const { return folder_.path() + "/audit/steps.jsonl"; }

  storage::TestFolder folder_;
  const Batches batches_{/*samples=*/100, /*batch=*/7, /*seed=*/3};
};

TEST_F(AuditLogTest, AppendsWhatIsMissingAndNothingTwice) {
  const auto log = Open();
  ASSERT_TRUE(log->AppendUpTo(2).ok());
  ASSERT_TRUE(log->AppendUpTo(5).ok());
  ASSERT_TRUE(log->AppendUpTo(5).ok());
  ASSERT_TRUE(log->AppendUpTo(3).ok());
  EXPECT_EQ(Content(), Lines(5));
  EXPECT_EQ(log->last_step(), 5);
}

TEST_F(AuditLogTest, ASuccessorGoesOnWhereverTheFileWasTorn) {
  const std::string whole = Lines(4);
  for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
    Put(whole.substr(0, cut));
    const auto log = Open();
    ASSERT_LE(log->last_step(), 4);
    ASSERT_TRUE(log->AppendUpTo(6).ok());
    ASSERT_EQ(Content(), Lines(6)) << "cut at byte " << cut;
  }
}

TEST_F(AuditLogTest, GarbageAndZerosAtTheEndAreCut) {
  Put(Lines(3) + std::string(100'000, '\0'));
  EXPECT_EQ(Open()->last_step(), 3);
  EXPECT_EQ(Content(), Lines(3));
  Put(Lines(3) + "garbage\nmore\n\n{\"step\":x,}\n");
  EXPECT_EQ(Open()->last_step(), 3);
  EXPECT_EQ(Content(), Lines(3));
}

TEST_F(AuditLogTest, AFileWithoutAnyLineStartsAnew) {
  Put("garbage\nmore garbage");
  const auto log = Open();
  EXPECT_EQ(log->last_step(), 0);
  ASSERT_TRUE(log->AppendUpTo(1).ok());
  EXPECT_EQ(Content(), Lines(1));
}

TEST_F(AuditLogTest, RestoringAStepDropsTheLinesAfterIt) {
  const auto log = Open();
  ASSERT_TRUE(log->AppendUpTo(20).ok());
  ASSERT_TRUE(log->TruncateAfter(12).ok());
  EXPECT_EQ(Content(), Lines(12));
  ASSERT_TRUE(log->TruncateAfter(15).ok());
  EXPECT_EQ(Content(), Lines(12));
  ASSERT_TRUE(log->AppendUpTo(14).ok());
  EXPECT_EQ(Content(), Lines(14));
  ASSERT_TRUE(log->TruncateAfter(0).ok());
  EXPECT_EQ(Content(), "");
}

TEST_F(AuditLogTest, TwoWritersThatOverlapWriteEachLineOnce) {
  const auto old_writer = Open();
  const auto new_writer = Open();
  ASSERT_TRUE(old_writer->AppendUpTo(3).ok());
  ASSERT_TRUE(new_writer->AppendUpTo(5).ok());
  ASSERT_TRUE(old_writer->AppendUpTo(6).ok());
  ASSERT_TRUE(new_writer->AppendUpTo(6).ok());
  EXPECT_EQ(Content(), Lines(6));
}

TEST_F(AuditLogTest, AFileThatAnotherHoldsIsLeftForLater) {
  const auto log = Open();
  const int other = ::open(Path().c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);
  EXPECT_TRUE(absl::IsUnavailable(log->AppendUpTo(1)));
  ::close(other);
  EXPECT_TRUE(log->AppendUpTo(1).ok());
  EXPECT_EQ(Content(), Lines(1));
}

TEST_F(AuditLogTest, ManyLinesAtOnceAndAcrossTheTailsPieces) {
  {
    const auto log = Open();
    ASSERT_TRUE(log->AppendUpTo(5000).ok());
  }
  const auto log = Open();
  EXPECT_EQ(log->last_step(), 5000);
  ASSERT_TRUE(log->TruncateAfter(4999).ok());
  EXPECT_EQ(Content(), Lines(4999));
}

TEST_F(AuditLogTest, AFolderThatCannotBeWrittenIsAnErrorThatNamesTheFile) {
  folder_.Write("audit", "in the way");
  const auto log = AuditLog::Open(folder_.path(), batches_);
  ASSERT_FALSE(log.ok());
  EXPECT_NE(log.status().message().find("audit/steps.jsonl"), absl::string_view::npos);
}

}  // namespace
}  // namespace starling::data
