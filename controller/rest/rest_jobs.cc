// SPDX-License-Identifier: Apache-2.0
// Jobs are submitted, replaced, changed, deleted and checked.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/spec/job_file.h"
#include "api/spec/resolve.h"
#include "api/spec/uris.h"
#include "api/spec/writer.h"
#include "common/bytes/bytes.h"
#include "common/json/json.h"
#include "common/trace/trace_context.h"
#include "controller/kube/objects.h"
#include "controller/resources/names.h"
#include "controller/rest/body.h"
#include "controller/rest/rest_service.h"

namespace starling::service {
namespace {

using kube::Json;

// What a request was, kept with the job that it made: the same request again is no second one.
constexpr char kDigest[] = "starling.dev/request-digest";
constexpr char kKey[] = "starling.dev/request-key";
constexpr std::size_t kSuffix = 10;
constexpr std::size_t kLongestPrefix = 30;
constexpr int kTries = 5;
// Of a write, for the copy that readers see. A watch that lags for longer is not waited for.
constexpr absl::Duration kLongestWaitForCopy = absl::Milliseconds(500);
constexpr absl::Duration kLookAtCopyEvery = absl::Milliseconds(1);

std::string Suffix(const std::string& key) {
  if (!key.empty()) return key.substr(0, kSuffix);
  return bytes::Sha256Hex(bytes::RandomBytes(32)).substr(0, kSuffix);
}

// Sets what the path says (empty: it does not), and takes out metadata.generateName, which files do
// not have.
std::optional<rest::Problem> PlaceJob(const std::string& ns, const std::string& name,
                                      Json& document, std::string& prefix) {
  Json& metadata = document["metadata"];
  if (metadata.is_null()) metadata = Json::object();
  if (!metadata.is_object()) return std::nullopt;  // the reader says so
  spec::FieldErrors errors;
  const auto fit = [&](const char* field, const std::string& wanted) {
    Json& value = metadata[field];
    if (value.is_null()) value = wanted;
    if (value.is_string() && value != wanted) {
      errors.push_back({absl::StrCat("metadata.", field),
                        absl::StrCat("is ", value.get<std::string>().substr(0, 100),
                                     ", but the path says ", wanted)});
    }
  };
  if (!ns.empty()) fit("namespace", ns);
  if (!name.empty()) fit("name", name);
  if (name.empty() && !metadata.contains("name") && metadata.contains("generateName")) {
    const Json generate = metadata["generateName"];
    metadata.erase("generateName");
    if (!generate.is_string() || generate.get_ref<const std::string&>().size() > kLongestPrefix) {
      errors.push_back({"metadata.generateName", "must be text of at most 30 characters"});
    } else {
      prefix = generate.get<std::string>();
      metadata["name"] = prefix + std::string(kSuffix, '0');  // checked with this, then made
    }
  }
  if (errors.empty()) return std::nullopt;
  return rest::InvalidJob(std::move(errors));
}

}  // namespace

spec::FieldErrors RestService::CheckStored(const Json& job) const {
  v1alpha1::TrainingJob read;
  if (options_.relative_uris || !spec::ReadStoredJob(job, read).empty()) return {};
  return spec::CheckUrisAbsolute(read.spec(), "spec");
}

// The job of the body as it is to be stored, without a name if `prefix` is set. All that is wrong
// is told at once, by the paths of its fields.
std::variant<Json, rest::Problem> RestService::ReadSubmitted(const Asked& asked,
                                                             std::string& prefix) {
  auto body = ReadBody(asked.request, BodyForms::kJsonOrYaml);
  if (std::holds_alternative<rest::Problem>(body)) return body;
  Json document = std::get<Json>(std::move(body));
  if (auto problem = PlaceJob(asked.call.ns, asked.call.name, document, prefix)) {
    return *std::move(problem);
  }
  spec::CheckedJob checked;
  spec::FieldErrors errors = spec::CheckJob(document, checked);
  if (errors.empty() && !options_.relative_uris) {
    errors = spec::CheckUrisAbsolute(checked.job.spec(), "spec");
  }
  if (!errors.empty()) return rest::InvalidJob(std::move(errors));
  checked.job.clear_status();
  Json job = spec::WriteMessage(checked.job);
  if (!prefix.empty()) job["metadata"].erase("name");
  return job;
}

// The name is taken: by what this very request made before, or by something else.
RestService::Outcome RestService::MeetExisting(const Asked& asked, const Json& wanted,
                                               bool with_key) {
  const absl::StatusOr<Json> existing = StoreOf(asked).Get(kube::kTrainingJob, kube::KeyOf(wanted));
  if (absl::IsPermissionDenied(existing.status())) {
    return rest::MakeProblem("AlreadyExists", "the name is taken, and you may not read by what");
  }
  if (!existing.ok()) return rest::FromStatus(existing.status());
  const auto same = [&](const char* annotation) {
    const std::string value = kube::AnnotationOf(wanted, annotation);
    return !value.empty() && value == kube::AnnotationOf(*existing, annotation);
  };
  const std::string name = absl::StrCat("job \"", kube::NameOf(wanted), "\"");
  if (kube::IsBeingDeleted(*existing)) {
    return rest::MakeProblem("AlreadyExists", name + " is being deleted",
                             "wait until it is gone, or choose another name");
  }
  if (same(kDigest)) return JobResponse(200, *existing);
  if (with_key && same(kKey)) {
    return rest::MakeProblem("IdempotencyKeyReused",
                             "this key made " + name + " from another body");
  }
  return rest::MakeProblem("AlreadyExists", name + " already exists");
}

RestService::Outcome RestService::CreateJob(const Asked& asked) {
  std::string prefix;
  auto submitted = ReadSubmitted(asked, prefix);
  if (auto* problem = std::get_if<rest::Problem>(&submitted)) return std::move(*problem);
  Json job = std::get<Json>(std::move(submitted));
  const std::string given(asked.request.Header("Idempotency-Key"));
  std::string key;
  if (!given.empty()) {
    key = bytes::ToHex(bytes::Hmac(
        options_.signing_key,
        absl::StrCat(asked.caller.name, "\n", asked.call.ns, "\n", prefix, "\n", given)));
  }
  Json annotations = {{kDigest, bytes::Sha256Hex(prefix + json::Dump(job))}};
  if (!key.empty()) annotations[kKey] = key;
  if (const auto context = trace::ParseTraceparent(asked.request.Header("traceparent"))) {
    annotations[std::string(resources::kTraceparentAnnotation)] = trace::ToTraceparent(*context);
  }
  job["metadata"]["annotations"].update(annotations);
  if (!prefix.empty()) job["metadata"]["name"] = prefix + Suffix(key);
  if (asked.call.Text("dryRun") == "All") {
    absl::StatusOr<Json> would = StoreOf(asked).DryRunCreate(kube::kTrainingJob, job);
    if (!would.ok()) return rest::FromStatus(would.status());
    return JobResponse(201, *std::move(would));
  }
  absl::StatusOr<Json> created = StoreOf(asked).Create(kube::kTrainingJob, job);
  if (absl::IsAlreadyExists(created.status())) return MeetExisting(asked, job, !key.empty());
  Outcome outcome = Written(asked, std::move(created), 201);
  if (auto* response = std::get_if<http::Response>(&outcome)) {
    response->headers.emplace_back(
        "Location", absl::StrCat("/v1/namespaces/", asked.call.ns, "/jobs/", kube::NameOf(job)));
  }
  return outcome;
}

// Readers see it at once.
RestService::Outcome RestService::Written(const Asked& asked, absl::StatusOr<Json> job,
                                          int status) {
  if (!job.ok()) {
    const bool expected =
        !asked.request.Header("If-Match").empty() || !asked.call.Text("uid").empty();
    if (expected && absl::IsAborted(job.status())) {
      return rest::MakeProblem("PreconditionFailed", std::string(job.status().message()));
    }
    return rest::FromStatus(job.status());
  }
  AwaitCopy(*job);
  return JobResponse(status, *std::move(job));
}

// Until readers see what was written. The copy is waited for and not told: it would tell listeners
// of this version before it has heard of older ones of other jobs, and who comes back with its
// number would miss those.
void RestService::AwaitCopy(const Json& job) const {
  const kube::ObjectKey key = kube::KeyOf(job);
  const absl::Time until = clock_.Now() + kLongestWaitForCopy;
  while (clock_.Now() < until) {
    const auto seen = jobs_.Get({key.ns, key.name});
    const bool there =
        seen != nullptr && kube::UidOf(*seen) == kube::UidOf(job) &&
        !runtime::IsOlder(kube::ResourceVersionOf(*seen), kube::ResourceVersionOf(job));
    if (there) return;
    absl::SleepFor(kLookAtCopyEvery);
  }
}

RestService::Outcome RestService::ReplaceJob(const Asked& asked) {
  std::string prefix;
  auto submitted = ReadSubmitted(asked, prefix);
  if (auto* problem = std::get_if<rest::Problem>(&submitted)) return std::move(*problem);
  const Json& wanted = std::get<Json>(submitted);
  // A job that is sent back as it was read says which state that was.
  const auto body = ReadBody(asked.request, BodyForms::kJsonOrYaml);
  const std::string expected = kube::ResourceVersionOf(std::get<Json>(body));
  const bool any = expected.empty() && asked.request.Header("If-Match").empty();
  for (int attempt = 1;; ++attempt) {
    auto found = FindJob(asked);
    if (auto* problem = std::get_if<rest::Problem>(&found)) return std::move(*problem);
    Json job = std::get<Json>(std::move(found));
    if (!expected.empty() && expected != kube::ResourceVersionOf(job)) {
      return rest::MakeProblem("Conflict", "metadata.resourceVersion is " + expected +
                                               ", but the job's is " +
                                               kube::ResourceVersionOf(job));
    }
    job["spec"] = wanted.at("spec");
    job["metadata"]["labels"] = kube::At(wanted, "/metadata/labels");
    Json annotations = kube::At(wanted, "/metadata/annotations");
    if (annotations.is_null()) annotations = Json::object();
    // What we noted ourselves is not the caller's to forget.
    for (const auto& [name, value] : kube::At(job, "/metadata/annotations").items()) {
      if (name.starts_with("starling.dev/")) annotations[name] = value;
    }
    job["metadata"]["annotations"] = std::move(annotations);
    absl::StatusOr<Json> updated = StoreOf(asked).Update(kube::kTrainingJob, job);
    const bool again = absl::IsAborted(updated.status()) && attempt < kTries && any;
    if (!again) return Written(asked, std::move(updated), 200);
  }
}

// Writes a patch of the job as it was read: with If-Match only onto that state.
RestService::Outcome RestService::Patched(const Asked& asked, const Json& job, Json patch) {
  patch["metadata"]["uid"] = kube::UidOf(job);
  if (!asked.request.Header("If-Match").empty()) {
    patch["metadata"]["resourceVersion"] = kube::ResourceVersionOf(job);
  }
  return Written(asked, StoreOf(asked).Patch(kube::kTrainingJob, kube::KeyOf(job), patch), 200);
}

RestService::Outcome RestService::PatchJob(const Asked& asked) {
  auto body = ReadBody(asked.request, BodyForms::kMergePatch);
  if (auto* problem = std::get_if<rest::Problem>(&body)) return std::move(*problem);
  const Json& patch = std::get<Json>(body);
  auto found = FindJob(asked);
  if (auto* problem = std::get_if<rest::Problem>(&found)) return std::move(*problem);
  const Json& job = std::get<Json>(found);
  spec::FieldErrors errors;
  for (const auto& [name, value] : patch.items()) {
    if (name == "spec" && value.is_object()) continue;
    if (name == "metadata" && value.is_object()) continue;
    errors.push_back({name, "cannot be patched; give an object for spec or metadata"});
  }
  for (const auto& [name, value] : kube::At(patch, "/metadata").items()) {
    if (name == "labels" || name == "annotations") continue;
    errors.push_back({"metadata." + name, "cannot be patched; labels and annotations can"});
  }
  if (!errors.empty()) return rest::InvalidJob(std::move(errors));
  Json merged = job;
  merged.merge_patch(patch);
  errors = CheckStored(merged);
  if (!errors.empty()) return rest::InvalidJob(std::move(errors));
  return Patched(asked, job, patch);
}

RestService::Outcome RestService::DeleteJob(const Asked& asked) {
  auto found = FindJob(asked);
  if (auto* problem = std::get_if<rest::Problem>(&found)) return std::move(*problem);
  const Json& job = std::get<Json>(found);
  kube::DeleteOptions options;
  options.uid = kube::UidOf(job);
  if (!asked.request.Header("If-Match").empty()) {
    options.resource_version = kube::ResourceVersionOf(job);
  }
  absl::StatusOr<Json> deleted =
      StoreOf(asked).Delete(kube::kTrainingJob, kube::KeyOf(job), options);
  if (absl::IsAborted(deleted.status())) {
    return rest::MakeProblem("PreconditionFailed", std::string(deleted.status().message()));
  }
  if (!deleted.ok()) return rest::FromStatus(deleted.status());
  return JobResponse(200, *std::move(deleted));
}

std::variant<RestService::ResolvedJob, rest::Problem> RestService::ReadResolved(
    const Asked& asked) {
  std::string prefix;
  auto submitted = ReadSubmitted(asked, prefix);
  if (auto* problem = std::get_if<rest::Problem>(&submitted)) return std::move(*problem);
  Json job = std::get<Json>(std::move(submitted));
  spec::FieldErrors errors = TryTemplate(job);
  v1alpha1::TrainingJob read;
  if (errors.empty()) errors = spec::ReadStoredJob(job, read);
  if (!errors.empty()) return rest::InvalidJob(std::move(errors));
  return ResolvedJob{std::move(job), spec::Resolve(read.spec())};
}

RestService::Outcome RestService::ValidateJob(const Asked& asked) {
  auto resolving = ReadResolved(asked);
  if (auto* problem = std::get_if<rest::Problem>(&resolving)) return std::move(*problem);
  auto& [job, resolved] = std::get<ResolvedJob>(resolving);
  job["spec"] = spec::WriteMessage(resolved);
  return JsonResponse(200, job);
}

}  // namespace starling::service
