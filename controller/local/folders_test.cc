// SPDX-License-Identifier: Apache-2.0
#include "controller/local/folders.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/storage/test_folder.h"
#include "controller/local/job_folders.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::local {
namespace {

using kube::Json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FoldersTest : public ::testing::Test {
 protected:
  const storage::TestFolder folder_;
  const std::string& home_ = folder_.path();
};

std::ptrdiff_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

mode_t ModeOf(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777;
}

Json Owner(const char* kind, bool controls, const char* uid) {
  return {{"kind", kind}, {"name", "digits"}, {"uid", uid}, {"controller", controls}};
}

Json PodOf(const Json& owners) {
  return {{"metadata",
           {{"name", "worker-0"},
            {"namespace", "team"},
            {"uid", "0123456789"},
            {"ownerReferences", owners}}}};
}

TEST_F(FoldersTest, PodsJobIsTheTrainingJobThatControlsIt) {
  EXPECT_TRUE(JobOfPod(PodOf(Json())).empty());
  EXPECT_TRUE(JobOfPod(PodOf(Json::array({Owner("TrainingJob", false, "a")}))).empty());
  EXPECT_TRUE(JobOfPod(PodOf(Json::array({Owner("Job", true, "a")}))).empty());
  const JobReference job = JobOfPod(
      PodOf(Json::array({Owner("Job", true, "a"), Owner("TrainingJob", true, "abcdefghij")})));
  EXPECT_EQ(job.ns, "team");
  EXPECT_EQ(job.name, "digits");
  EXPECT_EQ(job.uid, "abcdefghij");
}

TEST_F(FoldersTest, NamesTellWhatLiesInThem) {
  const Json pod = PodOf(Json::array({Owner("TrainingJob", true, "abcdefghij")}));
  const std::string folder = JobFolder("/home", JobOfPod(pod));
  EXPECT_EQ(folder, "/home/jobs/team/digits-abcdefgh");
  EXPECT_EQ(PodFolder("/home", pod), folder + "/pods/worker-0-01234567");
  EXPECT_EQ(PodFolder("/home", PodOf(Json())), "/home/pods/team/worker-0-01234567");
  const JobReference job = JobOfFolder(folder);
  EXPECT_EQ(job.ns, "team");
  EXPECT_EQ(job.name, "digits");
  EXPECT_EQ(job.uid, "abcdefgh");
  for (const char* strange : {"/home/jobs/team/-abcdefgh", "/home/jobs/team/digits",
                              "/home/jobs/team/digits_abcdefgh", "/home/jobs/team/d-abcdefg"}) {
    EXPECT_TRUE(JobOfFolder(strange).empty()) << strange;
  }
}

TEST_F(FoldersTest, ListsAreInOrderAndOfFoldersAlone) {
  EXPECT_THAT(ListJobFolders(home_), IsEmpty());
  std::vector<std::string> jobs;
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    jobs.push_back(absl::StrCat(home_, "/jobs/team/", std::string(1, letter), "-01234567"));
  }
  for (auto job = jobs.rbegin(); job != jobs.rend(); ++job) ASSERT_TRUE(MakeFolder(*job).ok());
  std::ofstream(home_ + "/jobs/team/file") << "x";
  std::ofstream(home_ + "/jobs/file") << "x";
  EXPECT_EQ(ListJobFolders(home_), jobs);
  ASSERT_TRUE(MakeFolder(jobs[1] + "/pods/worker-0-01234567").ok());
  ASSERT_TRUE(MakeFolder(home_ + "/pods/team/alone-01234567").ok());
  EXPECT_THAT(ListPodFolders(home_), ElementsAre(home_ + "/pods/team/alone-01234567",
                                                 jobs[1] + "/pods/worker-0-01234567"));
}

TEST_F(FoldersTest, AreMadeForUsAloneAndNotInThePlaceOfFiles) {
  ASSERT_TRUE(MakeFolder(home_ + "/a/b").ok());
  EXPECT_EQ(ModeOf(home_ + "/a"), 0700U);
  EXPECT_EQ(ModeOf(home_ + "/a/b"), 0700U);
  EXPECT_TRUE(MakeFolder(home_ + "/a/b").ok()) << "it is there";
  std::ofstream(home_ + "/file") << "x";
  for (const char* path : {"/file", "/file/b"}) {
    const absl::Status made = MakeFolder(home_ + path);
    EXPECT_FALSE(made.ok()) << path;
    EXPECT_THAT(std::string(made.message()), HasSubstr(home_ + path));
  }
}

