// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "controller/rest/access.h"
#include "controller/rest/beneath.h"
#include "controller/rest/call_limits.h"
#include "controller/rest/job_files.h"
#include "controller/rest/job_list.h"
#include "controller/rest/pod_logs.h"
#include "controller/rest/summary.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::service {
namespace {

using kube::Json;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

// A folder of the test's own.
class FilesTest : public ::testing::Test {
 protected:
  FilesTest() {
    std::string name = ::testing::TempDir() + "/starling_rest.XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~FilesTest() override { fs::remove_all(folder_); }
  void Write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(folder_ + "/" + name).parent_path());
    std::ofstream(folder_ + "/" + name) << text;
  }
  std::string folder_;
};

// What `stream` gives until it ends or has nothing more.
std::string Drink(http::BodyStream& stream) {
  std::string all;
  while (true) {
    http::BodyStream::Piece piece = stream.Next();
    all += piece.bytes;
    if (piece.ended || piece.bytes.empty()) return all;
  }
}

using AccessFile = FilesTest;

TEST_F(AccessFile, ATokenIsMadeOnceAndForItsOwnerAlone) {
  const std::string path = folder_ + "/api.token";
  const std::string token = EnsureToken(path).value();
  EXPECT_EQ(token.size(), 64U);
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  EXPECT_EQ(EnsureToken(path).value(), token);
  ::chmod(path.c_str(), 0644);
  EXPECT_NE(EnsureToken(path).value(), token) << "others may have read it";
  Write("api.token", "short\n");
  EXPECT_EQ(EnsureToken(path).value().size(), 64U);
  EXPECT_FALSE(EnsureToken(folder_ + "/none/api.token").ok());
}

struct AccessCase {
  const char* name;
  rest::Operation operation;
  http::Headers headers;
  const char* code;  // empty: admitted
};

TEST(Access, IsAsTheTableSays) {
  using enum rest::Operation;
  const AccessCase cases[] = {
      {"the token", kGetJob, {{"Authorization", "Bearer t"}}, ""},
      {"its scheme in small letters", kGetJob, {{"Authorization", "bearer t"}}, ""},
      {"none", kGetJob, {}, "Unauthorized"},
      {"another", kGetJob, {{"Authorization", "Bearer u"}}, "Unauthorized"},
      {"a longer one", kGetJob, {{"Authorization", "Bearer tt"}}, "Unauthorized"},
      {"an empty one", kGetJob, {{"Authorization", "Bearer "}}, "Unauthorized"},
      {"another scheme", kGetJob, {{"Authorization", "Basic t"}}, "Unauthorized"},
      {"none, for everybody", kGetVersion, {}, ""},
      {"a wrong one, for everybody", kGetVersion, {{"Authorization", "Bearer u"}}, "Unauthorized"},
      {"our page writes",
       kDeleteJob,
       {{"Authorization", "Bearer t"}, {"Origin", "http://localhost:80"}},
       ""},
      {"a foreign page writes",
       kDeleteJob,
       {{"Authorization", "Bearer t"}, {"Origin", "http://a"}},
       "ForeignOrigin"},
      {"our page by another scheme",
       kDeleteJob,
       {{"Authorization", "Bearer t"}, {"Origin", "https://localhost:80"}},
       "ForeignOrigin"},
      {"a foreign page reads",
       kGetJob,
       {{"Authorization", "Bearer t"}, {"Origin", "http://a"}},
       ""}};
  for (const AccessCase& c : cases) {
    http::Request request;
    request.headers = c.headers;
    const auto admitted = Admit(request, rest::RouteOf(c.operation), {"t", 80});
    const auto* problem = std::get_if<rest::Problem>(&admitted);
    EXPECT_EQ(problem == nullptr ? "" : problem->kind->code, c.code) << c.name;
  }
}

TEST(Access, OnlyOurOwnNamesAreHosts) {
  const auto admitted = [](const char* host) {
    http::Request request;
    request.headers = {{"Host", host}};
    return std::holds_alternative<std::monostate>(CheckHost(request, {"t", 80}));
  };
  for (const char* host : {"127.0.0.1:80", "localhost:80", "LocalHost:80", "[::1]:80"}) {
    EXPECT_TRUE(admitted(host)) << host;
  }
  for (const char* host : {"", "localhost", "localhost:81", "evil.example:80", "127.0.0.1.evil:80",
                           "a@127.0.0.1:80"}) {
    EXPECT_FALSE(admitted(host)) << host;
  }
}

