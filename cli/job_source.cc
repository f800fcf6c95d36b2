// SPDX-License-Identifier: Apache-2.0
#include "cli/job_source.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "api/spec/admission.h"
#include "api/spec/job_file.h"
#include "api/spec/reader.h"
#include "api/spec/resolve.h"
#include "api/spec/uris.h"
#include "api/spec/writer.h"
#include "api/yaml/yaml.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"
#include "trainer/workload/workloads.h"

namespace starling::cli {
namespace {

using kube::Json;

absl::Status Override(Json& document, const std::vector<std::string>& settings) {
  for (const std::string& setting : settings) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--set ", setting, ": write path=value, such as spec.stop.epochs=5"));
    }
    RETURN_IF_ERROR(spec::SetPath(document, setting.substr(0, equals), setting.substr(equals + 1)));
  }
  return absl::OkStatus();
}

// A program that reads its own data: whether it is there itself.
absl::Status CheckTheScript(const v1alpha1::PyTorch& pytorch) {
  const std::string path = spec::PathOfUri(pytorch.script()).value_or(pytorch.script());
  if (std::ifstream(path).good() && !std::filesystem::is_directory(path)) return absl::OkStatus();
  return spec::ToStatus({{"spec.workload.pytorch.script",
                          absl::StrCat(path,
                                       " is no file that can be read; relative paths start "
                                       "at the job file's folder")}});
}

absl::Status CheckTheData(const v1alpha1::TrainingJobSpec& resolved) {
  if (resolved.workload().has_container()) return absl::OkStatus();  // it reads its own
  if (resolved.workload().has_pytorch()) return CheckTheScript(resolved.workload().pytorch());
  spec::FieldErrors errors;
  for (const data::FieldProblem& problem : workload::Check(resolved)) {
    errors.push_back({problem.path, problem.message});
  }
  return spec::ToStatus(errors);
}

spec::UriBases BasesOf(const std::string& file) {
  spec::UriBases bases;
  std::error_code error;
  bases.working_directory = std::filesystem::current_path(error);
  if (file != "-") {
    bases.job_folder = std::filesystem::absolute(file, error).parent_path().lexically_normal();
  }
  return bases;
}

// The spec as it counts for comparison.
absl::StatusOr<std::string> MeaningOf(const Json& spec) {
  v1alpha1::TrainingJobSpec given;
  RETURN_IF_ERROR(spec::ToStatus(spec::ReadMessage(spec, "spec", given)));
  v1alpha1::TrainingJobSpec resolved = spec::Resolve(given);
  resolved.mutable_run_policy()->clear_suspend();
  return json::Dump(spec::WriteMessage(resolved));
}

// What the job means where its template is known, as it will be admitted.
absl::StatusOr<v1alpha1::TrainingJobSpec> ResolveWithTemplate(const v1alpha1::TrainingJob& job,
                                                              const spec::FindTemplate& find) {
  if (!job.spec().has_template_ref() || find == nullptr) return spec::Resolve(job.spec());
  Json object = spec::WriteMessage(job);
  RETURN_IF_ERROR(spec::ToStatus(spec::ApplyTemplate(object, nullptr, find)));
  RETURN_IF_ERROR(spec::ToStatus(spec::CheckAdmission(object, nullptr)));
  v1alpha1::TrainingJob filled;
  RETURN_IF_ERROR(spec::ToStatus(spec::ReadStoredJob(object, filled)));
  return spec::Resolve(filled.spec());
}

}  // namespace

absl::StatusOr<LoadedJob> LoadJob(const JobSource& source) {
  absl::StatusOr<Json> read = yaml::ReadJobFile(source.file);
  // A job that is not there is "not found"; a file that is not there is a wrong file.
  if (!read.ok()) return absl::InvalidArgumentError(read.status().message());
  Json document = *std::move(read);
  if (!document.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(
        source.file == "-" ? "standard input" : source.file, ": must be an object, not ",
        json::Describe(document), "; write apiVersion, kind, metadata and spec"));
  }
  RETURN_IF_ERROR(Override(document, source.settings));
  spec::CheckedJob checked;
  RETURN_IF_ERROR(spec::ToStatus(spec::CheckJob(document, checked)));
  v1alpha1::TrainingJob& job = checked.job;
  if (!source.ns.empty()) {
    const std::string& written = job.metadata().namespace_();
    if (!written.empty() && written != source.ns) {
      return absl::InvalidArgumentError(
          absl::StrCat("metadata.namespace: is ", written, ", but -n says ", source.ns));
    }
    job.mutable_metadata()->set_namespace_(source.ns);
  }
  if (job.metadata().namespace_().empty())
    job.mutable_metadata()->set_namespace_(source.default_ns);
  if (!source.relative_uris) spec::MakeUrisAbsolute(*job.mutable_spec(), BasesOf(source.file));
  job.clear_status();
  ASSIGN_OR_RETURN(const v1alpha1::TrainingJobSpec resolved, ResolveWithTemplate(job, source.find));
  if (source.check_data) RETURN_IF_ERROR(CheckTheData(resolved));
  LoadedJob loaded{spec::WriteMessage(job), spec::WriteMessage(resolved)};
  if (!source.remember_spec) return loaded;
  loaded.object["metadata"]["annotations"][std::string(kLastAppliedSpec)] =
      json::Dump(loaded.object["spec"]);
  return loaded;
}

bool SameMeaning(const Json& spec, const Json& other) {
  const auto mine = MeaningOf(spec);
  const auto theirs = MeaningOf(other);
  return mine.ok() && theirs.ok() && *mine == *theirs;
}

}  // namespace starling::cli
