// SPDX-License-Identifier: Apache-2.0
#include "cli/session.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/control_plane.h"
#include "cli/exit_code.h"
#include "common/status/macros.h"
#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/training_job_admission.h"
#include "controller/templates/templates.h"

namespace starling::cli {
namespace {

constexpr const char* kPodToken = "/var/run/secrets/kubernetes.io/serviceaccount/token";

}  // namespace

absl::Status Session::OpenCluster() {
  if (remote_ != nullptr) return absl::OkStatus();
  kube::HttpKubeClientOptions options;
  options.transport.headers = {{"User-Agent", absl::StrCat("starling/", STARLING_VERSION)}};
  options.field_manager = "starling-cli";
  ASSIGN_OR_RETURN(remote_, kube::OpenHttpKubeClient(*cluster_, std::move(options)));
  return absl::OkStatus();
}

absl::StatusOr<kube::PodLogs*> Session::Logs() {
  if (!in_cluster()) return absl::FailedPreconditionError("on this machine logs are files");
  RETURN_IF_ERROR(OpenCluster());
  return remote_.get();
}

absl::StatusOr<RestClient*> Session::Rest() {
  if (!over_rest()) return absl::FailedPreconditionError("no REST service was chosen");
  if (rest_ == nullptr) {
    ASSIGN_OR_RETURN(rest_, OpenRestClient(*server_));
  }
  return rest_.get();
}

absl::StatusOr<RestClient*> Session::RestOrHome() {
  if (over_rest()) return Rest();
  if (rest_ == nullptr) {
    if (home_.RestUrl().empty() || !ControllerRuns(home_)) {
      return absl::FailedPreconditionError(
          "no control plane is up to be asked: start it with `starling up`");
    }
    RestServer server;
    server.url = home_.RestUrl();
    server.token.file = home_.ApiToken();
    server.local = true;
    ASSIGN_OR_RETURN(rest_, OpenRestClient(server));
  }
  return rest_.get();
}

spec::FindTemplate Session::FindsTemplates() const {
  return templates::Finder(std::make_shared<templates::FolderTemplates>(
      templates_.empty() ? home_.Templates() : templates_));
}

absl::StatusOr<kube::KubeClient*> Session::Store() {
  if (over_rest()) return Rest();
  if (in_cluster()) {
    RETURN_IF_ERROR(OpenCluster());
    return remote_.get();
  }
  if (store_ == nullptr) {
    RETURN_IF_ERROR(home_.Create());
    kube::EmbeddedOptions options;
    options.path = home_.Store();
    options.admission["TrainingJob"] = kube::AdmitTrainingJobs(FindsTemplates());
    ASSIGN_OR_RETURN(store_, kube::OpenEmbeddedKubeClient(clock_, std::move(options)));
  }
  return store_.get();
}

int Session::Fail(const absl::Status& status) {
  // No message: the user who pressed Ctrl-C knows why it ends.
  if (status.ok() || absl::IsCancelled(status)) return ExitCodeOf(status);
  terminal_.Say(absl::StrCat(terminal_.PaintError(Style::kRed, "error:"), " ",
                             std::string(status.message())));
  return ExitCodeOf(status);
}

absl::StatusOr<std::optional<kube::ClusterConfig>> ChooseCluster(
    const Arguments& arguments, const EnvironmentReader& environment) {
  const bool asked =
      arguments.Has("kubeconfig") || arguments.Has("context") || arguments.Has("cluster");
  if (arguments.Has("home")) {
    if (!asked) return std::optional<kube::ClusterConfig>();
    return absl::InvalidArgumentError(
        "--home is this machine, --kubeconfig, --context and --cluster are a cluster: leave one "
        "out");
  }
  std::string path = arguments.Get("kubeconfig");
  if (path.empty()) path = environment("STARLING_KUBECONFIG");
  if (!asked && path.empty()) return std::optional<kube::ClusterConfig>();
  ASSIGN_OR_RETURN(kube::ClusterConfig config,
                   kube::LoadKubeconfig({path, arguments.Get("context")}, environment));
  return std::optional<kube::ClusterConfig>(std::move(config));
}

absl::StatusOr<std::optional<RestServer>> ChooseServer(const Arguments& arguments,
                                                       const EnvironmentReader& environment,
                                                       const Home& home) {
  RestServer server;
  server.url = arguments.Get("server");
  for (const char* other : {"home", "cluster", "context", "kubeconfig"}) {
    if (!arguments.Has(other)) continue;
    if (server.url.empty()) return std::optional<RestServer>();
    return absl::InvalidArgumentError(
        absl::StrCat("--server is one place and --", other, " another: leave one out"));
  }
  if (server.url.empty()) server.url = environment("STARLING_SERVER");
  if (server.url.empty()) {
    for (const char* flag : {"token-file", "ca-file"}) {
      if (!arguments.Has(flag)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, " goes with --server URL, which is missing"));
    }
    return std::optional<RestServer>();
  }
  if (!arguments.Has("server") && !environment("STARLING_KUBECONFIG").empty()) {
    return absl::InvalidArgumentError(
        "STARLING_SERVER is one place and STARLING_KUBECONFIG another: choose with --server, "
        "--kubeconfig or --home");
  }
  while (server.url.ends_with('/')) server.url.pop_back();
  server.local = server.url == home.RestUrl();
  const auto absolute = [](const std::string& path) {
    return std::filesystem::absolute(path).lexically_normal().string();
  };
  if (arguments.Has("token-file")) {
    server.token.file = absolute(arguments.Get("token-file"));
  } else if (const std::string token = environment("STARLING_TOKEN"); !token.empty()) {
    server.token.text = token;
  } else if (server.local) {
    server.token.file = home.ApiToken();
  } else if (std::filesystem::exists(kPodToken)) {
    server.token.file = kPodToken;
  }
  std::string authority = arguments.Get("ca-file");
  if (authority.empty()) authority = environment("STARLING_CA_FILE");
  if (!authority.empty()) server.authority.file = absolute(authority);
  return std::optional<RestServer>(std::move(server));
}

absl::Status UseTemplates(Session& session, const Arguments& arguments) {
  const std::string path = arguments.Get("templates");
  if (path.empty()) return absl::OkStatus();
  if (session.remote()) {
    return absl::InvalidArgumentError(
        "--templates is for jobs of this machine; in a cluster templates are objects, and a REST "
        "service has its own");
  }
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--templates ", path, ": there is no such file"));
  }
  session.UseTemplates(std::filesystem::absolute(path).lexically_normal().string());
  return absl::OkStatus();
}

std::string NamespaceOf(const Arguments& arguments) {
  return arguments.Get("namespace", "default");
}

std::string WithoutKind(std::string_view name, std::string* kind) {
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos) return std::string(name);
  if (kind != nullptr) *kind = std::string(name.substr(0, slash));
  return std::string(name.substr(slash + 1));
}

kube::ObjectKey JobKey(const Arguments& arguments, std::string_view name) {
  return {NamespaceOf(arguments), WithoutKind(name)};
}

absl::StatusOr<absl::Duration> DurationFlag(const Arguments& arguments, std::string_view flag,
                                            absl::Duration otherwise) {
  if (!arguments.Has(flag)) return otherwise;
  absl::Duration duration;
  const std::string text = arguments.Get(flag);
  if (!absl::ParseDuration(text, &duration) || duration < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", std::string(flag), " ", text, ": not a duration; write 30s, 5m, 1h30m"));
  }
  return duration;
}

}  // namespace starling::cli
