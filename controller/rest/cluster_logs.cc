// SPDX-License-Identifier: Apache-2.0
#include "controller/rest/cluster_logs.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/spec/uris.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"
#include "controller/resources/names.h"
#include "controller/rest/event_text.h"

namespace starling::service {
namespace {

using kube::Json;

constexpr std::size_t kPieceOfLogs = 48 << 10;
constexpr std::size_t kLogBytesPerSecond = 1 << 20;
constexpr std::size_t kLongestLogLine = 256 << 10;  // what is longer is told in parts
constexpr absl::Duration kLookForPodsEvery = absl::Seconds(2);
constexpr absl::Duration kReadLogsEvery = absl::Milliseconds(250);
constexpr absl::Duration kQuietLogs = absl::Seconds(15);  // then a heartbeat

std::string ContainerOf(const Json& pod) {
  for (const Json& container : kube::At(pod, "/spec/containers")) {
    if (kube::StringAt(container, "/name") == resources::kContainer) {
      return std::string(resources::kContainer);
    }
  }
  return kube::StringAt(pod, "/spec/containers/0/name");
}

absl::StatusOr<std::vector<Json>> PodsOfJob(kube::KubeClient& client, const kube::ObjectKey& key,
                                            const std::string& uid, const std::string& name) {
  kube::ListOptions options;
  options.selection.labels = resources::JobSelector(key.name);
  ASSIGN_OR_RETURN(kube::ObjectList list, client.List(kube::kPod, key.ns, options));
  std::vector<Json> pods;
  for (Json& pod : list.items) {
    if (kube::ControllerUidOf(pod) != uid) continue;
    if (name.empty() || kube::NameOf(pod) == name) pods.push_back(std::move(pod));
  }
  return pods;
}

}  // namespace

absl::StatusOr<ModelPlace> ParseModelPlace(std::string_view text) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string_view::npos) {
    return absl::InvalidArgumentError("must be URI=FOLDER, such as file:///checkpoints=/models/0");
  }
  const std::string uri(text.substr(0, equals));
  ModelPlace place{spec::PathOfUri(uri).value_or(""), std::string(text.substr(equals + 1))};
  while (place.path.ends_with('/')) place.path.pop_back();
  if (!place.path.starts_with('/')) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", uri, "\" must be the absolute file URI of a volume, such as file:///checkpoints"));
  }
  if (!place.folder.starts_with('/')) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", place.folder, "\" must be an absolute path of this machine"));
  }
  return place;
}

absl::StatusOr<std::shared_ptr<http::BodyStream>> ClusterJobFiles::Logs(const Json& job,
                                                                        LogRequest request) const {
  if (request.client == nullptr) {
    return absl::InvalidArgumentError("logs of a cluster are read with the caller's token");
  }
  const kube::ObjectKey key = kube::KeyOf(job);
  ASSIGN_OR_RETURN(const std::vector<Json> pods,
                   PodsOfJob(*request.client, key, kube::UidOf(job), request.pod));
  if (!request.follow && !request.pod.empty() && pods.empty()) {
    return absl::NotFoundError(
        absl::StrCat("job \"", key.name, "\" has no pod \"", request.pod, "\""));
  }
  return std::make_shared<ClusterLogStream>(key, kube::UidOf(job), clock_, std::move(request));
}

absl::StatusOr<OpenFile> ClusterJobFiles::Model(const Json& job) const {
  const std::string uri = kube::StringAt(job, "/status/result/model/uri");
  if (uri.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job \"", kube::NameOf(job),
        "\" has no model that outlives its pods: it has not succeeded, or its spec.checkpoint.uri "
        "is not set"));
  }
  const std::string path = spec::PathOfUri(uri).value_or("");
  if (path.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the model of job \"", kube::NameOf(job), "\" lies at ", uri,
                     ", which is not served: fetch it from there"));
  }
  for (const ModelPlace& place : places_) {
    if (!path.starts_with(place.path + "/")) continue;
    const std::string relative = path.substr(place.path.size() + 1);
    const std::string own = absl::StrCat(kube::UidOf(job), "/model.safetensors");
    if (relative != own && !relative.ends_with("/" + own)) {
      return absl::FailedPreconditionError(
          absl::StrCat("the model of job \"", kube::NameOf(job), "\" is said to lie at ", uri,
                       ", which is not this job's own folder; it is not served"));
    }
    absl::StatusOr<OpenFile> file = OpenBeneath(place.folder, relative);
    if (!absl::IsNotFound(file.status())) return file;
    return absl::FailedPreconditionError(
        absl::StrCat("the model of job \"", kube::NameOf(job),
                     "\" is not on the volume that is mounted here for ", place.path,
                     ": the job has another volume there, or it was deleted"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the model of job \"", kube::NameOf(job), "\" lies at ", uri,
      ", as its pods see it, on a volume that this service does not have: mount the volume of "
      "spec.replicaSpecs.worker.template into a pod of yours, or have it mounted here (api.models "
      "of "
      "the chart)"));
}

