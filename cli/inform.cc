// SPDX-License-Identifier: Apache-2.0
// validate, explain, version, completion: what needs no store.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "api/spec/explain.h"
#include "api/yaml/yaml.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/job_source.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::cli {
namespace {

using kube::Json;

absl::Status Validate(Session& session, const Arguments& arguments) {
  const std::string output = arguments.Get("output", "yaml");
  if (output != "yaml" && output != "json") {
    return absl::InvalidArgumentError(absl::StrCat("-o ", output, ": one of yaml, json"));
  }
  RETURN_IF_ERROR(UseTemplates(session, arguments));
  ASSIGN_OR_RETURN(LoadedJob loaded,
                   LoadJob({.file = arguments.names[0],
                            .settings = arguments.All("set"),
                            .ns = arguments.Get("namespace"),
                            .check_data = arguments.Has("data"),
                            .default_ns = session.default_namespace(),
                            .relative_uris = !session.sees_files(),
                            .remember_spec = !session.in_cluster(),
                            .find = session.remote() ? nullptr : session.FindsTemplates()}));
  if (session.over_rest()) {
    ASSIGN_OR_RETURN(RestClient * rest, session.Rest());
    RETURN_IF_ERROR(rest->Validate(loaded.object).status());
  }
  if (session.in_cluster()) {
    // The server's schema, rules and webhook have their say too.
    ASSIGN_OR_RETURN(kube::KubeClient * store, session.Store());
    RETURN_IF_ERROR(store
                        ->Apply(kube::kTrainingJob, loaded.object,
                                {.field_manager = "starling-cli", .force = true, .dry_run = true})
                        .status());
  }
  Json job = std::move(loaded.object);
  job["spec"] = std::move(loaded.resolved);
  if (job["metadata"].contains("annotations")) {
    job["metadata"]["annotations"].erase(std::string(kLastAppliedSpec));
    if (job["metadata"]["annotations"].empty()) job["metadata"].erase("annotations");
  }
  session.terminal().Print(output == "json" ? json::DumpPretty(job) + "\n" : yaml::Write(job));
  return absl::OkStatus();
}

absl::Status Explain(Session& session, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const std::string text,
                   spec::Explain(arguments.names.empty() ? "" : arguments.names[0]));
  session.terminal().Print(text);
  return absl::OkStatus();
}

absl::Status Version(Session& session, const Arguments& arguments) {
  if (arguments.Get("output") == "json") {
    const Json version = {{"version", STARLING_VERSION}, {"apiVersion", "starling.dev/v1alpha1"}};
    session.terminal().Print(json::Dump(version) + "\n");
    return absl::OkStatus();
  }
  if (arguments.Has("output")) {
    return absl::InvalidArgumentError(
        absl::StrCat("-o ", arguments.Get("output"), ": only json is known here"));
  }
  session.terminal().Print(absl::StrCat("starling ", STARLING_VERSION, "\n"));
  return absl::OkStatus();
}

absl::Status Completion(Session& session, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const std::string script, CompletionScript(arguments.names[0]));
  session.terminal().Print(script);
  return absl::OkStatus();
}

}  // namespace

int ValidateCommand(Session& session, const Arguments& arguments) {
  return session.Fail(Validate(session, arguments));
}

int ExplainCommand(Session& session, const Arguments& arguments) {
  return session.Fail(Explain(session, arguments));
}

int VersionCommand(Session& session, const Arguments& arguments) {
  return session.Fail(Version(session, arguments));
}

int CompletionCommand(Session& session, const Arguments& arguments) {
  return session.Fail(Completion(session, arguments));
}

}  // namespace starling::cli
