// SPDX-License-Identifier: Apache-2.0
#include "trainer/metric_export/mlflow_sink.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "trainer/metric_export/json_http.h"

namespace starling::metric_export {
namespace {

using Json = nlohmann::json;

constexpr char kUidTag[] = "starling.job_uid";
constexpr char kMlflowRemedy[] =
    "; look whether the server of spec.export.mlflow.uri is there and knows the token of the "
    "coordinator's environment: training goes on, and what comes then is told";

double NumberIn(const Json& value) {
  if (value.is_number()) return value.get<double>();
  return std::nan("");
}

// Of an object's member; an empty object where there is none.
const Json& Member(const Json& object, const char* name) {
  static const Json& none = *new Json(Json::object());
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found == object.end() ? none : *found;
}

std::string TextIn(const Json& object, const char* name) {
  const Json& value = Member(object, name);
  return value.is_string() ? value.get<std::string>() : "";
}

absl::Status MlflowWrong(const absl::Status& why) { return WithRemedy(why, kMlflowRemedy); }

}  // namespace

std::string MlflowAuthorization(const char* token, const char* user, const char* password) {
  if (token != nullptr && *token != '\0') return absl::StrCat("Bearer ", token);
  if (user == nullptr || *user == '\0') return "";
  return absl::StrCat(
      "Basic ", absl::Base64Escape(absl::StrCat(user, ":", password == nullptr ? "" : password)));
}

MlflowSink::MlflowSink(MlflowOptions options, std::unique_ptr<http::HttpClient> client)
    : options_(std::move(options)), client_(std::move(client)) {}

absl::StatusOr<std::unique_ptr<MlflowSink>> MlflowSink::Open(MlflowOptions options) {
  std::map<std::string, std::string> headers;
  if (!options.authorization.empty()) headers["Authorization"] = options.authorization;
  ASSIGN_OR_RETURN(auto client, OpenJsonClient(options.uri, "MLflow", options.timeout, headers));
  return std::unique_ptr<MlflowSink>(new MlflowSink(std::move(options), std::move(client)));
}

absl::StatusOr<Json> MlflowSink::Ask(const char* method, const std::string& what,
                                     const Json& body) {
  http::Request request{.method = method,
                        .target = "/api/2.0/mlflow/" + what,
                        .body = body.is_null() ? "" : json::Dump(body),
                        .headers = {}};
  ASSIGN_OR_RETURN(const http::Response answer, client_->Exchange(request));
  if (answer.status != 200) return http::StatusOf(answer, "MLflow");
  return json::Parse(answer.body);
}

absl::StatusOr<std::string> MlflowSink::ExperimentId() {
  const absl::StatusOr<Json> found = Ask(
      "GET", "experiments/get-by-name?experiment_name=" + http::PercentEncode(options_.experiment),
      nullptr);
  if (found.ok()) return TextIn(Member(*found, "experiment"), "experiment_id");
  if (!absl::IsNotFound(found.status())) return found.status();
  ASSIGN_OR_RETURN(const Json made,
                   Ask("POST", "experiments/create", {{"name", options_.experiment}}));
  return TextIn(made, "experiment_id");
}

// What a predecessor has told: of each metric the newest value.
void MlflowSink::Remember(const Json& run) {
  run_ = TextIn(Member(run, "info"), "run_id");
  record_ = {};
  for (const Json& metric : Member(Member(run, "data"), "metrics")) {
    const Json& step = Member(metric, "step");
    // Servers write 64-bit numbers as text, as protobuf does, or as numbers.
    std::int64_t number = step.is_number_integer() ? step.get<std::int64_t>() : 0;
    if (step.is_string() && !absl::SimpleAtoi(step.get<std::string>(), &number)) continue;
    record_.Take(number, TextIn(metric, "key"), NumberIn(Member(metric, "value")));
  }
}

absl::Status MlflowSink::FindRun(absl::Time now) {
  ASSIGN_OR_RETURN(const std::string experiment, ExperimentId());
  ASSIGN_OR_RETURN(const Json found,
                   Ask("POST", "runs/search",
                       {{"experiment_ids", {experiment}},
                        {"filter", absl::StrCat("tags.`", kUidTag, "` = '", options_.job_uid, "'")},
                        {"max_results", 1}}));
  const Json& runs = Member(found, "runs");
  if (!runs.empty()) {
    Remember(runs.front());
  } else {
    const Json tags = {{{"key", kUidTag}, {"value", options_.job_uid}}};
    ASSIGN_OR_RETURN(const Json made, Ask("POST", "runs/create",
                                          {{"experiment_id", experiment},
                                           {"run_name", options_.run_name},
                                           {"start_time", absl::ToUnixMillis(now)},
                                           {"tags", tags}}));
    Remember(Member(made, "run"));
  }
  if (!run_.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "MLflow: its answers name no run; is it a tracking server of MLflow?");
}

absl::Status MlflowSink::Tell(const Points& points) {
  if (finished_ || points.values.empty()) return absl::OkStatus();
  if (run_.empty()) {
    if (const absl::Status found = FindRun(points.time); !found.ok()) return MlflowWrong(found);
  }
  const RunRecord::News news = record_.NewsIn(points);
  Json metrics = Json::array();
  for (const auto& [name, value] : news.points.values) {
    metrics.push_back({{"key", name},
                       {"value", NumberOf(value)},
                       {"timestamp", absl::ToUnixMillis(points.time)},
                       {"step", points.step}});
  }
  absl::StatusOr<Json> told = Json();
  if (!metrics.empty()) {
    told = Ask("POST", "runs/log-batch", {{"run_id", run_}, {"metrics", std::move(metrics)}});
  }
  if (told.ok() && points.last) {
    told = Ask(
        "POST", "runs/update",
        {{"run_id", run_}, {"status", "FINISHED"}, {"end_time", absl::ToUnixMillis(points.time)}});
    finished_ = told.ok();
  }
  if (!told.ok()) {
    run_.clear();  // what of it has arrived the server knows
    return MlflowWrong(told.status());
  }
  record_.Take(news);
  return absl::OkStatus();
}

}  // namespace starling::metric_export
