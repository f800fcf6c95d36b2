// SPDX-License-Identifier: Apache-2.0
// Against an HTTP server on this machine that keeps experiments and runs as MLflow does.
#include "trainer/metric_export/mlflow_sink.h"

#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/http/http_server.h"
#include "common/json/json.h"
#include "common/sync/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::metric_export {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kApi[] = "/api/2.0/mlflow/";

// What the tracking server answers, and keeps. Thread-safe.
class Tracking {
 public:
  http::Response Answer(const http::Request& request) {
    const sync::MutexLock lock(mutex_);
    if (delay_ > absl::ZeroDuration()) absl::SleepFor(delay_);
    authorization_ = std::string(request.Header("Authorization"));
    const std::string path(request.Path());
    if (path == std::string(kApi) + "experiments/get-by-name")
      return FindExperiment(request.target);
    if (request.method != "POST" || !path.starts_with(kApi)) return Error(404, "no such path");
    const Json body = json::Parse(request.body).value();
    const std::string what = path.substr(std::string(kApi).size());
    asked_.push_back(what);
    if (what == "experiments/create")
      return Made("experiment_id", experiments_[body.at("name")] = "7");
    if (what == "runs/search") return Search(body);
    if (what == "runs/create") return Create(body);
    if (what == "runs/log-batch") return Log(body);
    if (what == "runs/update") return Update(body);
    return Error(404, "no such path");
  }

  void Delay(absl::Duration delay) {
    const sync::MutexLock lock(mutex_);
    delay_ = delay;
  }
  // As "loss@3=0.25", in the order in which they came.
  std::vector<std::string> told() const {
    const sync::MutexLock lock(mutex_);
    return told_;
  }
  std::vector<std::string> asked() const {
    const sync::MutexLock lock(mutex_);
    return asked_;
  }
  Json run() const {
    const sync::MutexLock lock(mutex_);
    return run_;
  }
  std::string authorization() const {
    const sync::MutexLock lock(mutex_);
    return authorization_;
  }

 private:
  static http::Response Say(const Json& body) {
    return {.body = json::Dump(body), .content_type = "application/json", .headers = {}};
  }
  static http::Response Error(int status, const std::string& why) {
    http::Response response = Say({{"error_code", "X"}, {"message", why}});
    response.status = status;
    return response;
  }
  static http::Response Made(const char* name, const std::string& id) { return Say({{name, id}}); }

  http::Response FindExperiment(const std::string& target) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto found = experiments_.find(target.substr(target.find('=') + 1));
    if (found == experiments_.end()) return Error(404, "no such experiment");
    return Say({{"experiment", {{"experiment_id", found->second}}}});
  }
  http::Response Search(const Json& body) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const bool ours = !run_.is_null() &&
                      body.at("experiment_ids") == Json::array({run_["info"]["experiment_id"]}) &&
                      body.at("filter") == "tags.`starling.job_uid` = '" +
                                               run_["data"]["tags"][0]["value"].get<std::string>() +
                                               "'";
    return Say(ours ? Json{{"runs", {run_}}} : Json::object());
  }
  http::Response Create(const Json& body) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    run_ = {{"info",
             {{"run_id", "r1"},
              {"experiment_id", body.at("experiment_id")},
              {"run_name", body.at("run_name")},
              {"status", "RUNNING"},
              {"start_time", body.at("start_time")}}},
            {"data", {{"tags", body.at("tags")}, {"metrics", Json::array()}}}};
    return Say({{"run", run_}});
  }
  // The run shows the newest value of each metric.
  http::Response Log(const Json& body) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (body.at("run_id") != "r1") return Error(404, "no such run");
    for (const Json& metric : body.at("metrics")) {
      const std::string key = metric.at("key");
      told_.push_back(absl::StrCat(key, "@", metric.at("step").get<int>(), "=",
                                   json::Dump(metric.at("value"))));
      Json& all = run_["data"]["metrics"];
      std::erase_if(all.get_ref<Json::array_t&>(),
                    [&key](const Json& known) { return known.at("key") == key; });
      all.push_back(metric);
    }
    return Say(Json::object());
  }
  http::Response Update(const Json& body) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    run_["info"]["status"] = body.at("status");
    run_["info"]["end_time"] = body.at("end_time");
    return Say({{"run_info", run_["info"]}});
  }

  mutable sync::Mutex mutex_;
  absl::Duration delay_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> experiments_ ABSL_GUARDED_BY(mutex_);
  Json run_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> told_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> asked_ ABSL_GUARDED_BY(mutex_);
  std::string authorization_ ABSL_GUARDED_BY(mutex_);
};

