// SPDX-License-Identifier: Apache-2.0
// Metrics as a run on a tracking server of MLflow, by its REST API (2.0).
//
// A job has one run, which is found again by a tag with the job's UID: a coordinator that takes
// over asks the server what it has, and goes on behind that. The server is asked for the run with
// the first points, and again after an error: one that is down when the job begins is no reason
// against the job.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/http/http_client.h"
#include "nlohmann/json_fwd.hpp"
#include "trainer/metric_export/run_record.h"
#include "trainer/metric_export/sink.h"

namespace starling::metric_export {

struct MlflowOptions {
  std::string uri;  // http:// or https://, the path before /api included
  std::string experiment;
  std::string run_name;  // for people
  std::string job_uid;
  std::string authorization;  // the header's value; empty: none
  absl::Duration timeout = absl::Seconds(10);
};

// The Authorization header as MLflow's own clients make it of MLFLOW_TRACKING_TOKEN, or else of
// MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD; empty without any.
std::string MlflowAuthorization(const char* token, const char* user, const char* password);

class MlflowSink final : public Sink {
 public:
  // INVALID_ARGUMENT: the URI is wrong. Connects to nothing yet.
  static absl::StatusOr<std::unique_ptr<MlflowSink>> Open(MlflowOptions options);

  absl::Status Tell(const Points& points) override;

 private:
  MlflowSink(MlflowOptions options, std::unique_ptr<http::HttpClient> client);

  absl::StatusOr<nlohmann::json> Ask(const char* method, const std::string& what,
                                     const nlohmann::json& body);
  absl::StatusOr<std::string> ExperimentId();
  absl::Status FindRun(absl::Time now);
  void Remember(const nlohmann::json& run);

  const MlflowOptions options_;
  const std::unique_ptr<http::HttpClient> client_;
  std::string run_;  // its id; empty: not known yet
  RunRecord record_;
  bool finished_ = false;
};

}  // namespace starling::metric_export