ClusterLogStream::ClusterLogStream(kube::ObjectKey key, std::string uid, const clock::Clock& clock,
                                   LogRequest request)
    : key_(std::move(key)),
      uid_(std::move(uid)),
      clock_(clock),
      request_(std::move(request)),
      deadline_(clock.Now() + request_.timeout),
      last_said_(clock.Now()) {}

absl::Status ClusterLogStream::Open(const std::string& uid, const Json& pod) {
  kube::LogOptions options;
  options.container = ContainerOf(pod);
  options.follow = request_.follow;
  options.previous = request_.previous;
  options.tail_lines = request_.tail;
  auto stream = request_.client->ReadLogs(kube::KeyOf(pod), options);
  // Its container has not started, or it is gone again; of a run before this one there was none.
  if (absl::IsInvalidArgument(stream.status()) || absl::IsNotFound(stream.status())) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(stream.status());
  sources_.emplace(uid, Source{kube::NameOf(pod), *std::move(stream), ""});
  return absl::OkStatus();
}

absl::Status ClusterLogStream::LookForPods() {
  if (clock_.Now() < next_look_) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<Json> pods,
                   PodsOfJob(*request_.client, key_, uid_, request_.pod));
  for (const Json& pod : pods) {
    const std::string uid = kube::UidOf(pod);
    if (!sources_.contains(uid)) RETURN_IF_ERROR(Open(uid, pod));
  }
  next_look_ = request_.follow ? clock_.Now() + kLookForPodsEvery : absl::InfiniteFuture();
  return absl::OkStatus();
}

std::string ClusterLogStream::Say(const Source& source, std::string_view lines) const {
  if (!request_.events && !request_.pod.empty()) return std::string(lines);
  std::string text;
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    const std::string line(lines.substr(0, end));
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (request_.events) {
      text += EventText("log", json::Dump({{"pod", source.pod}, {"line", line}}));
    } else {
      absl::StrAppend(&text, "[", source.pod, "] ", line, "\n");
    }
  }
  return text;
}

// Adds what has come of one container; false: nothing has.
bool ClusterLogStream::Read(Source& source, std::string& text) {
  if (source.stream == nullptr) return false;
  const auto piece = source.stream->Next(absl::ZeroDuration());
  if (piece.ok() && !*piece) return false;
  if (piece.ok()) {
    source.rest += **piece;
  } else {
    source.stream = nullptr;  // its end; one that broke is not begun again, or it would repeat
    if (!source.rest.empty()) source.rest += '\n';
  }
  std::size_t end = source.rest.rfind('\n');
  if (end == std::string::npos && source.rest.size() > kLongestLogLine) {
    source.rest += '\n';
    end = source.rest.size() - 1;
  }
  if (end == std::string::npos) return piece.ok();
  text += Say(source, std::string_view(source.rest).substr(0, end + 1));
  source.rest.erase(0, end + 1);
  return true;
}

http::BodyStream::Piece ClusterLogStream::End(Piece piece, std::string_view reason) const {
  if (request_.events) piece.bytes += EndText(reason);
  piece.ended = true;
  return piece;
}

http::BodyStream::Piece ClusterLogStream::Next() {
  Piece piece;
  if (request_.permit != nullptr && request_.permit->ended() != nullptr) {
    return End(std::move(piece), request_.permit->ended());
  }
  // Asked before the pods are read: what was written until then is read below.
  const bool over = !request_.follow || (request_.over && request_.over());
  const absl::Status looked = LookForPods();
  if (absl::IsPermissionDenied(looked)) return End(std::move(piece), "Forbidden");
  bool more = false;
  bool open = false;
  for (auto& [uid, source] : sources_) {
    if (piece.bytes.size() >= kPieceOfLogs) more = open = true;
    if (piece.bytes.size() >= kPieceOfLogs) break;
    more = Read(source, piece.bytes) || more;
    open = open || source.stream != nullptr;
  }
  const absl::Time now = clock_.Now();
  if (over && !more && !open) {
    return End(std::move(piece), request_.follow ? "JobFinished" : "Complete");
  }
  if (draining_) return End(std::move(piece), "Shutdown");
  if (now >= deadline_) return End(std::move(piece), "Deadline");
  if (!more && request_.events && now - last_said_ >= kQuietLogs) piece.bytes = kHeartbeat;
  if (!piece.bytes.empty()) last_said_ = now;
  piece.pause =
      more ? absl::Milliseconds(1) +
                 absl::Seconds(static_cast<double>(piece.bytes.size()) / kLogBytesPerSecond)
           : kReadLogsEvery;
  return piece;
}

}  // namespace starling::service
