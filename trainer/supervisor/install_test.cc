// SPDX-License-Identifier: Apache-2.0
#include "trainer/supervisor/install.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

namespace starling::supervisor {
namespace {

class InstallTest : public testing::Test {
 protected:
  InstallTest() {
    std::string pattern = testing::TempDir() + "install-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~InstallTest() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
};

TEST(InstallOptions, AreReadFromTheCommandLine) {
  InstallOptions options;
  EXPECT_EQ(ParseInstallOptions({"--install", "/to/it", "--await-name", "a", "--await-name", "b"},
                                options),
            "");
  EXPECT_EQ(options.path, "/to/it");
  EXPECT_EQ(options.await_names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(ParseInstallOptions({"--install", "/to/it", "--package", "/python"}, options), "");
  EXPECT_EQ(options.package, "/python");
  EXPECT_NE(ParseInstallOptions({"--install"}, options), "");
  EXPECT_NE(ParseInstallOptions({"--install", "/x", "--max-restarts", "3"}, options), "");
}

TEST_F(InstallTest, CopyIsWholeAndExecutableWhateverTheUmask) {
  const std::string from = folder_ + "/from", to = folder_ + "/to";
  std::ofstream(from) << std::string(100'000, 'x');
  const mode_t before = umask(0077);
  EXPECT_EQ(InstallFile(from, to), "");
  umask(before);
  EXPECT_EQ(std::filesystem::file_size(to), 100'000U);
  struct stat info {};
  ASSERT_EQ(stat(to.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0755U);
  // Again, over what is there: the init container may be run twice.
  EXPECT_EQ(InstallFile(from, to), "");
}

TEST_F(InstallTest, SaysWhatItCannotWrite) {
  EXPECT_NE(InstallFile("/proc/self/exe", folder_ + "/no/such/folder").find("cannot write"),
            std::string::npos);
  EXPECT_NE(InstallFile(folder_ + "/absent", folder_ + "/to").find("cannot read"),
            std::string::npos);
}

TEST_F(InstallTest, FolderIsCopiedWholeForAllToRead) {
  const std::string from = folder_ + "/from", to = folder_ + "/a/to";
  std::filesystem::create_directories(from + "/starling/torch");
  std::ofstream(from + "/starling/torch/__init__.py") << "import this";
  std::filesystem::permissions(from + "/starling/torch/__init__.py", std::filesystem::perms(0600));
  EXPECT_EQ(InstallFolder(from, to), "");
  EXPECT_EQ(InstallFolder(from, to), "") << "the init container may be run twice";
  struct stat info {};
  ASSERT_EQ(stat((to + "/starling/torch/__init__.py").c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 11);
  EXPECT_EQ(info.st_mode & 0555, 0555U);
}

TEST_F(InstallTest, FolderThatIsNotThereIsNamed) {
  const std::string problem = InstallFolder(folder_ + "/absent", folder_ + "/to");
  EXPECT_NE(problem.find(folder_ + "/absent"), std::string::npos) << problem;
}

TEST_F(InstallTest, ProgramInstallsItselfAndTheCopyRuns) {
  const std::string copy = folder_ + "/starling-supervisor";
  const std::string install =
      std::string(STARLING_SUPERVISOR) + " --install " + copy + " --await-name localhost 2>&-";
  ASSERT_EQ(std::system(install.c_str()), 0);
  const int status =
      std::system((copy + " --oom-counter none --max-restarts 0 --progress-file " + folder_ +
                   "/p --exit-record " + folder_ + "/e -- /bin/sh -c 'exit 3' >/dev/null 2>&1")
                      .c_str());
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

TEST(AwaitName, AsksUntilThereIsAnAnswer) {
  int asked = 0, paused = 0;
  AwaitName(
      "rank-0",
      [&](const std::string& name) {
        EXPECT_EQ(name, "rank-0");
        return ++asked == 3;
      },
      [&] { ++paused; });
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(paused, 2);
}

TEST(Resolves, KnowsThisMachineAndNoInventedName) {
  EXPECT_TRUE(Resolves("127.0.0.1"));
  EXPECT_TRUE(Resolves("localhost"));
  EXPECT_FALSE(Resolves("..not-a-name.."));
}

}  // namespace
}  // namespace starling::supervisor
