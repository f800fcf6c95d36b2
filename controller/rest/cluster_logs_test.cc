// SPDX-License-Identifier: Apache-2.0
#include "controller/rest/cluster_logs.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/http/http_server.h"
#include "common/sync/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::service {
namespace {

using kube::Json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

// An API server that has pods of one job and what they have written.
class LogServer {
 public:
  LogServer() {
    server_ = http::HttpServer::Start({.handler_threads = 2}, [this](const http::Request& request) {
                return Answer(request);
              }).value();
  }

  void Write(const std::string& pod, const std::string& text) {
    sync::MutexLock lock(mutex_);
    pods_[pod] = text;
  }
  void Refuse() {
    sync::MutexLock lock(mutex_);
    refuses_ = true;
  }

  std::shared_ptr<kube::HttpKubeClient> Open() const {
    kube::ClusterConfig config;
    config.server = absl::StrCat("http://127.0.0.1:", server_->port());
    return kube::OpenHttpKubeClient(std::move(config), {}).value();
  }

 private:
  static http::Response Status(int code) {
    return {.status = code,
            .body = Json{{"kind", "Status"}, {"code", code}, {"message", "no"}}.dump(),
            .content_type = "application/json",
            .headers = {}};
  }
  http::Response Answer(const http::Request& request) {
    sync::MutexLock lock(mutex_);
    if (refuses_) return Status(403);
    const std::string path(request.Path());
    if (path == "/api/v1/namespaces/a/pods") {
      Json items = Json::array();
      for (const auto& [name, text] : pods_) items.push_back(Pod(name));
      return {.body = Json{{"metadata", {{"resourceVersion", "1"}}}, {"items", items}}.dump(),
              .content_type = "application/json",
              .headers = {}};
    }
    for (const auto& [name, text] : pods_) {
      if (path != "/api/v1/namespaces/a/pods/" + name + "/log") continue;
      return text.empty() ? Status(400) : http::Response{.body = text, .headers = {}};
    }
    return Status(404);
  }
  static Json Pod(const std::string& name) {
    return {{"metadata",
             {{"name", name},
              {"namespace", "a"},
              {"uid", "uid-" + name},
              {"ownerReferences",
               {{{"uid", name == "stranger" ? "other" : "uid-j"}, {"controller", true}}}}}},
            {"spec", {{"containers", {{{"name", "trainer"}}}}}}};
  }

  sync::Mutex mutex_;
  std::map<std::string, std::string> pods_ ABSL_GUARDED_BY(mutex_);  // empty: not started yet
  bool refuses_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<http::HttpServer> server_;
};

class ClusterLogsTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::shared_ptr<http::BodyStream>> Logs(LogRequest request) {
    request.client = server_.Open();
    return files_.Logs(job_, std::move(request));
  }
  // All that comes until the stream ends, or until `enough` is in it.
  static std::string Drink(http::BodyStream& stream, const std::string& enough = "") {
    std::string all;
    const absl::Time until = absl::Now() + absl::Seconds(20);
    while (absl::Now() < until) {
      http::BodyStream::Piece piece = stream.Next();
      all += piece.bytes;
      if (piece.ended || (!enough.empty() && all.find(enough) != std::string::npos)) return all;
      absl::SleepFor(std::min(piece.pause, absl::Milliseconds(20)));
    }
    ADD_FAILURE() << "the stream does not end: " << all;
    return all;
  }

  clock::SystemClock clock_;
  LogServer server_;
  const ClusterJobFiles files_{clock_};
  const Json job_ = {{"metadata", {{"name", "j"}, {"namespace", "a"}, {"uid", "uid-j"}}}};
};

TEST_F(ClusterLogsTest, AllPodsOfTheJobAreReadWithTheirNames) {
  server_.Write("j-worker-0", "one\ntwo\n");
  server_.Write("j-worker-1", "three, without its end");
  server_.Write("stranger", "of another job\n");
  const std::string text = Drink(**Logs({}));
  EXPECT_THAT(text,
              AllOf(HasSubstr("[j-worker-0] one\n[j-worker-0] two\n"),
                    HasSubstr("[j-worker-1] three, without its end\n"), Not(HasSubstr("another"))));
}

TEST_F(ClusterLogsTest, OnePodIsReadAsItIs) {
  server_.Write("j-worker-0", "one\ntwo\n");
  server_.Write("j-worker-1", "three\n");
  EXPECT_EQ(Drink(**Logs({.pod = "j-worker-0"})), "one\ntwo\n");
  EXPECT_TRUE(absl::IsNotFound(Logs({.pod = "stranger"}).status()));
  EXPECT_EQ(Drink(**Logs({.pod = "j-worker-1", .events = true})),
            "event: log\ndata: {\"line\":\"three\",\"pod\":\"j-worker-1\"}\n\n"
            "event: end\ndata: {\"reason\":\"Complete\"}\n\n");
}

TEST_F(ClusterLogsTest, AFollowerWaitsForPodsAndEndsWithTheJob) {
  server_.Write("j-worker-0", "");
  bool over = false;
  const auto stream = *Logs({.follow = true, .events = true, .over = [&over] { return over; }});
  EXPECT_EQ(stream->Next().bytes, "") << "its container has not started";
  server_.Write("j-worker-0", "now\n");
  EXPECT_THAT(Drink(*stream, "now"), HasSubstr("\"line\":\"now\""));
  over = true;
  EXPECT_THAT(Drink(*stream), HasSubstr("JobFinished"));
}

