// SPDX-License-Identifier: Apache-2.0
// Metrics as gauges and views as spans, to a collector of OpenTelemetry: OTLP over HTTP, as JSON
// (https://opentelemetry.io/docs/specs/otlp/).
//
// A span lasts from the beginning of a view to that of the next one, or to the job's end; incidents
// are its events. It is told when it is over: the one that a coordinator dies in is not told.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/http/http_client.h"
#include "common/trace/trace_context.h"
#include "nlohmann/json_fwd.hpp"
#include "trainer/metric_export/sink.h"

namespace starling::metric_export {

struct OtlpOptions {
  std::string uri;  // http:// or https://, the path before /v1 included
  std::string job_name;
  std::string job_uid;
  std::string instance;                                // who tells
  std::string service = {};                            // service.name; empty: starling
  std::map<std::string, std::string> attributes = {};  // more of the resource
  std::map<std::string, std::string> headers = {};
  std::string traceparent = {};  // the trace that the job belongs to; not one: the job's own
  absl::Duration timeout = absl::Seconds(10);
};

// "key=value,key=value" as OpenTelemetry's environment variables have it, values percent-encoded.
// What is not a pair is left out.
std::map<std::string, std::string> PairsIn(std::string_view text);

class OtlpSink final : public Sink {
 public:
  // INVALID_ARGUMENT: the URI is wrong. Connects to nothing yet.
  static absl::StatusOr<std::unique_ptr<OtlpSink>> Open(OtlpOptions options);

  absl::Status Tell(const Points& points) override;

 private:
  OtlpSink(OtlpOptions options, std::unique_ptr<http::HttpClient> client);

  absl::Status Send(const char* what, const char* group, const char* scope, const char* items,
                    nlohmann::json list);
  absl::Status SendMetrics(const Points& points);
  nlohmann::json EndOpenSpan(absl::Time end);

  const OtlpOptions options_;
  const std::unique_ptr<http::HttpClient> client_;
  const trace::TraceContext context_;  // parent_id empty: the job's spans are the trace's first
  std::optional<Event> view_;          // that has begun
  std::vector<Event> incidents_;       // in it
  bool finished_ = false;
};

}  // namespace starling::metric_export