TEST(CallLimits, AreOfEachCallerAndRefillWithTime) {
  clock::FakeClock clock;
  CallLimits limits(clock, {.reads_per_second = 10, .writes_per_second = 1, .streams = 2});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(limits.Take("a", false), absl::ZeroDuration()) << i;
  EXPECT_EQ(limits.Take("a", false), absl::Milliseconds(100));
  EXPECT_EQ(limits.Take("a", true), absl::ZeroDuration());
  EXPECT_EQ(limits.Take("b", false), absl::ZeroDuration());
  clock.Advance(absl::Milliseconds(100));
  EXPECT_EQ(limits.Take("a", false), absl::ZeroDuration());
  EXPECT_GT(limits.Take("a", false), absl::ZeroDuration());
  auto first = limits.OpenStream("a");
  const auto second = limits.OpenStream("a");
  EXPECT_EQ(limits.OpenStream("a"), nullptr);
  EXPECT_NE(limits.OpenStream("b"), nullptr);
  first.reset();
  EXPECT_NE(limits.OpenStream("a"), nullptr);
}

Json StoredJob(const std::string& name, int created) {
  return {{"metadata",
           {{"name", name},
            {"namespace", "default"},
            {"uid", "uid-" + name},
            {"resourceVersion", "1"},
            {"creationTimestamp", absl::StrCat("2026-01-01T00:00:0", created, "Z")}}}};
}

std::optional<Place> PlaceIn(const std::string& next) {
  const auto read = ReadPlace(next, "key");
  return std::get<std::optional<Place>>(read);
}

TEST(JobList, PagesHoldEveryJobOnceWhateverHappensBetweenThem) {
  std::vector<JobStatePtr> states;
  const auto add = [&states](const std::string& name, int created) {
    states.push_back(std::make_shared<const JobState>(
        std::make_shared<const Json>(StoredJob(name, created)), 1, 1, false));
  };
  for (const char* name : {"a", "b", "c"}) add(name, 1);
  for (const char* name : {"d", "e"}) add(name, 2);
  std::vector<std::string> seen;
  std::string next;
  do {
    const Json list = ListPage(states, {}, 2, PlaceIn(next), "key");
    for (const Json& item : list["items"]) seen.push_back(item["name"]);
    next = list.value("continue", "");
    if (seen.size() == 2) add("newer", 3);  // shifts no page
  } while (!next.empty());
  EXPECT_THAT(seen, ::testing::ElementsAre("d", "e", "a", "b", "c"));
}