TEST_F(ClusterLogsTest, WhoMayNotReadThemGetsNone) {
  server_.Refuse();
  EXPECT_TRUE(absl::IsPermissionDenied(Logs({}).status()));
  EXPECT_FALSE(files_.Logs(job_, {}).ok()) << "never as this service itself";
}

TEST_F(ClusterLogsTest, AFollowerWhoMayNoMoreIsToldSo) {
  auto permit = std::make_shared<Permit>();
  const auto stream = *Logs({.follow = true, .events = true, .permit = permit});
  EXPECT_FALSE(stream->Next().ended);
  permit->End("Forbidden");
  EXPECT_THAT(Drink(*stream), HasSubstr("\"reason\":\"Forbidden\""));
}

TEST(ModelPlaceTest, IsAUriAndAFolder) {
  EXPECT_EQ(ParseModelPlace("file:///checkpoints/=/models/0")->path, "/checkpoints");
  EXPECT_EQ(ParseModelPlace("file:///my%20volume=/models/0")->path, "/my volume");
  EXPECT_EQ(ParseModelPlace("file:///a=b=/models/0")->folder, "/models/0");
  for (const char* wrong : {"", "file:///a", "file:///a=models", "=/models", "s3://a=/models",
                            "http://a/b=/models", "relative=/models", "file:///=/models"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseModelPlace(wrong).status())) << wrong;
  }
}

// A volume of everybody's, mounted here.
class ClusterModelTest : public ::testing::Test {
 protected:
  ClusterModelTest() {
    std::string name = ::testing::TempDir() + "/starling_models.XXXXXX";
    folder_ = ::mkdtemp(name.data());
    for (const char* uid : {"mine", "yours"}) {
      fs::create_directories(folder_ + "/team/" + uid);
      std::ofstream(folder_ + "/team/" + uid + "/model.safetensors") << uid;
    }
    std::ofstream(folder_ + "/secret") << "secret";
  }
  ~ClusterModelTest() override { fs::remove_all(folder_); }

  // What a job of the UID "mine" is given whose status says that its model is there; else why not.
  std::string Ask(const std::string& uri) {
    const Json job = {{"metadata", {{"name", "j"}, {"namespace", "a"}, {"uid", "mine"}}},
                      {"status", {{"result", {{"model", {{"uri", uri}}}}}}}};
    const ClusterJobFiles files(clock_, {{"/checkpoints", folder_}});
    absl::StatusOr<OpenFile> file = files.Model(job);
    if (!file.ok()) return std::string(file.status().message());
    const std::uint64_t size = file->size;
    return StreamFile(*std::move(file), 0, size)->Next().bytes;
  }

  const clock::SystemClock clock_;
  std::string folder_;
};

TEST_F(ClusterModelTest, IsReadFromAVolumeThatIsMountedHere) {
  EXPECT_EQ(Ask("file:///checkpoints/team/mine/model.safetensors"), "mine");
}

TEST_F(ClusterModelTest, OfAnotherJobIsReadByNobodyWhateverAStatusNames) {
  for (const char* uri :
       {"file:///checkpoints/team/yours/model.safetensors", "file:///checkpoints/secret",
        "file:///checkpoints/../secret", "file:///checkpoints/team/mine/../yours/model.safetensors",
        "file:///checkpoints/team/notmine/model.safetensors"}) {
    EXPECT_THAT(Ask(uri), HasSubstr("not this job's own folder")) << uri;
  }
  fs::remove(folder_ + "/team/mine/model.safetensors");
  fs::create_symlink(folder_ + "/secret", folder_ + "/team/mine/model.safetensors");
  EXPECT_THAT(Ask("file:///checkpoints/team/mine/model.safetensors"), Not(HasSubstr("secret")));
  fs::remove_all(folder_ + "/team/mine");
  fs::create_symlink(folder_ + "/team/yours", folder_ + "/team/mine");
  EXPECT_NE(Ask("file:///checkpoints/team/mine/model.safetensors"), "yours");
  EXPECT_NE(Ask("file:///checkpoints/../team/yours/mine/model.safetensors"), "yours");
}

TEST_F(ClusterModelTest, OnAnotherVolumeIsSaidToBeThere) {
  EXPECT_THAT(Ask("file:///checkpoints/gone/mine/model.safetensors"),
              HasSubstr("is not on the volume"));
  EXPECT_THAT(Ask("file:///checkpoints2/mine/model.safetensors"), HasSubstr("api.models"));
}

TEST_F(ClusterLogsTest, TheModelIsSaidToBeWhereItIs) {
  EXPECT_THAT(std::string(files_.Model(job_).status().message()), HasSubstr("checkpoint.uri"));
  Json job = job_;
  job["status"]["result"]["model"]["uri"] = "file:///shared/uid/model.safetensors";
  EXPECT_THAT(std::string(files_.Model(job).status().message()),
              HasSubstr("file:///shared/uid/model.safetensors"));
}

}  // namespace
}  // namespace starling::service
