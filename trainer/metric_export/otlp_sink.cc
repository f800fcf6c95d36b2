// SPDX-License-Identifier: Apache-2.0
#include "trainer/metric_export/otlp_sink.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/bytes/bytes.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "trainer/metric_export/json_http.h"

namespace starling::metric_export {
namespace {

using Json = nlohmann::json;

constexpr char kScope[] = "starling";
constexpr char kOtlpRemedy[] =
    "; look whether the collector of spec.export.otlp.uri is there, takes OTLP over HTTP as JSON "
    "(port 4318 by custom), and knows the headers of the coordinator's "
    "OTEL_EXPORTER_OTLP_HEADERS: training goes on, and what comes then is told";
constexpr std::size_t kTraceDigits = 32;
constexpr std::size_t kSpanDigits = 16;
constexpr int kInternal = 1;                 // SpanKind: work of one program
constexpr std::size_t kMostIncidents = 128;  // of one span, as OpenTelemetry's own limit is

// 64-bit numbers are text, as protobuf's JSON has them.
std::string NanosOf(absl::Time time) { return absl::StrCat(absl::ToUnixNanos(time)); }

Json AttributesOf(const std::map<std::string, std::string>& given) {
  Json list = Json::array();
  for (const auto& [key, value] : given) {
    list.push_back({{"key", key}, {"value", {{"stringValue", value}}}});
  }
  return list;
}

Json ResourceOf(const OtlpOptions& options) {
  std::map<std::string, std::string> attributes = options.attributes;
  attributes.try_emplace("service.name", "starling");
  if (!options.service.empty()) attributes["service.name"] = options.service;
  attributes.try_emplace("service.instance.id", options.instance);
  attributes["starling.job.name"] = options.job_name;
  attributes["starling.job.uid"] = options.job_uid;
  return {{"attributes", AttributesOf(attributes)}};
}

Json GaugeOf(const std::string& name, absl::Time time, Json value, const char* kind) {
  return {{"name", name},
          {"gauge",
           {{"dataPoints",
             Json::array({{{"timeUnixNano", NanosOf(time)}, {kind, std::move(value)}}})}}}};
}

// The trace of a job that belongs to no other has its UID's digits, so that it is found by them.
trace::TraceContext ContextOf(const OtlpOptions& options) {
  if (auto given = trace::ParseTraceparent(options.traceparent)) return *std::move(given);
  std::string digits;
  for (const char c : absl::AsciiStrToLower(options.job_uid)) {
    if (absl::ascii_isxdigit(static_cast<unsigned char>(c))) digits += c;
  }
  if (digits.size() != kTraceDigits) {
    digits = bytes::Sha256Hex(options.job_uid).substr(0, kTraceDigits);
  }
  return {.trace_id = digits, .parent_id = "", .sampled = true};
}

std::string Unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    int value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr ==
            text.data() + i + 3) {
      plain += static_cast<char>(value);
      i += 2;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

absl::Status OtlpWrong(const absl::Status& why) { return WithRemedy(why, kOtlpRemedy); }

// A collector may take a message and refuse some of it.
absl::Status RefusedIn(const std::string& answer) {
  const absl::StatusOr<Json> body = json::Parse(answer);
  const Json::json_pointer why("/partialSuccess/errorMessage");
  if (!body.ok() || !body->contains(why) || !body->at(why).is_string()) return absl::OkStatus();
  const auto message = body->at(why).get<std::string>();
  if (message.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("the collector has refused a part: " + message);
}

}  // namespace

std::map<std::string, std::string> PairsIn(std::string_view text) {
  std::map<std::string, std::string> pairs;
  for (const absl::string_view one :
       absl::StrSplit(absl::string_view(text.data(), text.size()), ',')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(one, absl::MaxSplits('=', 1));
    const std::string key(absl::StripAsciiWhitespace(pair.first));
    const absl::string_view value = absl::StripAsciiWhitespace(pair.second);
    if (!key.empty() && !value.empty()) pairs[key] = Unescaped({value.data(), value.size()});
  }
  return pairs;
}

OtlpSink::OtlpSink(OtlpOptions options, std::unique_ptr<http::HttpClient> client)
    : options_(std::move(options)), client_(std::move(client)), context_(ContextOf(options_)) {}

absl::StatusOr<std::unique_ptr<OtlpSink>> OtlpSink::Open(OtlpOptions options) {
  ASSIGN_OR_RETURN(auto client,
                   OpenJsonClient(options.uri, "OTLP", options.timeout, options.headers));
  return std::unique_ptr<OtlpSink>(new OtlpSink(std::move(options), std::move(client)));
}

// The message of a signal: one resource, one scope, and the list in it.
absl::Status OtlpSink::Send(const char* what, const char* group, const char* scope,
                            const char* items, Json list) {
  const Json inner = {{"scope", {{"name", kScope}}}, {items, std::move(list)}};
  const Json outer = {{"resource", ResourceOf(options_)}, {scope, Json::array({inner})}};
  http::Request request{.method = "POST",
                        .target = absl::StrCat("/v1/", what),
                        .body = json::Dump({{group, Json::array({outer})}}),
                        .headers = {}};
  const absl::StatusOr<http::Response> answer = client_->Exchange(request);
  if (!answer.ok()) return OtlpWrong(answer.status());
  if (answer->status != 200) return OtlpWrong(http::StatusOf(*answer, "OTLP"));
  const absl::Status refused = RefusedIn(answer->body);
  return refused.ok() ? refused : OtlpWrong(refused);
}

absl::Status OtlpSink::SendMetrics(const Points& points) {
  Json gauges =
      Json::array({GaugeOf("starling.step", points.time, absl::StrCat(points.step), "asInt")});
  for (const auto& [name, value] : points.values) {
    gauges.push_back(GaugeOf("starling." + name, points.time, NumberOf(value), "asDouble"));
  }
  return Send("metrics", "resourceMetrics", "scopeMetrics", "metrics", std::move(gauges));
}

Json OtlpSink::EndOpenSpan(absl::Time end) {
  Json events = Json::array();
  for (const Event& one : incidents_) {
    events.push_back({{"timeUnixNano", NanosOf(one.time)},
                      {"name", one.name},
                      {"attributes", AttributesOf(one.attributes)}});
  }
  Json span = {
      {"traceId", context_.trace_id},
      {"spanId",
       bytes::Sha256Hex(absl::StrCat(options_.job_uid, "/", view_->name)).substr(0, kSpanDigits)},
      {"name", view_->name},
      {"kind", kInternal},
      {"startTimeUnixNano", NanosOf(view_->time)},
      {"endTimeUnixNano", NanosOf(std::max(end, view_->time))},
      {"attributes", AttributesOf(view_->attributes)},
      {"events", std::move(events)}};
  if (!context_.parent_id.empty()) span["parentSpanId"] = context_.parent_id;
  view_.reset();
  incidents_.clear();
  return span;
}

absl::Status OtlpSink::Tell(const Points& points) {
  if (finished_) return absl::OkStatus();
  Json spans = Json::array();
  for (const Event& event : points.events) {
    if (event.kind == Event::Kind::kView) {
      if (view_) spans.push_back(EndOpenSpan(event.time));
      view_ = event;
    } else if (incidents_.size() < kMostIncidents) {
      incidents_.push_back(event);
    }
  }
  if (points.last && view_) spans.push_back(EndOpenSpan(points.time));
  finished_ = points.last;
  const absl::Status traced =
      spans.empty() || !context_.sampled
          ? absl::OkStatus()
          : Send("traces", "resourceSpans", "scopeSpans", "spans", std::move(spans));
  const absl::Status measured = points.values.empty() ? absl::OkStatus() : SendMetrics(points);
  return traced.ok() ? measured : traced;
}

}  // namespace starling::metric_export
