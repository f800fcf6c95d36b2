// SPDX-License-Identifier: Apache-2.0
// What a job's pods have written: logs and the model.
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "api/spec/trace_request.h"
#include "common/http/conditional.h"
#include "controller/kube/objects.h"
#include "controller/rest/event_text.h"
#include "controller/rest/rest_service.h"
#include "controller/rest/summary.h"

namespace starling::service {

using kube::Json;

RestService::Outcome RestService::GetLogs(const Asked& asked) {
  const auto found = FindLiveOrPast(asked);
  if (const auto* problem = std::get_if<rest::Problem>(&found)) return *problem;
  const Json& job = std::get<Told>(found).object;
  if (std::get<Told>(found).past) return PastLogs(asked, job);
  LogRequest request;
  request.pod = asked.call.Text("pod");
  request.follow = asked.call.Flag("follow");
  request.tail = asked.call.Integer("tail");
  request.previous = asked.call.Flag("previous");
  request.events = asked.request.Header("Accept").find(kEventStream) != std::string_view::npos;
  request.timeout = absl::Seconds(asked.call.Integer("timeoutSeconds").value_or(3600));
  request.over = [&jobs = jobs_, key = kube::KeyOf(job), uid = kube::UidOf(job)] {
    const auto now = jobs.Get({key.ns, key.name});
    return now == nullptr || kube::UidOf(*now) != uid || IsFinished(*now);
  };
  request.client = asked.caller.client;
  request.permit = asked.caller.permit;
  request.ticket = limits_.OpenStream(asked.caller.name);
  if (request.ticket == nullptr) {
    return rest::MakeProblem("TooManyRequests", "too many streams are open", "close one of them");
  }
  const bool events = request.events;
  absl::StatusOr<std::shared_ptr<http::BodyStream>> logs = files_.Logs(job, std::move(request));
  if (!logs.ok()) return rest::FromStatus(logs.status());
  return http::Response{.body = "",
                        .content_type = events ? kEventStream : "text/plain; charset=utf-8",
                        .headers = {{"X-Accel-Buffering", "no"}},
                        .stream = *std::move(logs)};
}

RestService::Outcome RestService::GetModel(const Asked& asked) {
  const auto found = FindJob(asked);
  if (const auto* problem = std::get_if<rest::Problem>(&found)) return *problem;
  const Json& job = std::get<Json>(found);
  absl::StatusOr<OpenFile> file = files_.Model(job);
  if (absl::IsNotFound(file.status()) || absl::IsFailedPrecondition(file.status()) ||
      absl::IsPermissionDenied(file.status())) {
    return rest::MakeProblem("ModelNotKept", std::string(file.status().message()));
  }
  if (!file.ok()) return rest::FromStatus(file.status());
  const std::string digest = kube::StringAt(job, "/status/result/model/sha256");
  http::Response response{.status = 200,
                          .body = "",
                          .content_type = "application/octet-stream",
                          .headers = {{"Accept-Ranges", "bytes"}}};
  if (!digest.empty()) response.headers.emplace_back("ETag", http::Quoted(digest));
  const std::string_view tags = asked.request.Header("If-None-Match");
  if (!digest.empty() && http::HoldsTag(tags, digest)) {
    response.status = 304;
    return response;
  }
  const std::uint64_t size = file->size;
  http::ByteRange range = http::ParseRange(asked.request.Header("Range"), size);
  if (range.kind == http::ByteRange::Kind::kUnsatisfiable) {
    rest::Problem problem =
        rest::MakeProblem("RangeNotSatisfiable", absl::StrCat("the model has ", size, " bytes"));
    problem.headers.emplace_back("Content-Range", absl::StrCat("bytes */", size));
    return problem;
  }
  if (range.kind == http::ByteRange::Kind::kPart) {
    response.status = 206;
    response.headers.emplace_back("Content-Range",
                                  absl::StrCat("bytes ", range.first, "-", range.last, "/", size));
  } else if (size > 0) {
    range.last = size - 1;
  }
  response.headers.emplace_back(
      "Content-Disposition",
      absl::StrCat("attachment; filename=\"", kube::NameOf(job), ".safetensors\""));
  response.stream = StreamFile(*std::move(file), range.first, size == 0 ? 0 : range.length());
  return response;
}

// As the caller reads it: it is an object of the job's namespace.
RestService::Outcome RestService::GetTrace(const Asked& asked) {
  const auto found = FindJob(asked);
  if (const auto* problem = std::get_if<rest::Problem>(&found)) return *problem;
  const Json& job = std::get<Json>(found);
  const std::string name = spec::TraceConfigName(kube::NameOf(job));
  const absl::StatusOr<Json> config =
      StoreOf(asked).Get(kube::kConfigMap, {kube::NamespaceOf(job), name});
  if (!config.ok() && !absl::IsNotFound(config.status())) return rest::FromStatus(config.status());
  std::string packed;
  const bool there =
      config.ok() && kube::ControllerUidOf(*config) == kube::UidOf(job) &&
      absl::Base64Unescape(kube::StringAt(*config, absl::StrCat("/binaryData/", spec::kTraceKey)),
                           &packed);
  if (!there) {
    return rest::MakeProblem(
        "NotFound", absl::StrCat("nothing was recorded of job \"", kube::NameOf(job), "\""),
        "ask for it with POST ...:trace, and again for what it gave");
  }
  return http::Response{
      .status = 200,
      .body = std::move(packed),
      .content_type = "application/gzip",
      .headers = {
          {"X-Trace-Request", kube::AnnotationOf(*config, spec::kTraceRequest)},
          {"Content-Disposition", absl::StrCat("attachment; filename=\"", name, ".json.gz\"")}}};
}

}  // namespace starling::service