class MlflowSinkTest : public ::testing::Test {
 protected:
  void Serve(int port = 0) {
    http::HttpServerOptions options;
    options.port = port;
    options.handler_threads = 1;
    auto server = http::HttpServer::Start(
        options, [this](const http::Request& request) { return tracking_.Answer(request); });
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::unique_ptr<MlflowSink> Open(int port, absl::Duration timeout = absl::Seconds(10)) {
    auto sink = MlflowSink::Open({.uri = absl::StrCat("http://127.0.0.1:", port),
                                  .experiment = "trials",
                                  .run_name = "digits",
                                  .job_uid = "u1",
                                  .authorization = "Bearer a-token",
                                  .timeout = timeout});
    EXPECT_TRUE(sink.ok()) << sink.status();
    return *std::move(sink);
  }
  static Points At(std::int64_t step, std::map<std::string, double> values, bool last = false) {
    return {.step = step,
            .time = absl::FromUnixSeconds(1'700'000'000 + step),
            .values = std::move(values),
            .last = last};
  }

  Tracking tracking_;
  std::unique_ptr<http::HttpServer> server_;
};

TEST_F(MlflowSinkTest, AJobIsARunThatEndsWithIt) {
  Serve();
  const auto sink = Open(server_->port());
  EXPECT_THAT(tracking_.asked(), IsEmpty()) << "no run for a job that never trains";
  ASSERT_TRUE(sink->Tell(At(1, {{"loss", 0.5}})).ok());
  ASSERT_TRUE(sink->Tell(At(1, {{"loss", 0.5}})).ok());
  ASSERT_TRUE(sink->Tell(At(2, {{"loss", std::nan("")}})).ok());
  ASSERT_TRUE(sink->Tell(At(3, {{"loss", 0.25}, {"validation/accuracy", 0.75}}, true)).ok());
  ASSERT_TRUE(sink->Tell(At(3, {{"loss", 0.25}}, true)).ok());
  EXPECT_THAT(tracking_.told(), ElementsAre("loss@1=0.5", "loss@2=\"NaN\"", "loss@3=0.25",
                                            "validation/accuracy@3=0.75"));
  EXPECT_THAT(tracking_.asked(),
              ElementsAre("experiments/create", "runs/search", "runs/create", "runs/log-batch",
                          "runs/log-batch", "runs/log-batch", "runs/update"));
  const Json info = tracking_.run()["info"];
  EXPECT_EQ(info["run_name"], "digits");
  EXPECT_EQ(info["status"], "FINISHED");
  EXPECT_EQ(info["start_time"], 1'700'000'001'000);
  EXPECT_EQ(info["end_time"], 1'700'000'003'000);
  EXPECT_EQ(tracking_.authorization(), "Bearer a-token");
}

TEST_F(MlflowSinkTest, ASuccessorGoesOnInTheSameRunAndRepeatsNoStep) {
  Serve();
  ASSERT_TRUE(Open(server_->port())->Tell(At(5, {{"loss", 0.5}})).ok());
  const auto successor = Open(server_->port());
  ASSERT_TRUE(successor->Tell(At(5, {{"loss", 0.5}})).ok());
  ASSERT_TRUE(successor->Tell(At(6, {{"loss", 0.25}})).ok());
  EXPECT_THAT(tracking_.told(), ElementsAre("loss@5=0.5", "loss@6=0.25"));
}

TEST_F(MlflowSinkTest, AServerThatIsNotThereIsNamedAndTriedAgain) {
  Serve();
  const int port = server_->port();
  server_.reset();
  const auto sink = Open(port);
  const absl::Status away = sink->Tell(At(1, {{"loss", 0.5}}));
  EXPECT_TRUE(absl::IsUnavailable(away)) << away;
  EXPECT_THAT(std::string(away.message()), HasSubstr("spec.export.mlflow.uri"));
  Serve(port);
  ASSERT_TRUE(sink->Tell(At(2, {{"loss", 0.25}})).ok());
  server_.reset();
  EXPECT_FALSE(sink->Tell(At(3, {{"loss", 0.125}})).ok());
  Serve(port);
  ASSERT_TRUE(sink->Tell(At(4, {{"loss", 0.0625}})).ok());
  EXPECT_THAT(tracking_.told(), ElementsAre("loss@2=0.25", "loss@4=0.0625"));
}

TEST_F(MlflowSinkTest, AServerThatIsSlowIsWaitedForWithinTheLimit) {
  Serve();
  const auto sink = Open(server_->port(), absl::Milliseconds(100));
  tracking_.Delay(absl::Milliseconds(400));
  const absl::Time before = absl::Now();
  EXPECT_FALSE(sink->Tell(At(1, {{"loss", 0.5}})).ok());
  EXPECT_LT(absl::Now() - before, absl::Seconds(5));
}

TEST_F(MlflowSinkTest, AnAnswerOfSomethingElseIsAnErrorThatSaysSo) {
  http::HttpServerOptions options;
  auto server = http::HttpServer::Start(options, [](const http::Request&) {
    return http::Response{.body = "{}", .content_type = "application/json", .headers = {}};
  });
  ASSERT_TRUE(server.ok());
  EXPECT_THAT(std::string(Open((*server)->port())->Tell(At(1, {{"loss", 0.5}})).message()),
              HasSubstr("is it a tracking server of MLflow?"));
}

TEST(MlflowAuthorizationTest, IsWhatMlflowsOwnClientsSend) {
  EXPECT_EQ(MlflowAuthorization(nullptr, nullptr, nullptr), "");
  EXPECT_EQ(MlflowAuthorization("", "", ""), "");
  EXPECT_EQ(MlflowAuthorization("secret", "user", "pass"), "Bearer secret");
  EXPECT_EQ(MlflowAuthorization(nullptr, "user", "pass"), "Basic dXNlcjpwYXNz");
  EXPECT_EQ(MlflowAuthorization(nullptr, "user", nullptr), "Basic dXNlcjo=");
}

}  // namespace
}  // namespace starling::metric_export