TEST(JobList, PastJobsStandBetweenThoseThatAreThere) {
  const std::vector<JobStatePtr> live = {
      std::make_shared<const JobState>(std::make_shared<const Json>(StoredJob("a", 1)), 1, 1,
                                       false),
      std::make_shared<const JobState>(std::make_shared<const Json>(StoredJob("c", 3)), 1, 1,
                                       false)};
  const auto past = [](const std::string& name, int created) {
    Json summary = SummaryOf(StoredJob(name, created));
    summary["deleting"] = true;
    return history::ListedJob{"uid-" + name, absl::StrCat("2026-01-01T00:00:0", created, "Z"),
                              summary, absl::FromUnixSeconds(1'800'000'000)};
  };
  // The job c has just gone from one to the other.
  const Json first = ListPage(live, {past("c", 3), past("b", 2)}, 2, std::nullopt, "key");
  ASSERT_EQ(first["items"].size(), 2U);
  EXPECT_EQ(first["items"][0]["name"], "c");
  EXPECT_FALSE(first["items"][0].contains("deleted"));
  EXPECT_EQ(first["items"][1]["name"], "b");
  EXPECT_EQ(first["items"][1]["deleted"], "2027-01-15T08:00:00Z");
  EXPECT_FALSE(first["items"][1].contains("deleting"));
  const Json second = ListPage(live, {}, 2, PlaceIn(first["continue"]), "key");
  ASSERT_EQ(second["items"].size(), 1U);
  EXPECT_EQ(second["items"][0]["name"], "a");
  EXPECT_FALSE(second.contains("continue"));
}

TEST(JobList, PlacesThatWereNotGivenOutAreRefused) {
  std::vector<JobStatePtr> states;
  for (const char* name : {"a", "b"}) {
    states.push_back(std::make_shared<const JobState>(
        std::make_shared<const Json>(StoredJob(name, 1)), 1, 1, false));
  }
  const std::string next = ListPage(states, {}, 1, std::nullopt, "key")["continue"];
  for (const std::string& wrong :
       {std::string("AAAA"), std::string("%"), next + "A", next.substr(1), std::string(100, 'A')}) {
    EXPECT_TRUE(std::holds_alternative<rest::Problem>(ReadPlace(wrong, "key"))) << wrong;
  }
  EXPECT_TRUE(std::holds_alternative<rest::Problem>(ReadPlace(next, "another key")));
}

TEST(Summary, StaysAboutAKilobyte) {
  Json job = StoredJob("a", 1);
  for (int i = 0; i < 64; ++i)
    job["metadata"]["labels"][absl::StrCat("l", i)] = std::string(63, 'x');
  job["status"] = {{"state", "Running"}, {"progress", {{"step", 5}, {"loss", 0.5}}}};
  const Json summary = SummaryOf(job);
  EXPECT_EQ(summary["step"], 5);
  EXPECT_EQ(summary["state"], "Running");
  EXPECT_LT(summary.dump().size(), 1100U);
  EXPECT_EQ(SummaryOf(Json::object())["state"], "Pending");
}

using Beneath = FilesTest;

TEST_F(Beneath, OnlyRegularFilesOfTheFolderAreOpened) {
  Write("in/a/b", "text");
  Write("secret", "no");
  fs::create_symlink(folder_ + "/secret", folder_ + "/in/link");
  fs::create_symlink(folder_, folder_ + "/in/up");
  ASSERT_EQ(::mkfifo((folder_ + "/in/fifo").c_str(), 0600), 0);
  EXPECT_EQ(OpenBeneath(folder_ + "/in", "a/b")->size, 4U);
  EXPECT_TRUE(absl::IsNotFound(OpenBeneath(folder_ + "/in", "a/c").status()));
  for (const char* path :
       {"../secret", "a/../../secret", "link", "up/secret", "fifo", "a", "/etc/passwd"}) {
    EXPECT_FALSE(OpenBeneath(folder_ + "/in", path).ok()) << path;
  }
}

TEST_F(Beneath, APartIsStreamedAndAFileThatBecameShorterIsCut) {
  Write("f", std::string(200'000, 'a') + "end");
  const auto whole = StreamFile(OpenBeneath(folder_, "f").value(), 199'999, 4);
  EXPECT_EQ(whole->Length(), 4U);
  EXPECT_EQ(Drink(*whole), "aend");
  EXPECT_EQ(Drink(*StreamFile(OpenBeneath(folder_, "f").value(), 0, 200'003)).size(), 200'003U);
  const auto cut = StreamFile(OpenBeneath(folder_, "f").value(), 0, 200'003);
  fs::resize_file(folder_ + "/f", 10);
  cut->Next();
  EXPECT_THROW(cut->Next(), std::exception);
}

class JobFilesTest : public FilesTest {
 protected:
  JobFilesTest() : files_(folder_, clock_), job_(StoredJob("j", 1)) {
    job_["metadata"]["uid"] = "12345678-1";
  }
  std::shared_ptr<http::BodyStream> Logs(LogRequest request) {
    return files_.Logs(job_, std::move(request)).value();
  }
  std::string Log(const std::string& pod) { return Folder(pod) + "/log"; }
  std::string Record(const std::string& pod) { return Folder(pod) + "/exit.json"; }
  std::string Folder(const std::string& pod) { return "default/j-12345678/pods/" + pod; }

  clock::FakeClock clock_;
  LocalJobFiles files_;
  Json job_;
};

TEST_F(JobFilesTest, LogsAreWholeOrTheirLastLines) {
  Write(Log("j-worker-0-aaaaaaaa"), "one\ntwo\nthree");
  EXPECT_EQ(Drink(*Logs({.pod = "j-worker-0"})), "one\ntwo\nthree\n");
  EXPECT_EQ(Drink(*Logs({})), "[j-worker-0] one\n[j-worker-0] two\n[j-worker-0] three\n");
  EXPECT_EQ(Drink(*Logs({.pod = "j-worker-0", .tail = 1})), "three\n");
  EXPECT_EQ(Drink(*Logs({.pod = "j-worker-0", .tail = 0})), "");
  EXPECT_EQ(Drink(*Logs({.pod = "j-worker-0", .tail = 99})), "one\ntwo\nthree\n");
  EXPECT_TRUE(absl::IsNotFound(files_.Logs(job_, {.pod = "other"}).status()));
}

TEST_F(JobFilesTest, FollowedLogsGoOnUntilTheJobIsOverAndSayIt) {
  bool over = false;
  const auto stream = Logs({.follow = true, .events = true, .over = [&over] { return over; }});
  EXPECT_EQ(Drink(*stream), "");
  Write(Log("j-worker-0-aaaaaaaa"), "one\ntw");
  EXPECT_EQ(Drink(*stream), "event: log\ndata: {\"line\":\"one\",\"pod\":\"j-worker-0\"}\n\n");
  over = true;
  EXPECT_EQ(Drink(*stream), "") << "its pods may still be writing";
  Write(Log("j-worker-0-aaaaaaaa"), "one\ntwo");
  Write(Record("j-worker-0-aaaaaaaa"), "{}");
  const std::string rest = Drink(*stream);
  EXPECT_THAT(rest, HasSubstr("{\"line\":\"two\""));
  EXPECT_THAT(rest, HasSubstr("event: end\ndata: {\"reason\":\"JobFinished\"}"));
}

TEST_F(JobFilesTest, PodsThatDoNotEndHoldUpNoEndOfTheirJobsLogs) {
  Write(Log("j-worker-0-aaaaaaaa"), "one\n");
  Write(Record("j-worker-0-aaaaaaaa"), "{}");
  Write(Log("j-worker-1-bbbbbbbb"), "killed\n");
  const auto stream = Logs({.follow = true, .events = true, .over = [] { return true; }});
  EXPECT_THAT(Drink(*stream), Not(HasSubstr("JobFinished")));
  clock_.Advance(absl::Seconds(5));
  EXPECT_THAT(Drink(*stream), HasSubstr("JobFinished"));
}

TEST_F(JobFilesTest, ReplacedPodsAreSeparateFromThosePresent) {
  Write(Log("j-worker-0-aaaaaaaa"), "old\n");
  Write(Log("j-worker-0-bbbbbbbb"), "new\n");
  fs::last_write_time(folder_ + "/" + Log("j-worker-0-aaaaaaaa"),
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_EQ(Drink(*Logs({.pod = "j-worker-0"})), "new\n");
  EXPECT_EQ(Drink(*Logs({.pod = "j-worker-0", .previous = true})), "old\n");
}

TEST_F(JobFilesTest, TheEndsOfAllLogsAreReadThoseOfReplacedPodsFirst) {
  Write(Log("j-worker-0-aaaaaaaa"), "old\n");
  Write(Log("j-worker-0-bbbbbbbb"), std::string(300'000, 'x') + "\nnew");
  fs::last_write_time(folder_ + "/" + Log("j-worker-0-aaaaaaaa"),
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  const auto tails = ReadLogTails(folder_ + "/default/j-12345678");
  ASSERT_EQ(tails.size(), 2U);
  EXPECT_EQ(tails[0], (history::LogTail{"j-worker-0", true, "old\n"}));
  EXPECT_TRUE(tails[1].text.ends_with("x\nnew\n"));
  EXPECT_LE(tails[1].text.size(), history::kLogTailBytes + 2);
  EXPECT_EQ(history::FitLogs(tails)[1].text, "new\n") << "no line is cut";
  EXPECT_TRUE(ReadLogTails(folder_ + "/none").empty());
}

TEST_F(JobFilesTest, TheModelIsOfTheJobsOwnFolderOrNotServed) {
  EXPECT_TRUE(absl::IsFailedPrecondition(files_.Model(job_).status()));
  Write("default/j-12345678/model.safetensors", "weights");
  Write("other", "no");
  const auto model = [&](const std::string& uri) {
    job_["status"]["result"]["model"]["uri"] = uri;
    return files_.Model(job_);
  };
  const std::string own = folder_ + "/default/j-12345678/";
  EXPECT_EQ(model("file://" + own + "model.safetensors")->size, 7U);
  EXPECT_EQ(model(own + "./model.safetensors")->size, 7U);
  for (const std::string& uri :
       {std::string("/etc/passwd"), own + "../../other", "file://" + own + "%2e%2e/%2e%2e/other",
        own + "gone", std::string("https://elsewhere/model"), std::string("relative")}) {
    EXPECT_FALSE(model(uri).ok()) << uri;
  }
}

}  // namespace
}  // namespace starling::service
