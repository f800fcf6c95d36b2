// SPDX-License-Identifier: Apache-2.0
#include "controller/rest/job_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "api/spec/uris.h"
#include "controller/kube/objects.h"
#include "controller/resources/names.h"
#include "controller/rest/pod_logs.h"

namespace starling::service {

std::string LocalJobFiles::FolderOf(const kube::Json& job) const {
  return resources::JobFolder(jobs_folder_,
                              {kube::NamespaceOf(job), kube::NameOf(job), kube::UidOf(job)});
}

absl::StatusOr<std::shared_ptr<http::BodyStream>> LocalJobFiles::Logs(const kube::Json& job,
                                                                      LogRequest request) const {
  const std::string folder = FolderOf(job);
  if (!request.follow && !request.pod.empty() && FindPodLogs(folder, request).empty()) {
    return absl::NotFoundError(absl::StrCat("job \"", kube::NameOf(job), "\" has no pod \"",
                                            request.pod, "\" that has written anything"));
  }
  return std::make_shared<PodLogStream>(folder, clock_, std::move(request));
}

absl::StatusOr<OpenFile> LocalJobFiles::Model(const kube::Json& job) const {
  const std::string uri = kube::StringAt(job, "/status/result/model/uri");
  if (uri.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", kube::NameOf(job),
                     "\" has no model: it has not succeeded, or its "
                     "checkpoint.uri was not kept"));
  }
  const absl::StatusOr<std::string> path = spec::PathOfUri(uri);
  if (!path.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the model lies at ", uri, ", which is not served: fetch it from there"));
  }
  const std::string folder = std::filesystem::path(FolderOf(job)).lexically_normal().string() + "/";
  const std::string normal = std::filesystem::path(*path).lexically_normal().string();
  if (!normal.starts_with(folder)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the model lies outside the job's folder, at ", uri,
                     ", which is not served: fetch it from there"));
  }
  return OpenBeneath(folder, normal.substr(folder.size()));
}

}  // namespace starling::service