TEST_F(FoldersTest, FilesAreWrittenWholeOrNotAtAll) {
  const std::ptrdiff_t descriptors = OpenDescriptors();
  const std::string path = home_ + "/file";
  std::ofstream(path + ".new") << "what somebody who died has left";
  ASSERT_TRUE(WriteFile(path, "first", 0600).ok());
  EXPECT_EQ(ReadFile(path).value_or(""), "first");
  EXPECT_EQ(ModeOf(path), 0600U);
  EXPECT_TRUE(absl::IsNotFound(WriteFile(home_ + "/none/file", "x", 0600)));
  EXPECT_TRUE(absl::IsNotFound(ReadFile(home_ + "/none").status()));

  // The file system has no room: a limit stands in for it.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit little = before;
  little.rlim_cur = 10;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
  const absl::Status full = WriteFile(path, "longer than there is room", 0600);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(std::string(full.message()), HasSubstr("cannot write " + path));
  EXPECT_EQ(ReadFile(path).value_or(""), "first");
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));

  ASSERT_TRUE(MakeFolder(home_ + "/folder/x").ok());
  EXPECT_FALSE(WriteFile(home_ + "/folder", "x", 0600).ok());
  EXPECT_FALSE(std::filesystem::exists(home_ + "/folder.new"));
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

TEST_F(FoldersTest, SecretsAreNotWrittenThroughALinkThatSomebodyLaid) {
  std::ofstream(home_ + "/theirs") << "untouched";
  std::filesystem::create_symlink(home_ + "/theirs", home_ + "/file.new");
  ASSERT_TRUE(WriteFile(home_ + "/file", "sesame", 0600).ok());
  EXPECT_EQ(ReadFile(home_ + "/theirs").value_or(""), "untouched");
  EXPECT_FALSE(std::filesystem::is_symlink(home_ + "/file"));
}

TEST_F(FoldersTest, LastLinesAreAtMostTwentyAndFourKibibytes) {
  const std::string path = home_ + "/log";
  EXPECT_EQ(LastLines(path), "");
  const auto last_of = [&](const std::string& text) {
    std::ofstream(path, std::ios::trunc) << text;
    return LastLines(path);
  };
  EXPECT_EQ(last_of(""), "");
  EXPECT_EQ(last_of("one\ntwo"), "one\ntwo");
  std::string lines;
  for (int i = 1; i <= 20; ++i) absl::StrAppend(&lines, "line ", i, "\n");
  EXPECT_EQ(last_of(lines), lines);
  EXPECT_EQ(last_of("line 0\n" + lines), lines);
  EXPECT_EQ(last_of("\n" + lines), lines);
  EXPECT_EQ(last_of(std::string(5000, 'x') + "end"), std::string(4093, 'x') + "end");
}

// Whether somebody holds the job's FIFO open.
bool IsHeld(const std::string& folder) {
  const int writer = open((folder + "/alive").c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (writer >= 0) close(writer);
  return writer >= 0;
}

TEST_F(FoldersTest, JobsFifoIsHeldUntilItIsReleasedAndItsFolderStaysUntilItIsRemoved) {
  JobFolders folders(home_);
  const JobReference job{.ns = "team", .name = "digits", .uid = "0123456789"};
  const JobReference other{.ns = "team", .name = "other", .uid = "abcdefghij"};
  const std::string folder = JobFolder(home_, job);
  ASSERT_TRUE(folders.Hold(job).ok());
  ASSERT_TRUE(folders.Hold(job).ok()) << "once more does no harm";
  ASSERT_TRUE(folders.Hold(other).ok());
  EXPECT_TRUE(IsHeld(folder));
  folders.Release(job);
  EXPECT_FALSE(IsHeld(folder));
  EXPECT_TRUE(IsHeld(JobFolder(home_, other)));
  ASSERT_TRUE(folders.Hold(job).ok());
  const int kept = open((folder + "/alive").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  folders.Remove(job);
  EXPECT_FALSE(std::filesystem::exists(folder));
  char byte = 0;
  EXPECT_EQ(read(kept, &byte, 1), 0) << "pods that still have it open see that nobody wants them";
  close(kept);
}

TEST_F(FoldersTest, FifoWhoseNameIsTakenSaysWhatToDo) {
  JobFolders folders(home_);
  const JobReference job{.ns = "team", .name = "digits", .uid = "0123456789"};
  ASSERT_TRUE(MakeFolder(JobFolder(home_, job)).ok());
  std::ofstream(JobFolder(home_, job) + "/alive") << "x";
  const absl::Status held = folders.Hold(job);
  EXPECT_THAT(std::string(held.message()), HasSubstr("remove it"));
  EXPECT_THAT(std::string(held.message()), HasSubstr("digits-01234567/alive"));
  std::ofstream(home_ + "/file") << "x";
  EXPECT_FALSE(JobFolders(home_ + "/file").Hold(job).ok());
}

}  // namespace
}  // namespace starling::local
